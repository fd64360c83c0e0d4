"""Vectors in SQL: how many lie in which space, which are missing, and where they go."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.protocols import Scope
from heedful.store.database import Db
from heedful.store.reflections import blob, key_of, placed

# A task of nothing else has no place in any space.
BLANK = " \t\n\r\v\f\xa0\u3000"


def spaces(db: Db, scope: Scope) -> dict[str, int]:
    """Space -> how many examples that may be recalled lie in it; "" where they have no vector."""
    rows = db.named("count_spaces", {**key_of(scope), "blank": BLANK}).fetchall()
    return {row["space"]: row["n"] for row in rows}


def unplaced(db: Db, scope: Scope, space: str, after: int, limit: int) -> list[tuple[int, str]]:
    """The examples above the id `after` without a vector in that space: id and task, in order."""
    values = {**key_of(scope), "blank": BLANK, "space": space, "after": after, "limit": limit}
    rows = db.named("unplaced", values).fetchall()
    return [(row["id"], row["task"]) for row in rows]


def place(
    db: Db, scope: Scope, space: str, places: Sequence[tuple[int, str, Sequence[float]]]
) -> int:
    """Write vectors, each where its example still has the text; how many those were."""
    written = 0
    for id, task, vector in places:
        values = {**key_of(scope), "id": id, "task": task, **placed(db, space, blob(vector))}
        written += db.named("place", values).rowcount
    return written
