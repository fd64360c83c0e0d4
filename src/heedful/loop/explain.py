"""Explain a loop: why it went on, why it stopped, and what would have changed that.

To find what would have changed a verdict, the loop is decided again with other
thresholds and scores. The smallest change of one value that gives another verdict is
reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, is_dataclass, replace
from typing import Any

from heedful.loop import record
from heedful.loop.decide import (
    Again,
    Decision,
    Done,
    Policy,
    Verdict,
    decide,
    echoes_before,
    triggers,
)
from heedful.loop.record import Evaluation, Loop, format_score
from heedful.loop.stop import All, StopRule, rule_name
from heedful.sanitize import clean

MAX_THRESHOLD_STEPS = 1 << 24  # steps of a threshold that are tried in either direction
Case = tuple[Loop, Policy]
Path = tuple[
    str | int, ...
]  # the path to a value in a case: names of fields, keys and indices


@dataclass(frozen=True, slots=True)
class Change:
    """The smallest change of one threshold or score that gives another verdict.

    `what` names the value, which changes from `was` to `to`. `outcome` is the new
    verdict: again, passed or stopped. `loop` and `policy` contain the change.
    """

    what: str
    was: float
    _: KW_ONLY
    to: float
    outcome: str
    loop: Loop
    policy: Policy

    def __str__(self) -> str:
        to = format_score(self.to)
        was = format_score(self.was)
        return f"{self.what} {to} instead of {was}: {self.outcome}"


def changes(loop: Loop, policy: Policy, verdict: Verdict) -> tuple[Change, ...]:
    """Return the smallest change of each threshold and score that gives another
    verdict.

    A value may have two changes, up and down. Changes are sorted by relative size,
    smallest first. If `policy` does not give `verdict`, the result is empty.
    """
    case = (loop, policy)
    was = _ends(verdict)[0]
    if not gives(loop, policy, verdict):
        return ()

    last = (loop.attempts[-1].evaluation if loop.attempts else None) or Evaluation()
    smallest = []
    for knob, now, path in _knobs(last, loop, policy):
        for direction in (1, -1):
            change = _smallest(case, knob, now, path=path, direction=direction, was=was)
            if change is not None:
                smallest.append(change)

    return tuple(sorted(smallest, key=_relative_size))


def _relative_size(change: Change) -> float:
    return abs(change.to - change.was) / max(abs(change.was), 0.001)


def _smallest(
    case: Case, knob: str, now: float, path: Path, direction: int, was: str
) -> Change | None:
    """Return the smallest change in one direction that gives another verdict, or
    None.
    """

    def at(steps: int) -> Change | None:
        steps *= direction
        value = now + steps if isinstance(now, int) else round(now + steps * 0.001, 3)
        try:
            loop, policy = _with(case, path, value)
            record.check_goals(loop.goals)
        except ValueError:  # InvalidInput, or user code that refuses the value
            return None
        return Change(
            knob,
            now,
            to=value,
            outcome=_ends(decide(loop, policy))[0],
            loop=loop,
            policy=policy,
        )

    def same(steps: int) -> bool:
        change = at(steps)
        return change is not None and change.outcome == was

    low = 0
    high = 1
    while same(high) and high < MAX_THRESHOLD_STEPS:
        low = high
        high = 2 * high

    while high - low > 1 and not same(high):
        middle = (low + high) // 2
        low, high = (middle, high) if same(middle) else (low, middle)

    change = at(high)
    return change if change is not None and change.outcome != was else None


def gives(loop: Loop, policy: Policy, verdict: Verdict) -> bool:
    """Return True if `policy` gives the same verdict, with the same rules that stop the
    loop.
    """
    return _ends(decide(loop, policy)) == _ends(verdict)


def _ends(verdict: Verdict) -> tuple[str, ...]:
    """Return the kind of a verdict and the names of the rules that stopped the loop."""
    if isinstance(verdict, Again):
        return ("again",)
    rules = sorted(stop.rule for stop in verdict.stopped_by)
    return "passed" if verdict.passed else "stopped", *rules


def _knobs(
    last: Evaluation, loop: Loop, policy: Policy
) -> Iterator[tuple[str, float, Path]]:
    """Yield the name, the present value and the path of each value that can change."""
    scored = [
        (n, goal) for n, goal in enumerate(loop.goals) if goal.score in last.scores
    ]
    for name in dict.fromkeys(goal.score for _, goal in scored):
        path = (0, "attempts", -1, "evaluation", "scores", name)
        yield f"score {name}", float(last.scores[name]), path

    for n, goal in scored:
        yield (
            f"threshold of {goal.score}",
            float(goal.threshold),
            (0, "goals", n, "threshold"),
        )

    yield "min_gain", float(policy.improvement.min_gain), (1, "improvement", "min_gain")
    for n, rule in enumerate(policy.rules):
        yield from _rule_knobs(rule, "", (1, "rules", n))


def _rule_knobs(
    rule: StopRule, prefix: str, path: Path
) -> Iterator[tuple[str, float, Path]]:
    if isinstance(rule, All):
        for n, member in enumerate(rule.rules):
            yield from _rule_knobs(
                member, f"{prefix}{rule.name}: ", (*path, "rules", n)
            )
    elif is_dataclass(rule) and not isinstance(rule, type):
        for field in fields(rule):
            now = getattr(rule, field.name)
            if isinstance(now, int | float) and not isinstance(now, bool):
                now = float(now) if "float" in str(field.type) else now
                yield (
                    f"{prefix}{rule_name(rule)}.{field.name}",
                    now,
                    (*path, field.name),
                )


def _with(record: Any, path: Path, value: Any) -> Any:
    """Return a copy of a record, tuple or mapping with `value` at the end of `path`."""
    if not path:
        return value

    step, *deeper = path
    if isinstance(step, int):  # an index of a tuple
        parts = list(record)
        parts[step] = _with(parts[step], (*deeper,), value)
        return tuple(parts)

    if isinstance(record, Mapping):
        return {**record, step: _with(record[step], (*deeper,), value)}

    part = _with(getattr(record, step), (*deeper,), value)
    if isinstance(record, All):
        return All(*part)

    return replace(record, **{step: part})


@dataclass(frozen=True, slots=True)
class Line:
    """One attempt: what was wrong with its candidate, and what was decided."""

    attempt: int
    wrong: tuple[str, ...]
    decided: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a loop continued and why it stopped; `str()` returns it as text.

    `would_change` has, smallest first, the changes of one threshold or score that
    change the last verdict. If a stopped loop has no such change, `otherwise` says why.
    """

    lines: tuple[Line, ...]
    verdict: Verdict
    _: KW_ONLY
    would_change: tuple[Change, ...]
    otherwise: str = ""

    @property
    def ways(self) -> tuple[str, ...]:
        """What would have changed the verdict, as sentences; empty if the loop
        passed.
        """
        passed = isinstance(self.verdict, Done) and self.verdict.passed
        words = () if passed else (*map(str, self.would_change), self.otherwise)
        return tuple(clean(sentence, 200) for sentence in words if sentence)

    def __str__(self) -> str:
        texts = []
        for line in self.lines:
            wrong = f": {clean('; '.join(line.wrong), 300)}" if line.wrong else ""
            texts.append(f"attempt {line.attempt}{wrong} -> {line.decided}")

        if isinstance(self.verdict, Done) and not self.verdict.passed:
            best = self.verdict.best
            best_text = "nothing: no attempt was evaluated"
            if best:
                best_text = f"attempt {best}"
            texts.append(f"kept: {best_text}")

        texts += [f"would have changed it: {way}" for way in self.ways]
        return "\n".join(texts)


