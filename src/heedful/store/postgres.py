"""A store in PostgreSQL: connections, transactions, roles and migrations.

A connection is refused if row-level security would not restrict its role. A transaction
runs again if the database rolled it back, or if the connection was lost before the
commit. Tasks that need the same lock wait in this process, without a thread or a
connection. If they waited in the database, 64 writers of one scope would delay a reader
of another scope by 1.3 s.

A migration has two parts: apply `pre` while the old version still runs, and `post`
after it has stopped.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple, TypeVar
from weakref import WeakValueDictionary, finalize

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper

from heedful.errors import (
    HeedfulError,
    InvalidInput,
    PackageMissing,
    RoleRefused,
    StoreCorrupt,
    StoreError,
    StoreInDoubt,
    StoreNewer,
    StoreOlder,
    StoreUnavailable,
)
from heedful.lessons.lesson import Scope
from heedful.store import shown
from heedful.store.sqlite import invalid_value
from heedful.store.store import (
    MEMORY_LOCKS,
    SQL_FOLDER,
    Db,
    Dialect,
    Rows,
    Store,
    Threads,
    Work,
    read_sql,
)

T = TypeVar("T")
# Text without parameters (strings, quoted names, comments, casts), or a parameter:
# `:name`.
_SQL_PARAMETER_PATTERN = re.compile(
    r"""'(?:[^']|'')*'|"[^"]*"|--[^\n]*|/\*.*?\*/|::|:([A-Za-z_]\w*)""", re.DOTALL
)


class Row(tuple[Any, ...]):
    """A row of a result; `row[key]` takes the position or the name of a column."""

    __slots__ = ()
    _at: Mapping[str, int]

    def __getitem__(self, key: Any) -> Any:
        return tuple.__getitem__(self, self._at[key] if isinstance(key, str) else key)

    def keys(self) -> Sequence[str]:
        """Return the names of the columns."""
        return tuple(self._at)


def _row_factory(cursor: psycopg.Cursor[Any]) -> Callable[[Sequence[Any]], Any]:
    result = cursor.pgresult  # `cursor.description` would take ten times as long
    names = [result.fname(n) for n in range(result.nfields)] if result else ()
    return _row_of(tuple(names)) if names else Row


@cache
def _row_of(names: tuple[bytes | None, ...]) -> type[Row]:
    at = {(name or b"").decode(): index for index, name in enumerate(names)}
    return type("Row", (Row,), {"__slots__": (), "_at": at})


