"""Episodes in SQL: each kept once, reflected on by one worker at a time, tried again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

from heedful import lessons as given
from heedful.errors import Conflict
from heedful.lessons import Filed, FiledState
from heedful.memory.learn import Reflection
from heedful.memory.trust import Quota
from heedful.protocols import Remembered, Scope
from heedful.redact import redacted_data
from heedful.store import reflections as lessons
from heedful.store import size
from heedful.store.database import Access, Db, Row
from heedful.store.reflections import key_of, storable, token

LONGEST_ERROR = 500


class SqlEpisodes:
    """The episodes of a store; every method is one transaction."""

    def __init__(self, access: Access) -> None:
        self._access: Access = access

    async def admit(self, scope: Scope, one: Filed) -> FiledState | None:
        """Keep an episode unless it is there, and take it; else its state.

        None: it is this worker's now.
        """

        told = await asyncio.to_thread(kept, one)  # of a long one this takes a second

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
        told = await asyncio.to_thread(kept, one)

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


def kept(one: Filed) -> dict[str, str]:
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
