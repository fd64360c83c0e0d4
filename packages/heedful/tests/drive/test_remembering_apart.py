"""Memory in another store than the journal, loops that are reopened, and looks that
fail.
"""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.drive.run_loop import Run
from heedful.errors import InvalidInput, StoreError
from heedful.memory.memory import Memory
from heedful.store import loops
from heedful.store.sqlite import in_file
from heedful.store.store import Store
from tests.drive.support import SCOPE, WANTED, Check, Generator
from tests.drive.test_remembering import TASK, read_outcomes, teach
from tests.store.support import rows

SEEN = (
    "select seen, (select count(*) from occurrence where lesson_id = l.id) from "
    "lesson l"
)
TAUGHT = f"{SEEN} where error_type = 'wanted'"


@pytest.fixture
def stores(tmp_path):
    """The store of the loops and that of the memory."""
    pair = in_file(str(tmp_path / "loops.db")), in_file(str(tmp_path / "memory.db"))
    yield pair
    for store in pair:
        asyncio.run(store.close())


def break_changes(path: Path, change: str) -> None:
    """A database that refuses a change."""
    execute(
        path,
        f"create trigger broken before {change} begin"
        " select raise(abort, 'the disk is full'); end",
    )


def repair(path: Path) -> None:
    execute(path, "drop trigger broken")


def execute(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    with db:
        db.execute(statement)
    db.close()


def open_run(stores: tuple[Store, Store], *answers: Any, **options: Any) -> Run[Any]:
    journal, other = stores
    options.setdefault("generate", Generator(*answers))
    options.setdefault("checks", [Check()])
    options.setdefault("id", "l")
    memory = Memory(other, holdout=0)
    return Run[Any](TASK, store=journal, memory=memory, **options)


async def test_a_journal_that_fails_counts_each_lesson_once(stores, tmp_path):
    await teach(stores[1])
    driver = open_run(stores, "x", WANTED)
    await driver.step()
    break_changes(tmp_path / "loops.db", "insert on decision")
    for _ in range(3):
        with pytest.raises(StoreError):
            await driver.finish()
        assert rows(tmp_path / "memory.db", TAUGHT) == []
    repair(tmp_path / "loops.db")
    assert (await driver.finish()).passed
    assert rows(tmp_path / "memory.db", TAUGHT) == [(1, 1)]
    assert [end[:3] for end in read_outcomes(tmp_path / "memory.db")] == [("l", 0, 2)]


@pytest.mark.parametrize("again", ["the same driver", "another one"])
async def test_a_lesson_that_a_crash_lost_is_stored_when_its_loop_opens(
    stores, tmp_path, again
):
    await teach(stores[1])
    driver = open_run(stores, "x", WANTED)
    break_changes(tmp_path / "memory.db", "insert on learnt")
    with pytest.raises(StoreError):
        await driver.finish()
    ended = await stores[0].read(SCOPE, loops.read, "l")
    assert ended.verdicts[-1].passed
    assert (
        rows(tmp_path / "memory.db", TAUGHT)
        == read_outcomes(tmp_path / "memory.db")
        == []
    )
    repair(tmp_path / "memory.db")
    for _ in range(3):
        driver = (
            driver if again == "the same driver" else open_run(stores, ValueError())
        )
        assert (await driver.finish()).candidate == WANTED
        assert rows(tmp_path / "memory.db", TAUGHT) == [(1, 1)]
        assert [end[:3] for end in read_outcomes(tmp_path / "memory.db")] == [
            ("l", 0, 2)
        ]
    parents = "select parents from occurrence where loop = 'l'"
    assert rows(tmp_path / "memory.db", parents) != [("[]",)]


# -- reopened, and begun without


# Which file


async def test_a_reported_loop_refuses_another_store_than_that_of_its_memory(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=r"store is 'loops\.db'.*shop\.db"):
        await heedful.open_loop("l", TASK, memory="shop.db", store="loops.db")


@pytest.mark.parametrize(
    "first_mood",
    [
        pytest.param("down", id="answers that were right at once"),
        pytest.param("sideways", id="answers that a check of the same name corrected"),
    ],
)
def test_functions_that_get_the_same_tasks_see_only_their_own_answers(
    tmp_path, first_mood
):
    """Two functions read the same reports, and want different answers."""
    hints: list[str] = []

    @heedful.self_correcting(
        checks=[heedful.checks.regex("up|down")], memory=str(tmp_path / "m.db")
    )
    def mood(report, hint):
        return "down" if "regex" in hint else first_mood

    @heedful.self_correcting(
        checks=[heedful.checks.regex("P[0-3]")], memory=str(tmp_path / "m.db")
    )
    def severity(report, hint):
        hints.append(hint)
        return "P1"

    for report in ("Checkout answers 500", "Login answers 500"):
        assert mood(report) == "down"
        severity(report)

    assert ["down" in hint for hint in hints] == [False, False]
    assert ["P1" in hint for hint in hints] == [False, True]
