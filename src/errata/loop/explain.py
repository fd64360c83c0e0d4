"""A loop -> the words a person reads: why again, why stopped, and what would have changed it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from errata.loop.decide import Again, Done, Policy, Verdict, decide, triggers
from errata.loop.feedback import clean
from errata.loop.record import Attempt, Loop
from errata.loop.stop import LIFTABLE, Echo, Fatigue, MaxAttempts, Plateau, Repeat, StopRule


@dataclass(frozen=True, slots=True)
class Line:
    """One attempt in words: its number, what was wrong with it, and what was decided."""

    attempt: int
    wrong: tuple[str, ...]
    decided: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a loop went on and why it stopped; `str()` is the text, the fields are the facts.

    `would_change` lists single changes, each of which alone turns the last verdict.
    """

    lines: tuple[Line, ...]
    verdict: Verdict
    would_change: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(_words(self))


def explain(loop: Loop, policy: Policy) -> Explanation:
    """The same answer for the same loop and policy, always."""
    lines = []
    for end in range(1, len(loop.attempts) + 1):
        prefix = replace(loop, attempts=loop.attempts[:end], cancelled="")
        seen = loop if end == len(loop.attempts) else prefix
        lines.append(_line(seen, decide(seen, policy)))
    verdict = decide(loop, policy)
    return Explanation(tuple(lines), verdict, tuple(_changes(loop, policy, verdict)))


def _line(loop: Loop, verdict: Verdict) -> Line:
    last = loop.attempts[-1]
    evaluation = last.evaluation
    wrong = tuple(t.detail for t in triggers(evaluation, loop.goals)) if evaluation else ()
    return Line(last.number, wrong, _decided(verdict))


def _decided(verdict: Verdict) -> str:
    if isinstance(verdict, Again):
        lifted = ", ".join(f"{one.stop.rule} overridden by {one.by}" for one in verdict.lifted)
        return f"again ({lifted})" if lifted else "again"
    if verdict.passed:
        return "passed"
    return "stopped by " + "; ".join(f"{s.rule}: {s.detail}" for s in verdict.stopped_by)


def _words(explanation: Explanation) -> Iterator[str]:
    for line in explanation.lines:
        wrong = f": {clean('; '.join(line.wrong), 300)}" if line.wrong else ""
        yield f"attempt {line.attempt}{wrong} -> {line.decided}"
    verdict = explanation.verdict
    if isinstance(verdict, Done) and not verdict.passed:
        kept = f"attempt {verdict.best}" if verdict.best else "nothing: no attempt was evaluated"
        yield f"kept: {kept}"
    for change in explanation.would_change:
        yield f"would have changed it: {change}"


def _changes(loop: Loop, policy: Policy, verdict: Verdict) -> Iterator[str]:
    if isinstance(verdict, Again):
        return
    if not verdict.passed:
        yield from _goal_changes(loop)
        yield from _rule_changes(loop, policy)


def _goal_changes(loop: Loop) -> Iterator[str]:
    last: Attempt | None = loop.attempts[-1] if loop.attempts else None
    if last is None or last.evaluation is None or last.evaluation.errors:
        return
    unmet = last.evaluation.unmet(loop.goals)
    if len(unmet) == 1 and not last.evaluation.unscored(loop.goals):
        goal = unmet[0]
        score = last.evaluation.scores[goal.score]
        yield f"{goal.score} at {goal.threshold:g} instead of {score:g}"


def _rule_changes(loop: Loop, policy: Policy) -> Iterator[str]:
    for index, rule in enumerate(policy.rules):
        relaxed = _relaxed(rule, loop)
        if relaxed is None:
            continue
        other, words = relaxed
        rules = (*policy.rules[:index], other, *policy.rules[index + 1 :])
        if rule(loop) and isinstance(decide(loop, replace(policy, rules=rules)), Again):
            yield words


def _relaxed(rule: StopRule, loop: Loop) -> tuple[StopRule, str] | None:
    """The same rule with its one threshold moved just far enough, and that in words."""
    match rule:
        case MaxAttempts(limit=limit):
            more = len(loop.attempts) + 1
            return MaxAttempts(more), f"attempts at {more} instead of {limit}"
        case Fatigue(limit=limit) if rule.level(loop) < 1:
            level = round(rule.level(loop) + 0.001, 3)
            return replace(rule, limit=level), f"a fatigue limit of {level:g} instead of {limit:g}"
        case Echo(times=times):
            more = max(rule.counts(loop).values(), default=0) + 1
            return replace(rule, times=more), f"echo at {more} times instead of {times}"
        case Repeat(times=times):
            more = times + 1
            while Repeat(more)(loop):
                more += 1
            return Repeat(more), f"repeat at {more} times instead of {times}"
        case Plateau(patience=int(patience)):
            more = len(loop.attempts)
            return replace(rule, patience=more), f"a patience of {more} instead of {patience}"
        case _:
            return None


def liftable(verdict: Verdict) -> tuple[str, ...]:
    """The names of the rules that an override could lift now, as the verdict stands."""
    if isinstance(verdict, Again):
        return ()
    return tuple(s.rule for s in verdict.stopped_by if s.rule in LIFTABLE)
