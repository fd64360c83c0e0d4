"""Loop guardrails: their settings, the names of attempts, and the shapes of stored loops.

The store knows which attempt a name belongs to. Names are never parsed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any, Literal, TypeVar

from heedful.drive.report import LONGEST
from heedful.errors import InvalidInput, NotFound
from heedful.lessons.lesson import Scope
from heedful.loop import record
from heedful.loop.codec import policy_from, policy_to
from heedful.loop.decide import Again, Decision, Done, Policy, Standing, reasoning
from heedful.loop.stop import Echo, Fatigue, MaxAttempts, flat
from heedful.pipeline.pipeline import read_settings
from heedful.store import loops
from heedful.store.records import Head, StoredLoop
from heedful.store.runs import iso
from heedful.store.store import Store

LONGEST_NAME = LONGEST + 20  # characters of the name of a rerun


@dataclass(frozen=True, slots=True)
class Place:
    """An attempt of a loop, by its number; a loop that does not exist yet is not `known`."""

    number: int
    stored: StoredLoop
    known: bool = True

    @property
    def made(self) -> bool:
        """Return True if the attempt exists."""
        return self.number <= len(self.stored.loop.attempts)


async def find(store: Store, scope: Scope, name: str, policy: Policy) -> Place:
    """Return the attempt with this name: the first of the loop with this id, or a loop's rerun.

    An unknown name means the first of a loop under this policy. Raises InvalidInput, StoreError.
    """
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise InvalidInput("loop_id", name, f"1 to {LONGEST_NAME} printable characters")
    if (stored := await _read(store, scope, name)) is not None:
        return Place(1, stored)
    for end in range(len(name) - 1, 0, -1):
        if name[end] != "_" or (stored := await _read(store, scope, name[:end])) is None:
            continue
        following = len(stored.loop.attempts) + 1
        for attempt in range(2, following):
            if name_of(stored, attempt) == name:
                return Place(attempt, stored)
        if following > 1 and await next_name(store, scope, stored) == name:
            return Place(following, stored)
    head, loop = Head("", (), policy_to(policy)), record.Loop(name, policy.goals)
    return Place(1, StoredLoop(name, head, loop, (), (), {}, 0, 0.0, 0.0), known=False)


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
# The range of each setting; those without an upper end are integers.
RANGES: Mapping[str, tuple[float, float]] = {
    "alignment_threshold": (0, 1),
    "drift_threshold": (0, 1),
    "max_reruns": (0, record.LARGEST),
    "fatigue_threshold": (0.001, 1),
    "bias_repetition_threshold": (1, record.LARGEST),
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
            if high == record.LARGEST:
                record.check_integer(name, getattr(self, name), int(low))
            record.check_number(name, getattr(self, name), low, high)
        record.check_number("max_fatigue", self.max_fatigue, self._limit, 1)
        if not isinstance(self.reflection_persona, str) or not self.reflection_persona.strip():
            raise InvalidInput("reflection_persona", self.reflection_persona, "a name")

    @property
    def _limit(self) -> float:
        return min(self.fatigue_threshold, self.critical_threshold)

    @property
    def policy(self) -> Policy:
        """Return the policy with these limits; by default it equals the preset `orchestrator`."""
        tired = Fatigue(self._limit, self.base_increment, self.decay_rate, self.max_fatigue)
        echo = Echo(self.bias_repetition_threshold, across="scope")
        return Policy(
            (MaxAttempts(self.max_reruns + 1), tired, echo),
            record.Improvement(self.improvement_threshold, "previous"),
            name="orchestrator",
            goals=(
                record.Goal(ALIGNMENT, self.alignment_threshold),
                record.Goal(DRIFT, self.drift_threshold, "at_most"),
            ),
        )

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> LoopGuardrails:
        """Read the settings from a mapping such as `os.environ`; ignore other names in it.

        Names may be in upper or lower case, with or without the prefix `HEEDFUL_`. A name with the
        prefix wins. Raises InvalidInput, which names the setting.
        """
        made: LoopGuardrails = read_settings(cls, settings, {})
        return made


BIAS = "bias: "  # how the keys of findings that are bias tags begin
VALID = "summary_valid"
# The rule that ended a loop -> its name here; other rules keep their names.
ENDED: Mapping[str, str] = {
    "attempts": "max_reruns_reached",
    "echo": "bias_echo_detected",
    "fatigue": "fatigue_threshold_exceeded",
}
Rule = TypeVar("Rule", Echo, Fatigue)
T = TypeVar("T")


class LoopView:
    """One decision on a stored loop: the latest, or the latest after attempt `number`.

    `following` is the name of the next attempt. `facts` holds every field that earlier systems
    know; before the first decision they are null, counts 0 and flags false.
    """

    def __init__(self, stored: StoredLoop, following: str, number: int | None = None) -> None:
        self.stored: StoredLoop = stored
        self.policy: Policy = policy_from(stored.head.policy)
        self.loop: record.Loop = replace(stored.loop, improves=self.policy.improvement)
        made = [one for one in stored.decisions if number in (None, one.attempt)]
        self.decision: Decision | None = made[-1] if made else None
        self.number: int = self.decision.attempt if self.decision else number or 0
        verdict = self.decision.verdict if self.decision else None
        self.again: bool = isinstance(verdict, Again)
        stops = verdict.stopped_by if isinstance(verdict, Done) else ()
        self.stopped_by: list[str] = [one.rule for one in stops]
        self._lifted = verdict.lifted if verdict else ()
        self._following = following
        self.facts: dict[str, Any] = {**self._limits(), **self._wear(), **self._judged()}

    @property
    def at(self) -> float:
        """The time of the decision, or of the loop's start, in seconds since 1970."""
        return self.decision.at if self.decision else self.stored.created

    def as_(self, shape: type[T], **more: Any) -> T:
        """Return the facts in a shape, together with `more` of its fields."""
        facts = {**self.facts, **more}
        return shape(**{field.name: facts[field.name] for field in fields(shape)})  # type: ignore[arg-type]

    def name(self, number: int) -> str:
        """Return the name of an attempt by its number."""
        made = number <= len(self.loop.attempts)
        return name_of(self.stored, number) if made else self._following

    def lifting(self, rule: str, at: float) -> str:
        """Return who lifts the rule, at this decision or at the next that it would stop; or ""."""
        lifted = [one.by for one in self._lifted if one.stop.rule == rule]
        lifted += [one.by for one in self.loop.overrides if one.rule == rule and one.lifts(at)]
        return lifted[0] if lifted else ""

    def _limits(self) -> dict[str, Any]:
        """Return what was decided and why, and the reruns, with the one just decided on."""
        rules = flat(self.policy.rules)
        limits = [one.limit - 1 for one in rules if isinstance(one, MaxAttempts)]
        most, before = min(limits, default=None), max(0, self.number - 1)
        reason, detail, triggers = "", "", []
        for why in reasoning(self.loop, [self.decision] if self.decision else []):
            reason, detail = "" if why.decided == "passed" else why.reason, why.detail
            triggers = list(dict.fromkeys(one.code for one in why.triggers))
            if why.decided == "stopped":
                reason = ENDED.get(reason, reason)
                detail = f"Forced finalization due to {reason}"
        return {
            "decision": "rerun" if self.again else "finalize",
            "original_loop_id": self.loop.id,
            "new_loop_id": self.name(self.number + 1) if self.again else None,
            "rerun_reason": reason or None,
            "rerun_reason_detail": detail or None,
            "rerun_trigger": triggers,
            "rerun_number": self.number if self.again else before,
            "rerun_count": before + self.again,
            "max_reruns": most,
            "rerun_limit_reached": most is not None and before + self.again >= most,
            "force_finalize": bool(self.stopped_by),
            "overridden": bool(self._lifted),
            "overridden_by": ", ".join(dict.fromkeys(one.by for one in self._lifted)) or None,
        }

    def _wear(self) -> dict[str, Any]:
        """Return how often each tag occurred, and the fatigue; 0.0 before the first rerun."""
        worn = self.decision.standing if self.decision else Standing()
        exceeded = worn.fatigue >= rule_of(self.policy, Fatigue).limit
        most = rule_of(self.policy, Echo).times
        often = {tag(key): n for key, n in worn.echoes.items() if n >= min(2, most)}
        return {
            "threshold": most,
            "repetition_counts": often,
            **echo(often, most),
            "reflection_fatigue": worn.fatigue,
            "previous_fatigue": round(worn.fatigue - worn.change, 3),
            "fatigue_increment": worn.change,
            "fatigue_increased": worn.change > 0,
            "improvement_detected": self.number > 1 and self.loop.improved[self.number - 1],
            "threshold_exceeded": exceeded,
            "fatigue_threshold_exceeded": exceeded,
        }

    def _judged(self) -> dict[str, Any]:
        """Return scores and bias tags of the attempt that was decided on, and who took part."""
        made = 0 < self.number <= len(self.loop.attempts)
        attempt = self.loop.attempts[self.number - 1] if made else None
        evaluation = (attempt and attempt.evaluation) or record.Evaluation()
        scores = {name: float(score) for name, score in evaluation.scores.items()}
        text, labels = (attempt.candidate.text, attempt.labels) if attempt else (None, {})
        biases = [one for one in evaluation.findings if one.key.startswith(BIAS)]
        tags = [{"tag": tag(one.key), "severity": one.severity} for one in biases]
        return {
            "alignment_score": scores.get(ALIGNMENT),
            "drift_score": scores.get(DRIFT),
            # A summary that nobody judged is valid if it has text.
            "summary_valid": bool(scores.get(VALID, text and text.strip())),
            "agent_results": {"pessimist": {"bias_analysis": {"bias_tags_detail": tags}}},
            "orchestrator_persona": labels.get("orchestrator_persona"),
            "reflection_persona": labels.get("reflection_persona"),
        }


