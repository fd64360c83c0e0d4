"""One database into another: every row of every scope, all of it or nothing, and then compared."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from typing import NamedTuple

from heedful.errors import Conflict, InvalidInput, NotFound, RoleRefused, StoreError
from heedful.store import POSTGRES, needs_psycopg, shown
from heedful.store.connection import typed
from heedful.store.sides import KEPT, Cells, InFile, Side, Table, tables
from heedful.store.sqlite import BUSY_SECONDS, connected

Told = Callable[[str, int], None]  # of which table, and how many rows so far
_HOLDS = (
    "holds other rows already (in {}); copy into an empty database, or bring lessons together by "
    "heedful export and heedful import"
)
EVERY = 10_000  # rows between two words of progress


class Content(NamedTuple):
    """What a table holds: how many rows, and a digest over them in the order of their key."""

    table: str
    rows: int
    digest: str


class Copied(NamedTuple):
    """What the target holds now; `again`: all of it was there before."""

    contents: tuple[Content, ...]
    again: bool

    @property
    def rows(self) -> int:
        """How many rows that is."""
        return sum(one.rows for one in self.contents)


def copy(source: str, target: str, told: Told = lambda table, rows: None) -> Copied:
    """Copy all that a store holds into one that holds nothing, in one transaction.

    Before it is committed, what was written is read again and compared. The same once more finds
    that it is there. Jobs that wait in a queue are not copied: what they were to do is found again.
    Raises NotFound, Conflict, InvalidInput, StoreError.
    """
    if source == target or os.path.realpath(source) == os.path.realpath(target):
        raise InvalidInput("target", shown(target), "another database than the source")
    with _opened(source, writes=False) as one, _opened(target, writes=True) as other:
        holds = next((table.name for table in tables() if any(other.rows(table))), "")
        if holds:
            contents = tuple(_content(one, table, told) for table in tables())
            _compare(contents, other, Conflict(f"{other.name} {_HOLDS.format(holds)}"))
        else:
            contents = tuple(_carry(one, other, told))
            other.settle(one.numbers())
            what = f"{other.name} does not hold what {one.name} does; nothing was written"
            _compare(contents, other, StoreError(what))
    return Copied(contents, bool(holds))


def _carry(source: Side, target: Side, told: Told) -> Iterator[Content]:
    for table in tables():
        seen = _Seen(table, told)
        rows = seen.passed(source.rows(table))
        if table.name in KEPT:
            for _ in rows:
                pass
        else:
            target.write(table, rows)
        yield seen.content()


def _compare(contents: Iterable[Content], target: Side, differs: Exception) -> None:
    for content, table in zip(contents, tables(), strict=True):
        if _content(target, table) != content:
            differs.add_note(f"they differ in {table.name}")
            raise differs


def _content(side: Side, table: Table, told: Told = lambda table, rows: None) -> Content:
    seen = _Seen(table, told)
    for _ in seen.passed(side.rows(table)):
        pass
    return seen.content()


class _Seen:
    """Counts rows and digests them while they pass."""

    def __init__(self, table: Table, told: Told) -> None:
        self._table, self._told = table, told
        self._rows, self._digest = 0, blake2b(digest_size=16)

    def passed(self, rows: Iterable[Cells]) -> Iterator[Cells]:
        """The same rows, as every kind of database can hold them: no flags, no character 0."""
        counted = self._table.columns.index("texts") if self._table.name in KEPT else 0
        for row in rows:
            if self._table.name in KEPT and not row[counted]:
                continue  # of a scope that has no text any more there may be a row or none
            cells = tuple(_plain(cell) for cell in row)
            self._digest.update(repr(cells).encode())
            self._rows += 1
            if self._rows % EVERY == 0:
                self._told(self._table.name, self._rows)
            yield cells

    def content(self) -> Content:
        """What has passed."""
        self._told(self._table.name, self._rows)
        return Content(self._table.name, self._rows, self._digest.hexdigest())


def _plain(cell: object) -> object:
    if isinstance(cell, str):
        return cell.replace("\0", "?")
    return int(cell) if isinstance(cell, bool) else cell


@contextmanager
def _opened(url: str, *, writes: bool) -> Iterator[Side]:
    """A database in a transaction, which is committed at the end where it was written to."""
    if url.startswith(POSTGRES):
        with _server(url, writes=writes) as side:
            yield side
        return
    if not writes and not os.path.exists(url):
        raise NotFound("database", url, "this folder; check the path")
    try:
        with closing(connected(url, BUSY_SECONDS)) as db:
            db.execute("begin immediate" if writes else "begin")
            yield InFile(url, db)
            db.execute("commit")
    except sqlite3.Error as error:
        raise typed(error) from error


@contextmanager
def _server(url: str, *, writes: bool) -> Iterator[Side]:
    needs_psycopg()
    from heedful.store import admission
    from heedful.store.address import PATIENT, addressed
    from heedful.store.mishaps import MISHAPS, mishap
    from heedful.store.serverside import InServer
    from heedful.store.session import Session

    try:
        with closing(Session(addressed(url).conninfo)) as session:
            found = admission.who(session)
            admission.of_schema(session, found)
            if not found["owner"]:
                raise RoleRefused(
                    f"role {found['role']} sees one tenant at a time; a copy is of all of them: "
                    "name the role that owns heedful's tables in the URL"
                )
            kind = "" if writes else " read only"
            session.script(f"begin isolation level repeatable read{kind}; {PATIENT}")
            yield InServer(shown(url), session)
            session.end("commit")
    except MISHAPS as error:
        raise mishap(error).told from error
