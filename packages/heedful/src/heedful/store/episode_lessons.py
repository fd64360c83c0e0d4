"""Store the lessons of episodes: what agents learn from a run, once for each run.

A lesson that comes back in another run becomes more important, and replaces what waited
in quarantine about the same error.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from heedful.episodes.procedures import Procedure
from heedful.errors import Conflict
from heedful.lessons import render
from heedful.lessons.call_marks import Step
from heedful.lessons.lesson import Lesson
from heedful.lessons.mistake import adds_fix, confirmed, from_json
from heedful.lessons.scope import Remembered, Scope, source_of
from heedful.lessons.user_rules import RULE_TYPE
from heedful.store import calls, episodes, lessons, user_rules
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    Row,
    key_of,
    resumable,
    storable,
    storable_json,
)
from heedful.store.rulings import change_state

# The least importance of a lesson of a session that came back in another session.
RECURRING_LESSON_IMPORTANCE = 0.6


@resumable(result=list[Remembered])
def record_lessons(
    db: Db,
    scope: Scope,
    digest: str,
    new_lessons: Sequence[Lesson],
    *,
    source: str = "",
    steps: Sequence[Step] = (),
    procedure: Procedure = Procedure(),
    is_trusted: bool = False,
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Write the lessons of an episode, its steps and its procedure.

    The first lesson is linked to the second one if that is its strategy. `source` names
    the run. Unless it `is_trusted`, its steps and its procedure do not count. `most`
    and `quota` are limits as in `exposures.remember`. Raises Conflict if the episode
    has its lessons already, InvalidInput, QuotaExceeded.
    """
    if not episodes.settle(db, scope, digest=digest, state="reflected", error=""):
        raise Conflict(
            f"episode {digest[:16]} has its lessons already; nothing was added"
        )
    now = time.time()
    answers: list[Remembered] = []
    for lesson in new_lessons:
        answers += _record_session_lesson(db, scope, lesson, now, quota)
    pair = new_lessons[:2]
    kinds = [lesson.kind for lesson in pair]
    if kinds == ["reflection", "strategy"]:
        parent, child = (f"{lesson.kind}/{lesson.signature.digest}" for lesson in pair)
        link = {"child": child, "relation": "strategy", "parent": parent}
        db.insert("link", {**key_of(scope), **link}, CONFLICT_SKIP_SQL)
    answers = lessons.evict(db, scope, answers, most)

    if is_trusted:
        calls.record_run(db, scope, source, linked(steps, new_lessons, answers))
        values = {"tools": storable(procedure.steps), "task": storable(procedure.task)}
        db.update("episode", {**key_of(scope), "digest": digest}, values)
        if procedure.has_failed:
            _end_procedure(db, scope, procedure.signature.digest)
    return answers


def _end_procedure(db: Db, scope: Scope, signature: str) -> None:
    """Retire the strategy of a procedure, because a run that did so failed."""
    key = {**key_of(scope), "kind": "strategy", "signature": signature}
    for row in db.select("*", "lesson", {**key, "state": "unverified"}):
        change_state(
            db, scope, row, "retire", by="heedful", why="a run that did so failed"
        )


