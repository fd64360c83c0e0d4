"""A store in SQLite: one file with a write-ahead log and `synchronous=FULL`.

Each process has one writer thread. It commits all waiting writes together, with one
fsync.
"""

import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from heedful import errors
from heedful.lessons.scope import Scope
from heedful.store import open_store
from heedful.store.connection import MEMORY_LOCKS, Db, ReadLane, Work
from heedful.store.inline import is_inline, lock_seconds
from heedful.store.statements import (
    SCHEMA_VERSION,
    Dialect,
    check_version,
    schema,
)
from heedful.store.store import Store
from heedful.store.threads import FORK_WAIT_SECONDS, Caught, Result, Threads

T = TypeVar("T")
Works = Sequence[Work[Any]]
MAX_GROUP = 256  # waiting writes in one commit
# Waiting reads in one transaction. The result of a large one waits for no others.
MAX_READ_GROUPS: Mapping[ReadLane, int] = {"short": 256, "long": 1, "bulk": 1}
IN_MEMORY_PATH = ":memory:"  # a database in memory, which belongs to one connection
# For each file that this process has opened, by its path: the lock of its writers. With
# SQLite's own lock alone, a writer sleeps until the file happens to be free: of 16
# stores on one file in one process, one waited for 16.9 s.
_write_locks: dict[str, threading.RLock] = {}
# The files that threads of the parent process used when this process was forked.
_files_used_at_fork: set[str] = set()


class DatabasePath:
    """The path of an open database, which must stay the file that was opened first.

    SQLite would go on to write into a file that was deleted or replaced, and these
    writes would be lost. `opened` are device and inode of the first file, None before.
    """

    def __init__(self, path: str) -> None:
        self.path: str = path if path == IN_MEMORY_PATH else os.path.realpath(path)
        self.opened: tuple[int, int] | None = None

    def check(self, writes: bool = True) -> None:
        """Check that the path still leads to the file that was opened first.

        The first check of a file notes which one it is. With `writes`, also checks that
        the file may be written. Raises StoreUnavailable if the file was deleted,
        replaced or is read-only, and StoreCorrupt if it is empty.
        """
        if self.path == IN_MEMORY_PATH:
            return

        try:
            file = os.stat(self.path)
        except FileNotFoundError:
            file = None

        identity = None if file is None else (file.st_dev, file.st_ino)
        if self.opened is None:
            self.opened = identity

        if file is None or identity != self.opened:
            event = "deleted" if file is None else "replaced"
            remedy = (
                "move it back; for a new one, stop heedful, delete -wal and -shm "
                "beside it"
            )
            raise errors.StoreUnavailable(
                f"{self.path} was {event} while it was open; {remedy}"
            )

        # A new database has tables before it gets its name, so this one lost its data.
        if file.st_size == 0:
            raise errors.StoreCorrupt(
                f"{self.path} is empty, not a database; {DAMAGED_FILE_FIX}"
            )

        if writes and not os.access(self.path, os.W_OK):
            remedy = _RESULT_CODE_REMEDIES[sqlite3.SQLITE_READONLY]
            raise errors.StoreUnavailable(f"{self.path}: {remedy}")


class Connection(sqlite3.Connection, Db):
    """A connection to SQLite that can run named statements."""

    dialect: Dialect = "sqlite"
    place: DatabasePath = DatabasePath(IN_MEMORY_PATH)
    # True if SQLite takes no locks, and does not see that another program writes.
    immutable: bool = False
    # How long a statement waits for a lock of another program.
    busy_seconds: float = 0.0

    def check(self) -> None:
        """Check that the file may still be written, and that the disk has room.

        Raises StoreError.
        """
        self.place.check()
        # It changes nothing, but writes a page, which a full disk refuses.
        self.execute(f"pragma application_id = {APPLICATION_ID}")

    def wait_at_most(self, seconds: float) -> None:
        """Set how long a statement waits for a lock of another program."""
        if seconds != self.busy_seconds:
            self.busy_seconds = seconds
            self.execute(f"pragma busy_timeout = {round(seconds * 1_000)}")

    def close(self) -> None:
        """Close the connection, and note that it is lost."""
        self.lost = True
        super().close()


