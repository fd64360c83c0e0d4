"""Receive the spans of traces, in pieces and in any order, and make episodes of complete traces."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Scope
from heedful.memory.reflect import to_stored_episode
from heedful.store import episodes as episode_store
from heedful.store.episodes import Bounds
from heedful.store.store import Store
from heedful.traces.otlp import from_json, from_request
from heedful.traces.spans import Piece, episodes, pieces

# Spans of a request; an exporter sends hundreds, a collector thousands.
MOST = 50_000


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for the rest of a trace, in seconds since its last span; all above 0.

    A trace is complete `settled` seconds after its root ended; OpenTelemetry exporters send spans
    every 5 s. A trace whose root does not arrive is complete after `ending`.
    """

    settled: float = 15.0
    ending: float = 3_600.0


async def receive(
    store: Store,
    scope: Scope,
    body: Any,
    trust: Literal["external", "operator"] = "external",
    bounds: Bounds = Bounds(),
) -> Counter[str]:
    """Store the spans of an export request; return how many spans were refused, by reason.

    `body` is OTLP, as protobuf bytes or as JSON data. Raises InvalidInput, StoreError.
    """
    received, refused = await asyncio.to_thread(_read, body)
    refused.update(await store.write(scope, episode_store.put_spans, received, trust, bounds))
    return refused


def _read(body: Any) -> tuple[list[Piece], Counter[str]]:
    if isinstance(body, dict):  # JSON of protobuf leaves out what is empty
        body = {"resourceSpans": [], **body}
    try:
        spans = from_request(body) if isinstance(body, bytes) else from_json(body)
        received = list(islice(spans, MOST + 1))
        if len(received) > MOST:
            raise InvalidInput("spans", f"more than {MOST}", f"at most {MOST} in a request")
        return pieces(received)
    except RecursionError as error:
        raise InvalidInput("spans", "nested too deeply", "nested less deeply") from error


async def gather(store: Store, scope: Scope, patience: Patience = Patience()) -> tuple[str, ...]:
    """Make episodes of ended traces, and return the digests of the new ones. Raises StoreError.

    Several processes may do so at once. A trace without steps of an agent makes no episode.
    """
    now = time.time()
    digests: list[str] = []
    bounds = now - patience.settled, now - patience.ending
    for trace in await store.read(scope, episode_store.ended_traces, *bounds):
        spans = await store.read(scope, episode_store.spans, trace.id)
        built = await asyncio.to_thread(episodes, spans)
        made = await asyncio.to_thread(to_stored_episode, built[0], trace.trust) if built else None
        if await episode_store.finish_trace(store, scope, trace, made) and made:
            digests.append(made.digest)
    return tuple(digests)