class PostgresSession(Db):
    """A connection for one thread at a time; errors of psycopg are not translated.

    Parameters are written `:name`, as in SQLite. Every integer is sent as bigint, so
    that a statement is prepared only once. The server infers the types of text
    parameters.
    """

    dialect: Dialect = "postgres"

    def __init__(self, conninfo: str, url: str = "") -> None:
        self.url = url
        self._connection = psycopg.connect(
            conninfo,
            # transactions are begun explicitly, together with their tenant
            autocommit=True,
            prepare_threshold=1,
            cursor_factory=psycopg.RawCursor,
            row_factory=_row_factory,
        )
        self._connection.prepared_max = (
            1_000  # more than there are statements: none is evicted
        )
        self._connection.adapters.register_dumper(int, Int8BinaryDumper)

    def execute(self, sql: str, values: Any = (), /) -> Rows:
        text, names = number_parameters(sql)
        return self._connection.execute(
            text.encode(), [values[n] for n in names], binary=True
        )

    def script(self, sql: str) -> str:
        """Run several statements in one message; return the status of the last
        statement.
        """
        return self._connection.execute(sql.encode(), prepare=False).statusmessage or ""

    def load(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> int:
        """Insert rows into a table in bulk; return their number."""
        cursor = self._connection.cursor()
        with cursor.copy(
            f"copy {table} ({', '.join(columns)}) from stdin".encode()
        ) as copied:
            for row in rows:
                copied.write_row(row)
        return cursor.rowcount

    def within(self, begin: str, work: Work[T], end: str) -> T:
        """Run `work` between the SQL `begin` and the SQL `end`; return the result of
        `work`.

        `end` is commit or rollback. Raises InDoubt if the connection was lost during
        the commit.
        """
        try:
            self.bound(begin)
            value = work(self)
            self.bound(end)
        except errors.FeatureNotSupported:
            # its prepared statements are older than the change of the schema
            self.close()
            raise
        finally:
            try:  # to end an open transaction
                if self._connection.info.transaction_status != TransactionStatus.IDLE:
                    self._connection.execute("rollback")
            except psycopg.Error:
                self.close()
        return value

    def bound(self, sql: str) -> None:
        """Run `sql`, which begins or ends a transaction; a cursor would take ten times
        the CPU.

        Raises InDoubt if it is unknown whether a commit happened.
        """
        try:
            result = self._connection.pgconn.exec_(sql.encode())
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                raise errors.error_from_result(result)
        except psycopg.Error as error:
            if error.sqlstate is None:
                # libpq notices a lost connection only at the next statement
                self.close()
            if sql == "commit" and self.lost:
                raise CommitInDoubt(str(error)) from error
            raise
        if sql == "commit" and result.command_status != b"COMMIT":
            raise StoreError(
                "a statement failed and the work went on; nothing was written"
            )

    @property
    def lost(self) -> bool:  # type: ignore[override]
        return self._connection.closed

    def check(self) -> None:
        if self.execute("show transaction_read_only").fetchone()[0] == "on":
            raise StoreUnavailable(
                f"{self.url} is read-only; name the primary in the URL"
            )

    def close(self) -> None:
        self._connection.close()


class CommitInDoubt(psycopg.OperationalError):
    """The error for a connection that was lost during a commit."""


@cache
def number_parameters(sql: str) -> tuple[str, tuple[str, ...]]:
    """Replace the named parameters of `sql` by `$1`, `$2` …; return the SQL and their
    names.

    >>> number_parameters("select :a::text, ':b', :c + :a")
    ("select $1::text, ':b', $2 + $1", ('a', 'c'))
    """
    names: list[str] = []

    def place(part: re.Match[str]) -> str:
        name = part[1]
        if name is None:
            return part[0]
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _SQL_PARAMETER_PATTERN.sub(place, sql), tuple(names)


# Connections of one process: two services and three workers stay below a server's usual
# 100.
POOL_CONNECTIONS = 12
# The schema of heedful's tables; the types of pgvector are in the schema `public`.
SCHEMA_NAME = "heedful"
# The time-outs limit the harm of a server that hangs. `options` in the URL override
# them.
SERVER_OPTIONS = (
    f"-c search_path={SCHEMA_NAME},public -c statement_timeout=30s -c lock_timeout=10s "
    "-c idle_in_transaction_session_timeout=60s"
)
# For a slow transaction, which may also wait for work elsewhere.
PATIENT_TRANSACTION_SQL = (
    "set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0"
)
# Defaults of libpq's parameters, in seconds; `tcp_user_timeout` is in milliseconds.
CONNECTION_DEFAULTS = {
    "fallback_application_name": "heedful",
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "tcp_user_timeout": "20000",
}


@dataclass(frozen=True, slots=True)
class Address:
    """A database: its `conninfo`, the URL `shown` without password, at most `size`
    connections.
    """

    conninfo: str = field(repr=False)
    shown: str
    size: int


def parse_url(url: str) -> Address:
    """Return the address in `url`; `?pool_size=` may be 1 to 500. Raises
    InvalidInput.
    """
    place, _, query = url.partition("?")
    size = str(POOL_CONNECTIONS)
    kept = []
    for name, is_, value in (part.partition("=") for part in query.split("&") if part):
        if name == "pool_size":
            size = value
        else:  # as in `options=-c statement_timeout=60s`; libpq wants the second = escaped
            kept.append(f"{name}{is_}{value.replace('=', '%3D')}")
    if not (size.isascii() and size.isdigit() and 1 <= int(size) <= 500):
        raise InvalidInput("pool_size", size, "a whole number from 1 to 500")
    rest = "&".join(kept)
    parameters = dict[str, Any]()
    wrong = ""
    try:
        parameters = dict(conninfo_to_dict(f"{place}?{rest}" if rest else place))
    except (
        psycopg.Error
    ) as error:  # what follows the first quote may be a part of the password
        wrong = re.split('[:"]', str(error))[0].strip()
    if wrong:
        raise InvalidInput(
            "store", shown(url), f"like postgresql://user@host:5432/db ({wrong})"
        )
    options = " ".join(
        filter(None, (SERVER_OPTIONS, str(parameters.get("options") or "")))
    )
    conninfo = make_conninfo(
        "", **{**CONNECTION_DEFAULTS, **parameters, "options": options}
    )
    return Address(conninfo, shown(url), int(size))


# The errors that `translate_error` translates; errors of the work itself pass
# unchanged.
PSYCOPG_ERRORS = (psycopg.Error, UnicodeEncodeError, OverflowError)
# What a user can do about an error, by its class
# (postgresql.org/docs/current/errcodes-appendix.html).
_WAIT_REMEDIES: dict[type[psycopg.Error], str] = {
    errors.SerializationFailure: "other transactions keep changing the same rows; try again later",
    errors.DeadlockDetected: "other transactions keep changing the same rows; try again later",
    errors.LockNotAvailable: "another transaction holds a lock that this one needs; try again",
    errors.QueryCanceled: "it took longer than statement_timeout; try again, or raise it in the "
    "URL: ?options=-c%20statement_timeout=60s",
    errors.ReadOnlySqlTransaction: "this server is a standby; name the primary in the URL",
    errors.DiskFull: "the server's disk is full; make room and run again, nothing was lost",
    errors.DataCorrupted: "the server's files are damaged; restore a backup",
    errors.IndexCorrupted: "the server's files are damaged; reindex them, or restore a backup",
}
_LOST_SERVER_FIX = "the server no longer answers; see that it runs, then try again"
_UNREACHABLE_SERVER_FIX = (
    "see that the server runs and accepts more connections (max_connections), and "
    "that host, "
    "database, user and password in the URL are right; then try again"
)


def translate_error(error: Exception, lost: bool = False) -> HeedfulError:
    """Return the HeedfulError for an error of psycopg; `lost` says if the connection
    was lost.
    """
    line = (str(error) or type(error).__name__).splitlines()[
        0
    ]  # others quote the statement
    for kind, remedy in _WAIT_REMEDIES.items():
        if isinstance(error, kind):
            damaged = kind in (errors.DataCorrupted, errors.IndexCorrupted)
            return (StoreCorrupt if damaged else StoreUnavailable)(f"{line}: {remedy}")
    match error:
        case UnicodeEncodeError() | OverflowError():
            return invalid_value(error)
        case psycopg.DataError() if "NUL" in line:
            return InvalidInput(
                "text", "\0", "text without NUL, which PostgreSQL cannot hold"
            )
        case CommitInDoubt():
            return StoreInDoubt(line)
        case errors.InsufficientPrivilege():
            return RoleRefused(
                f"{line}: run heedful migrate --role with the name of this role"
            )
        case (
            errors.UndefinedTable()
            | errors.UndefinedColumn()
            | errors.UndefinedFunction()
        ):
            return StoreOlder(
                f"{line}: run heedful migrate as the role that owns the tables"
            )
        case _ if lost or isinstance(
            error, psycopg.OperationalError | psycopg.InterfaceError
        ):
            return StoreUnavailable(
                f"{line}: {_LOST_SERVER_FIX if lost else _UNREACHABLE_SERVER_FIX}"
            )
        case _:
            return StoreError(line)


MIN_SERVER_VERSION = 160_000
_ROLE_SQL = f"""
select current_user::text as role, current_database()::text as database,
  current_setting('server_version_num')::int as server,
  count(c.oid) > 0 as made, coalesce(bool_or(pg_has_role(c.relowner, 'member')), false) as owner,
  case when r.rolsuper then 'is a superuser' when r.rolbypassrls then 'has BYPASSRLS'
    when bool_or(pg_has_role(c.relowner, 'member')) then 'owns heedful''s tables' end as free
from pg_roles r left join (
  pg_class c join pg_namespace n on n.oid = c.relnamespace and n.nspname = '{SCHEMA_NAME}'
) on c.relkind = 'r'
where r.rolname = current_user group by r.rolsuper, r.rolbypassrls
"""
_SCHEMA_VERSIONS_SQL = (
    f"select part, max(number)::int from {SCHEMA_NAME}.schema_version group by part"
)
_MIGRATE_FIX = "run heedful migrate as the role that owns its tables"


def admit(address: Address) -> PostgresSession:
    """Connect, and check the version of the server, the role and the schema.

    Raises RoleRefused, StoreOlder, StoreNewer, StoreUnavailable.
    """
    session = PostgresSession(address.conninfo, address.shown)
    with ExitStack() as refused:
        refused.callback(session.close)
        found = who(session)
        if found["server"] < MIN_SERVER_VERSION:
            has = found["server"] // 10_000
            raise StoreUnavailable(
                f"this server is PostgreSQL {has}; heedful needs 16 or newer"
            )
        if found["free"]:
            raise RoleRefused(
                f"role {found['role']} {found['free']}, so row-level security would "
                "not restrict "
                "it; heedful migrate --role heedful creates a role for the service: "
                "use it in the "
                "URL"
            )
        of_schema(session, found)
        refused.pop_all()
    return session


def who(session: PostgresSession) -> Row:
    """Return a row with the database, the version of the server and the role.

    `free` says why row-level security does not restrict the role; it is null if it
    does.
    """
    found: Row = session.execute(_ROLE_SQL).fetchone()
    return found


def of_schema(session: PostgresSession, found: Row) -> None:
    """Raise StoreOlder or StoreNewer if the version of the schema does not fit."""
    where = f"database {found['database']}"
    if not found["made"]:
        raise StoreOlder(f"{where} has no schema; {_MIGRATE_FIX}")
    parts = {row[0]: row[1] for row in session.execute(_SCHEMA_VERSIONS_SQL)}
    has = int(parts.get("pre", 0))
    if parts.get("post", 0) > newest():
        raise StoreNewer(
            f"{where} has schema {has}, this heedful knows {newest()}; upgrade "
            "heedful to open it"
        )
    if has < newest():
        raise StoreOlder(
            f"{where} has schema {has}, this heedful needs {newest()}; {_MIGRATE_FIX}"
        )


# Seconds before each retry of a transaction; the pause is a random part of them.
RETRY_PAUSES_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)


