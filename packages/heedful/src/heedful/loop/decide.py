"""Decide whether a loop continues, and on which rung: a function of loop and policy.

It reads no clock and no store. Also apply overrides, give the reasons for recorded
decisions, and measure a loop's `Standing`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import reduce
from typing import Literal, TypeVar

from heedful.errors import InvalidInput, OverrideRefused
from heedful.loop.feedback import feedback
from heedful.loop.ladder import Ladder, rung_label
from heedful.loop.record import (
    Evaluation,
    Goal,
    Improvement,
    Loop,
    Override,
    check_goals,
    format_off_by,
    format_score,
    lazy,
    thousandths,
)
from heedful.loop.stop import (
    FINAL_RULES,
    LIFTABLE_RULES,
    RULE_PRECEDENCE,
    Budget,
    Echo,
    Fatigue,
    Stop,
    StopRule,
    ask,
    flat,
    has_user_code,
    rule_name,
)
from heedful.sanitize import clean
from heedful.validation import MAX_SCORE, refuses_unknown_options, require, typed_frozen


@refuses_unknown_options
@dataclass(frozen=True)
class Policy:
    """The stop rules of a loop, what counts as improvement, and default goals.

    Each of the `rules` can end a loop alone; in a loop with a ladder it ends a rung.
    `unscored` says what to do if a goal has no score: "stop" or "again". `goals` apply
    to loops without goals of their own. `on_failure` says what to do if the model or
    the function of a rung fails: "raise" its error, or let another rung "take over".
    """

    rules: tuple[StopRule, ...]
    improvement: Improvement = Improvement()
    _: KW_ONLY
    unscored: Literal["stop", "again"] = "stop"
    name: str = ""
    goals: tuple[Goal, ...] = ()
    on_failure: Literal["raise", "take over"] = "raise"

    def __post_init__(self) -> None:
        check_goals(self.goals)
        require(
            self.unscored in ("stop", "again"),
            "unscored",
            self.unscored,
            "stop or again",
        )
        require(
            self.on_failure in ("raise", "take over"),
            "on_failure",
            self.on_failure,
            "raise or take over",
        )

        has_rules = isinstance(self.rules, tuple) and self.rules
        allowed = "at least one stop rule: a loop must end; the rules are a tuple"
        require(has_rules, "rules", self.rules, allowed)
        for rule in self.rules:
            if not callable(rule) or isinstance(rule, type):
                raise InvalidInput("rule", rule, "a callable, such as MaxAttempts()")

        require(
            type(self.improvement) is Improvement,
            "improvement",
            self.improvement,
            "an Improvement",
        )

    @lazy
    def parts(self) -> tuple[StopRule, ...]:
        """The rules; in place of an `All`, its members."""
        return tuple(flat(self.rules))

    @lazy
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets among the rules, but not the members of an `All`."""
        return tuple(rule for rule in self.rules if isinstance(rule, Budget))

    @lazy
    def has_user_code(self) -> bool:
        """Whether a rule, or a member of an `All`, is user code."""
        return has_user_code(self.rules)

    @lazy
    def counts_scope(self) -> bool:
        """Whether a rule counts in earlier loops, too."""
        return any(getattr(part, "across", "") == "scope" for part in self.parts)


@typed_frozen(slots=True)
class Trigger:
    """One reason to try again; `code` is the name of a failed check or of a missed
    score.

    `detail` is a sentence for people, `reason` a code for programs, such as
    `words_failed`.
    """

    code: str
    detail: str
    reason: str = ""


@typed_frozen(slots=True, kw_only=True)
class LiftedStop(Stop):
    """A stop that was suspended: `by` whom, and the index of the `override` in the
    loop.
    """

    by: str
    override: int


@typed_frozen(slots=True)
class Again:
    """The verdict to make another attempt; the overrides in `lifted` count as used once
    more.

    The rung with the number `rung` makes the attempt; it is 1 in a loop without a
    ladder. If the loop climbs, `climbed` says which rules ended the rung before.
    """

    reasons: tuple[Trigger, ...] = ()
    feedback: str = ""
    lifted: tuple[LiftedStop, ...] = ()
    rung: int = 1
    climbed: tuple[Stop, ...] = ()


