"""Power cuts, and a server that crashes: nothing acknowledged is lost, and nothing is
half written or doubled.
"""

import asyncio
import random
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from conftest import SOAK
from heedful.errors import StoreError
from heedful.store import lessons, open_store
from tests.postgres import SERVICE, Server, alone
from tests.soak import disk, workloads
from tests.soak.disk import Call, Disk
from tests.soak.ledger import Ledger
from tests.soak.workloads import Acknowledged, Damage, Work
from tests.store.support import SCOPE, opened, rows

pytestmark = [pytest.mark.soak, pytest.mark.nightly]
HEALTHY = [("ok",)]
CUTS = min(40, 10 * SOAK)  # of each recording
RECORDINGS = -(-10 * SOAK // CUTS)
CHAINED = 4  # recordings of one folder
ROUNDS = min(2, SOAK)  # of a recording: the second opens the file again

needs_strace = pytest.mark.skipif(
    disk.STRACE is None, reason="strace sees what is written; install strace"
)


def record_work(folder: Path, name: str) -> list[Call]:
    """Record what `work` does to a folder."""
    database = folder / "a.db"
    program = ("-m", "tests.soak.workloads", database, name, ROUNDS)
    return disk.record(program, folder)


async def go_on(path: Path, acknowledged: Acknowledged, in_flight: int) -> Damage:
    """Look at what a power cut has left, go on with it, and look again."""
    damage = Damage()

    def select(sql: str) -> list[tuple[Any, ...]]:
        return rows(path, sql)

    def check() -> None:
        problems = select("pragma integrity_check") + select("pragma foreign_key_check")
        if problems != HEALTHY:
            damage.torn.append(f"the database: {problems}")

    try:
        with opened(path) as store:
            await store.read(SCOPE, lessons.count)  # which makes it if there is none
            check()
            damage += workloads.find_damage(select, acknowledged, in_flight)
            damage.torn += workloads.find_torn_files(path.parent)
            work = Work(store, path.parent, say=lambda line: None)
            damage += await workloads.resume(work, acknowledged)
            check()
    except (StoreError, sqlite3.DatabaseError) as error:
        damage.torn.append(str(error))
    return damage


class Chain:
    """Works on one folder: each begins with what a power cut left of the last."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.chance = chance
        self.works = 0
        self.acknowledged = Acknowledged()
        folder.mkdir()

    def record(self, **lies: bool) -> tuple[list[Call], Disk]:
        """Record the next work; return its calls, and the disk before them."""
        power = Disk(self.folder, **lies)
        self.works += 1
        return record_work(self.folder, f"w{self.works}"), power

    def cut(self, calls: list[Call], power: Disk, since: float = 0.0) -> Damage:
        """Cut the power at random moments of a work, and return what that damaged.

        `since` is the share of the work that is done before the first of them.

        What is left at one of them stays in the folder, as nothing has opened it.
        """
        damage = Damage()
        end = max(call.ended for call in calls)
        moments = self.chance.sample(range(int(since * end), end), CUTS)
        kept_moment = moments[0]
        before = self.acknowledged
        target = self.folder.with_name("left")
        saved = self.folder.with_name("kept")
        for moment in power.run(calls, moments):
            power.leave(target, self.chance)
            acknowledged = before | Acknowledged.of(power.output)
            if len(acknowledged) and not (target / "a.db").exists():
                damage.lost.append("the database")
            if moment == kept_moment:
                shutil.copytree(target, saved)
                self.acknowledged = acknowledged
            damage += asyncio.run(go_on(target / "a.db", acknowledged, self.works))
            shutil.rmtree(target)
        shutil.rmtree(self.folder)
        saved.rename(self.folder)
        return damage


@needs_strace
def test_no_power_cut_loses_what_was_acknowledged(tmp_path: Path, ledger: Ledger):
    chance = random.Random(SOAK)
    damage = Damage()
    chain = Chain(tmp_path / "0", chance)
    for number in range(RECORDINGS):
        if number and number % CHAINED == 0:
            chain = Chain(tmp_path / f"{number}", chance)
        calls, power = chain.record()
        damage += chain.cut(calls, power)
    assert damage.torn == []
    ledger.settle(
        what=(
            "power cut; each write without a sync is there, lost or torn at a "
            "sector, in any order"
        ),
        engine="SQLite",
        times=RECORDINGS * CUTS,
        lost=len(damage.lost),
        doubled=len(damage.doubled),
    )


@needs_strace
def test_a_disk_that_lies_about_its_syncs_loses_something(tmp_path: Path):
    """What heedful promises rests on its syncs, and the test before this sees it."""
    chain = Chain(tmp_path / "w", random.Random(SOAK))
    forgets_names = Disk(chain.folder, syncs_folders=False)
    calls, forgets_content = chain.record(syncs_files=False)
    # By then something has been acknowledged.
    assert chain.cut(calls, forgets_content, since=0.8) != Damage()
    assert chain.cut(calls, forgets_names, since=0.8) != Damage()


# -- PostgreSQL: all of the server's processes are killed, and it starts again

CRASHES = SOAK
MAX_LINES_BEFORE_CRASH = 30  # of about 35 that a round has
MAX_CRASH_DELAY_SECONDS = 0.02
DATABASE = "heedful_template"


def crash(server: Server) -> None:
    """Kill the server and all of its processes, so that none of them tidies up."""
    line, *_ = (server.folder / "postmaster.pid").read_text().splitlines()
    postmaster = psutil.Process(int(line))
    postmaster.suspend()  # or it would start new ones
    processes = [*postmaster.children(recursive=True), postmaster]
    for process in processes:
        process.kill()
    psutil.wait_procs(processes)


class Crashes:
    """Work in a database whose server crashes, with all that is acknowledged."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.chance = random.Random(SOAK)
        self.store = open_store(server.url(DATABASE, SERVICE))
        self.work = Work(self.store, folder, self.say)
        self.acknowledged = Acknowledged()
        self.output = ""
        self.lines_left = 0
        self.crash: asyncio.Task[None] | None = None

    def say(self, line: str) -> None:
        """Note the line; after the last that is left, the server crashes."""
        self.output += f"{line}\n"
        self.lines_left -= 1
        if self.lines_left == 0:
            self.crash = asyncio.create_task(self.end())

    async def end(self) -> None:
        await asyncio.sleep(self.chance.random() * MAX_CRASH_DELAY_SECONDS)
        await asyncio.to_thread(crash, self.server)

    def select(self, sql: str) -> list[tuple[Any, ...]]:
        return self.server.run(sql, DATABASE)

    async def again(self, number: int) -> Damage:
        """Work until the server has crashed, start it, and look at what it has."""
        self.output = ""
        self.lines_left = self.chance.randint(1, MAX_LINES_BEFORE_CRASH)
        with suppress(StoreError):
            await self.work.round(f"w{number}")
        assert self.crash is not None
        await self.crash
        await asyncio.to_thread(self.server.start)

        last = Acknowledged.of(self.output)
        self.acknowledged |= last
        damage = workloads.find_damage(self.select, self.acknowledged, in_flight=1)
        damage += await workloads.resume(self.work, last)
        self.acknowledged |= Acknowledged.of(self.output)
        return damage


async def crash_again_and_again(server: Server, folder: Path, times: int) -> Damage:
    damage = Damage()
    crashes = Crashes(server, folder)
    for number in range(times):
        damage += await crashes.again(number)
    await crashes.store.close()
    return damage


def test_no_crash_of_postgresql_loses_what_was_acknowledged(
    tmp_path: Path, ledger: Ledger
):
    with alone() as server:
        crashing = crash_again_and_again(server, tmp_path, CRASHES)
        damage = asyncio.run(crashing)
    assert damage.torn == []
    ledger.settle(
        what="kill -9 of all processes of the server, and its own recovery",
        engine="PostgreSQL",
        times=CRASHES,
        lost=len(damage.lost),
        doubled=len(damage.doubled),
    )


def test_a_server_that_acknowledges_before_its_disk_has_it_loses_something(
    tmp_path: Path,
):
    """What heedful promises rests on this setting; the test before this sees it."""
    with alone("wal_writer_delay = 10s") as server:
        server.run(f"alter role {SERVICE} set synchronous_commit = off")
        damage = asyncio.run(crash_again_and_again(server, tmp_path, 3))
    assert damage.lost != []
