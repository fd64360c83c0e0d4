"""A database of PostgreSQL as one side of a copy: the role owns its tables, so it sees all rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from heedful.store.reflections import short
from heedful.store.session import Session
from heedful.store.sides import Cells, Table, tables

_KINDS = """
select column_name::text, udt_name::text from information_schema.columns
where table_schema = current_schema() and table_name = :table
"""
_SEQUENCE = "pg_get_serial_sequence('{0}', '{1}')"
_CORPUS = """
insert into corpus (scope, tenant, texts, length)
select scope, tenant, count(*) filter (where indexed),
  coalesce(sum(length(words)) filter (where indexed), 0)
from example group by scope, tenant
"""


class InServer:
    """A database of PostgreSQL."""

    def __init__(self, name: str, session: Session) -> None:
        self.name: str = name
        self._session = session

    def rows(self, table: Table) -> Iterator[Cells]:
        """All rows of a table, in the order of its key."""
        names, key = ", ".join(table.columns), ", ".join(table.key)
        return self._session.stream(f"select {names} from {table.name} order by {key}")

    def write(self, table: Table, rows: Iterable[Cells]) -> None:
        """Add rows as they are: the triggers rest until the end."""
        self._session.script(f"alter table {table.name} disable trigger user")
        kinds = dict(self._session.execute(_KINDS, {"table": table.name}).fetchall())
        flags = [place for place, one in enumerate(table.columns) if kinds[one] == "bool"]
        data = table.columns.index("data") if table.name == "vector" else -1
        columns = (*table.columns, "near") if table.name == "vector" else table.columns

        def told() -> Iterator[Cells]:
            for row in rows:
                cells = list(row)
                for place in flags:
                    cells[place] = bool(cells[place])
                yield [*cells, short(cells[data])] if data >= 0 else cells

        self._session.load(table.name, columns, told())
        self._session.script(f"alter table {table.name} enable trigger user")

    def numbers(self) -> Mapping[str, int]:
        """The last numbers that were given."""
        return {
            table.name: int(self._session.execute(_given(table)).fetchone()[0])
            for table in tables()
            if table.numbered
        }

    def settle(self, numbers: Mapping[str, int]) -> None:
        """Count the texts of each scope, and go on with the numbers."""
        self._session.script(_CORPUS)
        for table in tables():
            if table.numbered and numbers[table.name]:
                sequence = _SEQUENCE.format(table.name, table.key[0])
                self._session.script(f"select setval({sequence}, {numbers[table.name]})")


def _given(table: Table) -> str:
    """The last number of a sequence; what it says after a restart is above any that was given."""
    sequence = _SEQUENCE.format(table.name, table.key[0])
    return f"select coalesce(pg_sequence_last_value({sequence}::regclass), 0)"
