"""Find out for each rule of a policy whether it can ever change a decision.

The search tries histories of attempts, the shortest first, until it finds one that only
this rule stops. For properties that the rule ignores, values are chosen at which no
other rule stops: the attempts improve, have new candidates and no findings, and cost
nothing. Among histories that look equal to all built-in rules, only the first is
extended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any, TypeVar

from heedful.loop import record, stop
from heedful.loop.decide import Policy, check_types
from heedful.loop.record import NO_USAGE, Attempt, Goal, Loop, Usage, thousandths
from heedful.loop.stop import StopRule, rule_name

R = TypeVar("R")
MAX_HISTORY_ATTEMPTS = 100  # the most attempts of a history
MAX_TRIED_HISTORIES = 20_000  # the most histories that are tried for a rule
# keys of findings: new in each attempt, or always the persistent one
NEW_FINDING_KEY = "new"
PERSISTENT_FINDING_KEY = "kept"


@dataclass(frozen=True, slots=True)
class Reach:
    """The shortest history in which `rule` changes a decision, or a proof that it never
    does.

    If the search found no answer, because of its limits, `history` is None and `proof`
    is empty. Nothing is proven if the policy tries unscored loops again; user code is
    not searched.
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
            return (
                f"{self.name} can fire, first after attempt "
                f"{len(self.history.attempts)}"
            )
        if self.proof:
            return f"{self.name} cannot fire: {self.proof}"
        return (
            f"{self.name}: no history of up to {MAX_HISTORY_ATTEMPTS} attempts was "
            "found, and no proof"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """One attempt of a history, reduced to what rules read; `found` has the keys of its
    findings.

    `seen` is "same" or "near" if the candidate equals or resembles the first attempt's
    candidate.
    """

    improves: bool
    seen: str = ""
    found: tuple[str, ...] = ()
    severity: float = 1.0
    spends: Usage = NO_USAGE


# The number of attempts in other loops with the finding `PERSISTENT_FINDING_KEY`, and
# the attempts of this loop.
History = tuple[int, tuple[Symbol, ...]]


def reach(policy: Policy, most: int = MAX_TRIED_HISTORIES) -> tuple[Reach, ...]:
    """Find out for each rule of `policy`, in order, whether it can ever change a
    decision.

    `most` is the number of histories to try for each rule. Raises InvalidInput.
    """
    check_types(Loop(""), policy)
    return tuple(_reach(policy, place, most) for place in range(len(policy.rules)))


def _reach(policy: Policy, place: int, tries: int) -> Reach:
    rule = policy.rules[place]
    others = policy.rules[:place] + policy.rules[place + 1 :]
    parts = tuple(stop.flat((rule,)))
    if _own(parts):
        return Reach(rule, None)

    alphabet = _alphabet(parts)
    scope = [part.times for part in _of(parts, stop.Echo) if part.across == "scope"]
    waiting: list[History] = [(echoes, ()) for echoes in range(max(scope, default=1))]
    views: set[Any] = set()
    before: set[str] = set()
    tried = 0
    while waiting and tried < tries and len(waiting[0][1]) < MAX_HISTORY_ATTEMPTS:
        longer: list[History] = []
        for (echoes, symbols), symbol in product(waiting, alphabet):
            if symbol.spends is not NO_USAGE and any(
                s.spends is not NO_USAGE for s in symbols
            ):
                continue  # one attempt spends the whole budget

            history = echoes, (*symbols, symbol)
            tried += 1
            loop = _loop(policy, parts, history)
            other_stops = [rule_name(other) for other in others if other(loop)]
            detail = rule(loop)
            if detail and not other_stops:
                return Reach(rule, loop)

            before.update(other_stops)
            view = (
                None if other_stops or detail else _view(policy, parts, loop, history)
            )
            if view is not None and view not in views:
                views.add(view)
                longer.append(history)
        waiting = longer

    if waiting or policy.unscored == "again" or _own(stop.flat(policy.rules)):
        return Reach(rule, None)

    if isinstance(rule, stop.Fatigue):
        proof = _fatigue_proof(rule, others)
        if proof:
            return Reach(rule, None, proof)

    names = " or ".join(sorted(before)) or "nothing"
    return Reach(rule, None, f"{names} ends every loop before it alone would")


def _fatigue_proof(rule: stop.Fatigue, others: Iterable[StopRule]) -> str:
    """Return why fatigue stays below its limit within the attempts allowed, if so."""
    limits = [attempts.limit for attempts in _of(others, stop.MaxAttempts)]
    reruns = min(limits, default=1001) - 1
    level = reruns * thousandths(rule.increment) / 1000
    if thousandths(level) >= thousandths(rule.limit):
        return ""

    reached = record.format_score(level)
    return f"{reruns} reruns reach {reached} < {record.format_score(rule.limit)}"


def _of(rules: Iterable[StopRule], kind: type[R]) -> list[R]:
    return [rule for rule in rules if isinstance(rule, kind)]


def _own(parts: Iterable[StopRule]) -> bool:
    """Return True if any rule is user code, such as a subclass of a built-in rule."""
    return any(type(part) not in stop.STOP_RULES.values() for part in parts)


def _alphabet(parts: Sequence[StopRule]) -> list[Symbol]:
    """Return the kinds of attempts that a rule can tell apart."""
    floors = {part.floor for part in _of(parts, stop.Plateau) if part.floor is not None}
    findings: list[tuple[str, ...]] = [()]
    if floors:
        findings.append((NEW_FINDING_KEY,))
    if _of(parts, stop.Echo):
        findings.append((PERSISTENT_FINDING_KEY,))
    seen = [""]
    if _of(parts, stop.Repeat):
        seen += ["near", "same"]
    grave = [1.0, *((thousandths(floor) - 1) / 1000 for floor in floors)]
    spends = dict.fromkeys([NO_USAGE, *_spending(_of(parts, stop.Budget))])
    combinations = product((True, False), seen, findings, grave, spends)

    return [
        Symbol(
            improves=improves, seen=seen, found=keys, severity=severity, spends=usage
        )
        for improves, seen, keys, severity, usage in combinations
    ]


def _spending(budgets: Sequence[stop.Budget]) -> Iterator[Usage]:
    """Yield usages that reach one limit of each budget."""
    names = ("calls", "tokens", "cost", "seconds")
    limits = []
    for budget in budgets:
        values = [(name, getattr(budget, name)) for name in names]
        limits.append([(name, value) for name, value in values if value is not None])

    for chosen in product(*limits):
        highest = dict.fromkeys(names, 0.0)
        for name, value in chosen:
            highest[name] = max(highest[name], value)
        yield Usage(
            ceil(highest["calls"]),
            ceil(highest["tokens"]),
            cost=highest["cost"],
            seconds=highest["seconds"],
        )


def _loop(policy: Policy, parts: Sequence[StopRule], history: History) -> Loop:
    """Convert a history to a loop in which no attempt passes."""
    goals = policy.goals or (Goal("quality", 1.0),)
    met = 0.0 if _of(parts, stop.NothingMet) else 0.5
    gain = max(1, thousandths(policy.improvement.min_gain))
    attempts = []
    short = 2 * MAX_HISTORY_ATTEMPTS * gain
    for number, symbol in enumerate(history[1], 1):
        if symbol.improves:
            short -= gain
        scores = {goal.score: _missing(goal, 1000) for goal in goals}
        # A retry that does not improve scores worse, else a lower severity would
        # improve it.
        worse = 1 if number > 1 and not symbol.improves else 0
        scores[goals[0].score] = _missing(goals[0], short + worse)
        keys = [
            f"{NEW_FINDING_KEY} {number}" if key == NEW_FINDING_KEY else key
            for key in symbol.found
        ]
        worst = symbol.severity
        findings = tuple(
            record.Finding(
                "check",
                k,
                fix="",
                level="warning",
                severity=worst,
                key=k,
                persistent=k == PERSISTENT_FINDING_KEY,
            )
            for k in keys
        )
        evaluation = record.Evaluation(findings, scores, met=met)
        candidate = record.Candidate.of(
            f"candidate {1 if symbol.seen == 'same' else number}"
        )
        near = 1 if symbol.seen == "near" and number > 1 else None
        attempts.append(
            Attempt(
                number,
                candidate,
                evaluation=evaluation,
                usage=symbol.spends,
                repeats=near,
            )
        )

    echoes = {PERSISTENT_FINDING_KEY: history[0]} if history[0] else {}
    return Loop(
        "history",
        goals,
        attempts=tuple(attempts),
        echoes=echoes,
        improves=policy.improvement,
    )


def _missing(goal: Goal, by: int) -> float:
    """Return a score that misses the goal by `by` thousandths."""
    score = thousandths(goal.threshold) - (by if goal.direction == "at_least" else -by)
    return max(-record.MAX_SCORE, min(record.MAX_SCORE, score / 1000))


def _view(
    policy: Policy, parts: Sequence[StopRule], loop: Loop, history: History
) -> Any:
    """Return what built-in rules read of a history; they treat equal results in the
    same way.
    """
    rules = tuple(stop.flat(policy.rules))
    limits = [part.limit for part in _of(parts, stop.MaxAttempts)]
    times = [part.times for part in rules if isinstance(part, stop.Repeat | stop.Echo)]
    highest = 1 + max(
        [*times, *(p.patience or 0 for p in _of(rules, stop.Plateau))], default=0
    )
    echoes, symbols = history
    later = symbols[loop.last_improvement + 1 :]
    return (
        min(len(symbols), max(limits, default=0)),
        echoes,
        any(loop.improved),
        loop.usage,
        min(highest, len(later)),
        min(highest, sum(symbol.seen != "" for symbol in later)),
        min(highest, sum(symbol.seen == "same" for symbol in later)),
        min(highest, sum(PERSISTENT_FINDING_KEY in symbol.found for symbol in symbols)),
        tuple(thousandths(part.level(loop)) for part in _of(rules, stop.Fatigue)),
    )
