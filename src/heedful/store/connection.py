"""One SQLite connection on one thread, with group commit; and SQLite's errors as ours."""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakSet

from heedful.errors import InvalidInput, StoreCorrupt, StoreError, StoreUnavailable
from heedful.store.database import Work

if TYPE_CHECKING:
    from heedful.store.sqlite import Connection

T = TypeVar("T")

# How many waiting writes one commit takes along at most.
GROUP = 256


class _Job(NamedTuple):
    work: Work[Any]
    answer: Future[Any]


class Thread:
    """Runs work on a connection of its own, in order.

    With `writes`, everything that waits is committed together: one fsync for the whole group, each
    work in a savepoint so that one that fails leaves the others whole. A future is resolved only
    after the commit.
    """

    def __init__(self, connect: Callable[[], Connection], *, writes: bool) -> None:
        self._connect = connect
        self._writes = writes
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        _threads.add(self)

    async def run(self, work: Work[T]) -> T:
        """What `work` returns. Raises StoreError, and whatever else `work` raises."""
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
        """Finish what was handed over and close the connection; harmless when called twice."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._jobs.put(None)
                if thread is not threading.current_thread():
                    thread.join()

    def forked(self) -> None:
        """In a child process the thread is gone, and what it was to do is the parent's."""
        self._jobs, self._lock, self._thread = queue.SimpleQueue(), threading.Lock(), None

    def _main(self) -> None:
        db: Connection | None = None
        while (group := self._group()) is not None:
            db = self._done(db, group)
            group.clear()  # while it waits, it keeps nobody's objects
        if db is not None:
            db.close()

    def _done(self, db: Connection | None, group: list[_Job]) -> Connection | None:
        """Do and answer every job; the connection for the next ones, where one is open."""
        try:
            db = db or self._connect()
            (_commit if self._writes else _each)(db, group)
        except Exception as error:
            told = typed(error)
            for job in group:
                if not job.answer.done():
                    job.answer.set_exception(told)
            return _undone(db)
        return db

    def _group(self) -> list[_Job] | None:
        """The next jobs, those cancelled meanwhile left out; None when the thread has to end."""
        job = self._jobs.get()
        if job is None:
            return None
        jobs = [job]
        while self._writes and len(jobs) < GROUP and not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
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
    """What the job returns; where it fails, it alone is undone and told."""
    db.execute("savepoint work")
    try:
        value = job.work(db)
    except Exception as error:
        if not db.in_transaction:  # SQLite gave up the whole transaction, as on a full disk
            raise
        db.execute("rollback to work")
        db.execute("release work")
        job.answer.set_exception(typed(error))
        return None
    db.execute("release work")
    return value


def _each(db: Connection, group: list[_Job]) -> None:
    """Each reads one state of the database, whatever others commit in the middle."""
    for job in group:
        db.execute("begin")
        value = job.work(db)
        db.execute("rollback")
        job.answer.set_result(value)


def _undone(db: Connection | None) -> Connection | None:
    """The connection without an open transaction; None where it has to be opened anew."""
    try:
        if db is not None and db.in_transaction:
            db.execute("rollback")
    except sqlite3.Error:
        if db is not None:
            db.close()
        return None
    return db


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
# What was given, and what is allowed.
TOO_LARGE = ("too large", "a whole number that 64 bits can hold")
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def typed(error: BaseException) -> BaseException:
    """SQLite's errors as ours; any other as it is."""
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
        told: StoreError = StoreCorrupt(
            f"{error}: the file is damaged or no database; restore a copy, or move it away"
        )
    elif isinstance(error, OSError) or code in _CAUSES:
        told = StoreUnavailable(f"{error}: {_CAUSES.get(code, 'check the path')}")
    else:
        told = StoreError(str(error))
    told.__cause__ = error
    return told


_threads: WeakSet[Thread] = WeakSet()


def _forked() -> None:
    for thread in list(_threads):
        thread.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
