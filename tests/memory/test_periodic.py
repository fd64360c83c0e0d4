"""Dreaming periodically: one after the other, on after a failure, until it is cancelled."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from typing import Any

import heedful
from heedful.memory.dream import Dreams
from heedful.memory.memory import Memory
from tests.memory.dreamt import SAME, TEXT, states


async def dreaming_until(memory: Memory, enough: Callable[[], Any]) -> asyncio.Task[None]:
    """The task, cancelled as soon as that is so."""
    task = asyncio.create_task(heedful.keep_dreaming(memory, 0))
    while not await enough():
        await asyncio.sleep(0)
        assert not task.done()
    task.cancel()
    await asyncio.wait([task])
    return task


def dreams(memory: Memory, count: int) -> Callable[[], Any]:
    async def enough() -> bool:
        return len(await Dreams(memory).log()) >= count

    return enough


def test_it_dreams_in_full_again_and_again_until_it_is_cancelled(memory):
    async def run():
        for text in (TEXT, SAME, "Ask for the colour"):
            await memory.remember("k", text, importance=0.7)
        task = await dreaming_until(memory, dreams(memory, 3))
        return task, await Dreams(memory).log(), await states(memory)

    task, log, lessons = asyncio.run(run())
    assert task.cancelled()
    assert {one.mode for one in log} == {"full"}
    assert [len(one.done) for one in log[::-1]] == [1] + [0] * (len(log) - 1)
    assert sorted(lessons.values()) == ["candidate", "candidate", "superseded"]


def test_a_store_that_fails_is_logged_and_the_next_dream_comes(memory, path, caplog):
    def rename(old: str, new: str) -> None:
        db = sqlite3.connect(path)
        db.execute(f"alter table {old} rename to {new}")
        db.close()

    async def failed() -> bool:
        if len(caplog.records) < 2:
            return False
        if not mended:
            rename("away", "dream")
            mended.append(True)
        return bool(await dreams(memory, 1)())

    mended: list[bool] = []

    async def run():
        await memory.remember("k", TEXT, importance=0.7)
        rename("dream", "away")
        return await dreaming_until(memory, failed)

    with caplog.at_level(logging.WARNING, "heedful"):
        assert asyncio.run(run()).cancelled()
    told: Any = caplog.records[0]
    assert (told.message, told.error) == ("dream_failed", "StoreError")
    assert "consolidate" in told.traceback
    assert TEXT not in caplog.text