@typed_frozen(slots=True)
class Done:
    """The verdict that ends a loop; `best` is the number of its best attempt, if
    any.
    """

    best: int | None
    passed: bool
    _: KW_ONLY
    stopped_by: tuple[Stop, ...] = ()
    lifted: tuple[LiftedStop, ...] = ()


Verdict = Again | Done
R = TypeVar("R")
State = Literal["open", "passed", "stopped"]
# They measure the loops of a policy without them.
_MEASURES = (Fatigue(), Echo())


def check_types(loop: object, policy: object) -> None:
    """Raise InvalidInput unless `loop` is a Loop and `policy` is a Policy."""
    require(isinstance(loop, Loop), "loop", loop, "a Loop")
    allowed = "a Policy, such as heedful.policy('default')"
    require(isinstance(policy, Policy), "policy", policy, allowed)


def decide(loop: Loop, policy: Policy) -> Verdict:
    """Decide whether `loop` continues under `policy`, and which rung continues it.

    A loop whose last attempt passes is done. Otherwise every rule is called with the
    attempts of the last rung, and overrides suspend some of the rules that stop. The
    remaining stops end the loop; their order is `heedful.loop.stop.RULE_PRECEDENCE`. If
    a rung is left above, they end only the rung, except for cancellation, budgets and
    missing scores. Raises InvalidInput for arguments of another type.
    """
    check_types(loop, policy)
    evaluation = loop.last_evaluation
    if evaluation and evaluation.passes(loop.goals):
        return Done(loop.best, passed=True)

    view = _view_of_rung(loop, policy)

    stops: list[Stop] = []
    lifted: list[LiftedStop] = []
    for stop, names in _find_stops(view, policy, evaluation):
        index = _lifting_override(view, names)
        if index is None:
            stops.append(stop)
            continue

        lifted.append(
            LiftedStop(
                rule=stop.rule,
                text=stop.text,
                figures=stop.figures,
                members=stop.members,
                by=loop.overrides[index].by,
                override=index,
            )
        )

    rung = loop.rung
    if loop.ladder is not None:
        if not stops and rung in loop.ladder.closed:
            stops = [Stop("closed", loop.ladder.reason({rung}))]
        if stops and not any(map(_is_final, stops)):
            rung = loop.ladder.above(rung) or rung
        if stops and rung == loop.rung:
            stops += _closed_above(loop.ladder, rung, stops)

    if stops and rung == loop.rung:
        return Done(
            loop.best, passed=False, stopped_by=tuple(stops), lifted=tuple(lifted)
        )
    if evaluation is None:
        return Again(lifted=tuple(lifted), rung=rung, climbed=tuple(stops))
    return Again(
        triggers(evaluation, loop.goals),
        feedback=feedback(evaluation, loop.goals, corrected=loop.corrected),
        lifted=tuple(lifted),
        rung=rung,
        climbed=tuple(stops),
    )


def _closed_above(ladder: Ladder, rung: int, stops: list[Stop]) -> list[Stop]:
    """Return why a loop that ends on `rung` did not climb, if a rung is closed."""
    reason = ladder.reason(range(rung + 1, len(ladder.names) + 1))
    if not reason or any(stop.rule == "closed" or _is_final(stop) for stop in stops):
        return []
    return [Stop("closed", reason)]


def _is_final(stop: Stop) -> bool:
    """Return True if a stop ends the loop on any rung; an `All` if any member does."""
    return not FINAL_RULES.isdisjoint(stop.rule.split("+"))


def close_rung(
    loop: Loop, verdict: Again, why: str, name: str = ""
) -> tuple[Loop, Verdict]:
    """Close the rung that `verdict` names: it failed, or may spend no more.

    Returns the loop without this rung, and the verdict: the next rung above makes the
    attempt. If none is left, the loop is done. `name` is that of the only rung of a
    loop without a ladder.
    """
    if loop.ladder is None:
        stop = Stop("closed", f"{rung_label(1, name)}: {why}")
        return loop, Done(loop.best, passed=False, stopped_by=(stop,))

    ladder = loop.ladder.close(verdict.rung, len(loop.attempts), why)
    loop = replace(loop, ladder=ladder)
    stops = (*verdict.climbed, Stop("closed", ladder.reason({verdict.rung})))

    rung = ladder.above(verdict.rung)
    if rung is None:
        return loop, Done(loop.best, passed=False, stopped_by=stops)
    return loop, replace(verdict, rung=rung, climbed=stops)


