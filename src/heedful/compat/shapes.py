"""Loop guardrails: their settings, the names of attempts, and the shapes of stored loops.

The store knows which attempt a name belongs to. Names are never parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from itertools import count
from typing import Any, Literal, TypeVar

from heedful.drive.report import LONGEST
from heedful.errors import InvalidInput, NotFound
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_from
from heedful.loop.decide import Again, Decision, Done, Policy, Reasoning, reasoning
from heedful.loop.record import LARGEST, Attempt, Evaluation, Goal, Improvement, Loop, check_number
from heedful.loop.stop import Echo, Fatigue, MaxAttempts, flat
from heedful.store import loops
from heedful.store.records import StoredLoop
from heedful.store.store import Store

LONGEST_NAME = LONGEST + 20  # characters of the name of a rerun


@dataclass(frozen=True, slots=True)
class Place:
    """An attempt of a loop, by its number; `stored` is None if the loop does not exist yet."""

    id: str
    number: int
    stored: StoredLoop | None

    @property
    def made(self) -> bool:
        """Return True if the attempt exists."""
        return self.stored is not None and self.number <= len(self.stored.loop.attempts)


async def find(store: Store, scope: Scope, name: str) -> Place:
    """Return the attempt with this name: the first of the loop with this id, or a loop's rerun.

    Raises InvalidInput, StoreError.
    """
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InvalidInput("loop_id", name, f"1 to {LONGEST_NAME} printable characters")
    if (stored := await _read(store, scope, name)) is not None:
        return Place(name, 1, stored)
    for end in range(len(name) - 1, 0, -1):
        if name[end] != "_" or (stored := await _read(store, scope, name[:end])) is None:
            continue
        following = len(stored.loop.attempts) + 1
        for attempt in range(2, following):
            if name_of(stored, attempt) == name:
                return Place(stored.id, attempt, stored)
        if following > 1 and await next_name(store, scope, stored) == name:
            return Place(stored.id, following, stored)
    return Place(name, 1, None)


def name_of(stored: StoredLoop, number: int) -> str:
    """Return the name of an existing attempt: the name in its report, if there was one."""
    name = stored.loop.attempts[number - 1].reported_as
    return stored.id if number == 1 else name or f"{stored.id}_r{number - 1}"


async def next_name(store: Store, scope: Scope, stored: StoredLoop) -> str:
    """Return the name of the next attempt: `ID_r1` for the second, unless that is a loop's id."""
    number = len(stored.loop.attempts)
    names = (f"{stored.id}{'_' * length}r{number}" for length in count(1))
    while await _read(store, scope, name := next(names)) is not None:
        pass
    return name


async def _read(store: Store, scope: Scope, id: str) -> StoredLoop | None:
    try:
        return await store.read(scope, loops.read, id)
    except NotFound:
        return None


ALIGNMENT, DRIFT = "alignment", "drift"
RANGES: Mapping[str, tuple[float, float]] = {
    "alignment_threshold": (0, 1),
    "drift_threshold": (0, 1),
    "max_reruns": (0, LARGEST),
    "fatigue_threshold": (0.001, 1),
    "bias_repetition_threshold": (1, LARGEST),
    "base_increment": (0.001, 1),
    "improvement_threshold": (0.001, 1),
    "decay_rate": (0, 1),
    "critical_threshold": (0.001, 1),
}


