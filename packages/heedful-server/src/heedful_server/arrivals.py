"""Arriving spans of traces, and the episodes that are made from them.

Spans arrive in pieces and in any order: `receive` stores them, and `gather` makes an
episode of each complete trace, which replaces its spans. A span that arrives again is
not stored again.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from heedful.episodes import spans as trace_spans
from heedful.episodes.episode import SPAN_CONVENTIONS
from heedful.episodes.readers.otlp import from_json, from_request
from heedful.episodes.spans import Piece
from heedful.errors import InvalidInput
from heedful.lessons.origin import Origin
from heedful.lessons.scope import DAY_SECONDS, Scope
from heedful.memory.reflect import to_stored_episode
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    from_row,
    holds,
    key_of,
    resumable,
)
from heedful.store.episodes import StoredEpisode, insert
from heedful.store.store import Store
from heedful.validation import MAX_READ_BYTES, Fields

# Spans of a request; an exporter sends hundreds, a collector thousands.
MAX_REQUEST_SPANS = 50_000
MAX_TRACE_SPANS = 10_000
MAX_UNFINISHED_BYTES = 256 * 2**20  # of all open traces of a project


# The columns of a trace that is not stored yet.
NEW_TRACE: Fields = {"state": "open", "spans": 0, "known": 0}
# Why spans of a finished trace are ignored.
LATE_SPANS_REASON = "the trace had ended before these spans arrived"
# What to tell of stored spans.
UNKNOWN_SPANS_REASON = (
    "stored, but not one span of their trace so far names a model, a tool or an agent "
    f"by a known convention ({SPAN_CONVENTIONS}); without one they teach nothing"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTrace:
    """A trace that is not an episode yet.

    `spans` counts its spans, `trust` is their trust, and `via` has the keys with which
    they were sent. `last` is when the last span arrived, in seconds since 1970.
    """

    id: str
    spans: int
    trust: Origin
    via: str
    last: float


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for the rest of a trace: seconds since its last span, above 0.

    A trace is complete `settled` seconds after its root ended; OpenTelemetry exporters
    send spans every 5 s. A trace whose root does not arrive is complete after `ending`.
    """

    settled: float = 15.0
    ending: float = 3_600.0


async def receive(
    store: Store,
    scope: Scope,
    body: Any,
    trust: Origin = "outside",
) -> Counter[str]:
    """Store the spans of an export request; return how many were refused, by reason.

    The reason UNKNOWN_SPANS_REASON counts spans that were stored, see `put_spans`.
    `body` is OTLP, as protobuf bytes or as JSON data. Raises InvalidInput, StoreError.
    """
    pieces, refused = await asyncio.to_thread(_read_pieces, body)
    refused.update(await store.write(scope, put_spans, pieces, trust=trust))
    return refused


def _read_pieces(body: Any) -> tuple[list[Piece], Counter[str]]:
    """Return the spans of a request, and how many were refused, by reason."""
    if body == {}:  # JSON of protobuf omits empty fields
        body = {"resourceSpans": []}

    try:
        if isinstance(body, bytes):
            spans = from_request(body, MAX_READ_BYTES)
        else:
            spans = from_json(body)
        pieces, refused = trace_spans.pieces(islice(spans, MAX_REQUEST_SPANS))
        has_more = next(spans, None) is not None
    except RecursionError as error:
        raise InvalidInput(
            "spans", "nested too deeply", "nested less deeply"
        ) from error

    if has_more:
        raise InvalidInput(
            "spans",
            f"more than {MAX_REQUEST_SPANS}",
            f"at most {MAX_REQUEST_SPANS} in a request",
        )
    return pieces, refused


async def gather(store: Store, scope: Scope, patience: Patience = Patience()) -> None:
    """Make episodes of ended traces. Raises StoreError.

    Several processes may do so at once. A trace without steps of an agent makes no
    episode.
    """
    now = time.time()
    with_root_before = now - patience.settled
    without_root_before = now - patience.ending
    for trace in await store.read(
        scope, ended_traces, with_root_before, without_root_before
    ):
        spans = await store.read(scope, read_spans, trace.id)
        built = await asyncio.to_thread(trace_spans.episodes, spans)
        episode = None
        if built:
            episode = await asyncio.to_thread(to_stored_episode, built[0], trace.trust)

        await store.write(scope, finish_trace, trace, episode)


def ended_traces(
    db: Db, scope: Scope, with_root_before: float, without_root_before: float
) -> list[OpenTrace]:
    """Return up to 100 traces that have ended, the one with the oldest last span first.

    A trace with a root span has ended if its last span arrived before one time, and a
    trace without one if it arrived before another. Times are seconds since 1970.
    """
    rows = db.all(
        "ended_traces",
        scope,
        settled=with_root_before,
        ending=without_root_before,
    )
    return [from_row(OpenTrace, row) for row in rows]


