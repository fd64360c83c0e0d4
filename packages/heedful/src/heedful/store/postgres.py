"""A store in PostgreSQL: who may connect, the pool of connections, and transactions.

A connection is refused if row-level security would not restrict its role. A transaction
runs again if the database rolled it back, or if the connection was lost before the
commit. Tasks that need the same lock wait in this process, without a thread or a
connection. If they waited in the database, 64 writers of one scope would delay a reader
of another scope by 1.3 s.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from psycopg import errors, sql

from heedful.errors import RoleRefused
from heedful.lessons.scope import Scope
from heedful.store.connection import MEMORY_LOCKS, ReadLane, Row, Work
from heedful.store.postgres_schema import check_server
from heedful.store.postgres_session import (
    PSYCOPG_ERRORS,
    SCHEMA_NAME,
    Address,
    CommitInDoubt,
    PostgresSession,
    parse_url,
    translate_error,
)
from heedful.store.statements import check_version
from heedful.store.store import Store
from heedful.store.threads import Threads

T = TypeVar("T")
# One row: the role, the database, the version of the server, whether the schema exists
# and whether the role owns tables in it; `free` says why row-level security would not
# restrict the role.
_ROLE_SQL = f"""
select current_user::text as role, current_database()::text as database,
  current_setting('server_version_num')::int as server,
  count(c.oid) > 0 as made,
  coalesce(bool_or(pg_has_role(c.relowner, 'member')), false) as owner,
  case when r.rolsuper then 'is a superuser' when r.rolbypassrls then 'has BYPASSRLS'
    when bool_or(pg_has_role(c.relowner, 'member')) then 'owns heedful''s tables'
  end as free
