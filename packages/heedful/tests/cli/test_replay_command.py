"""`heedful replay` and `policy`: figures by hand, and what is said of them."""

import pytest

from tests.cli.support import Done, record

LOOPS = [
    record("a", "x", "y!"),
    record("b", "x", "x", "x"),
    record("c", "u", "v", "w!"),
    record("d", "x!"),
]
TWO = "stage, attempts.limit=2"


@pytest.fixture
def heedful_(desk, monkeypatch):
    """Calls the command in a folder with recorded loops."""
    desk.records(LOOPS)
    return lambda line: desk.invoke(monkeypatch, line)


@pytest.fixture
def replay(heedful_):
    return lambda line: heedful_(f"replay {line}")


def lines(done: Done) -> dict[str, list[str]]:
    """The rows of the table by their first words."""
    rows = [line.split("  ") for line in done.out.splitlines() if line.startswith(" ")]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in rows]
    return {line[0]: line[1:] for line in cells if line}


def test_the_figures_by_hand(replay):
    done = replay(f"loops.jsonl --policy default --policy '{TWO}'")
    assert done.code == 0
    assert done.err == ""
    assert done.out.startswith("4 loops, 9 attempts; 3 loops can be solved\n")
    rows = lines(done)
    # An oracle makes 2, 1, 3 and 1 attempts: 7. Two attempts at most lose c, and cost
    # 2, 2, 2, 1.
    assert rows["as recorded"] == ["9", "1.286", "9", "0", "3", "0", "0.750", "2", "0"]
    assert rows["default"] == rows["as recorded"]
    assert rows[TWO] == ["7", "1.000", "7", "0", "2", "1", "0.500", "1", "0"]
    assert "cannot tell:" not in done.out
    longer = replay("loops.jsonl --policy 'default, -repeat'")
    assert (
        lines(longer)["default, -repeat"][-1] == "1"
    )  # b goes on after its third attempt
    assert "\ncannot tell: loops whose record is too short" in longer.out


NO_LOOPS = {
    "none.jsonl": (
        2,
        "none.jsonl: it cannot be read (No such file or directory); check the path",
    ),
    "folder": (4, "folder is a folder; name a file in it"),
    "empty.jsonl": (2, "empty.jsonl: it has no loop; give at least one with attempts"),
    "empty.db": (
        4,
        "empty.db is empty, not a database; restore a copy, or move it away",
    ),
    "lines.json": (4, "not a SQLite database"),
    "": (2, "--db is ''; it must be a text that is not empty"),
}


@pytest.mark.parametrize("name", NO_LOOPS)
def test_where_there_are_no_loops(heedful_, desk, name):
    (desk.folder / "folder").mkdir()
    for file in ("empty.jsonl", "empty.db"):
        desk.write(file, "")
    desk.records(LOOPS, name="lines.json")
    code, message = NO_LOOPS[name]
    done = heedful_(f"replay '{name}' --json")
    assert done.code == code, done
    assert message in done.json["error"]["message"]


# Policies
