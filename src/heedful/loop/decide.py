"""Whether to go on: one pure function over a loop and a policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from heedful.errors import InvalidInput, OverrideRefused
from heedful.loop.feedback import clean, feedback
from heedful.loop.measure import LARGEST, shown
from heedful.loop.record import Evaluation, Goal, Improvement, Improves, Loop, Override, agreeing
from heedful.loop.stop import LIFTABLE, PRECEDENCE, Stop, StopRule, flat, rule_name


@dataclass(frozen=True, slots=True)
class Policy:
    """When a loop stops, what counts as improvement, and what to do where a score is missing.

    `rules` is a tuple of stop rules, any one of which ends the loop. `unscored` is "stop" or
    "again". `goals` are those of a loop that is given none.
    """

    rules: tuple[StopRule, ...]
    improvement: Improves = Improvement()
    unscored: Literal["stop", "again"] = "stop"
    name: str = ""
    goals: tuple[Goal, ...] = ()

    def __post_init__(self) -> None:
        agreeing(self.goals)
        if self.unscored not in ("stop", "again"):
            raise InvalidInput("unscored", self.unscored, "stop or again")
        if not isinstance(self.rules, tuple) or not self.rules:
            allowed = "at least one stop rule: a loop must end; the rules are a tuple"
            raise InvalidInput("rules", self.rules, allowed)
        for what, code in (("improvement", self.improvement), *(("rule", r) for r in self.rules)):
            if not callable(code) or isinstance(code, type):
                raise InvalidInput(what, code, "a callable, such as Improvement() or MaxAttempts()")


@dataclass(frozen=True, slots=True)
class Trigger:
    """One reason to try again: the check or score that is not satisfied, its words, and a code.

    The code, `reason`, is for programs: `alignment_threshold_not_met`, `words_failed`.
    """

    code: str
    detail: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lifted:
    """A rule that spoke and was overridden: by whom, and which of the loop's overrides (from 0)."""

    stop: Stop
    by: str
    override: int


