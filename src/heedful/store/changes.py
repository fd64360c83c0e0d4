"""Remarks about changes, in a store: until two changes have one, it is no lesson.

A remark is kept for each change by the digest of what counts as the same. The second
change makes the lesson, and each later one is another sighting of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from heedful.lessons.lesson import Lesson, Remembered, Scope
from heedful.lessons.origin import lowest_origin, origin_of
from heedful.lessons.quarantine import CHANGE_SOURCE_PREFIX, initial_state
from heedful.store import lessons
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    Row,
    key_of,
    resumable,
    storable,
    storable_json,
)

# How many changes must have a remark before it is a lesson.
MIN_LESSON_CHANGES = 2
# With more remarks in a scope, the oldest are forgotten.
MAX_KEPT_REMARKS = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeKey:
    """A change by its `name`, and by what its remarks are compared with others.

    `digests` say of each remark which one of another change is the same. `stated`
    are the names of sources that people stated.
    """

    name: str
    digests: tuple[str, ...]
    stated: Set[str]


@resumable(result=list[Remembered])
def record(
    db: Db,
    scope: Scope,
    change: ChangeKey,
    new_lessons: Sequence[Lesson],
    *,
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Keep the remarks about a change; return an answer about the lesson of each.

    Without a lesson yet, the answer has no id. The trust of `new_lessons` is not
    limited yet; their `source` is who said it. A remark that the change had before
    counts once. `most` and `quota` are limits as in `exposures.remember`.
    """
    answers = [
        _record_remark(
            db,
            scope,
            lesson,
            change=change,
            digest=digest,
            quota=quota,
        )
        for digest, lesson in zip(change.digests, new_lessons, strict=True)
    ]
    db.send("forget_remarks", {**key_of(scope), "most": MAX_KEPT_REMARKS})
    return lessons.evict(db, scope, answers, most)


def _record_remark(
    db: Db,
    scope: Scope,
    lesson: Lesson,
    *,
    change: ChangeKey,
    digest: str,
    quota: int | None,
) -> Remembered:
    """Keep a remark about a change; return the answer about its lesson."""
    now = time.time()
    row = {
        **key_of(scope),
        "digest": digest,
        "change": storable(change.name),
        "source": storable(lesson.source),
        "record": storable_json({"text": lesson.text}),
        "at": now,
    }
    is_new = db.insert_now("remark", row, CONFLICT_SKIP_SQL).rowcount > 0
    rows = db.all("changes_with", scope, digest=digest)
    answers: list[Remembered] = []
    if not is_new:
        answers += lessons.remembered(db, scope, [lesson])
    elif len(rows) >= MIN_LESSON_CHANGES:
        # The first change is a sighting, too, once there is a lesson.
        is_first = len(rows) == MIN_LESSON_CHANGES
        for sighting in rows if is_first else rows[-1:]:
            seen_lesson = _lesson_from(lesson, sighting, change.stated)
            answers += lessons.upsert(
                db, scope, [seen_lesson], now, quota=quota, drops=True
            )
    return answers[-1] if answers else lessons.UNSTORED_LESSON


def _lesson_from(lesson: Lesson, remark: Row, stated: Set[str]) -> Lesson:
    """Return the lesson of a change that has the same remark, with its origin.

    Its text is that of the change.
    """
    source = remark["source"]
    trust = lowest_origin((lesson.trust, origin_of([source], stated)))
    text = json.loads(remark["record"])["text"]
    return replace(
        lesson,
        text=text,
        sighting=text,
        trust=trust,
        state=initial_state(trust),
        source=f"{CHANGE_SOURCE_PREFIX}{remark['change']}"[:200],
        sources=(source,),
    )
