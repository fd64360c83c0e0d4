"""Spans of any content are kept or refused; what is kept is an episode or none, and no error."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from heedful.traces.otlp import Span
from heedful.traces.spans import episodes, pieces
from tests.traces.runs import TRACE

NAMES = st.sampled_from(
    """
    gen_ai.operation.name gen_ai.agent.name gen_ai.conversation.id gen_ai.usage.input_tokens
    gen_ai.tool.definitions gen_ai.tool.call.arguments gen_ai.tool.call.result gen_ai.tool.call.id
    gen_ai.tool.name gen_ai.system_instructions gen_ai.input.messages gen_ai.output.messages
    gen_ai.event.content openinference.span.kind llm.token_count.prompt llm.cost.total
    llm.input_messages.0.message.role llm.input_messages.0.message.content llm.tools.0.tool.name
    llm.output_messages.0.message.tool_calls.0.tool_call.function.name input.value output.value
    input.mime_type tool.name tool_call.id retrieval.documents.0.document.content session.id
    agent.name error.type exception.message exception.type tool_calls message
    """.split()
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "parts", "type", "id"]), inner, max_size=3)
    ),
    max_leaves=8,
)
KINDS = st.sampled_from(["chat", "execute_tool", "invoke_agent", "LLM", "TOOL", "AGENT", "x"])
VALUES = KINDS | PLAIN | PLAIN.map(lambda data: json.dumps(data))
ATTRIBUTES = st.dictionaries(NAMES, VALUES, max_size=6)
IDS = st.integers(0, 6).map(lambda n: f"{n:016x}")
SPANS = st.builds(
    Span,
    st.just(TRACE),
    IDS,
    IDS | st.just(""),
    st.text(max_size=10),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    ATTRIBUTES,
    st.sampled_from(["", "ok", "error"]),
    st.text(max_size=10),
    st.lists(
        st.tuples(
            st.sampled_from(
                ["exception", "gen_ai.choice", "gen_ai.user.message", "gen_ai.tool.message"]
            ),
            ATTRIBUTES,
        ),
        max_size=3,
    ),
    st.booleans(),
)


@given(spans=st.lists(SPANS, max_size=6))
def test_whatever_a_span_says_it_is_kept_or_refused(spans):
    kept, refused = pieces(spans)
    assert len(kept) + refused.total() == len(spans)
    for episode in episodes(kept):
        assert episode.id == TRACE
        assert len(episode.digest) == 64


def test_what_is_nested_deeply_is_text():
    deep: Any = "x"
    for _ in range(5_000):
        deep = f"[{deep}]"
    held = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": deep}
    kept, refused = pieces([Span(TRACE, f"{1:016x}", "", "chat", 1, 2, held)])
    assert not refused
    [episode] = episodes(kept)
    assert episode.events
