"""One connection to PostgreSQL: its address, statements, transactions and errors.

Statements are those of SQLite, with named parameters. Those whose result nobody needs
wait for the next one, together with the begin of the transaction: psycopg's pipeline
mode sends them in one round trip.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import dict_row
from psycopg.types.numeric import Int8BinaryDumper

from heedful.errors import (
    HeedfulError,
    InvalidInput,
    PoolerRefused,
    RoleRefused,
    StoreCorrupt,
    StoreError,
    StoreInDoubt,
    StoreOlder,
    StoreUnavailable,
)
from heedful.store import shown
from heedful.store.connection import Db, Rows, Work
from heedful.store.sqlite import invalid_value
from heedful.store.statements import Dialect, check_version, statements

T = TypeVar("T")
# The values of columns by their names, and a statement with its values.
Values = Mapping[str, Any]
Statement = tuple[str, Values]
# Connections of one process: two services and three workers stay below a server's usual
# 100.
POOL_CONNECTIONS = 12
MAX_POOL_CONNECTIONS = 500
# The schema of heedful's tables; the types of pgvector are in the schema `public`.
SCHEMA_NAME = "heedful"
# The time-outs limit the harm of a server that hangs, unless URL, role or server state
# others.
SETTINGS_SQL = f"""
select set_config('search_path', '{SCHEMA_NAME},public', false),
  (select count(set_config(name, time, false)) from pg_settings join (values
    ('statement_timeout', '30s'), ('lock_timeout', '10s'),
    ('idle_in_transaction_session_timeout', '60s')
  ) as timeout (name, time) using (name) where source = 'default')
"""
# One row: whether the server takes no writes, and the version of the schema.
_STATE_SQL = f"""
select current_setting('transaction_read_only') = 'on' as reads_only,
  max(number)::int as schema
