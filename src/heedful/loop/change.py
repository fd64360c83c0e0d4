"""What would have changed a verdict: the smallest move of a threshold or score that turns it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from heedful.loop.decide import Again, Policy, Verdict, decide
from heedful.loop.measure import shown
from heedful.loop.record import Evaluation, Improvement, Loop, agreeing
from heedful.loop.stop import All, StopRule, rule_name

FARTHEST = 1 << 24  # steps of a threshold that are looked at in either direction

Case = tuple[Loop, Policy]


@dataclass(frozen=True, slots=True)
class Change:
    """One threshold or score that, moved by as little as that, alone turns the verdict.

    `outcome` is what it would have been: again, passed or stopped. `loop` and `policy` are those
    with the change made.
    """

    what: str
    was: float
    to: float
    outcome: str
    loop: Loop
    policy: Policy

    @property
    def size(self) -> float:
        """How large the change is, as a share of what it was."""
        return abs(self.to - self.was) / max(abs(self.was), 0.001)

    def __str__(self) -> str:
        return f"{self.what} {shown(self.to)} instead of {shown(self.was)}: {self.outcome}"


@dataclass(frozen=True, slots=True)
class Knob:
    """Something that can be set: its name, what it is, its smallest step, the case it makes."""

    what: str
    now: float
    step: float
    make: Callable[[Any], Case]

    def at(self, steps: int) -> tuple[Any, Case] | None:
        """The value that many steps away, and the case with it; None where it is not allowed."""
        whole = isinstance(self.now, int)
        value = self.now + steps if whole else round(self.now + steps * self.step, 3)
        try:
            return value, self.make(value)
        except ValueError:  # InvalidInput, or a rule of the user's own that cannot be made so
            return None


def changes(loop: Loop, policy: Policy, verdict: Verdict) -> tuple[Change, ...]:
    """The smallest changes that turn `verdict`, one a threshold, score and direction.

    The smallest relative to what is there comes first. Nothing where `policy` does not give that
    verdict: it is not all that decided.
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
    """The score that alone lets the loop pass, where less of it already turns the verdict."""
    last = loop.attempts[-1].evaluation if loop.attempts else None
    for goal in last.unmet(loop.goals) if last is not None and was != "passed" else ():
        case = _scored(loop, policy, goal.score)(goal.threshold)
        if last is not None and _kind(decide(*case)) == "passed":
            score, to = float(last.scores[goal.score]), float(goal.threshold)
            yield Change(f"score {goal.score}", score, to, "passed", *case)


def _smallest(knob: Knob, direction: int, was: str) -> Change | None:
    """The first value in that direction that turns the verdict; a lone one may be passed over."""

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
    """Whether `policy` gives that verdict, by the same rules."""
    return _ends(decide(loop, policy)) == _ends(verdict)


def _ends(verdict: Verdict) -> tuple[str, ...]:
    """What a verdict is, and the rules that it rests on."""
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
        agreeing(goals)
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
    """Each number that a rule is made with: its name, what it is, and the rule with another."""
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
