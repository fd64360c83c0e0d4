"""The same tests on both engines: what they open is empty, in SQLite or PostgreSQL.

A process keeps its databases of PostgreSQL, and their connections, and empties one when
the test that had it ends: that takes 3 ms, a new database 60 ms. A new database of
SQLite is a copy of one that heedful made: that takes less than 1 ms, the statements of
its schema 6 ms.
"""

from __future__ import annotations

import asyncio
import atexit
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.store import shown, sqlite
from heedful.store.sqlite import BUSY_TIMEOUT_SECONDS, File, in_file
from heedful.store.store import Store

if TYPE_CHECKING:
    import psycopg

ENGINES = ("sqlite", "postgres")
# In `make test` on SQLite; `make soak` runs them on PostgreSQL, too.
NIGHTLY_ENGINES = ("sqlite", pytest.param("postgres", marks=pytest.mark.nightly))
# All rows, and what counts them; triggers and foreign keys aside.
EMPTY = """
set local session_replication_role = replica;
do $$
declare
  relation regclass;
begin
  for relation in
    select c.oid from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = 'heedful'::regnamespace
    and c.relkind = 'r' and a.attname = 'tenant'
  loop
    execute format('delete from %s', relation);
  end loop;
  perform setval(format('%I.%I', schemaname, sequencename), 1, false) from pg_sequences
  where schemaname = 'heedful' and last_value is not null;
end $$
"""


class _Database:
    """A database of PostgreSQL, its stores that nobody uses, and a superuser's eye."""

    def __init__(self) -> None:
        import psycopg

        from tests.postgres import fresh

        urls = fresh()
        self.url: str = urls.service
        path = "-c search_path=heedful,public"
        self.db: psycopg.Connection[Any] = psycopg.connect(
            urls.superuser, autocommit=True, options=path
        )
        self.idle: list[Store] = []
        atexit.register(self.close)

    def close(self) -> None:
        self.db.close()
        for store in self.idle:
            asyncio.run(store.close())

    def empty(self) -> None:
        with self.db.transaction():
            self.db.execute(EMPTY)


class _Engine:
    """The engine of the test that runs now, and its databases by path."""

    def __init__(self) -> None:
        self.name = ENGINES[0]
        self.used: dict[str, _Database] = {}
        self.free: list[_Database] = []

    def at(self, path: str) -> _Database:
        """The one of that path, or of that URL."""
        for database in self.used.values():
            if path in (database.url, shown(database.url)):
                return database
        if path not in self.used:
            self.used[path] = self.free.pop() if self.free else _Database()
        return self.used[path]

    @contextmanager
    def lent(self, path: str) -> Iterator[Store]:
        """A store that nobody else has; what is in memory is gone at the end."""
        name = f"{path} {len(self.used)}" if path == ":memory:" else path
        database = self.at(name)
        store = database.idle.pop() if database.idle else _in_database(database.url)
        try:
            yield store
        finally:
            database.idle.append(store)
            if name != path:
                self.give_back(name)

    def give_back(self, name: str) -> None:
        database = self.used.pop(name)
        database.empty()
        self.free.append(database)

    def end(self) -> None:
        """Empty what the test has used."""
        self.name = ENGINES[0]
        for name in list(self.used):
            self.give_back(name)


engine = _Engine()


class _Schema:
    """The schema of SQLite, made by heedful once a process and then copied by page."""

    def __init__(self) -> None:
        self.migrate = sqlite._create_schema
        self.lock = threading.Lock()
        self.template: sqlite3.Connection | None = None

    def copy(self, db: sqlite.Connection) -> None:
        """Do what heedful's own function does, for a database without tables."""
        if db.execute("pragma schema_version").fetchone()[0]:
            self.migrate(db)
            return
        with self.lock:
            if self.template is None:
                self.template = sqlite3.connect(
                    ":memory:",
                    isolation_level=None,
                    check_same_thread=False,
                    factory=sqlite.Connection,
                )
                self.migrate(self.template)
            self.template.backup(db)


_schema = _Schema()


def copy_schema(copies: bool) -> None:
    """Let new databases be copies of one, or let heedful make the schema of each."""
    sqlite._create_schema = _schema.copy if copies else _schema.migrate


CHECKS = ["insert into example_fts (example_fts, rank) values ('integrity-check', 1)"]
# What follows from other rows, where it does not.
STRANGE = """
select 'example', e.id::text from example e join lesson l on l.id = e.lesson_id
where e.indexed <> (
  e.state in ('unverified', 'verified')
  and (l.state in ('unverified', 'verified') or l.trust in ('tool', 'external'))
)
union all
select 'vector', e.id::text from vector v join example e on e.id = v.example
where v.indexed <> e.indexed
union all
select 'corpus', c.scope from corpus c where (texts, length) <> (
  select count(*), coalesce(sum(length(words)), 0) from example e
  where e.scope = c.scope and indexed
)
union all
select 'tally', t.project from tally t where lessons <> (
  select count(*) from lesson l where (l.tenant, l.project) = (t.tenant, t.project)
)
"""


@contextmanager
def opened(path: object) -> Iterator[Store]:
    """Open a store of its own at that path, or in memory; close it at the end."""
    if engine.name == "postgres":
        with engine.lent(str(path)) as store:
            yield store
        return
    file = File(str(path), BUSY_TIMEOUT_SECONDS)
    try:
        yield Store(str(path), file)
    finally:
        for thread in (file.writer, *file.readers.values()):
            thread.close()


def in_memory() -> Store:
    """Open an empty store that lasts as long as the test."""
    if engine.name == "postgres":
        with engine.lent(f"memory {len(engine.used)}") as store:
            return store
    return in_file(":memory:")


def url_of(path: object) -> str:
    """Return what a user writes to open the store at that path."""
    if engine.name == "postgres":
        return engine.at(str(path)).url
    return str(path)


async def check_derived(store: Store) -> None:
    """Check that the index, and what else follows from other rows, agrees with them."""
    if store.url.startswith("postgresql"):
        assert rows(store.url, STRANGE) == []
    else:
        for check in CHECKS:
            await store.write(Scope(), lambda db, _, sql: db.execute(sql), check)


def change_rows(path: object, sql: str) -> None:
    """Change rows of the store at that path, whoever's they are."""
    if engine.name == "postgres":
        engine.at(str(path)).db.execute(sql)
        return
    with closing(sqlite3.connect(str(path))) as db, db:
        db.execute(sql)


def rows(path: object, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """Return what a statement finds in the store at that path, whoever's it is."""
    if engine.name == "postgres" or str(path).startswith("postgresql"):
        statement = sql.replace("?", "%s")
        cursor = engine.at(str(path)).db.execute(statement, values or None)
        return cursor.fetchall()
    with closing(sqlite3.connect(str(path))) as db:
        return db.execute(sql, values).fetchall()


def _in_database(url: str) -> Store:
    from heedful.store.postgres import in_database

    return in_database(url)
