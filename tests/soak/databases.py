"""Empty databases of either engine for programs that are killed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.postgres import Urls, drop, fresh

HEALTHY = [("ok",)]
SEARCH_PATH = "-c search_path=heedful,public"


@dataclass(frozen=True, kw_only=True)
class Database:
    """A database by the URL that a program opens; `superuser` is that of a server."""

    url: str
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


class Databases:
    """What makes databases of an engine, "sqlite" or "postgres", and drops them."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.engine = "SQLite" if engine == "sqlite" else "PostgreSQL"
        self._folder = folder
        self._urls: list[Urls] = []

    def new(self) -> Database:
        """Make an empty database."""
        if self.engine == "SQLite":
            path = self._folder / f"{os.urandom(4).hex()}.db"
            return Database(url=str(path))
        urls = fresh()
        self._urls.append(urls)
        return Database(url=urls.service, superuser=urls.superuser)

    def drop(self) -> None:
        """Drop those that are on a server."""
        for urls in self._urls:
            drop(urls)
