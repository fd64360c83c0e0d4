"""Episodes in SQL: each kept once, reflected on by one worker at a time, tried again.

Spans that wait for the rest of their trace, in SQL: bounded, each once, not for ever.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

from heedful.errors import Conflict
from heedful.lessons.learn import Reflection, Trust
from heedful.lessons.lesson import Remembered, Scope
from heedful.lessons.trust import Quota
from heedful.redact import redacted_data
from heedful.store import lessons
from heedful.store import lessons as size
from heedful.store import records as given
from heedful.store.contract import Bounds, Unfinished
from heedful.store.database import Access, Db, Row
from heedful.store.lessons import key_of, storable, token
from heedful.store.records import Filed, FiledState
from heedful.traces.spans import Piece

LONGEST_ERROR = 500


class SqlEpisodes:
    """The episodes of a store; every method is one transaction."""

    def __init__(self, access: Access) -> None:
        self._access: Access = access

    async def admit(self, scope: Scope, one: Filed) -> FiledState | None:
        """Keep an episode unless it is there, and take it; else its state.

        None: it is this worker's now.
        """

        told = await asyncio.to_thread(storable_episode, one)  # of a long one this takes a second

        def work(db: Db) -> FiledState | None:
            now = time.time()
            values = {**_key(scope, one.digest), **told, "now": now}
            db.named("insert_episode", values)
            if _take(db, scope, one.digest, now, now + 1) is not None:
                return None
            state: FiledState = db.named("episode_state", values).fetchone()[0]
            return state

        return await self._access.write(scope, work)

    async def put(self, scope: Scope, one: Filed) -> FiledState:
        """Keep an episode unless it is there, for any worker to take; the state it is in."""
        told = await asyncio.to_thread(storable_episode, one)

        def work(db: Db) -> FiledState:
            values = {**_key(scope, one.digest), **told, "now": time.time()}
            db.named("insert_episode", values)
            state: FiledState = db.named("episode_state", values).fetchone()[0]
            return state

        return await self._access.write(scope, work)

    async def take(self, scope: Scope, before: float, digest: str = "") -> Filed | None:
        """The oldest that waits or failed, and was not tried since `before`; None without.

        With a `digest` that episode alone.
        """
        return await self._access.write(
            scope, lambda db: _take(db, scope, digest, time.time(), before)
        )

    async def beat(self, scope: Scope, digest: str) -> None:
        """Whoever took the episode is still at work on it."""
        values = {**_key(scope, digest), "now": time.time()}
        await self._access.write(scope, lambda db: db.named("beat_episode", values), ())

    async def left(self, scope: Scope, limit: int) -> Sequence[str]:
        """The digests of those that wait and that nobody is at work on, the oldest first."""
        values = {**key_of(scope), "limit": limit, "now": time.time(), "lease": given.LEASE}

        def work(db: Db) -> list[str]:
            return [row[0] for row in db.named("episodes_left", values)]

        return await self._access.read(scope, work)

    async def state(self, scope: Scope, digest: str) -> FiledState | None:
        """The state of an episode; None where none of that digest is kept."""

        def work(db: Db) -> FiledState | None:
            row = db.named("episode_state", _key(scope, digest)).fetchone()
            return row[0] if row else None

        return await self._access.read(scope, work)

    async def reflected(
        self,
        scope: Scope,
        digest: str,
        reflections: Sequence[Reflection],
        *,
        most: int = 0,
        quota: Quota | None = None,
    ) -> Sequence[Remembered]:
        """Write what an episode taught, once; a strategy is linked with its reflection.

        Raises Conflict where another worker has done it, InvalidInput, QuotaExceeded.
        """

        def work(db: Db) -> list[Remembered]:
            now = time.time()
            if not _settle(db, scope, digest, "reflected", ""):
                raise Conflict(f"episode {digest[:16]} is reflected on already; nothing was added")
            answers = lessons.remember(db, scope, reflections, now, quota)
            names = [lessons.name_of(one) for one in reflections]
            for child in names[1:]:
                link = {"child": child, "relation": "strategy", "parent": names[0], "now": now}
                db.named("insert_link", {**key_of(scope), **link})
            return size.evict(db, scope, answers, most)

        return await self._access.write(scope, work)

    async def failed(self, scope: Scope, digest: str, error: str) -> None:
        """Put on record that reflecting failed, so that it is tried again; "" gives it back."""
        state: FiledState = "failed" if error else "waiting"
        await self._access.write(scope, lambda db: _settle(db, scope, digest, state, error))

    async def newest(self, scope: Scope, limit: int, state: str = "") -> Sequence[Filed]:
        """Those in that state, or all, the newest first."""
        values = {**key_of(scope), "state": state, "limit": limit}

        def work(db: Db) -> list[Filed]:
            return list(map(_filed, db.named("newest_episodes", values).fetchall()))

        return await self._access.read(scope, work)

    async def before(
        self, scope: Scope, limit: int, state: str = "", at: float = inf, digest: str = ""
    ) -> Sequence[Filed]:
        """As `newest` without their records: those that come after the one of `at` and `digest`."""
        values = {**_key(scope, digest), "state": state, "limit": limit, "before": at}

        def work(db: Db) -> list[Filed]:
            return list(map(_filed, db.named("episodes_before", values).fetchall()))

        return await self._access.read(scope, work)

    async def counts(self, scope: Scope) -> Mapping[FiledState, int]:
        """How many are in each state."""
        return await self._access.read(scope, lambda db: counts(db, scope))

    async def examples(self, scope: Scope, digests: Collection[str]) -> Collection[str]:
        """Those of the digests that examples of the scope have."""
        values = {"scope": token(scope), "digests": json.dumps(list(digests))}

        def work(db: Db) -> set[str]:
            return {row[0] for row in db.named("known_examples", values)}

        return await self._access.read(scope, work)


def counts(db: Db, scope: Scope) -> dict[FiledState, int]:
    """How many episodes are in each state."""
    return dict(db.named("count_episodes", key_of(scope)).fetchall())


def last_error(db: Db, scope: Scope) -> str:
    """Why the newest of those that failed did; "" where none is."""
    values = {**key_of(scope), "state": "failed", "limit": 1}
    rows = db.named("newest_episodes", values).fetchall()
    return str(rows[0]["error"]) if rows else ""


def clear(db: Db, scope: Scope) -> None:
    """Forget the episodes of the scope."""
    db.named("clear_episodes", key_of(scope))


def storable_episode(one: Filed) -> dict[str, str]:
    """The texts of an episode as they are written."""
    return {
        "name": storable(one.name),
        "session": storable(one.session),
        "outcome": one.outcome,
        "record": json.dumps(redacted_data(dict(one.record))),
    }


def _take(db: Db, scope: Scope, digest: str, now: float, before: float) -> Filed | None:
    values = {**_key(scope, digest), "now": now, "before": before, "lease": given.LEASE}
    rows = db.named("take_episode", values).fetchall()
    return _filed(rows[0]) if rows else None


def _settle(db: Db, scope: Scope, digest: str, state: FiledState, error: str) -> bool:
    told = {"state": state, "error": storable(error)[:LONGEST_ERROR]}
    return bool(db.named("settle_episode", {**_key(scope, digest), **told}).fetchall())


def _key(scope: Scope, digest: str) -> dict[str, Any]:
    return {**key_of(scope), "digest": digest}


def _filed(row: Row) -> Filed:
    return Filed(**{**dict(row), "record": json.loads(row["record"])})


# What a transaction that changes the traces of a scope holds until its end.
TRACES = ("traces",)
LATE = "their trace had ended and was made an episode, or given up"


class SqlPending:
    """The Pending of a store; every method is one transaction."""

    def __init__(self, access: Access) -> None:
        self._access: Access = access

    async def put(
        self, scope: Scope, pieces: Sequence[Piece], trust: Trust, bounds: Bounds
    ) -> Mapping[str, int]:
        """Keep spans, each once; why how many of them are not kept."""
        now = time.time()
        return await self._access.write(
            scope, lambda db: put(db, scope, pieces, trust, bounds, now), TRACES
        )

    async def ended(
        self, scope: Scope, settled: float, missing: float, elsewhere: float
    ) -> Sequence[Unfinished]:
        """Traces that have ended and to which nothing came since; the oldest first, 100 at most."""
        times = {"settled": settled, "missing": missing, "elsewhere": elsewhere}
        values = {**key_of(scope), **times}

        def work(db: Db) -> list[Unfinished]:
            return [Unfinished(*row) for row in db.named("ended_traces", values)]

        return await self._access.read(scope, work)

    async def pieces(self, scope: Scope, trace: str) -> Sequence[Piece]:
        """The spans of a trace, as they came."""
        from heedful.traces.spans import Piece  # which a store without traces has no need of

        values = {**key_of(scope), "trace": trace}

        def work(db: Db) -> list[Piece]:
            rows = db.named("read_spans", values)
            return [Piece(**{**dict(row), "root": bool(row["root"])}) for row in rows]

        return await self._access.read(scope, work)

    async def finish(self, scope: Scope, one: Unfinished, made: Filed | None) -> bool:
        """Keep the episode of a trace that got no more spans, and let go of those it has."""
        kept = None if made is None else await asyncio.to_thread(storable_episode, made)
        values = {**key_of(scope), "trace": one.id, "spans": one.spans, "now": time.time()}

        def work(db: Db) -> bool:
            if not db.named("finish_trace", values).fetchall():
                return False
            db.named("delete_spans", values)
            if made is not None and kept is not None:
                db.named("insert_episode", {**values, **kept, "digest": made.digest})
            return True

        return await self._access.write(scope, work, TRACES)

    async def give_up(self, scope: Scope, before: float, known: float) -> int:
        """Let go of traces whose root never ended; how many."""
        values = {**key_of(scope), "before": before, "known": known}

        def work(db: Db) -> int:
            given = db.named("give_up_traces", values).fetchall()
            for row in given:
                db.named("delete_spans", {**key_of(scope), "trace": row["id"]})
            db.named("forget_traces", values)
            return len(given)

        return await self._access.write(scope, work, TRACES)

    async def counts(self, scope: Scope) -> tuple[int, int, float]:
        """How many traces wait, of how many bytes, and when the first of them last got a span."""

        def work(db: Db) -> tuple[int, int, float]:
            row = db.named("count_traces", key_of(scope)).fetchone()
            return int(row["traces"]), int(row["bytes"]), float(row["oldest"])

        return await self._access.read(scope, work)


def put(
    db: Db, scope: Scope, pieces: Sequence[Piece], trust: Trust, bounds: Bounds, now: float
) -> Counter[str]:
    """Keep spans within the bounds; why how many of them are not kept."""
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
            told = f"a trace may have {bounds.spans} spans and {bounds.bytes} bytes"
            refused[told] += len(group)
        elif room[0] < new or room[1] < size:
            told = f"{bounds.traces} traces and {bounds.whole} bytes of them may wait in a project"
            refused[told] += len(group)
        else:
            _put(db, scope, trace, group, trust, now)
            room = [room[0] - new, room[1] - size]
    return refused


def _put(
    db: Db, scope: Scope, trace: str, given: Sequence[Piece], trust: Trust, now: float
) -> None:
    key = {**key_of(scope), "trace": trace}
    spans = size = 0
    root = False
    for one in given:
        told = {"id": one.id, "parent": one.parent, "root": one.root, "record": one.record}
        if db.named("insert_span", {**key, **told}).rowcount:
            spans, size, root = spans + 1, size + len(one.record), root or not one.parent
    if spans:
        counts = {"spans": spans, "bytes": size, "root": root, "now": now}
        db.named("upsert_trace", {**key, **counts, "trust": trust})


def clear_pending(db: Db, scope: Scope) -> None:
    """Forget the traces of the scope."""
    for name in ("clear_spans", "clear_traces"):
        db.named(name, key_of(scope))
