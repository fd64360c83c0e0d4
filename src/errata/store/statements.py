"""The named statements of `sql/sqlite_*.sql`, a file a room."""

from __future__ import annotations

import os
import re
from functools import cache

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
)


@cache
def statements() -> dict[str, str]:
    """Name -> SQL, read once."""
    text = "".join(read_sql(f"sqlite_{room}.sql") for room in ROOMS)
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {name: sql.strip() for name, sql in zip(parts[1::2], parts[2::2], strict=True)}


def read_sql(name: str) -> str:
    """The text of a file of `sql/`. Without pathlib or importlib.resources: both cost a start."""
    with open(os.path.join(os.path.dirname(__file__), "sql", name), encoding="utf-8") as file:
        return file.read()