from {SCHEMA_NAME}.schema_version
"""
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
# The error code of the function `must` of the schema, which `expect` calls.
UNMET_EXPECTATION_STATE = "HF001"
# The severities of errors with which the server ends a connection.
LOST_SEVERITIES = ("FATAL", "PANIC")


@dataclass(frozen=True, slots=True)
class Address:
    """A database: its `conninfo`, the URL `shown` without password, and a pool's size.

    A pool has at most `size` connections.
    """

    conninfo: str = field(repr=False)
    shown: str
    size: int


def parse_url(url: str) -> Address:
    """Return the address of a database from its URL.

    libpq reads the URL, apart from `?pool_size=`, the most connections of a pool, which
    may be 1 to 500. Raises InvalidInput, without the password.
    """
    place, _, query = url.partition("?")
    # libpq does not read + as a blank.
    parameters = dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True))
    size = parameters.pop("pool_size", str(POOL_CONNECTIONS))
    is_number = size.isascii() and size.isdigit()
    if not (is_number and 1 <= int(size) <= MAX_POOL_CONNECTIONS):
        raise InvalidInput("pool_size", size, "a whole number from 1 to 500")

    place += "?" + urlencode(parameters, quote_via=quote)
    conninfo = ""
    problem = ""
    try:
        conninfo = make_conninfo(
            "", **{**CONNECTION_DEFAULTS, **conninfo_to_dict(place)}
        )
    except psycopg.Error as error:
        # What follows the first quote or colon may be a part of the password.
        problem = str(error).partition('"')[0].partition(":")[0].strip()
    # Not raised above, where the error of psycopg, which may quote the password, would
    # be shown as its context.
    if problem:
        allowed = f"like postgresql://user@host:5432/db ({problem})"
        raise InvalidInput("store", shown(url), allowed)
    return Address(conninfo=conninfo, shown=shown(url), size=int(size))


class BatchConnection(psycopg.Connection[Any]):
    """A connection of psycopg that can keep a pipeline's commands until its end.

    psycopg polls the socket and writes to it for each command of a pipeline, and each
    time another thread may take the interpreter's lock.
    """

    keeps_commands = False

    def wait(self, gen: PQGen[Any], *args: Any, **options: Any) -> Any:
        if not self.keeps_commands:
            return super().wait(gen, *args, **options)

        # `gen` adds the command to the pipeline's queue before it first waits.
        return next(gen, None)


class PostgresSession(Db):
    """A connection for one thread at a time; errors of psycopg are not translated.

    Parameters are written `:name`, as in SQLite. Every integer is sent as bigint, so
    that a statement is prepared only once. The server infers the types of text
    parameters.
    """

    dialect: Dialect = "postgres"
    url: str

    def __init__(self, address: Address) -> None:
        self.url = address.shown
        self._connection = BatchConnection.connect(
            address.conninfo,
            # Transactions are begun explicitly, together with their tenant.
            autocommit=True,
            # At the first use, because psycopg then checks that it was prepared: after
            # an error, the later statements of a pipeline are not.
            prepare_threshold=0,
            row_factory=dict_row,
        )
        self._connection.prepared_max = None  # so that no statement is evicted
        self._connection.adapters.register_dumper(int, Int8BinaryDumper)

        with ExitStack() as opened:
            opened.callback(self.close)
            # Not prepared: behind a pooler, another client may have prepared that name.
            self._connection.execute(SETTINGS_SQL.encode(), prepare=False)
            opened.pop_all()  # nothing failed, so it stays open

        # What the next statement is sent with: SQL that begins the transaction, and
        # statements with their values.
        self._begin: Sequence[str] = ()
        self._waiting: list[Statement] = []
        # The errors that `expect` declared.
        self._expected: list[HeedfulError] = []
        # The transaction only reads; it has ended with the last statement of its work.
        self._reads = False
        self._has_ended = False

    def execute(self, sql: str, values: Any = (), /) -> Rows:
        if not (self._begin or self._waiting or self._has_ended):
            return self._execute(sql, values)

        self.execute_later(sql, values)
        return self._send_waiting()[-1]

    def execute_later(self, sql: str, values: Values, /) -> None:
        if self._has_ended:
            raise LookupError("a statement follows the last one of its transaction")
        # The values are copied: the caller may change them for the next row.
        self._waiting.append((sql, dict(values)))

    def expect(self, name: str, values: Values, error: HeedfulError, /) -> None:
        # The server checks this, because the commit may be in the same round trip.
        sql = expecting_sql(statements("postgres")[name])
        self.execute_later(sql, {**values, "expectation": len(self._expected)})
        self._expected.append(error)

    def last(self, *calls: Statement) -> list[Rows]:
        for name, values in calls:
            self.send(name, values)
        self._has_ended = self._reads
        return self._send_waiting(commits=self._reads)[-len(calls) :]

    def script(self, sql: str) -> None:
        """Run several statements in one message."""
        self._send_waiting()
        self._connection.execute(sql.encode(), prepare=False)

    def undo(self, savepoint: str, /) -> None:
        # psycopg forgets its prepared statements at a rollback. In a pipeline it would
        # drop them on the server after the next statement, which it still believes to
        # be prepared.
        self.script(f"rollback to {savepoint}")

    def load(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]
    ) -> int:
        """Insert rows into a table in bulk; return their number."""
        self._send_waiting()
        cursor = self._connection.cursor()
        sql = f"copy {table} ({', '.join(columns)}) from stdin"
        with cursor.copy(sql.encode()) as copy:
            for row in rows:
                copy.write_row(row)
        return cursor.rowcount

    def transact(
        self, begin: Sequence[str], work: Work[T], *, reads: bool = False
    ) -> T:
        """Run the function `work` in a transaction, commit it, and return its result.

        The SQL texts `begin` start the transaction; they are sent with its first
        statement. If it only `reads`, its last statement may have ended it already.
        After an error it is rolled back. Raises CommitInDoubt if the connection was
        lost during the commit, and the errors that `work` gave to `expect`.
        """
        self._begin = begin
        self._expected = []
        self._reads = reads
        self._has_ended = False
        try:
            # The server may have sent that it ends the connection: the first call reads
            # this message, and the second the end, as an error before any writing.
            self._connection.pgconn.consume_input()
            self._connection.pgconn.consume_input()
            value = work(self)
            if not self._has_ended:
                self.commit()
        except errors.FeatureNotSupported:
            # The schema has changed since the connection prepared its statements.
            self.close()
            raise
        except psycopg.Error as error:
            if error.sqlstate == UNMET_EXPECTATION_STATE:
                # The detail is the number of the expectation that was not met.
                number = int(error.diag.message_detail or 0)
                raise self._expected[number] from None
            raise
        finally:
            self._begin = ()
            self._waiting = []
            self._has_ended = False
            # After an error the transaction is still open.
            try:
                if self._connection.pgconn.pipeline_status != PipelineStatus.OFF:
                    self.close()  # a rollback would wait for ever
                elif self._status != TransactionStatus.IDLE:
                    self._connection.execute("rollback")
            except psycopg.Error:
                self.close()
        return value

    @property
    def _status(self) -> TransactionStatus:
        return self._connection.info.transaction_status

    def commit(self) -> None:
        """Send the statements that wait, and commit, in one round trip.

        Raises StoreError if a statement failed before, and the error of the server if
        one fails now: then nothing was written. Raises CommitInDoubt if the connection
        was lost, so that it is unknown whether the commit happened.
        """
        if self._status == TransactionStatus.INERROR:
            raise StoreError(
                "a statement failed and the work went on; nothing was written"
            )

        try:
            self._send_waiting(commits=True)
        except psycopg.Error as error:
            # An error with which the server goes on says that nothing was committed.
            severity = error.diag.severity_nonlocalized
            if error.sqlstate is not None and severity not in LOST_SEVERITIES:
                raise

            # libpq would notice a lost connection only at the next statement.
            self.close()
            # Of reads, nothing can be in doubt.
            if self._reads:
                raise
            raise CommitInDoubt(str(error)) from error

    def _send_waiting(self, commits: bool = False) -> list[Rows]:
        """Send the statements that wait in one round trip; return their results.

        What begins the transaction is sent first, if it was not yet. With `commits`,
        the transaction ends with them. Raises the first error of the server.
        """
        begin = self._begin
        waiting = self._waiting
        self._begin = ()
        self._waiting = []
        results: list[Rows] = []
        first_error: psycopg.Error | None = None
        try:
            with self._connection.pipeline() as pipeline:
                # An error that left this block would be logged by psycopg.
                self._connection.keeps_commands = True
                try:
                    for boundary in begin:
                        self._send_boundary(pipeline, boundary)
                    results = [self._execute(sql, values) for sql, values in waiting]
                    if commits:
                        self._send_boundary(pipeline, "commit")
                except psycopg.Error as error:
                    first_error = error
                finally:
                    self._connection.keeps_commands = False

                commands = list(pipeline.command_queue)
                pipeline.command_queue.clear()
                # A group at a time, so that a large batch is not kept twice.
                for start in range(0, len(commands), 100):
                    pipeline.command_queue.append(
                        partial(_call_each, commands[start : start + 100])
                    )
        except psycopg.Error as error:
            first_error = first_error or error

        if first_error is not None:
            raise _cause_of(first_error)
        return results

    def _send_boundary(self, pipeline: psycopg.Pipeline, sql: str) -> None:
        """Send SQL that begins or ends a transaction; a cursor would take more CPU."""
        send = self._connection.pgconn.send_query_params
        pipeline.command_queue.append(partial(send, sql.encode(), None))
        # The result belongs to no cursor: psycopg only raises its error.
        pipeline.result_queue.append(None)

    def _execute(self, sql: str, values: Any) -> Rows:
        return self._connection.execute(psycopg_sql(sql), values, binary=True)

    @property
    def lost(self) -> bool:  # type: ignore[override]
        return self._connection.closed

    def check(self) -> None:
        row = self.execute(_STATE_SQL).fetchone()
        if row["reads_only"]:
            raise StoreUnavailable(
                f"{self.url} is read-only; name the primary in the URL"
            )
        check_version(self.url, row["schema"], "database")

    def close(self) -> None:
        self._connection.close()


# What has no parameters (a string such as 'a:b', a quoted name, a comment, or the `::`
# of a cast), or else a parameter such as `:name`, whose name is the group.
_SQL_PARAMETER_PATTERN = re.compile(
    r"""'(?:[^']|'')*'|"[^"]*"|--[^\n]*|/\*.*?\*/|::|:([A-Za-z_]\w*)""", re.DOTALL
)


