"""Rulings: what a person or heedful decided about a lesson, and the lesson's names."""

import time
from typing import Literal

from heedful.lessons.scope import Scope, lesson_name, short_digest
from heedful.lessons.states import after
from heedful.store.connection import Db, Row, key_of, storable, storable_json
from heedful.validation import Fields, check_actor

# The beginning of the digest of a row that holds the words of a lesson, not an example.
LESSON_DIGEST_PREFIX = "lesson"


def rule(
    db: Db,
    scope: Scope,
    action: str,
    subject: str,
    by: str,
    why: str,
    record: Fields | None = None,
    now: float | None = None,
) -> None:
    """Record a ruling, that is a decision of a person or of heedful about a lesson.

    `action` says what was decided, such as "retire", `by` who decided, and `why` the
    reason. The `subject` is a name or a digest, not an id, so that the ruling is clear
    even after the lesson is deleted. `record` holds details as plain data. Its time is
    `now` if other records have the same. Raises InvalidInput if `by` is empty.
    """
    check_actor(by, why)
    values = {
        **key_of(scope),
        "action": storable(action),
        "subject": storable(subject),
        "by": storable(by),
        "why": storable(why),
        "record": storable_json(record or {}),
        "at": now or time.time(),
    }
    db.insert("ruling", values)


def change_state(
    db: Db,
    scope: Scope,
    lesson: Fields | Row,
    action: Literal["retire", "restore"],
    *,
    by: str,
    why: str,
) -> None:
    """Retire or restore a lesson, and record who decided it (`by`) and `why`.

    `lesson` is its row. The record has the digest of its words, which may change later.
    Raises InvalidInput if `by` is empty.
    """
    rule(
        db,
        scope,
        action=action,
        subject=name_of(lesson),
        by=by,
        why=why,
        record={"digest": words_digest(lesson["text"])},
    )
    state = after(action, lesson["state"])
    db.update("lesson", {**key_of(scope), "id": lesson["id"]}, {"state": state})


def words_digest(text: str) -> str:
    """Return the digest of the example row that holds only `text`, a lesson's words."""
    # The row is an example with a task and nothing else.
    digest = short_digest(f"{text}\0\0")
    return f"{LESSON_DIGEST_PREFIX} {digest}"


def name_of(row: Fields | Row) -> str:
    """Return the name of the lesson in `row`: `kind/signature`."""
    return lesson_name(row["kind"], row["signature"])
