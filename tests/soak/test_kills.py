"""kill -9 at random moments: nothing acknowledged is lost, half written, doubled or
repeated.
"""

import asyncio
import json
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from heedful.lessons.holdout import (
    FIRST_LOOPS_WITHOUT_HOLDOUT,
    is_pooled,
    is_withheld,
)
from heedful.lessons.lesson import Exposure, Outcome, Scope
from heedful.loop.decide import Done
from heedful.loop.ladder import Climb, Spending
from heedful.memory.dream import Dreams
from heedful.memory.memory import Memory
from heedful.store import exposures, ladders, open_store, practices
from heedful.store import loops as loop_store
from heedful.store.records import StoredLoop
from heedful.store.runs import report_of
from tests.conftest import SOAK
from tests.memory.dreams import dump_tables
from tests.pipeline.support import without_times
from tests.postgres import Urls, drop, fresh
from tests.soak.programs import (
    FAILS,
    LARGE_CALLS,
    LARGE_USAGE,
    PRACTICE_CALLS,
    PRACTICE_TASKS,
    PRACTICE_USAGE,
    SECONDS,
    ask,
    lessons,
)
from tests.store.support import SCOPE, WAITING, ended, opened, python, rows

pytestmark = pytest.mark.soak
HEALTHY = [("ok",)]
MAX_PRACTICE_KILLS = 100
MAX_LADDER_ROUNDS = 40  # with five kills or so in each
PROGRAM = "from tests.soak.programs import main; main()"


# -- the harness


def started(*arguments: object) -> subprocess.Popen[str]:
    """Start one of the programs and wait until it is ready."""
    process = python(PROGRAM, *arguments)
    expect(process, "ready")
    return process


