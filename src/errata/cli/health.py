"""A database as it is, read on a connection of its own that cannot write."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from errata.errors import StoreCorrupt, StoreNewer
from errata.store.lease import alive
from errata.store.sqlite import APPLICATION, SCHEMA


@dataclass(frozen=True)
class Health:
    """`check` is "ok" or what SQLite found wrong. `driven` counts the loops that a process drives
    now; `interrupted` are the ids of those that nobody drives.
    """

    schema: int
    journal: str
    check: str
    driven: int
    interrupted: tuple[str, ...]


def health(path: Path) -> Health:
    """How the database file is. Raises StoreCorrupt, StoreNewer, sqlite3.Error."""
    address = f"{path.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=5)) as db:
        try:
            application, schema = _pragma(db, "application_id"), int(_pragma(db, "user_version"))
        except sqlite3.DatabaseError as error:
            raise StoreCorrupt(f"{error}") from error
        if int(application) != APPLICATION:
            raise StoreCorrupt("it is another program's database")
        if schema > SCHEMA:
            raise StoreNewer(f"it has schema {schema}, this errata knows {SCHEMA}; upgrade errata")
        check = "; ".join(row[0] for row in db.execute("pragma integrity_check(5)"))
        broken = db.execute("pragma foreign_key_check").fetchone()
        if check == "ok" and broken is not None:
            check = f"a row of {broken[0]} refers to none of {broken[2]}"
        rows = db.execute("select id, owner, lease from loop where state = 'open' order by n desc")
        owners = [(str(id), alive(owner, lease, time.time())) for id, owner, lease in rows]
        idle = tuple(id for id, driven in owners if not driven)
        journal = _pragma(db, "journal_mode")
        return Health(schema, journal, check, len(owners) - len(idle), idle)


def _pragma(db: sqlite3.Connection, name: str) -> str:
    return str(db.execute(f"pragma {name}").fetchone()[0])
