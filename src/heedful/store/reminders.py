"""Store what sessions were told or not, and whether the mistake came again.

A reminder is about a lesson, or about a mark of a call without a lesson. The draw about
a lesson is that of its exposure, which ends as the reminder does; a mark is never
withheld.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from heedful.lessons.holdout import SessionTally, opportunity_name
from heedful.lessons.lesson import Outcome
from heedful.lessons.mistake import Call, from_json
from heedful.lessons.scope import Scope, lesson_name
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

    Each of the `lessons` is an exposure, shown or withheld with the probability
    `share`. `UNLEARNT_LESSON` among them stands for what a call with this `mark` is
    told without a lesson. The first reminder of a session about a subject counts.
    """
    shown_ids = set(
        exposures.announce(db, scope, session=session, lessons=lessons, share=share)
    )
    for id in lessons:
        row = _exposed(db, scope, session, id)
        if id == UNLEARNT_LESSON:
            subject = {"subject": f"mark/{mark}", "signature": "", "mark": mark}
            row = {**subject, "told": True, "share": 0.0}
            shown_ids.add(id)
        if row:
            key = {**key_of(scope), "session": storable(session)}
            db.insert("reminder", {**key, **row, "at": at}, CONFLICT_SKIP_SQL)
    return frozenset(shown_ids)


def _exposed(db: Db, scope: Scope, session: str, id: int) -> Mapping[str, object]:
    """Return the reminder about a lesson, as its exposure says; {} without one.

    What only this session taught has none.
    """
    columns = "kind, signature"
    for lesson in db.select(columns, "lesson", {**key_of(scope), "id": id}):
        signature = lesson["signature"]
        name = lesson_name(lesson["kind"], signature)
        loop = opportunity_name(storable(session), signature)
        for exposure in exposures.shown_to(db, scope, loop):
            if exposure.lesson == name:
                values = {"subject": name, "signature": signature, "mark": ""}
                return {**values, "told": exposure.shown, "share": exposure.share}
    return {}


def open_reminders(db: Db, scope: Scope, session: str) -> list[OpenReminder]:
    """Return the reminders of a session that have no outcome."""
    columns = "subject, signature, mark, at"
    key = {**key_of(scope), "session": storable(session), "settled": False}
    pending = [OpenReminder(*row) for row in db.select(columns, "reminder", key)]
    for number, reminder in enumerate(pending):
        kind, _, signature = reminder.subject.partition("/")
        name = {**key_of(scope), "kind": kind, "signature": signature}
        for row in db.select("mistake", "lesson", name):
            mistake = from_json(row["mistake"])
            if mistake is not None:
                pending[number] = reminder._replace(action=mistake.action)
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
        key = {**key_of(scope), "session": storable(session)}
        verdict = verdicts.get(reminder.subject, Verdict())
        ended = {"repeated": verdict.repeated, "calls": verdict.calls}
        db.send("settle_reminder", {**key, "subject": reminder.subject, **ended})
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
