"""SQLite: one file, a write-ahead log, `synchronous=FULL`, one writer thread a process.

Everything that waits for the writer is committed together, with one fsync for the group.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakSet, finalize

from heedful.errors import (
    InvalidInput,
    StoreCorrupt,
    StoreError,
    StoreNewer,
    StoreOlder,
    StoreUnavailable,
)
from heedful.lessons.lesson import Scope
from heedful.store.store import MEMORY, Dialect, Store, Work, read_sql, statements

T = TypeVar("T")
# The most waiting writes in one commit.
GROUP = 256


class _Job(NamedTuple):
    work: Work[Any]
    answer: Future[Any]


class Thread:
    """A thread that runs work in order, on a connection of its own.

    With `writes`, everything that waits is committed together, with one fsync for the group. Each
    piece of work runs in a savepoint, so that a failure does not affect the others. A future is
    resolved only after the commit.
    """

    def __init__(self, connect: Callable[[], Connection], *, writes: bool) -> None:
        self._connect = connect
        self._writes = writes
        self.forked()
        _threads.add(self)

    def forked(self) -> None:
        """Reset a child process: it has no thread, and the queued work belongs to its parent."""
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    async def run(self, work: Work[T]) -> T:
        """Run `work` and return its result. Raises StoreError, and whatever `work` raises."""
        job = _Job(work, Future())
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._main, name="heedful-store", daemon=True
                )
                self._thread.start()
            self._jobs.put(job)
        answer: T = await asyncio.wrap_future(job.answer)
        return answer

    def close(self) -> None:
        """Finish the queued work and close the connection; closing twice does no harm."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._jobs.put(None)
                if thread is not threading.current_thread():
                    thread.join()

    def _main(self) -> None:
        db: Connection | None = None
        while (group := self._group()) is not None:
            try:
                db = db or self._connect()
                (_commit if self._writes else _each)(db, group)
            except Exception as error:
                ours = translate_error(error)
                for job in group:
                    if not job.answer.done():
                        job.answer.set_exception(ours)
                db = _roll_back(db)
                del ours
            group.clear()  # while it waits, it keeps no object of a caller alive
        if db is not None:
            db.close()

    def _group(self) -> list[_Job] | None:
        """Return the next jobs, without cancelled ones; None when the thread has to end."""
        jobs: list[_Job] = []
        while not jobs or (self._writes and len(jobs) < GROUP and not self._jobs.empty()):
            job = self._jobs.get()
            if job is None:
                if not jobs:
                    return None
                self._jobs.put(None)
                break
            jobs.append(job)
        return [job for job in jobs if job.answer.set_running_or_notify_cancel()]


def _commit(db: Connection, group: list[_Job]) -> None:
    if not group:
        return
    db.execute("begin immediate")
    values = [_in_savepoint(db, job) for job in group]
    db.execute("commit")
    for job, value in zip(group, values, strict=True):
        if not job.answer.done():
            job.answer.set_result(value)


def _in_savepoint(db: Connection, job: _Job) -> Any:
    """Return the job's result; undo a failed job alone, and set its error as the answer."""
    db.execute("savepoint work")
    try:
        value = job.work(db)
    except Exception as error:
        if not db.in_transaction:  # SQLite gave up the whole transaction, as on a full disk
            raise
        db.execute("rollback to work")
        job.answer.set_exception(translate_error(error))
        value = None
    db.execute("release work")
    return value


def _each(db: Connection, group: list[_Job]) -> None:
    """Run each job on one consistent state of the database."""
    for job in group:
        db.execute("begin")
        value = job.work(db)
        db.execute("rollback")
        job.answer.set_result(value)


def _roll_back(db: Connection | None) -> Connection | None:
    """Return the connection without an open transaction, or None if it has to be opened again."""
    try:
        if db is not None and db.in_transaction:
            db.execute("rollback")
    except sqlite3.Error:
        if db is not None:
            db.close()
        return None
    return db


_threads: WeakSet[Thread] = WeakSet()


def _forked() -> None:
    for thread in list(_threads):
        thread.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


