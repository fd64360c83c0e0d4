"""What one database is copied from or into, row by row; and a file of SQLite as either."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

from heedful.errors import StoreCorrupt
from heedful.protocols import Scope
from heedful.store.reflections import token
from heedful.store.sqlite import BUSY_SECONDS, Connection, connected

Cells = Sequence[Any]
# What a file has for itself: SQLite gives the number of what is gone again, unless it is told.
OWN_TABLES = ("gone",)
OWN_COLUMNS = {"corpus": {"id", "changed"}, "vector": {"changed"}}
# What triggers keep is compared, and not copied.
KEPT = ("corpus",)
# Exposures come before the lessons, whose `last_shown` they move; what is pointed at comes first.
FIRST = ("exposure", "loop", "reflection", "example", "dream")
# A row of a file that has no tenant has the one of its owner.
_OWNERS = {
    **dict.fromkeys(("attempt", "decision", "override", "step"), "join loop o on o.n = t.loop"),
    **dict.fromkeys(("occurrence", "example"), "join reflection o on o.id = t.reflection"),
    "supersession": "join dream o on o.id = t.dream",
    "vector": "join example o on o.id = t.example",
}
_SCOPES = {
    "origin": "t.scope",
    "corpus": "t.scope",
    "lineage": """coalesce(
      (select scope from origin where example = t.child),
      (select scope from example where id = t.child),
      (select scope from origin where example = t.parent),
      (select scope from example where id = t.parent)
    )""",
}


class Table(NamedTuple):
    """A table as both kinds have it: `key` orders its rows, the last of `columns` is the tenant.

    `numbered`: its key is a number that the database gives.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    numbered: bool


class Side(Protocol):
    """One database, within a transaction."""

    name: str

    def rows(self, table: Table) -> Iterator[Cells]:
        """All rows of a table, of every tenant, in the order of its key."""
        ...

    def write(self, table: Table, rows: Iterable[Cells]) -> None:
        """Add rows."""
        ...

    def numbers(self) -> Mapping[str, int]:
        """By table, the highest number that was ever given to a row of it."""
        ...

    def settle(self, numbers: Mapping[str, int]) -> None:
        """Make up what is kept by triggers; no number up to these is given again."""
        ...


@cache
def tables() -> tuple[Table, ...]:
    """What two databases share, in an order in which it can be written."""
    sql = "select name from sqlite_schema where type = 'table' and name not like 'example_fts%'"
    db = connected(":memory:", BUSY_SECONDS)
    found = {name: _table(db, name) for (name,) in db.execute(sql) if name not in OWN_TABLES}
    db.close()
    return tuple(found[name] for name in dict.fromkeys((*FIRST, *sorted(found))))


def _table(db: Connection, name: str) -> Table:
    info = db.execute(f"select name, type, pk from pragma_table_info('{name}')").fetchall()
    mine = [row["name"] for row in info if row["name"] not in OWN_COLUMNS.get(name, ())]
    columns = [one for one in mine if one != "tenant"] + (["indexed"] if name == "vector" else [])
    keys = sorted((row for row in info if row["pk"]), key=lambda row: int(row["pk"]))
    key = tuple(row["name"] for row in keys) if name not in KEPT else ("scope",)
    numbered = key in {("n",), ("id",)} and keys[0]["type"].upper() == "INTEGER"
    return Table(name, (*columns, "tenant"), key, numbered)


class InFile:
    """A file of SQLite."""

    def __init__(self, name: str, db: Connection) -> None:
        self.name: str = name
        self._db = db
        self._tenants: dict[str, str] = {}
        db.create_function("tenant_of", 1, self._tenants.get)

    def rows(self, table: Table) -> Iterator[Cells]:
        """All rows of a table, in the order of its key."""
        if table.name in _SCOPES:
            self._find_tenants()
        tenant = f"tenant_of({_SCOPES[table.name]})" if table.name in _SCOPES else "o.tenant"
        theirs = {"tenant": tenant, "indexed": "o.indexed"}
        has = self._columns(table)
        cells = ", ".join(f"t.{one}" if one in has else theirs[one] for one in table.columns)
        key = ", ".join(f"t.{one}" for one in table.key)
        owner = _OWNERS.get(table.name, "")
        for row in self._db.execute(f"select {cells} from {table.name} t {owner} order by {key}"):
            if row[-1] is None:
                raise StoreCorrupt(f"a row of {table.name} in {self.name} belongs to no scope")
            yield tuple(row)

    def write(self, table: Table, rows: Iterable[Cells]) -> None:
        """Add rows; triggers find out which may be recalled, and have counted the lessons."""
        has = self._columns(table) - {"indexed"}
        places = [place for place, column in enumerate(table.columns) if column in has]
        names = ", ".join(table.columns[place] for place in places)
        marks = ", ".join("?" * len(places))
        self._db.executemany(
            f"insert or replace into {table.name} ({names}) values ({marks})",
            ([row[place] for place in places] for row in rows),
        )

    def numbers(self) -> Mapping[str, int]:
        """The highest numbers; of examples also of those that are gone."""
        found = {
            table.name: self._one(f"select coalesce(max({table.key[0]}), 0) from {table.name}")
            for table in tables()
            if table.numbered
        }
        return {**found, "example": max(found["example"], self._one("select example from gone"))}

    def settle(self, numbers: Mapping[str, int]) -> None:
        """No example gets the number of one that is gone."""
        self._db.execute("update gone set example = max(example, ?)", (numbers["example"],))

    def _columns(self, table: Table) -> set[str]:
        sql = f"select name from pragma_table_info('{table.name}')"
        return {row[0] for row in self._db.execute(sql)}

    def _one(self, sql: str) -> int:
        return int(self._db.execute(sql).fetchone()[0])

    def _find_tenants(self) -> None:
        names = [table.name for table in tables() if "project" in table.columns]
        sql = " union ".join(f"select tenant, project from {name}" for name in names)
        self._tenants |= {token(Scope(*row)): row["tenant"] for row in self._db.execute(sql)}
