"""Prune a memory: the lessons that nobody has used, and all but the most useful."""

import time
from collections.abc import Mapping
from math import inf
from typing import Any

from heedful.lessons.scope import DAY_SECONDS, Scope
from heedful.store.connection import MAX_ROWS, Db, resumable
from heedful.store.lessons import count, delete_lessons
from heedful.store.rulings import name_of, rule


def prunable(
    db: Db, scope: Scope, unused_for: float, keep: int
) -> list[Mapping[str, Any]]:
    """Return the lessons that `prune` would delete, with the reason as `why`.

    With `unused_for` above 0, these are the lessons neither seen nor shown for this
    many seconds. With `keep` of at least 0, the least useful lessons are added until
    only `keep` would remain. Lessons that are pinned or proven to help are left out.
    """
    now = time.time()
    before = now - unused_for if unused_for else -inf
    unused = db.all(
        "prunable",
        scope,
        most_useful=1,
        kept="[]",
        since=-inf,
        before=before,
        limit=MAX_ROWS,
    )

    lessons = list[Mapping[str, Any]]()
    for row in unused:
        days = (now - max(row["last_seen"], row["last_shown"])) / DAY_SECONDS
        lessons.append({**dict(row), "why": f"not used for {days:.0f} days"})

    excess = count(db, scope) - len(lessons) - keep
    if keep < 0 or excess <= 0:
        return lessons

    least_useful = db.all(
        "prunable",
        scope,
        most_useful=1,
        kept="[]",
        since=before,
        before=inf,
        limit=excess,
    )
    for row in least_useful:
        lessons.append({**dict(row), "why": f"the least useful beyond {keep}"})
    return lessons


@resumable(result=list[Mapping[str, Any]])
def prune(
    db: Db, scope: Scope, unused_for: float, keep: int, by: str
) -> list[Mapping[str, Any]]:
    """Delete the lessons that `prunable` returns, record a ruling, and return them."""
    lessons = prunable(db, scope, unused_for, keep)
    if not lessons:
        return lessons

    delete_lessons(db, scope, lessons)
    removed = [{"lesson": name_of(lesson), "why": lesson["why"]} for lesson in lessons]
    rule(
        db,
        scope,
        action="prune",
        subject=f"{len(lessons)} lessons",
        by=by,
        why="",
        now=time.time(),
        record={"removed": removed},
    )
    return lessons
