"""Tables of knowledge: what their rows recognise, and that each alternative is needed.

The witnesses of the table `ROOM/NAME.toml` stand in `tests/ROOM/witnesses/NAME.toml`,
those of a row under its id: `needs` are texts that nothing but this row recognises, and
`not` are texts that the group of the row does not recognise. They are what tools wrote,
with other names in them; `source` says whose.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.errors import InvalidInput
from heedful.knowledge import KnowledgeTable, Row, read_rows, use_rows_of

LIBRARY = Path(heedful.__file__).parent
TESTS = Path(__file__).parent
# The table of the names of attributes of spans is read by a reader of its own.
TABLES = sorted(
    str(file.relative_to(LIBRARY).with_suffix(""))
    for file in LIBRARY.rglob("*.toml")
    if file.name != "conventions.toml"
)


def witnesses_of(table: str) -> dict[str, Any]:
    """Return the witnesses of a table by the ids of its rows."""
    room, _, name = table.rpartition("/")
    file = TESTS / room / "witnesses" / f"{name}.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def texts_of(witness: dict[str, Any], key: str) -> list[str]:
    """Return the texts that a witness has under a key: none, one or a list."""
    value = witness.get(key, [])
    return [value] if isinstance(value, str) else value


def groups_of(table: str) -> dict[str, tuple[Row, ...]]:
    """Return the rows of a table by their groups."""
    text = (LIBRARY / f"{table}.toml").read_text(encoding="utf-8")
    return read_rows(text, table)


def texts_of_groups(table: str, groups: str, key: str) -> list[str]:
    """Return the witnesses of some groups of a table under a key, each once."""
    witnesses = witnesses_of(table)
    rows = [row for group in groups.split() for row in groups_of(table)[group]]
    texts = [text for row in rows for text in texts_of(witnesses[row.id], key)]
    return list(dict.fromkeys(texts))


ROWS = [
    pytest.param(table, group, row, id=f"{table}:{row.id}")
    for table in TABLES
    for group, rows in groups_of(table).items()
    for row in rows
]


def recognises(rows: list[str], text: str) -> bool:
    """Return whether one of the patterns stands in a text."""
    return any(re.search(row, text) for row in rows)


def branches(pattern: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each alternative in a pattern, where there are several."""
    # Of each open group the places where its alternatives begin; the last is open.
    starts: list[list[int]] = [[0]]
    class_start = 0  # of the open class, 0 outside of one
    position = 0
    while position < len(pattern):
        sign = pattern[position]
        if sign == "\\":
            position += 1
        elif class_start:
            # The first sign of a class does not end it.
            if sign == "]" and position > class_start:
                class_start = 0
        elif sign == "[":
            class_start = position + 1
        elif sign == "(":
            head = re.compile(r"\((?:\?(?:P<\w+>|<?[=!]|[a-z-]*:|>))?").match(
                pattern, position
            )
            assert head is not None
            starts.append([head.end()])
            position = head.end() - 1
        elif sign == "|":
            starts[-1].append(position + 1)
        elif sign == ")":
            yield from spans(starts.pop(), position)
        position += 1
    yield from spans(starts.pop(), len(pattern))


def spans(starts: list[int], end: int) -> Iterator[tuple[int, int]]:
    """Yield the places of the alternatives of one group that has several."""
    if len(starts) > 1:
        yield from zip(starts, [start - 1 for start in starts[1:]] + [end], strict=True)


def shortened(row: Row) -> Iterator[tuple[str, str]]:
    """Yield each alternative of a row, and the pattern of the row without it."""
    if row.words:
        for word in row.words:
            others = tuple(other for other in row.words if other != word)
            yield word, Row(id=row.id, words=others).regex if others else r"(?!)"
        return
    for start, end in branches(row.pattern):
        # Nothing matches in its place.
        yield row.pattern[start:end], f"{row.pattern[:start]}(?!){row.pattern[end:]}"
    yield row.pattern, r"(?!)"