def in_database(url: str) -> Store:
    """Return a store with its own connections to the database at `url`. Raises
    InvalidInput.
    """
    address = parse_url(url)
    return Store(address.shown, Database(address))


class Database:
    """Access to a PostgreSQL database. Cancelling a task does not stop a running
    transaction.
    """

    def __init__(self, address: Address) -> None:
        self._pool = _Pool(address)
        # The pool does not refer to the store, so that an unused store is closed.
        finalize(self, self._pool.close, _Pool.GRACE)

    async def read(self, scope: Scope, work: Work[T]) -> T:
        begin = _begin("begin isolation level repeatable read read only", scope)
        return await self._pool.run(partial(self._pool.transact, begin, work))

    async def write(
        self, scope: Scope, work: Work[T], holds: Sequence[str] = MEMORY_LOCKS
    ) -> T:
        """Run `work`, commit, and return its result; repeat if the database asks for a
        retry.

        Raises StoreInDoubt if the connection was lost during the commit. `work` is then
        not repeated here. The caller may repeat the call: its attempt number, id or
        idempotency key prevents a second write.
        """
        # A number for each lock. If two locks share a number, one waits for the other.
        names = (
            f"{scope.tenant}\0{scope.project}\0{name}" for name in dict.fromkeys(holds)
        )
        keys = (
            blake2b(one.encode("utf-8", "surrogatepass"), digest_size=8)
            for one in names
        )
        locks = [int.from_bytes(one.digest(), signed=True) for one in keys]
        job = partial(
            self._pool.transact, _begin("begin", scope, locks), work, "commit"
        )
        return await self._pool.run(job, locks)

    async def close(self) -> None:
        """Finish running work and close every connection. A later call opens new
        connections.
        """
        self._pool.close()