# Runs works on a connection, in transactions or not, and returns their results.
Runner = Callable[[Connection, Works], Sequence[Result]]


class Thread(Threads[Connection]):
    """A thread that runs work in order, on its own connection.

    It takes the works that wait, at most `group`, and hands them to `run`. The writers
    of a file, and who cleans it, take turns.

    Work waits `busy_seconds` for a lock of another program. After a wait in vain, it
    waits a twentieth of that, until some work has succeeded.
    """

    def __init__(
        self,
        connect: Callable[..., Connection],
        *,
        run: Runner,
        busy_seconds: float,
        group: int = MAX_GROUP,
        place: DatabasePath | None = None,
    ) -> None:
        """Prepare a thread whose connection `connect` opens at the first work.

        `run` runs at most `group` waiting works at once. A work waits `busy_seconds`
        for a lock of another program. `place` is the file, or None for memory.
        """
        # One thread. How long a new connection waits is known only when it is made.
        super().__init__(lambda: connect(busy_seconds=self._patience_seconds), 1, group)
        self._busy_seconds = busy_seconds
        self._waited_in_vain = False
        self._place = place or DatabasePath(IN_MEMORY_PATH)
        is_file = self._place.path != IN_MEMORY_PATH
        # With a write-ahead log, no read waits for a writer: only writers take turns.
        self._shares_lock = is_file and run is not read_all
        self._run = run

    def reset(self) -> None:
        """Begin without a thread and a connection, as after a fork."""
        super().reset()
        self._own_lock = threading.RLock()

    @property
    def _patience_seconds(self) -> float:
        """How long the next work waits for a lock of another program."""
        if self._waited_in_vain:
            return lock_seconds(self._busy_seconds / 20)
        return lock_seconds(self._busy_seconds)

    @property
    def _use_lock(self) -> threading.RLock:
        """The lock that is held while a connection is used.

        All writers of a file share it. It is reentrant: its holder may free an unused
        store, which closes it.
        """
        if not self._shares_lock:
            return self._own_lock
        return _write_locks.setdefault(self._place.path, threading.RLock())

    def pause(self, seconds: float) -> bool:
        """Let no thread use a connection until `resume`, and close those to a file.

        Waits at most `seconds` for the work that runs; returns False if it still runs.
        This prepares a fork. SQLite keeps in memory what this process has locked, and
        with an open file, a forked child would have this memory without the locks.
        """
        if not self._use_lock.acquire(timeout=seconds):
            return False

        for db in list(self._connections.values()):
            if db.place.path != IN_MEMORY_PATH:
                db.close()
        return True

    def resume(self) -> None:
        """End a pause; the next work opens a connection."""
        self._use_lock.release()

    def begin_in_child(self, paused: bool) -> None:
        """Start again in a forked child process, without threads and connections.

        If the parent was not `paused`, a thread of it used the file during the fork:
        then the child can never use this file. A database in memory belongs to a
        connection, and the child opens its own.
        """
        if not paused and self._place.path != IN_MEMORY_PATH:
            _files_used_at_fork.add(self._place.path)
        super().begin_in_child(paused)
        # A thread that only the parent has may hold the lock of the writers.
        _write_locks.pop(self._place.path, None)

    def end(self, connection: Connection) -> None:
        """Close the connection of a thread that ends, unless a fork closes it."""
        with self._use_lock:
            connection.close()

    async def result_of(self, work: Callable[..., T]) -> T:
        """Return the result of a work, which runs on this thread; inline, it runs on
        the thread of the caller.
        """
        if not is_inline():
            return await self.submit(work)
        [(value, error)] = self.perform([work])
        if error is not None:
            raise error
        return cast("T", value)

    def perform(self, works: Works) -> Sequence[Result]:
        """Run the works on this thread's connection, and return their results.

        Waits first until no other writer of this process uses the file. Notes whether
        another program kept the file locked, so that the next work waits less for it.
        Raises StoreError.
        """
        if not works:
            return []
        if not self._use_lock.acquire(timeout=BUSY_TIMEOUT_SECONDS):
            raise errors.StoreUnavailable(f"{self._place.path} is locked: {_BUSY_FIX}")

        try:
            db = self.connection()
            try:
                db.wait_at_most(self._patience_seconds)
                results = self._run(db, works)
            finally:
                # After an error, for example, the transaction is still open.
                _roll_back(db)
                # It would not see what another program writes: the next work reopens.
                if db.immutable:
                    db.close()
            self._waited_in_vain = False
            return results
        except SQLITE_ERRORS as error:
            if _result_code(error) == sqlite3.SQLITE_BUSY:
                self._waited_in_vain = True
            raise translate_error(error, str(self._place.path)) from error
        finally:
            self._use_lock.release()


