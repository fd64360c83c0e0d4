"""Explain a loop: why it went on, why it stopped, and what would have changed the last verdict.

What would have changed it is the smallest change of one threshold or score that turns the verdict,
found by deciding again with other values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from heedful.loop import record
from heedful.loop.decide import Again, Done, Policy, Verdict, consume_overrides, decide, triggers
from heedful.loop.record import Evaluation, Improvement, Loop, clean, format_score
from heedful.loop.stop import All, StopRule, rule_name

FARTHEST = 1 << 24  # steps of a threshold that are tried in either direction
Case = tuple[Loop, Policy]
# The way to a value in a case: names of fields, keys and places.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """The smallest change of one threshold or score that turns the verdict.

    `outcome` is the other verdict: again, passed or stopped. `loop` and `policy` have the change.
    """

    what: str
    was: float
    to: float
    outcome: str
    loop: Loop
    policy: Policy

    @property
    def size(self) -> float:
        """The size of the change as a share of the old value."""
        return abs(self.to - self.was) / max(abs(self.was), 0.001)

    def __str__(self) -> str:
        to, was = format_score(self.to), format_score(self.was)
        return f"{self.what} {to} instead of {was}: {self.outcome}"


def changes(loop: Loop, policy: Policy, verdict: Verdict) -> tuple[Change, ...]:
    """List the smallest changes that turn `verdict`: one for each threshold, score and direction.

    The smallest relative change comes first. The list is empty if `policy` does not give that
    verdict, because then something else decided too.
    """
    case, was = (loop, policy), _ends(verdict)[0]
    if not gives(loop, policy, verdict):
        return ()
    last = (loop.attempts[-1].evaluation if loop.attempts else None) or Evaluation()
    found = [
        change
        for what, now, path in _knobs(last, loop, policy)
        for direction in (1, -1)
        if (change := _smallest(case, what, now, path, direction, was))
    ]
    made = {change.what for change in found if change.outcome == "passed"}
    for goal in last.unmet(loop.goals) if was != "passed" else ():
        what, to = f"score {goal.score}", float(goal.threshold)
        changed = _with(case, (*_SCORES, goal.score), to)
        if what not in made and _ends(decide(*changed))[0] == "passed":
            found.append(Change(what, float(last.scores[goal.score]), to, "passed", *changed))
    return tuple(sorted(found, key=lambda change: change.size))


def _smallest(
    case: Case, what: str, now: float, path: Path, direction: int, was: str
) -> Change | None:
    """Find the nearest value in one direction that turns the verdict; it may miss a lone one."""

    def at(steps: int) -> Change | None:
        steps *= direction
        value = now + steps if isinstance(now, int) else round(now + steps * 0.001, 3)
        try:
            loop, policy = _with(case, path, value)
            record.check_goals(loop.goals)
        except ValueError:  # InvalidInput, or a rule of the user's own that refuses the value
            return None
        return Change(what, now, value, _ends(decide(loop, policy))[0], loop, policy)

    def stands(steps: int) -> bool:
        change = at(steps)
        return change is not None and change.outcome == was

    low, high = 0, 1
    while stands(high) and high < FARTHEST:
        low, high = high, 2 * high
    while high - low > 1 and not stands(high):
        middle = (low + high) // 2
        low, high = (middle, high) if stands(middle) else (low, middle)
    change = at(high)
    return change if change is not None and change.outcome != was else None


def gives(loop: Loop, policy: Policy, verdict: Verdict) -> bool:
    """Return True if `policy` gives that verdict, by the same rules."""
    return _ends(decide(loop, policy)) == _ends(verdict)


def _ends(verdict: Verdict) -> tuple[str, ...]:
    """Return the kind of a verdict, and the rules that decided it."""
    if isinstance(verdict, Again):
        return ("again",)
    rules = sorted(stop.rule for stop in verdict.stopped_by)
    return "passed" if verdict.passed else "stopped", *rules


_SCORES: Path = (0, "attempts", -1, "evaluation", "scores")


def _knobs(last: Evaluation, loop: Loop, policy: Policy) -> Iterator[tuple[str, float, Path]]:
    """Yield each value that can change: its name, its present value, and the way to it."""
    scored = [(n, goal) for n, goal in enumerate(loop.goals) if goal.score in last.scores]
    for name in dict.fromkeys(goal.score for _, goal in scored):
        yield f"score {name}", float(last.scores[name]), (*_SCORES, name)
    for n, goal in scored:
        yield f"threshold of {goal.score}", float(goal.threshold), (0, "goals", n, "threshold")
    if isinstance(policy.improvement, Improvement):
        yield "min_gain", float(policy.improvement.min_gain), (1, "improvement", "min_gain")
    for n, rule in enumerate(policy.rules):
        yield from _rule_knobs(rule, "", (1, "rules", n))


def _rule_knobs(rule: StopRule, prefix: str, path: Path) -> Iterator[tuple[str, float, Path]]:
    if isinstance(rule, All):
        for n, member in enumerate(rule.rules):
            yield from _rule_knobs(member, f"{prefix}{rule.name}: ", (*path, "rules", n))
    elif is_dataclass(rule) and not isinstance(rule, type):
        for field in fields(rule):
            now = getattr(rule, field.name)
            if isinstance(now, int | float) and not isinstance(now, bool):
                now = float(now) if "float" in str(field.type) else now
                yield f"{prefix}{rule_name(rule)}.{field.name}", now, (*path, field.name)


def _with(held: Any, path: Path, value: Any) -> Any:
    """Return a record, tuple or mapping with another value at the end of the path."""
    if not path:
        return value
    step, *rest = path
    if isinstance(step, int):  # a place in a tuple
        parts = list(held)
        parts[step] = _with(parts[step], (*rest,), value)
        return tuple(parts)
    if isinstance(held, Mapping):
        return {**held, step: _with(held[step], (*rest,), value)}
    part = _with(getattr(held, step), (*rest,), value)
    return All(*part) if isinstance(held, All) else replace(held, **{step: part})


@dataclass(frozen=True, slots=True)
class Line:
    """One attempt: its number, what was wrong with it, and what was decided."""

    attempt: int
    wrong: tuple[str, ...]
    decided: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a loop went on and why it stopped; `str()` is the text, the fields are the facts.

    `would_change` lists the smallest change of each threshold and score that alone turns the last
    verdict, the smallest first. If it is empty for a stopped loop, `otherwise` says why.
    """

    lines: tuple[Line, ...]
    verdict: Verdict
    would_change: tuple[Change, ...]
    otherwise: str = ""

    @property
    def ways(self) -> tuple[str, ...]:
        """What would have changed the verdict, in words; empty if the loop passed."""
        passed = isinstance(self.verdict, Done) and self.verdict.passed
        words = () if passed else (*map(str, self.would_change), self.otherwise)
        return tuple(clean(one, 200) for one in words if one)

    def __str__(self) -> str:
        said = []
        for line in self.lines:
            wrong = f": {clean('; '.join(line.wrong), 300)}" if line.wrong else ""
            said.append(f"attempt {line.attempt}{wrong} -> {line.decided}")
        if isinstance(self.verdict, Done) and not self.verdict.passed:
            best = self.verdict.best
            kept = f"attempt {best}" if best else "nothing: no attempt was evaluated"
            said.append(f"kept: {kept}")
        return "\n".join([*said, *(f"would have changed it: {way}" for way in self.ways)])


