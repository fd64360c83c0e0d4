"""Reflections in the shapes that callers of earlier systems rely on."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

import heedful_compat as compat
from heedful.errors import InvalidInput
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful_compat.reflections import (
    generate_reflection,
    query_reflections,
    store_reflection,
)
from tests.compat import shapes
from tests.compat.shapes import run_async
from tests.tables import cases

TASK = "What does the blue kettle cost?"
EVENTS: list[dict[str, Any]] = [
    {"event_type": "llm_call", "content": TASK},
    {"event_type": "tool_call", "content": '{"item": "pot"}', "tool_name": "price"},
    {
        "event_type": "tool_response",
        "content": "",
        "tool_name": "price",
        "error": {"message": "3 items match", "code": "E3"},
    },
]
FAILED: dict[str, Any] = {
    "tenant_id": "t",
    "project_id": "p",
    "events": EVENTS,
    "outcome": "error",
    "error": {
        "error_category": "timeout_error",
        "error_message": "no answer within 30 s",
        "context": {"seconds": 30},
    },
    "task_description": TASK,
    "task_goal": "A price",
    "session_id": "s1",
    "related_memory_ids": ["m1"],
}
SPOKEN: dict[str, Any] = {
    "tenant_id": "t",
    "project_id": "p",
    "events": [{"event_type": "llm_response", "content": "It costs 4."}],
    "outcome": "failure",
    "task_description": TASK,
}


def leave_out(name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != name}


async def count_lessons(store: Any) -> int:
    return await Memory(store, Scope("t", "p")).count()


@pytest.mark.parametrize(
    "outcome", ["success", "failure", "partial", "timeout", "error"]
)
def test_what_is_generated_has_its_fields_and_is_not_stored(store, outcome):
    generated = run_async(
        generate_reflection({**FAILED, "outcome": outcome}, store=store)
    )
    shapes.check_shape(generated, shapes.GENERATED)
    assert json.loads(json.dumps(dict(generated))) == {**generated}
    assert 0 <= generated["importance"] <= 1
    assert generated["confidence"] == 0.5
    assert run_async(count_lessons(store)) == 0
    if outcome == "error":
        assert "3 items match" in generated["reflection_text"]
        assert generated["source_event_ids"] == ["e2", "e3"]
    assert generated["error_category"] == "timeout_error"
    assert generated["related_memory_ids"] == ["m1"]
    assert generated["metadata"] == {
        "outcome": outcome,
        "task_description": TASK,
        "event_count": 3,
        "session_id": "s1",
    }


def test_what_came_from_outside_is_found_marked_until_a_person_releases_it(store):
    generated = run_async(generate_reflection(FAILED, store=store, trust="external"))
    stored_first, again = [
        run_async(store_reflection(generated, "t", "p", store=store)) for _ in range(2)
    ]
    assert stored_first["state"] == "quarantined"
    assert stored_first["trust"] == "outside"
    assert (
        again["release"]
        == stored_first["release"]
        == "heedful quarantine release 1 2 --by NAME"
    )
    quarantine = Memory(store, Scope("t", "p")).quarantine
    waiting = sorted(reflection.id for reflection in run_async(quarantine.waiting()))
    # Found by its task, by its own words, and because it is important.
    for text in (TASK, generated["reflection_text"], None):
        by_id = {
            reflection["reflection_id"]: reflection
            for reflection in run_async(query_reflections("t", "p", text, store=store))
        }
        reflection = by_id[generated["reflection_id"]]
        shapes.check_shape(reflection, shapes.QUERIED)
        for name in (
            "reflection_id",
            "confidence",
            "source_event_ids",
            "metadata",
            "tags",
        ):
            assert reflection[name] == generated[name]
        assert reflection["content"] == generated["reflection_text"]
        assert reflection["error_category"] == "timeout_error"
        assert reflection["state"] == "quarantined"
        assert reflection["trust"] == "outside"
        assert (
            reflection["release"]
            == f"heedful quarantine release {waiting[0]} --by NAME"
        )
        assert (
            run_async(query_reflections("t", "p", text, store=store, waiting=False))
            == []
        )
    run_async(quarantine.release(waiting, by="ada"))
    after = run_async(query_reflections("t", "p", TASK, store=store, waiting=False))
    states = {
        reflection["reflection_id"]: (reflection["state"], reflection["release"])
        for reflection in after
    }
    assert states[generated["reflection_id"]] == ("candidate", "")


@cases(
    "context",
    {
        "no tenant": leave_out("tenant_id", FAILED),
        "an unknown outcome": {**FAILED, "outcome": "odd"},
        "related ids as text": {**FAILED, "related_memory_ids": "m1"},
        "metadata with a tuple as key": {
            **FAILED,
            "events": [{"event_type": "odd", "metadata": {("a", "b"): 1}}],
        },
    },
)
def test_a_context_that_cannot_be_read_is_said(store, context: Any):
    with pytest.raises(InvalidInput):
        run_async(generate_reflection(context, store=store))


@cases(
    "copied",
    {
        "copy": dict,
        "changed": lambda made: {
            **made,
            "reflection_text": "Ask for the price by item number.",
        },
        "own": lambda made: compat.ReflectionResult(
            "Ask for it.", "Use item numbers.", importance=0.9
        ),
    },
)
def test_words_that_heedful_did_not_write_wait_in_quarantine(store, copied: Any):
    generated = run_async(generate_reflection(SPOKEN, store=store, trust="user"))
    foreign = copied(generated)
    ids = [
        run_async(store_reflection(foreign, "t", "p", "s2", store=store))
        for _ in range(2)
    ]
    assert ids[0] == ids[1]
    assert (ids[0]["strategy_id"] is None) == (foreign["strategy_text"] is None)
    waiting = run_async(Memory(store, Scope("t", "p")).quarantine.waiting())
    texts = {entry.lesson for entry in waiting}
    assert texts == {foreign["reflection_text"], foreign["strategy_text"]} - {None}
    assert (
        run_async(Memory(store, Scope("t", "p")).recall(foreign["reflection_text"]))
        == []
    )


@cases(
    ("result", "field"),
    {
        "a text": ("All is well.", "result"),
        "a mapping without the fields": ({"text": "All is well."}, "result"),
    },
)
def test_a_result_that_cannot_be_stored_is_said(store, result: Any, field):
    with pytest.raises(InvalidInput) as caught:
        run_async(store_reflection(result, "t", "p", store=store))
    assert caught.value.field == field
    assert run_async(count_lessons(store)) == 0


# -- the types and the engine, as their callers write them


def build_run(kind: Any) -> Any:
    """The failed run in the types of `heedful_compat`, in mappings or in objects of a
    caller.
    """
    if kind is dict:
        return FAILED
    if kind is SimpleNamespace:
        events: Any = [SimpleNamespace(**event) for event in EVENTS]
        error: Any = SimpleNamespace(**FAILED["error"])
        return SimpleNamespace(**{**FAILED, "events": events, "error": error})
    events = [
        compat.Event("e1", compat.EventType.LLM_CALL, datetime.now(UTC), TASK, {}),
        compat.Event(
            "e2", compat.EventType.TOOL_CALL, 2.0, '{"item": "pot"}', {}, "price"
        ),
        compat.Event(
            event_id="e3",
            event_type="tool_response",
            timestamp=3.0,
            content="",
            metadata={},
            tool_name="price",
            error={"message": "3 items match", "code": "E3"},
        ),
    ]
    category = compat.ErrorCategory.TIMEOUT_ERROR
    error = compat.ErrorInfo(category, "no answer within 30 s", {"seconds": 30})
    return compat.ReflectionContext(
        events, compat.OutcomeType.ERROR, "t", "p", "s1", error, TASK, "A price", ["m1"]
    )


@cases(
    "kind",
    {"types": compat.ReflectionContext, "mappings": dict, "objects": SimpleNamespace},
)
def test_runs_in_types_mappings_and_objects_teach_the_same(store, kind):
    engine = compat.ReflectionEngine(store, trust="user")
    result = run_async(engine.generate_reflection(build_run(kind)))
    expected = run_async(generate_reflection(FAILED, store=store, trust="user"))
    assert {**result, "generated_at": ""} == {**expected, "generated_at": ""}
    assert (
        result.error_category
        == result["error_category"]
        == compat.ErrorCategory.TIMEOUT_ERROR
    )
    ids = run_async(
        engine.store_reflection(result, tenant_id="t", project_id="p", session_id="s2")
    )
    assert all(ids[name] == result[name] for name in ("reflection_id", "strategy_id"))
    assert ids["state"] == "candidate"
    assert ids["trust"] == "local"


def test_an_engine_uses_its_prompts_score_model_and_memory(store):
    prompts: list[str] = []
    answer = {
        "reflection": "The price of the blue kettle was a guess.",
        "strategy": "Look up what the kettle costs.",
        "importance": 0.9,
        "confidence": 0.8,
        "tags": ["price"],
    }

    def model(messages: Any) -> str:
        prompts.append(str(messages))
        return json.dumps(answer)

    memory = Memory(store, Scope("other", "place"), max_entries=7)
    engine = compat.ReflectionEngineV2(
        "unused.db",
        model=model,
        memory_repository=memory,
        prompts={"failure": "Say what a cook would say."},
        score=lambda draft, episode: 0.65,
        trust="user",
    )
    result = run_async(engine.generate_reflection(SPOKEN))
    assert "Say what a cook would say." in prompts[0]
    assert result.reflection_text == answer["reflection"]
    assert result.tags == ["price"]
    assert result.importance == 0.65
    assert result.heedful_importance == 0.65
    assert result.confidence == 0.8
    assert result.dropped == []
    assert result.model_error is None
    answer["strategy"] = "Ask 17 cooks. It asked 18 cooks."
    checked = run_async(engine.generate_reflection(SPOKEN))
    assert checked.strategy_text == "Ask 17 cooks."
    (dropped,) = checked.dropped
    assert dropped["text"] == "It asked 18 cooks."
    assert dropped["part"] == "strategy"
    assert list(dropped["unsupported"]) == ["18"]
    reflection = answer["reflection"]
    answer["reflection"] = ""
    assert (
        "MalformedAnswer"
        in run_async(engine.generate_reflection(SPOKEN))["model_error"]
    )
    answer["reflection"] = reflection
    run_async(engine.store_reflection(result, "t", "p"))
    assert run_async(count_lessons(store)) == 2
    assert run_async(memory.count()) == 0
    entries = run_async(
        engine.query_reflections("t", "p", tags=["price"], min_importance=0)
    )
    assert answer["reflection"] in [entry["reflection_text"] for entry in entries]
    with pytest.raises(InvalidInput, match="prompts"):
        run_async(
            compat.ReflectionEngine(store, prompts={"wrong": "x"}).generate_reflection(
                SPOKEN
            )
        )


@pytest.mark.parametrize("wrong", ["store", "memory_repository", "model"])
def test_what_an_engine_cannot_use_is_said(store, wrong):
    options: dict[str, Any] = {"store": store, wrong: 7}
    with pytest.raises(InvalidInput) as caught:
        run_async(compat.ReflectionEngine(**options).generate_reflection(SPOKEN))
    assert caught.value.field == wrong
