"""A loop -> the words a person reads: why again, why stopped, and what would have changed it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from errata.loop.decide import Again, Done, Policy, Verdict, decide, spent, triggers
from errata.loop.feedback import clean
from errata.loop.measure import shown
from errata.loop.record import Loop
from errata.loop.stop import LIFTABLE, Echo, Fatigue, MaxAttempts, Plateau, Repeat, StopRule
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

    `would_change` lists single changes, each of which alone turns the last verdict.
    """

    lines: tuple[Line, ...]
    verdict: Verdict
    would_change: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(_words(self))


@dataclass(frozen=True, slots=True)
class Change:
    """One change that alone turns the verdict: in words, and the loop and policy it would give."""

    words: str
    loop: Loop
    policy: Policy


def explain(loop: Loop, policy: Policy, recorded: Verdict | None = None) -> Explanation:
    """The same answer for the same loop and policy, always.

    Earlier attempts are told as they were decided then: before what was cut later was spent, and
    with the overrides that lifted a rule there. So is the last one where it consumed an override.
    `recorded` is the verdict that was stored, where not all rules of the policy are at hand.
    """
    loop = replace(loop, improves=policy.improvement)
    unused = tuple(replace(o, used=0) for o in loop.overrides)
    past = replace(loop, overrides=unused, extra=Usage(), cancelled="")
    lines = []
    for end in range(1, len(loop.attempts)):
        past = replace(past, attempts=loop.attempts[:end])
        lines.append(_line(past, was := decide(past, policy)))
        past = spent(past, was)
    last = replace(loop, overrides=past.overrides)
    verdict = decide(last, policy)
    if spent(last, verdict).overrides != loop.overrides:
        verdict = decide(loop, policy)
    verdict = recorded or verdict
    if loop.attempts:
        lines.append(_line(loop, verdict))
    words = tuple(change.words for change in changes(loop, policy, verdict))
    return Explanation(tuple(lines), verdict, words)


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
    for change in explanation.would_change:
        yield f"would have changed it: {change}"


def changes(loop: Loop, policy: Policy, verdict: Verdict) -> Iterator[Change]:
    """What would have turned the verdict: the one goal that was missed, or one rule relaxed."""
    if isinstance(verdict, Again) or verdict.passed:
        return
    if loop.attempts and (evaluation := loop.attempts[-1].evaluation):
        unmet = evaluation.unmet(loop.goals)
        if len({goal.score for goal in unmet}) == 1:
            goal = unmet[0]
            scores = {**evaluation.scores, goal.score: goal.threshold}
            last = replace(loop.attempts[-1], evaluation=replace(evaluation, scores=scores))
            met = replace(loop, attempts=(*loop.attempts[:-1], last))
            was = shown(evaluation.scores[goal.score])
            words = f"{goal.score} at {shown(goal.threshold)} instead of {was}"
            if decide(met, policy) == Done(met.best, passed=True):
                yield Change(words, met, policy)
    for index, rule in enumerate(policy.rules):
        relaxed = _relaxed(rule, loop) if rule(loop) else None
        if relaxed is not None:
            other = replace(policy, rules=_with(policy.rules, index, relaxed[0]))
            if isinstance(decide(loop, other), Again):
                yield Change(relaxed[1], loop, other)


def _with(rules: tuple[StopRule, ...], index: int, rule: StopRule) -> tuple[StopRule, ...]:
    return (*rules[:index], rule, *rules[index + 1 :])


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
    names = [name for s in verdict.stopped_by for name in s.rule.split("+")]
    return tuple(dict.fromkeys(name for name in names if name in LIFTABLE))
