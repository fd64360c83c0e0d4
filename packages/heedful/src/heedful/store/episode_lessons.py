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
from heedful.lessons.mistake import confirmed, from_json
from heedful.lessons.scope import Remembered, Scope, source_of
from heedful.lessons.user_rules import RULE_TYPE
from heedful.store import calls, episodes, lessons, rule_changes
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
    """Write the lessons of an episode, that is a run of an agent, and what it did.

    Returns an answer for each lesson. `digest` identifies the episode, and `source`
    names the run. A reflection says what went wrong; if the second lesson is its
    strategy, what to do, both are linked. The `steps`, its calls, and the `procedure`,
    its order of tools, are stored only if the run `is_trusted`. `most` and `quota` are
    limits as in `exposures.remember`. Raises Conflict if the episode has its lessons
    already, InvalidInput, QuotaExceeded.
    """
    # Before the lessons are written: of two calls, only one may change the state.
    if not episodes.settle(db, scope, digest=digest, state="reflected", error=""):
        raise Conflict(
            f"episode {digest[:16]} has its lessons already; nothing was added"
        )
    now = time.time()
    source = calls.original_source(db, scope, source, steps)
    answers: list[Remembered] = []
    for lesson in _of_run(new_lessons, source):
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
        # Like runs succeeded in this order of tools, and this one did not.
        if procedure.has_failed:
            _end_procedure(db, scope, procedure.signature.digest)
    return answers