def _call_each(functions: Iterable[Callable[[], None]]) -> None:
    """Call the functions, which send the commands of a pipeline."""
    for function in functions:
        function()


def _cause_of(error: psycopg.Error) -> psycopg.Error:
    """Return the error that made the server ignore the later commands of a pipeline.

    psycopg raises PipelineAborted for an ignored command; the cause is its context.
    """
    while isinstance(error, errors.PipelineAborted):
        if not isinstance(error.__context__, psycopg.Error):
            break
        error = error.__context__
    return error


@cache
def expecting_sql(sql: str) -> str:
    """Return a statement that runs `sql`, and raises an error if it changes no row.

    `sql` must not return rows. The error has the value of the parameter `expectation`,
    by which `PostgresSession` finds the error that its caller expects.
    """
    return (
        f"with changed as ({sql.rstrip(';')} returning 1) "
        "select must(exists (select from changed), :expectation)"
    )


@cache
def psycopg_sql(sql: str) -> bytes:
    """Return SQL with its named parameters as psycopg writes them: `:a` as `%(a)s`.

    Strings, quoted names and comments stay as they are, except that each % is doubled.

    >>> psycopg_sql("select :a::text, ':b', 7 % :c")
    b"select %(a)s::text, ':b', 7 %% %(c)s"
    """

    def rewrite(part: re.Match[str]) -> str:
        return part[0] if part[1] is None else f"%({part[1]})s"

    return _SQL_PARAMETER_PATTERN.sub(rewrite, sql.replace("%", "%%")).encode()


