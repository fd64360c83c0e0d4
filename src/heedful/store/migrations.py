"""Numbered migrations of the PostgreSQL schema, in two parts, and of its job queue.

Apply the part `pre` while the old version still runs, and `post` after it has stopped.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from psycopg import errors, sql

from heedful.errors import InvalidInput, PackageMissing, RoleRefused, StoreError, StoreNewer
from heedful.store.postgres import (
    MISHAPS,
    PATIENT,
    SCHEMA,
    Session,
    Step,
    addressed,
    known,
    mishap,
    newest,
)
from heedful.store.store import read_sql

_BOOK = """
create table if not exists queue_version (
  name text primary key,
  at double precision not null
)
"""


def migrate_jobs(db: Session, part: str) -> None:
    """Migrate the job queue to the installed procrastinate's schema, unless someone else owns it.

    Its migrations have the same two parts; those without a part in their name count as pre.
    """
    try:
        from procrastinate.schema import SchemaManager
    except ImportError as error:
        raise PackageMissing("the queue in PostgreSQL", "procrastinate", "postgres") from error
    names = sorted(
        name for name in os.listdir(SchemaManager.get_migrations_path()) if name.endswith(".sql")
    )
    there = db.execute("select to_regclass('procrastinate_jobs') is not null").fetchone()[0]
    db.script(_BOOK)
    done = {row[0] for row in db.execute("select name from queue_version")}
    if not there:
        db.script(SchemaManager.get_schema())
        applied = names
    elif done:
        applied = [
            name
            for name in names
            if name not in done and part in ("all", "post" if "_post_" in name else "pre")
        ]
        for name in applied:
            path = os.path.join(SchemaManager.get_migrations_path(), name)
            with open(path, encoding="utf-8") as file:
                db.script(file.read())
    else:
        applied = []
    for name in applied:
        values = {"name": name, "at": time.time()}
        db.execute("insert into queue_version values (:name, :at)", values)


Part = Literal["pre", "post", "all"]
# The lock that allows one migration of a database at a time: "heedful" as a number.
LOCK: Final = 0x6865656466756C
_MAY = (
    "heedful migrate is for the role that owns heedful's tables, or may create a schema in this "
    "database (grant create on database … to …); with --role for one that may create roles, too"
)
_BOOK_migrations = """
create table if not exists schema_version (
  number integer not null,
  part text not null check (part in ('pre', 'post')),
  at double precision not null,
  primary key (number, part)
)
"""


class Migrated(NamedTuple):
    """A migration's result: the steps applied, the steps that wait, and the schema's number."""

    applied: tuple[Step, ...]
    waiting: tuple[Step, ...]
    schema: int


def migrate(url: str, part: Part = "all", role: str = "") -> Migrated:
    """Migrate a database to this version's schema, in one transaction; again, it does nothing.

    The role in the URL creates and owns the tables. `role` is the role of the service: it is
    created without a password if it does not exist, and may read and write rows. Raises StoreError,
    InvalidInput.
    """
    try:
        session = Session(addressed(url).conninfo)
        try:
            return session.within("begin", lambda db: _migrate(session, part, role), "commit")
        finally:
            session.close()
    except errors.InsufficientPrivilege as error:
        raise RoleRefused(f"{error.diag.message_primary}; {_MAY}") from error
    except MISHAPS as error:
        raise mishap(error).told from error


def _migrate(db: Session, part: Part, role: str) -> Migrated:
    db.script(f"""
        {PATIENT};
        set local lock_timeout = 0;
        select pg_advisory_xact_lock({LOCK});
        set local lock_timeout = '10s'
    """)
    vectors(db)
    if db.execute(f"select to_regnamespace('{SCHEMA}')").fetchone()[0] is None:
        db.script(f"create schema {SCHEMA}")  # `if not exists` would need the right to create it
    db.script(_BOOK_migrations)
    done = {Step(*row) for row in db.execute("select number, part from schema_version")}
    if strange := sorted(done - set(known())):
        raise StoreNewer(
            f"the database has migration {strange[-1].number}, this heedful knows {newest()}; "
            "upgrade heedful"
        )
    waiting = [one for one in known() if one not in done]
    applied = tuple(_chosen(waiting, part))
    for one in applied:
        db.script(read_sql(one.file))
        values = {"number": one.number, "part": one.part, "at": time.time()}
        db.execute("insert into schema_version values (:number::int, :part, :at)", values)
    migrate_jobs(db, part)
    for name in sorted({*_served(db), *filter(None, [role])}):
        _grant(db, name)
    there = done | set(applied)
    schema = max((one.number for one in there if one.part == "pre"), default=0)
    return Migrated(applied, tuple(one for one in waiting if one not in there), schema)


def _chosen(waiting: list[Step], part: Part) -> Iterator[Step]:
    """Yield the steps of a part, in order, up to the first that must wait for another part."""
    for one in waiting:
        if part not in ("all", one.part):
            return
        yield one


def vectors(db: Session) -> str:
    """Return the version of pgvector. Raises StoreError if it is missing or too old."""
    found = db.execute("select extversion from pg_extension where extname = 'vector'").fetchone()
    if found is None:
        available = db.execute("select 1 from pg_available_extensions where name = 'vector'")
        how = "" if available.fetchall() else "install pgvector on the server, then "
        raise StoreError(
            f"the database has no pgvector; {how}let a superuser run in it: create extension vector"
        )
    version = tuple(int(number) for number in re.findall(r"\d+", found[0])[:2])
    if version < (0, 8):
        raise StoreError(
            f"pgvector is {found[0]}; heedful needs 0.8: install it on the server, then let a "
            "superuser run in the database: alter extension vector update"
        )
    return str(found[0])


def _served(db: Session) -> list[str]:
    """Return the roles that already have access, because new tables must be granted to them too."""
    rows = db.execute("""
        select distinct r.rolname::text from pg_class c, aclexplode(c.relacl) a
        join pg_roles r on r.oid = a.grantee
        where c.oid = 'schema_version'::regclass and a.grantee <> c.relowner
    """)
    return [row[0] for row in rows]


def _grant(db: Session, role: str) -> None:
    """Let a role read and write the rows that row-level security shows it.

    A role may add audit rows, but not change them.
    """
    if not role.isprintable() or len(role) > 63:
        raise InvalidInput("role", role, "1 to 63 printable characters")
    name = sql.Identifier(role).as_string()
    if not db.execute("select 1 from pg_roles where rolname = :role", {"role": role}).fetchall():
        db.script(f"create role {name} login nosuperuser nocreatedb nocreaterole nobypassrls")
    db.script(f"""
        grant usage on schema {SCHEMA} to {name};
        grant select, insert, update, delete on all tables in schema {SCHEMA} to {name};
        revoke insert, update, delete on schema_version, queue_version from {name};
        revoke update, delete on audit from {name};
        grant usage, select on all sequences in schema {SCHEMA} to {name};
        grant execute on all functions in schema {SCHEMA} to {name}
    """)
