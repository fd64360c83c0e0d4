"""Store how the calls of agents ended, to warn an agent before a call that failed.

A mark is what calls have in common, such as a path; `lessons/call_marks.py` says which
marks a call has. The store keeps one failure for each mark and run, and the time of the
last success for each mark. Before a call, an agent is told the failures that other runs
had with the marks of this call. Nothing is stored of a run that came from outside.
"""

import json
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import replace
from itertools import chain
from typing import Any, get_args

from heedful.episodes.error_lines import is_of_work, named_errors
from heedful.lessons import render
from heedful.lessons.action import arguments_of
from heedful.lessons.call_marks import (
    FORGETTING_CODES,
    ActionHistory,
    KnownFailure,
    Mark,
    MarkKind,
    Step,
    call_origin,
    contract_marks,
    failed_marks,
    marks_of,
    met_call_mark,
    told_call_mark,
    whole_call,
)
from heedful.lessons.contracts import CONTRACTS_BY_NAME, Contract, find_contract
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.mistake import Mistake, from_json, without_outside
from heedful.lessons.origin import Origin
from heedful.lessons.scope import (
    MAX_PROMPT_LESSONS,
    Scope,
    State,
    digest_of,
    reader_of,
    source_of,
)
from heedful.lessons.telling import (
    LessonCandidate,
    Moment,
    Situation,
    TellingBudget,
    tell,
)
from heedful.lessons.triggers import trigger_of_mark
from heedful.store import exposures, session_marks, user_rules
from heedful.store.connection import Db, Row, key_of, storable
from heedful.validation import MAX_SHOWN_TEXT_CHARS, Fields, typed_frozen

# The codes of events that stand for text that the agent has read and the store does not
# have: from before the agent was resumed, or in messages that another system keeps.
UNREAD_CODES = ("resume", "unread")
# Between steps without times, so that their order stays.
STEP_SECONDS = 1e-6
# In the rows of failures: calls have worked in a later run than the one that failed.
WORKED_LATER = 2
# The order of failures: a part of the call says more about an error than the whole.
_KIND_ORDER = get_args(MarkKind)


def record_run(db: Db, scope: Scope, source: str, steps: Sequence[Step]) -> None:
    """Record for the marks of a run's calls which of them failed and which passed.

    A mark is something that calls have in common, such as a path. `steps` are all calls
    of the run, and `source` names the run, so that what it taught can be revoked. A run
    that went on is recorded again with all its steps; it still counts once. A step
    without a time, or with a time to come, gets the present one; their order stays.
    """
    source = storable(source)
    now = time.time()
    db.insert(
        "learnt",
        {**key_of(scope), "source": source, "steps": len(steps), "at": now},
        "on conflict (tenant, project, source) do update set steps = :steps, at = :at",
    )
    calls_lost_so_far = Counter[Mark]()
    for number, step in enumerate(steps):
        # No step of the run is later than now, when it is learnt.
        latest_time = now - (len(steps) - number) * STEP_SECONDS
        time_of_step = min(step.at or latest_time, latest_time)
        if not step.errors:
            _record_success(db, scope, step.marks, time_of_step)
        for mark, error in step.failed:
            calls_lost_so_far[mark] += step.calls
            _record_failure(
                db,
                scope,
                source=source,
                mark=mark,
                error=error,
                failed_at=time_of_step,
                calls=calls_lost_so_far[mark],
                lesson_id=step.lesson or None,
                origin=step.origin,
            )
    _record_losses(db, scope, source, steps)


def original_source(db: Db, scope: Scope, source: str, steps: Sequence[Step]) -> str:
    """Return the run that `source` copies, or `source` itself if it copies none.

    A session that was resumed or forked has the failed calls of the first one, by their
    ids. So a copy is the same run, and what failed in it counts once.
    """
    for id in [step.id for step in steps if step.errors and step.id]:
        key = {**key_of(scope), "digest": _id_digest(id)}
        for row in db.select("source", "call_failure", key):
            if row["source"] != storable(source):
                return str(row["source"])
    return source


