"""SQLite: one file, WAL, synchronous=FULL, one writer thread a process."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, TypeVar
from weakref import finalize

from heedful.errors import StoreCorrupt, StoreNewer, StoreUnavailable
from heedful.protocols import Scope
from heedful.store import reflections as lessons
from heedful.store.connection import Thread
from heedful.store.database import MEMORY, Dialect, Kept, Work
from heedful.store.sqlstore import SqlStore
from heedful.store.statements import read_sql, statements

T = TypeVar("T")
K = TypeVar("K")

APPLICATION = 0x65727261  # "erra", so that a stranger's database is not taken for ours
SCHEMA = 7
BUSY_SECONDS = 20.0
_open: dict[str, SqlStore] = {}
_guard = threading.Lock()


def in_file(path: str, busy_seconds: float = BUSY_SECONDS) -> SqlStore:
    """A store in one file, with connections of its own; `:memory:` is one that lasts as long."""
    return SqlStore(path, File(path, busy_seconds))


def shared(path: str) -> SqlStore:
    """The store of this file in this process; one in memory is never shared."""
    if path == ":memory:":
        return in_file(path)
    key = os.path.realpath(path)
    with _guard:
        store = _open.get(key) or in_file(path)
        _open[key] = store
        return store


class Connection(sqlite3.Connection):
    """A connection that knows the named statements."""

    dialect: Final[Dialect] = "sqlite"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._kept = Kept()

    def named(self, name: str, values: Mapping[str, Any] = {}) -> sqlite3.Cursor:
        """Run the statement of that name."""
        return self.execute(statements("sqlite")[name], values)

    def kept(self, kind: Callable[[], K]) -> K:
        """The one of that kind that this connection keeps."""
        return self._kept.one(kind)


class File:
    """Access to one file: all writes on one thread, all reads on another."""

    def __init__(self, path: str, busy_seconds: float) -> None:
        # A database in memory belongs to one connection.
        alone = path == ":memory:"
        connect = partial(connected, path if alone else os.path.abspath(path), busy_seconds)
        self._another = partial(_reading, connect)
        self.writer: Thread = Thread(connect, writes=True)
        self.reader: Thread = self.writer if alone else Thread(self._another, writes=False)
        # The threads know nothing of the store, so that one that nobody uses any more is closed.
        finalize(self, _close, self.writer, self.reader)

    async def read(self, scope: Scope, work: Work[T]) -> T:
        """What `work` returns, which reads one state of the database."""
        return await self.reader.run(work)

    async def write(self, scope: Scope, work: Work[T], holds: Sequence[str] = MEMORY) -> T:
        """What `work` returns, once it is committed; there is one writer at a time."""
        return await self.writer.run(work)

    async def apart(self, scope: Scope, work: Work[T]) -> T:
        """As `read`, on a connection of its own."""
        if self.reader is self.writer:
            return await self.reader.run(work)
        reader = Thread(self._another, writes=False)
        try:
            return await reader.run(work)
        finally:
            reader.close()

    async def close(self) -> None:
        """Finish what is under way and close the file; used again, it opens again."""
        _close(self.writer, self.reader)


def _close(*threads: Thread) -> None:
    for thread in threads:
        thread.close()


def connected(path: str, busy_seconds: float) -> Connection:
    """A connection to a file, whose schema is brought up to date.

    Raises StoreUnavailable where the file cannot be opened, any other sqlite3.Error as it is.
    """
    try:
        db = sqlite3.connect(path, busy_seconds, isolation_level=None, factory=Connection)
    except sqlite3.OperationalError as error:
        todo = "check that its folder exists and is writable"
        raise StoreUnavailable(f"{path} cannot be opened, {error}; {todo}") from error
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


def _write_ahead(db: Connection, deadline: float) -> None:
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


def _reading(connect: Callable[[], Connection]) -> Connection:
    db = connect()
    db.execute("pragma query_only = on")
    return db


def _is_current(db: Connection, path: str) -> bool:
    """Whether the schema is ours and up to date. Raises StoreNewer, StoreCorrupt."""
    application = db.execute("pragma application_id").fetchone()[0]
    version = db.execute("pragma user_version").fetchone()[0]
    tables = db.execute("select count(*) from sqlite_schema").fetchone()[0]
    if application != APPLICATION and (tables or version):
        raise StoreCorrupt(f"{path} is another program's database; name another file")
    if version > SCHEMA:
        raise StoreNewer(
            f"{path} has schema {version}, this heedful knows {SCHEMA}; upgrade heedful to open it"
        )
    return bool(version == SCHEMA)


def _migrate(db: Connection, path: str) -> None:
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
    from heedful.memory.words import words

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
