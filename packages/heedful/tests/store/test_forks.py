"""Processes that are forked while a store is written and read.

A child must be able to write, as the parent must go on, and what both have written must
be there once. SQLite itself forbids to use an open database in a forked process.
"""

import pytest

from conftest import SOAK
from tests.engines import rows, url_of
from tests.store.support import ended, python

FORKS = 3 * SOAK
ROWS_OF_CHILD = 3
# Threads write for most of the time, by an event loop (`loops.begin`) and by the thread
# of the store (`remember`), while the main thread forks. Each child writes by the same
# store. The forks begin after the first writes, which import modules:
# Python leaves a module locked in a child if another thread imports it at the fork.
PROGRAM = """
import asyncio, faulthandler, multiprocessing, os, sys, threading, time
from heedful import Memory
from heedful.lessons.lesson import Scope
from heedful.store import loops, open_store
from heedful.store.records import Head

url, how, forks, rows_of_child = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
store = open_store(url)
memory = Memory(store)
stopping = threading.Event()
THREADS = 4
begun = threading.Barrier(THREADS + 1)
written = []

async def write(name):
    await store.write(Scope(), loops.begin, name, Head(task="a"))
    await memory.remember("E", name)

async def write_on(number):
    turn = 0
    while not stopping.is_set():
        began = time.perf_counter()
        await write(f"parent {number} {turn}")
        if turn == 0:
            begun.wait()
        turn += 1
        await asyncio.sleep((time.perf_counter() - began) / 4)
    written.append(turn)

async def write_as_child(name):
    async with asyncio.timeout(60):
        for row in range(rows_of_child):
            await write(f"{name} {row}")
    await store.close()

def child(name):
    faulthandler.dump_traceback_later(50, exit=True)
    asyncio.run(write_as_child(name))

def fork(name):
    if how == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=child, args=[name])
        process.start()
        return process
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            child(name)
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid

def failed(process):
    if how == "multiprocessing":
        process.join()
        return process.exitcode
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

threads = [
    threading.Thread(target=asyncio.run, args=[write_on(number)])
    for number in range(THREADS)
]
for thread in threads:
    thread.start()
begun.wait()
failures = 0
for number in range(forks):
    time.sleep(0.02)
    process = fork(f"child {number}")
    failures += failed(process) != 0
stopping.set()
for thread in threads:
    thread.join()
assert failures == 0, f"{failures} of {forks} children failed"
print(sum(written) + forks * rows_of_child)
"""
SQLITE_WAYS = ["os.fork", "multiprocessing"]


@pytest.mark.sqlite
@pytest.mark.soak
@pytest.mark.parametrize("way", SQLITE_WAYS)
def test_a_process_forked_while_threads_write_a_file_can_write(tmp_path, way):
    _check_forks(tmp_path / "a.db", way)


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("way", ["os.fork", "multiprocessing"])
def test_a_process_forked_while_threads_write_a_database_can_write(
    tmp_path, engine, way
):
    _check_forks(tmp_path / "a.db", way)


def _check_forks(path, way):
    """Check that all children write, and that nothing is lost or there twice."""
    program = python(PROGRAM, url_of(path), way, FORKS, ROWS_OF_CHILD)
    count = int(ended(program))
    assert rows(path, "select count(*), count(distinct id) from loop") == [
        (count, count)
    ]
    assert rows(path, "select sum(seen) from lesson") == [(count,)]


LONG_WRITE = """
import asyncio, os, subprocess, sys, threading
from heedful.drive.portal import run_sync
from heedful.errors import StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.store import loops, open_store, threads
from heedful.store.records import Head

url, limit = sys.argv[1:]
threads.FORK_WAIT_SECONDS = float(limit)
store = open_store(url)
begun = threading.Event()
going_on = threading.Event()

def write_for_long(db, scope):
    begun.set()
    going_on.wait()
    loops.begin(db, scope, "parent", Head(task="a"))

async def write(name):
    await store.write(Scope(), loops.begin, name, Head(task="a"))

writer = threading.Thread(
    target=asyncio.run, args=[store.write(Scope(), write_for_long)]
)
writer.start()
begun.wait()
"""
FORK_DURING_WRITE = """
if os.fork() == 0:
    try:
        run_sync(write("child"))
    except StoreUnavailable as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
going_on.set()
writer.join()
run_sync(write("parent again"))
"""


def test_a_fork_does_not_wait_for_ever_and_its_child_refuses_the_file(tmp_path):
    program = python(LONG_WRITE + FORK_DURING_WRITE, tmp_path / "a.db", 0.1)
    assert "start processes with the method spawn or forkserver" in ended(program)
    names = rows(tmp_path / "a.db", "select id from loop order by id")
    assert names == [("parent",), ("parent again",)]
