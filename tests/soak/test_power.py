"""Power cuts, and a server that crashes: nothing acknowledged is lost, and nothing is
half written or doubled.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import StoreError
from heedful.store import lessons
from tests.conftest import SOAK
from tests.soak import disk, workloads
from tests.soak.disk import Call, Disk
from tests.soak.ledger import Ledger, Trial
from tests.soak.workloads import Acknowledged, Damage
from tests.store.support import SCOPE, opened, rows

pytestmark = pytest.mark.soak
HEALTHY = [("ok",)]
CUTS = 10  # of each recording
CHAINED = 4  # recordings of one folder
ROUNDS = min(2, SOAK)  # of a recording: the second opens the file again

needs_strace = pytest.mark.skipif(
    disk.STRACE is None, reason="strace sees what is written; install strace"
)


def record_work(folder: Path, name: str) -> list[Call]:
    """Record what `work` does to a folder."""
    database = folder / "a.db"
    program = ("-m", "tests.soak.workloads", database, folder, name, ROUNDS)
    return disk.record(program, folder)


async def go_on(path: Path, acknowledged: Acknowledged, in_flight: int) -> Damage:
    """Look at what a power cut has left, go on with it, and look again."""
    damage = Damage()
    if len(acknowledged) and not path.exists():
        damage.lost.append("the database")
        return damage

    def select(sql: str) -> list[tuple[Any, ...]]:
        return rows(path, sql)

    def check() -> None:
        found = select("pragma integrity_check") + select("pragma foreign_key_check")
        if found != HEALTHY:
            damage.torn.append(f"the database: {found}")

    try:
        with opened(path) as store:
            await store.read(SCOPE, lessons.count)  # which makes it if there is none
            check()
            damage += workloads.find_damage(select, acknowledged, in_flight)
            damage.torn += workloads.find_torn_files(path.parent)
            damage += await workloads.resume(store, path.parent, acknowledged)
            check()
    except (StoreError, sqlite3.DatabaseError) as error:
        damage.torn.append(str(error))
    return damage


class Chain:
    """Works on one folder, each of which begins with what a power cut left of the last."""

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

    def cut(self, calls: list[Call], power: Disk) -> Damage:
        """Cut the power at random moments of a work, and return what that damaged.

        What is left at one of them stays in the folder, as nothing has opened it.
        """
        damage = Damage()
        end = max(call.ended for call in calls)
        moments = self.chance.sample(range(end), CUTS)
        kept_moment = moments[0]
        before = self.acknowledged
        target = self.folder.with_name("left")
        kept = self.folder.with_name("kept")
        for moment in power.run(calls, moments):
            power.leave(target, self.chance)
            acknowledged = before | Acknowledged.of(power.output)
            if moment == kept_moment:
                shutil.copytree(target, kept)
                self.acknowledged = acknowledged
            damage += asyncio.run(go_on(target / "a.db", acknowledged, self.works))
            shutil.rmtree(target)
        shutil.rmtree(self.folder)
        kept.rename(self.folder)
        return damage


@needs_strace
@pytest.mark.sqlite
def test_no_power_cut_loses_what_was_acknowledged(tmp_path: Path, ledger: Ledger):
    chance = random.Random(SOAK)
    damage = Damage()
    for number in range(0, SOAK, CHAINED):
        chain = Chain(tmp_path / f"{number}", chance)
        for _ in range(min(CHAINED, SOAK)):
            damage += chain.cut(*chain.record())
        shutil.rmtree(chain.folder)
    assert damage.torn == []
    ledger.settle(
        Trial(
            what=(
                "power cut; each write without a sync is there, lost or torn at a "
                "sector, in any order"
            ),
            engine="SQLite",
            times=SOAK * CUTS,
            seed=SOAK,
            lost=len(damage.lost),
            doubled=len(damage.doubled),
        )
    )


@needs_strace
@pytest.mark.sqlite
def test_a_disk_that_lies_about_its_syncs_loses_something(tmp_path: Path):
    """What heedful promises rests on its syncs, and the test before this sees it."""
    chain = Chain(tmp_path / "w", random.Random(SOAK))
    forgets_names = Disk(chain.folder, syncs_folders=False)
    calls, forgets_content = chain.record(syncs_files=False)
    assert chain.cut(calls, forgets_content) != Damage()
    assert chain.cut(calls, forgets_names) != Damage()
