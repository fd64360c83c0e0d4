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
from heedful.validation import MAX_SCORE

R = TypeVar("R")
MAX_HISTORY_ATTEMPTS = 100
MAX_TRIED_HISTORIES = 20_000  # for one rule
# The keys of findings: new in each attempt, or always the persistent one.
NEW_FINDING_KEY = "new"
PERSISTENT_FINDING_KEY = "kept"


@dataclass(frozen=True, slots=True)
class Reach:
    """The shortest history in which `rule` changes a decision, or why there is none.

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
            attempts = len(self.history.attempts)
            return f"{self.name} can fire, first after attempt {attempts}"
        if self.proof:
            return f"{self.name} cannot fire: {self.proof}"
        return (
            f"{self.name}: no history of up to {MAX_HISTORY_ATTEMPTS} attempts was "
            "found, and no proof"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """One attempt of a history, reduced to what rules read.

    `seen` is "same" or "near" if the candidate equals or resembles the first attempt's
    candidate, "" if it is new. `found` has the keys of its findings.
    """

    improves: bool
    seen: str = ""
    found: tuple[str, ...] = ()
    severity: float = 1.0
    spends: Usage = NO_USAGE


# A history: the number of attempts in other loops with the finding
# `PERSISTENT_FINDING_KEY`, and the attempts of this loop.
History = tuple[int, tuple[Symbol, ...]]


def reach(policy: Policy, most: int = MAX_TRIED_HISTORIES) -> tuple[Reach, ...]:
    """Find out for each rule of `policy` whether it can ever change a decision.

    `most` is the number of histories to try for each rule. Raises InvalidInput.
    """
    check_types(Loop(""), policy)
    return tuple(
        _search_history(policy, place, most) for place in range(len(policy.rules))
    )


def _search_history(policy: Policy, place: int, max_tries: int) -> Reach:
    """Search for a history that only the rule at this `place` of the policy stops."""
    rule = policy.rules[place]
    others = policy.rules[:place] + policy.rules[place + 1 :]
    parts = tuple(stop.flat((rule,)))
    if stop.has_user_code(parts):
        return Reach(rule, None)

    alphabet = _list_symbols(parts)
    scope_echoes = [
        part.times
        for part in _rules_of_type(parts, stop.Echo)
        if part.across == "scope"
    ]
    # Histories of equal length in which no rule stops yet; the next round extends them.
    waiting: list[History] = [
        (echoes, ()) for echoes in range(max(scope_echoes, default=1))
    ]
    views: set[Any] = set()
    stopped_before: set[str] = set()
    tried = 0

    # Each round makes the histories longer by one attempt.
    for _ in range(MAX_HISTORY_ATTEMPTS):
        if not waiting or tried >= max_tries:
            break

        longer: list[History] = []
        for history in _extend_histories(waiting, alphabet):
            tried += 1
            loop = _loop_of(policy, parts, history)
            other_stops = [rule_name(other) for other in others if other(loop)]
            stopped_before.update(other_stops)

            fires = bool(rule(loop))
            if fires and not other_stops:
                return Reach(rule, loop)
            if fires or other_stops:
                continue

            # Only the first of the histories that rules treat alike is extended.
            view = _view_of(policy, parts, loop, history)
            if view not in views:
                views.add(view)
                longer.append(history)
        waiting = longer

    if waiting or policy.unscored == "again" or stop.has_user_code(policy.rules):
        return Reach(rule, None)

    proof = _fatigue_proof(rule, others)
    if not proof:
        names = " or ".join(sorted(stopped_before)) or "nothing"
        proof = f"{names} ends every loop before it alone would"
    return Reach(rule, None, proof)


def _extend_histories(
    histories: Iterable[History], alphabet: Iterable[Symbol]
) -> Iterator[History]:
    """Yield each history with one more attempt, of each kind in `alphabet`."""
    for (echoes, symbols), symbol in product(histories, alphabet):
        spends = symbol.spends is not NO_USAGE
        # One attempt spends the whole budget, so a second one is not tried.
        if spends and any(earlier.spends is not NO_USAGE for earlier in symbols):
            continue
        yield (echoes, (*symbols, symbol))


def _fatigue_proof(rule: StopRule, others: Iterable[StopRule]) -> str:
    """Return why fatigue stays below its limit within the attempts allowed.

    It is "" if fatigue can reach the limit, and for rules of another kind.
    """
    if not isinstance(rule, stop.Fatigue):
        return ""

    limits = [attempts.limit for attempts in _rules_of_type(others, stop.MaxAttempts)]
    reruns = min(limits, default=1001) - 1
    level = reruns * thousandths(rule.increment) / 1000
    if thousandths(level) >= thousandths(rule.limit):
        return ""

    reached = record.format_score(level)
    return f"{reruns} reruns reach {reached} < {record.format_score(rule.limit)}"


def _rules_of_type(rules: Iterable[StopRule], kind: type[R]) -> list[R]:
    """Return the rules of this type."""
    return [rule for rule in rules if isinstance(rule, kind)]


def _list_symbols(parts: Sequence[StopRule]) -> list[Symbol]:
    """Return the kinds of attempts that a rule can tell apart."""
    floors = {
        part.floor
        for part in _rules_of_type(parts, stop.Plateau)
        if part.floor is not None
    }
    findings: list[tuple[str, ...]] = [()]
    if floors:
        findings.append((NEW_FINDING_KEY,))
    if _rules_of_type(parts, stop.Echo):
        findings.append((PERSISTENT_FINDING_KEY,))

    seen = [""]
    if _rules_of_type(parts, stop.Repeat):
        seen += ["near", "same"]

    # The highest severity, and one just below each floor.
    severities = [1.0, *((thousandths(floor) - 1) / 1000 for floor in floors)]

    spending = dict.fromkeys(
        [NO_USAGE, *_list_spending(_rules_of_type(parts, stop.Budget))]
    )

    combinations = product((True, False), seen, findings, severities, spending)
    return [
        Symbol(
            improves=improves,
            seen=likeness,
            found=keys,
            severity=severity,
            spends=usage,
        )
        for improves, likeness, keys, severity, usage in combinations
    ]


def _list_spending(budgets: Sequence[stop.Budget]) -> Iterator[Usage]:
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


def _loop_of(policy: Policy, parts: Sequence[StopRule], history: History) -> Loop:
    """Convert a history to a loop in which no attempt passes."""
    other_loops, symbols = history
    goals = policy.goals or (Goal("quality", 1.0),)
    met = 0.0 if _rules_of_type(parts, stop.NothingMet) else 0.5
    gain = max(1, thousandths(policy.improvement.min_gain))

    attempts = []
    # By how many thousandths the best attempt so far misses the first goal.
    shortfall = 2 * MAX_HISTORY_ATTEMPTS * gain
    for number, symbol in enumerate(symbols, 1):
        # A retry without improvement gets a worse score. With the same score, a lower
        # severity would be an improvement.
        worse = 0
        if symbol.improves:
            shortfall -= gain
        elif number > 1:
            worse = 1

        scores = {goal.score: _missing_score(goal, 1000) for goal in goals}
        scores[goals[0].score] = _missing_score(goals[0], shortfall + worse)

        findings = tuple(_finding_of(symbol, key, number) for key in symbol.found)
        same_as = 1 if symbol.seen == "same" else number
        near_repeat = 1 if symbol.seen == "near" and number > 1 else None

        attempt = Attempt(
            number,
            record.Candidate.of(f"candidate {same_as}"),
            evaluation=record.Evaluation(findings, scores, met=met),
            usage=symbol.spends,
            repeats=near_repeat,
        )
        attempts.append(attempt)

    return Loop(
        "history",
        goals,
        attempts=tuple(attempts),
        echoes={PERSISTENT_FINDING_KEY: other_loops} if other_loops else {},
        improves=policy.improvement,
    )


def _finding_of(symbol: Symbol, key: str, number: int) -> record.Finding:
    """Return the finding with this key in attempt `number`; a new one has a new key."""
    if key == NEW_FINDING_KEY:
        key = f"{NEW_FINDING_KEY} {number}"
    return record.Finding(
        "check",
        key,
        level="warning",
        severity=symbol.severity,
        key=key,
        persistent=key == PERSISTENT_FINDING_KEY,
    )


def _missing_score(goal: Goal, by: int) -> float:
    """Return a score that misses the goal by `by` thousandths."""
    distance = -by if goal.direction == "at_least" else by
    score = (thousandths(goal.threshold) + distance) / 1000
    return max(-MAX_SCORE, min(MAX_SCORE, score))


def _view_of(
    policy: Policy, parts: Sequence[StopRule], loop: Loop, history: History
) -> Any:
    """Return the part of a history that built-in rules read.

    The rules treat histories with equal views in the same way, so counts are cut off
    where no rule tells them apart.
    """
    rules = tuple(stop.flat(policy.rules))
    max_attempts = [part.limit for part in _rules_of_type(parts, stop.MaxAttempts)]
    counts = [rule.times for rule in rules if isinstance(rule, stop.Repeat | stop.Echo)]
    counts += [rule.patience or 0 for rule in _rules_of_type(rules, stop.Plateau)]
    highest = 1 + max(counts, default=0)

    echoes, symbols = history
    later = symbols[loop.last_improvement + 1 :]
    repeats = [symbol for symbol in later if symbol.seen]
    exact_repeats = [symbol for symbol in later if symbol.seen == "same"]
    persistent = [
        symbol for symbol in symbols if PERSISTENT_FINDING_KEY in symbol.found
    ]

    return (
        min(len(symbols), max(max_attempts, default=0)),
        echoes,
        any(loop.improved),
        loop.usage,
        min(highest, len(later)),
        min(highest, len(repeats)),
        min(highest, len(exact_repeats)),
        min(highest, len(persistent)),
        tuple(
            thousandths(part.level(loop))
            for part in _rules_of_type(rules, stop.Fatigue)
        ),
    )
