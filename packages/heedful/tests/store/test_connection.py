"""One connection on one thread: group commit, failures, cancelling, closing,
forking.
"""

import asyncio
import os
import sqlite3
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import (
    Conflict,
    InvalidInput,
    StoreUnavailable,
    UnknownName,
)
from heedful.store import loops, open_store
from heedful.store.sqlite import Connection, Thread, commit_all, in_file, read_all
from tests.store.support import SCOPE, opened, report, rows, threads


class Counting:
    """Opens connections that keep every statement they ran."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.statements: list[str] = []
        self.opened = 0

    def __call__(self, busy_seconds: float = 0.1) -> Connection:
        db = sqlite3.connect(
            self.path,
            timeout=busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )
        db.busy_seconds = busy_seconds
        db.set_trace_callback(self.statements.append)
        self.opened += 1
        return db

    @property
    def commits(self) -> int:
        return sum(s.lower() == "commit" for s in self.statements)


@pytest.fixture
def counting(tmp_path):
    connect = Counting(tmp_path / "a.db")
    db = connect()
    db.execute("create table t (x integer primary key)")
    db.close()
    connect.statements.clear()
    connect.opened = 0
    return connect


@pytest.fixture
def writer(counting):
    thread = Thread(counting, run=commit_all, busy_seconds=0.1)
    yield thread
    thread.close()


def insert(x: Any, db: sqlite3.Connection) -> int:
    db.execute("insert into t values (?)", (x,))
    return int(x)


def hold(
    started: threading.Event, gate: threading.Event, db: sqlite3.Connection
) -> None:
    started.set()
    assert gate.wait(30)


def read_values(counting: Counting) -> list[int]:
    return [x for (x,) in rows(counting.path, "select x from t order by x")]


async def run_together(writer: Thread, *jobs: Any, cancelled: int = -1) -> list[Any]:
    started = threading.Event()
    gate = threading.Event()
    first = asyncio.ensure_future(writer.submit(partial(hold, started, gate)))
    await asyncio.to_thread(started.wait, 30)
    waiting = [asyncio.ensure_future(writer.submit(job)) for job in jobs]
    await asyncio.sleep(0)
    if cancelled >= 0:
        waiting[cancelled].cancel()
        await asyncio.sleep(0)
    gate.set()
    await first
    return await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize(("waiting", "groups"), [(100, 1), (600, 3)])
async def test_writes_that_wait_are_committed_together_256_at_most(
    writer, counting, waiting, groups
):
    answers = await run_together(writer, *(partial(insert, n) for n in range(waiting)))
    assert answers == read_values(counting) == list(range(waiting))
    assert (
        counting.commits == 1 + groups
    )  # the first one is that which held the others up


class Odd(Exception):
    """An error that nobody foresaw."""


def insert_and_raise(error: BaseException, db: sqlite3.Connection) -> None:
    db.execute("insert into t values (1000)")
    raise error


ERRORS = [
    ValueError("value"),
    Odd("odd"),
    RecursionError("deep"),
    Conflict("conflict"),
    sqlite3.OperationalError("no such thing"),
]
REFUSED = ["text", 2**70, object(), 1]  # what SQLite does not take, or has already
FAILURES = [
    *(partial(insert_and_raise, error) for error in ERRORS),
    *(partial(insert, refused) for refused in REFUSED),
]


def read_or_fail(number: int, db: sqlite3.Connection) -> list[int]:
    if number == 1:
        raise Odd("odd")
    return [x for (x,) in db.execute("select x from t")]


async def test_reads_that_wait_share_a_transaction_and_fail_alone(writer, counting):
    await writer.submit(partial(insert, 7))
    counting.statements.clear()
    reader = Thread(counting, run=read_all, busy_seconds=0.1)
    jobs = [partial(read_or_fail, number) for number in range(3)]
    first, failed, last = await run_together(reader, *jobs)
    reader.close()
    assert first == last == [7]
    assert isinstance(failed, Odd)
    assert counting.statements.count("begin") == 2  # the first held the others up


@pytest.mark.parametrize(
    "failure", FAILURES, ids=lambda job: repr(job.args[0]).split()[0]
)
async def test_one_failing_job_leaves_the_others_whole(writer, counting, failure):
    jobs = [partial(insert, 1), failure, partial(insert, 2)]
    first, failed, second = await run_together(writer, *jobs)
    assert first == 1
    assert second == 2
    assert read_values(counting) == [1, 2]
    assert counting.commits == 2
    assert isinstance(failed, Exception)
    with pytest.raises(type(failed)):  # alone in its group, too
        await writer.submit(failure)
    assert await writer.submit(partial(insert, 7)) == 7


async def test_a_locked_database_fails_the_group_and_then_works_again(writer, counting):
    other = sqlite3.connect(counting.path, isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(StoreUnavailable, match="another process holds the database"):
        await writer.submit(partial(insert, 1))
    other.execute("rollback")
    other.close()
    assert await writer.submit(partial(insert, 1)) == 1
    assert counting.opened == 1


def patience(db: sqlite3.Connection) -> int:
    """Return for how many milliseconds a statement waits for a lock."""
    return int(db.execute("pragma busy_timeout").fetchone()[0])


async def test_after_a_wait_in_vain_waits_are_short_until_work_succeeds(
    writer, counting
):
    assert await writer.submit(patience) == 100
    other = sqlite3.connect(counting.path, isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(StoreUnavailable, match="another process holds the database"):
        await writer.submit(partial(insert, 1))
    other.execute("rollback")
    other.close()
    assert await writer.submit(patience) == 5
    assert await writer.submit(patience) == 100


async def test_a_connection_to_a_file_that_was_held_is_opened_with_a_short_wait(
    writer, counting
):
    other = sqlite3.connect(counting.path, isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(StoreUnavailable):
        await writer.submit(partial(insert, 1))
    other.execute("rollback")
    other.close()
    writer.close()  # the next work opens a connection
    assert await writer.submit(patience) == 5
    assert counting.opened == 2


async def test_a_locked_database_does_not_hold_the_event_loop(tmp_path):
    with opened(tmp_path / "a.db") as store:
        for n in range(9):
            await store.write(SCOPE, loops.commit, report(f"{n}", 1), "me")
        with closing(sqlite3.connect(store.url, isolation_level=None)) as other:
            other.execute("begin immediate")
            waits = asyncio.create_task(
                store.write(SCOPE, loops.commit, report("a", 1), "me")
            )
            await asyncio.sleep(0.05)
            other.execute("rollback")
        await waits
        assert len((await store.read(SCOPE, loops.read, "a")).values) == 1


async def test_a_job_cancelled_while_it_waits_is_not_done(writer, counting):
    answers = await run_together(
        writer, *(partial(insert, n) for n in range(3)), cancelled=1
    )
    assert answers[0::2] == read_values(counting) == [0, 2]
    assert isinstance(answers[1], asyncio.CancelledError)


async def test_closing_finishes_what_was_handed_over_and_opening_again_works(tmp_path):
    others = set(threads())
    store = in_file(str(tmp_path / "a.db"))
    writes = [
        asyncio.create_task(
            store.write(SCOPE, loops.commit, report(f"loop {n}", 1), "me")
        )
        for n in range(9)
    ]
    await asyncio.sleep(0)
    assert all(
        thread.daemon for thread in threads()
    )  # the interpreter ends without them
    await store.close()
    await store.close()
    assert set(threads()) <= others
    await asyncio.gather(*writes)
    assert len((await store.read(SCOPE, loops.newest, limit=99))[0]) == 9
    await store.write(SCOPE, loops.commit, report("more", 1), "me")
    await store.close()
    assert set(threads()) <= others


def test_one_store_a_file_and_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink(tmp_path, tmp_path / "other")
    assert open_store("a.db") is open_store("./a.db")
    assert open_store("a.db") is open_store(str(tmp_path / "other" / "a.db"))
    assert open_store("a.db") is not open_store("b.db")
    assert open_store(":memory:") is not open_store(":memory:")


NO_STORES = {"mysql://x": UnknownName, "sqlite:///a.db": UnknownName, "": InvalidInput}


@pytest.mark.parametrize(
    ("url", "error"), NO_STORES.items(), ids=["MySQL", "a URL of SQLite", "no text"]
)
def test_a_name_that_is_no_store_is_refused(url, error):
    with pytest.raises(error, match=r"store.*a path such as"):
        open_store(url)