def describe_closings(loop: Loop, verdict: Verdict) -> tuple[str, ...]:
    """Return which rungs of a loop are closed and why, and what it did instead.

    `verdict` is the last one of the loop.
    """
    ending = "the loop ended"
    if loop.ladder is None:
        # The only rung of a loop is closed by the verdict that ends it.
        stops = verdict.stopped_by if isinstance(verdict, Done) else ()
        return tuple(
            f"{stop.detail}; {ending}" for stop in stops if stop.rule == "closed"
        )

    if isinstance(verdict, Again):
        ending = f"{loop.ladder.name(verdict.rung)} makes the next attempt"
    sentences = []
    for closing in loop.ladder.closings:
        consequence = ending
        for attempt in loop.attempts[closing.attempts : closing.attempts + 1]:
            rung = loop.ladder.name(attempt.rung)
            consequence = f"{rung} made attempt {attempt.number}"
        sentences.append(f"{closing.why}; {consequence}")
    return tuple(sentences)


def _view_of_rung(loop: Loop, policy: Policy) -> Loop:
    """Return what the rules of a policy see: the attempts of the last rung, with the
    policy's idea of an improvement.
    """
    # Nearly always it is the same, and `replace` takes longer than the test.
    if loop.improves != policy.improvement:
        loop = replace(loop, improves=policy.improvement)
    return loop.of_rung()


def _lifting_override(loop: Loop, rules: frozenset[str]) -> int | None:
    """Return the index of the first override that suspends one of `rules`, if any.

    An override counts on its own rung only.
    """
    for index, override in enumerate(loop.overrides):
        counts = override.rung == loop.rung and override.lifts(loop.at)
        if counts and override.rule in rules:
            return index
    return None


def check_override(
    override: Override, verdict: Verdict, policy: Policy, at: float = 0.0
) -> None:
    """Raise OverrideRefused unless `override` is allowed after `verdict`.

    The policy must have the rule, and the rule must allow overrides. An override needs
    an actor and a decision, and `until` must be after `at` (seconds since 1970). The
    loop must not have passed.
    """
    names = _liftable_names(policy.rules)
    if override.rule not in names:
        liftable = ", ".join(sorted(names)) or "none"
        raise OverrideRefused(
            f"rule {override.rule!r} cannot be overridden; these can: {liftable}"
        )

    by = override.by
    _require(
        isinstance(by, str) and by.strip(),
        "by",
        by,
        "name the actor who overrides the rule",
    )

    _require(isinstance(override.why, str), "why", override.why, "be text")

    decisions = override.decisions
    is_count = type(decisions) is int and 1 <= decisions <= MAX_SCORE
    _require(is_count, "decisions", decisions, "be an integer of at least 1")

    until = override.until
    is_time = until is None or (
        isinstance(until, int | float) and at < until <= MAX_SCORE
    )
    _require(
        is_time,
        "until",
        until,
        "lie in the future, in seconds since 1970, or be None",
    )

    if isinstance(verdict, Done) and verdict.passed:
        raise OverrideRefused("the loop passed; there is nothing to override")


def _require(condition: object, name: str, value: object, demand: str) -> None:
    """Raise OverrideRefused unless `condition` holds; `demand` says what must be."""
    if not condition:
        raise OverrideRefused(f"{name} is {value!r}; it must {demand}")


def apply_override(
    loop: Loop, policy: Policy, verdict: Verdict, override: Override
) -> tuple[Loop, Verdict]:
    """Add an override to a loop; return the loop and its verdict.

    Its `rule` may name several rules, separated by commas: each gets an override, and
    if one is refused, none does. A stopped loop is decided again; an open loop keeps
    its verdict. The override counts on the rung that stopped, or that makes the next
    attempt. Raises OverrideRefused.
    """
    rung = verdict.rung if isinstance(verdict, Again) else loop.rung
    overrides = list(loop.overrides)
    names = [name.strip() for name in override.rule.split(",")]
    for name in dict.fromkeys(names):
        of_rule = replace(override, rule=name, rung=rung)
        check_override(of_rule, verdict, policy, loop.at)
        overrides.append(of_rule)
    loop = replace(loop, overrides=tuple(overrides))
    if isinstance(verdict, Again):
        return loop, verdict

    verdict = decide(loop, policy)
    return consume_overrides(loop, verdict), verdict