def _id_digest(id: str) -> str:
    """Return the digest under which the id of a failed call is recorded."""
    return digest_of("call", id)


def _record_failure(
    db: Db,
    scope: Scope,
    source: str,
    mark: Mark | str,
    error: str,
    *,
    failed_at: float,
    calls: int = 1,
    lesson_id: int | None = None,
    origin: Origin = "local",
) -> None:
    """Record that calls with a mark, such as a path, failed in the run `source`.

    Instead of a `mark`, the digest of an error may be given. A later failure of the
    same run replaces the text of an earlier one. `error` is the error line, `failed_at`
    the time in seconds since 1970, and `calls` how many calls the failure cost.
    `lesson_id` is the lesson about it, and `origin` says whether the text of the error
    came from outside.
    """
    # These columns are for the digest of an error, which has no name and no tool.
    columns = {"digest": mark, "kind": "error", "name": "", "tool": "", "word": ""}
    if isinstance(mark, Mark):
        columns = {
            "digest": mark.digest,
            "kind": mark.kind,
            "name": storable(mark.name),
            "tool": storable(mark.tool),
            "word": trigger_of_mark(mark),
        }
    values = {
        **key_of(scope),
        **columns,
        "source": source,
        "error": storable(error)[:MAX_SHOWN_TEXT_CHARS],
        "origin": origin,
        "lesson_id": lesson_id,
        "calls": calls,
        "failed": failed_at,
        "at": time.time(),
    }
    db.send("fail_call", values)


def _record_success(db: Db, scope: Scope, marks: Iterable[Mark], at: float) -> None:
    """Record that a call with these marks passed at a time, in seconds since 1970."""
    digests = json.dumps([mark.digest for mark in marks])
    db.send("pass_calls", {**key_of(scope), "digests": digests, "at": at})


def _record_losses(db: Db, scope: Scope, source: str, steps: Sequence[Step]) -> None:
    """Record how many calls each error has cost the run `source`, and when it was last.

    An error is recorded under the digest of its signature, without its text, and each
    failed call under that of its id.
    """
    now = time.time()
    calls_lost = Counter[str]()
    last_failed = dict[str, float]()
    for step in steps:
        for digest in set(step.digests):
            calls_lost[digest] += step.calls
            last_failed[digest] = min(step.at or now, now)
    for step in steps:
        if step.errors and step.id:
            last_failed[_id_digest(step.id)] = min(step.at or now, now)
    for digest, failed_at in last_failed.items():
        count = calls_lost[digest]
        _record_failure(db, scope, source, digest, "", failed_at=failed_at, calls=count)


def follow(db: Db, scope: Scope, session: str, event: Fields, *, folder: str) -> None:
    """Record what a new event of a session shows about calls and about files read.

    `event` is the row of the event, and `folder` the root of the repository. The result
    of a call shows whether it passed. Some system events show that the agent no longer
    knows what it has read, or has read what the store does not have.
    """
    if event["type"] == "system_event":
        record = json.loads(event["record"])
        code = record["code"]
        if code in FORGETTING_CODES:  # such as the compaction of its context
            session_marks.forget(db, scope, reader_of(session, record.get("agent", "")))
        if code in UNREAD_CODES:
            session_marks.note_past(db, scope, [(session, db.actor.via)])
    elif event["type"] == "tool_response" and event["call"]:
        call = find_call(db, scope, session, event["call"])
        if call is not None:
            result = json.loads(event["record"])
            _record_result(db, scope, session, call=call, result=result, folder=folder)


def find_call(db: Db, scope: Scope, session: str, id: str) -> Any:
    """Return the record of a session's call with this id; None if it is not stored.

    If calls of a session have the same id, return the newest.
    """
    key = {**key_of(scope), "session": storable(session), "type": "tool_call"}
    rows = db.select("record", "event", {**key, "call": id}, "order by n desc limit 1")
    return json.loads(rows[0]["record"]) if rows else None


