"""The named statements of `sql/sqlite.sql`."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources


@cache
def statements() -> dict[str, str]:
    """Name -> SQL, read once."""
    text = resources.files("errata.store").joinpath("sql", "sqlite.sql").read_text("utf-8")
    parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {name: sql.strip() for name, sql in zip(parts[1::2], parts[2::2], strict=True)}