def explain(
    loop: Loop, policy: Policy, recorded: Mapping[int, Verdict] | None = None
) -> Explanation:
    """Explain a loop; the same loop and policy always give the same explanation.

    `recorded` holds the stored verdict after each attempt, by its number. It is shown as it is,
    even if another policy, or rules that are code, gave it.
    """
    loop = replace(loop, improves=policy.improvement)
    verdicts = {**_decide_again(loop, policy), **(recorded or {})}
    verdict = verdicts[len(loop.attempts)]
    lines = []
    for attempt in loop.attempts:
        wrong = triggers(attempt.evaluation, loop.goals) if attempt.evaluation else ()
        decided = _decided(verdicts[attempt.number])
        lines.append(Line(attempt.number, tuple(each.detail for each in wrong), decided))
    found, why = changes(loop, policy, verdict), ""
    if not found and isinstance(verdict, Done) and not verdict.passed:
        why = "not known: the policy at hand is not all that stopped it"
        if gives(loop, policy, verdict):
            names = " and ".join(stop.rule for stop in verdict.stopped_by)
            why = f"no single threshold or score: {names} stopped it"
    return Explanation(tuple(lines), verdict, found, why)


def _decide_again(loop: Loop, policy: Policy) -> dict[int, Verdict]:
    """Decide again after each attempt, as it was decided then; or once, without attempts.

    Usage outside the attempts is left out, and overrides count as used where they first lifted a
    rule. That holds for the last attempt, too, if its verdict used an override.
    """
    used = tuple(replace(o, used=0, decisions=o.used, until=None) for o in loop.overrides)
    past = replace(loop, overrides=used, extra=record.NOTHING, cancelled="")
    verdicts: dict[int, Verdict] = {}
    for end in range(1, len(loop.attempts)):
        past = replace(past, attempts=loop.attempts[:end])
        verdicts[end] = decide(past, policy)
        past = consume_overrides(past, verdicts[end])
    last = replace(loop, overrides=past.overrides)
    verdict = decide(last, policy)
    left = [o for o in consume_overrides(last, verdict).overrides if o.used < o.decisions]
    if left or not (isinstance(verdict, Again) and verdict.lifted):
        verdict = decide(loop, policy)
    return {**verdicts, len(loop.attempts): verdict}


def _decided(verdict: Verdict) -> str:
    if isinstance(verdict, Again):
        by = (f"{one.stop.rule} overridden by {clean(one.by, 60)}" for one in verdict.lifted)
        return f"again ({', '.join(by)})" if verdict.lifted else "again"
    stops = (f"{stop.rule}: {clean(stop.detail, 400)}" for stop in verdict.stopped_by)
    return "passed" if verdict.passed else f"stopped by {'; '.join(stops)}"