def _record_result(
    db: Db,
    scope: Scope,
    session: str,
    call: Fields,
    result: Fields,
    *,
    folder: str,
) -> None:
    """Record whether a call of a session passed or failed, then which file it read.

    `call` and `result` are the records of the call and of its result, and `folder` is
    the root of the repository. The calls of a run that came through a key of a service
    are recorded by `record_run` when the run ends, if people trust the key; here, only
    their files are.
    """
    tool = call["tool"]
    arguments = arguments_of(call["arguments"] or {})
    reader = reader_of(session, call.get("agent", ""))
    is_recorded_later = bool(db.actor.via)  # it came through a key of a service
    if result["error"]:
        if not is_recorded_later:
            _record_failed_call(
                db,
                scope,
                session,
                reader=reader,
                tool=tool,
                arguments=arguments,
                error=result["error"],
                folder=folder,
            )
        return

    if not is_recorded_later:
        marks = _marks_of_call(
            db, scope, reader, tool=tool, arguments=arguments, folder=folder
        )
        _record_success(db, scope, marks, time.time())
    session_marks.mark_read(db, scope, reader, arguments=arguments, folder=folder)


def _marks_of_call(
    db: Db,
    scope: Scope,
    reader: str,
    *,
    tool: str,
    arguments: Fields,
    folder: str,
) -> list[Mark]:
    """Return the marks of a call: what it has in common with others, such as a path.

    If its `reader` is known, the contracts that the call seems to break are marks, too.
    A contract is what a tool demands, such as that a file is read before it is edited.
    `folder` is the root of the repository, to which paths are relative.
    """
    marks = list(marks_of(tool, arguments, folder))
    if reader:
        unread = session_marks.has_unread(
            db, scope, reader, arguments=arguments, folder=folder
        )
        marks += contract_marks(tool, arguments, unread=unread)
    return marks


def _record_failed_call(
    db: Db,
    scope: Scope,
    session: str,
    *,
    reader: str,
    tool: str,
    arguments: Fields,
    error: str,
    folder: str,
) -> None:
    """Record a failed call of a session under each mark that its error is about.

    A mark is what calls have in common: a path, a name, the whole call, or a contract
    that the call broke. `error` is the whole output of the call; under each mark, the
    line of it that names the error is stored. The `reader` made the call, so it knows.
    """
    errors = named_errors(error, arguments)
    contract = find_contract(arguments, error, errors)
    failed = failed_marks(tool, arguments, errors, contract=contract, folder=folder)
    met = [met_call_mark(mark.digest) for mark in failed]
    session_marks.mark(db, scope, reader, met)
    source = storable(source_of(session))
    origin = call_origin(tool, arguments)
    for mark, error_line in failed.items():
        _record_failure(
            db,
            scope,
            source=source,
            mark=mark,
            error=error_line,
            failed_at=time.time(),
            origin=origin,
        )


@typed_frozen(slots=True, kw_only=True)
class CallKnowledge:
    """What memory knows about a call before it runs: what may be told, and why not.

    The records of the candidates are KnownFailure, or LessonCheck for a check of a
    lesson that refuses the call. `waiting` are the ids of the entries in quarantine
    that hold back lessons about it.
    """

    candidates: tuple[LessonCandidate, ...] = ()
    waiting: tuple[int, ...] = ()


def history_of(
    db: Db,
    scope: Scope,
    tool: str,
    arguments: Fields | str,
    *,
    folder: str = "",
    stated: Set[str] = frozenset(),
    moment: Moment = "before call",
) -> ActionHistory:
    """Return how calls like this one failed, and the checks and rules that speak of it.

    Calls are alike if they have a mark in common, such as a path. Before a call, it is
    told what an agent would be told; to a question, all that is known. `stated` are
    names of trusted sources, besides those of the scope. Paths are relative to
    `folder`, the root of the repository.
    """
    knowledge = knowledge_of(
        db,
        scope,
        tool,
        arguments,
        reader="",
        folder=folder,
        stated=stated,
    )
    budget = TellingBudget(unchecked=MAX_PROMPT_LESSONS)
    telling = tell(Situation(moment=moment, budget=budget), knowledge.candidates)
    records = [candidate.record for candidate in telling.told]
    return ActionHistory(
        failures=tuple(r for r in records if isinstance(r, KnownFailure)),
        waiting=knowledge.waiting,
        checks=tuple(r for r in records if isinstance(r, LessonCheck)),
        rules=tuple(user_rules.broken_by(db, scope, tool, arguments)),
        silence=telling.silence,
    )


