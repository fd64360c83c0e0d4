"""A loop -> the words a person reads: why again, why stopped, and what would have changed it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from errata.loop.change import Change, changes
from errata.loop.decide import Again, Done, Policy, Verdict, decide, spent, triggers
from errata.loop.feedback import clean
from errata.loop.record import Loop
from errata.loop.stop import LIFTABLE
from errata.protocols import Usage


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
    verdict, the smallest of all first.
    """

    lines: tuple[Line, ...]
    verdict: Verdict
    would_change: tuple[Change, ...]

    def __str__(self) -> str:
        return "\n".join(_words(self))


def explain(loop: Loop, policy: Policy, recorded: Verdict | None = None) -> Explanation:
    """The same answer for the same loop and policy, always.

    Earlier attempts are told as they were decided then: before what was cut later was spent, and
    with the overrides that were used, wherever they lifted a rule first. So is the last one where
    it used one. `recorded` is the verdict that was stored, where not all rules are at hand.
    """
    loop = replace(loop, improves=policy.improvement)
    used = tuple(replace(o, used=0, decisions=o.used, until=None) for o in loop.overrides)
    past = replace(loop, overrides=used, extra=Usage(), cancelled="")
    lines = []
    for end in range(1, len(loop.attempts)):
        past = replace(past, attempts=loop.attempts[:end])
        lines.append(_line(past, was := decide(past, policy)))
        past = spent(past, was)
    last = replace(loop, overrides=past.overrides)
    verdict = decide(last, policy)
    left = [o for o in spent(last, verdict).overrides if o.used < o.decisions]
    if left or not (isinstance(verdict, Again) and verdict.lifted):
        verdict = decide(loop, policy)
    verdict = recorded or verdict
    if loop.attempts:
        lines.append(_line(loop, verdict))
    return Explanation(tuple(lines), verdict, changes(loop, policy, verdict))


def _line(loop: Loop, verdict: Verdict) -> Line:
    last = loop.attempts[-1]
    evaluation = last.evaluation
    wrong = tuple(t.detail for t in triggers(evaluation, loop.goals)) if evaluation else ()
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
    passed = isinstance(verdict, Done) and verdict.passed
    for change in () if passed else explanation.would_change:
        yield f"would have changed it: {clean(str(change), 200)}"


def liftable(verdict: Verdict) -> tuple[str, ...]:
    """The names of the rules that an override could lift now, as the verdict stands."""
    if isinstance(verdict, Again):
        return ()
    names = [name for s in verdict.stopped_by for name in s.rule.split("+")]
    return tuple(dict.fromkeys(name for name in names if name in LIFTABLE))