@dataclass(frozen=True, slots=True)
class Again:
    """Make another attempt, with this feedback. `lifted` overrides are consumed by this verdict."""

    reasons: tuple[Trigger, ...] = ()
    feedback: str = ""
    lifted: tuple[Lifted, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """The loop has ended; `best` is None only where nothing was evaluated."""

    best: int | None
    passed: bool
    stopped_by: tuple[Stop, ...] = ()
    lifted: tuple[Lifted, ...] = ()


Verdict = Again | Done


def decide(loop: Loop, policy: Policy) -> Verdict:
    """Whether `loop` goes on under `policy`. Deterministic, no clock, no store.

    Passing is decided first; then every rule is asked, overrides lift what they may, and what is
    left stops the loop, in the order of `heedful.loop.stop.PRECEDENCE`.
    """
    last = loop.attempts[-1] if loop.attempts else None
    evaluation = last.evaluation if last else None
    if last and evaluation and evaluation.passes(loop.goals):
        return Done(loop.best, passed=True)
    if loop.improves is not policy.improvement and loop.improves != policy.improvement:
        loop = replace(loop, improves=policy.improvement)
    spoken = _spoken(loop, policy, evaluation)
    if not spoken:
        return _again(evaluation, loop.goals)
    lifted = tuple(_lifted(loop, spoken))
    lifted_stops = {id(one.stop) for one in lifted}
    stops = tuple(stop for stop, _ in spoken if id(stop) not in lifted_stops)
    if stops:
        return Done(loop.best, passed=False, stopped_by=stops, lifted=lifted)
    return _again(evaluation, loop.goals, lifted)


def admit(override: Override, verdict: Verdict, policy: Policy, at: float = 0.0) -> None:
    """Whether an override may be given, after this verdict, at a time in seconds since 1970.

    Raises OverrideRefused for a rule that cannot be lifted or that the policy does not have,
    without an actor, for no decision at all, expired, or on a loop that passed.
    """
    names = _liftable(policy.rules)
    if override.rule not in names:
        known = ", ".join(sorted(names)) or "none"
        raise OverrideRefused(f"rule {override.rule!r} cannot be overridden; these can: {known}")
    by, decisions, until = override.by, override.decisions, override.until
    if not isinstance(by, str) or not by.strip():
        raise OverrideRefused(f"by is {by!r}; it must name the actor: say who lifts the rule")
    if not isinstance(override.why, str):
        raise OverrideRefused(f"why is {override.why!r}; it must be text")
    whole = isinstance(decisions, int) and not isinstance(decisions, bool)
    if not whole or not 1 <= decisions <= LARGEST:
        allowed = "an integer of at least 1, up to 1e12"
        raise OverrideRefused(f"decisions is {decisions!r}; it must be {allowed}")
    if until is not None and (not isinstance(until, int | float) or until > LARGEST):
        allowed = "in seconds since 1970, up to 1e12, or None"
        raise OverrideRefused(f"until is {until!r}; it must be {allowed}")
    if until is not None and not at < until:
        passed = f"{at - until:.0f} seconds before now"
        raise OverrideRefused(f"until is {until:.0f}, {passed}; it must lie in the future")
    if isinstance(verdict, Done) and verdict.passed:
        raise OverrideRefused("the loop passed; there is nothing to lift")


def overridden(
    loop: Loop, policy: Policy, verdict: Verdict, override: Override
) -> tuple[Loop, Verdict]:
    """The loop with one more override, and its verdict: a loop that has stopped is decided anew.

    Raises OverrideRefused as `admit` does.
    """
    admit(override, verdict, policy, loop.at)
    loop = replace(loop, overrides=(*loop.overrides, override))
    if isinstance(verdict, Again):
        return loop, verdict
    verdict = decide(loop, policy)
    return spent(loop, verdict), verdict


def spent(loop: Loop, verdict: Verdict) -> Loop:
    """The loop after the verdict has consumed its overrides; only one that goes on consumes."""
    if not (isinstance(verdict, Again) and verdict.lifted):
        return loop
    used = {one.override for one in verdict.lifted}
    overrides = tuple(
        replace(o, used=o.used + 1) if index in used else o
        for index, o in enumerate(loop.overrides)
    )
    return replace(loop, overrides=overrides)


def triggers(evaluation: Evaluation, goals: tuple[Goal, ...]) -> tuple[Trigger, ...]:
    """Every error, then every goal that is unmet or unscored, goals as declared."""
    found = [
        Trigger(f.check, clean(f.message, 200), f"{f.check}_failed") for f in evaluation.errors
    ]
    for goal in goals:
        name, score = goal.score, evaluation.scores.get(goal.score)
        if score is None:
            found.append(Trigger(name, f"{name} has no score", f"{name}_unscored"))
        elif not goal.met(score):
            missed = "not_met" if goal.direction == "at_least" else "exceeded"
            detail = f"{name} {shown(score)} misses {goal}"
            found.append(Trigger(name, detail, f"{name}_threshold_{missed}"))
    return tuple(found)


def _again(
    evaluation: Evaluation | None, goals: tuple[Goal, ...], lifted: tuple[Lifted, ...] = ()
) -> Again:
    if evaluation is None:
        return Again(lifted=lifted)
    return Again(triggers(evaluation, goals), feedback(evaluation, goals), lifted)


Spoken = tuple[Stop, frozenset[str]]


def _spoken(loop: Loop, policy: Policy, evaluation: Evaluation | None) -> list[Spoken]:
    """What stops the loop, with the names under which it can be lifted, in order of precedence."""
    spoken: list[Spoken] = []
    if loop.cancelled:
        spoken.append((Stop("cancelled", loop.cancelled), frozenset()))
    if policy.unscored == "stop" and loop.attempts:
        missing = evaluation.unscored(loop.goals) if evaluation else loop.goals
        if missing or evaluation is None:
            what = ", ".join(goal.score for goal in missing) or "the candidate"
            spoken.append((Stop("unscored", f"no score for {what}"), frozenset()))
    for rule in policy.rules:
        detail = rule(loop)
        if detail is not None and not isinstance(detail, str):
            name = f"what the rule {rule_name(rule)!r} answers"
            raise InvalidInput(name, detail, "text that says why the loop must end, or None")
        if detail:
            spoken.append((Stop(rule_name(rule), detail), _liftable((rule,))))
    if len(spoken) > 1:
        spoken.sort(key=lambda one: _place(one[0].rule))
    return spoken


def _liftable(rules: Iterable[StopRule]) -> frozenset[str]:
    """The names under which rules, or members of them, can be lifted."""
    return LIFTABLE & {rule_name(part) for part in flat(rules)}


def _place(rule: str) -> int:
    """Where a rule stands; one made of several stands where the last that is named there does."""
    places = [PRECEDENCE.index(name) for name in rule.split("+") if name in PRECEDENCE]
    return max(places, default=len(PRECEDENCE))


def _lifted(loop: Loop, spoken: list[Spoken]) -> Iterator[Lifted]:
    for stop, names in spoken:
        for index, override in enumerate(loop.overrides):
            if override.rule in names and override.lifts(loop.at):
                yield Lifted(stop, override.by, index)
                break