def _end_procedure(db: Db, scope: Scope, signature: str) -> None:
    """Retire the strategy of a procedure, because a run that did so failed.

    A procedure is an order of tools by which like runs succeeded. `signature` is the
    digest of its strategy. A verified strategy stays, as one failure does not refute
    it.
    """
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
    """Write the lessons and the steps of a session; return an answer for each lesson.

    Returns [] if the session is stored already. A lesson counts once a session. One
    that comes back in another session becomes more important.

    `digest` identifies the session, and `head` has its name, session, outcome and task.
    It came through these `keys` of a service. Its `steps` are stored only if it
    `is_trusted`. `most` and `quota` are limits as in `exposures.remember`. Raises
    InvalidInput, QuotaExceeded.
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
    # If no row was inserted, the session was stored already, perhaps just now.
    if not db.insert_now("episode", row, CONFLICT_SKIP_SQL).rowcount:
        return []

    source = calls.original_source(db, scope, source, steps)
    answers = list[Remembered]()
    for lesson in _of_run(new_lessons, source):
        answers += _record_session_lesson(db, scope, lesson, now=now, quota=quota)
    answers = lessons.evict(db, scope, answers, most)

    if is_trusted:
        calls.record_run(db, scope, source, linked(steps, new_lessons, answers))
    return answers


def _of_run(new_lessons: Sequence[Lesson], source: str) -> list[Lesson]:
    """Return the lessons of a run as those of the run that it is a copy of."""
    is_run = source_of("")
    return [
        replace(lesson, source=source) if lesson.source.startswith(is_run) else lesson
        for lesson in new_lessons
    ]


def linked(
    steps: Sequence[Step], new_lessons: Sequence[Lesson], answers: Sequence[Remembered]
) -> list[Step]:
    """Return the steps, each that failed with the id of the lesson about its error.

    `answers` say how each of the `new_lessons` was stored, in the same order. A step
    about whose errors there is no lesson gets the id 0.
    """
    lesson_ids = dict[str, int]()
    # There are fewer answers if the store has skipped lessons.
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
    """Write a lesson of a session, unless this session was counted for it already.

    It was if the session has grown since it was read last. Then the lesson is written
    again only if it has another fix now, or if words wait in quarantine that it
    replaces.
    Returns what is stored of the lesson, as `upsert` does.
    """
    name = {"kind": lesson.kind, "signature": lesson.signature.digest}
    source = storable(lesson.source)
    rows = db.select("*", "lesson", {**key_of(scope), **name})  # one at most
    is_outdated = False
    for row in rows:
        lesson = _confirmed(lesson, row)
        _refresh_files(db, lesson, row)
        earlier = from_json(row["mistake"])
        if earlier is not None and lesson.mistake is not None:
            is_outdated = lesson.mistake.fix not in (None, earlier.fix)
    waiting = [row for row in rows if _replaces(lesson, row)]

    is_seen = any(
        db.select("1", "occurrence", {"lesson_id": row["id"], "source": source})
        for row in rows
    )
    if not is_seen:
        if lesson.error_type == RULE_TYPE:
            rule_changes.say_again(db, scope, lesson)
        # First, so that these words do not count for the quota.
        _remove_waiting(db, lesson, waiting)
        answers = lessons.upsert(db, scope, [lesson], now=now, quota=quota)
        # It is skipped if it is unknown where what it derives from is from.
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
        # Delete the words that wait and that only this session said: they are written
        # again. A person's words stay.
        is_waiting = row["state"] == "quarantined" and row["seen"] == 1
        if is_waiting and row["source"].startswith("episode:"):
            db.delete("lesson", {"id": row["id"]})
        else:
            db.update("lesson", {"id": row["id"]}, {"seen": row["seen"] - 1})
    _remove_waiting(db, lesson, waiting)
    answers = lessons.upsert(db, scope, [lesson], now=now, quota=quota)
    return answers or lessons.remembered(db, scope, [lesson])


def _confirmed(lesson: Lesson, row: Row) -> Lesson:
    """Return a lesson with what an earlier run, in the stored `row`, says about it.

    It gets the digests of files that only the stored lesson has. If it has no fix, the
    calls that may have been the fix in both runs become it: a second run confirms them.
    """
    earlier = from_json(row["mistake"])
    if lesson.mistake is None or earlier is None:
        return lesson
    mistake = replace(lesson.mistake, files={**earlier.files, **lesson.mistake.files})
    confirmed_mistake = confirmed(mistake, earlier)
    # The same run read again confirms nothing.
    if row["source"] == lesson.source or confirmed_mistake == mistake:
        return replace(lesson, mistake=mistake)
    text = render.lesson(confirmed_mistake)
    return replace(lesson, mistake=confirmed_mistake, text=text)


def _refresh_files(db: Db, lesson: Lesson, row: Row) -> None:
    """Store the digests of the files that a lesson is about, as they are now.

    Does nothing unless the stored lesson, in `row`, has the same text, and both are
    free of quarantine. The digests show later whether a file has changed.
    """
    mistake = from_json(row["mistake"])
    waits = "quarantined" in (lesson.state, row["state"])
    has_other_text = row["text"] != storable(lesson.text)
    if waits or has_other_text or lesson.mistake is None or mistake is None:
        return
    files = {**mistake.files, **lesson.mistake.files}
    values = {"mistake": lessons.mistake_json(replace(mistake, files=files))}
    db.update("lesson", {"id": row["id"]}, values)


def _replaces(lesson: Lesson, row: Row) -> bool:
    """Return True if a lesson replaces the stored one, which waits in quarantine.

    `row` is the stored lesson. It must have been taught by a session, not by a person,
    and the new one must not wait itself. If both are about the same call, the stored
    one waits on: that its words came back makes them no more trustworthy.
    """
    waits = row["state"] == "quarantined" and row["source"].startswith("episode:")
    mistake = from_json(row["mistake"])
    is_other = mistake is None or mistake.action != (
        lesson.mistake and lesson.mistake.action
    )
    return waits and is_other and lesson.state != "quarantined"


def _remove_waiting(db: Db, lesson: Lesson, waiting: Sequence[Row]) -> None:
    """Delete the words in quarantine that a lesson about the same error replaces.

    `waiting` are the rows of their lessons. A person need not review such words any
    more, unless they have a fix that the lesson lacks. The sightings stay.
    """
    has_fix = lesson.mistake is not None and lesson.mistake.fix is not None
    for row in waiting:
        mistake = from_json(row["mistake"])
        if has_fix or mistake is None or mistake.fix is None:
            db.delete("example", {"lesson_id": row["id"], "state": "quarantined"})