@dataclass(frozen=True, slots=True)
class LoopGuardrails:
    """The limits that decide when a loop runs again, and when it must end.

    A loop is fine if its alignment is at least `alignment_threshold` and its drift at most
    `drift_threshold`. It ends after `max_reruns` reruns, when its fatigue reaches the lower of
    `fatigue_threshold` and `critical_threshold`, or when a bias tag occurs for the
    `bias_repetition_threshold`th time. A rerun in which no score improves by
    `improvement_threshold` adds `base_increment` to the fatigue, up to `max_fatigue`; any other
    rerun subtracts `decay_rate`. `reflection_persona` is who reflects. Raises InvalidInput.
    """

    alignment_threshold: float = 0.75
    drift_threshold: float = 0.25
    max_reruns: int = 3
    fatigue_threshold: float = 0.5
    bias_repetition_threshold: int = 3
    base_increment: float = 0.15
    improvement_threshold: float = 0.05
    decay_rate: float = 0.05
    critical_threshold: float = 0.5
    max_fatigue: float = 1.0
    reflection_persona: str = "SAGE"

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if high == LARGEST and (not isinstance(value, int) or isinstance(value, bool)):
                raise InvalidInput(name, value, f"an integer of at least {low:g}")
            check_number(name, value, low, high)
        limit = min(self.fatigue_threshold, self.critical_threshold)
        check_number("max_fatigue", self.max_fatigue, limit, 1)
        if not isinstance(self.reflection_persona, str) or not self.reflection_persona.strip():
            raise InvalidInput("reflection_persona", self.reflection_persona, "a name")

    @property
    def policy(self) -> Policy:
        """Return the policy with these limits; by default it equals the preset `orchestrator`."""
        limit = min(self.fatigue_threshold, self.critical_threshold)
        tired = Fatigue(limit, self.base_increment, self.decay_rate, self.max_fatigue)
        echo = Echo(self.bias_repetition_threshold, across="scope")
        return Policy(
            (MaxAttempts(self.max_reruns + 1), tired, echo),
            Improvement(self.improvement_threshold, "previous"),
            name="orchestrator",
            goals=(
                Goal(ALIGNMENT, self.alignment_threshold),
                Goal(DRIFT, self.drift_threshold, "at_most"),
            ),
        )

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> LoopGuardrails:
        """Read the settings from a mapping such as `os.environ`; ignore other names in it.

        Names may be in upper or lower case, with or without the prefix `HEEDFUL_`. A name with the
        prefix wins. Raises InvalidInput, which names the setting.
        """
        values: dict[str, Any] = {}
        known = {str(name).lower(): (name, value) for name, value in settings.items()}
        for one in fields(cls):
            setting = known.get(f"heedful_{one.name}", known.get(one.name))
            if setting is not None:
                values[one.name] = _read_setting(str(setting[0]), setting[1], type(one.default))
        return cls(**values)


def _read_setting(name: str, value: Any, kind: type) -> Any:
    try:
        return kind(value.strip() if isinstance(value, str) else value)
    except (TypeError, ValueError) as error:
        what = "a whole number" if kind is int else "a number"
        raise InvalidInput(name, value, what) from error


BIAS = "bias: "  # how the keys of findings that are bias tags begin
VALID = "summary_valid"
# The rule that ended a loop -> its name here; other rules keep their names.
ENDED: Mapping[str, str] = {
    "attempts": "max_reruns_reached",
    "echo": "bias_echo_detected",
    "fatigue": "fatigue_threshold_exceeded",
}
Rule = TypeVar("Rule", Echo, Fatigue)


