"""Reflections in the shapes that callers of earlier systems know, as they are sent."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1, max_length=200)]
Id = Annotated[str | int, AfterValidator(str)]  # ids are strings; a number counts as its digits
Share = Annotated[float, Field(ge=0, le=1)]
RUN: dict[str, Any] = {
    "tenant_id": "acme",
    "project_id": "support",
    "events": [
        {"event_type": "llm_call", "content": "What does the blue kettle cost?"},
        {
            "event_type": "tool_response",
            "content": "",
            "tool_name": "price",
            "error": {"message": "3 items match", "code": "E3"},
        },
    ],
    "outcome": "failure",
    "error": {"error_category": "timeout_error", "error_message": "no answer within 30 s"},
    "task_description": "What does the blue kettle cost?",
    "task_goal": "A price",
    "session_id": "s1",
}
MADE: dict[str, Any] = {
    "reflection_id": "9f3c11d2a0b4e577",
    "strategy_id": None,
    "reflection_text": "price failed: 3 items match.",
    "strategy_text": None,
    "importance": 0.5,
    "confidence": 0.5,
    "tags": ["reflection", "timeout_error"],
    "error_category": "timeout_error",
    "source_event_ids": ["2"],
    "related_memory_ids": [],
    "metadata": {
        "outcome": "failure",
        "task_description": "What does the blue kettle cost?",
        "event_count": 2,
        "session_id": "s1",
    },
    "generated_at": "2026-01-31T12:00:00.000Z",
}
ASKED: dict[str, Any] = {
    "tenant_id": "acme",
    "project_id": "support",
    "query_text": "the cost of a kettle",
    "k": 5,
    "min_importance": 0.5,
    "tags": [],
    "match": "any",
}
FOUND: dict[str, Any] = {
    "reflection_id": "9f3c11d2a0b4e577",
    "kind": "reflection",
    "reflection_text": "price failed: 3 items match.",
    "importance": 0.5,
    "tags": ["reflection", "timeout_error"],
    "error_category": "timeout_error",
    "source": "reflection_engine_v2",
    "layer": "rm",
    "generated_at": "2026-01-31T12:00:00.000Z",
}


class ReflectionRefusal(BaseModel):
    """What went wrong."""

    status: Literal["error"] = "error"
    message: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ReflectionRefusal, "description": "What went wrong"}
    for status in (401, 403, 409, 413, 422, 429, 500, 502, 503, 504)
}


class EventError(BaseModel):
    """What a step failed with."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    message: str = ""
    code: Id | None = None


class RunEvent(BaseModel):
    """One event of a run; the list of its types is open. Ids and times that lack are filled in."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    event_type: Annotated[str, Field(min_length=1)]
    content: Any = ""
    event_id: Id | None = None
    timestamp: str | float | None = None
    metadata: dict[str, Any] | None = None
    tool_name: str | None = None
    error: EventError | str | None = None


class RunError(BaseModel):
    """What a run failed with; the list of categories is open."""

    error_category: str = ""
    error_message: str = ""
    context: Any = None


class FinishedRun(BaseModel):
    """A finished run to reflect on. `store: false` only answers what it would teach."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"example": RUN})

    tenant_id: Name | None = None
    project_id: Name | None = None
    events: list[RunEvent]
    outcome: Literal["success", "failure", "partial", "timeout", "error"]
    error: RunError | None = None
    task_description: str | None = None
    task_goal: str | None = None
    session_id: str | None = None
    related_memory_ids: list[Id] | None = None
    store: bool = True
    on_model_error: Literal["keep", "raise"] = "keep"


class RunMetadata(BaseModel):
    """Which run it was."""

    outcome: str
    task_description: str
    event_count: int
    session_id: str


class GeneratedReflection(BaseModel):
    """What a run taught; `importance` and `confidence` are in 0..1."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"example": MADE})

    reflection_id: str
    strategy_id: str | None
    reflection_text: str
    strategy_text: str | None
    importance: Share
    confidence: Share
    tags: list[str]
    error_category: str | None
    source_event_ids: list[str]
    related_memory_ids: list[str]
    metadata: RunMetadata
    generated_at: str


class ReflectionQuery(BaseModel):
    """What to look for; without a text the most important."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"example": ASKED})

    tenant_id: Name | None = None
    project_id: Name | None = None
    query_text: str | None = None
    k: Annotated[int, Field(ge=1, le=200)] = 5
    min_importance: Share = 0.5
    tags: list[Annotated[str, Field(min_length=1)]] | None = None
    match: Literal["any", "all"] = "any"


class QueriedReflection(BaseModel):
    """One reflection or strategy."""

    reflection_id: str
    kind: Literal["reflection", "strategy"]
    reflection_text: str
    importance: Share
    tags: list[str]
    error_category: str | None
    source: str
    layer: str
    generated_at: str


class QueriedReflections(BaseModel):
    """What was found, best first."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={"example": {"reflections": [FOUND]}}
    )

    reflections: list[QueriedReflection]
