"""kill -9 at random moments: nothing acknowledged is lost, half written or doubled."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import time
from collections import Counter

import pytest

from heedful.lessons.lesson import Scope
from heedful.loop.decide import Done
from heedful.store import loops as loop_store
from tests.conftest import SOAK
from tests.soak.killing import killed_until_done
from tests.store.support import WAITING, ended, opened, python, rows

pytestmark = pytest.mark.soak
SCOPE = Scope()

COMMITTING = """
import asyncio, os, sys
from heedful.loop.record import Candidate
from heedful.lessons.learn import Reflection
from heedful.lessons.signature import signature
from heedful.store import loops
from tests.store.support import *

async def main(path):
    lesson = Reflection("check", signature("E", "x"), "E", "x", "x", state="verified")
    with opened(path) as store:
        async def loop(id):
            for number in range(1, 10_000):
                entry = report(id, number, f"{id} {number}", reflections=[lesson])
                await store.write(SCOPE, loops.commit, entry, "me")
                os.write(1, f"{id} {number}\\n".encode())
        await asyncio.gather(*(loop(f"{os.getpid()}-{n}") for n in range(3)))

asyncio.run(main(sys.argv[1]))
"""


def killed(process: subprocess.Popen[str], seconds: float) -> str:
    """What it wrote until it was killed, that long after its first line."""
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(seconds)
    process.kill()
    rest, err = process.communicate(timeout=WAITING)
    assert not err, err
    return first + rest


def test_what_was_acknowledged_is_there_and_nothing_is_half_written(tmp_path):
    path, chance = tmp_path / "a.db", random.Random(SOAK)
    acknowledged: set[tuple[str, int]] = set()
    for _ in range(3 * SOAK):
        said = killed(python(COMMITTING, path), chance.random() * 0.1)
        whole = said.rpartition("\n")[0].splitlines()
        acknowledged |= {(id, int(number)) for id, number in map(str.split, whole)}
    stored = rows(path, "select l.id, a.number from attempt a join loop l on l.n = a.loop")
    assert acknowledged <= set(stored)
    assert rows(path, "pragma integrity_check") == [("ok",)]
    for what in ("decision", "occurrence"):  # written with the attempt or not at all
        assert rows(path, f"select count(*) from {what}") == [(len(stored),)]
    assert rows(path, "select seen from reflection") == [(len(stored),)]
    numbers: dict[str, set[int]] = {}
    for id, number in stored:
        numbers.setdefault(id, set()).add(number)
    assert all(found == set(range(1, len(found) + 1)) for found in numbers.values())


DRIVING = """
import asyncio, json, os, random, sys, time
import heedful
from heedful import Answer, Budget, Evaluation, Finding, MaxAttempts, Policy, Usage

path, log, pure, seed = sys.argv[1], sys.argv[2], sys.argv[3] == "pure", int(sys.argv[4])
chance = random.Random(seed)

def note(kind):
    at = heedful.context()
    line = json.dumps([kind, at.loop_id, at.attempt]) + "\\n"
    fd = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    os.write(fd, line.encode())
    os.close(fd)

async def generate(task, hint):
    await asyncio.sleep(chance.random() * 0.004)
    note("generate")
    return Answer(f"{task} {heedful.context().attempt}", Usage(1, 5, 5, 0.25))

async def check(candidate, at):
    if not pure:
        await asyncio.sleep(chance.random() * 0.004)
    note("check")
    return [] if at.attempt == 5 and at.task != "t0" else [Finding("c", "not yet")]

check.pure = pure
policy = Policy((MaxAttempts(9), Budget(calls=6)))

async def main():
    print("ready", flush=True)
    await asyncio.gather(*(
        heedful.run(f"t{n}", generate=generate, checks=[check], policy=policy, store=path,
                   memory=path, id=f"loop {n}") for n in range(3)))
    print("done", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["pure", "impure"])
def test_a_killed_driver_resumes_and_no_count_is_doubled(tmp_path, kind):
    chance = random.Random(SOAK)
    for round in range(SOAK):
        path, log = tmp_path / f"{round}.db", tmp_path / f"{round}.log"
        given = (DRIVING, path, log, kind)
        kills = killed_until_done(*given, chance=chance, seconds=0.03)
        calls = Counter(tuple(json.loads(line)) for line in log.read_text().splitlines())
        with opened(path) as store:
            loops = asyncio.run(store.read(SCOPE, loop_store.newest, 9))
        assert len(loops) == 3
        for stored in loops:
            loop, last = stored.loop, stored.verdicts[-1]
            assert isinstance(last, Done)
            assert last.passed is (loop.id != "loop 0")
            assert len(loop.attempts) == (6 if loop.id == "loop 0" else 5)
            assert loop.usage.calls == len(loop.attempts) <= 6  # the budget, never exceeded
            assert loop.usage.tokens == 10 * len(loop.attempts)
            assert loop.usage.cost == 0.25 * len(loop.attempts)
            assert len(stored.verdicts) == len(loop.attempts)
            assert stored.journal == {}
            made = [calls["generate", loop.id, a.number] for a in loop.attempts]
            assert min(made) >= 1
            # Only a call that was in flight when it was killed was made again.
            assert sum(made) - len(made) <= kills
        # What was learnt was learnt once: one lesson, seen by the two loops that passed.
        assert rows(path, "select kind, seen from reflection") == [("check", 2)]


def test_a_journalled_answer_is_never_asked_for_again(tmp_path):
    """Killed inside the check, after the answer was written down: the generator is not called."""
    program = DRIVING.replace('note("check")', 'note("check"); time.sleep(60)', 1)
    path, log = tmp_path / "a.db", tmp_path / "a.log"
    for _ in range(2):
        process = python(program, path, log, "impure", 1)
        while not log.exists() or '"check"' not in log.read_text():
            time.sleep(0.005)
        process.kill()
        process.communicate(timeout=WAITING)
    before = [json.loads(line) for line in log.read_text().splitlines()]
    checked = {(id, number) for kind, id, number in before if kind == "check"}
    assert checked
    for _ in range(2 * SOAK):
        process = python(DRIVING, path, log, "impure", 1)
        process.communicate(timeout=WAITING)
    calls = Counter(tuple(json.loads(line)) for line in log.read_text().splitlines())
    assert all(calls["generate", id, number] == 1 for id, number in checked)


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