class LoopView:
    """One decision on a stored loop: the latest, or the latest after attempt `number`.

    `following` is the name of the next attempt. Before the first decision fields are null, counts 0
    and flags false.
    """

    def __init__(self, stored: StoredLoop, following: str, number: int | None = None) -> None:
        self.stored: StoredLoop = stored
        self.following: str = following
        self.policy: Policy = policy_from(stored.head.policy)
        self.loop: Loop = replace(stored.loop, improves=self.policy.improvement)
        made = [one for one in stored.decisions if number in (None, one.attempt)]
        self.decision: Decision | None = made[-1] if made else None
        why = reasoning(self.loop, made[-1:])
        self.reasoning: Reasoning | None = why[0] if why else None
        self.number: int = self.decision.attempt if self.decision else number or 0

    @property
    def attempt(self) -> Attempt | None:
        """Return the attempt that was decided on."""
        return self.loop.attempts[self.number - 1] if 0 < self.number <= self.made else None

    @property
    def made(self) -> int:
        """Return the number of attempts."""
        return len(self.loop.attempts)

    @property
    def evaluation(self) -> Evaluation:
        """Return the evaluation of the attempt; empty if it was not judged."""
        return (self.attempt and self.attempt.evaluation) or Evaluation()

    @property
    def again(self) -> bool:
        """Return True if the decision is to run again."""
        return self.decision is not None and isinstance(self.decision.verdict, Again)

    @property
    def stopped_by(self) -> list[str]:
        """Return the rules that ended the loop."""
        verdict = self.decision.verdict if self.decision else None
        return [one.rule for one in verdict.stopped_by] if isinstance(verdict, Done) else []

    @property
    def at(self) -> float:
        """Return the time of the decision, or of the loop's start, in seconds since 1970."""
        return self.decision.at if self.decision else self.stored.created

    @property
    def threshold(self) -> int:
        """Return how often a tag must occur to be an echo."""
        return rule_of(self.policy, Echo).times

    @property
    def max_reruns(self) -> int | None:
        """Return how many reruns the loop may have; None if there is no limit."""
        rules = flat(self.policy.rules)
        limits = [one.limit for one in rules if isinstance(one, MaxAttempts)]
        return min(limits) - 1 if limits else None

    @property
    def rerun_count(self) -> int:
        """Return the number of reruns so far, including the one just decided on."""
        return max(0, self.number - 1) + self.again

    def name(self, number: int) -> str:
        """Return the name of an attempt by its number."""
        return name_of(self.stored, number) if number <= self.made else self.following

    def limits(self) -> dict[str, Any]:
        """Return the number of reruns, their limit, and whether it is reached."""
        most = self.max_reruns
        reached = most is not None and self.rerun_count >= most
        return {"rerun_count": self.rerun_count, "max_reruns": most, "limit_reached": reached}

    def overriding(self) -> dict[str, Any]:
        """Return whether the loop was forced to end, and who lifted a limit that it reached."""
        lifted = self.reasoning.lifted if self.reasoning else ()
        by = ", ".join(dict.fromkeys(one.by for one in lifted))
        forced = {"force_finalize": bool(self.stopped_by)}
        return {**forced, "overridden": bool(lifted), "overridden_by": by or None}

    def echo(self) -> dict[str, Any]:
        """Return the repeated tags, how often each occurred, and which of them are an echo."""
        counts = self.decision.standing.echoes if self.decision else {}
        often = {tag(key): n for key, n in counts.items() if n >= min(2, self.threshold)}
        repeated = [one for one, n in often.items() if n >= self.threshold]
        return {
            "bias_echo": bool(repeated),
            "repeated_tags": repeated,
            "repetition_counts": often,
        }

    def fatigue(self) -> dict[str, Any]:
        """Return the fatigue of the loop; 0.0 before the first rerun."""
        worn = self.decision.standing if self.decision else None
        level, change = (worn.fatigue, worn.change) if worn else (0.0, 0.0)
        better = self.number > 1 and self.loop.improved[self.number - 1]
        return {
            "reflection_fatigue": level,
            "previous_fatigue": round(level - change, 3),
            "fatigue_increment": change,
            "fatigue_increased": change > 0,
            "improvement_detected": better,
            "threshold_exceeded": level >= rule_of(self.policy, Fatigue).limit,
        }

    def why(self) -> dict[str, Any]:
        """Return why the loop runs again, or must end."""
        one = self.reasoning
        triggers = list(dict.fromkeys(it.code for it in one.triggers)) if one else []
        reason = one.reason if one and one.decided != "passed" else None
        detail = one.detail if one else None
        if one and one.decided == "stopped":
            reason = ENDED.get(one.reason, one.reason)
            detail = f"Forced finalization due to {reason}"
        return {
            "rerun_reason": reason or None,
            "rerun_reason_detail": detail or None,
            "rerun_trigger": triggers,
        }

    def scores(self) -> dict[str, Any]:
        """Return the scores, and who reflected."""
        scores = {name: float(score) for name, score in self.evaluation.scores.items()}
        attempt = self.attempt
        text = attempt.candidate.text if attempt else None
        return {
            "alignment_score": scores.get(ALIGNMENT),
            "drift_score": scores.get(DRIFT),
            # A summary that nobody judged is valid if it has text.
            "summary_valid": bool(scores.get(VALID, text and text.strip())),
            "reflection_persona": attempt.labels.get("reflection_persona") if attempt else None,
        }

    def lifting(self, rule: str, at: float) -> str:
        """Return who lifts the rule, at this decision or at the next that it would stop; or ""."""
        lifted = self.reasoning.lifted if self.reasoning else ()
        by = [one.by for one in lifted if one.stop.rule == rule]
        by += [one.by for one in self.loop.overrides if one.rule == rule and one.lifts(at)]
        return by[0] if by else ""


def rule_of(policy: Policy, kind: type[Rule]) -> Rule:
    """Return the policy's rule of this kind, or the default one."""
    return next((one for one in flat(policy.rules) if isinstance(one, kind)), kind())