class _Pool(Threads[PostgresSession]):
    """At most `size` threads, each with its own connection.

    This is not a psycopg_pool, because that pool would retry a refused role or an older
    schema until a time-out. The user would then see the time-out instead of an error
    that says what to do.
    """

    def __init__(self, address: Address) -> None:
        super().__init__(partial(admit, address), address.size)

    def forked(self) -> None:
        super().forked()
        self._turns = WeakValueDictionary[Any, asyncio.Lock]()

    async def run(self, job: Callable[[], T], locks: Sequence[int] = ()) -> T:
        """Run `job` on a thread and return its result.

        Tasks of this event loop that need the same `locks` wait here, others in the
        database.
        """
        if locks:
            first = asyncio.get_running_loop(), locks[0]
            async with self._turns.setdefault(first, asyncio.Lock()):
                return await self.run(job, locks[1:])
        value: T = await self.submit(job)
        return value

    def transact(self, begin: str, work: Work[T], end: str = "rollback") -> T:
        """Run `work` in a transaction and return its result; retry if the database
        asks.
        """
        losses = 0  # of the connection; a restarted server has lost all of the pool
        for pause in (*RETRY_PAUSES_SECONDS, None):
            session: PostgresSession | None = None
            try:
                session = self.connection()
                return session.within(begin, work, end)
            except PSYCOPG_ERRORS as error:
                lost = session is not None and session.lost
                losses += lost
                clash = isinstance(
                    error, errors.SerializationFailure | errors.DeadlockDetected
                )
                again = clash or (lost and not isinstance(error, CommitInDoubt))
                if pause is None or losses > 2 or not again:
                    raise translate_error(error, lost) from error
            time.sleep(random.uniform(0, pause))
        raise AssertionError  # the last round returns or raises


