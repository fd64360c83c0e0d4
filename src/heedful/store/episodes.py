"""Episodes of agents, each kept once, and the spans of traces that have not ended yet.

One worker at a time reflects on an episode, and one that failed is tried again. Spans wait, each
once and within bounds, until their trace has ended and becomes an episode.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from heedful.errors import Conflict
from heedful.lessons.lesson import Quota, Reflection, Remembered, Scope, Trust
from heedful.redact import redact_data
from heedful.store import lessons
from heedful.store.records import EpisodeState, StoredEpisode
from heedful.store.store import Db, Row, Store, holds, key_of, storable, token
from heedful.traces.spans import Piece

LONGEST_ERROR = 500
# Seconds after which a worker that did not renew its claim has lost its episode. It renews it three
# times as often.
LEASE = 15.0


async def admit(store: Store, scope: Scope, episode: StoredEpisode) -> EpisodeState | None:
    """Keep an episode unless it is there, and take it: None; else the state it is in."""
    texts = await asyncio.to_thread(_texts, episode)  # redacting a long one takes a second
    return await store.write(scope, insert_taken, episode.digest, texts)


async def put(store: Store, scope: Scope, episode: StoredEpisode) -> EpisodeState:
    """Keep an episode unless it is there, for any worker to take; the state it is in."""
    texts = await asyncio.to_thread(_texts, episode)
    return await store.write(scope, insert, episode.digest, texts)


def insert(db: Db, scope: Scope, digest: str, texts: Mapping[str, str]) -> EpisodeState:
    """Write an episode unless it is there; the state it is in."""
    db.named("insert_episode", {**_key(scope, digest), **texts, "now": time.time()})
    return state(db, scope, digest) or "waiting"


def insert_taken(
    db: Db, scope: Scope, digest: str, texts: Mapping[str, str]
) -> EpisodeState | None:
    """Write an episode unless it is there, and take it: None; else the state it is in."""
    found = insert(db, scope, digest, texts)
    return None if take(db, scope, time.time() + 1, digest) is not None else found


def take(db: Db, scope: Scope, before: float, digest: str = "") -> StoredEpisode | None:
    """Take the oldest that waits or failed, and was not tried since `before`; None without.

    With a `digest` that episode alone. It is the caller's for `LEASE` seconds from the last `beat`
    on.
    """
    values = {**_key(scope, digest), "now": time.time(), "before": before, "lease": LEASE}
    rows = db.named("take_episode", values).fetchall()
    return _filed(rows[0]) if rows else None


@holds()
def beat(db: Db, scope: Scope, digest: str) -> None:
    """Renew the claim of the worker that took the episode."""
    db.named("beat_episode", {**_key(scope, digest), "now": time.time()})


def left(db: Db, scope: Scope, limit: int) -> list[str]:
    """Return the digests of those that wait and that nobody is at work on, the oldest first."""
    values = {**key_of(scope), "limit": limit, "now": time.time(), "lease": LEASE}
    return [row[0] for row in db.named("episodes_left", values)]


def state(db: Db, scope: Scope, digest: str) -> EpisodeState | None:
    """Return the state of an episode; None where none of that digest is kept."""
    row = db.named("episode_state", _key(scope, digest)).fetchone()
    return row[0] if row else None


def record_lessons(
    db: Db,
    scope: Scope,
    digest: str,
    reflections: Sequence[Reflection],
    *,
    most: int = 0,
    quota: Quota | None = None,
) -> list[Remembered]:
    """Write what an episode taught, once; a strategy is linked with its reflection, the first.

    Raises Conflict where another worker has done it, InvalidInput, QuotaExceeded.
    """
    now = time.time()
    if not _settle(db, scope, digest, "reflected", ""):
        raise Conflict(f"episode {digest[:16]} is reflected on already; nothing was added")
    answers = lessons.upsert(db, scope, reflections, now, quota)
    names = [lessons.name_of(one) for one in reflections]
    for child in names[1:]:
        link = {"child": child, "relation": "strategy", "parent": names[0], "now": now}
        db.named("insert_link", {**key_of(scope), **link})
    return lessons.evict(db, scope, answers, most)


def record_failure(db: Db, scope: Scope, digest: str, error: str) -> None:
    """Put on record that reflecting failed, so that it is tried again; "" gives it back."""
    _settle(db, scope, digest, "failed" if error else "waiting", error)


def newest(db: Db, scope: Scope, limit: int, state: str = "") -> list[StoredEpisode]:
    """Return those in that state, or all, the newest first."""
    values = {**key_of(scope), "state": state, "limit": limit}
    return [_filed(row) for row in db.named("newest_episodes", values)]


def page(
    db: Db, scope: Scope, limit: int, state: str = "", at: float = inf, digest: str = ""
) -> list[StoredEpisode]:
    """As `newest` without their records: those that come after the one of `at` and `digest`."""
    values = {**_key(scope, digest), "state": state, "limit": limit, "before": at}
    return [_filed(row) for row in db.named("episodes_before", values)]


def known_examples(db: Db, scope: Scope, digests: Collection[str]) -> set[str]:
    """Return those of the digests that examples of the scope have."""
    values = {"scope": token(scope), "digests": json.dumps(list(digests))}
    return {row[0] for row in db.named("known_examples", values)}


def counts(db: Db, scope: Scope) -> dict[EpisodeState, int]:
    """How many episodes are in each state."""
    return dict(db.named("count_episodes", key_of(scope)).fetchall())


def last_error(db: Db, scope: Scope) -> str:
    """Why the newest of those that failed did; "" where none is."""
    values = {**key_of(scope), "state": "failed", "limit": 1}
    rows = db.named("newest_episodes", values).fetchall()
    return str(rows[0]["error"]) if rows else ""


def _texts(one: StoredEpisode) -> dict[str, str]:
    """The texts of an episode as they are written."""
    return {
        "name": storable(one.name),
        "session": storable(one.session),
        "outcome": one.outcome,
        "record": json.dumps(redact_data(dict(one.record))),
    }


def _settle(db: Db, scope: Scope, digest: str, state: EpisodeState, error: str) -> bool:
    outcome = {"state": state, "error": storable(error)[:LONGEST_ERROR]}
    return bool(db.named("settle_episode", {**_key(scope, digest), **outcome}).fetchall())


def _key(scope: Scope, digest: str) -> dict[str, Any]:
    return {**key_of(scope), "digest": digest}


def _filed(row: Row) -> StoredEpisode:
    return StoredEpisode(**{**dict(row), "record": json.loads(row["record"])})


LATE = "their trace had ended and was made an episode, or given up"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may wait: `spans` and `bytes` of a trace, and `traces` and `whole` bytes of a scope."""

    spans: int = 10_000
    bytes: int = 32 * 2**20
    traces: int = 10_000
    whole: int = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A trace that waits in a store: how many `spans` it has, and from whom what it was to do is.

    `last` is when the last of them came, in seconds since 1970.
    """

    id: str
    spans: int
    trust: Trust
    last: float


def ended_traces(
    db: Db, scope: Scope, settled: float, missing: float, elsewhere: float
) -> list[Unfinished]:
    """Return traces whose root has ended and to which nothing came since the time `settled`.

    Nor since `missing` to one in which the parent of a span is missing, nor since `elsewhere` to
    one that has its root in another process; the oldest first, 100 at most.
    """
    times = {"settled": settled, "missing": missing, "elsewhere": elsewhere}
    rows = db.named("ended_traces", {**key_of(scope), **times})
    return [Unfinished(*row) for row in rows]


def spans(db: Db, scope: Scope, trace: str) -> list[Piece]:
    """Return the spans of a trace, as they came."""
    rows = db.named("read_spans", {**key_of(scope), "trace": trace})
    return [Piece(**{**dict(row), "root": bool(row["root"])}) for row in rows]


async def finish_trace(
    store: Store, scope: Scope, trace: Unfinished, made: StoredEpisode | None
) -> bool:
    """Keep the episode that was made of a trace, and let go of its spans.

    False where more spans came meanwhile, or another process was first: nothing was done.
    """
    episode = None
    if made is not None:
        episode = {"digest": made.digest, **await asyncio.to_thread(_texts, made)}
    return await store.write(scope, replace_trace, trace, episode)


@holds("traces")
def replace_trace(
    db: Db, scope: Scope, trace: Unfinished, episode: Mapping[str, str] | None
) -> bool:
    """Write the episode in place of the spans of its trace, unless more of them came."""
    values = {**key_of(scope), "trace": trace.id, "spans": trace.spans, "now": time.time()}
    if not db.named("finish_trace", values).fetchall():
        return False
    db.named("delete_spans", values)
    if episode is not None:
        db.named("insert_episode", {**values, **episode})
    return True


@holds("traces")
def give_up_traces(db: Db, scope: Scope, before: float, known: float) -> int:
    """Let go of traces without a root to which nothing came since `before`; how many.

    Of traces that are finished nothing is known any more where they are older than `known`.
    """
    values = {**key_of(scope), "before": before, "known": known}
    rows = db.named("give_up_traces", values).fetchall()
    for row in rows:
        db.named("delete_spans", {**key_of(scope), "trace": row["id"]})
    db.named("forget_traces", values)
    return len(rows)


def count_traces(db: Db, scope: Scope) -> tuple[int, int, float]:
    """Return how many traces wait, of how many bytes, and when the first last got a span."""
    row = db.named("count_traces", key_of(scope)).fetchone()
    return int(row["traces"]), int(row["bytes"]), float(row["oldest"])


@holds("traces")
def put_spans(
    db: Db, scope: Scope, pieces: Sequence[Piece], trust: Trust, bounds: Bounds
) -> Counter[str]:
    """Keep spans within the bounds, each once; why how many of them are not kept.

    What a trace is trusted is the least that any of its spans came with.
    """
    refused: Counter[str] = Counter()
    grouped: defaultdict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        grouped[piece.trace].append(piece)
    whole = db.named("count_traces", key_of(scope)).fetchone()
    room = [bounds.traces - whole["traces"], bounds.whole - whole["bytes"]]
    for trace, group in grouped.items():
        row = db.named("read_trace", {**key_of(scope), "trace": trace}).fetchone()
        had = (row["spans"], row["bytes"]) if row is not None else (0, 0)
        size = sum(len(one.record) for one in group)
        new = row is None
        if row is not None and row["state"] != "open":
            refused[LATE] += len(group)
        elif had[0] + len(group) > bounds.spans or had[1] + size > bounds.bytes:
            limit = f"a trace may have {bounds.spans} spans and {bounds.bytes} bytes"
            refused[limit] += len(group)
        elif room[0] < new or room[1] < size:
            limit = f"{bounds.traces} traces and {bounds.whole} bytes of them may wait in a project"
            refused[limit] += len(group)
        else:
            _put(db, scope, trace, group, trust, time.time())
            room = [room[0] - new, room[1] - size]
    return refused


def _put(
    db: Db, scope: Scope, trace: str, pieces: Sequence[Piece], trust: Trust, now: float
) -> None:
    key = {**key_of(scope), "trace": trace}
    spans = size = 0
    root = False
    for piece in pieces:
        span = {"id": piece.id, "parent": piece.parent, "root": piece.root, "record": piece.record}
        if db.named("insert_span", {**key, **span}).rowcount:
            spans, size, root = spans + 1, size + len(piece.record), root or not piece.parent
    if spans:
        counts = {"spans": spans, "bytes": size, "root": root, "now": now}
        db.named("upsert_trace", {**key, **counts, "trust": trust})