def expect(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{line}\n"


def killed(process: subprocess.Popen[str]) -> str:
    """Kill a process and return what it wrote."""
    process.kill()
    out, err = process.communicate(timeout=WAITING)
    assert not err, err
    return out


def killed_until_done(*arguments: object, chance: random.Random, seconds: float) -> int:
    """Kill a program within `seconds` and start it again until it ends; return the
    kills.

    The first is killed at once. Each later run may last a fifth longer than the run
    before, so that it ends on a busy machine too.
    """
    for kills in range(10_000):
        process = started(*arguments, chance.randrange(10**6))
        with suppress(subprocess.TimeoutExpired):
            lifetime = chance.random() * seconds * 1.2**kills if kills else 0
            process.wait(lifetime)
        if "done" in killed(process):
            return kills
    raise AssertionError("it never came to an end")


def lines(path: Path) -> list[tuple[Any, ...]]:
    """The lines of a log; the last may be torn."""
    return [
        tuple(json.loads(line))
        for line in path.read_text().rpartition("\n")[0].splitlines()
    ]


# -- commits


def test_what_was_acknowledged_is_there_and_nothing_is_half_written(tmp_path):
    path = tmp_path / "a.db"
    chance = random.Random(SOAK)
    acknowledged: set[tuple[str, int]] = set()
    for _ in range(3 * SOAK):
        process = started("commit", path)
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(chance.random() * 0.1)
        written = (first + killed(process)).rpartition("\n")[0].splitlines()
        acknowledged |= {(id, int(number)) for id, number in map(str.split, written)}
    attempts = rows(
        path, "select l.id, a.number from attempt a join loop l on l.n = a.loop"
    )
    assert acknowledged
    assert acknowledged <= set(attempts)
    assert rows(path, "pragma integrity_check") == HEALTHY
    for table in ("decision", "occurrence"):  # written with the attempt or not at all
        assert rows(path, f"select count(*) from {table}") == [(len(attempts),)]
    assert rows(path, "select seen from lesson") == [(len(attempts),)]
    counts = Counter(id for id, _ in attempts)
    assert set(attempts) == {(id, n) for id in counts for n in range(1, counts[id] + 1)}


def test_the_same_lesson_104_times_from_8_processes_is_one_row_seen_104(tmp_path):
    path = tmp_path / "a.db"
    times = 13 * SOAK
    processes = [
        python(PROGRAM, "remember", path, times) for _ in range(8)
    ]  # all at once
    answers = [
        line.split()
        for process in processes
        for line in ended(process).splitlines()[1:-1]
    ]
    ((id, seen),) = rows(path, "select id, seen from lesson")
    assert seen == 8 * times
    assert rows(path, "select count(*) from occurrence") == [(8 * times,)]
    acknowledged = sorted((int(seen), created) for _, created, seen in answers)
    assert acknowledged == [(n, str(n == 1)) for n in range(1, 8 * times + 1)]
    assert {int(answered_id) for answered_id, *_ in answers} == {id}


# -- loops


@pytest.mark.parametrize("kind", ["pure", "impure"])
def test_a_killed_driver_resumes_and_no_count_is_doubled(tmp_path, kind):
    chance = random.Random(SOAK)
    for round in range(SOAK):
        path = tmp_path / f"{round}.db"
        log = tmp_path / f"{round}.log"
        kills = killed_until_done("drive", path, log, kind, chance=chance, seconds=0.3)
        calls = Counter(lines(log))
        with opened(path) as store:
            loops, _ = asyncio.run(store.read(SCOPE, loop_store.newest, limit=9))
        assert len(loops) == 3
        for stored_loop in loops:
            loop = stored_loop.loop
            last = stored_loop.verdicts[-1]
            passes = loop.id != "loop 0"
            attempts = 5 if passes else 6  # the budget is 6 calls
            assert isinstance(last, Done)
            assert last.passed is passes
            assert (
                len(loop.attempts)
                == loop.usage.calls
                == len(stored_loop.verdicts)
                == attempts
            )
            assert loop.usage.tokens == 10 * attempts
            assert loop.usage.cost == 0.25 * attempts
            assert stored_loop.journal == {}
            calls_made = [calls["generate", loop.id, a.number] for a in loop.attempts]
            assert min(calls_made) >= 1
            assert (
                sum(calls_made) - attempts <= kills
            )  # only calls in flight were repeated
        # One lesson, seen by each loop, and one rule that all of them broke.
        assert rows(path, "select kind, seen from lesson") == [("check", 3)]
        assert rows(path, "select loops from cause") == [(3,)]


def test_a_journalled_answer_is_never_asked_for_again(tmp_path):
    path = tmp_path / "a.db"
    log = tmp_path / "a.log"
    for _ in range(2):
        process = started("drive", path, log, "stuck", 1)
        while not log.exists() or '"check"' not in log.read_text():
            time.sleep(0.005)
        killed(process)
    checked = {(id, number) for kind, id, number in lines(log) if kind == "check"}
    assert checked
    for _ in range(2 * SOAK):
        ended(started("drive", path, log, "impure", 1))
    calls = Counter(lines(log))
    assert all(calls["generate", id, number] == 1 for id, number in checked)


# -- ladders


@pytest.fixture(params=["sqlite", "postgres"])
def new_database(request, tmp_path) -> Iterator[Callable[[], str]]:
    """Makes an empty database of either kind, and returns its URL."""
    servers: list[Urls] = []

    def make() -> str:
        if request.param == "sqlite":
            return str(tmp_path / f"{os.urandom(4).hex()}.db")
        servers.append(fresh())
        return servers[-1].service

    yield make
    for urls in servers:
        drop(urls)


async def stored_climbs(url: str) -> tuple[list[StoredLoop], list[Climb], Spending]:
    """The loops, how their ladders ended, and what the large model has spent."""
    store = open_store(url)
    loops, _ = await store.read(SCOPE, loop_store.newest, limit=99)
    climbs = await store.read(SCOPE, ladders.newest, loops[0].head.memory_key, 99)
    spent = await store.read(SCOPE, ladders.spending, "large", time.time())
    await store.close()
    return loops, climbs, spent


def test_a_killed_ladder_calls_no_model_more_often_than_it_may(tmp_path, new_database):
    chance = random.Random(SOAK)
    for round in range(min(SOAK, MAX_LADDER_ROUNDS)):
        url = new_database()
        log = tmp_path / f"{round}.log"
        kills = killed_until_done("climb", url, log, chance=chance, seconds=0.3)
        check_ladder(url, lines(log), kills)


def check_ladder(url: str, log: list[tuple[Any, ...]], kills: int) -> None:
    """Check what `climb` left after so many kills, and the `log` of what it did."""
    loops, climbs, spent = asyncio.run(stored_climbs(url))
    large_calls = sum(event == "large" for event, *_ in log)
    assert large_calls <= spent.calls <= LARGE_CALLS

    attempts = [(loop.id, a) for loop in loops for a in loop.loop.attempts]
    large_attempts = [a for _, a in attempts if a.rung == 2]
    # Tokens are added with the answer, so a crash loses only those of calls in flight.
    tokens = sum(attempt.usage.tokens for attempt in large_attempts)
    assert tokens == spent.tokens == LARGE_USAGE.tokens * len(large_attempts)

    assert len(loops) == len(climbs) == 6
    for loop in loops:
        assert isinstance(loop.verdict, Done)
        rungs = [attempt.rung for attempt in loop.loop.attempts]
        assert rungs == sorted(rungs)
        assert rungs[:2] == [1, 1]
        if not loop.verdict.passed:
            stops = {stop.rule for stop in loop.verdict.stopped_by}
            assert stops <= {"attempts", "closed"}

    judged = set()
    calls = Counter[str]()
    for event, loop_id, number in log:
        if event == "check":
            judged.add((loop_id, number))
            continue
        assert (loop_id, number) not in judged, "journalled"
        calls[loop_id] += 1
    for loop in loops:
        # A loop has one call in flight, so a kill repeats at most one.
        assert calls[loop.id] - len(loop.loop.attempts) <= kills


# -- practice


async def stored_practices(
    url: str,
) -> tuple[list[StoredLoop], Spending, list[int], int]:
    """The practices, what they spent, how many examples memory has from each, and in
    how many loops users broke the rule.
    """
    store = open_store(url)
    newest, _ = await store.read(SCOPE, loop_store.newest, limit=99, practices=True)
    loops = [loop for loop in newest if loop.head.practises]
    allowance = "practice night"
    spent = await store.read(SCOPE, ladders.spent_by_practice, allowance)
    learnt = [await store.read(SCOPE, practices.learnt, loop.id) for loop in loops]
    (cause,) = await store.read(
        SCOPE, lambda db, _: db.select("loops", "cause", {"tenant": SCOPE.tenant})
    )
    await store.close()
    return loops, spent, learnt, cause["loops"]


def killed_together(*arguments: object, chance: random.Random, seconds: float) -> int:
    """Kill two programs at once, and start both again until both end; return the
    kills.
    """
    kills = 0
    for round in range(1_000):
        pair = [started(*arguments, chance.randrange(10**6)) for _ in range(2)]
        for process in pair:
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.random() * seconds * 1.2**round)
        ends = ["done" in killed(process) for process in pair]
        kills += ends.count(False)
        if all(ends):
            return kills
    raise AssertionError("they never came to an end")


