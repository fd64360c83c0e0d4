"""What OpenTelemetry gets: names, parents and numbers; nothing before telemetry
begins.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
from heedful.traces import read

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
        found = [
            one
            for one in self.exporter.get_finished_spans()
            if one.name.startswith(name)
        ]
        return sorted(found, key=lambda one: one.start_time or 0)

    def text(self) -> str:
        return "".join(one.to_json() for one in self.spans())


@pytest.fixture
def told() -> Iterator[Collected]:
    one = Collected()
    yield one
    telemetry.end()
    one.tracers.shutdown()


def own(**attributes: Any) -> dict[str, Any]:
    return {f"heedful.{name}": value for name, value in attributes.items()}


def says_ok(candidate: str, at: Any) -> Sequence[Finding]:
    return (
        []
        if "ok" in candidate
        else [Finding("says_ok", f"{candidate} is not ok", fix="say ok")]
    )


def model() -> ScriptedModel:
    usage = Usage(1, 11, completion_tokens=3)
    return ScriptedModel(Answer("no", usage), Answer(f"ok {SECRET}", usage, "length"))


async def test_a_loop_is_a_tree_of_spans(told):
    told.begin()
    result = await heedful.run("say ok", generate=model(), checks=[says_ok], store=None)
    (loop,) = told.spans("heedful.loop")
    first, second = told.spans("heedful.attempt")
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
    assert [one.parent.span_id for one in (first, second)] == [loop.context.span_id] * 2
    assert [one.attributes["heedful.decision"] for one in (first, second)] == [
        "again",
        "done",
    ]
    chats = told.spans("chat scripted")
    assert [one.parent.span_id for one in chats] == [
        first.context.span_id,
        second.context.span_id,
    ]
    assert dict(chats[1].attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.seed": 1,
        "gen_ai.request.max_tokens": 512,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.response.finish_reasons": ("length",),
    }
    assert {one.instrumentation_scope.name for one in told.spans()} == {
        telemetry.INSTRUMENTATION_SCOPE
    }


async def test_an_evaluation_is_an_event_of_its_attempt(told):
    told.begin()

    def evaluate(candidate, at):
        return heedful.Evaluation(scores={"tone": 0.25 if at.attempt == 1 else 0.9})

    given: Any = {"generate": lambda task, hint: f"x{len(hint)}", "evaluate": evaluate}
    await heedful.run("t", goals=[Goal("tone", 0.8)], store=None, **given)
    events = [event for one in told.spans("heedful.attempt") for event in one.events]
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


async def test_memory_is_told_of_by_the_conventions_names(told):
    told.begin()
    memory = Memory(":memory:", heedful.Scope("acme", "shop"))
    kept = await memory.remember("KeyError", "KeyError: 'colour'")
    await memory.recall("the colour")
    (upsert,) = told.spans("upsert_memory")
    (search,) = told.spans("search_memory")
    where = own(tenant="acme", project="shop")
    where |= {"gen_ai.provider.name": "heedful", "gen_ai.memory.store.id": "shop"}
    written = {
        "gen_ai.operation.name": "upsert_memory",
        "gen_ai.memory.record.id": str(kept.id),
    }
    assert upsert.attributes == written | own(kind="error", created=True) | where
    found = {"gen_ai.operation.name": "search_memory"}
    assert search.attributes == found | own(found=1) | where


async def test_an_error_is_told_by_its_type_alone(told):
    told.begin()
    late = ModelTimeout(f"late: {SECRET}")
    with pytest.raises(ModelTimeout):
        await heedful.run("t", generate=ScriptedModel(late), store=None)
    assert {
        one.name
        for one in told.spans()
        if one.attributes["error.type"] == "ModelTimeout"
    } == {"heedful.loop", "heedful.attempt", "chat scripted"}
    assert all(one.status.status_code is StatusCode.ERROR for one in told.spans())
    assert "late" not in told.text()


@pytest.mark.parametrize("content", [False, True])
async def test_content_comes_along_where_it_is_asked_for_and_secrets_never(
    told, content
):
    told.begin(content)
    memory = Memory(":memory:")
    given: Any = {
        "generate": model(),
        "checks": [says_ok],
        "memory": memory,
        "store": None,
    }
    await heedful.run(f"say ok, not {SECRET}", **given)
    everything = told.text()
    assert SECRET not in everything
    [_, last] = [dict(one.attributes) for one in told.spans("heedful.attempt")]
    assert "no rule was broken under the key" in last["heedful.silence"]
    second = await heedful.run("ok", **{**given, "generate": model()})
    [*_, last] = [dict(one.attributes) for one in told.spans("heedful.attempt")]
    assert second.briefing is not None
    assert last["heedful.told"] == tuple(one.name for one in second.briefing.choices)
    for said in ("say ok", "no is not ok"):
        assert (said in everything) is content
    if content:
        (turn,) = json.loads(
            told.spans("chat")[-1].attributes["gen_ai.output.messages"]
        )
        assert turn["role"] == "assistant"
        assert turn["finish_reason"] == "length"
        assert turn["parts"][0]["content"].startswith("ok ")


async def test_a_stage_of_a_pipeline_is_a_span_around_its_loop(told):
    told.begin()
    pipeline = heedful.Pipeline("p", store=None, progress=False)
    pipeline.stage(name="write", checks=[says_ok])(lambda state: "ok")
    await pipeline.run({})
    (stage,) = told.spans("heedful.stage")
    (attempt,) = told.spans("heedful.attempt")
    assert attempt.parent.span_id == stage.context.span_id
    named = own(stage="write", status="passed", attempts=1)
    assert named.items() <= dict(stage.attributes).items()


async def test_what_heedful_exports_is_not_learnt_from_when_it_comes_back(told):
    from google.protobuf.json_format import MessageToJson
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    told.begin(content=True)
    agent = told.tracers.get_tracer("an agent")
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}

    async def generate(task: str, hint: str) -> str:
        with agent.start_as_current_span("chat", attributes=asked):
            return "ok"

    for writer, episodes in ((model(), 0), (generate, 1)):
        told.exporter.clear()
        await heedful.run("say ok", generate=writer, checks=[says_ok], store=None)
        document = MessageToJson(encode_spans(told.spans()), indent=None).encode()
        found = list(read(document))
        assert len(found) == episodes
        said = [event.content for one in found for event in one.events]
        assert all("say ok" not in text for text in said)


async def test_nothing_is_imported_or_told_unless_it_is_begun(told):
    await heedful.run("t", generate=lambda task, hint: "ok", store=None)
    assert told.spans() == []
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


def test_a_message_is_logged_once_in_a_while(monkeypatch):
    clock = [5.0]
    monkeypatch.setattr("heedful.telemetry.time.monotonic", lambda: clock[0])
    throttle = telemetry.LogThrottle()
    assert [throttle.allows("a"), throttle.allows("a"), throttle.allows("b")] == [
        True,
        False,
        True,
    ]
    clock[0] += telemetry.LOG_INTERVAL_SECONDS - 1
    assert not throttle.allows("a")
    clock[0] += 1
    assert [throttle.allows("a"), throttle.allows("a")] == [True, False]
