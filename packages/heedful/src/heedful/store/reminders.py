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
    """Record what a session is told, or not; return the ids to be shown.

    Each of the `lessons` is shown or withheld with the probability `share`, in the
    whole session or not at all; nothing is withheld from the first sessions of a scope.
    Where memory hurts, each lesson is withheld from 39 of 40 sessions. A lesson that
    only this session taught is neither shown nor recorded, unless an operator wrote it.
    `UNLEARNT_LESSON` among them stands for what a call with this `mark` is
    told without a lesson. The first reminder of a session about a subject counts.
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
    """Record that a session is told a lesson, or not; return whether it is.

    That is one opportunity to avoid its error: an exposure named `SESSION/SIGNATURE`.
    What was shown or withheld before in this session is again.
    """
    columns = "kind, signature, source, seen, trust, released_by, author"
    for lesson in db.select(columns, "lesson", {**key_of(scope), "id": id}):
        is_own = lesson["source"] == storable(source_of(session))
        standing = standing_of(lesson["trust"], lesson["released_by"])
        if is_own and lesson["seen"] == 1 and standing != "user":
            return False

        signature = lesson["signature"]
        name = lesson_name(lesson["kind"], signature)
        loop = opportunity_name(storable(session), signature)
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

        for exposure in recorded:
            if exposure.lesson == name:
                draw = {"told": exposure.shown, "share": exposure.share}
                _insert(db, scope, session, {"subject": name, **draw}, time=at)
        return recorded[0].shown
    return False


def _insert(
    db: Db, scope: Scope, session: str, reminder: Mapping[str, object], *, time: float
) -> None:
    """Insert a reminder, unless the session has one about its subject."""
    row = {**key_of(scope), "session": storable(session), **reminder, "at": time}
    db.insert("reminder", row, CONFLICT_SKIP_SQL)


def open_reminders(db: Db, scope: Scope, session: str) -> list[OpenReminder]:
    """Return the reminders of a session that have no outcome."""
    pending = []
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
        pending.append(reminder)
    return pending


@resumable(result=None)
def settle(
    db: Db, scope: Scope, session: str, verdicts: Mapping[str, Verdict], at: float
) -> None:
    """Record how the reminders of a session ended at the time `at`, by subject.

    The exposures of their lessons end in the same way. Those without an outcome have
    no verdict.
    """
    for reminder in open_reminders(db, scope, session):
        verdict = verdicts.get(reminder.subject, Verdict())
        subject = {"session": storable(session), "subject": reminder.subject}
        ended = {"repeated": verdict.repeated, "calls": verdict.calls}
        key = {**key_of(scope), **subject, "settled": False}
        db.update("reminder", key, {**ended, "settled": True})
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