def read_spans(db: Db, scope: Scope, trace: str) -> list[Piece]:
    """Return the spans of a trace in the order in which they arrived."""
    columns = "trace, id, parent, root, record, known"
    key = {**key_of(scope), "trace": trace}
    return [
        from_row(Piece, row) for row in db.select(columns, "span", key, "order by n")
    ]


@holds("traces")
@resumable(result=bool)
def finish_trace(
    db: Db, scope: Scope, trace: OpenTrace, episode: StoredEpisode | None
) -> bool:
    """Delete the spans of a trace, and store the `episode` if it is not None.

    Does nothing and returns False if new spans have arrived or another process finished
    the trace.
    """
    key = key_of(scope)
    unchanged_trace = {**key, "id": trace.id, "state": "open", "spans": trace.spans}
    if not db.update("trace", unchanged_trace, {"state": "done", "bytes": 0}):
        return False

    db.delete("span", {**key, "trace": trace.id})
    # Late spans of a finished trace are ignored for a day, and begin a new trace then.
    db.send("forget_traces", {**key, "known": time.time() - DAY_SECONDS})
    if episode is not None:
        insert(db, scope, episode, trace.via)
    return True


@holds("traces")
@resumable(result=Counter[str])
def put_spans(
    db: Db,
    scope: Scope,
    pieces: Sequence[Piece],
    trust: Origin,
) -> Counter[str]:
    """Store new spans; return the number of refused spans by reason.

    If none of the spans is known, those of a trace without a known one are counted as
    UNKNOWN_SPANS_REASON; they are stored, because they may connect others that come
    later. `trust` is the trust of these spans. A trace with spans of different trust
    becomes "outside".
    """
    is_any_known = any(piece.known for piece in pieces)
    pieces_by_trace: defaultdict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        pieces_by_trace[piece.trace].append(piece)

    unfinished = {**key_of(scope), "state": "open"}
    (used,) = db.select("coalesce(sum(bytes), 0) as bytes", "trace", unfinished)
    free_bytes = MAX_UNFINISHED_BYTES - int(used["bytes"])

    refused: Counter[str] = Counter()
    for trace, trace_pieces in pieces_by_trace.items():
        key = {**key_of(scope), "id": trace}
        rows = db.select("state, spans, known", "trace", key)
        trace_row = rows[0] if rows else NEW_TRACE
        size = sum(len(piece.record) for piece in trace_pieces)

        reason = ""
        if trace_row["state"] != "open":
            reason = LATE_SPANS_REASON
        elif trace_row["spans"] + len(trace_pieces) > MAX_TRACE_SPANS:
            reason = f"a trace may have {MAX_TRACE_SPANS} spans"
        elif size > free_bytes:
            reason = (
                f"unfinished traces of a project may have {MAX_UNFINISHED_BYTES} bytes"
            )

        if reason:
            refused[reason] += len(trace_pieces)
        else:
            _insert_spans(db, scope, trace=trace, pieces=trace_pieces, trust=trust)
            free_bytes -= size
            if not trace_row["known"] and not is_any_known:
                refused[UNKNOWN_SPANS_REASON] += len(trace_pieces)

    return refused


def _insert_spans(
    db: Db, scope: Scope, trace: str, pieces: Sequence[Piece], trust: Origin
) -> None:
    """Store those spans of a trace that are new, and count them in its row."""
    key = {**key_of(scope), "trace": trace}
    new = []
    for piece in pieces:
        row = {**key, **asdict(piece)}
        if db.insert_now("span", row, CONFLICT_SKIP_SQL).rowcount:
            new.append(piece)
    if not new:
        return

    values = {
        **key,
        "spans": len(new),
        "known": sum(piece.known for piece in new),
        "bytes": sum(len(piece.record) for piece in new),
        "root": any(not piece.parent for piece in new),
        "now": time.time(),
        "trust": trust,
        "via": db.actor.via,
    }
    db.send("upsert_trace", values)


def unknown_spans(db: Db, scope: Scope) -> dict[str, float]:
    """Return the number of spans of recent traces, of those of which no span is known,
    and when the last of these came (0: never).
    """
    columns = (
        "coalesce(sum(spans), 0) as spans, "
        "coalesce(sum(case when known = 0 then spans end), 0) as unknown, "
        "coalesce(max(case when known = 0 then last end), 0) as last"
    )
    [row] = db.select(columns, "trace", key_of(scope))
    # PostgreSQL adds integers to a decimal number.
    return {
        "spans": int(row["spans"]),
        "unknown": int(row["unknown"]),
        "last": row["last"],
    }
