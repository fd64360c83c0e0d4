"""Proof through the driver: harm retires, help ranks, nothing else moves; and kill -9 between."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.lessons.lesson import Example, Exposure, Outcome, Reflection, Scope
from heedful.lessons.ranking import FIRST, is_pooled, is_withheld
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import exposures
from heedful.store.store import Store
from tests.conftest import SOAK
from tests.soak.killing import killed_until_done
from tests.store.support import opened, rows

pytestmark = pytest.mark.soak
SCOPE = Scope()
SEED = "default\0default"
TASK = "Convert the length of plank {n} into the house format"
GAINS = {"good": 0.35, "bad": -0.4, "idle": 0.0}
RIGHT = "right " * 1_000  # too long to be learnt, so that the lessons stay these three


def lesson(name: str) -> Reflection:
    example = Example(TASK.format(n=name), f"{name} answer")
    mark = signature("house", name)
    return Reflection("check", mark, "house", name, name, example=example, state="verified")


def name_of(lesson: str) -> str:
    return f"check/{signature('house', lesson).digest}"


async def answer(task: str, hint: str) -> str:
    at = heedful.context()
    if at.attempt > 1:
        return RIGHT
    shown = [turn.content.split()[0] for turn in at.examples[1::2]]
    rate = 0.5 + sum(GAINS[name] for name in shown)
    return RIGHT if random.Random(f"answer {at.loop_id}").random() < rate else "wrong"


def check(candidate: str, at: heedful.Context) -> list[heedful.Finding]:
    wrong = heedful.Finding("house", "not the house format", key="bad")
    return [] if candidate == RIGHT else [wrong]


check.pure = True  # type: ignore[attr-defined]


async def lived(path: Path, run: int, loops: int, holdout: float) -> dict[str, Any]:
    """A scope from its first loop on; its lessons in the end, and what the proof says."""
    with opened(path) as store:
        await store.write(SCOPE, exposures.remember, [lesson(name) for name in GAINS])
        memory = Memory(store, holdout=holdout)
        options: dict[str, Any] = {"generate": answer, "checks": [check], "store": store}
        for n in range(loops):
            await heedful.run(
                TASK.format(n=f"number {n}"), memory=memory, id=f"{run}/{n}", **options
            )
        found = {one["text"]: one for one in await memory.top()}
        ranked = [one.lesson for one in await memory.recall(TASK.format(n="number 0"), 1)]
        return {"lessons": found, "proof": await memory.prove(), "first": ranked[0]}


def test_what_harms_is_retired_what_helps_ranks_first_and_what_is_idle_stays(tmp_path):
    for seed in range(max(1, SOAK // 10)):
        path = tmp_path / f"{seed}.db"
        found = asyncio.run(lived(path, seed, 500, 0.5))
        lessons, said = found["lessons"], {one.lesson: one for one in found["proof"].lessons}
        assert lessons["bad"]["state"] == "retired"
        assert said[name_of("bad")].conclusion == "hurts"
        assert lessons["good"]["useful"] > 1
        assert said[name_of("good")].conclusion == "helps"
        assert found["first"] == "good"
        assert lessons["idle"]["state"] == lessons["good"]["state"] == "verified"
        assert rows(path, "select action, subject, by from ruling") == [
            ("retire", name_of("bad"), "proof")
        ]
        # From the retirement on it was in no prompt, so in none of the last 100 loops.
        counts = dict(rows(path, "select signature, count(*) from exposure group by signature"))
        assert counts[name_of("bad")[6:]] < 400 < counts[name_of("good")[6:]]
        assert lessons["bad"]["hurt"] > lessons["bad"]["helped"]
        assert found["proof"].pooled.fair
        assert found["proof"].pending == 0


DRIVING = """
import asyncio, os, sys, random
import heedful
from heedful.memory.memory import Memory
from tests.soak.test_proof_driven import SCOPE, TASK, answer, check
from tests.store.support import opened

async def main(path, other, loops, seed):
    chance = random.Random(int(seed))
    async def slow(task, hint):
        await asyncio.sleep(chance.random() * 0.002)
        return await answer(task, hint)
    print("ready", flush=True)
    async def one(n):
        await heedful.run(TASK.format(n=n), generate=slow, checks=[check], store=store,
                         memory=memory, id=f"k/{n}")
    with opened(path) as store, opened(other) as apart:
        memory = Memory(store if other == path else apart, holdout=0.5)
        for n in range(0, int(loops), 4):
            await asyncio.gather(*(one(n + k) for k in range(4)))
    print("done", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def begun(store: Store) -> None:
    """A memory whose first loops are over, so that a coin decides."""
    await store.write(SCOPE, exposures.remember, [lesson(name) for name in GAINS])
    for n in range(FIRST):
        shown = [Exposure("check/none", f"first {n}", True, "none", 0.0)]
        await store.write(
            SCOPE, exposures.remember, (), exposures=shown, outcome=Outcome(f"first {n}", True, 1)
        )


@pytest.mark.parametrize("kind", ["same store", "another store"])
def test_killed_anywhere_each_loop_has_its_exposures_and_its_outcome_once(tmp_path, kind):
    chance, loops = random.Random(SOAK), 8 + 4 * SOAK
    path = tmp_path / "a.db"
    other = path if kind == "same store" else tmp_path / "memory.db"
    with opened(other) as store:
        asyncio.run(begun(store))
    given = (DRIVING, path, other, loops)
    assert killed_until_done(*given, chance=chance, seconds=0.1) > 0
    ends = rows(other, "select loop, n, right_at_once, signatures from outcome order by n")
    assert [n for _, n, *_ in ends] == list(range(1, FIRST + loops + 1))
    assert {loop for loop, *_ in ends[FIRST:]} == {f"k/{n}" for n in range(loops)}
    helped, hurt = Counter[str](), Counter[str]()
    say = "select loop, kind || '/' || signature, shown, share from exposure where share > 0"
    exposed = rows(other, say)
    assert {loop for loop, *_ in exposed} == {f"k/{n}" for n in range(loops)}
    result = {loop: (right, wrong) for loop, _, right, wrong in ends}
    for loop, lesson_name, shown, share in exposed:
        assert shown == (not is_withheld(SEED, loop, lesson_name, share))
        right, wrong = result[loop]
        helped[lesson_name] += shown and right
        hurt[lesson_name] += shown and lesson_name[6:] in wrong
    found = rows(other, "select kind || '/' || signature, helped, hurt from reflection")
    assert found == [(name, helped[name], hurt[name]) for name, *_ in found]
    wholes = rows(other, "select distinct loop, together from exposure where share > 0")
    assert all(whole == is_pooled(SEED, loop) for loop, whole in wholes)
