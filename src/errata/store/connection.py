"""One SQLite connection on one thread, with group commit; and SQLite's errors as ours."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from errata.errors import ErrataError, StoreCorrupt, StoreError, StoreUnavailable

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

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

    def __init__(self, connect: Callable[[], sqlite3.Connection], *, writes: bool) -> None:
        self._connect = connect
        self._writes = writes
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    async def run(self, work: Work[T]) -> T:
        """What `work` returns. Raises StoreError, and whatever errata error `work` raises."""
        job = _Job(work, Future())
        self._start()
        self._jobs.put(job)
        answer: T = await asyncio.wrap_future(job.answer)
        return answer

    def close(self) -> None:
        """Finish what was handed over and close the connection; harmless when called twice."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.put(None)
            thread.join()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name="errata-store", daemon=True)
                self._thread.start()

    def _main(self) -> None:
        db: sqlite3.Connection | None = None
        while True:
            group = self._group()
            if not group:
                break
            try:
                db = db or self._connect()
            except (sqlite3.Error, OSError, ErrataError) as error:
                _fail(group, _typed(error))
                continue
            self._run(db, group)
        if db is not None:
            db.close()

    def _group(self) -> list[_Job]:
        """The next jobs; empty when the thread has to end."""
        jobs: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            if job.answer.set_running_or_notify_cancel():
                jobs.append(job)
            if not self._writes or len(jobs) == GROUP or (jobs and self._jobs.empty()):
                break
            job = self._jobs.get()
        if job is None and jobs:
            self._jobs.put(None)
        return jobs if job is not None or jobs else []

    def _run(self, db: sqlite3.Connection, group: list[_Job]) -> None:
        if not self._writes:
            for job in group:
                _answer(job, db)
            return
        try:
            db.execute("begin immediate")
            done = [_in_savepoint(job, db) for job in group]
            db.execute("commit")
        except sqlite3.Error as error:
            if db.in_transaction:
                db.execute("rollback")
            _fail(group, _typed(error))
            return
        for job, (value, failure) in zip(group, done, strict=True):
            if failure is None:
                job.answer.set_result(value)
            else:
                job.answer.set_exception(failure)


Outcome = tuple[Any, BaseException | None]


def _in_savepoint(job: _Job, db: sqlite3.Connection) -> Outcome:
    db.execute("savepoint work")
    try:
        value = job.work(db)
    except (sqlite3.IntegrityError, sqlite3.DataError, ErrataError, ValueError, TypeError) as error:
        db.execute("rollback to work")
        db.execute("release work")
        return None, _typed(error)
    db.execute("release work")
    return value, None


def _answer(job: _Job, db: sqlite3.Connection) -> None:
    try:
        job.answer.set_result(job.work(db))
    except (sqlite3.Error, ErrataError, ValueError, TypeError) as error:
        job.answer.set_exception(_typed(error))


def _fail(group: list[_Job], error: BaseException) -> None:
    for job in group:
        if not job.answer.done():
            job.answer.set_exception(error)


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
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _typed(error: BaseException) -> BaseException:
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
