"""Many processes and threads on one file."""

from __future__ import annotations

import asyncio
import random

import pytest

from heedful.drive.drive import Run
from heedful.errors import LeaseLost
from heedful.lessons.lesson import Scope
from heedful.store import loops as loop_store
from heedful.store.sqlite import in_file
from tests.conftest import SOAK
from tests.drive.support import FOUR, Check
from tests.store.support import ended, python, rows

pytestmark = pytest.mark.soak
SCOPE = Scope()

REMEMBERING = """
import asyncio, sys
import heedful

async def main(path, times):
    memory = heedful.Memory(path)
    for n in range(times):
        answer = await memory.remember("ValueError", f"line {n}: could not convert {n}.5 to int")
        print(answer.id, answer.created, answer.seen)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def test_the_same_lesson_104_times_from_8_processes_is_one_row_seen_104(tmp_path):
    path, times = tmp_path / "a.db", 13 * SOAK
    processes = [python(REMEMBERING, path, times) for _ in range(8)]
    answers = [line.split() for process in processes for line in ended(process).splitlines()]
    ((id, seen),) = rows(path, "select id, seen from reflection")
    assert (seen, rows(path, "select count(*) from occurrence")) == (8 * times, [(8 * times,)])
    # Each was acknowledged once, with a count of its own.
    acknowledged = sorted((int(seen), created) for _, created, seen in answers)
    assert acknowledged == [(n, str(n == 1)) for n in range(1, 8 * times + 1)]
    assert {int(known) for known, *_ in answers} == {id}


CONTENDING = """
import asyncio, sys
import heedful
from heedful.errors import LeaseLost

async def main(path, name):
    async def generate(task, hint):
        await asyncio.sleep(0)
        return f"{name} {heedful.context().attempt}"
    def check(candidate, at):
        return [heedful.Finding("c", "again")]
    policy = heedful.Policy((heedful.MaxAttempts(4),))
    refused = 0
    for n in range(int(sys.argv[3])):
        while True:
            try:
                result = await heedful.run(f"{n}", generate=generate, checks=[check], store=path,
                                          policy=policy, id=f"loop {n}")
                assert len(result.loop.attempts) == 4
                break
            except LeaseLost:
                refused += 1
                await asyncio.sleep(0.001)
    print(refused)

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


def test_processes_that_contend_for_the_same_loops_double_nothing(tmp_path):
    path, loops = tmp_path / "a.db", 5 * SOAK
    processes = [python(CONTENDING, path, name, loops) for name in "abc"]
    for process in processes:
        ended(process)
    assert rows(path, "select count(*), max(number) from attempt") == [(4 * loops, 4)]
    assert rows(path, "select count(*) from decision") == [(4 * loops,)]


def test_cancelled_at_random_moments_a_loop_is_never_doubled(tmp_path):
    chance = random.Random(SOAK)
    store = in_file(str(tmp_path / "a.db"))

    async def generate(task: object, hint: str) -> str:
        await asyncio.sleep(0)
        return f"{hint} {chance.random()}"

    async def scenario(round: int) -> None:
        named = f"loop {round}" if round % 2 else ""
        one = Run[str]("t", generate=generate, checks=[Check()], policy=FOUR, store=store, id=named)
        while True:
            task = asyncio.create_task(one.finish())
            await asyncio.wait([task], timeout=chance.random() * 0.004)
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                break
        stored = await store.read(SCOPE, loop_store.read, one.id)
        assert stored.loop.attempts == task.result().loop.attempts
        assert (len(stored.values), len(stored.verdicts), stored.journal) == (4, 4, {})

    async def scenarios() -> None:
        for round in range(20 * SOAK):
            await scenario(round)
        assert len(await store.read(SCOPE, loop_store.newest, 10**6)) == 20 * SOAK
        await store.close()

    asyncio.run(scenarios())


def test_two_sessions_in_one_process_step_at_random_and_agree(tmp_path):
    chance = random.Random(SOAK)
    store = in_file(str(tmp_path / "a.db"))

    async def generate(task: object, hint: str) -> str:
        await asyncio.sleep(chance.random() * 0.002)
        return f"{chance.random()}"

    async def drive(id: str) -> int:
        lost = 0
        one = Run[str]("t", generate=generate, checks=[Check()], policy=FOUR, store=store, id=id)
        while True:
            try:
                result = await one.finish()
            except LeaseLost:
                lost += 1
                await asyncio.sleep(chance.random() * 0.004)
            else:
                assert len(result.loop.attempts) == 4
                return lost

    async def scenarios() -> None:
        for round in range(4 * SOAK):
            await asyncio.gather(*(drive(f"loop {round}") for _ in range(3)))
        stored = await store.read(SCOPE, loop_store.newest, 10**6)
        assert [(len(s.values), len(s.verdicts)) for s in stored] == [(4, 4)] * (4 * SOAK)
        await store.close()

    asyncio.run(scenarios())
