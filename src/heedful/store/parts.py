"""The migrations of PostgreSQL that this version knows, by the files of `sql/`."""

from __future__ import annotations

import os
import re
from functools import cache
from typing import NamedTuple


class Step(NamedTuple):
    """One part of one migration, `pre` or `post`."""

    number: int
    part: str

    @property
    def file(self) -> str:
        """Its name in `sql/`."""
        return f"postgres_{self.number:04}_{self.part}.sql"


@cache
def known() -> tuple[Step, ...]:
    """All of them, in their order."""
    folder = os.path.join(os.path.dirname(__file__), "sql")
    names = (re.fullmatch(r"postgres_(\d{4})_(pre|post)\.sql", name) for name in os.listdir(folder))
    steps = [Step(int(name[1]), name[2]) for name in names if name]
    return tuple(sorted(steps, key=lambda one: (one.number, one.part == "post")))


def newest() -> int:
    """The schema that this version needs: the number of its newest pre part."""
    return max((one.number for one in known() if one.part == "pre"), default=0)