def test_killed_practices_share_the_work_and_repeat_nothing(tmp_path, new_database):
    chance = random.Random(SOAK)
    kills = 0
    while kills < min(MAX_PRACTICE_KILLS, 3 * SOAK):
        url = new_database()
        log = tmp_path / f"practice {os.urandom(4).hex()}.log"
        asyncio.run(ask(url))
        night = ("practise", url, log, "night", PRACTICE_CALLS)
        kills += killed_together(*night, chance=chance, seconds=0.15)
        # What is left when the calls of the night are spent is done the next day.
        ended(started("practise", url, log, "day", 999, 1))
        check_practice(url, lines(log))


def check_practice(url: str, log: list[tuple[Any, ...]]) -> None:
    """Check what `practise` left, and the `log` of what it did."""
    loops, spent, learnt, users = asyncio.run(stored_practices(url))
    at_night = [line for line in log if line[0] == "generate" and line[3] == "night"]
    assert len(at_night) <= spent.calls <= PRACTICE_CALLS
    assert spent.tokens <= PRACTICE_USAGE.tokens * len(at_night)

    judged = set()
    for event, loop, number, *_ in log:
        if event == "check":
            judged.add((loop, number))
        assert event != "generate" or (loop, number) not in judged, "journalled"

    passed = [loop for loop in loops if loop.summary()["state"] == "passed"]
    assert sorted(loop.head.task for loop in passed) == PRACTICE_TASKS[1:]
    assert {loop.head.task for loop in loops if loop not in passed} == {"t0"}
    for loop, examples in zip(loops, learnt, strict=True):
        assert examples == (loop in passed)
        assert len(loop.loop.attempts) == 2
    assert users == len(PRACTICE_TASKS)
    announced = {line[1] for line in log if line[0] == "passed"}
    assert announced == {loop.id for loop in passed}


# -- pipelines


def left(folder: Path) -> list[Any]:
    """The state, the reports and the stored report of a run, without times."""
    store = open_store(str(folder / "a.db"))
    reports = sorted(
        (folder / "reports").glob("[!.]*")
    )  # a file half written is hidden
    documents = [path for path in reports if path.suffix == ".json"]
    return [
        json.loads((folder / "state.json").read_text()),
        [path.name for path in reports],
        [without_times(json.loads(path.read_text())) for path in documents],
        without_times(asyncio.run(report_of(store, Scope(), "r"))),
    ]


def test_a_killed_pipeline_repeats_and_loses_nothing(tmp_path_factory):
    quiet = tmp_path_factory.mktemp("quiet")
    ended(started("pipeline", quiet, 0))
    once = Counter(
        (name, n) for name, fails in FAILS.items() for n in range(1, min(fails, 2) + 2)
    )
    assert Counter(lines(quiet / "ended.log")) == once
    chance = random.Random(7)
    kills = 0
    while kills < min(30, 3 * SOAK):
        folder = tmp_path_factory.mktemp("run")
        here = killed_until_done(
            "pipeline", folder, chance=chance, seconds=0.4 + SECONDS * 40
        )
        kills += here
        counts = Counter(lines(folder / "ended.log"))
        assert counts.keys() == once.keys()
        assert (
            counts.total() <= once.total() + here
        )  # only stages in flight were repeated
        assert left(folder) == left(quiet)