def consume_overrides(loop: Loop, verdict: Verdict) -> Loop:
    """Return the loop with one more use of each override that `verdict` needed."""
    if not isinstance(verdict, Again) or not verdict.lifted:
        return loop

    overrides = list(loop.overrides)
    for index in {stop.override for stop in verdict.lifted}:
        overrides[index] = replace(overrides[index], used=overrides[index].used + 1)
    return replace(loop, overrides=tuple(overrides))


def distance_note(off_by: float | None) -> str:
    """Return the words about a distance that follow a message; "" without a distance.

    >>> distance_note(2.6), distance_note(None)
    (' (260 % off)', '')
    """
    return f" ({format_off_by(off_by)})" if off_by else ""


def triggers(evaluation: Evaluation, goals: tuple[Goal, ...]) -> tuple[Trigger, ...]:
    """Return a trigger for each error, then for each goal missed or without a score."""
    reasons = []
    for error in evaluation.errors:
        detail = clean(error.message, 200) + distance_note(error.off_by)
        reasons.append(Trigger(error.check, detail, f"{error.check}_failed"))

    for goal in goals:
        name = goal.score
        score = evaluation.scores.get(goal.score)

        if score is None:
            reasons.append(Trigger(name, f"{name} has no score", f"{name}_unscored"))
        elif not goal.met(score):
            missed = "not_met" if goal.direction == "at_least" else "exceeded"
            detail = f"{name} {format_score(score)} misses {goal}"
            reasons.append(Trigger(name, detail, f"{name}_threshold_{missed}"))

    return tuple(reasons)


def _find_stops(
    loop: Loop, policy: Policy, evaluation: Evaluation | None
) -> list[tuple[Stop, frozenset[str]]]:
    """Return the stops by precedence, each with the rules whose override lifts it."""
    stops: list[tuple[Stop, frozenset[str]]] = []
    if loop.cancelled:
        stops.append((Stop("cancelled", figures={"why": loop.cancelled}), frozenset()))

    if policy.unscored == "stop" and loop.attempts:
        missing = evaluation.unscored(loop.goals) if evaluation else loop.goals
        # Who raised about a candidate gave it no score; the next one may get it.
        raised = evaluation and any(finding.raised for finding in evaluation.findings)
        if not raised and (missing or evaluation is None):
            scores = [goal.score for goal in missing]
            stops.append((Stop("unscored", figures={"scores": scores}), frozenset()))

    for rule in policy.rules:
        stop = ask(rule, loop)
        if stop is not None:
            stops.append((stop, _liftable_names((rule,))))

    return sorted(stops, key=lambda pair: _precedence(pair[0].rule))


def _precedence(rule: str) -> int:
    """Return the precedence of a rule; an `All` has that of its last member."""
    places = [
        RULE_PRECEDENCE.index(name)
        for name in rule.split("+")
        if name in RULE_PRECEDENCE
    ]
    return max(places, default=len(RULE_PRECEDENCE))


def _liftable_names(rules: Iterable[StopRule]) -> frozenset[str]:
    """Return the names of rules, and of members of `All`, that an override can lift."""
    return LIFTABLE_RULES & {rule_name(part) for part in flat(rules)}


@typed_frozen(slots=True)
class Standing:
    """How close a loop was to its limits at a decision.

    `fatigue` is in 0..1. `change` is how much the last attempt changed it, negative if
    the attempt improved. `echoes` counts the attempts with each key of a finding in the
    last attempt.
    """

    fatigue: float = 0.0
    change: float = 0.0
    echoes: Mapping[str, int] = field(default_factory=dict)