@dataclass(frozen=True, slots=True)
class ReflectionResult:
    """The result of reflecting on a completion: scores, echo and fatigue."""

    alignment_score: float | None
    drift_score: float | None
    summary_valid: bool
    reflection_persona: str | None
    bias_echo: bool
    repeated_tags: list[str]
    repetition_counts: dict[str, int]
    reflection_fatigue: float
    agent_results: dict[str, Any]

    @classmethod
    def of(cls, view: LoopView) -> ReflectionResult:
        """Return the scores of the attempt that was decided on."""
        findings = view.evaluation.findings
        biases = [one for one in findings if one.key.startswith(BIAS)]
        tags = [{"tag": tag(one.key), "severity": one.severity} for one in biases]
        return cls(
            **view.scores(),
            **view.echo(),
            reflection_fatigue=view.fatigue()["reflection_fatigue"],
            agent_results={"pessimist": {"bias_analysis": {"bias_tags_detail": tags}}},
        )


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """Whether the loop is run again, as what, and why."""

    decision: Literal["rerun", "finalize"]
    original_loop_id: str
    new_loop_id: str | None
    rerun_reason: str | None
    rerun_reason_detail: str | None
    rerun_trigger: list[str]
    rerun_number: int
    rerun_count: int
    max_reruns: int | None
    force_finalize: bool
    overridden: bool
    overridden_by: str | None

    @classmethod
    def of(cls, view: LoopView) -> DecisionResult:
        """Return the decision."""
        return cls(
            "rerun" if view.again else "finalize",
            view.loop.id,
            view.name(view.number + 1) if view.again else None,
            **view.why(),
            rerun_number=view.number if view.again else max(0, view.number - 1),
            rerun_count=view.rerun_count,
            max_reruns=view.max_reruns,
            **view.overriding(),
        )


@dataclass(frozen=True, slots=True)
class LoopDecision:
    """The decision on a completion; a repeated completion gets the latest decision."""

    status: Literal["success"]
    loop_id: str
    reflection_result: ReflectionResult
    decision_result: DecisionResult
    orchestrator_persona: str | None
    timestamp: str


@dataclass(frozen=True, slots=True)
class LoopStanding:
    """The state of a loop under its guardrails."""

    loop_id: str
    rerun_count: int
    max_reruns: int | None
    rerun_limit_reached: bool
    bias_echo: bool
    reflection_fatigue: float
    fatigue_threshold_exceeded: bool
    force_finalize: bool
    rerun_reason: str | None
    rerun_trigger: list[str]
    alignment_score: float | None
    drift_score: float | None
    summary_valid: bool
    reflection_persona: str | None

    @classmethod
    def of(cls, view: LoopView, loop_id: str) -> LoopStanding:
        """Return the state of the loop, under the name that the caller uses."""
        limits, fatigue, why = view.limits(), view.fatigue(), view.why()
        return cls(
            loop_id,
            limits["rerun_count"],
            limits["max_reruns"],
            limits["limit_reached"],
            view.echo()["bias_echo"],
            fatigue["reflection_fatigue"],
            fatigue["threshold_exceeded"],
            view.overriding()["force_finalize"],
            why["rerun_reason"],
            why["rerun_trigger"],
            **view.scores(),
        )


@dataclass(frozen=True, slots=True)
class GuardrailsStatus:
    """The answer of `get_guardrails_status`."""

    status: Literal["success"]
    guardrails_status: LoopStanding


@dataclass(frozen=True, slots=True)
class GuardrailsOverride:
    """An override, as it was given."""

    status: Literal["success"]
    loop_id: str
    override_fatigue: bool
    override_max_reruns: bool
    overridden_by: str | None
    override_reason: str | None


def trace(view: LoopView, number: int) -> dict[str, Any]:
    """Return the trace of one attempt; the next attempt, before its report, is pending."""
    ends = view.decision is not None and not view.again
    echo, scores = view.echo(), view.scores()
    return {
        "loop_id": view.name(number),
        "status": "pending" if number > view.made else "finalized" if ends else "completed",
        "timestamp": moment(view.decision.at) if view.decision else None,
        "rerun_of": view.name(number - 1) if number > 1 else None,
        "rerun_depth": number - 1,
        "rerun_count": view.rerun_count,
        "max_reruns": view.max_reruns,
        **echo,
        "threshold": view.threshold,
        **action(echo["bias_echo"]),
        **view.fatigue(),
        **view.why(),
        "force_finalize": view.overriding()["force_finalize"],
        "overridden_by": view.overriding()["overridden_by"],
        "orchestrator_persona": view.attempt and view.attempt.labels.get("orchestrator_persona"),
        "reflection_persona": scores["reflection_persona"],
    }


def action(echo: bool) -> dict[str, Any]:
    """Return the trigger and the action: the pessimist halts the loop at an echo."""
    return {"trigger": "pessimist" if echo else None, "action": "halt_loop" if echo else None}


def tag(key: str) -> str:
    """Return the bias tag of a finding, or the key of a finding that has no tag."""
    return key.removeprefix(BIAS)


def moment(at: float) -> str:
    """Return a time in seconds since 1970 as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
