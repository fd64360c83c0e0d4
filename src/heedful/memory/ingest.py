"""Traces that come in pieces, from several services and in any order -> episodes that wait."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Scope
from heedful.memory.reflect import file
from heedful.store import episodes as episode_store
from heedful.store.episodes import Bounds, Unfinished
from heedful.store.records import StoredEpisode
from heedful.store.store import Store
from heedful.traces.otlp import Span, from_json, from_request
from heedful.traces.spans import Piece, episodes, pieces

# Spans of a request; an exporter sends hundreds, a collector thousands.
MOST = 50_000


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a trace is waited for, in seconds since its last span came; each above 0.

    Once its root has ended it is `settled` after so long: more than the 5 s for which an exporter
    of OpenTelemetry gathers spans, since other services may tell of it, too; after so long where
    the parent of a span is still `missing`. Where its root is `elsewhere`, in a process that
    exports to somebody else, after so long: whoever called may be at work still. One whose root
    never ends is given up after `ending`. That a trace was finished is known for `known`: what
    comes after that begins it anew.
    """

    settled: float = 6.0
    missing: float = 30.0
    elsewhere: float = 120.0
    ending: float = 3_600.0
    known: float = 86_400.0


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a look at the traces of a scope came to.

    The digests of the `episodes` that wait now, how many traces told of no agent (`empty`) or were
    `given_up`, and after how many seconds it is time for the next look, None where nothing waits.
    """

    episodes: tuple[str, ...] = ()
    empty: int = 0
    given_up: int = 0
    again: float | None = None


async def receive(
    store: Store,
    scope: Scope,
    body: Any,
    trust: Literal["external", "operator"] = "external",
    bounds: Bounds = Bounds(),
) -> Counter[str]:
    """Keep the spans of a request to export them; why how many of them were refused.

    The body is OTLP, as the bytes of protobuf or as the data of JSON. Raises InvalidInput where it
    is not, StoreError.
    """
    found, refused = await asyncio.to_thread(_read, body)
    refused.update(await store.write(scope, episode_store.put_spans, found, trust, bounds))
    return refused


def _read(body: Any) -> tuple[list[Piece], Counter[str]]:
    if isinstance(body, dict):  # in JSON of protobuf what is empty is left out
        body = {"resourceSpans": [], **body}
    try:
        return pieces(_few(from_request(body) if isinstance(body, bytes) else from_json(body)))
    except RecursionError as error:
        raise InvalidInput("spans", "nested too deeply", "nested less deeply") from error


def _few(spans: Iterator[Span]) -> Iterator[Span]:
    for number, one in enumerate(spans, 1):
        if number > MOST:
            raise InvalidInput("spans", f"more than {MOST}", f"at most {MOST} in a request")
        yield one


async def gather(store: Store, scope: Scope, patience: Patience = Patience()) -> Gathered:
    """Make episodes of the traces of a scope that have ended; any number may do so at a time.

    Raises StoreError.
    """
    now = time.time()
    digests: list[str] = []
    empty = 0
    waited = (patience.settled, patience.missing, patience.elsewhere)
    for one in await store.read(
        scope, episode_store.ended_traces, *(now - each for each in waited)
    ):
        made = await asyncio.to_thread(
            _made, one, await store.read(scope, episode_store.spans, one.id)
        )
        if await episode_store.finish_trace(store, scope, one, made):
            digests += [made.digest] if made else []
            empty += made is None
    waiting, _, oldest = await store.read(scope, episode_store.count_traces)
    given_up = 0
    if digests or (waiting and oldest < now - patience.ending):
        given_up = await store.write(
            scope, episode_store.give_up_traces, now - patience.ending, now - patience.known
        )
    again = patience.settled if waiting > given_up else None
    return Gathered(tuple(digests), empty, given_up, again)


def _made(one: Unfinished, found: Sequence[Piece]) -> StoredEpisode | None:
    """The episode of a trace as it is kept; None where it has no step of an agent."""
    for episode in episodes(found):
        return file(episode, episode.digest, one.trust)
    return None
