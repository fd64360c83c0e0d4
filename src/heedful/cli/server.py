"""The signs of a database on PostgreSQL: server, pgvector, role, schema, locks, pool, queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from heedful.cli.interrupt import drive
from heedful.cli.opening import scope_of
from heedful.cli.settings import Settings
from heedful.cli.signs import Sign, contents
from heedful.errors import HeedfulError
from heedful.service.jobs import Depth
from heedful.store import needs_psycopg, shown

_ROOM = """
select current_setting('max_connections')::int - current_setting('reserved_connections')::int
  - current_setting('superuser_reserved_connections')::int as room,
  (select count(*)::int from pg_stat_activity where datname is not null) as used
"""
# Tables of heedful, but for those that no tenant has.
_OPEN = """
select c.relname::text as name, c.relrowsecurity and exists (
  select from pg_policy p where p.polrelid = c.oid
) as locked
from pg_class c where c.relnamespace = 'heedful'::regnamespace and c.relkind = 'r'
  and c.relname not in ('schema_version', 'queue_version') and c.relname not like 'procrastinate%'
order by 1
"""


def server(values: Settings) -> Iterator[Sign]:
    """What may be wrong between this process and its rows, in the order in which it shows."""
    needs_psycopg()
    from heedful.store import postgres as admission
    from heedful.store.postgres import MISHAPS, Session, addressed, mishap

    try:
        address = addressed(values.db)
        with closing(Session(address.conninfo)) as session:
            found = admission.who(session)
            well = found["server"] >= admission.SERVER
            version = f"{found['server'] // 10_000}.{found['server'] % 10_000}"
            said = f"PostgreSQL {version}, {shown(values.db)}"
            yield Sign("server", well, said, "heedful needs PostgreSQL 16 or newer")
            yield _of_pool(session, address.size)
            yield _of_vectors(session)
            role = _tried("role", lambda: admission.of_role(found))
            yield role
            schema = _tried("schema", lambda: f"{admission.of_schema(session, found)}")
            yield schema
            if not (role.well and schema.well):
                return
            yield _of_locks(session)
    except MISHAPS as error:
        raise mishap(error).told from error
    yield from _kept(values)
    yield _queue(values)


def _kept(values: Settings) -> Iterator[Sign]:
    """What the database holds of the tenant."""
    from heedful.store.postgres import Database, addressed

    database = Database(addressed(values.db))

    async def looked() -> list[Sign]:
        try:
            return await database.read(scope_of(values), lambda db: [*contents(db, values)])
        finally:
            await database.close()

    yield from drive(looked())


def _queue(values: Settings) -> Sign:
    """What waits for workers, and what none of them could do."""
    from heedful.service.worker import PostgresQueue

    async def asked() -> list[Depth]:
        async with PostgresQueue(values.db) as queued:
            return [*await queued.depth()]

    depths = drive(asked())
    oldest = max((one.oldest for one in depths if one.state == "waiting"), default=0.0)
    said = ", ".join(f"{one.queue} {one.number} {one.state}" for one in depths) or "empty"
    said = f"{said}; the oldest waits for {oldest:.0f} s" if oldest else said
    ill = {one.state for one in depths} & {"stalled", "failed"}
    todo = "run heedful worker: it does what is stalled, and says why a job fails"
    return Sign("queue", not ill, said, todo)


def _tried(name: str, look: Callable[[], Any]) -> Sign:
    try:
        return Sign(name, True, look())
    except HeedfulError as error:
        return Sign(name, False, str(error))


def _of_pool(session: Any, size: int) -> Sign:
    room, used = session.execute(_ROOM).fetchone()
    said = f"{size} connections a process at most, {used} of {room} are in use"
    todo = "raise max_connections, or lower ?pool_size= in the URL"
    return Sign("pool", size + used <= room, said, todo)


def _of_vectors(session: Any) -> Sign:
    from heedful.store.migrations import vectors

    return _tried("pgvector", lambda: vectors(session))


def _of_locks(session: Any) -> Sign:
    """Row-level security, the second lock behind the tenant that every statement names."""
    rows = session.execute(_OPEN).fetchall()
    bare = [row["name"] for row in rows if not row["locked"]]
    said = f"on for {len(rows) - len(bare)} of {len(rows)} tables"
    said = f"{said}; not for {', '.join(bare)}" if bare else said
    return Sign("row-level security", not bare, said, "run heedful migrate as the tables' owner")
