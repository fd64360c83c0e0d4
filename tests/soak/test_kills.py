"""kill -9 at random moments: nothing acknowledged is lost, half written, doubled or
repeated.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import SOAK
from heedful.lessons.lesson import Scope
from heedful.loop.decide import Done
from heedful.loop.ladder import Spending
from heedful.memory.dream import Dreams
from heedful.memory.memory import Memory
from heedful.store import ladders, loops as loop_store, open_store
from heedful.store.records import StoredLoop
from heedful.store.runs import report_of
from tests.memory.dreams import dump_tables, state_rule
from tests.pipeline.support import without_times
from tests.soak.databases import HEALTHY, Database, Databases
from tests.soak.ledger import Counts, Ledger
from tests.soak.programs import FAILS, LARGE_CALLS, LARGE_USAGE, RESUMED_CALLS
from tests.store.support import SCOPE, WAITING, ended, opened, python, rows

pytestmark = pytest.mark.soak
MAX_DRIVE_ROUNDS = 40  # with five kills or so in each
CALLS_GROWTH = 1.3
MAX_DELAY_SECONDS = 0.01  # from a call to a kill
POLL_SECONDS = 0.002
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


def read_until(process: subprocess.Popen[str], word: str) -> str:
    """Read lines until one begins with that word; return them."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.startswith(word):
            return text
    raise AssertionError(f"it never said {word!r}: {text!r}")


def killed(process: subprocess.Popen[str]) -> str:
    """Kill a process and return what it wrote and nobody has read."""
    assert process.stdout is not None
    process.kill()
    # `communicate` would leave out what a reader of lines has read ahead.
    out = process.stdout.read()
    _, err = process.communicate(timeout=WAITING)
    assert not err, err
    return out


@dataclass(slots=True, kw_only=True)
class Kills:
    """How often a program was killed, and how often it had begun a call by then."""

    times: int = 0
    at_work: int = 0

    def add(self, other: Kills) -> None:
        self.times += other.times
        self.at_work += other.at_work


def killed_until_done(
    *arguments: object, log: Path, chance: random.Random, calls: int
) -> Kills:
    """Kill a program after up to so many `calls`, which it logs, and start it again
    until it ends; return the kills.

    The first is killed before its first call, as it opens the store. Each later run may
    make more calls than the run before, so that it ends. A busy machine changes
    nothing: what is waited for is work, not time.
    """
    kills = Kills()
    while kills.times < 10_000:
        before = count_lines(log)
        process = started(*arguments, chance.randrange(10**6))
        if kills.times:
            limit = round(calls * CALLS_GROWTH**kills.times)
            wait_for_lines(log, before + chance.randint(1, limit), process)
        time.sleep(chance.random() * MAX_DELAY_SECONDS)
        if "done" in killed(process):
            return kills
        kills.times += 1
        kills.at_work += count_lines(log) > before
    raise AssertionError("it never came to an end")


def wait_for_lines(log: Path, count: int, *processes: subprocess.Popen[str]) -> None:
    """Wait until a log has so many lines, or the processes have ended."""
    while count_lines(log) < count:
        if all(process.poll() is not None for process in processes):
            return
        time.sleep(POLL_SECONDS)


def count_lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def lines(path: Path) -> list[tuple[Any, ...]]:
    """The lines of a log; the last may be torn."""
    return [
        tuple(json.loads(line))
        for line in path.read_text().rpartition("\n")[0].splitlines()
    ]


# -- commits


