"""Empty databases of either engine for programs that are killed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.postgres import Urls, drop, fresh

HEALTHY = [("ok",)]
SEARCH_PATH = "-c search_path=heedful,public"


@dataclass(frozen=True, kw_only=True)
class Database:
    """A database by the URL that a program opens, and by its engine."""

    url: str
    engine: str
    superuser: str = ""

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return what a statement finds, whoever's it is."""
        if self.superuser:
            with psycopg.connect(self.superuser, options=SEARCH_PATH) as db:
                return db.execute(sql).fetchall()
        with closing(sqlite3.connect(self.url)) as db:
            return db.execute(sql).fetchall()

    def check_health(self) -> None:
        """See that the file is whole; a server was not killed."""
        if not self.superuser:
            assert self.rows("pragma integrity_check") == HEALTHY
            assert self.rows("pragma foreign_key_check") == []


@contextmanager
def databases(engine: str, folder: Path) -> Iterator[Callable[[], Database]]:
    """Yield what makes an empty database of an engine, "sqlite" or "postgres"."""
    servers: list[Urls] = []

    def make() -> Database:
        if engine == "sqlite":
            path = folder / f"{os.urandom(4).hex()}.db"
            return Database(url=str(path), engine="SQLite")
        urls = fresh()
        servers.append(urls)
        return Database(url=urls.service, engine="PostgreSQL", superuser=urls.superuser)

    try:
        yield make
    finally:
        for urls in servers:
            drop(urls)
