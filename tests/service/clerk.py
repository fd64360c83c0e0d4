"""An agent of pydantic-ai that OpenTelemetry watches: it looks orders up, and tries the same again.

Its model is a function: with a lesson that tells it to mend what a tool names, it does.
"""

from __future__ import annotations

import re

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

ORDERS = {"A-17": "left on Monday", "C-42": "left on Friday"}
LESSON = "fails, fix what it names before you go on"


def watched(url: str, key: str) -> TracerProvider:
    """Spans that go to the service in batches; to where the environment says without a URL."""
    headers = {"Authorization": f"Bearer {key}"}
    provider = TracerProvider()
    exporter = OTLPSpanExporter(f"{url}/v1/traces", headers=headers) if url else OTLPSpanExporter()
    provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=2))
    return provider


def find_order(id: str) -> str:
    """Where an order is."""
    if id not in ORDERS:
        raise ModelRetry(f"no order {id}; an id has a dash behind its letter")
    return ORDERS[id]


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What the model says: the same call again, but where it was told to mend it."""
    asked = messages[0]
    assert isinstance(asked, ModelRequest)
    said = [str(getattr(part, "content", "")) for one in messages for part in one.parts]
    for text in said:
        if text in ORDERS.values():
            return ModelResponse(parts=[TextPart(f"It {text}.")])
    [(letter, number)] = re.findall(r"order (\w)(\d+)\?", said[0])
    again = any(isinstance(one, ModelResponse) for one in messages)
    dash = "-" if again and LESSON in (asked.instructions or "") else ""
    return ModelResponse(parts=[ToolCallPart("find_order", {"id": f"{letter}{dash}{number}"})])


def clerk(provider: TracerProvider, instructions: str) -> Agent[None, str]:
    """The agent; `instructions` are what memory has for its task."""
    seen = Instrumentation(settings=InstrumentationSettings(tracer_provider=provider))
    agent = Agent(
        FunctionModel(answer), name="clerk", instructions=instructions, capabilities=[seen]
    )
    agent.tool_plain(find_order)
    return agent
