"""Store what a person says of rules: a new one ends older ones about the same thing."""

import json
from collections.abc import Sequence, Set
from dataclasses import replace

from heedful.lessons.lesson import Lesson
from heedful.lessons.origin import is_outside
from heedful.lessons.rule_reading import supersedes
from heedful.lessons.scope import Remembered, Scope
from heedful.store import exposures
from heedful.store.connection import Db, Row, key_of, resumable, storable_json
from heedful.store.rulings import change_state, name_of, rule as record_ruling
from heedful.store.user_rules import rule_rows

# Who retires a rule that a later one ends.
USER_ACTOR = "user"


def ended_by(db: Db, scope: Scope, text: str) -> list[Row]:
    """Return the older rules about the same thing as the new rule `text`, which end.

    They are rows of lessons. The same rule, said again, does not end itself.
    """
    return [
        row
        for row in rule_rows(db, scope, "and state = 'unverified'")
        if row["text"] != text and supersedes(text, row["text"])
    ]


def say_again(db: Db, scope: Scope, lesson: Lesson) -> None:
    """Change the state of stored rules before a rule that the user states is stored.

    `lesson` is the rule. If it was retired, it is restored. Older rules about the same
    thing are retired. A rule from outside, which nobody trusts yet, changes nothing.
    """
    if lesson.trust == "outside":
        return
    same = {**key_of(scope), "signature": lesson.signature.digest, "state": "retired"}
    for row in db.select("*", "lesson", same):
        why = "the user said it again"
        change_state(db, scope, row, "restore", by=USER_ACTOR, why=why)
    for row in ended_by(db, scope, lesson.text):
        why = f"the user said: {lesson.text}"
        change_state(db, scope, row, "retire", by=USER_ACTOR, why=why)


def _with_stored_data(db: Db, scope: Scope, lesson: Lesson) -> Lesson:
    """Return a rule with what is stored of it: calls that break it stay denied."""
    same = {**key_of(scope), "signature": lesson.signature.digest}
    data = dict(lesson.data)
    for row in db.select("data", "lesson", same):
        data = {**json.loads(row["data"]), **data}
    return replace(lesson, data=data)


@resumable(result=list[Remembered], counts=True)
def state(
    db: Db,
    scope: Scope,
    lessons: Sequence[Lesson],
    *,
    stated: Set[str] = frozenset(),
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Store rules that a person states; return an answer for each, as `remember` does.

    `most` and `quota` limit what is stored, as in `remember`. `stated` are the sources
    that people vouched for: a rule that came through a key of a service that is not
    among them counts as text from outside, which waits in quarantine.
    """
    answers: list[Remembered] = []
    is_from_outside = bool(db.actor.via) and is_outside(db.actor.via, stated)
    for lesson in lessons:
        if is_from_outside:
            lesson = replace(lesson, trust="outside")
        else:
            say_again(db, scope, lesson)
            lesson = _with_stored_data(db, scope, lesson)
        answers += exposures.remember(db, scope, [lesson], most=most, quota=quota)
    return answers


@resumable(result=None)
def deny(db: Db, scope: Scope, *, id: int, denied: bool, by: str, why: str) -> None:
    """Record that calls which break the rule `id` are denied, or no longer."""
    key = {**key_of(scope), "id": id}
    (row,) = db.select("*", "lesson", key)
    data = json.loads(row["data"])
    if data.get("denied") == denied:
        return
    data = {**data, "denied": denied}
    db.update("lesson", key, {"data": storable_json(data)})
    action = "deny" if denied else "allow"
    record_ruling(db, scope, action, name_of(row), by=by, why=why)
