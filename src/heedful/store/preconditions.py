"""Store what calls of agents take for granted, and what became of such calls.

A finished run is replayed once: it tests what was known, and adds to it. Of a run that
is recorded again when it is longer, only the new steps count. While a session goes on,
marks say which files it has read, and which of its preconditions passed or were told.

The run of a key that nobody trusts is not replayed: its steps change no counts. Only
its failures are stored, and count once a person has released a text of the key about
them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from heedful.lessons import render
from heedful.lessons.action import (
    Action,
    ActionHistory,
    KnownFailure,
    action,
)
from heedful.lessons.contracts import CONTRACT_FIXES, contract_of
from heedful.lessons.mistake import from_json
from heedful.lessons.preconditions import (
    FORGETTING_CODES,
    STATE_TEMPLATES,
    Precondition,
    Surroundings,
    arguments_of,
    describe,
    preconditions_of,
    touched_path,
)
from heedful.lessons.reliability import (
    MIN_SPOKEN_BOUND,
    Form,
    FormTests,
    Replay,
    Step,
    Track,
    blamed_steps,
    lower_bound,
)
from heedful.lessons.scope import (
    Scope,
    Trust,
    digest_of,
    source_of,
)
from heedful.lessons.shipped_tests import SHIPPED_TESTS
from heedful.redact import redact
from heedful.store import aging, exposures, substitutions, user_rules
from heedful.store.connection import CONFLICT_SKIP_SQL, Db, Row, key_of, storable

if TYPE_CHECKING:  # imported when they are needed: a hook process starts for each event
    from heedful.lessons.lesson_check import LessonCheck

# An answer has at most this many failures.
MAX_ANNOUNCED_FAILURES = 3
# The codes of events that stand for words that only the agent has read: before it was
# resumed, or in messages that another system keeps.
UNREAD_CODES = ("resume", "unread")
# Agents keep a session so long that it can be resumed: 30 days.
MAX_PAST_SECONDS = 30 * 86_400.0
# Stands in the mark of a past for the key of events that code in this process sent.
_NO_KEY = "local"
MAX_BLAME_CHARS = 400
MAX_BLAME_STATE_CHARS = 300


def record_steps(
    db: Db,
    scope: Scope,
    source: str,
    steps: Sequence[Step],
    *,
    is_trusted: bool = True,
) -> None:
    """Replay the steps of one run; `source` names it, so that it can be revoked.

    A step without a time counts as happening now. Unless the run `is_trusted`, as one
    that came through a key that nobody trusts, none of its steps counts.
    """
    source = storable(source)
    key = {**key_of(scope), "source": source}
    counted = 0
    for row in db.select("steps", "replayed", key):
        counted = row["steps"]
    if not is_trusted:
        # What the run added while its key was trusted stays as it is.
        if not counted:
            _hold_steps(db, scope, source, steps)
        return

    if steps[counted:]:
        _replay_steps(db, scope, source, steps[counted:])
        db.send("replayed", {**key, "steps": len(steps), "at": time.time()})

    # Also those of earlier steps: the lesson about one may have given way to another.
    _write_blames(db, scope, source, steps)
    _write_losses(db, scope, source, steps)
    substitutions.record(db, scope, source, steps)


def _hold_steps(db: Db, scope: Scope, source: str, steps: Sequence[Step]) -> None:
    """Write the failures of an untrusted run, which count once they are released.

    A text about an error names the first call of the run that failed with it, and who
    releases it has read of no other.
    """
    key = {**key_of(scope), "source": source}
    recorded = db.select("digest, lesson_id", "blame", key)
    recorded_lessons = {row["lesson_id"] for row in recorded}
    first_steps = dict[int, Step]()
    for step in steps:
        if step.lesson and step.lesson not in recorded_lessons:
            first_steps.setdefault(step.lesson, step)
    named_steps = list(first_steps.values())
    db.send("replayed", {**key, "steps": 0, "at": time.time()})
    for precondition in {*chain.from_iterable(map(_named_by, named_steps))}:
        values = {**key_of(scope), **_words_of(precondition)}
        db.send("name_precondition", values)
    recorded_digests = {row["digest"] for row in recorded}
    _write_blames(db, scope, source, named_steps, but=recorded_digests)
    # That a contract was broken counts at once.
    uncontracted = [replace(step, contract="") for step in steps]
    substitutions.record(db, scope, source, uncontracted)


def _words_of(precondition: Precondition) -> dict[str, str]:
    """Return the digest of a precondition with its words."""
    words = [storable(word) for word in precondition.words]
    return {
        "digest": precondition.digest,
        "template": precondition.template,
        "words": json.dumps(words),
    }


def _replay_steps(db: Db, scope: Scope, source: str, steps: Sequence[Step]) -> None:
    """Replay the steps of a run that are new."""
    preconditions = dict[str, Precondition]()
    for step in steps:
        preconditions.update(_by_digest(step.preconditions))
    rows = db.all("tracks", scope, digests=_json(preconditions), source=source)
    tracks = {preconditions[row["digest"]]: _track_of(row) for row in rows}
    again = frozenset(preconditions[row["digest"]] for row in rows if row["again"])
    replay = Replay(tracks=tracks, again=again)
    replay.run(steps)
    named_preconditions = {*chain.from_iterable(map(_named_by, steps))}
    _write_replay(db, scope, replay, named_preconditions)


def _named_by(step: Step) -> Set[Precondition]:
    """Return what the errors of a step blame, and whose words are stored."""
    return step.blamed.keys() - step.unnamed


def _write_replay(
    db: Db, scope: Scope, replay: Replay, named_preconditions: Set[Precondition]
) -> None:
    """Write what a run adds; only the named preconditions have their words."""
    for precondition, track in replay.tracks.items():
        values = {
            **key_of(scope),
            "digest": precondition.digest,
            "template": "",
            "words": "[]",
            "passed": track.passed,
            "since": track.since,
        }
        if precondition in named_preconditions:
            values |= _words_of(precondition)
        db.send("count_precondition", values)

    for form, tests in replay.tests.items():
        values = {
            **key_of(scope),
            "form": json.dumps(astuple(form)),
            "held": tests.held,
            "tested": tests.tested,
        }
        db.send("count_test", values)


def _write_blames(
    db: Db,
    scope: Scope,
    source: str,
    steps: Sequence[Step],
    but: Set[str] = frozenset(),
) -> None:
    """Write the last step of a run that failed because of each precondition.

    Those with the digests `but` stay as they are.
    """
    now = time.time()
    for precondition, blamed in blamed_steps(steps).items():
        if precondition.digest in but:
            continue
        step = blamed[-1]
        error = redact(step.blamed[precondition])
        values = {
            **key_of(scope),
            "digest": precondition.digest,
            "source": source,
            "lesson_id": step.lesson or None,
            "error": storable(error)[:MAX_BLAME_CHARS],
            "state": storable(step.state)[:MAX_BLAME_STATE_CHARS],
            "failed": min(step.at or now, now),
            "calls": sum(step.calls for step in blamed),
            "at": now,
        }
        db.send("blame", values)


def _write_losses(db: Db, scope: Scope, source: str, steps: Sequence[Step]) -> None:
    """Write what each error has cost a run."""
    from heedful.lessons.signature import signature

    now = time.time()
    calls = Counter[str]()
    failed = dict[str, float]()
    for step in steps:
        for digest in {signature("", error).digest for error in step.errors}:
            calls[digest] += step.calls
            failed[digest] = min(step.at or now, now)
    for digest, lost in calls.items():
        values = {
            **key_of(scope),
            "signature": digest,
            "source": source,
            "calls": lost,
            "failed": failed[digest],
            "at": now,
        }
        db.send("loss", values)


def _track_of(row: Row) -> Track:
    """Return the track in a row of the statement `tracks`."""
    return Track(failed=row["failed"], since=row["since"], passed=row["passed"])


def _by_digest(
    preconditions: Iterable[Precondition],
) -> dict[str, Precondition]:
    """Return preconditions by their digests."""
    return {precondition.digest: precondition for precondition in preconditions}


def _json(values: Iterable[str]) -> str:
    return json.dumps(list(values))


def read_tests(db: Db, scope: Scope) -> dict[Form, FormTests]:
    """Return the tests that sessions of the scope have made."""
    tests = {}
    for row in db.select("form, held, tested", "precondition_test", key_of(scope)):
        template, failed, since, has_passed, variant = json.loads(row["form"])
        form = Form(
            template, failed, since, has_passed=has_passed, variant=tuple(variant)
        )
        tests[form] = FormTests(row["held"], row["tested"])
    return tests


def history_of(
    db: Db,
    scope: Scope,
    tool: str,
    arguments: Mapping[str, Any] | str,
    *,
    session: str = "",
    folder: str = "",
    trust: Mapping[str, Trust] = {},
) -> ActionHistory:
    """Return the failures that a call surely has, because of what it takes for granted.

    The surest come first. In a `session`, what passed or was told there is left out. If
    the lesson about a failure waits in quarantine, its error and its fix are left out.
    An error is told in words that are trusted: those of the newest failure may not be.
    `trust` is that of the memory; it decides which substitutions may be told.
    """
    fields = arguments_of(arguments)
    sure = _find_failures(db, scope, tool, fields, session=session, folder=folder)
    sure = sure[:MAX_ANNOUNCED_FAILURES]
    blames: dict[str, list[Row]] = {}
    if sure:
        digests = _json(failure.precondition.digest for failure in sure)
        rows = db.all("last_blame", scope, digests=digests)
        for row in rows:
            blames.setdefault(row["digest"], []).append(row)

    failures = list[KnownFailure]()
    fixes = set[str]()
    waiting = set[int]()
    for failure in sure:
        announced, waits = _known_failure(
            db, scope, failure, blames.get(failure.precondition.digest, ())
        )
        waiting |= waits
        if announced is not None and not announced.fix:
            worked = substitutions.find(
                db,
                scope,
                [failure.precondition],
                (tool, fields),
                folder=folder,
                trust=trust,
                session=session,
            )
            fix = CONTRACT_FIXES.get(failure.precondition.template, "")
            if worked:
                fix = worked[0].text
            announced = replace(announced, fix=fix)
        # The same fix is told once.
        if announced is not None and announced.fix not in fixes:
            failures.append(announced)
            fixes.update({announced.fix} - {""})
    return ActionHistory(
        tuple(failures),
        tuple(sorted(waiting)),
        checks=_checks_of(db, scope, action(tool, arguments)),
        rules=tuple(user_rules.about_call(db, scope, tool, arguments, session=session)),
    )


def _checks_of(db: Db, scope: Scope, called: Action) -> tuple[LessonCheck, ...]:
    """Return the checks of lessons that find something in an action."""
    return tuple(
        check
        for check in exposures.active_checks(db, scope, calls=True)
        if check.judges_tool(called.tool) and check.judge(called.text)
    )


@dataclass(frozen=True, slots=True)
class _SureFailure:
    """A precondition because of which at least the share `bound` of calls fails."""

    precondition: Precondition
    track: Track
    bound: float


def sure_failures(
    db: Db,
    scope: Scope,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    session: str,
    folder: str,
) -> list[tuple[Precondition, Track, float]]:
    """Return what surely makes a call fail: its track, and how surely it does."""
    failures = _find_failures(
        db, scope, tool, arguments, session=session, folder=folder
    )
    return [
        (failure.precondition, failure.track, failure.bound) for failure in failures
    ]


def _find_failures(
    db: Db,
    scope: Scope,
    tool: str,
    arguments: Mapping[str, Any],
    *,
    session: str,
    folder: str,
) -> list[_SureFailure]:
    """Return the failures that a call surely has, but not those a session knows of."""
    surroundings = Surroundings(folder)
    if session:
        surroundings = surroundings_of(db, scope, session, arguments, folder=folder)
    preconditions = preconditions_of(tool, arguments, surroundings)
    if session:
        quiet = _quiet_digests(db, scope, session, preconditions)
        preconditions = tuple(
            precondition
            for precondition in preconditions
            if precondition.digest not in quiet
            # What the session knows about a part of a command it knows about the whole.
            and not (quiet and precondition.template == "command")
        )

    # What only this session taught is no news to it.
    source = storable(source_of(session)) if session else ""
    return _find_sure(db, scope, preconditions, source)


def _find_sure(
    db: Db, scope: Scope, preconditions: Sequence[Precondition], source: str
) -> list[_SureFailure]:
    """Return those of the preconditions that may be told, the surest first.

    Failures of the run that `source` names do not count.
    """
    tracks = {}
    by_digest = _by_digest(preconditions)
    for row in db.all("tracks", scope, digests=_json(by_digest), source=source):
        track = _track_of(row)
        failed = track.failed - row["again"]
        tracks[by_digest[row["digest"]]] = replace(track, failed=failed)

    forms = {}
    for precondition in preconditions:
        form = Form.of(precondition, tracks.get(precondition, Track()))
        if form.failed or form.variant:
            forms[precondition] = form
    if not forms:
        return []

    tests = read_tests(db, scope)
    sure = [
        _SureFailure(
            precondition,
            tracks.get(precondition, Track()),
            lower_bound(form, tests, SHIPPED_TESTS),
        )
        for precondition, form in forms.items()
    ]
    spoken = [failure for failure in sure if failure.bound >= MIN_SPOKEN_BOUND]
    # A part of a command says more than the whole.
    parts = [
        failure for failure in spoken if failure.precondition.template != "command"
    ]
    return sorted(parts or spoken, key=lambda failure: failure.bound, reverse=True)


def _known_failure(
    db: Db, scope: Scope, failure: _SureFailure, blames: Sequence[Row]
) -> tuple[KnownFailure | None, set[int]]:
    """Return what may be told of a failure, and the lessons about it that wait.

    Of the blames, the first is told, and the newest may be another that waits.
    It is None if its lesson was retired. The words of a precondition are those of the
    call itself, so they may be told though the error waits in quarantine.
    """
    failed = KnownFailure(
        0,
        "",
        about=describe(failure.precondition),
        runs=failure.track.failed,
        passed=failure.track.passed,
        surely=failure.bound,
        digest=failure.precondition.digest,
    )
    if not blames:
        return failed, set()

    waiting = set[int]()
    for newer in blames[1:]:
        rows = db.all("lesson_and_rules", scope, id=newer["lesson_id"])
        waiting.update(row["entry"] for row in rows if row["entry"])

    blame = blames[0]
    failed = replace(failed, state=blame["state"], failed=blame["failed"])
    if not blame["lesson_id"]:
        return failed, waiting

    lesson = None
    rule = None
    for row in db.all("lesson_and_rules", scope, id=blame["lesson_id"]):
        if row["entry"]:
            waiting.add(row["entry"])
        elif row["own"]:
            lesson = row
        else:
            rule = row
    if lesson is None:
        return (replace(failed, state="") if waiting else None), waiting

    error = blame["error"] if blame["is_told"] else blame["pattern"]
    failed = replace(failed, lesson=blame["lesson_id"], what=error)
    failed = _add_fix(failed, failure.precondition, lesson, rule)
    mistake = from_json(lesson["mistake"])
    if rule is None and aging.has_failed_fix(db, scope, mistake):
        failed = replace(failed, fix="")
    return failed, waiting


def _add_fix(
    failed: KnownFailure, precondition: Precondition, lesson: Row, rule: Row | None
) -> KnownFailure:
    """Return a failure with its fix: a `rule`, or else what put the same thing right.

    The lesson may tell of another call that failed with the same error.
    """
    best = lesson if rule is None else rule
    fix = ""
    if rule is not None:
        fix = rule["text"]
    elif precondition.template in STATE_TEMPLATES:
        # The lesson tells of another file.
        fix = contract_of(failed.what)
    elif precondition.words[0] in lesson["text"]:
        mistake = from_json(lesson["mistake"])
        fix = render.advice(mistake) if mistake else ""
    return replace(failed, fix=fix, trust=best["trust"], lesson_state=best["state"])


def surroundings_of(
    db: Db, scope: Scope, session: str, arguments: Mapping[str, Any], *, folder: str
) -> Surroundings:
    """Return what is known of a session that goes on, at the time of a call."""
    path = Surroundings(folder).relative(touched_path(arguments))
    if not path:
        return Surroundings(folder)

    key = {**key_of(scope), "session": storable(session)}
    has_read = bool(db.select("1", "session_mark", {**key, "mark": _read_mark(path)}))
    (row,) = db.all("count_reads", scope, session=storable(session))
    return Surroundings(folder, has_read=has_read, reads=row["n"])


def _read_mark(path: str) -> str:
    """Return the mark of a session that has read a file."""
    return f"read {digest_of('file', path)}"


def _quiet_digests(
    db: Db, scope: Scope, session: str, preconditions: Sequence[Precondition]
) -> frozenset[str]:
    """Return the digests of what passed in a session, or was told there."""
    marks = []
    for precondition in preconditions:
        marks += [f"passed {precondition.digest}", f"told {precondition.digest}"]
    rows = db.all("read_marks", scope, session=storable(session), marks=_json(marks))
    return frozenset(row["mark"].partition(" ")[2] for row in rows)


def mark(db: Db, scope: Scope, session: str, marks: Iterable[str]) -> None:
    """Remember marks of a session."""
    key = {**key_of(scope), "session": storable(session)}
    for text in marks:
        db.insert("session_mark", {**key, "mark": text}, CONFLICT_SKIP_SQL)


def follow(
    db: Db, scope: Scope, session: str, event: Mapping[str, Any], *, folder: str
) -> None:
    """Remember what a new event of a session shows; `event` is a row of it.

    `folder` is the root of the repository.
    """
    if event["type"] == "system_event":
        code = json.loads(event["record"])["code"]
        if code in FORGETTING_CODES:
            forget_reads(db, scope, session)
        if code in UNREAD_CODES:
            note_past(db, scope, [(session, db.actor.via)])
    elif event["type"] == "tool_response" and event["call"] and not event["failed"]:
        row = db.one("call_of", scope, session=storable(session), call=event["call"])
        if row is not None:
            call = json.loads(row["record"])
            _mark_passed(db, scope, session, call, folder=folder)


def _mark_passed(
    db: Db, scope: Scope, session: str, call: Mapping[str, Any], *, folder: str
) -> None:
    """Remember what a call of a session that passed shows."""
    tool = call["tool"]
    arguments = arguments_of(call["arguments"] or {})
    surroundings = surroundings_of(db, scope, session, arguments, folder=folder)
    preconditions = preconditions_of(tool, arguments, surroundings)
    digests = _json(precondition.digest for precondition in preconditions)
    rows = db.all("tracks", scope, digests=digests, source="")
    marks = [f"passed {row['digest']}" for row in rows if row["failed"]]

    path = Surroundings(folder).relative(touched_path(arguments))
    if path:
        marks.append(_read_mark(path))
    mark(db, scope, session, marks)


def forget_reads(db: Db, scope: Scope, session: str) -> None:
    """Forget what a session has read, and was told: it was resumed, or compacted."""
    db.send("forget_reads", {**key_of(scope), "session": storable(session)})


def past_mark(at: float, via: str = "") -> str:
    """Return the mark of a session of which heedful does not know all, since a time.

    It has the key to which the session belongs, or says that it has none.
    """
    day = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
    return f"past {day} {via or _NO_KEY}"


def note_past(db: Db, scope: Scope, sessions: Iterable[tuple[str, str]]) -> None:
    """Remember that these sessions have read what their events do not have.

    Each has the key that sent its events, to which it belongs. Forgets it of those
    without an event for `MAX_PAST_SECONDS`, so that marks do not grow.
    """
    now = time.time()
    for session, via in sessions:
        mark(db, scope, session, [past_mark(now, via)])
    oldest = past_mark(now - MAX_PAST_SECONDS)
    db.send("forget_pasts", {**key_of(scope), "oldest": oldest})


def past_owner(db: Db, scope: Scope, session: str) -> str | None:
    """Return the key to which a session belonged whose events are gone, as `owner`."""
    pasts = [text.split(" ", 2) for text in _pasts(db, scope, session)]
    keys = {words[2] for words in pasts if len(words) > 2}
    # Code in this process may go on with the session of a key, but no key with its own.
    for key in keys - {_NO_KEY}:
        return key
    return "" if keys else None


def past_runs(db: Db, scope: Scope, key: str) -> set[str]:
    """Return the names, as sources, of the runs with a past that belong to a key."""
    rows = db.all("pasts_of", scope, key=key)
    return {storable(source_of(row["session"])) for row in rows}


def forget_events(db: Db, scope: Scope, key: Mapping[str, Any]) -> None:
    """Delete the events that match a key; sessions that go on have a past then."""
    rows = db.select("distinct session, via", "event", key)
    db.delete("event", key)
    note_past(db, scope, [(row["session"], row["via"]) for row in rows])


def has_past(db: Db, scope: Scope, session: str) -> bool:
    """Return True if a session has read what its events do not have."""
    return bool(_pasts(db, scope, session))


def _pasts(db: Db, scope: Scope, session: str) -> list[str]:
    key = {**key_of(scope), "session": storable(session)}
    marks = [row["mark"] for row in db.select("mark", "session_mark", key)]
    return [text for text in marks if text.startswith("past ")]
