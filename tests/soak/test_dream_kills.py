"""Killed at any moment, a dream is done or it is not, and done it can be undone."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.memory.dream import Dreams
from heedful.memory.memory import Memory
from tests.conftest import SOAK
from tests.memory.dreamt import dump
from tests.store.support import WAITING, opened, python, rows

# `make test` does the small version, `make soak` the full one.
KILLS = min(30, 2 * SOAK)
GROUPS = 40
# It says "ready", dreams, says "dreamt" and lets that stand, takes it back, and so on until it is
# killed.
PROGRAM = """
import asyncio, sys
from heedful import Dreams, Memory, Scope, consolidate, open_store

async def main():
    memory = Memory(open_store(sys.argv[1]), Scope("ours"))
    print("ready", flush=True)
    while True:
        dream = await consolidate(memory)
        print("dreamt", flush=True)
        await asyncio.sleep(0.05)
        await Dreams(memory).rollback(dream.id, by="it")

asyncio.run(main())
"""


def lessons() -> list[str]:
    """Two of each say the same."""
    words = [chr(97 + n % 26) * (3 + n // 26) for n in range(GROUPS)]
    said = [f"Weigh the {word} parcel and write the {word} weight on its label" for word in words]
    return [text for one in said for text in (one, f"{one} then")]


async def learnt(path: Path) -> dict[str, Any]:
    """All there is before a dream."""
    with opened(path) as store:
        memory = Memory(store, Scope("ours"))
        for text in lessons():
            await memory.remember("k", text)
        return await dump(memory)


def killed(path: Path, chance: random.Random) -> None:
    """Let it begin, and kill it at any moment, or soon after a dream is done."""
    process = python(PROGRAM, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    if soon := chance.random() < 0.5:
        assert process.stdout.readline() == "dreamt\n"
    time.sleep(chance.uniform(0, 0.05 if soon else 1.0))
    assert process.poll() is None, process.communicate()
    process.kill()
    process.communicate(timeout=WAITING)


async def whole(path: Path, before: dict[str, Any]) -> bool:
    """Whether the last dream is done; all of it is, or nothing, and it is taken back."""
    with opened(path) as store:
        memory = Memory(store, Scope("ours"))
        done = [one for one in await Dreams(memory).log(10_000) if one.undone is None]
        states = [one["state"] for one in await memory.top(10_000)]
        if done:
            (dream,) = done
            gone = sum(len(one.members) for one in dream.done)
            assert gone == states.count("superseded") >= GROUPS // 2
            assert await Dreams(memory).rollback(dream.id, by="test") == gone
        assert await dump(memory) == before
    return bool(done)


@pytest.mark.soak
def test_a_dream_that_is_killed_is_never_half_done(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    before, chance, between = asyncio.run(learnt(path)), random.Random(7), 0
    for _ in range(KILLS):
        killed(path, chance)
        between += asyncio.run(whole(path, before))
        assert rows(path, "pragma integrity_check") == [("ok",)]
    assert SOAK == 1 or 0 < between < KILLS
