"""Inline runs: a store works on the thread of its caller, without an event loop."""

import asyncio
import os
import sqlite3
import threading
from contextlib import closing

import pytest

from conftest import close_stores
from heedful import Memory
from heedful.errors import StoreUnavailable
from heedful.lessons.scope import Scope
from heedful.store import open_store, session_marks
from heedful.store.connection import Db, holds
from heedful.store.inline import in_thread, run_inline
from tests.store.support import ended, python, threads

SECONDS = 60.0


def thread_of(db: Db, scope: Scope) -> int:
    """Return the thread that runs a read or a write."""
    return threading.get_ident()


@holds()
def mark_and_fail(db: Db, scope: Scope) -> None:
    session_marks.mark(db, scope, "one", ["undone"])
    raise LookupError("odd")


async def find_marks(memory: Memory) -> set[str]:
    marks = {"kept", "undone"}
    return set(await memory.store.read(Scope(), session_marks.find, "one", marks))


async def use(memory: Memory) -> set[str]:
    """Write, fail to write, and return what is written."""
    write = memory.store.write
    await write(Scope(), session_marks.mark, "one", ["kept"])
    with pytest.raises(LookupError, match="odd"):
        await write(Scope(), mark_and_fail)
    return await find_marks(memory)


def test_a_store_works_on_the_thread_of_an_inline_run(path):
    memory = Memory(str(path))
    before = len(threads())
    assert run_inline(use(memory), SECONDS) == {"kept"}
    work = memory.store.read(Scope(), thread_of)
    assert run_inline(work, SECONDS) == threading.get_ident()
    assert len(threads()) == before


def test_a_store_serves_an_inline_run_and_an_event_loop(path):
    memory = Memory(str(path))
    assert asyncio.run(use(memory)) == {"kept"}
    assert run_inline(find_marks(memory), SECONDS) == {"kept"}
    assert asyncio.run(memory.store.read(Scope(), thread_of)) != threading.get_ident()


def test_a_closed_store_has_no_connection_of_an_inline_run(path):
    run_inline(use(Memory(str(path))), SECONDS)
    close_stores()
    # The last connection to a file removes its log.
    assert not os.path.exists(f"{path}-wal")


def test_an_inline_run_waits_for_a_lock_as_long_as_it_may(path):
    memory = Memory(str(path))
    run_inline(use(memory), SECONDS)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(StoreUnavailable, match="another process holds"):
            run_inline(use(memory), 0.05)
    assert run_inline(find_marks(memory), SECONDS) == {"kept"}


def patience(db: Db, scope: Scope) -> int:
    """Return for how many milliseconds a statement waits for a lock."""
    return int(db.execute("pragma busy_timeout").fetchone()[0])


@pytest.mark.parametrize(
    ("seconds", "least", "most"),
    [
        pytest.param(2.0, 1_000, 2_000, id="no longer than the run"),
        pytest.param(600.0, 20_000, 20_000, id="no longer than any work"),
        pytest.param(0.0, 0, 0, id="not at all without time"),
    ],
)
def test_a_statement_of_an_inline_run_waits(path, seconds, least, most):
    work = open_store(str(path)).read(Scope(), patience)
    assert least <= run_inline(work, seconds) <= most


def test_an_inline_run_that_waits_for_a_loop_is_refused():
    class Answer:
        def __await__(self):
            yield

    async def wait() -> None:
        await Answer()

    with pytest.raises(RuntimeError, match=r"wait .*run it with asyncio\.run"):
        run_inline(wait(), SECONDS)


def test_a_computation_of_an_inline_run_has_no_thread():
    assert run_inline(in_thread(threading.get_ident), SECONDS) == threading.get_ident()
    assert asyncio.run(in_thread(threading.get_ident)) != threading.get_ident()


FORK = """
import os, sys
from heedful import Memory
from heedful.store.inline import run_inline

memory = Memory(sys.argv[1])
run_inline(memory.remember("E", "before"), 60)
child = os.fork()
run_inline(memory.remember("E", "child" if child == 0 else "parent"), 60)
if child == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(run_inline(memory.count(), 60))
"""


def test_a_process_forks_between_inline_runs(path):
    out = ended(python(FORK, path))
    assert out.strip() == "3"
