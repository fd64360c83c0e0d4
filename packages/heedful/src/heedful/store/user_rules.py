"""Store the rules of users as lessons, which are edited, exported and retired as any.

A session remembers by marks of which rules it told.
"""

import time
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING

from heedful.lessons.origin import is_outside
from heedful.lessons.scope import Remembered, Scope
from heedful.lessons.telling import LessonCandidate, TellingBudget
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


def listed(db: Db, scope: Scope) -> list[StatedRule]:
    """Return the rules of a scope in all states, last said first."""
    return list(map(_rule_in, _rule_rows(db, scope, "order by last_seen desc")))


def in_force(db: Db, scope: Scope) -> list[StatedRule]:
    """Return the rules that agents are told, last said first."""
    return list(map(_rule_in, _rule_rows(db, scope, TOLD_RULES_SQL)))


def _rule_rows(db: Db, scope: Scope, end: str) -> list[Row]:
    """Return the rules of a scope as rows of lessons; `end` completes the statement."""
    key = {**key_of(scope), "error_type": RULE_TYPE, "kind": "reflection"}
    return db.select("*", "lesson", key, end)


def _rule_in(row: Row) -> StatedRule:
    """Return the rule of a user that the row of a lesson stores.

    Nobody has read the text of a rule in quarantine, so it is left out; the rule has
    the id of its entry there instead.
    """
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
    reader: str = "",
) -> dict[StatedRule, list[str]]:
    """Return the user's rules to tell an agent before a call, because they name it.

    A rule names a call if a tool, program or argument of the call stands in its text.
    `rules` are further ones, such as those of all projects of the user. The value of
    each rule are the marks, one for each name, that a reader gets when it is told. A
    rule is left out if the `reader` has them all; with "", none is.
    """
    marks_by_rule = {}
    for rule in (*in_force(db, scope), *rules):
        names = rule.named_in(tool, arguments)
        marks = [f"{_TOLD}{rule.digest} {name}" for name in sorted(names)]
        known_marks = (
            session_marks.find(db, scope, reader, marks) if reader and marks else ()
        )
        # A rule that does not name the call has no marks, so it is left out as well.
        if len(known_marks) < len(marks):
            marks_by_rule[rule] = marks
    return marks_by_rule


@holds()
@resumable(result=None)
def tell(
    db: Db,
    scope: Scope,
    session: str,
    *,
    reader: str,
    rules: Iterable[StatedRule],
    marks: Iterable[str],
) -> None:
    """Record that a session is told these rules of a user, and mark its `reader`.

    The marks say which rules it need not be told again. Some of the `rules` may come
    from another database: only those that this scope has, too, are recorded here.
    """
    session_marks.mark(db, scope, reader, marks)
    own_ids = {rule.digest: rule.id for rule in in_force(db, scope)}
    ids = [own_ids[rule.digest] for rule in rules if rule.digest in own_ids]
    reminders.tell_session(
        db,
        scope,
        session,
        reader=reader,
        moment="session start",
        candidates=[LessonCandidate(name="", leg="brief", lesson=id) for id in ids],
        budget=TellingBudget(lessons=len(ids), unchecked=len(ids)),
        # No rule of a user is withheld at random, as lessons are.
        share=0.0,
        at=time.time(),
    )


def ended_by(db: Db, scope: Scope, text: str) -> list[Row]:
    """Return the older rules about the same thing as the new rule `text`, which end.

    They are rows of lessons. The same rule, said again, does not end itself.
    """
    newer = StatedRule(text=text)
    return [
        row
        for row in _rule_rows(db, scope, "and state = 'unverified'")
        if row["text"] != text and newer.supersedes(row["text"])
    ]


def say_again(db: Db, scope: Scope, lesson: "Lesson") -> None:
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
        answers += exposures.remember(db, scope, [lesson], most=most, quota=quota)
    return answers