def _roll_back(db: Connection) -> None:
    """Roll back a transaction that is still open."""
    try:
        db.rollback()
    except sqlite3.Error:
        db.close()


def read_all(db: Connection, works: Works) -> Sequence[Result]:
    """Run all `works`, which only read, in one transaction, and return their results.

    A result is a pair: the value of the work and None, or None and its error. The error
    of one read does not end the others.
    """
    db.execute("begin")
    results: list[Result] = []
    for work in works:
        value = None
        with Caught() as caught:
            value = work(db)
        error = caught.error
        if error is not None:
            error = _translate_read_error(error, db.place.path)
        results.append((value, error))
    db.execute("rollback")
    return results


def commit_all(db: Connection, works: Works) -> Sequence[Result]:
    """Run all `works`, which write, and commit them together, in one transaction.

    Each has a savepoint, so that one that fails is undone without the others. Returns a
    pair for each: its value and None, or None and its error. Raises the error if none
    can be committed.
    """
    db.execute("begin immediate")
    results: list[Result] = []
    for work in works:
        value = None
        db.execute("savepoint work")
        with Caught() as caught:
            value = work(db)

        error = caught.error
        if error is not None:
            # On a full disk, for example, SQLite has rolled back the whole transaction.
            if not db.in_transaction:
                raise error
            db.execute("rollback to work")
            error = translate_error(error)
        db.execute("release work")
        results.append((value, error))

    # If the file was deleted or replaced meanwhile, a commit would be lost unnoticed.
    try:
        db.place.check()
    except errors.StoreUnavailable:
        db.execute("rollback")
        # SQLite would write a log into another file at this path.
        with suppress(sqlite3.Error):
            db.execute("pragma wal_checkpoint(truncate)")
        raise

    db.execute("commit")
    return results


def _run_alone(db: Connection, works: Works) -> Sequence[Result]:
    """Run works without a transaction, and return their results."""
    return [(work(db), None) for work in works]


def clean(db: Db) -> str:
    """Write the database file again without deleted texts, and empty its log.

    Returns "" if both were done. If another program reads the file, its log cannot be
    emptied: then returns what may remain there and what to do.
    """
    # A deleted word stays in a segment of the index until segments are merged.
    db.execute("insert into example_fts (example_fts) values ('optimize')")
    db.execute("vacuum")
    log = db.execute("pragma wal_checkpoint(truncate)").fetchone()
    return _READERS_NOTICE if log["busy"] else ""


