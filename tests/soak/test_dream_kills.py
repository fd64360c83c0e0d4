"""Killed at any moment, a dream is done or it is not, and done it can be undone."""

from __future__ import annotations

import asyncio
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from errata.memory.dreaming import Dreams
from errata.memory.memory import Memory
from errata.protocols import Scope
from tests.conftest import SOAK
from tests.memory.dreamt import dump
from tests.store.support import WAITING, opened, python, rows

# `make test` does the small version, `make soak` the full one.
KILLS = min(30, 3 * SOAK)
GROUPS = 40
# It says "ready", dreams, says "dreamt", takes it back, and says "done".
PROGRAM = """
import asyncio, sys
from errata import Dreams, Memory, Scope, consolidate, open_store

async def main():
    memory = Memory(open_store(sys.argv[1]), Scope("ours"))
    print("ready", flush=True)
    dream = await consolidate(memory)
    print("dreamt", flush=True)
    await Dreams(memory).rollback(dream.id, by="it")
    print("done", flush=True)

asyncio.run(main())
"""


def lessons() -> list[str]:
    """Two of each say the same."""
    words = [chr(97 + n % 26) * (3 + n // 26) for n in range(GROUPS)]
    said = [f"Weigh the {word} parcel and write the {word} weight on its label" for word in words]
    return [text for one in said for text in (one, f"{one} then")]


async def learnt(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """All there is before a dream, and after one that nobody disturbed but for times."""
    with opened(path) as store:
        memory = Memory(store, Scope("ours"))
        for text in lessons():
            await memory.remember("k", text)
        before = await dump(memory)
    return before, {name: len(those) for name, those in before.items()}


def killed(path: Path, chance: random.Random, seconds: float) -> bool:
    """Let it begin, and kill it at any moment; False: it had ended."""
    process = python(PROGRAM, path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    try:
        process.wait(chance.random() * seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    out, err = process.communicate(timeout=WAITING)
    assert not err or "done" not in out, err
    return "done" not in out


async def whole(path: Path, before: dict[str, Any]) -> bool:
    """Whether the last dream is done; all of it is, or nothing, and it is taken back."""
    with opened(path) as store:
        memory = Memory(store, Scope("ours"))
        done = [one for one in await Dreams(memory).log(10_000) if one.undone is None]
        states = [one["state"] for one in await memory.top(10_000)]
        if done:
            (dream,) = done
            assert len(dream.done) == states.count("superseded") == GROUPS
            assert await Dreams(memory).rollback(dream.id, by="test") == GROUPS
        assert await dump(memory) == before
    return bool(done)


@pytest.mark.soak
def test_a_dream_that_is_killed_is_never_half_done(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    before, _ = asyncio.run(learnt(path))
    chance = random.Random(7)
    found = {"killed": 0, "between": 0}
    for _ in range(KILLS):
        found["killed"] += killed(path, chance, 1.5)
        found["between"] += asyncio.run(whole(path, before))
        assert rows(path, "pragma integrity_check") == [("ok",)]
    assert found["killed"] > 0
