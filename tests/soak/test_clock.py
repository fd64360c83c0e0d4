"""A clock that is wrong by a day or by 20 years, and is put right: nothing is lost or
doubled, no limit is exceeded, and nobody waits for a time that is far away.
"""

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import heedful
from conftest import SOAK
from heedful.errors import LeaseLost
from heedful.loop.ladder import Allowance
from heedful.memory.memory import Memory
from heedful.store import ladders, loops
from heedful.store.records import Head
from heedful.store.store import Store
from heedful_server import jobs
from tests import engines
from tests.engines import change_rows, opened, rows
from tests.soak import workloads
from tests.soak.ledger import Ledger
from tests.soak.workloads import Acknowledged, Damage, Work
from tests.store.support import SCOPE, report

pytestmark = [pytest.mark.soak, pytest.mark.both_nightly]
DAY = 86_400.0
ERRORS = {
    "a day slow": -DAY,
    "a day fast": DAY,
    "20 years slow": -20 * 365.25 * DAY,
    "20 years fast": 20 * 365.25 * DAY,
}
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
real_time = time.time

SERVER_CLOCK = """
create or replace function store_clock() returns double precision language sql volatile
as $$ select extract(epoch from clock_timestamp())::double precision + {error} $$
"""


class Clock:
    """The clock of this process and, unless only that is wrong, of the server."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error = 0.0

    def __call__(self) -> float:
        return real_time() + self.error

    def put(self, error: float, server: bool = True) -> None:
        """Let the clock be wrong by so many seconds from now on."""
        self.error = error
        if server and engines.engine.name == "postgres":
            change_rows(self.path, SERVER_CLOCK.format(error=error))


@pytest.fixture
def clock(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock(path)
    # A connection to SQLite takes it when it is opened.
    monkeypatch.setattr(time, "time", clock)
    yield clock
    clock.put(0.0)


@pytest.fixture
def store(clock: Clock, path: Path) -> Iterator[Store]:
    with opened(path) as store:
        yield store


wrong = pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)

# -- while loops run


class Jumps:
    """Work during which the clock jumps at random moments."""

    def __init__(self, clock: Clock, store: Store, folder: Path, seed: int) -> None:
        self.clock = clock
        self.chance = random.Random(seed)
        self.work = Work(store, folder, self.say)
        self.output = ""
        self.number = 0

    def say(self, line: str) -> None:
        self.output += f"{line}\n"
        if self.chance.random() < 0.2:
            self.number += 1
            error = self.chance.choice([0.0, *ERRORS.values()])
            self.clock.put(error, server=self.chance.random() < 0.5)

    async def run(self, rounds: int) -> Damage:
        """Work in rounds, and look at what is stored after each."""
        damage = Damage()
        for number in range(rounds):
            self.output = ""
            await self.work.round(f"w{number}")
            acknowledged = Acknowledged.of(self.output)
            damage += workloads.find_damage(self.select, acknowledged, in_flight=0)
            damage += await workloads.resume(self.work, acknowledged)
        return damage

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        return rows(self.clock.path, sql)


async def test_a_clock_that_jumps_while_loops_run_loses_and_doubles_nothing(
    clock: Clock, store: Store, tmp_path: Path, ledger: Ledger, engine: str
):
    jumps = Jumps(clock, store, tmp_path, seed=SOAK)
    damage = await jumps.run(rounds=SOAK)
    assert damage.torn == []
    ledger.settle(
        what="the clock jumps by a day or 20 years, to and fro, while loops run",
        engine=NAMES[engine],
        times=jumps.number,
        lost=len(damage.lost),
        doubled=len(damage.doubled),
    )


# -- leases and limits


@wrong
@pytest.mark.parametrize("is_put_right", [False, True])
async def test_a_loop_is_claimed_from_a_dead_driver_at_any_clock(
    clock: Clock, store: Store, error: float, is_put_right: bool
):
    """A driver on another host claims a loop and is gone; the clock is wrong then, or
    is wrong from then on.
    """
    clock.put(error if is_put_right else 0.0)
    dead = await store.write(SCOPE, loops.claim, "a", Head(task="t"), "other|1|x")
    clock.put(0.0 if is_put_right else error)
    owner = loops.new_owner()
    claimed = await store.write(SCOPE, loops.claim, "a", Head(task="t"), owner)
    assert claimed.epoch == dead.epoch + 1
    late = report("a", 1, epoch=dead.epoch)
    with pytest.raises(LeaseLost):
        await store.write(SCOPE, loops.commit, late, "other|1|x")


@wrong
async def test_a_loop_that_is_driven_is_not_claimed_at_any_clock(
    clock: Clock, store: Store, error: float
):
    owner = loops.new_owner()
    loops.working_drivers.add(owner)
    await store.write(SCOPE, loops.claim, "a", Head(task="t"), owner)
    clock.put(error)
    with pytest.raises(LeaseLost, match="is being driven"):
        await store.write(SCOPE, loops.claim, "a", Head(task="t"), loops.new_owner())
    loops.working_drivers.discard(owner)


async def test_no_day_of_a_rung_has_more_calls_than_it_may(
    clock: Clock, store: Store, ledger: Ledger, engine: str
):
    chance = random.Random(SOAK)
    allowance = Allowance(name="large", calls=5)
    granted = Counter[int]()
    for _ in range(60 * SOAK):
        clock.put(chance.choice([0.0, *ERRORS.values()]))
        moment = time.time()
        spent = await store.write(SCOPE, ladders.reserve, allowance, moment)
        granted[int(moment // DAY)] += spent is None
    assert max(granted.values()) == 5
    over = sum(max(0, calls - 5) for calls in granted.values())
    ledger.settle(
        what="the clock jumps between the calls of a model with a daily limit",
        engine=NAMES[engine],
        times=60 * SOAK,
        exceeded=over,
    )


# -- what is deleted by its age


@pytest.mark.parametrize("is_used", [False, True])
async def test_a_night_20_years_ahead_forgets_nothing(
    clock: Clock, store: Store, caplog: pytest.LogCaptureFixture, is_used: bool
):
    """Nobody was there to see that the clock is wrong, so most of memory stays."""
    memory = Memory(store)
    for n in range(6):
        await memory.remember(f"Error{n}", f"text {n}", origin="user")
    clock.put(ERRORS["20 years fast"])
    if is_used:
        await memory.remember("Error0", "text 0")
    tools = jobs.Tools(store=store, unused_for=180 * DAY)
    await jobs.prune(tools, SCOPE)
    assert await memory.count() == 6
    [record] = caplog.records
    assert "6 lessons seem unused for 180 days" in vars(record)["reason"]


async def test_a_night_20_years_ahead_removes_no_loop(
    clock: Clock, store: Store, caplog: pytest.LogCaptureFixture
):
    for n in range(6):
        id = f"loop {n}"
        await heedful.run("task", generate=lambda task, hint: "", id=id, store=store)
    clock.put(ERRORS["20 years fast"])
    await jobs.expire(jobs.Tools(store=store, ended_for=365 * DAY), SCOPE)
    listed, _ = await store.read(SCOPE, loops.newest, 9)
    assert len(listed) == 6
    assert "6 of 6 loops seem to have ended" in vars(caplog.records[-1])["reason"]