@typed_frozen(slots=True)
class Decision:
    """A recorded verdict; `attempt` is the number of attempts that were made before it.

    The verdict was made at `decided` and recorded `at`, both in seconds since 1970.
    """

    attempt: int
    verdict: Verdict
    _: KW_ONLY
    standing: Standing = Standing()
    at: float = 0.0
    decided: float = 0.0


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The reasons for one decision.

    `decided` is "again", "passed" or "stopped". `reason` is a code: the first trigger's
    reason, or "passed", or the name of the first rule that stopped the loop. `spoke`
    has the stops of all rules, `lifted` those that overrides suspended. `labels` are
    those of the attempt. `rung` makes the next attempt, 0 if there is none.
    """

    loop: str
    attempt: int
    _: KW_ONLY
    decided: str
    reason: str
    detail: str
    triggers: tuple[Trigger, ...]
    spoke: tuple[Stop, ...]
    lifted: tuple[LiftedStop, ...]
    standing: Standing
    labels: Mapping[str, str]
    at: float
    rung: int

    @property
    def rerun(self) -> int:
        """The number of attempts after the first."""
        return max(0, self.attempt - 1)


def latest_verdict(decisions: Sequence[Decision]) -> Verdict:
    """Return the newest verdict, or `Again()` without decisions."""
    return decisions[-1].verdict if decisions else Again()


def state_after(verdict: Verdict) -> State:
    """Return the state of a loop after `verdict`."""
    if isinstance(verdict, Again):
        return "open"
    return "passed" if verdict.passed else "stopped"


def standing_of(loop: Loop, policy: Policy) -> Standing:
    """Measure the last rung with `Fatigue` and `Echo`, the policy's or default ones."""
    loop = _view_of_rung(loop, policy)
    fatigue = rule_of(policy, Fatigue)
    echo = rule_of(policy, Echo)

    level = fatigue.level(loop)
    level_before = reduce(fatigue.after, loop.improved[1:-1], 0.0)
    change = thousandths(level) - thousandths(level_before)
    return Standing(level, change / 1000, echo.counts(loop))


def rule_of(policy: Policy, kind: type[R]) -> R:
    """Return the policy's first `Fatigue` or `Echo`, or the default one."""
    return next(rule for rule in (*policy.parts, *_MEASURES) if isinstance(rule, kind))


def echoes_before(loop: Loop, policy: Policy, last: Decision) -> dict[str, int]:
    """Return the echoes of earlier loops of the scope that the `last` decision saw."""
    echo = rule_of(policy, Echo)
    if echo.across == "loop":
        return {}

    own_counts = echo.counts(_view_of_rung(replace(loop, echoes={}), policy))
    return {
        key: max(0, count - own_counts.get(key, 0))
        for key, count in last.standing.echoes.items()
    }


def reasoning(loop: Loop, decisions: Iterable[Decision]) -> tuple[Reasoning, ...]:
    """Return the reasons for each recorded decision of a loop, oldest first."""
    return tuple(_reasons_for(loop, decision) for decision in decisions)


def _reasons_for(loop: Loop, decision: Decision) -> Reasoning:
    """Return the reasons for one recorded decision."""
    labels: Mapping[str, str] = {}
    unmet: tuple[Trigger, ...] = ()
    if decision.attempt:
        last = loop.attempts[decision.attempt - 1]
        labels = last.labels
        if last.evaluation:
            unmet = triggers(last.evaluation, loop.goals)

    verdict = decision.verdict
    stops: tuple[Stop, ...] = ()
    detail = ""
    rung = 0
    if isinstance(verdict, Again):
        decided = "again"
        rung = verdict.rung
        stops = verdict.climbed
        reason = unmet[0].reason if unmet else ""
        if unmet:
            codes = dict.fromkeys(trigger.code for trigger in unmet)
            detail = f"Triggered by {', '.join(codes)}"
    elif verdict.stopped_by:
        decided = "stopped"
        stops = verdict.stopped_by
        reason = stops[0].rule
        detail = "; ".join(stop.detail for stop in stops)
    else:
        decided = "passed"
        reason = "passed"

    return Reasoning(
        loop.id,
        decision.attempt,
        decided=decided,
        reason=reason,
        detail=detail,
        triggers=unmet,
        spoke=(*stops, *verdict.lifted),
        lifted=verdict.lifted,
        standing=decision.standing,
        labels=labels,
        at=decision.at,
        rung=rung,
    )