def test_what_was_acknowledged_is_there_and_nothing_is_half_written(
    databases: Databases, ledger: Ledger
) -> None:
    database = databases.new()
    chance = random.Random(SOAK)
    kills = Kills()
    acknowledged: set[tuple[str, int]] = set()
    for _ in range(3 * SOAK):
        process = started("commit", database.url)
        first = read_until(process, "stored")
        time.sleep(chance.random() * 0.1)
        written = (first + killed(process)).rpartition("\n")[0].splitlines()
        words = Counter(line.split()[0] for line in written)
        kills.times += 1
        kills.at_work += words["asks"] > words["stored"]
        for word, id, number in map(str.split, written):
            if word == "stored":
                acknowledged.add((id, int(number)))

    attempts = set(
        database.rows("select l.id, a.number from attempt a join loop l on l.n=a.loop")
    )
    assert acknowledged
    database.check_health()
    counts = Counts(lost=len(acknowledged - attempts))
    for table in ("decision", "occurrence"):  # written with the attempt or not at all
        [(stored,)] = database.rows(f"select count(*) from {table}")
        counts.compare(stored, len(attempts))
    [(seen,)] = database.rows("select seen from lesson")
    counts.compare(seen, len(attempts))
    last = Counter(id for id, _ in attempts)
    assert attempts == {(id, n) for id in last for n in range(1, last[id] + 1)}
    ledger.settle(
        what="kill -9 of a program that commits attempts of three loops",
        engine=databases.engine,
        times=kills.times,
        at_work=kills.at_work,
        lost=counts.lost,
        doubled=counts.doubled,
    )


@pytest.mark.nightly
def test_the_same_lesson_104_times_from_8_processes_is_one_row_seen_104(
    tmp_path: Path, ledger: Ledger
) -> None:
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
    counts = Counts()
    counts.compare(seen, len(answers))
    [(sightings,)] = rows(path, "select count(*) from occurrence")
    counts.compare(sightings, len(answers))
    acknowledged = sorted((int(seen), created) for _, created, seen in answers)
    assert acknowledged == [(n, str(n == 1)) for n in range(1, 8 * times + 1)]
    assert {int(answered_id) for answered_id, *_ in answers} == {id}
    ledger.settle(
        what="one lesson remembered by eight processes at once",
        engine="SQLite",
        times=len(answers),
        lost=counts.lost,
        doubled=counts.doubled,
    )


# -- loops


@pytest.mark.parametrize(
    "kind", [pytest.param("pure", marks=pytest.mark.nightly), "impure"]
)
def test_a_killed_driver_resumes_and_no_count_is_doubled(
    tmp_path: Path, databases: Databases, ledger: Ledger, kind: str
) -> None:
    chance = random.Random(SOAK)
    kills = Kills()
    counts = Counts()
    for round in range(min(SOAK, MAX_DRIVE_ROUNDS)):
        database = databases.new()
        log = tmp_path / f"{round}.log"
        here = killed_until_done(
            "drive", database.url, log, kind, log=log, chance=chance, calls=12
        )
        kills.add(here)
        count_loops(database, Counter(lines(log)), here.times, counts)
    ledger.settle(
        what=f"kill -9 of a program that drives three loops with {kind} checks",
        engine=databases.engine,
        times=kills.times,
        at_work=kills.at_work,
        lost=counts.lost,
        doubled=counts.doubled,
        exceeded=counts.exceeded,
    )


def count_loops(
    database: Database, calls: Counter[Any], kills: int, counts: Counts
) -> None:
    """Compare what `drive` left after so many kills with the calls that it made."""
    loops = asyncio.run(stored_loops(database.url))
    assert len(loops) == 3
    for stored_loop in loops:
        loop = stored_loop.loop
        last = stored_loop.verdicts[-1]
        passes = loop.id != "loop 0"
        attempts = 5 if passes else RESUMED_CALLS
        assert isinstance(last, Done)
        assert last.passed is passes
        assert loop.usage.cost == 0.25 * attempts
        assert stored_loop.journal == {}
        counts.compare(len(loop.attempts), attempts)
        counts.compare(len(stored_loop.verdicts), attempts)
        counts.compare(loop.usage.tokens, 10 * attempts)

        calls_made = [calls["generate", loop.id, a.number] for a in loop.attempts]
        assert min(calls_made) >= 1
        # Each call was counted before it was made, and a kill may come in between.
        counts.limit(sum(calls_made), loop.usage.calls)
        counts.limit(loop.usage.calls, attempts + kills)
        # Only calls in flight were repeated.
        counts.doubled += max(0, sum(calls_made) - attempts - kills)
    # One lesson, seen by each loop, and one rule that all of them broke.
    [(kind, seen)] = database.rows("select kind, seen from lesson")
    assert kind == "check"
    counts.compare(seen, 3)
    [(broken,)] = database.rows("select loops from cause")
    counts.compare(broken, 3)


