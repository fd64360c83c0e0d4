"""Loop guardrails in the shapes that callers of earlier systems know, as they are sent."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from heedful.compat.shapes import MOST

Id = Annotated[str, Field(min_length=1, max_length=MOST)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=1_000_000)]
Share = Annotated[float, Field(ge=0, le=1)]
COMPLETED: dict[str, Any] = {
    "loop_id": "loop_001",
    "reflection_status": "done",
    "orchestrator_persona": "SAGE",
    "override_fatigue": False,
    "override_max_reruns": False,
    "override_by": None,
    "task": "Summarise the report",
    "summary": "Sales rose by 3 %.",
    "alignment_score": 0.72,
    "drift_score": 0.28,
    "bias_tags": [{"tag": "overconfidence", "severity": 0.6}],
}
DECIDED: dict[str, Any] = {
    "status": "success",
    "loop_id": "loop_001",
    "reflection_result": {
        "alignment_score": 0.72,
        "drift_score": 0.28,
        "summary_valid": True,
        "reflection_persona": "SAGE",
        "bias_echo": False,
        "repeated_tags": [],
        "repetition_counts": {},
        "reflection_fatigue": 0.0,
        "agent_results": {
            "pessimist": {
                "bias_analysis": {
                    "bias_tags_detail": [{"tag": "overconfidence", "severity": 0.6}],
                }
            }
        },
    },
    "decision_result": {
        "decision": "rerun",
        "original_loop_id": "loop_001",
        "new_loop_id": "loop_001_r1",
        "rerun_reason": "alignment_threshold_not_met",
        "rerun_reason_detail": "Triggered by alignment, drift",
        "rerun_trigger": ["alignment", "drift"],
        "rerun_number": 1,
        "rerun_count": 1,
        "max_reruns": 3,
        "force_finalize": False,
        "overridden": False,
        "overridden_by": None,
    },
    "orchestrator_persona": "SAGE",
    "timestamp": "2026-01-31T12:00:00.000Z",
}
STANDS: dict[str, Any] = {
    "status": "success",
    "guardrails_status": {
        "loop_id": "loop_001",
        "rerun_count": 1,
        "max_reruns": 3,
        "rerun_limit_reached": False,
        "bias_echo": False,
        "reflection_fatigue": 0.0,
        "fatigue_threshold_exceeded": False,
        "force_finalize": False,
        "rerun_reason": "alignment_threshold_not_met",
        "rerun_trigger": ["alignment", "drift"],
        "alignment_score": 0.72,
        "drift_score": 0.28,
        "summary_valid": True,
        "reflection_persona": "SAGE",
    },
}
LIFTED: dict[str, Any] = {
    "override_fatigue": True,
    "override_max_reruns": False,
    "override_by": "operator",
    "override_reason": "Go on exploring",
}


class LoopRefusal(BaseModel):
    """What went wrong, and with which loop where that is known."""

    status: Literal["error"] = "error"
    message: str
    loop_id: str | None = None


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": LoopRefusal, "description": "What went wrong"}
    for status in (401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504)
}


class BiasTag(BaseModel):
    """A bias that was found; without a severity it is 0.5."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    tag: Name
    severity: Share = 0.5


class Flags(BaseModel):
    """Limits that a loop may go on past, and who says so: by default the name of the key."""

    tenant_id: Name | None = None
    project_id: Name | None = None
    override_fatigue: bool = False
    override_max_reruns: bool = False
    override_bias_echo: bool = False
    override_by: Name | None = None


class LoopCompletion(Flags):
    """A loop that was run: its id, and of what was done as much as is told.

    Flags take effect where the limit has been reached. Scores that are not told are judged.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"example": COMPLETED})

    loop_id: Id
    reflection_status: str
    orchestrator_persona: Name | None = None
    task: Text | None = None
    goal: Text | None = None
    summary: Text | None = None
    output: Text | None = None
    alignment_score: Share | None = None
    drift_score: Share | None = None
    bias_tags: Annotated[list[BiasTag], Field(max_length=100)] | None = None


class GuardrailsOverride(Flags):
    """Limits that the next decision may go past, and why."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"example": LIFTED})

    override_reason: Annotated[str, Field(max_length=2_000)] | None = None


class ReflectionResult(BaseModel):
    """What was judged."""

    alignment_score: float | None
    drift_score: float | None
    summary_valid: bool
    reflection_persona: str | None
    bias_echo: bool
    repeated_tags: list[str]
    repetition_counts: dict[str, int]
    reflection_fatigue: Share
    agent_results: dict[str, Any]


class DecisionResult(BaseModel):
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


class LoopDecision(BaseModel):
    """What was decided on a completion; the same again has the latest decision."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"example": DECIDED})

    status: Literal["success"]
    loop_id: str
    reflection_result: ReflectionResult
    decision_result: DecisionResult
    orchestrator_persona: str | None
    timestamp: str


class LoopStanding(BaseModel):
    """How a loop stands."""

    loop_id: str
    rerun_count: int
    max_reruns: int | None
    rerun_limit_reached: bool
    bias_echo: bool
    reflection_fatigue: Share
    fatigue_threshold_exceeded: bool
    force_finalize: bool
    rerun_reason: str | None
    rerun_trigger: list[str]
    alignment_score: float | None
    drift_score: float | None
    summary_valid: bool
    reflection_persona: str | None


class GuardrailsStatus(BaseModel):
    """How a loop stands under its guardrails."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"example": STANDS})

    status: Literal["success"]
    guardrails_status: LoopStanding


class GuardrailsOverridden(BaseModel):
    """The override that was given."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={
            "example": {
                "status": "success",
                "loop_id": "loop_001",
                "override_fatigue": True,
                "override_max_reruns": False,
                "overridden_by": "operator",
                "override_reason": "Go on exploring",
            }
        }
    )

    status: Literal["success"]
    loop_id: str
    override_fatigue: bool
    override_max_reruns: bool
    overridden_by: str | None
    override_reason: str | None
