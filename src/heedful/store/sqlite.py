"""A store in SQLite: one file with a write-ahead log and `synchronous=FULL`.

Each process has one writer thread. It commits all waiting writes together, with one
fsync. A short write that waits alone is committed by the event loop itself, unless the
disk is slow.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from typing import Any, TypeVar
from weakref import finalize

from heedful import errors
from heedful.lessons.lesson import Scope
from heedful.store.store import (
    MEMORY_LOCKS,
    Db,
    Dialect,
    JobGuard,
    Store,
    Threads,
    Work,
    WorkItem,
    read_sql,
)

T = TypeVar("T")
# Event loops commit, without a hand-over to the thread, while a commit takes at most
# this, in seconds: any other thread may keep them waiting for as long.
MAX_LOOP_COMMIT_SECONDS = 0.005
IN_MEMORY_PATH = ":memory:"  # a database in memory, which belongs to one connection


class DatabasePath:
    """The path of an open database, which must stay the file that was opened first.

    SQLite writes on into a file that was deleted or replaced, and these writes are
    lost.
    """

    def __init__(self, path: str) -> None:
        self.path: str = path if path == IN_MEMORY_PATH else os.path.realpath(path)
        self.opened: tuple[int, int] | None = None

    def check(self, writes: bool = True) -> None:
        """Raise StoreUnavailable or StoreCorrupt if the file is gone, or not fit for
        `writes`.
        """
        if self.path == IN_MEMORY_PATH:
            return
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            found = None
        here = found and (found.st_dev, found.st_ino)
        self.opened = self.opened or here
        if found is None or here != self.opened:
            what = "replaced" if found else "deleted"
            todo = (
                "move it back; for a new one, stop heedful, delete -wal and -shm "
                "beside it"
            )
            raise errors.StoreUnavailable(
                f"{self.path} was {what} while it was open; {todo}"
            )
        if not found.st_size:
            raise errors.StoreCorrupt(
                f"{self.path} is empty, not a database; {DAMAGED_FILE_FIX}"
            )
        if writes and not os.access(self.path, os.W_OK):
            raise errors.StoreUnavailable(
                f"{self.path}: {_RESULT_CODE_REMEDIES[sqlite3.SQLITE_READONLY]}"
            )


class Connection(sqlite3.Connection, Db):
    """A connection to SQLite that can run named statements."""

    dialect: Dialect = "sqlite"
    place: DatabasePath = DatabasePath(IN_MEMORY_PATH)

    def check(self) -> None:
        self.place.check()

    def close(self) -> None:
        self.lost = True
        super().close()


class _Savepoint(JobGuard):
    """A `with` block that runs one job in a savepoint: an error undoes only this job's
    work.
    """

    def __init__(self, db: Connection, job: WorkItem) -> None:
        super().__init__((job,), translate_error)
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("savepoint work")

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if not self._db.in_transaction:  # SQLite rolled it all back, as on a full disk
            return False
        if error is not None:
            self._db.execute("rollback to work")
        self._db.execute("release work")
        return super().__exit__(_, error, __)


class Thread(Threads[Connection]):
    """A thread that runs jobs in order, on its own connection; all waiting ones in a
    transaction.

    With `writes`, the thread commits them together, with one fsync. Each job runs in a
    savepoint, so a failed job does not affect the others. Results are set only after
    the commit.
    """

    def __init__(self, connect: Callable[..., Connection], *, writes: bool) -> None:
        super().__init__(connect, 1, group=256)  # waiting writes in one commit, at most
        self._transact = _commit if writes else _read

    def forked(self) -> None:
        super().forked()
        self._near: Connection | None = None  # of the event loops, which take turns
        # seconds of the last transaction
        self._turn = threading.RLock()
        self._took = 1.0
        self._soon: deque[WorkItem] = deque()

    async def run(self, work: Work[T], short: bool = False) -> T:
        """Run `work` and return its result. Raises StoreError and the errors of `work`.

        If `short`, the event loop runs `work` at its next turn, if nothing else waits
        then.
        """
        job = WorkItem(work)
        if short and self._took <= MAX_LOOP_COMMIT_SECONDS:
            self._soon.append(job)
            job.future.get_loop().call_soon(self._at_once)
        else:
            self.submit(job)
        answer: T = await job.future
        return answer

    def _at_once(self) -> None:
        with self._lock:  # event loops of other threads take jobs, too
            jobs = [self._soon.popleft() for _ in range(len(self._soon))]
        jobs = [job for job in jobs if not job.future.cancelled()]
        with JobGuard(jobs):
            if (
                len(jobs) == 1
                and self._jobs.empty()
                and self._turn.acquire(blocking=False)
            ):
                try:
                    with suppress(
                        sqlite3.Error, errors.StoreError
                    ):  # the thread tries again
                        self._near = self._near or self._connect(busy_seconds=0.0)
                        self.perform(jobs, self._near)
                        return
                finally:
                    self._turn.release()
            for job in jobs:
                self.submit(job)

    def close(self, seconds: float | None = None) -> None:
        super().close(seconds)
        with self._turn:
            if self._near is not None:
                self._near.close()
            self._near = None
            self._took = 1.0

    def perform(self, jobs: Sequence[WorkItem], db: Connection | None = None) -> None:
        """Run the jobs; afterwards roll back a transaction that is still open."""
        if not jobs:
            return
        began = time.perf_counter()
        try:
            db = db or self.connection()
            try:
                self._transact(db, jobs)
            finally:
                self._took = time.perf_counter() - began
                try:
                    db.rollback()
                except sqlite3.Error:
                    db.close()
        except SQLITE_ERRORS as error:
            raise translate_error(error) from error


def _read(db: Connection, jobs: Sequence[WorkItem]) -> None:
    for job in jobs:
        with JobGuard((job,), translate_error):
            if not db.in_transaction:
                db.execute("begin")
            value = job.work(db)
            if job is jobs[-1]:
                db.execute("rollback")
            job.end(value)


def _commit(db: Connection, jobs: Sequence[WorkItem]) -> None:
    db.execute("begin immediate")
    values: list[Any] = []
    for job in jobs:
        values.append(None)
        with _Savepoint(db, job):
            values[-1] = job.work(db)
    try:
        db.check()
    except errors.StoreUnavailable:
        db.execute("rollback")
        with suppress(
            sqlite3.Error
        ):  # SQLite would write a log into another file at this path
            db.execute("pragma wal_checkpoint(truncate)")
        raise
    db.execute("commit")
    for job, value in zip(jobs, values, strict=True):
        if not job.done:
            job.end(value)


# SQLite's primary result codes (sqlite.org/rescode.html) and what a user can do about
# each.
_RESULT_CODE_REMEDIES = {
    sqlite3.SQLITE_BUSY: "another process holds the database for too long; try again",
    sqlite3.SQLITE_LOCKED: "another process holds the database for too long; try again",
    sqlite3.SQLITE_READONLY: "it is read-only; give write permission to the file and its folder",
    sqlite3.SQLITE_FULL: "the disk is full; make room and run again, nothing was lost",
    sqlite3.SQLITE_IOERR: "the disk does not respond; check the disk and run again",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that the folder exists and is writable",
    sqlite3.SQLITE_PERM: "access is denied; check the permissions",
    sqlite3.SQLITE_TOOBIG: "a value is too large to store (above 1 GB)",
}
_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
DAMAGED_FILE_FIX = "restore a copy, or move it away"
# The errors that `translate_error` translates.
SQLITE_ERRORS = (sqlite3.Error, OSError, UnicodeEncodeError, OverflowError)


def translate_error(error: BaseException) -> BaseException:
    """Translate an error of SQLite or the disk into a HeedfulError; return others
    unchanged.
    """
    if isinstance(error, UnicodeEncodeError | OverflowError):
        return invalid_value(error)
    if not isinstance(error, sqlite3.Error | OSError):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGE_CODES:
        ours: errors.StoreError = errors.StoreCorrupt(
            f"{error}: the file is damaged or no database; {DAMAGED_FILE_FIX}"
        )
    elif isinstance(error, OSError) or code in _RESULT_CODE_REMEDIES:
        ours = errors.StoreUnavailable(
            f"{error}: {_RESULT_CODE_REMEDIES.get(code, 'check the path')}"
        )
    elif "no such " in str(error) or "has no column" in str(error):
        todo = (
            "run `heedful export` with that version, and import the lessons into a "
            "new file"
        )
        ours = errors.StoreOlder(
            f"{error}: an unreleased heedful made this file; {todo}"
        )
    else:
        ours = errors.StoreError(str(error))
    ours.__cause__ = error
    return ours


def invalid_value(error: UnicodeEncodeError | OverflowError) -> errors.InvalidInput:
    """Return the error for a number or a text that no database can store."""
    if isinstance(error, OverflowError):
        return errors.InvalidInput(
            "number", "too large", "a whole number that 64 bits can hold"
        )
    allowed = "text that UTF-8 can hold, without a lone surrogate"
    return errors.InvalidInput("text", error.object, allowed)


APPLICATION_ID = 0x68656564  # "heed": the mark of heedful's own files
SCHEMA_VERSION = 1  # the number of the newest `sqlite_….sql`
BUSY_TIMEOUT_SECONDS = 20.0


def in_file(path: str) -> Store:
    """Return a store with its own connections to the file `path`, which may be
    `:memory:`.
    """
    return Store(path, File(path, BUSY_TIMEOUT_SECONDS))


class File:
    """Access to one SQLite file, with one thread for all writes and one for all
    reads.
    """

    def __init__(self, path: str, busy_seconds: float) -> None:
        self._place = DatabasePath(path)
        opens = partial(connect, path, busy_seconds=busy_seconds, place=self._place)
        reads = partial(opens, reads=True)
        self.writer: Thread = Thread(opens, writes=True)
        self.reader: Thread = (
            self.writer if path == IN_MEMORY_PATH else Thread(reads, writes=False)
        )
        # The threads do not refer to the store, so that an unused store is closed.
        for thread in (self.writer, self.reader):
            finalize(self, thread.close, thread.GRACE)

    async def read(self, scope: Scope, work: Work[T]) -> T:
        return await self.reader.run(work)

    async def write(
        self, scope: Scope, work: Work[T], holds: Sequence[str] = MEMORY_LOCKS
    ) -> T:
        """Run `work`, commit, and return its result. Only one writer runs at a time."""
        of_loop = all(name.startswith("loop ") for name in holds or MEMORY_LOCKS)
        return await self.writer.run(
            work, short=of_loop and self.reader is not self.writer
        )

    async def close(self) -> None:
        """Finish running work and close the file. A later call opens the file again."""
        for thread in (self.writer, self.reader):
            thread.close()
        self._place.opened = None


def connect(
    path: str,
    busy_seconds: float,
    place: DatabasePath | None = None,
    reads: bool = False,
) -> Connection:
    """Open the file `path` and upgrade its schema if necessary; with `reads`, only for
    reading.

    If there is no file, create it. If `place` has been opened before, it must still be
    this file. Raises StoreUnavailable if the file cannot be opened. Other errors of
    SQLite are not translated.
    """
    place = place or DatabasePath(path)
    name = place.path
    alone = path == IN_MEMORY_PATH
    try:
        if place.opened:
            place.check(writes=False)
        elif not (alone or os.path.exists(name)):
            _create(name)
        db = sqlite3.connect(
            name,
            busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )
    except (OSError, sqlite3.OperationalError) as error:
        todo = "check that its folder exists and is writable, and that it is a file"
        raise errors.StoreUnavailable(
            f"{name} cannot be opened, {error}; {todo}"
        ) from error
    db.row_factory = sqlite3.Row
    db.url = path
    db.place = place
    with ExitStack() as failed:
        failed.callback(db.close)  # which rolls back what was not committed
        db.execute("pragma foreign_keys = on")
        db.create_function("store_clock", 0, time.time)
        place.check(writes=False)
        if alone or _is_older(db, path):
            _migrate(db)
        db.execute("pragma synchronous = full")
        db.execute(f"pragma query_only = {reads}")
        failed.pop_all()
    return db


def _create(path: str) -> None:
    """Make a database that only its owner may read, whole or not at all.

    A file at `path` is never half made, so an empty one has lost its data.
    """
    new = f"{path}.{os.urandom(6).hex()}.new"
    os.close(os.open(new, os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(
            sqlite3.connect(new, isolation_level=None, factory=Connection)
        ) as db:
            db.execute("pragma journal_mode = wal")
            _migrate(db)
        with suppress(FileExistsError):  # another process was faster
            os.link(new, path)
    finally:
        os.unlink(new)


def _is_older(db: Connection, path: str) -> bool:
    """Return True if the schema is older than `SCHEMA_VERSION`. Raises StoreNewer,
    StoreCorrupt.
    """
    if db.execute("pragma application_id").fetchone()[0] != APPLICATION_ID:
        raise errors.StoreCorrupt(
            f"{path} is another program's database; name another file"
        )
    version = db.execute("pragma user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise errors.StoreNewer(
            f"{path} has schema {version}, this heedful knows {SCHEMA_VERSION}; upgrade "
            "heedful to open it"
        )
    return bool(version < SCHEMA_VERSION)


def _migrate(db: Connection) -> None:
    db.execute("begin immediate")
    version = db.execute("pragma user_version").fetchone()[
        0
    ]  # another process may come first
    for number in range(version + 1, SCHEMA_VERSION + 1):
        for statement in _statements(f"sqlite_{number:04}.sql"):
            db.execute(statement)
    db.execute(f"pragma application_id = {APPLICATION_ID}")
    db.execute(f"pragma user_version = {SCHEMA_VERSION}")
    db.execute("commit")


def _statements(name: str) -> list[str]:
    """Split the SQL file `name` into statements; a whole trigger is one statement."""
    statements = []
    part = ""
    for line in read_sql(name).splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            statements.append(part)
            part = ""
    return statements
