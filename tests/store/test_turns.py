"""Turns: one holder a key, in order, whoever is cancelled when, from any event loop."""

from __future__ import annotations

import asyncio
import threading

from hypothesis import given
from hypothesis import strategies as st

from heedful.store.postgres import Turns

KEYS = ["a", "b", "c"]
Plan = list[tuple[frozenset[str], bool]]


async def held(turns: Turns, keys: list[str], log: list[str], name: str) -> None:
    await turns.take(keys)
    log.append(f"{name} in")
    await asyncio.sleep(0)
    log.append(f"{name} out")
    turns.give(keys)


async def test_one_after_the_other_in_the_order_in_which_they_came():
    turns, log = Turns(), list[str]()
    await turns.take(["a"])
    tasks = [asyncio.create_task(held(turns, ["a"], log, name)) for name in "xyz"]
    await held(turns, ["b"], log, "other")  # which waits for none of them
    turns.give(["a"])
    await asyncio.gather(*tasks)
    order = ["other", *"xyz"]
    assert log == [f"{name} {what}" for name in order for what in ("in", "out")]
    assert turns._waiting == {}


plans = st.lists(st.tuples(st.frozensets(st.sampled_from(KEYS)), st.booleans()), max_size=12)


@given(plans, st.integers(0, 5))
def test_nobody_shares_a_key_and_none_is_lost(plan: Plan, pause: int) -> None:
    """Each names its keys in one order; some are cancelled a few steps of the loop later."""
    inside: set[str] = set()

    async def one(turns: Turns, keys: list[str]) -> None:
        await turns.take(keys)
        assert not inside & set(keys)
        inside.update(keys)
        try:
            await asyncio.sleep(0)
        finally:
            inside.difference_update(keys)
            turns.give(keys)

    async def scenario() -> None:
        turns = Turns()
        tasks = []
        for keys, cancelled in plan:
            tasks.append(asyncio.create_task(one(turns, sorted(keys))))
            for _ in range(pause):
                await asyncio.sleep(0)
            if cancelled:
                tasks[len(tasks) // 2].cancel()
        done = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)
        assert [one for one in done if isinstance(one, Exception)] == []
        assert turns._waiting == {}

    asyncio.run(scenario())


def test_from_several_event_loops():
    turns, inside, most = Turns(), threading.Semaphore(1), 50

    async def many() -> None:
        for _ in range(most):
            await turns.take(["a"])
            assert inside.acquire(blocking=False)
            await asyncio.sleep(0)
            inside.release()
            turns.give(["a"])

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert turns._waiting == {}