def _begin(begin: str, scope: Scope, locks: Sequence[int] = ()) -> str:
    """Return SQL that begins a transaction, sets the tenant and acquires the locks."""
    taken = "".join(f", pg_advisory_xact_lock({lock})" for lock in locks)
    tenant = sql.quote(scope.tenant)
    return f"{begin}; select set_config('heedful.tenant', {tenant}, true){taken}"


Part = Literal["pre", "post", "all"]
# The lock that allows one migration of a database at a time: "heedful" as a number.
MIGRATION_LOCK_KEY: Final = 0x6865656466756C
_MIGRATION_ROLE_FIX = (
    "run heedful migrate as the role that owns heedful's tables, or as a role that "
    "may create a "
    "schema in this database (grant create on database … to …) and, with --role, may "
    "create roles"
)
_SCHEMA_VERSION_DDL = """
create table if not exists schema_version (
  number integer not null,
  part text not null check (part in ('pre', 'post')),
  at double precision not null,
  primary key (number, part)
);
create table if not exists queue_version (name text primary key, at double precision not null)
"""


class MigrationPart(NamedTuple):
    """One part (`pre` or `post`) of the migration with this number."""

    number: int
    part: str


@cache
def known() -> tuple[MigrationPart, ...]:
    """Return all parts of all migrations that this version of heedful has, in order."""
    names = (
        re.fullmatch(r"postgres_(\d{4})_(pre|post)\.sql", name)
        for name in os.listdir(SQL_FOLDER)
    )
    steps = [MigrationPart(int(name[1]), name[2]) for name in names if name]
    return tuple(sorted(steps, key=lambda step: (step.number, step.part == "post")))


def newest() -> int:
    """Return the schema version that this heedful needs: the number of the newest `pre`
    part.
    """
    return max((one.number for one in known() if one.part == "pre"), default=0)


class MigrationResult(NamedTuple):
    """The result of `migrate`: applied parts, parts still to apply, the schema's
    version.
    """

    applied: tuple[MigrationPart, ...]
    waiting: tuple[MigrationPart, ...]
    schema: int


def migrate(url: str, part: Part = "all", role: str = "") -> MigrationResult:
    """Migrate the database at `url` to the schema of this version, in one transaction.

    `part` may limit this to the `pre` or the `post` parts. A second call changes
    nothing. The role in the URL creates and owns the tables. `role` is the role of the
    service, which may read and write rows. If `role` does not exist, it is created
    without a password. Raises StoreError, InvalidInput.
    """
    try:
        with closing(PostgresSession(parse_url(url).conninfo)) as session:
            return session.within(
                "begin", lambda _: _migrate(session, part, role), "commit"
            )
    except errors.InsufficientPrivilege as error:
        raise RoleRefused(
            f"{error.diag.message_primary}; {_MIGRATION_ROLE_FIX}"
        ) from error
    except PSYCOPG_ERRORS as error:
        raise translate_error(error) from error