from pg_roles r left join (
  pg_class c
    join pg_namespace n on n.oid = c.relnamespace and n.nspname = '{SCHEMA_NAME}'
) on c.relkind = 'r'
where r.rolname = current_user group by r.rolsuper, r.rolbypassrls
"""
_SCHEMA_VERSION_SQL = (
    f"select max(number)::int as version from {SCHEMA_NAME}.schema_version"
)
VACUUM_NOTICE = (
    "PostgreSQL keeps deleted rows in its files until it vacuums the tables: run "
    "VACUUM as the role that owns them; archives of its log and backups keep what they "
    "have"
)
_BEGIN_READ_SQL = "begin isolation level repeatable read read only"


def connect(address: Address) -> PostgresSession:
    """Connect to a database, check that heedful may use it, and return the session.

    The server must be new enough, row-level security must restrict the role, that is
    the user of the database, and the schema must have the version of this heedful.
    Raises RoleRefused, PoolerRefused, StoreOlder, StoreNewer, StoreUnavailable.
    """
    session = PostgresSession(address)
    with ExitStack() as refusal:
        refusal.callback(session.close)  # whichever check fails

        role = describe_role(session)
        check_server(role["server"])
        if role["free"]:
            raise RoleRefused(
                f"role {role['role']} {role['free']}, so row-level security would not "
                "restrict it; heedful db migrate --role heedful creates a role for the "
                "service: use it in the URL"
            )
        check_schema(session, role)

        refusal.pop_all()  # nothing is wrong, so the session stays open
    return session


def describe_role(session: PostgresSession) -> Row:
    """Return a row about the server, the database, and the role that is connected.

    Its columns: `role` and `database` are their names, `server` is the version of the
    server, `made` says that heedful's schema exists, and `owner` that the role owns
    tables in it. `free` says why row-level security does not restrict the role; it is
    null if it does.
    """
    return session.execute(_ROLE_SQL).fetchone()


def check_schema(session: PostgresSession, role: Row) -> None:
    """Check that the schema has the version of this heedful.

    `role` is the row of `describe_role`. Raises StoreOlder, also if there is no schema,
    and StoreNewer.
    """
    version = None
    if role["made"]:
        version = session.execute(_SCHEMA_VERSION_SQL).fetchone()["version"]
    check_version(f"database {role['database']}", version, "database")


# The longest pause before each retry of a transaction, in seconds. The pause is a
# random part of it, so that transactions in conflict do not meet again.
RETRY_PAUSES_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)


def in_database(url: str) -> Store:
    """Return a store with its own connections to the database at `url`.

    Raises InvalidInput.
    """
    address = parse_url(url)
    return Store(address.shown, Database(address))


# The turns of large reads: one runs at a time. No lock has such a number.
LANE_TURNS: Mapping[ReadLane, Sequence[int]] = {
    "short": (),
    "long": (2**64,),
    "bulk": (2**64 + 1,),
}


class Database(Threads[PostgresSession]):
    """Access to a PostgreSQL database: threads, each with its own connection.

    This is not a psycopg_pool, because that pool would retry a refused role or an older
    schema until a time-out. The user would then see the time-out instead of an error
    that says what to do.

    Cancelling a task does not stop a running transaction.
    """

    in_doubt = True

    def __init__(self, address: Address) -> None:
        super().__init__(partial(connect, address), address.size)

    def reset(self) -> None:
        super().reset()
        # For each event loop and number of a lock: whose turn it is to ask for it.
        self._turns = WeakValueDictionary[Any, asyncio.Lock]()

    async def read(self, scope: Scope, work: Work[T], lane: ReadLane = "short") -> T:
        job = partial(self.transact, _begin(_BEGIN_READ_SQL, scope), work, reads=True)
        return await self.run(job, LANE_TURNS[lane])

    async def write(
        self, scope: Scope, work: Work[T], locks: Sequence[str] = MEMORY_LOCKS
    ) -> T:
        """Run `work`, commit, and return its result.

        Meanwhile no other writer has one of the `locks`, which are names within the
        scope. Repeats if the database asks for a retry. Raises StoreInDoubt if the
        connection was lost during the commit. `work` is then not repeated here: the
        store, which calls this, can recognise what was written.
        """
        numbers = [_lock_number(scope, name) for name in dict.fromkeys(locks)]
        job = partial(self.transact, _begin("begin", scope, numbers), work)
        return await self.run(job, numbers)

    async def clean(self) -> str:
        """Return that only the owner of the tables can remove deleted rows from files.

        A role that owns them is refused, and no other may vacuum them.
        """
        return VACUUM_NOTICE

    async def run(self, job: Callable[[], T], locks: Sequence[int] = ()) -> T:
        """Run `job` on a thread and return its result.

        Tasks of this event loop that need the same `locks` (numbers) wait here for each
        other, without a thread or a connection; those of others wait in the database.
        """
        # First the turn for the first lock, then those for the rest, and then the job.
        if locks:
            key = asyncio.get_running_loop(), locks[0]
            async with self._turns.setdefault(key, asyncio.Lock()):
                return await self.run(job, locks[1:])

        return await self.submit(job)

    def transact(self, begin: Sequence[str], work: Work[T], reads: bool = False) -> T:
        """Run `work` in a transaction and return its result.

        `begin` is the SQL that begins the transaction. With `reads`, it only reads.
        Repeats after a pause if the database asks for a retry, or if the connection was
        lost before the commit, at most once for each of `RETRY_PAUSES_SECONDS`. Raises
        StoreError, and the errors of `work`.
        """
        pauses = iter(RETRY_PAUSES_SECONDS)
        while True:
            session: PostgresSession | None = None
            try:
                session = self.connection()
                return session.transact(begin, work, reads=reads)
            except PSYCOPG_ERRORS as error:
                lost = session is not None and session.lost
                pause = next(pauses, None)
                if pause is None or not _is_temporary(error, lost):
                    raise translate_error(error, lost) from error

            time.sleep(random.uniform(0, pause))


def _lock_number(scope: Scope, name: str) -> int:
    """Return the number of a lock. If two locks share one, one waits for the other."""
    text = f"{scope.tenant}\0{scope.project}\0{name}"
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def _begin(begin: str, scope: Scope, locks: Sequence[int] = ()) -> tuple[str, str]:
    """Return SQL that begins a transaction, and SQL that sets the tenant and locks."""
    calls = [f"set_config('heedful.tenant', {_quoted(scope.tenant)}, true)"]
    calls += [f"pg_advisory_xact_lock({lock})" for lock in locks]
    return begin, f"select {', '.join(calls)}"


@lru_cache(1_000)
def _quoted(text: str) -> str:
    """Return a text as a literal of SQL."""
    return sql.quote(text)


def _is_temporary(error: Exception, lost: bool) -> bool:
    """Return True if a transaction was surely not committed, and may succeed next time.

    `error` ended it, and `lost` says that the connection was lost.
    """
    if isinstance(error, errors.SerializationFailure | errors.DeadlockDetected):
        return True
    return lost and not isinstance(error, CommitInDoubt)
