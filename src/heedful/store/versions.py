"""New words for the lessons of an episode: the version by a model.

The lessons of an episode first have the words of rules. When a model has reworded them,
its words take their place. The same transaction ends the wait for the model, so that
this happens once. The old words stay as a superseded text, and a ruling records the
change. What a person, a proof or another run has changed since stays as it is, and the
episode says why.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from heedful.lessons.lesson import Example, Lesson, Remembered, Scope
from heedful.lessons.origin import is_below
from heedful.store import episodes, lessons
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    Row,
    key_of,
    resumable,
    storable,
    storable_json,
)
from heedful.store.search import blob, placed

LIVE_OR_WAITING_STATES = ("unverified", "quarantined")


@resumable(result=list[Remembered])
def reword(
    db: Db,
    scope: Scope,
    digest: str,
    replaced: Mapping[str, str],
    new_lessons: Sequence[Lesson],
    *,
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Give the lessons of an episode the words of a model; return what was added.

    `replaced` has the signature of the lesson to change, by its kind. A strategy is
    added if the episode has none, or one that is trusted more. If the wait for the
    model has ended, nothing is done. `most` and `quota` are limits as in
    `exposures.remember`. Raises QuotaExceeded.
    """
    rows: dict[str, Row] = {}
    added: list[Lesson] = []
    reasons: list[str] = []
    for lesson in new_lessons:
        if lesson.kind not in replaced:
            added.append(lesson)
            continue
        name = {"kind": lesson.kind, "signature": replaced[lesson.kind]}
        matches = db.select("*", "lesson", {**key_of(scope), **name})
        reason = _obstacle(matches)
        if not reason and is_below(lesson.trust, matches[0]["trust"]):
            reason = f"the new ones have only the origin {lesson.trust}"
            if lesson.kind == "strategy":  # it waits beside the other
                added.append(lesson)
        if reason:
            reasons.append(f"the {lesson.kind} keeps its words: {reason}")
        else:
            rows[lesson.kind] = matches[0]

    if not episodes.settle_draft(db, scope, digest, "; ".join(reasons)):
        return []

    for lesson in new_lessons:
        if lesson.kind in rows:
            _replace_words(db, scope, rows[lesson.kind], lesson)
    now = time.time()
    answers = lessons.upsert(db, scope, lessons=added, now=now, quota=quota)
    for lesson in added:
        link = {
            "child": f"{lesson.kind}/{lesson.signature.digest}",
            "relation": "strategy",
            "parent": f"reflection/{replaced['reflection']}",
        }
        db.insert("link", {**key_of(scope), **link}, CONFLICT_SKIP_SQL)
    return lessons.evict(db, scope, answers, most)


@resumable(result=None)
def refuse(db: Db, scope: Scope, digest: str, signature: str, error: str) -> None:
    """End the wait for the words of a model; the lesson notes why they are not used."""
    if not episodes.settle_draft(db, scope, digest, error):
        return
    key = {**key_of(scope), "kind": "reflection", "signature": signature}
    for row in db.select("id, meta", "lesson", key):
        meta = {**json.loads(row["meta"]), "model_error": error}
        db.update("lesson", {"id": row["id"]}, {"meta": storable_json(meta)})


def _obstacle(matches: Sequence[Row]) -> str:
    """Return why the words of a lesson may not be replaced; "" if they may."""
    if not matches:
        return "it was deleted"

    row = matches[0]
    written_by_rules = '"by": "rules"' in row["meta"]
    if not written_by_rules or row["pinned"]:
        return "somebody has changed or pinned it since"
    if row["state"] not in LIVE_OR_WAITING_STATES:
        return f"it is {row['state']}"
    return ""


def _replace_words(db: Db, scope: Scope, row: Row, lesson: Lesson) -> None:
    """Give the lesson in `row` the words, tags and metadata of `lesson`.

    A text that waits in quarantine gets a new id, because a person who releases the old
    one has not read the new words.
    """
    text = storable(lesson.text)
    example = lesson.example or Example(text, "")
    digest = lessons.words_digest(text)
    if lesson.example is not None:
        digest = example.digest

    # The old text gives the name of its row to the new one.
    old_digest = f"{lessons.words_digest(row['text'])} {row['author']}"
    old = {"digest": old_digest, "state": "superseded"}
    db.update("example", {"id": row["author"]}, old)

    now = time.time()
    values = {
        **lessons.scope_key(scope),
        "kind": row["kind"],
        "signature": row["signature"],
        "lesson_id": row["id"],
        "text": text,
        "state": row["state"],
        "trust": row["trust"],
        "source": storable(lesson.source),
        "sources": lesson.sources,
        "parents": json.dumps(lesson.parents),
        "memory_key": lesson.memory_key,
        "about": lessons.search_text(text, row["pattern"]),
        "digest": digest,
        "now": now,
    }
    place = None
    if lesson.vector is not None:
        place = placed(db, lesson.space, blob(lesson.vector))
    author = lessons.add_example(db, values, example, context="", place=place).id
    lessons.set_author(db, values, author, "")
    changes = {
        "tags": json.dumps([storable(tag) for tag in lesson.tags]),
        "importance": row["importance"],
        "meta": storable_json(lesson.meta),
    }
    db.update("lesson", {"id": row["id"]}, changes)

    lessons.rule(
        db,
        scope,
        action="reword",
        subject=lessons.name_of(row),
        by=str(lesson.meta["by"]),
        why="a model's version, which keeps what the rules found",
        now=now,
        record={"was": row["author"], "example": author},
    )
