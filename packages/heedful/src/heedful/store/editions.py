"""Lessons as a client lists and changes them, each with its edition.

An edition is a hash of the text, states and settings of a lesson, without its counters.
A client changes the edition that it has read: if the lesson has another one by now, the
change is refused.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from heedful.errors import Changed, NotFound
from heedful.lessons.lesson import LessonRun
from heedful.lessons.scope import TOLD_STATES, Scope
from heedful.store import exposures, lessons, search
from heedful.store.connection import Db, Row, resumable
from heedful.store.rulings import change_state
from heedful.validation import MAX_INTEGER, Fields, hex_digest, require

# The fields that the edition of a lesson covers: its text and states, but no counters.
EDITION_FIELDS = (
    "text",
    "tags",
    "state",
    "trust",
    "importance",
    "evidence",
    "is_correction",
    "run",
    "data",
    "pinned",
)
EDITION_CHARS = 16  # of the hash; enough to see that somebody changed the lesson


def list_lessons(
    db: Db,
    scope: Scope,
    /,
    limit: int,
    before: int = MAX_INTEGER,
    *,
    reviews: bool = True,
    **only: str,
) -> list[Fields]:
    """Return a page of at most `limit` lessons as plain data, newest first.

    Only lessons with an id below `before` are listed: to get the next page, pass the
    last id of a page. The texts of tools and documents are left empty until a person
    has reviewed them.

    `only` may have a `kind`, `error_type`, `tag` and `state` that the lessons must
    have; "" allows any. The state "used" allows "unverified" and "verified", which a
    prompt may show. A caller that does not review (`reviews`) finds no lesson by an
    `error_type` or a `tag` that waits for a review.
    """
    filters = {"kind": "", "error_type": "", "tag": "", "state": "", **only}
    rows = db.all(
        "list_lessons", scope, **filters, limit=limit, before=before, reviews=reviews
    )
    return search.with_told_words(db, scope, [_with_edition(row) for row in rows])


def one(db: Db, scope: Scope, id: int) -> Fields:
    """Return the lesson with this id as plain data. Raises NotFound."""
    return some(db, scope, [id])[0]


def some(db: Db, scope: Scope, ids: Sequence[int]) -> list[Fields]:
    """Return the lessons with these ids, in this order. Raises NotFound."""
    return search.with_told_words(db, scope, _read_lessons(db, scope, ids))


def _read_lessons(db: Db, scope: Scope, ids: Sequence[int]) -> list[Fields]:
    """Return the lessons with these ids, in this order, each with its stored text.

    Prompts may have another text of it. Raises NotFound if one of the ids is unknown.
    """
    rows = db.all("listed_lessons", scope, ids=json.dumps(list(ids)))
    lesson_of = {row["id"]: _with_edition(row) for row in rows}
    for id in ids:
        if id not in lesson_of:
            raise NotFound("lesson", str(id), f"the memory of {scope}")
    return [lesson_of[id] for id in ids]


@resumable(result=Fields)
def amend(
    db: Db,
    scope: Scope,
    /,
    id: int,
    edition: str | None,
    by: str,
    why: str,
    **change: Any,
) -> Fields:
    """Change the lesson `id` as a person wants, and return it as it is then.

    `change` may have `pinned`, which protects the lesson from being deleted for lack of
    use; `retired`, which takes it out of recall; `restored`, which brings it back; and
    `text`, its new words. For each, a ruling records who decided it (`by`) and `why`.
    `edition` is the hash of the lesson that the person has read; None changes any.
    Raises Changed if the lesson has another one, NotFound, and InvalidInput if `by` is
    empty.
    """
    (lesson,) = _read_lessons(db, scope, [id])
    if edition is not None and lesson["edition"] != edition:
        raise Changed("lesson", str(id), lesson["edition"])

    pinned = change.get("pinned")
    if pinned is not None:
        lessons.pin(db, scope, id=id, pinned=pinned, by=by, why=why)

    if change.get("retired"):
        allowed = f"left out: the lesson is {lesson['state']}"
        require(lesson["state"] in TOLD_STATES, "retired", value=True, allowed=allowed)
        change_state(db, scope, lesson, "retire", by=by, why=why)
    if change.get("restored"):
        exposures.restore(db, scope, id=id, by=by, why=why)

    text = change.get("text")
    if text is not None:
        lessons.edit(db, scope, id=id, text=text, by=by, why=why)

    return one(db, scope, id)


def _with_edition(row: Row) -> Fields:
    """Return the row of a lesson as plain data, with an `edition`.

    The edition is a hash of its text, states and settings, without its counters. Also
    added are the `run` from which it was drawn and its `data`, which stay empty if they
    are of a tool or document and nobody has reviewed them.
    """
    run = LessonRun.read(row["run"])
    data = json.loads(row["data"])
    if row["unreviewed"]:
        run = None
        data = {}
    lesson = {**lessons.plain(row), "run": run and asdict(run), "data": data}

    fields_json = json.dumps([lesson[name] for name in EDITION_FIELDS], sort_keys=True)
    digest = hex_digest(fields_json)
    return {**lesson, "edition": digest[:EDITION_CHARS]}
