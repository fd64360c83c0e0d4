"""The named statements of `sql/`, a file a room; what one dialect says its own way, in another."""

from __future__ import annotations

import os
import re
from functools import cache

from heedful.store.database import Dialect

FOLDER = os.path.join(os.path.dirname(__file__), "sql")
ROOMS = (
    "loops",
    "lessons",
    "search",
    "proof",
    "trust",
    "grouping",
    "size",
    "places",
    "transfer",
    "dreams",
    "episodes",
    "keys",
    "audit",
    "answers",
    "pending",
)


@cache
def statements(dialect: Dialect) -> dict[str, str]:
    """Name -> SQL, read once."""
    names = (name for room in ROOMS for name in (f"{room}.sql", f"{dialect}_{room}.sql"))
    there = set(os.listdir(FOLDER))
    text = "".join(read_sql(name) for name in names if name in there)
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {name: sql.strip() for name, sql in zip(parts[1::2], parts[2::2], strict=True)}


def read_sql(name: str) -> str:
    """The text of a file of `sql/`. Without pathlib or importlib.resources: both cost a start."""
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return file.read()