# -- dreams

GROUPS = 40


async def learn(path: Path) -> dict[str, Any]:
    """Remember pairs of lessons that say the same; return all rows."""
    with opened(path) as store:
        memory = Memory(store, Scope("ours"))
        for n in range(GROUPS):
            word = chr(97 + n % 26) * (3 + n // 26)
            text = f"Weigh the {word} parcel and write the {word} weight on its label"
            await memory.remember("k", text)
            await memory.remember("k", f"{text} then")
        return await dump_tables(memory)


async def is_done(path: Path, before: dict[str, Any]) -> bool:
    """Roll the last dream back if it is done; it is done in full or not at all."""
    with opened(path) as store:
        memory = Memory(store, Scope("ours"))
        dreams = Dreams(memory)
        done = [item for item in await dreams.log(10_000) if item.undone is None]
        states = [item["state"] for item in await memory.top(10_000)]
        if done:
            (dream,) = done
            gone = sum(len(item.members) for item in dream.done)
            assert gone == states.count("superseded") >= GROUPS // 2
            assert await dreams.rollback(dream.id, by="test") == gone
        assert await dump_tables(memory) == before
    return bool(done)


def test_a_dream_that_is_killed_is_never_half_done(tmp_path):
    path = tmp_path / "a.db"
    chance = random.Random(7)
    between = 0
    before = asyncio.run(learn(path))
    kills = min(30, 2 * SOAK)
    for _ in range(kills):
        process = started("dream", path)
        if soon := chance.random() < 0.5:
            expect(process, "dreamt")
        time.sleep(chance.uniform(0, 0.05 if soon else 1.0))
        assert process.poll() is None, process.communicate()
        killed(process)
        between += asyncio.run(is_done(path, before))
        assert rows(path, "pragma integrity_check") == HEALTHY
    assert SOAK == 1 or 0 < between < kills


# -- proof


async def begin(path: Path) -> None:
    """End the first loops, after which a coin decides what is shown."""
    with opened(path) as store:
        await store.write(SCOPE, exposures.remember, lessons())
        for n in range(FIRST_LOOPS_WITHOUT_HOLDOUT):
            exposed = [
                Exposure(
                    "check/none", f"first {n}", shown=True, signature="none", share=0.0
                )
            ]
            outcome = Outcome(f"first {n}", True, calls=1)
            await store.write(
                SCOPE, exposures.remember, (), exposures=exposed, outcome=outcome
            )


@pytest.mark.parametrize("kind", ["same store", "another store"])
def test_killed_anywhere_each_loop_has_its_exposures_and_its_outcome_once(
    tmp_path, kind
):
    chance = random.Random(SOAK)
    count = 8 + 4 * SOAK
    seed = "default\0default"
    path = tmp_path / "a.db"
    other = path if kind == "same store" else tmp_path / "memory.db"
    asyncio.run(begin(other))
    assert (
        killed_until_done("prove", path, other, count, chance=chance, seconds=0.1) > 0
    )
    ends = rows(
        other, "select loop, n, right_at_once, signatures from outcome order by n"
    )
    assert [n for _, n, *_ in ends] == list(
        range(1, FIRST_LOOPS_WITHOUT_HOLDOUT + count + 1)
    )
    exposed = rows(
        other,
        "select loop, kind || '/' || signature, shown, share, together from exposure"
        " where share > 0",
    )
    all_loops = {f"k/{n}" for n in range(count)}
    assert (
        {loop for loop, *_ in ends[FIRST_LOOPS_WITHOUT_HOLDOUT:]}
        == {loop for loop, *_ in exposed}
        == all_loops
    )
    result = {loop: (right, wrong) for loop, _, right, wrong in ends}
    helped = Counter[str]()
    hurt = Counter[str]()
    for loop, lesson, was_shown, share, together in exposed:
        # Until there is a verdict, one coin decides in every loop.
        assert together or not is_pooled(seed, loop)
        coin = is_withheld(seed, loop, lesson, share, pooled_share=float(together))
        assert was_shown == (not coin)
        right, wrong = result[loop]
        helped[lesson] += was_shown and right
        hurt[lesson] += was_shown and lesson[6:] in wrong
    counters = rows(other, "select kind || '/' || signature, helped, hurt from lesson")
    assert counters == [(name, helped[name], hurt[name]) for name, *_ in counters]