class CommitInDoubt(psycopg.OperationalError):
    """The error for a connection that was lost during a commit."""


# The errors that `translate_error` translates; errors of the work itself pass
# unchanged.
PSYCOPG_ERRORS = (psycopg.Error, UnicodeEncodeError, OverflowError)
_CLASH_FIX = "other transactions keep changing the same rows; try again later"
_SHARED_CONNECTIONS = (
    "a pooler shares connections of PostgreSQL between its clients (pool_mode "
    "transaction or statement), so settings and prepared statements of heedful would "
    "not stay; set pool_mode = session, or name PostgreSQL's own port in the URL"
)
_OLD_SCHEMA_FIX = "run heedful db migrate as the role that owns the tables"
# Our error for a class of errors, and what a user can do about it
# (postgresql.org/docs/current/errcodes-appendix.html).
_TRANSLATIONS: dict[type[psycopg.Error], tuple[type[StoreError], str]] = {
    errors.SerializationFailure: (StoreUnavailable, _CLASH_FIX),
    errors.DeadlockDetected: (StoreUnavailable, _CLASH_FIX),
    errors.LockNotAvailable: (
        StoreUnavailable,
        "another transaction holds a lock that this one needs; try again",
    ),
    errors.QueryCanceled: (
        StoreUnavailable,
        (
            "it took longer than statement_timeout; try again, or raise it in the URL: "
            "?options=-c%20statement_timeout=60s"
        ),
    ),
    errors.ReadOnlySqlTransaction: (
        StoreUnavailable,
        "this server is a standby; name the primary in the URL",
    ),
    errors.DiskFull: (
        StoreUnavailable,
        "the server's disk is full; make room and run again, nothing was lost",
    ),
    errors.DataCorrupted: (
        StoreCorrupt,
        "the server's files are damaged; restore a backup",
    ),
    errors.IndexCorrupted: (
        StoreCorrupt,
        "the server's files are damaged; reindex them, or restore a backup",
    ),
    errors.InsufficientPrivilege: (
        RoleRefused,
        "run heedful db migrate --role with the name of this role",
    ),
    errors.DuplicatePreparedStatement: (PoolerRefused, _SHARED_CONNECTIONS),
    errors.InvalidSqlStatementName: (PoolerRefused, _SHARED_CONNECTIONS),
    errors.UndefinedTable: (StoreOlder, _OLD_SCHEMA_FIX),
    errors.UndefinedColumn: (StoreOlder, _OLD_SCHEMA_FIX),
    errors.UndefinedFunction: (StoreOlder, _OLD_SCHEMA_FIX),
}
_LOST_SERVER_FIX = "the server no longer answers; see that it runs, then try again"
_UNREACHABLE_SERVER_FIX = (
    "see that the server runs and accepts more connections (max_connections), and "
    "that host, database, user and password in the URL are right; then try again"
)


def translate_error(error: Exception, lost: bool = False) -> HeedfulError:
    """Return the HeedfulError for an error of psycopg, with what the user can do.

    `lost` says that the connection was lost.
    """
    if isinstance(error, UnicodeEncodeError | OverflowError):
        return invalid_value(error)

    # The lines after the first quote the statement.
    line = (str(error) or type(error).__name__).splitlines()[0]
    for kind, (translated, remedy) in _TRANSLATIONS.items():
        if isinstance(error, kind):
            return translated(f"{line}: {remedy}")

    if isinstance(error, psycopg.DataError) and "NUL" in line:
        allowed = "text without NUL, which PostgreSQL cannot hold"
        return InvalidInput("text", "\0", allowed)
    if isinstance(error, CommitInDoubt):
        return StoreInDoubt(line)
    # An InternalError without a state is an answer that psycopg did not expect: that of
    # a pooler, which says after an error that the server is gone.
    if lost or (isinstance(error, psycopg.InternalError) and error.sqlstate is None):
        return StoreUnavailable(f"{line}: {_LOST_SERVER_FIX}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return StoreUnavailable(f"{line}: {_UNREACHABLE_SERVER_FIX}")
    return StoreError(line)
