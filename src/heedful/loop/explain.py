"""A loop -> the words a person reads: why again, why stopped, and what would have changed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from heedful.loop.change import Change, changes, gives
from heedful.loop.decide import Again, Done, Policy, Verdict, decide, spent, triggers
from heedful.loop.feedback import clean
from heedful.loop.record import Attempt, Goal, Loop
from heedful.protocols import Usage


@dataclass(frozen=True, slots=True)
class Line:
    """One attempt in words: its number, what was wrong with it, and what was decided."""

    attempt: int
    wrong: tuple[str, ...]
    decided: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a loop went on and why it stopped; `str()` is the text, the fields are the facts.

    `would_change` lists the smallest change of each threshold and score that alone turns the last
    verdict, the smallest of all first; where there is none for a loop that was stopped, `otherwise`
    says why.
    """

    lines: tuple[Line, ...]
    verdict: Verdict
    would_change: tuple[Change, ...]
    otherwise: str = ""

    @property
    def ways(self) -> tuple[str, ...]:
        """What would have changed it, in words; nothing where the loop passed."""
        passed = isinstance(self.verdict, Done) and self.verdict.passed
        words = () if passed else (*map(str, self.would_change), self.otherwise)
        return tuple(clean(one, 200) for one in words if one)

    def __str__(self) -> str:
        return "\n".join(_words(self))


def explain(
    loop: Loop, policy: Policy, recorded: Mapping[int, Verdict] | None = None
) -> Explanation:
    """The same answer for the same loop and policy, always.

    `recorded` has the last verdict after each attempt (by its number) that was stored: it is told
    as it is, though it fell under another policy, or under rules that are code.
    """
    loop = replace(loop, improves=policy.improvement)
    verdicts = {**_decided_anew(loop, policy), **(recorded or {})}
    verdict = verdicts[len(loop.attempts)]
    lines = tuple(_line(one, loop.goals, verdicts[one.number]) for one in loop.attempts)
    found = changes(loop, policy, verdict)
    why = "" if found else _otherwise(verdict, turns=gives(loop, policy, verdict))
    return Explanation(lines, verdict, found, why)


def _decided_anew(loop: Loop, policy: Policy) -> dict[int, Verdict]:
    """The verdict after each attempt, as it fell then, or of a loop without attempts.

    Before what was cut later was spent, and with the overrides that were used, wherever they lifted
    a rule first. So is the last one where it used one.
    """
    used = tuple(replace(o, used=0, decisions=o.used, until=None) for o in loop.overrides)
    past = replace(loop, overrides=used, extra=Usage(), cancelled="")
    verdicts: dict[int, Verdict] = {}
    for end in range(1, len(loop.attempts)):
        past = replace(past, attempts=loop.attempts[:end])
        verdicts[end] = decide(past, policy)
        past = spent(past, verdicts[end])
    last = replace(loop, overrides=past.overrides)
    verdict = decide(last, policy)
    left = [o for o in spent(last, verdict).overrides if o.used < o.decisions]
    if left or not (isinstance(verdict, Again) and verdict.lifted):
        verdict = decide(loop, policy)
    return {**verdicts, len(loop.attempts): verdict}


def _otherwise(verdict: Verdict, turns: bool) -> str:
    if isinstance(verdict, Again) or verdict.passed:
        return ""
    if not turns:
        return "not known: the policy at hand is not all that stopped it"
    names = " and ".join(stop.rule for stop in verdict.stopped_by)
    return f"no single threshold or score: {names} stopped it"


def _line(last: Attempt, goals: tuple[Goal, ...], verdict: Verdict) -> Line:
    evaluation = last.evaluation
    wrong = tuple(t.detail for t in triggers(evaluation, goals)) if evaluation else ()
    return Line(last.number, wrong, _decided(verdict))


def _decided(verdict: Verdict) -> str:
    if isinstance(verdict, Again):
        lifted = ", ".join(
            f"{one.stop.rule} overridden by {clean(one.by, 60)}" for one in verdict.lifted
        )
        return f"again ({lifted})" if lifted else "again"
    if verdict.passed:
        return "passed"
    return "stopped by " + "; ".join(
        f"{s.rule}: {clean(s.detail, 400)}" for s in verdict.stopped_by
    )


def _words(explanation: Explanation) -> Iterator[str]:
    for line in explanation.lines:
        wrong = f": {clean('; '.join(line.wrong), 300)}" if line.wrong else ""
        yield f"attempt {line.attempt}{wrong} -> {line.decided}"
    verdict = explanation.verdict
    if isinstance(verdict, Done) and not verdict.passed:
        kept = f"attempt {verdict.best}" if verdict.best else "nothing: no attempt was evaluated"
        yield f"kept: {kept}"
    yield from (f"would have changed it: {way}" for way in explanation.ways)
