"""Loop guardrails: their settings, the names of attempts, and stored loops in their shapes.

The store knows which attempt of which loop a name stands for; a name is never parsed.
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
    """An attempt, by its number, of a loop; `stored` is None where there is no such loop yet."""

    id: str
    number: int
    stored: StoredLoop | None

    @property
    def made(self) -> bool:
        """Whether there is that attempt."""
        return self.stored is not None and self.number <= len(self.stored.loop.attempts)


async def find(store: Store, scope: Scope, name: str) -> Place:
    """The attempt of that name: the first one of the loop of that id, or a rerun of another loop.

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
    """The name of an attempt that was made: the one it was reported under, if it was."""
    name = stored.loop.attempts[number - 1].reported_as
    return stored.id if number == 1 else name or f"{stored.id}_r{number - 1}"


async def next_name(store: Store, scope: Scope, stored: StoredLoop) -> str:
    """The name of the attempt to come: `ID_r1` of the second, unless a loop has that for its id."""
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
    """When a loop runs again, and when it must end.

    Alignment is at least `alignment_threshold` and drift at most `drift_threshold` where a loop is
    fine. It ends after `max_reruns` reruns, at the lower of `fatigue_threshold` and
    `critical_threshold`, or where a bias tag comes for the `bias_repetition_threshold`th time.
    Fatigue grows by `base_increment`, to `max_fatigue` at most, for a rerun in which neither score
    is better by `improvement_threshold` than before, and shrinks by `decay_rate` for another.
    `reflection_persona` is who reflects. Raises InvalidInput.
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
        """The policy that they come to; by default the preset `orchestrator`."""
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
        """From settings of any origin, such as `os.environ`; other names in it are left alone.

        Names count in upper and lower case, with and without `HEEDFUL_` before them, which goes
        before the same without. Raises InvalidInput that says which.
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
# Why a loop was ended -> the word for it; other rules are called by their names.
ENDED: Mapping[str, str] = {
    "attempts": "max_reruns_reached",
    "echo": "bias_echo_detected",
    "fatigue": "fatigue_threshold_exceeded",
}
Rule = TypeVar("Rule", Echo, Fatigue)


class LoopView:
    """One decision of a stored loop, the latest or the latest after attempt `number`.

    `following` is the name of the attempt to come. Where nothing was decided yet, fields are null,
    counts 0 and flags false.
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
        """The attempt that was decided on."""
        return self.loop.attempts[self.number - 1] if 0 < self.number <= self.made else None

    @property
    def made(self) -> int:
        """How many attempts there are."""
        return len(self.loop.attempts)

    @property
    def evaluation(self) -> Evaluation:
        """What was judged; empty where nothing was."""
        return (self.attempt and self.attempt.evaluation) or Evaluation()

    @property
    def again(self) -> bool:
        """Whether it was decided to run again."""
        return self.decision is not None and isinstance(self.decision.verdict, Again)

    @property
    def stopped_by(self) -> list[str]:
        """The rules that ended the loop."""
        verdict = self.decision.verdict if self.decision else None
        return [one.rule for one in verdict.stopped_by] if isinstance(verdict, Done) else []

    @property
    def at(self) -> float:
        """When it was decided, or else begun, in seconds since 1970."""
        return self.decision.at if self.decision else self.stored.created

    @property
    def threshold(self) -> int:
        """How often a tag comes until it is an echo."""
        return rule_of(self.policy, Echo).times

    @property
    def max_reruns(self) -> int | None:
        """How many reruns the loop may have; None where nothing limits them."""
        rules = flat(self.policy.rules)
        limits = [one.limit for one in rules if isinstance(one, MaxAttempts)]
        return min(limits) - 1 if limits else None

    @property
    def rerun_count(self) -> int:
        """The number of reruns until then, also of the one that was decided on."""
        return max(0, self.number - 1) + self.again

    def name(self, number: int) -> str:
        """The name of an attempt by its number."""
        return name_of(self.stored, number) if number <= self.made else self.following

    def limits(self) -> dict[str, Any]:
        """How many reruns there were, may be, and whether no other may follow."""
        most = self.max_reruns
        reached = most is not None and self.rerun_count >= most
        return {"rerun_count": self.rerun_count, "max_reruns": most, "limit_reached": reached}

    def overriding(self) -> dict[str, Any]:
        """Whether a limit that was really reached ended the loop, or was lifted, and by whom."""
        lifted = self.reasoning.lifted if self.reasoning else ()
        by = ", ".join(dict.fromkeys(one.by for one in lifted))
        forced = {"force_finalize": bool(self.stopped_by)}
        return {**forced, "overridden": bool(lifted), "overridden_by": by or None}

    def echo(self) -> dict[str, Any]:
        """The tags that came again, how often, and those among them that came too often."""
        counts = self.decision.standing.echoes if self.decision else {}
        often = {tag(key): n for key, n in counts.items() if n >= min(2, self.threshold)}
        repeated = [one for one, n in often.items() if n >= self.threshold]
        return {
            "bias_echo": bool(repeated),
            "repeated_tags": repeated,
            "repetition_counts": often,
        }

    def fatigue(self) -> dict[str, Any]:
        """How tired the loop is; 0.0 before the first rerun."""
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
        """Why it runs again, or must not."""
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
        """What was judged, and who reflected."""
        scores = {name: float(score) for name, score in self.evaluation.scores.items()}
        attempt = self.attempt
        text = attempt.candidate.text if attempt else None
        return {
            "alignment_score": scores.get(ALIGNMENT),
            "drift_score": scores.get(DRIFT),
            # One that nobody judged is valid where there is one.
            "summary_valid": bool(scores.get(VALID, text and text.strip())),
            "reflection_persona": attempt.labels.get("reflection_persona") if attempt else None,
        }

    def lifting(self, rule: str, at: float) -> str:
        """Who lifted a rule at this decision, or will at the next in which it speaks; "" nobody."""
        lifted = self.reasoning.lifted if self.reasoning else ()
        by = [one.by for one in lifted if one.stop.rule == rule]
        by += [one.by for one in self.loop.overrides if one.rule == rule and one.lifts(at)]
        return by[0] if by else ""


def rule_of(policy: Policy, kind: type[Rule]) -> Rule:
    """The rule of that kind of a policy, or the shipped one."""
    return next((one for one in flat(policy.rules) if isinstance(one, kind)), kind())


@dataclass(frozen=True, slots=True)
class ReflectionResult:
    """What was judged of a completion."""

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
        """Return what was judged of the attempt that was decided on."""
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
    """What was decided on a completion; the same completion again gets the latest decision."""

    status: Literal["success"]
    loop_id: str
    reflection_result: ReflectionResult
    decision_result: DecisionResult
    orchestrator_persona: str | None
    timestamp: str


@dataclass(frozen=True, slots=True)
class LoopStanding:
    """How a loop stands under its guardrails."""

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
        """Return how the loop stands, under the name that the caller uses."""
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
    """Return the trace of one attempt; an attempt that is decided and not reported is pending."""
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
    """Who says that the loop must halt."""
    return {"trigger": "pessimist" if echo else None, "action": "halt_loop" if echo else None}


def tag(key: str) -> str:
    """The bias tag of a finding, or the key of one that is none."""
    return key.removeprefix(BIAS)


def moment(at: float) -> str:
    """A time in seconds since 1970 as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
