"""Random steps of many threads in several processes that are killed: no limit is ever exceeded."""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from itertools import count
from pathlib import Path

import pytest

from tests.conftest import SOAK
from tests.soak.limits import Log, problems
from tests.store.support import WAITING, ended, python

pytestmark = pytest.mark.soak
STEPS = 1_000 * SOAK
PROCESSES = 4
STEPPING = "from tests.soak.stepping import main; main()"
DEATHS = 0.001  # how likely a process kills itself at each of the places where it may


class Crowd:
    """Processes that step at random; each that is killed is replaced until the steps are made."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.kills = folder, 0
        self._chance, self._lives, self._file = random.Random(SOAK), count(), folder / "steps"
        self._file.touch()
        self._alive: list[subprocess.Popen[str]] = []

    @property
    def made(self) -> int:
        return self._file.stat().st_size

    def run(self) -> None:
        kill_at, before, moved = 0, -1, time.monotonic()
        try:
            self._start(PROCESSES)
            while self._alive:
                if kill_at <= self.made < STEPS:
                    if kill_at:
                        self._chance.choice(self._alive).kill()
                    kill_at = self.made + self._chance.randint(50, 250)
                self._replace()
                if self.made > before:
                    before, moved = self.made, time.monotonic()
                assert time.monotonic() - moved < WAITING, f"nothing moves after {before} steps"
                time.sleep(self._chance.random() * 0.01)
        finally:
            for process in self._alive:
                process.kill()
                process.communicate()

    def _start(self, processes: int) -> None:
        for _ in range(processes):
            arguments = (self.folder, next(self._lives), SOAK, STEPS, DEATHS)
            self._alive.append(python(STEPPING, *arguments))

    def _replace(self) -> None:
        for process in [one for one in self._alive if one.poll() is not None]:
            self._alive.remove(process)
            _, err = process.communicate(timeout=WAITING)
            assert process.returncode in (0, -signal.SIGKILL), err
            assert not err, err
            self.kills += process.returncode != 0
            if self.made < STEPS:
                self._start(1)


HAPPENED = {
    "overrides consumed": "select sum(used) from override",
    "loops that stopped": "select count(distinct loop) from decision "
    "where json_extract(record, '$.passed') = 0",
    "loops that were reopened": "select count(distinct o.loop) from override o join decision d "
    "on d.loop = o.loop and d.created = o.created "
    "where json_extract(d.record, '$.verdict') = 'again'",
}


def test_no_limit_is_exceeded_without_a_recorded_override(tmp_path: Path) -> None:
    crowd = Crowd(tmp_path)
    crowd.run()
    with sqlite3.connect(tmp_path / "limits.db") as db:
        found = {what: db.execute(query).fetchone()[0] for what, query in HAPPENED.items()}
    db.close()
    print(found, crowd.kills, "kills")
    wrong = problems(tmp_path)
    assert not wrong, f"{len(wrong)} problems: {wrong[:20]}"
    assert crowd.made >= STEPS
    often = (crowd.kills, found["overrides consumed"], found["loops that stopped"])
    assert min(often) >= 3 * SOAK, often
    assert found["loops that were reopened"] >= 3 * (SOAK - 1), found  # 2 to 8 in a hundredth


# -- the judge itself: a store that was tampered with is found out


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one process left that nobody killed."""
    folder = tmp_path_factory.mktemp("honest")
    ended(python(STEPPING, folder, 0, 1, 600, 0))
    with sqlite3.connect(folder / "limits.db") as db:
        db.execute("pragma wal_checkpoint(truncate)")
    db.close()
    return folder


USED = "(loop, seq) = (select loop, max(seq) from override group by loop having {} limit 1)"
LIFTED = USED.format("used > 0 and max(seq)")
ENDED = """(loop, number) = (select n, max(number) from loop join attempt on loop = n
    where state = '{}' group by n limit 1)"""
STOPPED = """(loop, seq) = (select loop, seq from decision
    where json_extract(record, '$.stopped_by[0].rule') = '{}' limit 1)"""
MORE = """insert into attempt select loop, number + 1, json_set(record, '$.number', number + 1),
    value, created + 0.001 from attempt where """
DECIDED = """insert into decision select loop, (select max(seq) + 1 from decision d
    where d.loop = a.loop), number, (select record from decision d where d.loop = a.loop
    order by seq desc), created from attempt a where """

TAMPERED = {
    "an attempt too many": (MORE + ENDED.format("stopped"), "has 0 decisions"),
    "an attempt after it passed": (
        f"{MORE + ENDED.format('passed')}; {DECIDED + ENDED.format('passed')}",
        "attempt .* was made though the loop had passed",
    ),
    "used beyond its decisions": (
        f"update override set used = decisions + 1 where {LIFTED}",
        "override .*, used 4 of 3|used 3 of 2|used 2 of 1",
    ),
    "an override lost": ("delete from override where used = 0", "0 overrides came of"),
    "an attempt lost": (
        f"delete from attempt where {ENDED.format('stopped')}",
        "attempt .* is not there, after",
    ),
    "a stop that is none": (
        f"""update decision set record = '{{"verdict": "again", "reasons": [], "feedback": "",
        "lifted": []}}' where {STOPPED.format("attempts")}""",
        "decision .* cannot be",
    ),
    "a decision twice": (
        """insert into decision select loop, max(seq) + 1, attempt, record, created from decision
        group by loop""",
        "two decisions were made at once",
    ),
    "calls beyond the budget": (
        """update loop set extra = '{"calls": 99}' where policy like '%"calls":4%'""",
        "were spent of",
    ),
    "an answer of nobody": (
        f"""update attempt set record = json_set(record, '$.usage.cost', 7.5e12)
        where {ENDED.format("stopped")}""",
        "nobody made the call",
    ),
}


def test_an_honest_store_is_found_without_fault(honest: Path) -> None:
    assert problems(honest) == []


@pytest.mark.parametrize("what", TAMPERED)
def test_a_store_that_was_tampered_with_is_found_out(
    honest: Path, tmp_path: Path, what: str
) -> None:
    sql, told = TAMPERED[what]
    folder = shutil.copytree(honest, tmp_path / "tampered")
    with sqlite3.connect(folder / "limits.db") as db:
        db.execute("pragma ignore_check_constraints = on")
        db.executescript(sql)
        assert db.total_changes > 0
    db.close()
    found = problems(folder)
    assert any(re.search(told, one) for one in found), found


def test_a_call_that_was_made_again_is_found_out(honest: Path, tmp_path: Path) -> None:
    """By one who had read that the attempt is there; its answer went nowhere."""
    folder = shutil.copytree(honest, tmp_path / "tampered")
    call = next(one for one in Log(folder).calls if one.step.said == "again")
    now = time.time()
    lines = (
        ["begin", now, "9.0.0", "step", call.loop, "9.0.0", True],
        ["generate", now, "9.0.0", call.loop, call.attempt, 10**12, False],
        ["end", now, "9.0.0", "again"],
    )
    (folder / "9.log").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = problems(folder)
    assert any("was made again, after" in one for one in found), found
    assert any("is lost" in one for one in found), found