async def stored_loops(url: str) -> list[StoredLoop]:
    store = open_store(url)
    loops, _ = await store.read(SCOPE, loop_store.newest, limit=9)
    await store.close()
    return loops


@pytest.mark.nightly
def test_a_journalled_answer_is_never_asked_for_again(
    tmp_path: Path, ledger: Ledger
) -> None:
    path = tmp_path / "a.db"
    log = tmp_path / "a.log"
    kills = 2 * SOAK
    for _ in range(kills):
        checks = count_checks(log)
        process = started("drive", path, log, "stuck", 1)
        while count_checks(log) == checks:
            time.sleep(0.005)
        killed(process)  # in a check
    ended(started("drive", path, log, "impure", 1))
    again = asked_again(lines(log))
    stored = {
        (stored_loop.loop.id, attempt.number)
        for stored_loop in asyncio.run(stored_loops(str(path)))
        for attempt in stored_loop.loop.attempts
    }
    assert again
    ledger.settle(
        what="kill -9 in a check, after the answer of a model was stored",
        engine="SQLite",
        times=kills,
        at_work=kills,
        lost=len(again.keys() - stored),
        doubled=sum(again.values()),
    )


def asked_again(calls: list[tuple[Any, ...]]) -> Counter[tuple[str, int]]:
    """How often each answer was asked for after its first check.

    A check begins when its answer is stored. A call that was in flight at a kill is
    repeated, before the check.
    """
    counts: Counter[tuple[str, int]] = Counter()
    for kind, id, number in calls:
        if kind == "check":
            counts[id, number] += 0
        elif (id, number) in counts:
            counts[id, number] += 1
    return counts


def count_checks(log: Path) -> int:
    return log.read_text().count('"check"') if log.exists() else 0


# -- ladders


async def stored_climbs(url: str) -> tuple[list[StoredLoop], int, Spending]:
    """The loops, how many ladders have ended, and what the large model has spent."""
    store = open_store(url)
    loops, _ = await store.read(SCOPE, loop_store.newest, limit=99)
    figures = await store.read(SCOPE, ladders.figures)
    spent = await store.read(SCOPE, ladders.spending, "large", time.time())
    await store.close()
    return loops, figures.tasks, spent


def test_a_killed_ladder_calls_no_model_more_often_than_it_may(
    tmp_path: Path, databases: Databases, ledger: Ledger
) -> None:
    chance = random.Random(SOAK)
    kills = Kills()
    counts = Counts()
    for round in range(min(SOAK, MAX_LADDER_ROUNDS)):
        database = databases.new()
        log = tmp_path / f"{round}.log"
        here = killed_until_done(
            "climb", database.url, log, log=log, chance=chance, calls=12
        )
        kills.add(here)
        count_climbs(database.url, lines(log), here.times, counts)
    ledger.settle(
        what="kill -9 of six loops with a small model and a limited large one",
        engine=databases.engine,
        times=kills.times,
        at_work=kills.at_work,
        lost=counts.lost,
        doubled=counts.doubled,
        exceeded=counts.exceeded,
    )


def count_climbs(
    url: str, log: list[tuple[Any, ...]], kills: int, counts: Counts
) -> None:
    """Compare what `climb` left after so many kills with the `log` of what it did."""
    loops, ended, spent = asyncio.run(stored_climbs(url))
    large_calls = sum(event == "large" for event, *_ in log)
    counts.lost += max(0, large_calls - spent.calls)
    counts.limit(spent.calls, LARGE_CALLS)

    attempts = [(loop.id, a) for loop in loops for a in loop.loop.attempts]
    large_attempts = [a for _, a in attempts if a.rung == 2]
    # Tokens are added with the answer, so a crash loses only those of calls in flight.
    tokens = sum(attempt.usage.tokens for attempt in large_attempts)
    assert tokens == LARGE_USAGE.tokens * len(large_attempts)
    counts.compare(spent.tokens, tokens)

    assert len(loops) == ended == 6
    for loop in loops:
        assert isinstance(loop.verdict, Done)
        rungs = [attempt.rung for attempt in loop.loop.attempts]
        assert rungs == sorted(rungs)
        # A call that dies with its process ends a rung as an attempt does.
        assert 2 - kills <= rungs.count(1) <= 2
        if not loop.verdict.passed:
            stops = {stop.rule for stop in loop.verdict.stopped_by}
            assert stops <= {"attempts", "closed"}

    judged = set()
    calls = Counter[str]()
    for event, loop_id, number in log:
        if event == "check":
            judged.add((loop_id, number))
            continue
        counts.doubled += (loop_id, number) in judged  # it was journalled
        calls[loop_id] += 1
    for loop in loops:
        # A loop has one call in flight, so a kill repeats at most one.
        counts.doubled += max(0, calls[loop.id] - len(loop.loop.attempts) - kills)


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