def explain(
    loop: Loop, policy: Policy, recorded: Mapping[int, Verdict] | None = None
) -> Explanation:
    """Explain a loop; the result depends on the arguments only.

    `recorded` has stored verdicts by attempt. They replace those of `policy`, which may
    be newer.
    """
    loop = replace(loop, improves=policy.improvement)
    verdicts = {**_decide_again(loop, policy), **(recorded or {})}
    verdict = verdicts[len(loop.attempts)]
    lines = []
    for attempt in loop.attempts:
        wrong: tuple[str, ...] = ()
        if attempt.evaluation:
            reasons = triggers(attempt.evaluation, loop.goals)
            wrong = tuple(trigger.detail for trigger in reasons)
        lines.append(Line(attempt.number, wrong, _decided(verdicts[attempt.number])))

    would_change = changes(loop, policy, verdict)
    otherwise = ""
    if not would_change and isinstance(verdict, Done) and not verdict.passed:
        otherwise = "not known: the policy at hand is not all that stopped it"
        if gives(loop, policy, verdict):
            names = " and ".join(stop.rule for stop in verdict.stopped_by)
            otherwise = f"no single threshold or score: {names} stopped it"

    return Explanation(
        tuple(lines), verdict, would_change=would_change, otherwise=otherwise
    )


def explain_recorded(
    loop: Loop, policy: Policy, decisions: Sequence[Decision]
) -> Explanation:
    """Explain a loop by its recorded decisions and the echoes that they saw."""
    if decisions:
        loop = replace(loop, echoes=echoes_before(loop, policy, decisions[-1]))
    verdicts = {decision.attempt: decision.verdict for decision in decisions}
    return explain(loop, policy, verdicts)


def _decide_again(loop: Loop, policy: Policy) -> dict[int, Verdict]:
    """Return the verdict after each attempt, by its number; without attempts, one
    verdict at 0.

    The record does not say when an override was used, so each one that was used ever
    counts for every verdict before the last. For these, usage outside the attempts does
    not count.
    """
    used = tuple(
        replace(override, used=0, until=None)
        for override in loop.overrides
        if override.used
    )
    past = replace(loop, overrides=used, extra=record.NO_USAGE, cancelled="")
    verdicts = {
        end: decide(past.upto(end), policy) for end in range(1, len(loop.attempts))
    }
    return {**verdicts, len(loop.attempts): decide(loop, policy)}


def _decided(verdict: Verdict) -> str:
    if isinstance(verdict, Again):
        lifted = [
            f"{stop.rule} overridden by {clean(stop.by, 60)}" for stop in verdict.lifted
        ]
        return f"again ({', '.join(lifted)})" if lifted else "again"
    stops = (f"{stop.rule}: {clean(stop.detail, 400)}" for stop in verdict.stopped_by)
    return "passed" if verdict.passed else f"stopped by {'; '.join(stops)}"
