"""What makes a lesson old: a remedy that failed itself, and the files it is about.

The `meta` of a lesson from a session has the digest of the command that put its failure
right as `remedy`, and the digests of its files by their paths as `files`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from heedful.lessons.action import MEND_HEADING
from heedful.lessons.scope import Scope
from heedful.store.connection import Db, key_of

REMEDY_META = "remedy"
FILES_META = "files"


def metas(db: Db, scope: Scope, ids: Collection[int]) -> dict[int, Mapping[str, Any]]:
    """Return the `meta` of the lessons with these ids."""
    metas: dict[int, Mapping[str, Any]] = {}
    for id in ids:
        for row in db.select("meta", "lesson", {**key_of(scope), "id": id}):
            metas[id] = json.loads(row["meta"])
    return metas


def has_failed_remedy(db: Db, scope: Scope, id: int) -> bool:
    """Return whether what put a failure right failed itself, and has not worked since.

    `id` is that of the lesson.
    """
    remedy = metas(db, scope, [id]).get(id, {}).get(REMEDY_META)
    if not remedy:
        return False
    rows = db.all("tracks", scope, digests=json.dumps([remedy]), source="")
    return any(row["failed"] and not row["since"] for row in rows)


def without_failed_remedy(
    db: Db, scope: Scope, lesson: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a lesson as data, without its remedy if that failed itself."""
    wrong, heading, _ = lesson["text"].partition(f"\n{MEND_HEADING}\n")
    if heading and has_failed_remedy(db, scope, lesson["id"]):
        return {**lesson, "text": wrong}
    return lesson
