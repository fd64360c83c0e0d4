"""Imports that are killed, repeated, or made at the same time; exports while others write."""

from __future__ import annotations

import asyncio
import subprocess
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from heedful.lessons.lesson import Example
from heedful.memory.memory import Memory
from heedful.memory.transfer import RECORDS
from heedful.store import transfer
from tests.memory.transfers import exported, fresh, full, moved, only, records
from tests.store.support import ended, opened, python, rows

IMPORTER = """
import asyncio, sys
from heedful.memory.memory import Memory
from heedful.store.sqlite import in_file

def progress(what, done, total):
    print(what, flush=True)
    if what == "importing" and sys.argv[3] == "waits":
        sys.stdin.readline()

async def main():
    store = in_file(sys.argv[1])
    own = {"trust": "operator", "by": "ada", "why": "mine"}
    done = await Memory(store).import_(sys.argv[2], progress=progress, **own)
    print(done.new, done.known)
    await store.close()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def data() -> bytes:
    """The export of more lessons than one transaction holds."""

    async def scenario() -> bytes:
        memory = await full()
        for n in range(RECORDS):
            name = "".join("abcdefghij"[int(digit)] for digit in str(n))
            await memory.remember("E", f"error '{name}'", example=Example(f"task {name}", "done"))
        return await exported(memory)

    return asyncio.run(scenario())


@pytest.fixture
def file(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "lessons.jsonl"
    path.write_bytes(data)
    return path


def begun(db: Path, file: Path, batches: int) -> subprocess.Popen[str]:
    """An import that has written so many batches and waits."""
    process = python(IMPORTER, db, file, "waits")
    assert process.stdin is not None
    assert process.stdout is not None
    importing = 0
    while importing <= batches:
        importing += process.stdout.readline() == "importing\n"
        if 0 < importing <= batches:
            process.stdin.write("\n")
            process.stdin.flush()
    return process


@pytest.mark.parametrize("batches", [0, 2])
def test_killed_in_the_middle_it_is_repeated_without_harm(tmp_path, data, file, batches):
    db = tmp_path / "a.db"
    process = begun(db, file, batches)
    process.kill()
    process.communicate()
    there = rows(db, "select count(*) from reflection")[0][0] if batches else 0
    assert (there > 0) == (batches > 0)
    new, known = map(int, ended(python(IMPORTER, db, file, "goes on")).split()[-2:])
    assert (known, new) == (there, len(only(records(data), "lesson")) - there)
    with opened(db) as store:
        assert asyncio.run(exported(Memory(store))) == data


def test_two_imports_at_once_are_one_and_what_is_seen_meanwhile_counts_too(tmp_path, data, file):
    db = tmp_path / "a.db"
    two = [begun(db, file, 1) for _ in range(2)]
    with opened(db) as store:
        asyncio.run(Memory(store).remember("E", "error 'a'"))
    for process in two:
        out, err = process.communicate("\n" * 100, timeout=60)
        assert process.returncode == 0, err
        assert out
    with opened(db) as store:
        memory = Memory(store)
        assert [asyncio.run(memory.seen("E", f"error '{n}'")).count for n in "ae"] == [2, 1]
        assert asyncio.run(memory.count()) == len(only(records(data), "lesson"))


def test_an_export_is_as_of_one_moment(tmp_path):
    """What is learnt while it is written is not in it, and nobody waits for it."""

    async def scenario(memory: Memory) -> None:
        await moved(await exported(await full()), memory)
        before = await exported(memory)
        learnt: list[Any] = []
        loop = asyncio.get_running_loop()

        def progress(what: str, done: int, total: int) -> None:
            one = memory.remember("E", f"learnt meanwhile {'x' * done}")
            learnt.append(asyncio.run_coroutine_threadsafe(one, loop).result(30))

        file = BytesIO()
        await memory.export(file, progress=progress)
        assert file.getvalue() == before
        assert await memory.count() == 2 * len(learnt) > 0

    with opened(tmp_path / "a.db") as store:
        asyncio.run(scenario(Memory(store)))


async def test_what_is_forgotten_while_it_comes_stays_forgotten():
    """A record of a lesson that is gone again does no harm."""
    memory = fresh()
    kinds = (transfer.ExampleRecord, transfer.SightingRecord)
    lines = (await exported(await full())).splitlines()
    found = [one for one in map(transfer.decode, lines) if isinstance(one, kinds)]
    args = (found, "import:x", "ada", "mine")
    effects, _ = await memory.store.write(memory.scope, transfer.import_records, *args)
    assert (set(effects), await memory.count()) == ({False}, 0)
