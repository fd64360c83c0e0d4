"""Explain a loop: why it went on, why it stopped, and what would have changed the last verdict.

What would have changed it is the smallest change of one threshold or score that turns the verdict,
found by deciding again with other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from heedful.loop.decide import Again, Done, Policy, Verdict, consume_overrides, decide, triggers
from heedful.loop.record import (
    Attempt,
    Evaluation,
    Goal,
    Improvement,
    Loop,
    Usage,
    check_goals,
    clean,
    format_score,
)
from heedful.loop.stop import All, StopRule, rule_name

FARTHEST = 1 << 24  # steps of a threshold that are tried in either direction
Case = tuple[Loop, Policy]


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


@dataclass(frozen=True, slots=True)
class Knob:
    """A value that can change: its name, its present value, its smallest step, and its case."""

    what: str
    now: float
    step: float
    make: Callable[[Any], Case]

    def at(self, steps: int) -> tuple[Any, Case] | None:
        """Return the value that many steps away and the case with it; None if it is not allowed."""
        whole = isinstance(self.now, int)
        value = self.now + steps if whole else round(self.now + steps * self.step, 3)
        try:
            return value, self.make(value)
        except ValueError:  # InvalidInput, or a rule of the user's own that refuses the value
            return None


def changes(loop: Loop, policy: Policy, verdict: Verdict) -> tuple[Change, ...]:
    """List the smallest changes that turn `verdict`: one for each threshold, score and direction.

    The smallest relative change comes first. The list is empty if `policy` does not give that
    verdict, because then something else decided too.
    """
    was = _kind(verdict)
    if not gives(loop, policy, verdict):
        return ()
    found: list[Change] = []
    for knob in _knobs(loop, policy):
        for direction in (1, -1):
            change = _smallest(knob, direction, was)
            if change is not None:
                found.append(change)
    made = {(change.what, change.outcome) for change in found}
    found += [one for one in _passing(loop, policy, was) if (one.what, one.outcome) not in made]
    return tuple(sorted(found, key=lambda change: change.size))


def _passing(loop: Loop, policy: Policy, was: str) -> Iterator[Change]:
    """Yield each score that on its own lets the loop pass, unless a smaller change does too."""
    last = loop.attempts[-1].evaluation if loop.attempts else None
    for goal in last.unmet(loop.goals) if last is not None and was != "passed" else ():
        case = _scored(loop, policy, goal.score)(goal.threshold)
        if last is not None and _kind(decide(*case)) == "passed":
            score, to = float(last.scores[goal.score]), float(goal.threshold)
            yield Change(f"score {goal.score}", score, to, "passed", *case)


def _smallest(knob: Knob, direction: int, was: str) -> Change | None:
    """Find the first value in that direction that turns the verdict; a lone one may be missed."""

    def turned(steps: int) -> bool | None:
        made = knob.at(direction * steps)
        return None if made is None else _kind(decide(*made[1])) != was

    low, high = 0, 1
    while turned(high) is False and high < FARTHEST:
        low, high = high, 2 * high
    while high - low > 1 and (turned(high) is None or turned(high)):
        middle = (low + high) // 2
        if turned(middle) is False:
            low = middle
        else:
            high = middle
    made = knob.at(direction * high)
    if made is None or not turned(high):
        return None
    value, case = made
    return Change(knob.what, knob.now, value, _kind(decide(*case)), *case)


def _kind(verdict: Verdict) -> str:
    if isinstance(verdict, Again):
        return "again"
    return "passed" if verdict.passed else "stopped"


def gives(loop: Loop, policy: Policy, verdict: Verdict) -> bool:
    """Return True if `policy` gives that verdict, by the same rules."""
    return _ends(decide(loop, policy)) == _ends(verdict)


def _ends(verdict: Verdict) -> tuple[str, ...]:
    """Return the kind of a verdict, and the rules that decided it."""
    stops = () if isinstance(verdict, Again) else verdict.stopped_by
    return _kind(verdict), *sorted(stop.rule for stop in stops)


def _knobs(loop: Loop, policy: Policy) -> Iterator[Knob]:
    last = loop.attempts[-1].evaluation if loop.attempts else None
    scores = last.scores if last is not None else {}
    for name in dict.fromkeys(goal.score for goal in loop.goals if goal.score in scores):
        yield Knob(f"score {name}", float(scores[name]), 0.001, _scored(loop, policy, name))
    for index, goal in enumerate(loop.goals):
        if goal.score in scores:
            threshold = _threshold(loop, policy, index)
            yield Knob(f"threshold of {goal.score}", float(goal.threshold), 0.001, threshold)
    if isinstance(improvement := policy.improvement, Improvement):
        gain = float(improvement.min_gain)
        yield Knob("min_gain", gain, 0.001, _gaining(loop, policy, improvement))
    for index, rule in enumerate(policy.rules):
        for name, now, made in _fields(rule):
            step = 1 if isinstance(now, int) else 0.001
            yield Knob(name, now, step, _ruled(loop, policy, index, made))


def _scored(loop: Loop, policy: Policy, score: str) -> Callable[[float], Case]:
    last = loop.attempts[-1]
    evaluation = last.evaluation or Evaluation()

    def make(value: float) -> Case:
        scores = {**evaluation.scores, score: value}
        judged = replace(last, evaluation=replace(evaluation, scores=scores))
        return replace(loop, attempts=(*loop.attempts[:-1], judged)), policy

    return make


def _threshold(loop: Loop, policy: Policy, index: int) -> Callable[[float], Case]:
    def make(value: float) -> Case:
        goal = replace(loop.goals[index], threshold=value)
        goals = (*loop.goals[:index], goal, *loop.goals[index + 1 :])
        check_goals(goals)
        return replace(loop, goals=goals), policy

    return make


def _gaining(loop: Loop, policy: Policy, improvement: Improvement) -> Callable[[float], Case]:
    def make(value: float) -> Case:
        return loop, replace(policy, improvement=replace(improvement, min_gain=value))

    return make


def _ruled(
    loop: Loop, policy: Policy, index: int, made: Callable[[Any], StopRule]
) -> Callable[[Any], Case]:
    def make(value: Any) -> Case:
        rules = (*policy.rules[:index], made(value), *policy.rules[index + 1 :])
        return loop, replace(policy, rules=rules)

    return make


def _fields(rule: StopRule) -> Iterator[tuple[str, Any, Callable[[Any], StopRule]]]:
    """Yield each number in a rule: its name, its value, and a function that replaces it."""
    if isinstance(rule, All):
        for place, member in enumerate(rule.rules):
            for name, now, made in _fields(member):
                yield f"{rule.name}: {name}", now, _inside(rule, place, made)
    elif is_dataclass(rule) and not isinstance(rule, type):
        for field in fields(rule):
            now = getattr(rule, field.name)
            if isinstance(now, int | float) and not isinstance(now, bool):
                now = float(now) if "float" in str(field.type) else now
                yield f"{rule_name(rule)}.{field.name}", now, _with(rule, field.name)


def _with(rule: Any, field: str) -> Callable[[Any], StopRule]:
    return lambda value: replace(rule, **{field: value})


def _inside(rule: All, place: int, made: Callable[[Any], StopRule]) -> Callable[[Any], StopRule]:
    return lambda value: All(*rule.rules[:place], made(value), *rule.rules[place + 1 :])


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
    verdict, the smallest first. If there is none for a stopped loop, `otherwise` says why.
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
        return "\n".join(_words(self))


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
    lines = tuple(_line(one, loop.goals, verdicts[one.number]) for one in loop.attempts)
    found = changes(loop, policy, verdict)
    why = "" if found else _otherwise(verdict, turns=gives(loop, policy, verdict))
    return Explanation(lines, verdict, found, why)


def _decide_again(loop: Loop, policy: Policy) -> dict[int, Verdict]:
    """Decide again after each attempt, as it was decided then; or once, without attempts.

    Usage outside the attempts is left out, and overrides count as used where they first lifted a
    rule. That holds for the last attempt, too, if its verdict used an override.
    """
    used = tuple(replace(o, used=0, decisions=o.used, until=None) for o in loop.overrides)
    past = replace(loop, overrides=used, extra=Usage(), cancelled="")
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
