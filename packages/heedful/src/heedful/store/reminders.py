"""Store what sessions were told or not, and whether the mistake came again.

A reminder is about a lesson, or about a mark of a call without a lesson. The draw about
a lesson is that of its exposure, which ends as the reminder does; a mark is never
withheld.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from heedful.lessons.holdout import (
    Outcome,
    SessionTally,
    opportunity_name,
    plan_holdout,
)
from heedful.lessons.mistake import Call, from_json
from heedful.lessons.origin import standing_of
from heedful.lessons.reasons import say
from heedful.lessons.scope import Scope, source_of
from heedful.lessons.telling import (
    LessonCandidate,
    Moment,
    Situation,
    Telling,
    TellingBudget,
    tell,
)
from heedful.store import exposures, session_marks
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    from_row,
    key_of,
    resumable,
    storable,
)
from heedful.store.rulings import name_of
from heedful.validation import typed_frozen

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


@typed_frozen(slots=True, kw_only=True)
class Announcement:
    """What a reader is told: the places among the candidates, best first.

    If it is told nothing, `silence` says why; `has_withheld` is true if a draw left
    something out.
    """

    told: tuple[int, ...] = ()
    has_withheld: bool = False
    silence: str = ""


def tell_session(
    db: Db,
    scope: Scope,
    session: str,
    *,
    reader: str,
    moment: Moment,
    candidates: Sequence[LessonCandidate],
    budget: TellingBudget,
    share: float,
    at: float,
) -> Announcement:
    """Decide what a session is told of the candidates, record it, and return it.

    The `reader` is the session, or an agent in it: it is told nothing that it was told
    and still remembers. Each lesson is withheld with the probability `share`, in the
    whole session or not at all, to measure whether it helps; nothing is withheld from
    the first sessions of a scope. What is recorded of a lesson is an exposure: one
    opportunity of the session to avoid its error, named `SESSION/SIGNATURE`. The first
    reminder of a session about a subject counts. `at` is in seconds since 1970.
    """
    if not candidates:
        return Announcement(silence=say("nothing known"))
    marks = [*chain.from_iterable(c.marks | c.known_by for c in candidates)]
    told = session_marks.find(db, scope, reader, [*marks, session_marks.FORGOT_MARK])
    # What a session taught, its subagents may not know.
    run = "" if session_marks.FORGOT_MARK in told else reader
    candidates = _with_lessons(db, scope, candidates, run)
    holdout = plan_holdout(share, exposures.past(db, scope, ""))
    situation = Situation(
        moment=moment,
        reader=session,
        told=told,
        budget=budget,
        # Opportunities count one by one, so each lesson has a draw of its own.
        holdout=holdout._replace(pooled_share=0.0),
        seed=scope.seed,
        draws=_draws_of(db, scope, session, candidates),
    )
    telling = tell(situation, candidates)
    session_marks.mark(db, scope, reader, telling.marks)
    _record(db, scope, session, telling=telling, at=at)
    return Announcement(
        told=tuple(candidates.index(candidate) for candidate in telling.told),
        has_withheld=bool(telling.withheld),
        silence=telling.silence,
    )


def _with_lessons(
    db: Db, scope: Scope, candidates: Sequence[LessonCandidate], run: str
) -> list[LessonCandidate]:
    """Return candidates, those with a lesson with its name and who taught it.

    A lesson that is gone counts as retired. One that only the `run` taught, which its
    agent remembers, has it, unless a person said it. Who met a failed call has a mark.
    """
    ids = json.dumps([candidate.lesson for candidate in candidates])
    rows = {row["id"]: row for row in db.all("told_lessons", scope, ids=ids)}
    known_candidates = []
    for candidate in candidates:
        lesson = rows.get(candidate.lesson)
        if lesson is not None:
            standing = standing_of(lesson["trust"], lesson["released_by"])
            is_taught = candidate.leg != "call" and standing != "user"
            is_own = lesson["source"] == storable(source_of(run))
            if is_own and is_taught and lesson["seen"] == 1:
                candidate = replace(candidate, run=run)
            candidate = replace(
                candidate,
                name=name_of(lesson),
                # If its source is revoked, what the session repeats goes, too.
                sources=tuple(filter(None, [lesson["author"]])),
            )
        elif candidate.lesson:
            candidate = replace(candidate, state="retired")
        known_candidates.append(candidate)
    return known_candidates


def _draws_of(
    db: Db, scope: Scope, session: str, candidates: Sequence[LessonCandidate]
) -> dict[str, bool]:
    """Return the earlier draws of a session about these lessons, by signature.

    Another lesson about the same error may have had the draw: it holds for all.
    """
    draws: dict[str, bool] = {}
    for candidate in candidates:
        _, _, signature = candidate.name.partition("/")
        if candidate.lesson:
            loop = opportunity_name(storable(session), signature)
            for exposure in exposures.shown_to(db, scope, loop)[:1]:
                draws[signature] = exposure.shown
    return draws


def _record(db: Db, scope: Scope, session: str, *, telling: Telling, at: float) -> None:
    """Record what a session is told, and from which draws that comes."""
    for exposure in telling.exposures:
        loop = opportunity_name(storable(session), exposure.signature)
        opportunity = replace(exposure, loop=loop)
        exposures.expose(db, scope, [opportunity], outcome=None, now=time.time())
        # An earlier draw, with the share of its time, counts.
        for recorded in exposures.shown_to(db, scope, loop):
            if recorded.lesson == exposure.lesson:
                reminder = {
                    "subject": exposure.lesson,
                    "told": recorded.shown,
                    "share": recorded.share,
                }
                _insert(db, scope, session, reminder, time=at)
    for candidate in telling.told:
        if not candidate.lesson:
            reminder = {"subject": candidate.name, "told": True, "share": 0.0}
            _insert(db, scope, session, reminder, time=at)


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
        key = {
            **key_of(scope),
            "session": storable(session),
            "subject": reminder.subject,
            "settled": False,
        }
        ended = {"repeated": verdict.repeated, "calls": verdict.calls}
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