@resumable(result=list[Remembered])
def record_session(
    db: Db,
    scope: Scope,
    digest: str,
    head: Mapping[str, str],
    steps: Sequence[Step],
    new_lessons: Sequence[Lesson],
    *,
    keys: Collection[str] = (),
    is_trusted: bool = True,
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Write the lessons and the steps of a session; return [] if it is stored.

    A lesson counts once a session. One that comes back in another session becomes more
    important.

    `head` is the name, session, outcome and task, and the session came through these
    `keys` of a service. Unless it `is_trusted`, its steps do not count. `most` and
    `quota` are limits as in `exposures.remember`. Raises InvalidInput, QuotaExceeded.
    """
    now = time.time()
    source = source_of(head["session"] or head["name"] or digest[:32])
    row = {
        **key_of(scope),
        "digest": digest,
        **{name: storable(text) for name, text in head.items()},
        "state": "reflected",
        # A revocation of a key finds the run by this.
        "record": storable_json({"run": source} if keys else {}),
        "via": " ".join(sorted(keys)),
        "at": now,
    }
    if not db.insert_now("episode", row, CONFLICT_SKIP_SQL).rowcount:
        return []

    answers = list[Remembered]()
    for lesson in new_lessons:
        answers += _record_session_lesson(db, scope, lesson, now=now, quota=quota)
    answers = lessons.evict(db, scope, answers, most)

    if is_trusted:
        calls.record_run(db, scope, source, linked(steps, new_lessons, answers))
    return answers


def linked(
    steps: Sequence[Step], new_lessons: Sequence[Lesson], answers: Sequence[Remembered]
) -> list[Step]:
    """Return the steps, each that failed with the id of the lesson about its error."""
    lesson_ids = dict[str, int]()
    for lesson, answer in zip(new_lessons, answers, strict=False):
        lesson_ids.setdefault(lesson.signature.digest, answer.id)
    linked_steps = []
    for step in steps:
        ids = [lesson_ids[digest] for digest in step.digests if digest in lesson_ids]
        linked_steps.append(replace(step, lesson=next(iter(ids), 0)))
    return linked_steps


def _record_session_lesson(
    db: Db, scope: Scope, lesson: Lesson, now: float, quota: int | None
) -> Sequence[Remembered]:
    """Write a lesson of a session, unless it counts for this session already.

    A lesson that the session fixed since it was written is written again.
    """
    name = {"kind": lesson.kind, "signature": lesson.signature.digest}
    source = storable(lesson.source)
    rows = db.select("*", "lesson", {**key_of(scope), **name})
    is_outdated = False
    for row in rows:
        lesson = _confirmed(lesson, row)
        _refresh_files(db, lesson, row)
        is_outdated = adds_fix(lesson.mistake, from_json(row["mistake"]))
    waiting = [row for row in rows if _replaces(lesson, row)]

    is_seen = any(
        db.select("1", "occurrence", {"lesson_id": row["id"], "source": source})
        for row in rows
    )
    if not is_seen:
        if lesson.error_type == RULE_TYPE:
            user_rules.say_again(db, scope, lesson)
        _remove_waiting(db, lesson, waiting)
        answers = lessons.upsert(db, scope, [lesson], now=now, quota=quota)
        if not answers:
            return [lessons.UNSTORED_LESSON]
        if answers[-1].seen > 1:
            values = {"id": answers[-1].id, "least": RECURRING_LESSON_IMPORTANCE}
            db.send("raise_importance", values)
        return answers

    if not (is_outdated or waiting):
        return lessons.remembered(db, scope, [lesson])
    # This session saw the lesson before: its sighting is taken back and written again.
    for row in rows:
        db.delete("occurrence", {"lesson_id": row["id"], "source": source})
        is_waiting = row["state"] == "quarantined" and row["seen"] == 1
        # The words of a person are not deleted.
        if is_waiting and row["source"].startswith("episode:"):
            db.delete("lesson", {"id": row["id"]})
        else:
            db.update("lesson", {"id": row["id"]}, {"seen": row["seen"] - 1})
    _remove_waiting(db, lesson, waiting)
    answers = lessons.upsert(db, scope, [lesson], now=now, quota=quota)
    return answers or lessons.remembered(db, scope, [lesson])


def _confirmed(lesson: Lesson, row: Row) -> Lesson:
    """Return a lesson whose fix is what lay there in an earlier run, too.

    `row` is the stored lesson. What is known of its files stays known.
    """
    earlier = from_json(row["mistake"])
    if lesson.mistake is None or earlier is None:
        return lesson
    mistake = replace(lesson.mistake, files={**earlier.files, **lesson.mistake.files})
    confirmed_mistake = confirmed(mistake, earlier)
    if row["source"] == lesson.source or confirmed_mistake == mistake:
        return replace(lesson, mistake=mistake)
    text = render.lesson(confirmed_mistake)
    return replace(lesson, mistake=confirmed_mistake, text=text)


def _refresh_files(db: Db, lesson: Lesson, row: Row) -> None:
    """Store the files of a lesson as they are now, if its text comes back trusted."""
    mistake = from_json(row["mistake"])
    waits = "quarantined" in (lesson.state, row["state"])
    has_other_text = row["text"] != storable(lesson.text)
    if waits or has_other_text or lesson.mistake is None or mistake is None:
        return
    files = {**mistake.files, **lesson.mistake.files}
    values = {"mistake": lessons.mistake_json(replace(mistake, files=files))}
    db.update("lesson", {"id": row["id"]}, values)


def _replaces(lesson: Lesson, row: Row) -> bool:
    """Return whether a lesson of a clean session replaces the stored one, which waits.

    Only a session may have taught the stored one. What the same call waits for, waits
    on: that its words came back makes them no cleaner.
    """
    waits = row["state"] == "quarantined" and row["source"].startswith("episode:")
    mistake = from_json(row["mistake"])
    is_other = mistake is None or mistake.action != (
        lesson.mistake and lesson.mistake.action
    )
    return waits and is_other and lesson.state != "quarantined"


def _remove_waiting(db: Db, lesson: Lesson, waiting: Sequence[Row]) -> None:
    """Delete the words that wait about the error of a lesson, which takes their place.

    Nobody has to rule on them any more, but for a fix that the lesson lacks. The
    sightings stay.
    """
    has_fix = lesson.mistake is not None and lesson.mistake.fix is not None
    for row in waiting:
        mistake = from_json(row["mistake"])
        if has_fix or mistake is None or mistake.fix is None:
            db.delete("example", {"lesson_id": row["id"], "state": "quarantined"})
