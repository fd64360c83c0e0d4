"""`heedful practice`: what it tries, what it says, and what it refuses."""

import subprocess
import sys

import pytest

from tests.cli.support import Desk

PROGRAM = """
import heedful

known = {"stamps": "6800"}
memory = heedful.Memory("ledger.db")


def account(answer):
    return "" if answer.isdigit() else "no account"


options = {
    "checks": [account],
    "memory": memory,
    "store": memory.store,
    "policy": "default, attempts.limit=1",
    "on_exhausted": "best",
}


@heedful.self_correcting(**options, practice=True)
async def book(entry: str, hint: str = "") -> str:
    return known.get(entry, "unknown")


@heedful.self_correcting(**options, practice=True)
async def file(entry: str, hint: str = "") -> str:
    return known.get(entry, "unknown")


@heedful.self_correcting(**options)
async def pay(entry: str, hint: str = "") -> str:
    return "1"


async def main():
    known.clear()
    for entry in ("rent", "stamps"):
        await book(entry)
    for entry in ("rent", "stamps", "tea"):
        await file(entry)


if __name__ == "__main__":
    heedful.run_sync(main())
"""


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """A database in which two functions of the program failed."""
    desk = Desk(tmp_path_factory.mktemp("ledger"))
    desk.write("ledger.py", PROGRAM)
    command = [sys.executable, "ledger.py"]
    subprocess.run(command, cwd=desk.folder, env=desk.environment(), check=True)
    return (desk.folder / "ledger.db").read_bytes()


@pytest.fixture
def ledger(desk, failures):
    """A folder with a program, and a database in which two functions failed."""
    desk.write("ledger.py", PROGRAM)
    desk.write("ledger.db", failures)
    return desk


def test_the_function_that_is_asked_most_comes_first(ledger, session):
    session(
        (
            "practice ledger:book ledger:file",
            0,
            "every task was tried",
            "Next: heedful loops --practice --db ledger.db",
        ),
        ("loops --db ledger.db", 0, "rent"),
    )
    done = session(("practice ledger:book ledger:file --json", 0))
    first, second = done.json["functions"]
    assert first["memory_key"] == "ledger.file"
    assert (first["tried"], second["tried"]) == (2, 1)


def test_calls_are_those_of_all_functions_together(ledger, session):
    line = "practice ledger:book ledger:file --calls 4 --json"
    records = session((line, 0)).json["functions"]
    assert [record["calls"] for record in records] == [3, 1]
    assert records[1]["why"] == "4 of 4 calls spent"
    assert [record["passed"] for record in records] == [1, 0]


def test_practices_with_one_allowance_share_it(ledger, session):
    line = "practice ledger:file --calls 2 --allowance night --json"
    assert session((line, 0)).json["functions"][0]["calls"] == 2
    assert session((line, 0)).json["functions"][0]["calls"] == 0


def test_lists_leave_practices_out_and_why_links_both(ledger, session):
    session(("practice ledger:book", 0))
    users = session(("loops --db ledger.db --json", 0)).json["loops"]
    both = session(("loops --db ledger.db --json --practice", 0)).json["loops"]
    new_ids = {row["id"] for row in both} - {row["id"] for row in users}
    assert len(users) == 5
    assert len(new_ids) == 2
    practice = session((f"why {min(new_ids)} --db ledger.db --json", 0)).json
    old = session((f"why {practice['practises']} --db ledger.db --json", 0)).json
    assert old["practices"] == [practice["id"]]
    session(
        (f"why {old['id']} --db ledger.db", 0, f"practised by loop {practice['id']}"),
        (f"why {practice['id']} --db ledger.db", 0, "practises the task of loop"),
        ("log --db ledger.db", 0, f"!{practice['id'][:8]}"),
        ("why last --db ledger.db", 0, "!practises"),
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param("ledger", "write module:function", id="no function is named"),
        pytest.param("nowhere:book", "nowhere:book", id="no such module"),
        pytest.param("ledger:nothing", "ledger:nothing", id="no such function"),
        pytest.param("ledger:known", "self_correcting", id="not a function"),
        pytest.param("ledger:pay", "practice=True", id="not declared"),
        pytest.param("ledger:book --calls 0", "--calls", id="no calls"),
        pytest.param("ledger:book --cost 0", "cost is 0", id="no money"),
        pytest.param("ledger:book --tokens 0", "--tokens", id="no tokens"),
    ],
)
def test_what_cannot_be_practised_is_refused_and_writes_nothing(
    ledger, session, line, says
):
    before = (ledger.folder / "ledger.db").read_bytes()
    session((f"practice {line}", 2, says))
    assert (ledger.folder / "ledger.db").read_bytes() == before


def test_without_a_database_none_is_made(desk, session):
    desk.write("ledger.py", PROGRAM)
    session(("practice ledger:book", 3, "no database", "run the function first"))
    assert not (desk.folder / "ledger.db").exists()


def test_a_function_that_nobody_asked_is_told(ledger, session):
    ledger.write("other.py", PROGRAM)
    session(("practice other:book", 3, "no loop of 'other:book'"))


def test_after_all_tasks_are_solved_there_is_nothing_to_do(ledger, session):
    line = "practice ledger:book --json"
    for _ in range(3):
        session((line, 0))
    [record] = session((line, 0)).json["functions"]
    assert record["why"] == "no task to practise"
    assert record["resting"] == 1


SETTINGS = """
[practice]
functions = ["ledger:book"]
calls = 9
every = "1d"
"""


def test_a_worker_practises_once_in_a_period(ledger, session):
    ledger.write("heedful.toml", SETTINGS)
    line = "practised ledger.book: 1 of 2 passed, 2 calls; every task was tried"
    session(
        ("worker --once --db ledger.db", 0, line, "1 job done, 0 given up"),
        ("worker --once --db ledger.db", 0, "!practised", "0 jobs done"),
    )


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        pytest.param("functions = []", "functions", id="no function"),
        pytest.param('functions = ["ledger:pay"]', "practice=True", id="not declared"),
        pytest.param('functions = ["ledger:book"]\ncalls = 0', "0", id="no calls"),
        pytest.param(
            'functions = ["ledger:book"]\nevery = "soon"', "soon", id="no period"
        ),
    ],
)
def test_a_worker_refuses_what_cannot_be_practised(ledger, session, settings, says):
    ledger.write("heedful.toml", f"[practice]\n{settings}\n")
    before = (ledger.folder / "ledger.db").read_bytes()
    session(("worker --once --db ledger.db", 2, "practice", says))
    assert (ledger.folder / "ledger.db").read_bytes() == before
