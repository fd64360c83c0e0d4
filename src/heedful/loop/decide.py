"""Whether to go on: one pure function over a loop and a policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from heedful.errors import InvalidInput, OverrideRefused
from heedful.loop.feedback import clean, feedback
from heedful.loop.record import (
    LARGEST,
    Evaluation,
    Goal,
    Improvement,
    Improves,
    Loop,
    Override,
    check_goals,
    format_score,
    thousandths,
)
from heedful.loop.stop import LIFTABLE, PRECEDENCE, Echo, Fatigue, Stop, StopRule, flat, rule_name


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
        check_goals(self.goals)
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
class LiftedStop:
    """A rule that spoke and was overridden: by whom, and which of the loop's overrides (from 0)."""

    stop: Stop
    by: str
    override: int


@dataclass(frozen=True, slots=True)
class Again:
    """Make another attempt, with this feedback. `lifted` overrides are consumed by this verdict."""

    reasons: tuple[Trigger, ...] = ()
    feedback: str = ""
    lifted: tuple[LiftedStop, ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """The loop has ended; `best` is None only where nothing was evaluated."""

    best: int | None
    passed: bool
    stopped_by: tuple[Stop, ...] = ()
    lifted: tuple[LiftedStop, ...] = ()


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


def check_override(override: Override, verdict: Verdict, policy: Policy, at: float = 0.0) -> None:
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


def apply_override(
    loop: Loop, policy: Policy, verdict: Verdict, override: Override
) -> tuple[Loop, Verdict]:
    """The loop with one more override, and its verdict: a loop that has stopped is decided anew.

    Raises OverrideRefused as `admit` does.
    """
    check_override(override, verdict, policy, loop.at)
    loop = replace(loop, overrides=(*loop.overrides, override))
    if isinstance(verdict, Again):
        return loop, verdict
    verdict = decide(loop, policy)
    return consume_overrides(loop, verdict), verdict


def consume_overrides(loop: Loop, verdict: Verdict) -> Loop:
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
            detail = f"{name} {format_score(score)} misses {goal}"
            found.append(Trigger(name, detail, f"{name}_threshold_{missed}"))
    return tuple(found)


def _again(
    evaluation: Evaluation | None, goals: tuple[Goal, ...], lifted: tuple[LiftedStop, ...] = ()
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


def _lifted(loop: Loop, spoken: list[Spoken]) -> Iterator[LiftedStop]:
    for stop, names in spoken:
        for index, override in enumerate(loop.overrides):
            if override.rule in names and override.lifts(loop.at):
                yield LiftedStop(stop, override.by, index)
                break


@dataclass(frozen=True, slots=True)
class Standing:
    """How worn a loop was at a decision.

    `fatigue` is the level (0..1) and `change` what the last attempt added to it; `echoes` counts,
    for each finding of the last attempt, the attempts that had it.
    """

    fatigue: float = 0.0
    change: float = 0.0
    echoes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict as it was recorded, after how many attempts.

    `at` is when it was recorded and `decided` when it was made, in seconds since 1970.
    """

    attempt: int
    verdict: Verdict
    standing: Standing = Standing()
    at: float = 0.0
    decided: float = 0.0


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Why one decision fell as it did.

    `reason` is a code: the first trigger's where the loop goes on, the rule's name where it stops,
    "passed" where it passed. `spoke` holds every rule that spoke, `lifted` those of them that were
    overridden. `rerun` is 0 for the first try. `labels` are those of the attempt.
    """

    loop: str
    attempt: int
    decided: str
    reason: str
    detail: str
    triggers: tuple[Trigger, ...]
    spoke: tuple[Stop, ...]
    lifted: tuple[LiftedStop, ...]
    standing: Standing
    labels: Mapping[str, str]
    at: float

    @property
    def rerun(self) -> int:
        """How many attempts there were after the first try."""
        return max(0, self.attempt - 1)


def latest_verdict(decisions: Sequence[Decision]) -> Verdict:
    """The newest verdict; of a loop about which nothing was decided, that it goes on."""
    return decisions[-1].verdict if decisions else Again()


def standing_of(loop: Loop, policy: Policy) -> Standing:
    """How worn the loop is under the policy's own fatigue and echo, or the shipped ones."""
    if loop.improves != policy.improvement:
        loop = replace(loop, improves=policy.improvement)
    rules = list(flat(policy.rules))
    tired = next((rule for rule in rules if isinstance(rule, Fatigue)), Fatigue())
    echo = next((rule for rule in rules if isinstance(rule, Echo)), Echo())
    level = tired.level(loop)
    before = tired.level(replace(loop, attempts=loop.attempts[:-1]))
    change = (thousandths(level) - thousandths(before)) / 1000
    return Standing(level, change, echo.counts(loop))


def count_echoes(loop: Loop) -> dict[str, int]:
    """Finding key -> in how many attempts of the loop it echoes.

    Counted since the last improvement, a persistent finding since the start: what was mended does
    not echo. Notes do not count.
    """
    since = max((n for n, better in enumerate(loop.improved) if better), default=0)
    counts: dict[str, int] = {}
    for index, attempt in enumerate(loop.attempts):
        findings = attempt.evaluation.findings if attempt.evaluation else ()
        counted = [f for f in findings if f.level != "note" and (f.persistent or index >= since)]
        for key in {finding.key for finding in counted}:
            counts[key] = counts.get(key, 0) + 1
    return counts


def echoes_before(loop: Loop, policy: Policy, decisions: Iterable[Decision]) -> Mapping[str, int]:
    """What the echo of the policy counted in the loops before, as its decisions say."""
    rules = (rule for rule in flat(policy.rules) if isinstance(rule, Echo))
    echo = next(rules, Echo())
    if echo.across == "loop":
        return {}
    loop = replace(loop, echoes={}, improves=policy.improvement)
    before: dict[str, int] = {}
    for decision in decisions:
        here = echo.counts(loop.upto(decision.attempt))
        for key, count in decision.standing.echoes.items():
            before[key] = max(0, count - here.get(key, 0))
    return before


def reasoning(loop: Loop, decisions: Iterable[Decision]) -> tuple[Reasoning, ...]:
    """What the recorded decisions of a loop rested on, oldest first."""
    return tuple(_reasoning(loop, decision) for decision in decisions)


def _reasoning(loop: Loop, decision: Decision) -> Reasoning:
    verdict = decision.verdict
    last = loop.attempts[decision.attempt - 1] if decision.attempt else None
    evaluation = last.evaluation if last else None
    found = triggers(evaluation, loop.goals) if evaluation else ()
    stops = () if isinstance(verdict, Again) else verdict.stopped_by
    if stops:
        decided, reason, detail = "stopped", stops[0].rule, "; ".join(stop.detail for stop in stops)
    elif isinstance(verdict, Again):
        decided, reason = "again", found[0].reason if found else ""
        detail = f"Triggered by {', '.join(dict.fromkeys(t.code for t in found))}" if found else ""
    else:
        decided, reason, detail = "passed", "passed", ""
    return Reasoning(
        loop.id,
        decision.attempt,
        decided,
        reason,
        detail,
        found,
        (*stops, *(one.stop for one in verdict.lifted)),
        verdict.lifted,
        decision.standing,
        last.labels if last else {},
        decision.at,
    )