_READERS_NOTICE = (
    "another program reads the file, so its log (-wal) still has deleted texts: run "
    "the command again, or stop that program"
)
_BUSY_FIX = "another process holds the database for too long; try again"
# What a user can do about SQLite's primary result codes (sqlite.org/rescode.html).
_RESULT_CODE_REMEDIES = {
    sqlite3.SQLITE_BUSY: _BUSY_FIX,
    sqlite3.SQLITE_LOCKED: _BUSY_FIX,
    sqlite3.SQLITE_READONLY: (
        "it is read-only; give write permission to the file, to those beside it that "
        "end in -wal and -shm, and to the folder"
    ),
    sqlite3.SQLITE_FULL: "the disk is full; make room and run again, nothing was lost",
    sqlite3.SQLITE_IOERR: "the disk does not respond; check the disk and run again",
    sqlite3.SQLITE_CANTOPEN: (
        "it cannot be opened; check that the folder exists and is writable, and that "
        "the process may open more files (ulimit -n)"
    ),
    sqlite3.SQLITE_PERM: "access is denied; check the permissions",
    sqlite3.SQLITE_TOOBIG: "a value is too large to store (above 1 GB)",
}
DAMAGED_FILE_FIX = "restore a copy, or move it away"
# What SQLite says of a damaged file with the code of a mistake in the SQL.
_DAMAGE_TEXTS = ("not decode to UTF-8", "no such table")
# The errors that `translate_error` translates.
SQLITE_ERRORS = (sqlite3.Error, OSError, UnicodeError, OverflowError)


def translate_error(error: BaseException, path: str = "") -> BaseException:
    """Return the HeedfulError for an error of SQLite or of the disk.

    It says what a user can do, names the file `path` if that is known, and has the
    original error as its cause. Errors of other kinds are returned unchanged.
    """
    if isinstance(error, UnicodeEncodeError | OverflowError):
        # A value that a caller wanted to store.
        return invalid_value(error)
    if isinstance(error, UnicodeDecodeError):
        # SQLite does not check that text is valid UTF-8.
        return _damage_error(error, path)
    if isinstance(error, OSError):
        place = error.filename or path or "the file"
        reason = error.strerror or str(error)
        unavailable = errors.StoreUnavailable(f"{place}: {reason}; check the path")
        unavailable.__cause__ = error
        return unavailable
    if not isinstance(error, sqlite3.Error):
        return error

    code = _result_code(error)
    prefix = f"{path}: " if path and path not in str(error) else ""
    if code == sqlite3.SQLITE_NOTADB:
        translated: errors.StoreError = errors.StoreCorrupt(
            f"{path or 'the file'} is not a SQLite database, or is damaged; name "
            f"another file, or {DAMAGED_FILE_FIX}"
        )
    elif code == sqlite3.SQLITE_CORRUPT or any(
        text in str(error) for text in _DAMAGE_TEXTS
    ):
        translated = _damage_error(error, path)
    elif code in _RESULT_CODE_REMEDIES:
        translated = errors.StoreUnavailable(
            f"{prefix}{error}: {_RESULT_CODE_REMEDIES[code]}"
        )
    else:
        translated = errors.StoreError(str(error))

    translated.__cause__ = error
    return translated


def _result_code(error: BaseException) -> int:
    """Return SQLite's primary result code of an error, 0 if it has none."""
    # The lowest byte of an extended result code is the primary one.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _damage_error(error: BaseException, path: str) -> errors.StoreCorrupt:
    """Return the error for a file that is damaged, as `error` shows."""
    damaged = errors.StoreCorrupt(
        f"{path or 'the file'} is damaged, {error}; {DAMAGED_FILE_FIX}"
    )
    damaged.__cause__ = error
    return damaged


def _translate_read_error(error: BaseException, path: str) -> BaseException:
    """Return the HeedfulError for an error of a read of the file `path`.

    A TypeError, ValueError or LookupError counts as damage of the file, too. SQLite has
    no checksums: where bytes of a page have changed, a read may find rows
    that heedful cannot have written, such as a text that is not JSON.
    """
    translated = translate_error(error, path)
    is_unreadable = isinstance(translated, TypeError | ValueError | LookupError)
    if is_unreadable and not isinstance(translated, errors.HeedfulError):
        return _damage_error(error, path)
    return translated


def invalid_value(error: UnicodeEncodeError | OverflowError) -> errors.InvalidInput:
    """Return the error for a number or a text that no database can store."""
    if isinstance(error, OverflowError):
        return errors.InvalidInput(
            "number", "too large", "a whole number that 64 bits can hold"
        )
    allowed = "text that UTF-8 can hold, without a lone surrogate"
    return errors.InvalidInput("text", error.object, allowed)


