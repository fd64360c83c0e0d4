"""The named statements: the same names in both dialects, each said once, all of them
understood.
"""

import os
import re
from collections import Counter
from typing import get_args

import pytest

from heedful.store.postgres_session import psycopg_sql
from heedful.store.sqlite import connect
from heedful.store.statements import SQL_FOLDER, Dialect, read_sql, statements

DIALECTS = get_args(Dialect)
# The nearest of a scope: SQLite hands vectors over to be compared, PostgreSQL compares
# them.
OWN = {"sqlite": {"new_vectors"}, "postgres": {"nearest"}}


def names(file: str) -> list[str]:
    return re.findall(r"^-- name: (\w+)$", read_sql(file), re.MULTILINE)


def test_a_name_is_in_both_dialects_or_in_what_both_understand():
    shared_names = {
        dialect: set(statements(dialect)) - OWN[dialect] for dialect in DIALECTS
    }
    assert shared_names["sqlite"] == shared_names["postgres"]
    assert all(statements(dialect).keys() >= OWN[dialect] for dialect in DIALECTS)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_no_name_is_given_twice(dialect):
    other = "postgres.sql" if dialect == "sqlite" else "sqlite.sql"
    files = [file for file in os.listdir(SQL_FOLDER) if file != other]
    counts = Counter(name for file in files for name in names(file))
    assert {name for name, count in counts.items() if count > 1} == set()
    assert set(counts) == set(statements(dialect))


def test_what_is_the_same_in_both_stands_where_both_read_it():
    sqlite = statements("sqlite")
    postgres = statements("postgres")
    apart = set(names("sqlite.sql")) - OWN["sqlite"]
    assert {name for name in apart if sqlite[name] == postgres[name]} == set()


def number_parameters(sql: str) -> tuple[str, list[str]]:
    """Return SQL with parameters such as `$1`, and their names."""
    text = psycopg_sql(sql).decode().replace("%%", "%")
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", text)))
    for number, name in enumerate(names, 1):
        text = text.replace(f"%({name})s", f"${number}")
    return text, names


# What each loop does reads no scope of lessons, rules, loops or origins as a whole.
OFTEN = {"by_cause", "count_outcome", "count_traced", "ids_of_loops"}
WHOLE = r"SEARCH (c|l|lesson|loop|o|origin) .*\((tenant=\? AND project=\?|scope=\?)\)"


def test_sqlite_understands_all_of_them_and_often_asks_an_index(tmp_path):
    db = connect(str(tmp_path / "a.db"), 1.0)
    scans = set()
    try:
        for name, sql in statements("sqlite").items():
            values = dict.fromkeys(number_parameters(sql)[1])
            plan = db.execute(f"explain query plan {sql}", values).fetchall()
            scans |= {name for row in plan if re.match(WHOLE, row["detail"])}
    finally:
        db.close()
    assert scans & OFTEN == set()


# A number has a type where it is sent, text has the one that its place asks for.
TIMES = ("now", "lease", "before", "since", "day")


def test_postgresql_understands_all_of_them_and_asks_an_index_under_row_level_security(
    postgres,
):
    scans = set()
    from tests.postgres import connect

    with connect(postgres.service, autocommit=True) as db:
        db.execute("select set_config('heedful.tenant', 'one', false)")
        db.execute("set enable_seqscan = off; set plan_cache_mode = force_generic_plan")
        for name, sql in statements("postgres").items():
            text, parameters = number_parameters(sql)
            types = ", ".join(
                "double precision" if parameter in TIMES else "unknown"
                for parameter in parameters
            )
            db.execute(
                f"prepare p_{name} {f'({types})' if parameters else ''} as {text}"
            )
            values = f"({', '.join(['null'] * len(parameters))})" if parameters else ""
            plan = db.execute(f"explain execute p_{name}{values}").fetchall()
            scans |= {name for (line,) in plan if "Seq Scan on" in line}
    assert scans == set()