@pytest.mark.nightly
def test_a_killed_pipeline_repeats_and_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, ledger: Ledger
) -> None:
    quiet = tmp_path_factory.mktemp("quiet")
    ended(started("pipeline", quiet, 0))
    once = Counter(
        (name, n) for name, fails in FAILS.items() for n in range(1, min(fails, 2) + 2)
    )
    assert Counter(lines(quiet / "ended.log")) == once
    chance = random.Random(7)
    kills = Kills()
    counts = Counts()
    while kills.times < min(30, 3 * SOAK):
        folder = tmp_path_factory.mktemp("run")
        log = folder / "ended.log"
        here = killed_until_done("pipeline", folder, log=log, chance=chance, calls=4)
        kills.add(here)
        calls = Counter(lines(log))
        counts.lost += len(once - calls)
        # Only stages in flight were repeated.
        counts.doubled += max(0, calls.total() - once.total() - here.times)
        assert left(folder) == left(quiet)
    ledger.settle(
        what="kill -9 of a pipeline of five stages",
        engine="SQLite",
        times=kills.times,
        at_work=kills.at_work,
        seed=7,
        lost=counts.lost,
        doubled=counts.doubled,
    )


# -- dreams

GROUPS = 40
MAX_DREAM_SECONDS = 0.2  # from its beginning, or its end, to a kill


async def learn(path: Path) -> dict[str, Any]:
    """State pairs of rules of which one negates the other; return all rows."""
    with opened(path) as store:
        memory = Memory(store, Scope("ours"))
        for n in range(GROUPS):
            word = chr(97 + n % 26) * (3 + n // 26)
            await state_rule(memory, f"Weigh the {word} parcel")
            await state_rule(memory, f"Never weigh the {word} parcel")
        return await dump_tables(memory)


async def is_done(path: Path, before: dict[str, Any], counts: Counts) -> bool:
    """Roll the last dream back if it is done; it is done in full or not at all.

    Rows that are gone afterwards are lost, and those that are new are doubled.
    """
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
        after = await dump_tables(memory)
    for table, old_rows in before.items():
        counts.lost += sum(row not in after[table] for row in old_rows)
        counts.doubled += sum(row not in old_rows for row in after[table])
    return bool(done)


@pytest.mark.nightly
def test_a_dream_that_is_killed_is_never_half_done(
    tmp_path: Path, ledger: Ledger
) -> None:
    path = tmp_path / "a.db"
    chance = random.Random(7)
    between = 0
    before = asyncio.run(learn(path))
    kills = Kills()
    counts = Counts()
    for _ in range(min(30, 2 * SOAK)):
        process = started("dream", path)
        expect(process, "dreams")
        steps = ["dreams"]
        if chance.random() < 0.5:
            expect(process, "dreamt")
            steps.append("dreamt")
        time.sleep(chance.random() * MAX_DREAM_SECONDS)
        assert process.poll() is None, process.communicate()
        steps += killed(process).split()
        kills.times += 1
        kills.at_work += steps[-1] in ("dreams", "undoes")
        between += asyncio.run(is_done(path, before, counts))
        assert rows(path, "pragma integrity_check") == HEALTHY
    assert SOAK == 1 or 0 < between < kills.times
    ledger.settle(
        what="kill -9 of a consolidation and of its rollback",
        engine="SQLite",
        times=kills.times,
        at_work=kills.at_work,
        seed=7,
        lost=counts.lost,
        doubled=counts.doubled,
    )


# -- proof
