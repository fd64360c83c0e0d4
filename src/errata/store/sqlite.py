"""The embedded store: one SQLite file, WAL, synchronous=FULL, one writer thread a process."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from weakref import finalize

from errata.errors import StoreCorrupt, StoreError, StoreNewer
from errata.memory.learn import Reflection
from errata.protocols import (
    ANY,
    Entry,
    Filter,
    Found,
    Head,
    Past,
    Remembered,
    Scope,
    Stored,
)
from errata.store import episodes, grouping, loops, places, quarantine, search, size
from errata.store import exposures as shown
from errata.store import reflections as lessons
from errata.store.connection import Thread, Work
from errata.store.statements import read_sql
from errata.store.vectors import Vectors

if TYPE_CHECKING:
    from errata.lessons import Dreams, Episodes, Seen
    from errata.memory.portable import Effect
    from errata.memory.proof import Cases, Comparison, Exposure, Outcome
    from errata.memory.signature import Signature
    from errata.memory.trust import Action, Held, Provenance, Quota, Removed

T = TypeVar("T")

APPLICATION = 0x65727261  # "erra", so that a stranger's database is not taken for ours
SCHEMA = 5
BUSY_SECONDS = 20.0


class Sqlite:
    """A Store in one file. A method is one transaction and may be called from any event loop."""

    _open: ClassVar[dict[str, Sqlite]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: str, busy_seconds: float = BUSY_SECONDS) -> None:
        self.url = path
        # A database in memory belongs to one connection.
        alone = path == ":memory:"
        connect = partial(_connect, path if alone else os.path.abspath(path), busy_seconds)
        self._another = partial(_reading, connect)
        self._writer = Thread(connect, writes=True)
        self._reader = self._writer if alone else Thread(self._another, writes=False)
        self._learned = grouping.Learned()  # of the reader's thread
        self._vectors = Vectors()  # of the same
        # The threads know nothing of the store, so that one that nobody uses any more is closed.
        finalize(self, _close, self._writer, self._reader)

    @classmethod
    def shared(cls, path: str) -> Sqlite:
        """The store of this file in this process; one in memory is never shared."""
        if path == ":memory:":
            return cls(path)
        key = os.path.realpath(path)
        with cls._guard:
            store = cls._open.get(key) or cls(path)
            cls._open[key] = store
            return store

    async def claim(self, scope: Scope, id: str, head: Head, owner: str) -> Stored:
        """Take the loop over, creating it where it is new. Raises LeaseLost, Conflict."""
        return await self._write(lambda db: loops.claim(db, scope, id, head, owner, time.time()))

    async def beat(self, scope: Scope, id: str, epoch: int) -> None:
        """Renew the lease. Raises LeaseLost."""
        await self._write(lambda db: loops.beat(db, scope, id, epoch, time.time()))

    async def commit(self, scope: Scope, entry: Entry, owner: str) -> None:
        """Write all of `entry` or nothing. Raises LeaseLost, Conflict."""
        await self._write(lambda db: loops.commit(db, scope, entry, owner, time.time()))

    async def read(self, scope: Scope, id: str) -> Stored:
        """The loop as it stands. Raises NotFound."""
        return await self._read(lambda db: loops.read(db, scope, id, self.url))

    async def loops(self, scope: Scope, limit: int, prefix: str = "") -> Sequence[Stored]:
        """The newest loops whose id begins with `prefix`, newest first."""
        return await self._read(lambda db: loops.newest(db, scope, limit, prefix))

    async def echoes(self, scope: Scope, id: str, window: int) -> Mapping[str, int]:
        """In how many attempts of the `window` newest other loops each finding key was seen."""
        return await self._read(lambda db: loops.echoes(db, scope, id, window))

    async def remember(
        self,
        scope: Scope,
        reflections: Sequence[Reflection],
        *,
        exposures: Sequence[Exposure] = (),
        outcome: Outcome | None = None,
        most: int = 0,
        quota: Quota | None = None,
    ) -> Sequence[Remembered]:
        """Count each sighting, creating what is new; and write down what a loop was shown."""

        def work(db: sqlite3.Connection) -> list[Remembered]:
            now = time.time()
            shown.expose(db, scope, exposures, outcome, now)
            new = shown.untaught(db, scope, reflections)
            answers = lessons.remember(db, scope, new, now, quota)
            return size.evict(db, scope, answers, most)

        return await self._write(work)

    async def reflections(self, scope: Scope, limit: int) -> Sequence[Mapping[str, Any]]:
        """The reflections most often seen, as plain data."""
        return await self._read(lambda db: lessons.top(db, scope, limit))

    async def seen(self, scope: Scope, signature: Signature) -> Seen:
        """The lessons of a pattern, and of those it is grouped with."""
        return await self._read(lambda db: grouping.seen(db, scope, signature, self._learned))

    async def patterns(self, scope: Scope, error_type: str = "") -> Sequence[Mapping[str, Any]]:
        """Patterns that are grouped, and those kept apart, the most seen first."""
        return await self._read(lambda db: grouping.patterns(db, scope, error_type))

    async def set_apart(
        self, scope: Scope, digests: Sequence[str], apart: bool, by: str, why: str
    ) -> None:
        """Keep patterns apart from all others, or no longer; on record. Raises NotFound."""
        now = time.time()
        await self._write(lambda db: grouping.set_apart(db, scope, digests, apart, by, why, now))

    async def pin(self, scope: Scope, id: int, pinned: bool, by: str, why: str) -> None:
        """Keep a lesson from eviction and pruning, or no longer; on record. Raises NotFound."""
        await self._write(lambda db: size.pin(db, scope, id, pinned, by, why, time.time()))

    async def prune(
        self, scope: Scope, unused_for: float, keep: int, by: str, dry_run: bool
    ) -> Sequence[Mapping[str, Any]]:
        """Remove lessons not used for so many seconds, then the least useful beyond `keep`."""
        now = time.time()
        if dry_run:
            return await self._read(lambda db: size.prunable(db, scope, unused_for, keep, now))
        return await self._write(lambda db: size.prune(db, scope, unused_for, keep, by, now))

    async def search(
        self,
        scope: Scope,
        text: str,
        space: str,
        vector: Sequence[float] | None,
        limit: int,
        only: Filter | None = None,
    ) -> Sequence[Found]:
        """Examples near `text`: at most `limit` by full text and `limit` by vector."""
        given = (scope, text, space, vector, limit, only or ANY)
        return await self._read(lambda db: search.search(db, self._vectors, *given))

    async def held(self, scope: Scope, ids: Sequence[int] | None) -> Sequence[Held]:
        """Examples by their ids, the newest first; with None all that wait in quarantine."""
        return await self._read(lambda db: quarantine.held(db, scope, ids))

    async def provenance(self, scope: Scope, one: Held) -> Provenance:
        """Where an example comes from, and what was ruled on it."""
        return await self._read(lambda db: quarantine.provenance(db, scope, one))

    async def settle(
        self, scope: Scope, ids: Sequence[int], action: Action, by: str, why: str
    ) -> None:
        """Release or reject what waits in quarantine, all of it or nothing; on record."""
        now = time.time()
        await self._write(lambda db: quarantine.settle(db, scope, ids, action, by, why, now))

    async def revoke(self, scope: Scope, source: str, by: str, why: str, dry_run: bool) -> Removed:
        """Remove all that rests on a source; on record. `dry_run` only counts."""
        given = (source, by, why, time.time(), dry_run)
        return await self._write(lambda db: quarantine.revoke(db, scope, *given))

    async def past(self, scope: Scope, loop: str) -> Past:
        """What the loop was shown, and how many loops of the scope have come to an outcome."""
        return await self._read(lambda db: shown.past(db, scope, loop))

    async def evidence(self, scope: Scope, most_calls: int) -> tuple[Cases, int]:
        """What the opportunities of the scope came to, and how many loops are under way."""
        return await self._read(lambda db: shown.evidence(db, scope, most_calls, time.time()))

    async def conclude(
        self, scope: Scope, useful: Mapping[str, float], hurting: Sequence[Comparison]
    ) -> Sequence[str]:
        """Retire what is proven to hurt, on record, and set by what lessons are ranked."""
        return await self._write(lambda db: shown.conclude(db, scope, useful, hurting, time.time()))

    async def restore(self, scope: Scope, id: int, by: str, why: str) -> None:
        """Bring back a lesson that a proof retired; on record. Raises NotFound."""
        await self._write(lambda db: shown.restore(db, scope, id, by, why, time.time()))

    async def rulings(self, scope: Scope, limit: int) -> Sequence[Mapping[str, Any]]:
        """What was done to which lessons, by whom and why, newest first."""
        return await self._read(lambda db: shown.rulings(db, scope, limit))

    async def export(
        self, scope: Scope, write: Callable[[Mapping[str, Any]], None], vectors: bool
    ) -> None:
        """Hand the records of an export to `write` but for the last, on a connection of its own."""
        from errata.store import outgoing  # which a loop can do without

        going = True

        def told(record: Mapping[str, Any]) -> None:
            if not going:
                raise StoreError("nobody waits for the export any more")
            write(record)

        alone = self._reader is self._writer
        reader = self._reader if alone else Thread(self._another, writes=False)
        try:
            await reader.run(lambda db: outgoing.export(db, scope, told, vectors))
        finally:
            going = False
            if not alone:
                reader.close()

    async def absorb(
        self, scope: Scope, records: Sequence[Mapping[str, Any]], source: str, by: str, why: str
    ) -> Sequence[Effect]:
        """Write records of an export, in its order, unless they are known; what became of each."""
        from errata.store import incoming

        given = (records, source, by, why, time.time())
        return await self._write(lambda db: incoming.absorb(db, scope, *given))

    async def spaces(self, scope: Scope) -> Mapping[str, int]:
        """Space -> how many examples that may be recalled lie in it; "" those without a vector."""
        return await self._read(lambda db: places.spaces(db, scope))

    async def unplaced(
        self, scope: Scope, space: str, after: int, limit: int
    ) -> Sequence[tuple[int, str]]:
        """The examples above the id `after` without a vector in that space: id and task."""
        return await self._read(lambda db: places.unplaced(db, scope, space, after, limit))

    async def place(
        self, scope: Scope, space: str, found: Sequence[tuple[int, str, Sequence[float]]]
    ) -> int:
        """Write vectors by id and task, each where its example still has that task; how many."""
        return await self._write(lambda db: places.place(db, scope, space, found))

    @property
    def dreams(self) -> Dreams:
        """Consolidations: what they see and do, and how they are undone."""
        from errata.store.dreams import SqliteDreams

        return SqliteDreams(self._read, self._write)

    @property
    def episodes(self) -> Episodes:
        """The episodes that were read, and what became of them."""
        return episodes.SqliteEpisodes(self._read, self._write)

    async def clear(self, scope: Scope) -> int:
        """Forget the reflections of the scope, and what they came to; how many there were."""

        def work(db: sqlite3.Connection) -> int:
            shown.clear(db, scope)
            episodes.clear(db, scope)
            return lessons.clear(db, scope)

        return await self._write(work)

    async def count(self, scope: Scope) -> int:
        """How many reflections the scope has."""
        return await self._read(lambda db: lessons.count(db, scope))

    async def close(self) -> None:
        """Finish what is under way and close the file; used again, it opens again."""
        _close(self._writer, self._reader)

    async def _write(self, work: Work[T]) -> T:
        return await self._writer.run(work)

    async def _read(self, work: Work[T]) -> T:
        return await self._reader.run(work)


def _close(*threads: Thread) -> None:
    for thread in threads:
        thread.close()


def _connect(path: str, busy_seconds: float) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None)
    db.row_factory = sqlite3.Row
    with ExitStack() as failed:
        failed.callback(db.close)  # which rolls back what was not committed
        db.execute("pragma foreign_keys = on")
        db.execute("begin")  # one state: another process may be making the schema just now
        current = _is_current(db, path)
        db.execute("commit")
        if not current:
            _write_ahead(db, time.monotonic() + busy_seconds)
            _migrate(db, path)
        db.execute("pragma synchronous = full")
        failed.pop_all()
    return db


def _write_ahead(db: sqlite3.Connection, deadline: float) -> None:
    """Switch to a write-ahead log; SQLite itself does not wait for others who do the same."""
    while True:
        try:
            db.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def _reading(connect: Callable[[], sqlite3.Connection]) -> sqlite3.Connection:
    db = connect()
    db.execute("pragma query_only = on")
    return db


def _is_current(db: sqlite3.Connection, path: str) -> bool:
    """Whether the schema is ours and up to date. Raises StoreNewer, StoreCorrupt."""
    application = db.execute("pragma application_id").fetchone()[0]
    version = db.execute("pragma user_version").fetchone()[0]
    tables = db.execute("select count(*) from sqlite_schema").fetchone()[0]
    if application != APPLICATION and (tables or version):
        raise StoreCorrupt(f"{path} is another program's database; name another file")
    if version > SCHEMA:
        raise StoreNewer(
            f"{path} has schema {version}, this errata knows {SCHEMA}; upgrade errata to open it"
        )
    return bool(version == SCHEMA)


def _migrate(db: sqlite3.Connection, path: str) -> None:
    db.execute("begin immediate")
    if not _is_current(db, path):  # another process may have come first
        version = db.execute("pragma user_version").fetchone()[0]
        db.create_function("words", 1, _words)
        db.create_function("token", 2, lambda *scope: lessons.token(Scope(*scope)))
        for number in range(version + 1, SCHEMA + 1):
            for statement in _statements(f"sqlite_{number:04}.sql"):
                db.execute(statement)
        db.execute(f"pragma application_id = {APPLICATION}")
        db.execute(f"pragma user_version = {SCHEMA}")
    db.execute("commit")


def _words(text: str) -> str:
    """What the index holds of a text; only rows of older databases ask."""
    from errata.memory.words import words

    return " ".join(words(text))


def _statements(name: str) -> list[str]:
    """The statements of a file; a trigger, which holds semicolons of its own, stays whole."""
    statements, part = [], ""
    for line in read_sql(name).splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            statements.append(part)
            part = ""
    return statements