def _migrate(db: PostgresSession, part: Part, role: str) -> MigrationResult:
    db.script(f"""
        {PATIENT_TRANSACTION_SQL};
        set local lock_timeout = 0;
        select pg_advisory_xact_lock({MIGRATION_LOCK_KEY});
        set local lock_timeout = '10s'
    """)
    vectors(db)
    if db.execute(f"select to_regnamespace('{SCHEMA_NAME}')").fetchone()[0] is None:
        db.script(f"create schema {SCHEMA_NAME}")  # `if not exists` would need a right
    db.script(_SCHEMA_VERSION_DDL)
    done = {
        MigrationPart(*row)
        for row in db.execute("select number, part from schema_version")
    }
    if strange := sorted(done - set(known())):
        raise StoreNewer(
            f"the database has migration {strange[-1].number}, this heedful knows "
            f"{newest()}; "
            "upgrade heedful"
        )
    waiting = [one for one in known() if one not in done]
    applied = []
    for one in waiting:
        if part not in ("all", one.part):
            break  # later parts need this part
        db.script(read_sql(f"postgres_{one.number:04}_{one.part}.sql"))
        values = {"number": one.number, "part": one.part, "at": time.time()}
        db.execute(
            "insert into schema_version values (:number::int, :part, :at)", values
        )
        applied.append(one)
    _migrate_jobs(db, part)
    if role:
        _grant(db, role)
    there = done | set(applied)
    schema = max((one.number for one in there if one.part == "pre"), default=0)
    return MigrationResult(
        tuple(applied), tuple(one for one in waiting if one not in there), schema
    )


def _migrate_jobs(db: PostgresSession, part: str) -> None:
    """Migrate the job queue to the installed version of procrastinate.

    A migration of procrastinate is a `post` part if its name says so, otherwise a `pre`
    part.
    """
    try:
        from procrastinate.schema import SchemaManager
    except ImportError as error:
        raise PackageMissing(
            "the queue in PostgreSQL", "procrastinate", "postgres"
        ) from error
    folder = SchemaManager.get_migrations_path()
    names = sorted(name for name in os.listdir(folder) if name.endswith(".sql"))
    done = {row[0] for row in db.execute("select name from queue_version")}
    if not done:
        db.script(SchemaManager.get_schema())
        applied = names
    else:
        new = [name for name in names if name not in done]
        applied = [
            n for n in new if part in ("all", "post" if "_post_" in n else "pre")
        ]
        for name in applied:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                db.script(file.read())
    for name in applied:
        values = {"name": name, "at": time.time()}
        db.execute("insert into queue_version values (:name, :at)", values)
    db.script(read_sql("postgres_queue.sql"))


def vectors(db: PostgresSession) -> None:
    """Raise StoreError if pgvector is missing or too old."""
    found = db.execute(
        "select extversion from pg_extension where extname = 'vector'"
    ).fetchone()
    if found is None or tuple(map(int, re.findall(r"\d+", found[0])[:2])) < (0, 8):
        how = "alter extension vector update" if found else "create extension vector"
        raise StoreError(
            f"the database has {f'pgvector {found[0]}' if found else 'no pgvector'}; "
            "heedful needs "
            "0.8: install it on the server, then let a superuser run in the "
            f"database: {how}"
        )


def _grant(db: PostgresSession, role: str) -> None:
    """Create `role` if it does not exist; let it read and write rows under row-level
    security.

    This includes tables that a later migration creates. The role may add audit rows,
    but not change them or their head.
    """
    if not role.isprintable() or len(role) > 63:
        raise InvalidInput("role", role, "1 to 63 printable characters")
    name = sql.Identifier(role).as_string()
    if not db.execute(
        "select 1 from pg_roles where rolname = :role", {"role": role}
    ).fetchone():
        db.script(
            f"create role {name} login nosuperuser nocreatedb nocreaterole nobypassrls"
        )
    db.script(f"""
        grant usage on schema {SCHEMA_NAME} to {name};
        grant select, insert, update, delete on all tables in schema {SCHEMA_NAME} to {name};
        alter default privileges in schema {SCHEMA_NAME}
          grant select, insert, update, delete on tables to {name};
        alter default privileges in schema {SCHEMA_NAME} grant usage, select on sequences to {name};
        revoke insert, update, delete on schema_version, queue_version from {name};
        revoke update, delete on audit from {name};
        revoke insert, update, delete on audit_head from {name};
        grant usage, select on all sequences in schema {SCHEMA_NAME} to {name};
        grant execute on all functions in schema {SCHEMA_NAME} to {name}
    """)
