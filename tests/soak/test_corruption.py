"""Bytes of a database change on the disk: what is read is right, or a typed error.

A page of SQLite has no checksum, so a changed letter of a text is read as it stands.
But no file, however damaged, crashes or hangs a reader, raises an error that is not
typed, or shows a tenant what belongs to another.
"""

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import heedful
from conftest import SOAK
from heedful.errors import StoreError
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.store import episodes, loops as loop_store
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from tests.memory.reflections import FAILED
from tests.soak.ledger import Ledger
from tests.store.support import report

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
SEEDS = 6 if SOAK == 1 else 2 * SOAK
LOOPS = 12
OURS = Scope("ours", "main")
THEIRS = Scope("theirs", "main")
SECRET = "SECRET-OF-THEIRS"
HEADER_BYTES = 100  # of a file; another application id is another program's file
MAX_READ_SECONDS = 30.0


async def _fill(path: Path) -> None:
    """Write loops, lessons and an episode of two tenants."""
    store = in_file(str(path))
    for scope, word in ((OURS, "ours"), (THEIRS, SECRET)):
        memory = Memory(store, scope)
        for number in range(LOOPS):
            entry = report(f"{word} {number}", 1, f"{word} output {number}")
            await store.write(scope, loop_store.commit, entry, "me")
            await memory.remember(
                "ValueError", f"{word} weighs {number} kg", lesson=f"{word} first"
            )
        await heedful.reflect(FAILED, memory=memory, origin="user")
    await store.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma wal_checkpoint(truncate)")


def _damage(original: Path, path: Path, chance: random.Random) -> str:
    """Copy a file and change the copy in one of several ways; return which."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    content = bytearray(original.read_bytes())
    page = 4096
    pages = len(content) // page
    way = chance.choice(["bits", "zeros", "swap", "cut", "noise"])
    start = chance.randrange(1, pages) * page
    if way == "bits":
        for _ in range(chance.randint(1, 60)):
            place = chance.randrange(HEADER_BYTES, len(content))
            content[place] ^= 1 << chance.randrange(8)
    elif way == "zeros":
        content[start : start + page] = bytes(page)
    elif way == "swap":
        other = chance.randrange(1, pages) * page
        first = content[start : start + page]
        content[start : start + page] = content[other : other + page]
        content[other : other + page] = first
    elif way == "cut":
        del content[start:]
    else:
        length = chance.randint(1, 2 * page)
        content[start : start + length] = chance.randbytes(length)
    path.write_bytes(bytes(content))
    return way


def _reads(store: Store) -> list[Callable[[], Awaitable[Any]]]:
    """What people and programs of one tenant read."""
    memory = Memory(store, OURS)

    async def read_loops() -> Any:
        loops, _ = await store.read(OURS, loop_store.newest, limit=99)
        return [await store.read(OURS, loop_store.read, row.id) for row in loops]

    async def write() -> Any:
        await memory.remember("KeyError", "nobody has the colour")
        return await memory.seen("KeyError", "nobody has the colour")

    return [
        read_loops,
        memory.count,
        lambda: memory.top(99),
        lambda: memory.recall("weighs"),
        lambda: memory.seen("ValueError", "ours weighs 7 kg"),
        memory.quarantine.waiting,
        lambda: store.read(OURS, episodes.counts),
        lambda: store.read(OURS, episodes.page, 9, whole=True),
        write,
    ]


async def _read_all(path: Path) -> tuple[list[str], int]:
    """Return what was read, as texts, and the number of typed errors."""
    texts = []
    errors = 0
    store = in_file(str(path))
    try:
        for read in _reads(store):
            try:
                async with asyncio.timeout(MAX_READ_SECONDS):
                    texts.append(repr(await read()))
            except StoreError as error:
                texts.append(str(error))
                errors += 1
    finally:
        await store.close()
    return texts, errors


async def test_a_damaged_file_is_read_right_or_said_to_be_damaged(
    tmp_path: Path, ledger: Ledger
) -> None:
    original = tmp_path / "whole.db"
    await _fill(original)
    first = random.randrange(2**32) if SOAK > 1 else 1
    path = tmp_path / "a.db"
    leaked = 0
    errors = 0
    for seed in range(first, first + SEEDS):
        way = _damage(original, path, random.Random(seed))
        try:
            texts, failed = await _read_all(path)
        except Exception as error:
            error.add_note(f"seed {seed}, {way}")
            raise
        leaked += any(SECRET in text for text in texts)
        errors += failed > 0

    print(f"{SEEDS} damaged files, {errors} of them said so")
    ledger.settle(
        what="bytes, pages or the end of a database changed on the disk",
        note=f"{errors} of {SEEDS} files were said to be damaged",
        engine="SQLite",
        times=SEEDS,
        seed=first,
        leaked=leaked,
    )