def knowledge_of(
    db: Db,
    scope: Scope,
    tool: str,
    arguments: Fields | str,
    *,
    reader: str,
    folder: str,
    stated: Set[str],
) -> CallKnowledge:
    """Return what memory knows about a call before it runs.

    The text of an error from outside is left out, unless people trust its sources. With
    a `reader`, who makes the call, the contracts that the call seems to break are
    looked up, too. The other arguments are those of `history_of`.
    """
    fields = arguments_of(arguments)
    marks = _marks_of_call(
        db, scope, reader, tool=tool, arguments=fields, folder=folder
    )
    digests = json.dumps([mark.digest for mark in marks])
    rows_by_digest: dict[str, list[Row]] = {}
    for row in db.all("failures_of_call", scope, digests=digests):
        rows_by_digest.setdefault(row["digest"], []).append(row)

    shows_outside = True
    if any(rows[0]["origin"] == "outside" for rows in rows_by_digest.values()):
        from heedful.store import keys  # a hook seldom needs it

        names = keys.believed_names(db, scope, stated)
        # Show them only if the call itself reads from outside, and from sources that
        # people trust: the error of another call may have come with an event from
        # outside, whose source nobody can know here.
        shows_outside = (
            call_origin(tool, fields) == "outside"
            and call_origin(tool, fields, names) != "outside"
        )

    candidates = _refusing_checks(db, scope, tool, arguments)
    waiting_entries = set[int]()
    for rows in rows_by_digest.values():
        candidate, entries = _candidate_of(
            db,
            scope,
            rows,
            folder=folder,
            shows_outside=shows_outside,
        )
        waiting_entries |= entries
        candidates.append(candidate)
    return CallKnowledge(
        candidates=tuple(candidates), waiting=tuple(sorted(waiting_entries))
    )


def _refusing_checks(
    db: Db, scope: Scope, tool: str, arguments: Fields | str
) -> list[LessonCandidate]:
    """Return the checks of lessons that refuse a call."""
    call = whole_call(tool, arguments)
    return [
        LessonCandidate(
            name=f"check/{check.lesson}",
            leg="call",
            record=check,
            text=f"{check.about}: {check.text}",
            lesson=check.lesson,
            near=len(_KIND_ORDER) + 1,
        )
        for check in exposures.active_checks(db, scope, calls=True)
        if check.refuses_call(call.tool, call.name)
    ]


