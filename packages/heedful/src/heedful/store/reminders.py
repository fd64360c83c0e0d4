"""Store what sessions were told or not, and whether the mistake came again.

A reminder is about a lesson, or about a mark of a call without a lesson. The draw about
a lesson is that of its exposure, which ends as the reminder does; a mark is never
withheld.
"""

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from heedful.lessons.holdout import (
    Exposure,
    Outcome,
    SessionTally,
    is_withheld,
    opportunity_name,
    plan_holdout,
)
from heedful.lessons.mistake import Call, from_json
from heedful.lessons.origin import standing_of
from heedful.lessons.scope import Scope, lesson_name, source_of
from heedful.store import exposures
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    from_row,
    key_of,
    resumable,
    storable,
)

# The id of what is told without a lesson.
UNLEARNT_LESSON = 0
# Stands before a mark in the subject of a reminder, as the kind of a lesson does.
MARK_KIND = "mark"


class OpenReminder(NamedTuple):
    """A reminder of a session that goes on: what it is about, and when it was given.

    `signature` is that of a lesson's error, and `action` the call that its mistake was,
    if that is known. Without a lesson, `mark` is the digest of one that a call has.
    """

    subject: str
    signature: str
    mark: str
    at: float
    action: Call | None = None


class Verdict(NamedTuple):
    """How a reminder ended: whether the mistake was `repeated`, None without a verdict.

    `calls` of the session were lost to the mistake.
    """

    repeated: bool | None = None
    calls: int = 0


def remind(
    db: Db,
    scope: Scope,
    session: str,
    *,
    lessons: Sequence[int],
    share: float,
    at: float,
    mark: str = "",
) -> frozenset[int]:
    """Decide which of these lessons a session is told, record it, and return their ids.

    `lessons` are ids. Each is withheld with the probability `share`, to measure whether
    it helps, in the whole session or not at all; nothing is withheld from the first
    sessions of a scope. Where memory hurts, each lesson is withheld from 39 of 40
    sessions. A lesson that only this session taught is neither shown nor recorded,
    unless an operator wrote it. The id `UNLEARNT_LESSON` stands for what a call with
    the digest `mark` is told without a lesson; it is never withheld. The first reminder
    of a session about a subject counts. `at` is the time, in seconds since 1970.
    """
    if not lessons:
        return frozenset()

    share = plan_holdout(share, exposures.past(db, scope, "")).share
    shown_ids = set[int]()
    for id in lessons:
        if id == UNLEARNT_LESSON:
            subject = f"{MARK_KIND}/{mark}"
            draw = {"subject": subject, "told": True, "share": 0.0}
            _insert(db, scope, session, draw, time=at)
            shown_ids.add(id)
        elif _remind_of_lesson(db, scope, session, id, share=share, at=at):
            shown_ids.add(id)
    return frozenset(shown_ids)


def _remind_of_lesson(
    db: Db, scope: Scope, session: str, id: int, share: float, at: float
) -> bool:
    """Decide whether a session is told the lesson `id`, and record it.

    Returns True if it is told. It is withheld with the probability `share`, drawn once
    a session. What is recorded is an exposure: one opportunity of the session to avoid
    the error of the lesson, named `SESSION/SIGNATURE`. A lesson that does not exist, or
    that only this session taught, is not told.
    """
    columns = "kind, signature, source, seen, trust, released_by, author"
    rows = db.select(columns, "lesson", {**key_of(scope), "id": id})
    if not rows:
        return False

    lesson = rows[0]
    is_own = lesson["source"] == storable(source_of(session))
    standing = standing_of(lesson["trust"], lesson["released_by"])
    # Only this session has seen it: it would be told what it has just said.
    if is_own and lesson["seen"] == 1 and standing != "user":
        return False

    signature = lesson["signature"]
    name = lesson_name(lesson["kind"], signature)
    loop = opportunity_name(storable(session), signature)
    # An earlier draw of this session holds, so that it is told the same again.
    recorded = exposures.shown_to(db, scope, loop)
    if not recorded:
        # Opportunities count one by one, so each needs a draw of its own.
        seed = f"{scope.tenant}\0{scope.project}"
        is_shown = not is_withheld(seed, session, name, share, pooled_share=0.0)
        exposure = Exposure(
            name,
            loop,
            shown=is_shown,
            signature=signature,
            share=share,
            # If their source is revoked, what the session repeats goes, too.
            examples=(lesson["author"],) if lesson["author"] else (),
        )
        recorded = [exposure]
        exposures.expose(db, scope, recorded, outcome=None, now=time.time())

    # Another lesson about the same error may have had the draw: it holds for this one,
    # too, but the reminder is about the other.
    for exposure in recorded:
        if exposure.lesson == name:
            draw = {"told": exposure.shown, "share": exposure.share}
            _insert(db, scope, session, {"subject": name, **draw}, time=at)
    return recorded[0].shown


def _insert(
    db: Db, scope: Scope, session: str, reminder: Mapping[str, object], *, time: float
) -> None:
    """Insert a reminder, unless the session has one about its subject."""
    row = {**key_of(scope), "session": storable(session), **reminder, "at": time}
    db.insert("reminder", row, CONFLICT_SKIP_SQL)


def open_reminders(db: Db, scope: Scope, session: str) -> list[OpenReminder]:
    """Return the reminders of a session that have no recorded outcome.

    The subject of a reminder is "mark/DIGEST" for one about the mark of a call, and the
    name of a lesson, "KIND/SIGNATURE", for all others.
    """
    reminders = []
    for row in db.all("open_reminders", scope, session=storable(session)):
        mistake = from_json(row["mistake"] or "")
        kind, _, digest = row["subject"].partition("/")
        reminder = OpenReminder(
            subject=row["subject"],
            signature="" if kind == MARK_KIND else digest,
            mark=digest if kind == MARK_KIND else "",
            at=row["at"],
            action=mistake.action if mistake is not None else None,
        )
        reminders.append(reminder)
    return reminders


@resumable(result=None)
def settle(
    db: Db, scope: Scope, session: str, verdicts: Mapping[str, Verdict], at: float
) -> None:
    """Record how the open reminders of a session ended: with the mistake or without.

    `verdicts` are by the subjects of the reminders. A reminder that is missing there
    ends without a verdict. The opportunity of the session to avoid the error of the
    lesson, which was recorded as an exposure, ends in the same way at the time `at`.
    """
    for reminder in open_reminders(db, scope, session):
        verdict = verdicts.get(reminder.subject, Verdict())
        subject = {"session": storable(session), "subject": reminder.subject}
        ended = {"repeated": verdict.repeated, "calls": verdict.calls}
        key = {**key_of(scope), **subject, "settled": False}
        db.update("reminder", key, {**ended, "settled": True})
        # A reminder without a lesson has no exposure.
        if not reminder.signature:
            continue

        loop = opportunity_name(storable(session), reminder.signature)
        if verdict.repeated is None:
            exposures.settle_without_verdict(db, scope, loop, at)
            continue
        signatures = {reminder.signature} if verdict.repeated else set[str]()
        outcome = Outcome(
            loop,
            not verdict.repeated,
            calls=verdict.calls,
            signatures=frozenset(signatures),
        )
        exposures.settle(db, scope, outcome, at)


def figures(db: Db, scope: Scope) -> SessionTally:
    """Return what sessions that have ended were told, and what became of it."""
    (row,) = db.all("count_reminders", scope)
    return from_row(SessionTally, row)