APPLICATION_ID = 0x68656564  # "heed": the mark of heedful's own files
BUSY_TIMEOUT_SECONDS = 20.0


def in_file(path: str) -> Store:
    """Return a store with its own connections to the file `path`, or to `:memory:`."""
    return Store(path, File(path, BUSY_TIMEOUT_SECONDS), reopen=open_store)


class File:
    """Access to one SQLite file: a thread for all writes, one for each lane of reads.

    In memory, there is one for all.
    """

    in_doubt = False

    def __init__(self, path: str, busy_seconds: float) -> None:
        """Prepare the threads; each opens the file `path` at its first work.

        A statement waits `busy_seconds` for a lock of another program.
        """
        self._place = DatabasePath(path)
        open_file = partial(connect, path, place=self._place)

        make_thread = partial(Thread, busy_seconds=busy_seconds, place=self._place)

        self.writer: Thread = make_thread(open_file, run=commit_all)
        # A database in memory belongs to one connection, so its writer reads, too.
        self.readers: dict[ReadLane, Thread] = {}
        for lane, group in MAX_READ_GROUPS.items():
            self.readers[lane] = self.writer
            if path != IN_MEMORY_PATH:
                self.readers[lane] = make_thread(
                    partial(open_file, reads=True), run=read_all, group=group
                )

        # SQLite cleans a file only outside of transactions.
        self.cleaner: Thread = make_thread(open_file, run=_run_alone)

    async def clean(self) -> str:
        """Remove deleted texts from the file and its log.

        Returns what may remain there and what to do, "" if nothing does.
        """
        if self._place.path == IN_MEMORY_PATH:
            return ""
        try:
            return await self.cleaner.result_of(clean)
        except errors.StoreUnavailable as error:
            # The deletion itself was committed before, so the caller gets no error.
            return f"deleted texts are still in the file: {error}"

    async def read(self, scope: Scope, work: Work[T], lane: ReadLane = "short") -> T:
        """Run `work` on the thread for reads in this lane, and return its result."""
        return await self.readers[lane].result_of(work)

    async def write(
        self, scope: Scope, work: Work[T], locks: Sequence[str] = MEMORY_LOCKS
    ) -> T:
        """Run `work`, commit, and return its result.

        Only one writer runs at a time, so the `locks` need not be taken.
        """
        return await self.writer.result_of(work)

    def close(self, seconds: float | None = None) -> None:
        """Finish running work and close the file. A later call opens the file again."""
        for thread in (self.writer, self.cleaner, *self.readers.values()):
            thread.close(seconds)
        self._place.opened = None


def _opening_problem(path: str, error: Exception) -> str:
    """Return why the file at a path cannot be opened, and what to do about it."""
    if os.path.isdir(path):
        return f"{path} is a folder; name a file in it"
    if os.path.exists(path) and not os.access(path, os.R_OK):
        return f"{path} may not be read; give read permission to the file"

    reason = ""
    if isinstance(error, OSError) and error.strerror:
        reason = f" ({error.strerror})"
    return (
        f"{path} cannot be opened{reason}; check that its folder is writable, and that "
        "the process may open more files (ulimit -n)"
    )


