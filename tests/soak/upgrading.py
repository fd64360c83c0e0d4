"""A program that upgrades stores and dies at a chosen statement of the upgrade.

Each line that it reads is a JSON list: the URL, the way to die and the number of the
statement, which counts from 1. It answers with a line: how often it came to a
statement, or the number of the signal that killed it, below 0. It forks for each line,
so that an upgrade takes milliseconds and not the start of a process.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from typing import Any

from psycopg import Error

from heedful.errors import StoreError
from heedful.store import sqlite
from heedful.store.postgres_migrations import migrate
from heedful.store.postgres_session import PostgresSession
from tests.postgres import SERVICE

# The ways to die: before a statement, or in it (or right after one that is too short).
BEFORE = "before"
WITHIN = "within"
# Only for a server: the server ends the connection, and the program lives.
CUT = "cut"
# SQLite asks after so many steps of its machine whether to go on.
STEPS = 3
# So few pages in memory that an upgrade writes to the disk long before its commit.
PAGES = 4
# One statement of a script: a semicolon ends none in a text, a comment or a body.
STATEMENT_PATTERN = re.compile(
    r"(?:--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|(\$\w*\$).*?\1|[^;])+", re.DOTALL
)


class Death:
    """The moment at which a process dies; 0 means never."""

    def __init__(self, way: str, number: int) -> None:
        self.way = way
        self.number = number
        self.count = 0

    def comes(self) -> bool:
        """Count a statement, and die if death comes before it."""
        self.count += 1
        is_now = self.count == self.number
        if is_now and self.way == BEFORE:
            die()
        return is_now


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def upgrade_file(path: str, death: Death) -> None:
    """Open a file of SQLite, which upgrades it."""
    execute = sqlite.Connection.execute

    def counted(db: sqlite.Connection, sql: str, *values: Any) -> Any:
        is_now = death.comes()
        if is_now:
            db.set_progress_handler(die, STEPS)
        cursor = execute(db, sql, *values)
        if is_now:
            die()
        if death.count == 1:
            execute(db, f"pragma cache_size = {PAGES}")
        return cursor

    sqlite.Connection.execute = counted  # type: ignore[method-assign, assignment]
    sqlite.connect(path, 1.0).close()


def upgrade_server(url: str, death: Death) -> None:
    """Migrate a database of PostgreSQL; the statements of a script are sent apart."""
    script = PostgresSession.script
    execute = PostgresSession.execute
    commit = PostgresSession.commit

    def come_to_statement(db: PostgresSession) -> None:
        if death.comes():
            script(db, "select pg_terminate_backend(pg_backend_pid())")

    def counted_script(db: PostgresSession, sql: str) -> str:
        status = ""
        for statement in STATEMENT_PATTERN.finditer(sql):
            if re.sub(r"--[^\n]*", "", statement[0]).strip():
                come_to_statement(db)
                status = script(db, statement[0])
        return status

    def counted_execute(db: PostgresSession, sql: str, values: Any = (), /) -> Any:
        come_to_statement(db)
        return execute(db, sql, values)

    def counted_commit(db: PostgresSession) -> None:
        come_to_statement(db)
        commit(db)

    PostgresSession.script = counted_script  # type: ignore[method-assign, assignment]
    PostgresSession.execute = counted_execute  # type: ignore[method-assign]
    PostgresSession.commit = counted_commit  # type: ignore[method-assign, assignment]
    try:
        migrate(url, role=SERVICE)
    except StoreError as error:
        # The only error there may be is that the connection was cut.
        if death.way != CUT or not isinstance(error.__cause__, Error):
            raise


def upgrade(url: str, way: str, number: int) -> int:
    """Upgrade in a child; return the statements it came to, or its signal below 0."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            death = Death(way, number)
            if url.startswith("postgresql"):
                upgrade_server(url, death)
            else:
                upgrade_file(url, death)
            os.write(writer, str(death.count).encode())
            code = 0
        finally:
            sys.stderr.flush()
            os._exit(code)

    os.close(writer)
    with os.fdopen(reader) as count:
        text = count.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return int(text)
    return min(code, -code)


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        print(upgrade(*json.loads(line)), flush=True)