def rule_of(policy: Policy, kind: type[Rule]) -> Rule:
    """Return the policy's rule of this kind, or the default one."""
    return next((one for one in flat(policy.rules) if isinstance(one, kind)), kind())


def echo(counts: Mapping[str, int], threshold: int) -> dict[str, Any]:
    """Return which tags are an echo; at an echo the pessimist halts the loop."""
    repeated = [tag for tag, times in counts.items() if times >= threshold]
    return {
        "bias_echo": bool(repeated),
        "repeated_tags": repeated,
        "trigger": "pessimist" if repeated else None,
        "action": "halt_loop" if repeated else None,
    }


def tag(key: str) -> str:
    """Return the bias tag of a finding, or the key of a finding that has no tag."""
    return key.removeprefix(BIAS)


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


TRACE = (
    "loop_id status timestamp rerun_of rerun_depth rerun_count max_reruns bias_echo repeated_tags "
    "repetition_counts threshold trigger action reflection_fatigue previous_fatigue "
    "fatigue_increment fatigue_increased improvement_detected threshold_exceeded rerun_reason "
    "rerun_reason_detail rerun_trigger force_finalize overridden_by orchestrator_persona "
    "reflection_persona"
).split()


def trace(view: LoopView, number: int) -> dict[str, Any]:
    """Return the trace of one attempt; the next attempt, before its report, is pending."""
    ended = "finalized" if view.decision is not None and not view.again else "completed"
    facts = {
        **view.facts,
        "loop_id": view.name(number),
        "status": "pending" if number > len(view.loop.attempts) else ended,
        "timestamp": iso(view.decision.at) if view.decision else None,
        "rerun_of": view.name(number - 1) if number > 1 else None,
        "rerun_depth": number - 1,
    }
    return {name: facts[name] for name in TRACE}
