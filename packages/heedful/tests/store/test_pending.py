"""Traces in pieces: one episode whatever the order, and bounded."""

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from heedful.episodes import reading as traces
from heedful.lessons.lesson import Scope
from heedful.memory.reflect import from_stored_episode
from heedful.store import episodes as episode_store
from heedful.store.store import Store
from heedful.validation import MAX_READ_BYTES
from heedful_server import arrivals
from heedful_server.arrivals import (
    LATE_SPANS_REASON,
    Patience,
    gather,
    receive,
)
from tests.episodes.runs import (
    TRACE,
    Data,
    document,
    genai,
    openinference,
    protobuf,
    read_spans,
    span,
)
from tests.store.support import SCOPE, opened, rows
from tests.tables import cases

pytestmark = pytest.mark.both_nightly

ROOTED = Patience(settled=0.0, ending=1e9)
KEY = "AKIAIOSFODNN7EXAMPLE"
KINDS = {
    "genai": genai(),
    "structured": read_spans("genai structured"),
    "openinference": openinference(),
}


async def send(
    store, spans: list[Data], scope: Scope = SCOPE, **more: Any
) -> Counter[str]:
    refused: Counter[str] = await receive(store, scope, document(spans), **more)
    return refused


def read_episode(spans: list[Data]) -> Any:
    [episode] = traces.read(json.dumps(document(spans)).encode())
    return episode


async def read_episodes(store, scope: Scope = SCOPE) -> list[Any]:
    return [
        *map(
            from_stored_episode,
            await store.read(scope, episode_store.page, 99, whole=True),
        )
    ]


@given(
    seed=st.integers(0, 10**6),
    kind=st.sampled_from(sorted(KINDS)),
    size=st.integers(1, 4),
)
@settings(max_examples=15)
def test_the_order_and_the_cut_of_the_requests_do_not_matter(seed, kind, size):
    spans = list(KINDS[kind])
    random.Random(seed).shuffle(spans)

    async def scenario(store: Store) -> None:
        for n in range(0, len(spans), size):
            part = spans[n : n + size]
            body: Any = document(part) if n % 2 else protobuf(document(part))
            for _ in range(2):  # nothing is doubled
                assert await receive(store, SCOPE, body) == Counter()
            if n + size < len(spans):
                await gather(store, SCOPE, Patience(settled=1e9))
                assert await read_episodes(store) == []
        await gather(store, SCOPE, ROOTED)
        [(episode, trust)] = await read_episodes(store)
        assert episode.digest == read_episode(KINDS[kind]).digest
        assert trust == "outside"
        await gather(store, SCOPE, ROOTED)
        assert len(await read_episodes(store)) == 1

    with opened(":memory:") as store:
        asyncio.run(scenario(store))


async def test_of_a_trace_whose_root_does_not_come_the_rest_is_an_episode_after_a_time(
    store,
):
    spans = genai()
    spans[-1] |= {"parentSpanId": "00000000000000cc", "flags": 0x301}
    await send(store, spans)
    await gather(store, SCOPE, ROOTED)
    assert await read_episodes(store) == []
    await gather(store, SCOPE, Patience(settled=1e9, ending=0.0))
    [(episode, _)] = await read_episodes(store)
    assert episode.digest == read_episode(spans).digest


async def test_one_of_many_gatherers_makes_the_episode_and_late_spans_are_refused(
    store,
):
    spans = genai()
    await send(store, spans)
    await asyncio.gather(*(gather(store, SCOPE, ROOTED) for _ in range(4)))
    assert len(await read_episodes(store)) == 1
    late = span(
        "00000000000000aa",
        parent=spans[-1]["spanId"],
        name="late",
        times=(2, 3),
        attributes={},
    )
    assert await send(store, [late, spans[0]]) == Counter({LATE_SPANS_REASON: 2})
    assert len(await read_episodes(store)) == 1


async def test_spans_that_come_while_the_episode_is_made_are_not_lost(store):
    *children, root = genai()
    await send(store, [*children[1:], root])
    [trace] = await store.read(SCOPE, arrivals.ended_traces, 4e9, 4e9)
    await send(store, children[:1])
    assert await store.write(SCOPE, arrivals.finish_trace, trace, None) is False
    await gather(store, SCOPE, ROOTED)
    assert (await read_episodes(store))[0][0].digest == read_episode(genai()).digest


async def test_the_least_trust_of_its_spans_is_that_of_a_trace(store):
    *children, root = genai()
    await send(store, children, trust="user")
    await send(store, [root])
    await gather(store, SCOPE, ROOTED)
    assert [trust for _, trust in await read_episodes(store)] == ["outside"]
    other = Scope("other")
    await send(store, [*children, root], other, trust="user")
    await gather(store, other, ROOTED)
    assert [trust for _, trust in await read_episodes(store, other)] == ["user"]


@cases(
    "limit", {"spans": ("MAX_TRACE_SPANS", 1), "bytes": ("MAX_UNFINISHED_BYTES", 100)}
)
async def test_a_trace_and_a_scope_have_limits(store, limit, monkeypatch):
    *children, root = genai()
    with monkeypatch.context() as patch:
        patch.setattr(arrivals, *limit)
        refused = await send(store, children)
    assert refused.total() == len(children)
    assert await store.read(SCOPE, arrivals.ended_traces, 4e9, 4e9) == []
    monkeypatch.setattr(arrivals, "MAX_TRACE_SPANS", len(children))
    assert await send(store, children) == Counter()
    assert (await send(store, [root])).total() == 1


@cases(
    "change",
    {
        "no trace": {"traceId": ""},
        "a trace of zeros": {"traceId": "0" * 32},
        "a trace that is no number": {"traceId": "g" * 32},
        "a span too short": {"spanId": "abc"},
        "a span too large": {
            "attributes": [
                {
                    "key": "input.value",
                    "value": {"stringValue": "x" * MAX_READ_BYTES},
                }
            ]
        },
    },
)
async def test_a_span_that_cannot_be_kept_is_refused_and_the_others_are_kept(
    store, change
):
    [first, *rest] = genai()
    root = {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}
    change = {**change, "attributes": [root, *change.get("attributes", ())]}
    assert sum((await send(store, [first | change, *rest])).values()) == 1
    assert len(await store.read(SCOPE, arrivals.read_spans, TRACE)) == len(rest)


async def test_no_secret_is_stored_while_a_trace_waits(tmp_path):
    messages = json.dumps(
        [{"role": "user", "parts": [{"type": "text", "content": f"it is {KEY}"}]}]
    )
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": messages,
        "input.value": KEY,
    }
    with opened(tmp_path / "e.db") as store:
        await send(
            store,
            [
                span(
                    "00000000000000aa",
                    parent="",
                    name=f"chat {KEY}",
                    times=(1, 2),
                    attributes=attributes,
                    status={"code": 2, "message": f"refused {KEY}"},
                    events=[{"name": f"gen_ai.{KEY}", "timeUnixNano": "1"}],
                )
            ],
        )
        assert KEY not in str(rows(tmp_path / "e.db", "select * from span"))
        await gather(store, SCOPE, ROOTED)
        [(episode, _)] = await read_episodes(store)
        assert "[redacted: aws_key]" in episode.task
        assert KEY not in str(rows(tmp_path / "e.db", "select * from episode"))
