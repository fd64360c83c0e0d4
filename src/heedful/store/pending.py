"""Spans that wait for the rest of their trace, in SQL: bounded, each once, not for ever."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from heedful.lessons import Filed
from heedful.pending import Bounds, Unfinished
from heedful.protocols import Scope
from heedful.store import episodes
from heedful.store.database import Access, Db
from heedful.store.reflections import key_of

if TYPE_CHECKING:
    from heedful.memory.learn import Trust
    from heedful.traces.pieces import Piece

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
        from heedful.traces.pieces import Piece  # which a store without traces has no need of

        values = {**key_of(scope), "trace": trace}

        def work(db: Db) -> list[Piece]:
            rows = db.named("read_spans", values)
            return [Piece(**{**dict(row), "root": bool(row["root"])}) for row in rows]

        return await self._access.read(scope, work)

    async def finish(self, scope: Scope, one: Unfinished, made: Filed | None) -> bool:
        """Keep the episode of a trace that got no more spans, and let go of those it has."""
        kept = None if made is None else await asyncio.to_thread(episodes.kept, made)
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
    for trace, given in grouped.items():
        row = db.named("read_trace", {**key_of(scope), "trace": trace}).fetchone()
        had = (row["spans"], row["bytes"]) if row is not None else (0, 0)
        size = sum(len(one.record) for one in given)
        new = row is None
        if row is not None and row["state"] != "open":
            refused[LATE] += len(given)
        elif had[0] + len(given) > bounds.spans or had[1] + size > bounds.bytes:
            told = f"a trace may have {bounds.spans} spans and {bounds.bytes} bytes"
            refused[told] += len(given)
        elif room[0] < new or room[1] < size:
            told = f"{bounds.traces} traces and {bounds.whole} bytes of them may wait in a project"
            refused[told] += len(given)
        else:
            _put(db, scope, trace, given, trust, now)
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


def clear(db: Db, scope: Scope) -> None:
    """Forget the traces of the scope."""
    for name in ("clear_spans", "clear_traces"):
        db.named(name, key_of(scope))
