"""What OpenTelemetry gets: names, parents and numbers; nothing before telemetry
begins.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import heedful
from heedful import telemetry
from heedful.errors import ModelTimeout, PackageMissing
from heedful.loop.record import Finding, Goal, Usage
from heedful.memory.memory import Memory
from heedful.models.contract import Answer
from heedful.testing import ScriptedModel

SECRET = "AKIAIOSFODNN7EXAMPLE"


class Collected:
    """The spans that OpenTelemetry got."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))

    def begin(self, content: bool = False) -> None:
        telemetry.begin(content=content, tracers=self.tracers)

    def spans(self, name: str = "") -> list[Any]:
        """The spans whose name begins so, in the order of their beginnings."""
        spans = [
            span
            for span in self.exporter.get_finished_spans()
            if span.name.startswith(name)
        ]
        return sorted(spans, key=lambda span: span.start_time or 0)

    def text(self) -> str:
        return "".join(span.to_json() for span in self.spans())


@pytest.fixture
def collected() -> Iterator[Collected]:
    spans = Collected()
    yield spans
    telemetry.end()
    spans.tracers.shutdown()


def own(**attributes: Any) -> dict[str, Any]:
    return {f"heedful.{name}": value for name, value in attributes.items()}


def says_ok(candidate: str, context: Any) -> Sequence[Finding]:
    return (
        []
        if "ok" in candidate
        else [Finding("says_ok", f"{candidate} is not ok", fix="say ok")]
    )


def model() -> ScriptedModel:
    usage = Usage(1, 11, completion_tokens=3)
    return ScriptedModel(Answer("no", usage), Answer(f"ok {SECRET}", usage))


async def test_a_loop_is_a_tree_of_spans(collected):
    collected.begin()
    result = await heedful.run("say ok", generate=model(), checks=[says_ok], store=None)
    (loop,) = collected.spans("heedful.loop")
    first, second = collected.spans("heedful.attempt")
    assert loop.parent is None
    done = own(
        policy="default",
        attempts=2,
        decision="done",
        passed=True,
        stopped_by=(),
        best=2,
    )
    assert loop.attributes == {"heedful.loop.id": result.id, **done}
    assert [span.parent.span_id for span in (first, second)] == [
        loop.context.span_id
    ] * 2
    assert [span.attributes["heedful.decision"] for span in (first, second)] == [
        "again",
        "done",
    ]
    chats = collected.spans("chat scripted")
    assert [span.parent.span_id for span in chats] == [
        first.context.span_id,
        second.context.span_id,
    ]
    assert dict(chats[1].attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.seed": 1,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.response.finish_reasons": ("stop",),
    }
    assert {span.instrumentation_scope.name for span in collected.spans()} == {
        telemetry.INSTRUMENTATION_SCOPE
    }


async def test_an_evaluation_is_an_event_of_its_attempt(collected):
    collected.begin()

    def evaluate(candidate, context):
        return heedful.Evaluation(
            scores={"tone": 0.25 if context.attempt == 1 else 0.9}
        )

    await heedful.run(
        "t",
        generate=lambda task, hint: f"x{len(hint)}",
        evaluate=evaluate,
        goals=[Goal("tone", 0.8)],
        store=None,
    )
    events = [
        event for span in collected.spans("heedful.attempt") for event in span.events
    ]
    assert [(event.name, dict(event.attributes or {})) for event in events] == [
        (
            "gen_ai.evaluation.result",
            {
                "gen_ai.evaluation.name": "tone",
                "gen_ai.evaluation.score.value": value,
                "gen_ai.evaluation.score.label": label,
            },
        )
        for value, label in ((0.25, "fail"), (0.9, "pass"))
    ]


async def test_memory_is_told_of_by_the_conventions_names(collected):
    collected.begin()
    memory = Memory(":memory:", heedful.Scope("acme", "shop"))
    remembered = await memory.remember("KeyError", "KeyError: 'colour'")
    await memory.recall("the colour")
    (upsert,) = collected.spans("upsert_memory")
    (search,) = collected.spans("search_memory")
    where = own(tenant="acme", project="shop")
    where |= {"gen_ai.provider.name": "heedful", "gen_ai.memory.store.id": "shop"}
    written = {
        "gen_ai.operation.name": "upsert_memory",
        "gen_ai.memory.record.id": str(remembered.id),
    }
    assert upsert.attributes == written | own(kind="error", created=True) | where
    searched = {"gen_ai.operation.name": "search_memory"}
    assert search.attributes == searched | own(found=1) | where


async def test_an_error_is_told_by_its_type_alone(collected):
    collected.begin()
    late = ModelTimeout(f"late: {SECRET}")
    with pytest.raises(ModelTimeout):
        await heedful.run("t", generate=ScriptedModel(late), store=None)
    assert {
        span.name
        for span in collected.spans()
        if span.attributes["error.type"] == "ModelTimeout"
    } == {"heedful.loop", "heedful.attempt", "chat scripted"}
    assert all(
        span.status.status_code is StatusCode.ERROR for span in collected.spans()
    )
    assert "late" not in collected.text()


@pytest.mark.parametrize("content", [False, True])
async def test_content_comes_along_where_it_is_asked_for_and_secrets_never(
    collected, content
):
    collected.begin(content)
    run = partial(heedful.run, checks=[says_ok], memory=Memory(":memory:"), store=None)
    await run(f"say ok, not {SECRET}", generate=model())
    everything = collected.text()
    assert SECRET not in everything
    [_, last] = [dict(span.attributes) for span in collected.spans("heedful.attempt")]
    assert "no rule was broken under the key" in last["heedful.silence"]
    second = await run("ok", generate=model())
    [*_, last] = [dict(span.attributes) for span in collected.spans("heedful.attempt")]
    assert second.briefing is not None
    assert last["heedful.told"] == tuple(
        choice.name for choice in second.briefing.choices
    )
    for words in ("say ok", "no is not ok"):
        assert (words in everything) is content
    if content:
        (turn,) = json.loads(
            collected.spans("chat")[-1].attributes["gen_ai.output.messages"]
        )
        assert turn["role"] == "assistant"
        assert turn["finish_reason"] == "stop"
        assert turn["parts"][0]["content"].startswith("ok ")


async def test_nothing_is_imported_or_told_unless_it_is_begun(collected):
    await heedful.run("t", generate=lambda task, hint: "ok", store=None)
    assert collected.spans() == []
    script = (
        "import asyncio, heedful, sys; from heedful.testing import ScriptedModel; "
        "asyncio.run(heedful.run('t', generate=ScriptedModel('x'), store=':memory:')); "
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script], check=True)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(PackageMissing, match="telemetry"):
        telemetry.begin()