@pytest.mark.parametrize(("table", "group", "row"), ROWS)
def test_the_witnesses_of_a_row_are_recognised_and_the_others_not(
    table: str, group: str, row: Row
) -> None:
    witness = witnesses_of(table).get(row.id, {})
    rows = [other.regex for other in groups_of(table)[group]]
    assert texts_of(witness, "needs"), f"{row.id} has no witness that needs it"
    assert texts_of(witness, "not"), f"{row.id} has no witness that must not match"
    assert [t for t in texts_of(witness, "needs") if not recognises(rows, t)] == []
    assert [t for t in texts_of(witness, "not") if recognises(rows, t)] == []


@pytest.mark.parametrize(("table", "group", "row"), ROWS)
def test_each_alternative_of_a_row_has_a_witness_that_needs_it(
    table: str, group: str, row: Row
) -> None:
    others = [r.regex for r in groups_of(table)[group] if r is not row and r != row]
    witness = witnesses_of(table).get(row.id, {})
    unneeded = [
        alternative
        for alternative, pattern in shortened(row)
        if all(recognises([*others, pattern], t) for t in texts_of(witness, "needs"))
        and not any(recognises([*others, pattern], t) for t in texts_of(witness, "not"))
    ]
    assert unneeded == []


@pytest.mark.parametrize("table", TABLES)
def test_every_witness_is_of_a_row_and_says_whose_text_it_is(table: str) -> None:
    ids = [row.id for rows in groups_of(table).values() for row in rows]
    assert len(ids) == len(set(ids)), "two rows have one id"
    assert set(witnesses_of(table)) <= set(ids)
    assert [id for id, w in witnesses_of(table).items() if not w.get("source")] == []


@pytest.mark.parametrize("table", TABLES)
def test_every_row_says_where_it_is_from(table: str) -> None:
    rows = [row for rows in groups_of(table).values() for row in rows]
    assert [row.id for row in rows if not row.source] == []


BAD_TABLES = {
    "no TOML": "[[failure",
    "another key": '[[failure]]\nid = "a"\npattern = "x"\norder = 1',
    "no id": '[[failure]]\npattern = "x"',
    "neither pattern nor words": '[[failure]]\nid = "a"',
    "both pattern and words": '[[failure]]\nid = "a"\npattern = "x"\nwords = ["y"]',
    "several lines": '[[failure]]\nid = "a"\npattern = "x\\ny"',
    "no rows": 'failure = "x"',
}


@pytest.mark.parametrize("text", BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_what_is_no_table_of_rows_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_rows(text, "own.toml")


@pytest.fixture
def own_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for the rows of a user, whose rows count after `use_rows_of`."""
    yield tmp_path
    use_rows_of(tmp_path / "absent")


def first_table() -> tuple[KnowledgeTable, str, Path]:
    """Return a table, one of its groups, and the name of its file."""
    name = TABLES[0]
    return KnowledgeTable(name), next(iter(groups_of(name))), Path(f"{name}.toml")


def test_the_rows_of_a_user_count_beside_those_of_heedful(own_folder: Path) -> None:
    table, group, file = first_table()
    number = len(table.rows(group))
    own_rows = (
        f'[[{group}]]\nid = "mine"\npattern = "^KAPUTT: "\nsource = "our build"\n'
    )
    (own_folder / file.name).write_text(own_rows, encoding="utf-8")
    use_rows_of(own_folder)
    assert len(table.rows(group)) == number + 1
    assert table.pattern(group).search("KAPUTT: no disk")
    row = table.find(group, "KAPUTT: no disk")
    assert row is not None
    assert row.id == "mine"


def test_a_group_that_no_module_asks_is_refused(own_folder: Path) -> None:
    table, group, file = first_table()
    own_rows = '[[unheard_of]]\nid = "mine"\npattern = "x"\n'
    (own_folder / file.name).write_text(own_rows, encoding="utf-8")
    use_rows_of(own_folder)
    with pytest.raises(InvalidInput, match="unheard_of"):
        table.rows(group)


def test_a_row_of_a_user_that_is_no_pattern_is_refused(own_folder: Path) -> None:
    table, group, file = first_table()
    own_rows = f'[[{group}]]\nid = "mine"\npattern = "("\n'
    (own_folder / file.name).write_text(own_rows, encoding="utf-8")
    use_rows_of(own_folder)
    with pytest.raises(InvalidInput, match="mine"):
        table.rows(group)