def _candidate_of(
    db: Db,
    scope: Scope,
    rows: Sequence[Row],
    *,
    folder: str,
    shows_outside: bool,
) -> tuple[LessonCandidate, set[int]]:
    """Return what may be told of the failures of one mark, and what waits for review.

    `rows` are these failures, the newest first. The set has the ids of the entries in
    quarantine that hold back lessons about them. The failure counts as retired if the
    lesson about it was retired or superseded and no rule was drawn from it. Unless
    `shows_outside`, the text of an error from outside is left out, unless a lesson that
    does not wait has the error.
    """
    newest = rows[0]
    mark = Mark(newest["kind"], newest["name"], newest["tool"])
    is_shown = shows_outside or newest["origin"] != "outside"
    failure = KnownFailure(
        kind=mark.kind,
        # The caller knows its whole call.
        name="" if mark.kind in ("call", "command") else mark.name,
        tool=mark.tool,
        digest=newest["digest"],
        error=newest["error"] if is_shown else "",
        failed=newest["failed"],
    )
    contract = CONTRACTS_BY_NAME.get(mark.name) if mark.kind == "contract" else None
    if contract is not None:
        failure = replace(failure, fix=contract.text)

    lesson: Row | None = None
    entries = set[int]()
    if newest["lesson_id"]:
        lesson, entries = _lesson_of(db, scope, newest["lesson_id"])
    mistake = from_json(lesson["mistake"]) if lesson else None
    fix = _fix_kind(db, scope, mistake, mark=mark, folder=folder)
    # What a test, a linter or a compiler says no to is put right by an edit.
    if mark.kind == "command" and is_of_work(newest["error"]):
        fix = "edit"
    if lesson is not None:
        failure = replace(failure, lesson=newest["lesson_id"])
        failure = _with_words(
            failure, lesson, mistake, mark=mark, folder=folder, has_fix=fix != ""
        )
    state: State = "unverified"
    if newest["lesson_id"] and lesson is None and not entries:
        state = "retired"
    step = ""
    if fix == "step" and mistake and mistake.fix:
        step = mistake.fix.digest
    open_rows = [row for row in rows if not _has_worked(db, scope, row, step)]
    failure = replace(failure, runs=len(open_rows))
    text = render.before_call(failure, has_worked=bool(newest["since"]))
    failure = replace(failure, text=text)
    key = f"error {failure.error or failure.digest}"
    candidate = LessonCandidate(
        name=f"mark/{failure.digest}",
        leg="call",
        record=failure,
        text=failure.text,
        lesson=failure.lesson,
        near=len(_KIND_ORDER) - _KIND_ORDER.index(mark.kind),
        repeats=frozenset([key]),
        says=frozenset([key]),
        state=state,
        has_ended=not open_rows,
        marks=frozenset([told_call_mark(failure.digest)]),
        known_by=frozenset([met_call_mark(failure.digest)]),
        mark_kind=mark.kind,
        fix=fix,
        runs=failure.runs,
    )
    return candidate, entries


def _has_worked(db: Db, scope: Scope, row: Row, step: str) -> bool:
    """Return True if calls have worked since they failed as a row says.

    What a `step` with this digest put right works in the same run, and in later ones
    that do the step first; it has worked without only if a later run did not do it.
    """
    if not step:
        return bool(row["since"])
    if row["since"] < WORKED_LATER:
        return False
    key = {**key_of(scope), "digest": step}
    passes = db.select("at", "call_success", key)
    return not any(step["at"] > row["learnt"] for step in passes)


def _fix_kind(
    db: Db, scope: Scope, mistake: Mistake | None, *, mark: Mark, folder: str
) -> str:
    """Return the kind of what put calls with a mark right; "" if nothing is known.

    The fix of another call says nothing about these, except if it fits calls of other
    names, or is an edit: then neither call was wrong. `folder` is that of the
    repository.
    """
    if mistake is None or mistake.fix is None or has_failed_fix(db, scope, mistake):
        return ""
    fits = mistake.fix.kind == "edit" or _fits_calls(mistake, mark, folder)
    return mistake.fix.kind if fits else ""


def _lesson_of(db: Db, scope: Scope, id: int) -> tuple[Row | None, set[int]]:
    """Return the lesson with this id, and the ids of entries that wait in quarantine.

    If the lesson may not be shown, the oldest rule that may be and was drawn from it
    takes its place; None if there is none either. The entries hold back the lesson or a
    rule.
    """
    lesson = None
    entries = set[int]()
    # The rules come first, oldest first, and the lesson of the id itself last.
    for row in db.all("lesson_and_rules", scope, id=id):
        if row["entry"]:
            entries.add(row["entry"])
        elif row["own"] or lesson is None:
            lesson = row
    return lesson, entries