# SQLite's primary result codes (sqlite.org/rescode.html) and what a user can do about each.
_CAUSES = {
    sqlite3.SQLITE_BUSY: "another process holds the database for too long; try again",
    sqlite3.SQLITE_LOCKED: "another process holds the database for too long; try again",
    sqlite3.SQLITE_READONLY: "it is read-only; give write permission to the file and its folder",
    sqlite3.SQLITE_FULL: "the disk is full; make room and run again, nothing was lost",
    sqlite3.SQLITE_IOERR: "the disk does not answer; look at the disk and run again",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that the folder exists and is writable",
    sqlite3.SQLITE_PERM: "access is denied; check the permissions",
    sqlite3.SQLITE_TOOBIG: "a value is too large to store (above 1 GB)",
}
# The value that was given, and what is allowed.
TOO_LARGE = ("too large", "a whole number that 64 bits can hold")
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def translate_error(error: BaseException) -> BaseException:
    """Return an SQLite error as one of heedful, and any other error unchanged."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidInput(
            "text", error.object, "text that UTF-8 can hold, without a lone surrogate"
        )
    if isinstance(error, OverflowError):
        return InvalidInput("number", *TOO_LARGE)
    if not isinstance(error, sqlite3.Error | OSError):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGE:
        ours: StoreError = StoreCorrupt(
            f"{error}: the file is damaged or no database; restore a copy, or move it away"
        )
    elif isinstance(error, OSError) or code in _CAUSES:
        ours = StoreUnavailable(f"{error}: {_CAUSES.get(code, 'check the path')}")
    else:
        ours = StoreError(str(error))
    ours.__cause__ = error
    return ours


K = TypeVar("K")
APPLICATION = 0x68656564  # "heed", so that a stranger's database is not taken for ours
BEFORE = 0x65727261  # the id of files from before the first release, with another schema
SCHEMA = 1  # the number of the newest `sqlite_….sql`
BUSY_SECONDS = 20.0
_open: dict[str, Store] = {}
_guard = threading.Lock()


def in_file(path: str, busy_seconds: float = BUSY_SECONDS) -> Store:
    """Return a store in one file with its own connections; `:memory:` ends with the store."""
    return Store(path, File(path, busy_seconds))


def shared_store(path: str) -> Store:
    """Return the store that this process shares for this file; one in memory is never shared."""
    if path == ":memory:":
        return in_file(path)
    key = os.path.realpath(path)
    with _guard:
        store = _open.get(key) or in_file(path)
        _open[key] = store
        return store


class Connection(sqlite3.Connection):
    """A connection with named statements."""

    dialect: Final[Dialect] = "sqlite"
    url: str = ""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._local: dict[Any, Any] = {}

    def run(self, name: str, values: Mapping[str, Any] = {}) -> sqlite3.Cursor:
        """Run a named statement."""
        return self.execute(statements("sqlite")[name], values)

    def local(self, kind: Callable[[], K]) -> K:
        """Return the object of this class that belongs to the connection."""
        if kind not in self._local:
            self._local[kind] = kind()
        found: K = self._local[kind]
        return found


class File:
    """Access to one file, with one thread for all writes and another for all reads."""

    def __init__(self, path: str, busy_seconds: float) -> None:
        # A database in memory belongs to one connection.
        alone = path == ":memory:"
        opens = partial(connect, path if alone else os.path.abspath(path), busy_seconds, path)
        self._another = partial(_reading, opens)
        self.writer: Thread = Thread(opens, writes=True)
        self.reader: Thread = self.writer if alone else Thread(self._another, writes=False)
        # The threads do not refer to the store, so that an unused store is closed.
        finalize(self, _close, self.writer, self.reader)

    async def read(self, scope: Scope, work: Work[T]) -> T:
        """Run `work` on one consistent state of the database and return its result."""
        return await self.reader.run(work)

    async def write(self, scope: Scope, work: Work[T], holds: Sequence[str] = MEMORY) -> T:
        """Run `work`, commit and return its result; there is one writer at a time."""
        return await self.writer.run(work)

    async def apart(self, scope: Scope, work: Work[T]) -> T:
        """Run `work` as `read` does, on a connection of its own."""
        if self.reader is self.writer:
            return await self.reader.run(work)
        reader = Thread(self._another, writes=False)
        try:
            return await reader.run(work)
        finally:
            reader.close()

    async def close(self) -> None:
        """Finish running work and close the file. A later call opens it again."""
        _close(self.writer, self.reader)


def _close(*threads: Thread) -> None:
    for thread in threads:
        thread.close()


def connect(path: str, busy_seconds: float, url: str = "") -> Connection:
    """Open a file and bring its schema up to date.

    Raises StoreUnavailable if the file cannot be opened, and any other sqlite3.Error unchanged.
    """
    try:
        db = sqlite3.connect(path, busy_seconds, isolation_level=None, factory=Connection)
    except sqlite3.OperationalError as error:
        todo = "check that its folder exists and is writable"
        raise StoreUnavailable(f"{path} cannot be opened, {error}; {todo}") from error
    db.row_factory, db.url = sqlite3.Row, url or path
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
    """Switch to a write-ahead log, waiting here because SQLite does not wait for this switch."""
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
    """Return True if the schema is up to date. Raises StoreNewer, StoreOlder, StoreCorrupt."""
    application = db.execute("pragma application_id").fetchone()[0]
    version = db.execute("pragma user_version").fetchone()[0]
    tables = db.execute("select count(*) from sqlite_schema").fetchone()[0]
    if application == BEFORE:
        raise StoreOlder(
            f"{path} was made before the first release of heedful and cannot be read any more; "
            "export its lessons with the version that made it, or move the file away"
        )
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
        for number in range(version + 1, SCHEMA + 1):
            for statement in _statements(f"sqlite_{number:04}.sql"):
                db.execute(statement)
        db.execute(f"pragma application_id = {APPLICATION}")
        db.execute(f"pragma user_version = {SCHEMA}")
    db.execute("commit")


def _statements(name: str) -> list[str]:
    """Split a file into statements; a trigger stays whole although it contains semicolons."""
    statements, part = [], ""
    for line in read_sql(name).splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            statements.append(part)
            part = ""
    return statements
