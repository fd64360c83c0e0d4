"""Can each rule of a policy ever change what is decided? A history that shows it, or why not.

Histories are tried shortest first. An attempt of one improves or not, brings a candidate seen
before or a fresh one, an old finding or a new one, a slight fault or a grave one, and spends
nothing or all there is. What a rule does not look at is left as it keeps the other rules silent:
improving, fresh, new, grave, free. No shipped rule is silenced by the opposite, so nothing is
missed by that. Histories that look alike to every shipped rule go on alike: only the shortest of
them is followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from errata.loop.decide import Policy
from errata.loop.measure import shown, thousandths
from errata.loop.record import Attempt, Candidate, Evaluation, Finding, Goal, Improvement, Loop
from errata.loop.stop import (
    All,
    Budget,
    Echo,
    Fatigue,
    MaxAttempts,
    NothingMet,
    Plateau,
    Repeat,
    StopRule,
    rule_name,
)
from errata.protocols import NOTHING, Usage

SHIPPED = (MaxAttempts, Budget, Fatigue, Echo, Repeat, Plateau, NothingMet)
LONGEST = 100  # attempts of a history
MOST = 20_000  # histories tried for one rule
FAR = 1e6  # from the threshold: a goal that no history meets
OLD = "old"


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a rule can change a decision: the shortest history in which it does, or the proof.

    Without a `history`, `proof` says why there is none. Both are empty where the search ended
    without an answer: at its bounds, or at code of the user's own.
    """

    rule: StopRule
    history: Loop | None
    proof: str = ""

    @property
    def name(self) -> str:
        """The name of the rule."""
        return rule_name(self.rule)

    def __str__(self) -> str:
        if self.history is not None:
            return f"{self.name} can fire, first after attempt {len(self.history.attempts)}"
        if self.proof:
            return f"{self.name} cannot fire: {self.proof}"
        return f"{self.name}: no history of up to {LONGEST} attempts was found, and no proof"


@dataclass(frozen=True, slots=True)
class Symbol:
    """One attempt of a history."""

    improves: bool
    repeats: bool
    old: bool
    slight: bool
    spends: bool


History = tuple[Symbol, ...]


def reach(policy: Policy) -> tuple[Reach, ...]:
    """For each rule of the policy, in order, whether it can ever change what is decided."""
    return tuple(_reach(policy, place) for place in range(len(policy.rules)))


def _reach(policy: Policy, place: int) -> Reach:
    rule, others = policy.rules[place], policy.rules[:place] + policy.rules[place + 1 :]
    parts = tuple(_parts((rule,)))
    waiting: list[History] = [()]
    known: set[Any] = set()
    before: set[str] = set()
    highest = tried = 0
    while waiting and tried < MOST and len(waiting[0]) < LONGEST:
        found: list[History] = []
        for history in ((*h, s) for h, s in product(waiting, _alphabet(parts))):
            tried += 1
            loop = _loop(policy, parts, history)
            spoke = [rule_name(other) for other in others if other(loop)]
            heard = rule(loop)
            if heard and not spoke:
                return Reach(rule, loop)
            before.update(spoke)
            highest = max(highest, *(thousandths(f.level(loop)) for f in _tired(parts)), 0)
            view = _view(policy, parts, loop, history)
            if not spoke and not heard and view not in known:
                known.add(view)
                found.append(history)
        waiting = found
    own = any(not isinstance(part, SHIPPED) for part in _parts(policy.rules))
    if waiting or own or not isinstance(policy.improvement, Improvement):
        return Reach(rule, None)
    return Reach(rule, None, _proof(policy, rule, highest, sorted(before)))


def _proof(policy: Policy, rule: StopRule, highest: int, before: Sequence[str]) -> str:
    limits = [other.limit for other in policy.rules if isinstance(other, MaxAttempts)]
    if isinstance(rule, Fatigue) and limits and highest < thousandths(rule.limit):
        reach = f"{min(limits) - 1} reruns reach {shown(highest / 1000)}"
        return f"{reach} < {shown(rule.limit)}"
    return f"{' or '.join(before) or 'nothing'} ends every loop before it alone would"