def _with_words(
    failure: KnownFailure,
    lesson: Row,
    mistake: Mistake | None,
    *,
    mark: Mark,
    folder: str,
    has_fix: bool,
) -> KnownFailure:
    """Return a failure with the error, the words and the fix that a lesson has for it.

    `mark` is what the failed calls have in common, and `folder` the root of the
    repository. Words and fix are left out if the failure has the text of a contract
    already, or if the call of the lesson does not have the mark, and its fix fits no
    other names. So are all parts from outside, and a fix that failed later.
    """
    has_contract = failure.fix != ""
    if mistake is None:
        # The text of the lesson itself says no more than the error; that of a rule
        # drawn from it does.
        if has_contract or lesson["own"]:
            return failure
        return replace(failure, words=lesson["text"])

    safe_parts = without_outside(mistake)
    failure = replace(failure, error=failure.error or safe_parts.error)
    if not has_contract and _fits_calls(mistake, mark, folder):
        fix = render.fix_lines(safe_parts) if has_fix else ()
        failure = replace(failure, words=safe_parts.words, fix="\n".join(fix))
    return failure


def _fits_calls(mistake: Mistake, mark: Mark, folder: str) -> bool:
    """Return True if what is known of a mistake helps before calls with a mark.

    The failed call has the mark, or its fix fits calls of other names.
    """
    if _has_mark(mistake, mark, folder):
        return True
    from heedful.lessons.session_names import fits_other_names  # a hook seldom needs it

    return fits_other_names(mistake)


def _has_mark(mistake: Mistake, mark: Mark, folder: str) -> bool:
    """Return True if the failed call of a mistake has a mark: names it, or is it.

    The failure of a mark may have a lesson about a call without the mark, because other
    calls failed with the same error. Paths are relative to `folder`.
    """
    call = mistake.action
    if call is None:
        return False
    if mark.kind in ("command", "name"):
        return mark in marks_of(call.tool, call.given, folder)
    words = [call.text, *chain.from_iterable(call.arguments)]
    return mark.kind == "call" or any(mark.name in word.casefold() for word in words)


def contract_is_known(
    db: Db, scope: Scope, tool: str, contract: Contract, session: str
) -> bool:
    """Return True if another run than this session broke a contract of a tool."""
    mark = Mark("contract", contract.name, tool)
    key = {**key_of(scope), "digest": mark.digest}
    own_source = storable(source_of(session))
    rows = db.select("source", "call_failure", key)
    return any(row["source"] != own_source for row in rows)


def mistakes(db: Db, scope: Scope, ids: Collection[int]) -> dict[int, Mistake]:
    """Map the ids of lessons to the mistakes that they are about.

    Lessons that are unknown, or about no mistake, are left out.
    """
    mistakes: dict[int, Mistake] = {}
    for row in db.all("lessons_of", scope, ids=json.dumps(list(ids))):
        mistake = from_json(row["mistake"])
        if mistake is not None:
            mistakes[row["id"]] = mistake
    return mistakes


def failures(db: Db, scope: Scope, limit: int) -> list[render.FailureRow]:
    """Return the mistakes that most runs made, at most `limit`, most frequent first.

    Each has its id as a lesson, how many runs made it, and how many calls that cost.
    """
    rows: list[render.FailureRow] = []
    for row in db.all("failures", scope, limit=limit):
        mistake = from_json(row["mistake"])
        if mistake is None:
            continue
        failure = replace(
            render.FailureRow.of(mistake),
            runs=row["seen"],
            calls=row["seen"] * mistake.calls_lost,
            last_seen=row["last_seen"],
            state=row["state"],
            lesson=row["id"],
        )
        rows.append(failure)
    return sorted(rows, key=lambda failure: (-failure.runs, -failure.calls))


def has_failed_fix(db: Db, scope: Scope, mistake: Mistake | None) -> bool:
    """Return whether the fix of a mistake failed as a call and has not passed since."""
    if mistake is None or mistake.fix is None or not mistake.fix.digest:
        return False
    digests = json.dumps([mistake.fix.digest])
    rows = db.all("failures_of_call", scope, digests=digests)
    return any(not row["since"] for row in rows)