def connect(
    path: str,
    busy_seconds: float,
    place: DatabasePath | None = None,
    reads: bool = False,
) -> Connection:
    """Open the database file `path`, or create it, and return a connection.

    A statement waits `busy_seconds` for a lock of another program. With `reads`, the
    connection is only for reading. If `place` has been opened before, it must still
    lead to the same file. Raises StoreUnavailable if the file cannot be opened,
    StoreCorrupt if it is empty or another program's, StoreOlder and StoreNewer if its
    schema is of another version. Other errors of SQLite are not translated.
    """
    if place is None:
        place = DatabasePath(path)
    in_memory = path == IN_MEMORY_PATH
    if place.path in _files_used_at_fork:
        raise errors.StoreUnavailable(
            f"{place.path} was in use for more than {FORK_WAIT_SECONDS:g} s when this "
            "process was forked, and cannot be used in it; start processes with the "
            "method spawn or forkserver"
        )

    address = _address_to_read(place.path) if reads else place.path
    try:
        if place.opened is not None:
            place.check(writes=False)
        elif not (in_memory or os.path.exists(place.path)):
            create_file(place.path)

        db = sqlite3.connect(
            address,
            timeout=busy_seconds,
            isolation_level=None,  # `begin` and `commit` are statements of ours
            check_same_thread=False,  # another thread may close it, such as for a fork
            factory=Connection,
            uri=True,
        )
    except (OSError, sqlite3.OperationalError) as error:
        raise errors.StoreUnavailable(_opening_problem(place.path, error)) from error

    db.row_factory = sqlite3.Row
    db.url = path
    db.place = place
    db.immutable = address != place.path
    db.busy_seconds = busy_seconds
    # Whatever is wrong with the database, the connection is closed.
    with ExitStack() as failure:
        failure.callback(db.close)  # which rolls back what was not committed
        db.create_function("store_clock", 0, time.time)
        if sys.version_info >= (3, 12):  # before, the module cannot set it
            db.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE)
        place.check(writes=False)  # the file that was just opened is still there
        if in_memory:
            _create_schema(db)
        else:
            _check_version(db, path)

        db.execute("pragma foreign_keys = on")
        db.execute("pragma synchronous = full")
        db.execute(f"pragma query_only = {reads}")
        failure.pop_all()  # nothing is wrong, so the connection stays open

    return db


def _address_to_read(path: str) -> str:
    """Return how SQLite is to be given the file `path` that is only read.

    Mostly that is the path itself. In a folder where this process cannot write, SQLite
    reads a log only if the log has an index (`-shm`), and a file without a log only as
    immutable (https://sqlite.org/wal.html#readonly), which a URL says. Raises
    StoreUnavailable if there is a log without an index.
    """
    if os.access(os.path.dirname(path), os.W_OK):
        return path

    log = f"{path}-wal"
    if not os.path.exists(log) or os.path.getsize(log) == 0:
        return f"{Path(path).as_uri()}?immutable=1"
    if os.path.exists(f"{path}-shm"):
        return path
    raise errors.StoreUnavailable(
        f"the newest changes of {path} are in {log}, which cannot be read in a "
        "read-only folder; copy both files into a folder that is writable"
    )


def create_file(path: str) -> None:
    """Make a database file that only its owner may read, completely or not at all.

    It is made under another name and gets the name `path` last. So an empty file at
    `path` is never new, but has lost its data. If another process makes the file first,
    that one stays. Raises StoreUnavailable if the folder is missing.
    """
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        # To make it would hide a mistyped path; sqlite3 makes none either.
        raise errors.StoreUnavailable(
            f"no database {path!r} in {errors.missing_folder(folder)}"
        )

    new = f"{path}.{os.urandom(6).hex()}.new"
    os.close(os.open(new, os.O_CREAT | os.O_EXCL, 0o600))
    try:
        connection = sqlite3.connect(new, isolation_level=None, factory=Connection)
        with closing(connection) as db:
            db.execute("pragma journal_mode = wal")
            _create_schema(db)

        with suppress(FileExistsError):  # another process was faster
            os.link(new, path)
    finally:
        os.unlink(new)


def _check_version(db: Connection, path: str) -> None:
    """Check that a database is heedful's, with the schema of this version of heedful.

    Raises StoreCorrupt, StoreNewer, StoreOlder.
    """
    if db.execute("pragma application_id").fetchone()[0] != APPLICATION_ID:
        raise errors.StoreCorrupt(
            f"{path} is another program's database; name another file"
        )
    version: int = db.execute("pragma user_version").fetchone()[0]
    check_version(path, version)


def _create_schema(db: Connection) -> None:
    """Create the tables of an empty database, in one transaction."""
    db.executescript(
        f"begin immediate; {schema('sqlite')}; "
        f"pragma application_id = {APPLICATION_ID}; "
        f"pragma user_version = {SCHEMA_VERSION}; commit"
    )
