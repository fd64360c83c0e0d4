"""Runs and results of the reflection engine, as its callers write and change them."""

import json
from collections import deque
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from heedful.errors import InvalidInput
from heedful_compat import (
    ErrorCategory,
    ErrorInfo,
    Event,
    EventType,
    OutcomeType,
    ReflectionContext,
    ReflectionEngineV2,
)
from tests.tables import cases

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SPOKEN = Event("1", EventType.LLM_RESPONSE, NOW, "It costs 4.")
ANSWER = {
    "reflection": "The database query with a complex JOIN timed out without an index.",
    "strategy": "Use indexed columns in a JOIN, and read large tables in pages.",
    "importance": 0.85,
    "confidence": 0.9,
    "tags": ["performance", "database", "optimization"],
}


def talked(**fields: Any) -> ReflectionContext:
    """A run without tools, whose lesson needs nobody to release it."""
    run: dict[str, Any] = {
        "events": [SPOKEN],
        "outcome": OutcomeType.FAILURE,
        "tenant_id": "t",
        "project_id": "p",
        "task_description": "What does the blue kettle cost?",
    }
    return ReflectionContext(**{**run, **fields})


def slow_query() -> ReflectionContext:
    """The run of the first example of such engines; the tool is in its metadata."""
    events = [
        Event(
            event_id="evt_001",
            event_type=EventType.TOOL_CALL,
            timestamp=NOW,
            content="Called database query with complex JOIN",
            metadata={"tool": "database"},
        ),
        Event(
            event_id="evt_002",
            event_type=EventType.ERROR_EVENT,
            timestamp=NOW,
            content="Query timeout after 30 seconds",
            metadata={"tool": "database"},
            error={"message": "Timeout", "code": 504},
        ),
    ]
    error = ErrorInfo(ErrorCategory.TIMEOUT_ERROR, "Query exceeded 30 s")
    return ReflectionContext(
        events, OutcomeType.FAILURE, "t", "p", error=error, task_goal="A report"
    )


def engine_of(store: Any, *answers: Any, **options: Any) -> ReflectionEngineV2:
    lines = [json.dumps(answer) for answer in answers]
    model = (lambda messages: lines.pop(0)) if lines else None
    return ReflectionEngineV2(store, model, trust="user", **options)


async def stored(engine: Any, result: Any, **options: Any) -> list[dict[str, Any]]:
    """Store a result; return what a query for everything finds."""
    await engine.store_reflection(result, "t", "p", **options)
    records: list[dict[str, Any]] = await engine.query_reflections(
        "t", "p", min_importance=0
    )
    return records


async def test_a_change_reaches_the_strategy(store):
    engine = engine_of(store, ANSWER)
    result = await engine.generate_reflection(slow_query())
    result.importance = 0.9
    result.tags = ["mine"]
    records = {record["kind"]: record for record in await stored(engine, result)}
    assert records["strategy"]["tags"] == ["mine", "strategy"]
    assert records["strategy"]["importance"] == 0.99


async def test_ids_may_be_of_type_uuid(store):
    engine = engine_of(store)
    tenant, project, session = (uuid4() for _ in range(3))
    run = talked(
        tenant_id=tenant,
        project_id=project,
        session_id=uuid4(),
        related_memory_ids=[uuid4()],
    )
    result = await engine.generate_reflection(run)
    result.source_event_ids = [session]
    await engine.store_reflection(result, tenant, project, session_id=session)
    query = engine.query_reflections(tenant, project, min_importance=0)
    (record,) = await query
    assert record["metadata"]["session_id"] == str(session)
    assert record["source_event_ids"] == [str(session)]
    query = engine.query_reflections(str(tenant), str(project), min_importance=0)
    assert len(await query) == 1
    with pytest.raises(InvalidInput, match="session_id is 7"):
        await engine.store_reflection(result, tenant, project, session_id=7)


@cases("kind", {"a generator": iter, "a deque": deque})
async def test_events_may_be_any_iterable(store, kind: Any):
    result = await engine_of(store).generate_reflection(talked(events=kind([SPOKEN])))
    assert result.metadata["event_count"] == 1


async def test_a_place_in_a_prompt_of_ones_own_is_filled(store):
    prompts: list[str] = []

    def model(messages: Any) -> str:
        prompts.append(messages[0].content)
        return json.dumps(ANSWER)

    instruction = "Goal: {task_goal} Why: {error_message} Keep: {other} {}"
    engine = ReflectionEngineV2(store, model, prompts={"failure": instruction})
    await engine.generate_reflection(slow_query())
    filled = prompts[0].partition("What stands between")[0]
    assert ">\nA report\n</task_goal " in filled
    assert ">\nQuery exceeded 30 s\n</error_message " in filled
    assert "Keep: {other} {}" in filled


async def test_a_category_has_a_value_and_is_text(store):
    result = await engine_of(store).generate_reflection(slow_query())
    assert result.error_category.value == "timeout_error"
    assert result.error_category == "timeout_error"
    assert ErrorCategory("quota_error").value == "quota_error"
    assert datetime.fromisoformat(result.generated_at).tzinfo == UTC


def test_a_pool_of_connections_is_refused_with_what_to_pass():
    with pytest.raises(InvalidInput, match="the name of a store"):
        ReflectionEngineV2(object())


@cases(
    ("name", "value"),
    {
        "a blank text": ("reflection_text", " "),
        "metadata with a tuple as key": ("metadata", {(1, 2): 3}),
        "a number as strategy": ("strategy_text", 7),
        "a number as tag": ("tags", [7]),
        "a number as category": ("error_category", 7),
    },
)
@cases("copied", {"as generated": False, "as a mapping": True})
async def test_a_result_that_cannot_be_stored_is_refused(store, copied, name, value):
    engine = engine_of(store)
    result: Any = await engine.generate_reflection(talked())
    if copied:
        result = {**result, name: value}
    else:
        setattr(result, name, value)
    with pytest.raises(InvalidInput) as refusal:
        await engine.store_reflection(result, "t", "p")
    assert refusal.value.field == name
    assert await engine.query_reflections("t", "p", min_importance=0) == []


async def test_an_object_with_the_fields_of_a_result_is_stored(store):
    engine = engine_of(store)
    mine = SimpleNamespace(reflection_text="Ask for the colour.", importance=0.9)
    (record,) = await stored(engine, mine)
    assert record["content"] == "Ask for the colour."
    assert record["trust"] == "outside"
