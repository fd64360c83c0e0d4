"""Store the rules of users as lessons, which are edited, exported and retired as any.

A session remembers by marks of which rules it told.
"""

import time
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from heedful.lessons.origin import is_outside
from heedful.lessons.scope import Remembered, Scope
from heedful.lessons.user_rules import RULE_TYPE, StatedRule
from heedful.store import exposures, reminders, session_marks
from heedful.store.connection import (
    Db,
    Row,
    holds,
    key_of,
    resumable,
)
from heedful.store.rulings import change_state
from heedful.validation import Fields

if TYPE_CHECKING:  # a hook of a call stores no lessons
    from heedful.lessons.lesson import Lesson

# With the index lesson_type, which has no texts that nobody reviewed.
TOLD_RULES_SQL = """
and not unreviewed and state in ('unverified', 'verified')
order by last_seen desc, id desc limit 40
"""
# Who retires a rule that a later one ends.
USER_ACTOR = "user"
SHOWN_MARK = "shown rules"
# Told before a call that has a name of the rule.
_TOLD = "told rule "
# A session that loses its context forgets the marks that begin so.
_TOLD_LESSON = "told lesson "


def listed(db: Db, scope: Scope) -> list[StatedRule]:
    """Return the rules of a scope in all states, last said first."""
    return list(map(_stated, _rows(db, scope, "order by last_seen desc")))


def in_force(db: Db, scope: Scope) -> list[StatedRule]:
    """Return the rules that agents are told, last said first."""
    return list(map(_stated, _rows(db, scope, TOLD_RULES_SQL)))


def _rows(db: Db, scope: Scope, end: str) -> list[Row]:
    """Return the rules of a scope as rows of lessons; `end` completes the statement."""
    key = {**key_of(scope), "error_type": RULE_TYPE, "kind": "reflection"}
    return db.select("*", "lesson", key, end)


def _stated(row: Row) -> StatedRule:
    """Return the rule in the row of a lesson."""
    waits = row["state"] == "quarantined"
    return StatedRule(
        text="" if waits else row["text"],
        id=row["id"],
        state=row["state"],
        trust=row["trust"],
        seen=row["seen"],
        last_said=row["last_seen"],
        entry=(row["author"] or 0) if waits else 0,
    )


def about_call(
    db: Db,
    scope: Scope,
    tool: str,
    arguments: Fields | str,
    *,
    rules: Sequence[StatedRule] = (),
    session: str = "",
) -> dict[StatedRule, list[str]]:
    """Return the rules that name a call, each with the marks of a session told of it.

    A rule of which the session was told before such calls is left out. `rules` are
    further ones, such as those of all projects of the user.
    """
    rules_by_name = {}
    for stated in (*in_force(db, scope), *rules):
        names = stated.named_in(tool, arguments)
        marks = [f"{_TOLD}{stated.digest} {name}" for name in sorted(names)]
        has_told = (
            session_marks.find(db, scope, session, marks) if session and marks else ()
        )
        if len(has_told) < len(marks):
            rules_by_name[stated] = marks
    return rules_by_name


@holds()
@resumable(result=None)
def tell(
    db: Db,
    scope: Scope,
    session: str,
    rules: Iterable[StatedRule],
    marks: Iterable[str],
) -> None:
    """Record that a session is told rules, which is never left out; set its marks.

    Of `rules` that another database has, too, those of this one count.
    """
    session_marks.mark(db, scope, session, marks)
    own_ids = {stated.digest: stated.id for stated in in_force(db, scope)}
    ids = [own_ids[stated.digest] for stated in rules if stated.digest in own_ids]
    reminders.remind(db, scope, session, lessons=ids, share=0.0, at=time.time())


def told_lessons(lessons: Iterable[int]) -> list[str]:
    """Return the marks of a session that was told these lessons, with what helps."""
    return [f"{_TOLD_LESSON}{id}" for id in lessons]


def known_lessons(
    db: Db, scope: Scope, session: str, lessons: Iterable[int]
) -> frozenset[int]:
    """Return the lessons that a session was told, or was shown as rules."""
    marks = session_marks.find(db, scope, session, [SHOWN_MARK, *told_lessons(lessons)])
    ids = {stated.id for stated in in_force(db, scope) if SHOWN_MARK in marks}
    told_ids = {int(text.removeprefix(_TOLD_LESSON)) for text in marks - {SHOWN_MARK}}
    return frozenset(lessons) & (ids | told_ids)


def ended_by(db: Db, scope: Scope, text: str) -> list[Row]:
    """Return the older rules that a rule ends, as rows of lessons."""
    newer = StatedRule(text=text)
    return [
        row
        for row in _rows(db, scope, "and state = 'unverified'")
        if row["text"] != text and newer.supersedes(row["text"])
    ]


def say_again(db: Db, scope: Scope, lesson: "Lesson") -> None:
    """Restore a retired rule that the user states again, before it is stored.

    Older rules about the same thing are retired. One from outside changes nothing.
    """
    if lesson.trust == "outside":
        return
    this = {**key_of(scope), "signature": lesson.signature.digest, "state": "retired"}
    for row in db.select("*", "lesson", this):
        why = "the user said it again"
        change_state(db, scope, row, "restore", by=USER_ACTOR, why=why)
    for row in ended_by(db, scope, lesson.text):
        why = f"the user said: {lesson.text}"
        change_state(db, scope, row, "retire", by=USER_ACTOR, why=why)


@resumable(result=list[Remembered], counts=True)
def state(
    db: Db,
    scope: Scope,
    lessons: "Sequence[Lesson]",
    *,
    stated: Set[str] = frozenset(),
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Store rules that a person states; `most` and `quota` are as in `remember`.

    What comes through a key of a service that is not `stated` is from outside.
    """
    answers: list[Remembered] = []
    is_from_outside = bool(db.actor.via) and is_outside(db.actor.via, stated)
    for lesson in lessons:
        if is_from_outside:
            lesson = replace(lesson, trust="outside")
        else:
            say_again(db, scope, lesson)
        answers += exposures.remember(db, scope, [lesson], most=most, quota=quota)
    return answers