def _parts(rules: Sequence[StopRule]) -> Iterator[StopRule]:
    for rule in rules:
        if isinstance(rule, All):
            yield from _parts(rule.rules)
        else:
            yield rule


def _tired(parts: Sequence[StopRule]) -> list[Fatigue]:
    return [part for part in parts if isinstance(part, Fatigue)]


def _alphabet(parts: Sequence[StopRule]) -> list[Symbol]:
    """The attempts that matter to the parts of a rule; to one of the user's own, all."""
    own = any(not isinstance(part, SHIPPED) for part in parts)
    flat = [part for part in parts if isinstance(part, Plateau)]
    repeat = own or any(isinstance(part, Repeat) for part in parts)
    stale = repeat or bool(_tired(parts)) or any(p.patience or p.novelty for p in flat)
    old = own or any(isinstance(p, Echo) for p in parts) or any(p.novelty for p in flat)
    slight = own or any(p.floor is not None for p in flat)
    spends = own or any(isinstance(part, Budget) for part in parts)
    both, one = (False, True), (False,)
    choices = (both if choice else one for choice in (repeat, old, slight, spends))
    return [Symbol(*each) for each in product((True, False) if stale else (True,), *choices)]


def _loop(policy: Policy, parts: Sequence[StopRule], history: History) -> Loop:
    """The history as a loop that the policy can be asked about."""
    goals = policy.goals or (Goal("quality", 1.0),)
    scope = [p.times for p in parts if isinstance(p, Echo) and p.across == "scope"]
    exact = any(isinstance(part, Repeat) and not part.near for part in parts)
    met = 0.0 if any(isinstance(part, NothingMet) for part in parts) else 0.5
    gain = getattr(policy.improvement, "min_gain", 0.05)
    attempts, gained = [], 0
    for number, symbol in enumerate(history, 1):
        gained += symbol.improves
        scores = {g.score: _short(g, 1.0) for g in goals}
        scores[goals[0].score] = _short(goals[0], FAR - gained * gain)
        severity = 0.0001 if symbol.slight else 1.0
        key = OLD if symbol.old else f"finding {number}"
        wrong = Finding("check", key, severity=severity, key=key, persistent=symbol.old)
        same = symbol.repeats and number > 1
        candidate = Candidate.of("candidate 1" if same and exact else f"candidate {number}")
        usage = Usage(10**9, 10**12, 0, 1e12, 1e9) if symbol.spends else NOTHING
        evaluation = Evaluation((wrong,), scores, met=met)
        attempts.append(Attempt(number, candidate, evaluation, usage, 1 if same else None))
    echoes = {OLD: max(scope) - 1} if scope else {}
    return Loop("history", goals, tuple(attempts), echoes=echoes, improves=policy.improvement)


def _short(goal: Goal, by: float) -> float:
    """A score that misses the goal by so much."""
    return goal.threshold + (-by if goal.direction == "at_least" else by)


def _view(policy: Policy, parts: Sequence[StopRule], loop: Loop, history: History) -> Any:
    """What the shipped rules see of a history; its length only where the rule looks at it."""
    every = tuple(_parts(policy.rules))
    counts = any(isinstance(p, MaxAttempts) or not isinstance(p, SHIPPED) for p in parts)
    most = 1 + max(
        [p.times for p in every if isinstance(p, Repeat | Echo)]
        + [p.patience or 0 for p in every if isinstance(p, Plateau)],
        default=0,
    )
    improved = loop.improved
    since = max((n for n, better in enumerate(improved) if better), default=0)
    later = history[since + 1 :]
    return (
        len(history) if counts else 0,
        min(most, len(later)),
        min(most, sum(symbol.repeats for symbol in later)),
        min(most, sum(symbol.old for symbol in history)),
        any(symbol.spends for symbol in history),
        tuple(thousandths(fatigue.level(loop)) for fatigue in _tired(every)),
    )
