"""Compare the keys of rows: missing, repeated, unwanted.

SQLite stores the keys in a temporary file, so memory does not grow with their number.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from heedful.checks import tables
from heedful.checks.evaluate import Context
from heedful.checks.tables import MISSING_TABLE_CHECK, table_finding
from heedful.faults import shorten
from heedful.loop.record import Finding

MAX_KEY_EXAMPLES = 3


def _row_keys(data: Any, key_columns: Sequence[str]) -> Iterator[tuple[bytes]]:
    """Yield the key of each row for SQLite; b"" if all cells of a key are missing."""
    for batch in tables.open_table(data, key_columns).batches(key_columns):
        for cells in zip(*batch, strict=True):
            texts = [_key_text(cell) for cell in cells]
            joined = "\0".join(texts) if any(texts) else ""
            yield (joined.encode("utf-8", "surrogatepass"),)


def _key_text(cell: Any) -> str:
    """Return a cell of a key as text; the text "NA" is a key like any other."""
    if not isinstance(cell, str) and tables.is_missing(cell):
        return ""
    return str(cell).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyProblem:
    """What may be wrong with the keys of rows, and what a finding says about it.

    `count` and `where` are SQL about a row of the table `keys` (see `_CREATE_KEYS`):
    which keys have the problem, and how much one of them counts. `what` is the message
    that follows the number.
    """

    kind: str
    count: str
    where: str
    what: str
    fix: str


def _key_problems(key_columns: Sequence[str], rows_count: int) -> list[KeyProblem]:
    """Return all problems that keys may have; `rows_count` rows are checked."""
    name = " and ".join(key_columns)
    return [
        KeyProblem(
            kind="no key",
            count="own",
            where="own and key = x''",
            what=f"of {rows_count} rows have no {name}",
            fix=f"write {name} in every row",
        ),
        KeyProblem(
            kind="twice",
            count="own - 1",
            where="own > 1 and key > x''",
            what=f"of {rows_count} rows repeat the {name} of an earlier row",
            fix=f"write each {name} once",
        ),
        KeyProblem(
            kind="missing",
            count="1",
            where="own = 0 and key > x''",
            what=f"wanted rows are missing by {name}",
            fix=f"write a row for each {name} that is wanted",
        ),
        KeyProblem(
            kind="unwanted",
            count="1",
            where="wanted = 0 and key > x''",
            what=f"rows are not wanted by {name}",
            fix=f"leave out each {name} that is not wanted",
        ),
    ]


# `own` counts the rows of the checked source that have the key; `wanted` is 1 if the
# other source has it, else 0.
_CREATE_KEYS = "create table keys (key blob primary key, own, wanted) without rowid"
_ADD_KEY = "insert into keys values (?, 1, 0) on conflict do update set own = own + 1"
_ADD_WANTED_KEY = (
    "insert into keys values (?, 0, 1) on conflict do update set wanted = 1"
)


def judge_keys(
    key_columns: Sequence[str], same_as: Any, data: Any, context: Context
) -> Iterator[Finding]:
    """Yield findings for missing and repeated keys, and for keys of only one source.

    SQLite stores the keys in a temporary file, so memory does not grow with their
    number.
    """
    with closing(sqlite3.connect("", isolation_level=None)) as database:
        database.execute(_CREATE_KEYS)
        database.execute("begin")
        database.executemany(_ADD_KEY, _row_keys(data, key_columns))

        ((rows_count,),) = database.execute("select coalesce(sum(own), 0) from keys")
        if not rows_count:
            yield table_finding(
                MISSING_TABLE_CHECK,
                kind="empty",
                what="the results have no rows",
                fix="write the results",
                severity=0.9,
            )
            return

        if same_as is not None:
            wanted_data = tables.locate(same_as, None, context)
            database.executemany(_ADD_WANTED_KEY, _row_keys(wanted_data, key_columns))

        for problem in _key_problems(key_columns, rows_count):
            if problem.kind == "unwanted" and same_as is None:
                continue
            yield from _key_findings(database, problem, rows_count)


def _key_findings(
    database: sqlite3.Connection, problem: KeyProblem, rows_count: int
) -> Iterator[Finding]:
    """Yield a finding with the first keys that have the problem, if any has it."""
    # Each row has the count over all keys with the problem, and one of these keys.
    counted_keys = database.execute(
        f"select sum({problem.count}) over (), key from keys "
        f"where {problem.where} order by key limit {MAX_KEY_EXAMPLES}"
    ).fetchall()
    if not counted_keys:
        return

    count, first_key = counted_keys[0]

    message = f"{count} {problem.what}"
    if first_key:
        examples = []
        for _, key in counted_keys:
            text = key.decode("utf-8", "surrogatepass").replace("\0", ", ")
            examples.append(shorten(text))
        message += f", such as {'; '.join(examples)}"

    fix = problem.fix
    yield table_finding(
        "rows",
        kind=problem.kind,
        what=message,
        fix=fix,
        rule=fix,
        off_by=count / rows_count,
    )
