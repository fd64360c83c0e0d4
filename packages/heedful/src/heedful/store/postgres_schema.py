"""The schema of a PostgreSQL database, and the rights of the service's role.

`schema_postgres.sql` is the whole schema; the table `schema_version` has its number.
The job queue has migrations of its own.
"""

import os
import time
from contextlib import closing
from typing import Final

from psycopg import errors, sql

from heedful.errors import (
    InvalidInput,
    PackageMissing,
    RoleRefused,
    StoreError,
    StoreUnavailable,
)
from heedful.store.postgres_session import (
    PATIENT_TRANSACTION_SQL,
    PSYCOPG_ERRORS,
    SCHEMA_NAME,
    PostgresSession,
    parse_url,
    translate_error,
)
from heedful.store.statements import (
    SCHEMA_VERSION,
    check_version,
    read_sql,
    schema,
)

# The lock that allows one migration of a database at a time: "heedful" as a number.
MIGRATION_LOCK_KEY: Final = 0x6865656466756C
MAX_ROLE_CHARS = 63  # PostgreSQL cuts longer names
MIN_SERVER_VERSION = 160_000  # PostgreSQL 16, as the server writes its version
_MIGRATION_ROLE_FIX = (
    "run heedful db migrate as the role that owns heedful's tables, or as a role that "
    "may create a schema in this database (grant create on database … to …) and, with "
    "--role, may create roles"
)
_VERSION_TABLES_SQL = """
create table if not exists schema_version (
  number integer primary key, at double precision not null
);
create table if not exists queue_version (
  name text primary key, at double precision not null
)
"""


def migrate(url: str, role: str = "") -> bool:
    """Create the tables and the job queue of the database at `url`, in one transaction.

    Returns False if the tables were there. The role in the URL creates and owns them.
    `role` is the role of the service, which may read and write rows; "" grants no
    rights. If `role` does not exist, it is created without a password. Raises
    StoreError, InvalidInput.
    """
    try:
        with closing(PostgresSession(parse_url(url))) as session:
            return session.transact(["begin"], lambda _: _migrate(session, role))
    except errors.InsufficientPrivilege as error:
        raise RoleRefused(
            f"{error.diag.message_primary}; {_MIGRATION_ROLE_FIX}"
        ) from error
    except PSYCOPG_ERRORS as error:
        raise translate_error(error) from error


def _migrate(db: PostgresSession, role: str) -> bool:
    """Create the tables and the job queue, and grant rights to `role` unless it is "".

    Returns True if the tables are new. The caller begins and commits the transaction.
    """
    # Wait for another migration without a limit, and for a lock of a table at most
    # 10 s: while this transaction waits for a table, the service waits behind it.
    db.script(f"""
        {PATIENT_TRANSACTION_SQL};
        set local lock_timeout = 0;
        select pg_advisory_xact_lock({MIGRATION_LOCK_KEY});
        set local lock_timeout = '10s'
    """)
    server = db.execute("select current_setting('server_version_num')::int as number")
    check_server(server.fetchone()["number"])
    check_pgvector(db)
    # `create schema if not exists` needs a right even if the schema exists.
    row = db.execute(f"select to_regnamespace('{SCHEMA_NAME}') as name").fetchone()
    if row["name"] is None:
        db.script(f"create schema {SCHEMA_NAME}")
    db.script(_VERSION_TABLES_SQL)

    newest = db.execute("select max(number) as number from schema_version").fetchone()
    version = newest["number"]
    if version is None:
        db.script(schema("postgres"))
        values = {"number": SCHEMA_VERSION, "at": time.time()}
        db.execute("insert into schema_version values (:number::int, :at)", values)
    else:
        check_version(db.url, version, "database")

    _migrate_jobs(db)
    if role:
        _grant_rights(db, role)
    return version is None


def _migrate_jobs(db: PostgresSession) -> None:
    """Migrate the tables of the job queue to the installed version of procrastinate.

    An empty database gets the whole schema of procrastinate, and its migrations are
    only noted as done. Otherwise those that are not noted are executed. Raises
    PackageMissing.
    """
    try:
        from procrastinate.schema import SchemaManager
    except ImportError as error:
        raise PackageMissing(
            "the queue in PostgreSQL", "procrastinate", "postgres"
        ) from error

    folder = SchemaManager.get_migrations_path()
    names = sorted(name for name in os.listdir(folder) if name.endswith(".sql"))
    done = {row["name"] for row in db.execute("select name from queue_version")}
    if not done:
        db.script(SchemaManager.get_schema())

    for name in names:
        if name in done:
            continue
        if done:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                db.script(file.read())
        values = {"name": name, "at": time.time()}
        db.execute("insert into queue_version values (:name, :at)", values)
    db.script(read_sql("schema_queue.sql"))


def check_server(version: int) -> None:
    """Check the version of a server, such as 160003. Raises StoreUnavailable."""
    if version < MIN_SERVER_VERSION:
        raise StoreUnavailable(
            f"this server is PostgreSQL {version // 10_000}; heedful needs 16 or newer"
        )


def check_pgvector(db: PostgresSession) -> None:
    """Check that the database has pgvector, new enough. Raises StoreError."""
    # Old versions of pgvector have no type `halfvec`; a missing type is null here.
    row = db.execute("select to_regtype('public.halfvec') as name").fetchone()
    if row["name"] is None:
        raise StoreError(
            "the database has no pgvector 0.8; install it on the server, then let a "
            "superuser run in the database: create extension vector, or alter "
            "extension vector update"
        )


def _grant_rights(db: PostgresSession, role: str) -> None:
    """Let `role` read and write rows under row-level security; create it if necessary.

    This includes tables that are created later. The role may add rows to the audit log,
    but not change them, and may not change the versions of the schema. Raises
    InvalidInput for a name that PostgreSQL would cut, or that cannot be printed.
    """
    if not role.isprintable() or len(role) > MAX_ROLE_CHARS:
        raise InvalidInput("role", role, "1 to 63 printable characters")

    # The name becomes part of statements, which take no parameters here, so it is
    # quoted.
    name = sql.Identifier(role).as_string()
    exists = "select 1 from pg_roles where rolname = :role"
    if not db.execute(exists, {"role": role}).fetchone():
        db.script(
            f"create role {name} login nosuperuser nocreatedb nocreaterole nobypassrls"
        )

    db.script(f"""
        grant usage on schema {SCHEMA_NAME} to {name};
        grant select, insert, update, delete
          on all tables in schema {SCHEMA_NAME} to {name};
        alter default privileges in schema {SCHEMA_NAME}
          grant select, insert, update, delete on tables to {name};
        alter default privileges in schema {SCHEMA_NAME}
          grant usage, select on sequences to {name};
        revoke insert, update, delete on schema_version, queue_version from {name};
        revoke update, delete on audit from {name};
        grant usage, select on all sequences in schema {SCHEMA_NAME} to {name};
        grant execute on all functions in schema {SCHEMA_NAME} to {name}
    """)
