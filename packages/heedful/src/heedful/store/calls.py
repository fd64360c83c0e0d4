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

from heedful.episodes.error_lines import named_errors
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
    whole_call,
)
from heedful.lessons.contracts import CONTRACTS_BY_NAME, Contract, find_contract
from heedful.lessons.mistake import Mistake, from_json, without_outside
from heedful.lessons.origin import Origin
from heedful.lessons.scope import MAX_PROMPT_LESSONS, MIN_SAME_RUNS, Scope, source_of
from heedful.store import exposures, session_marks, user_rules
from heedful.store.connection import Db, Row, key_of, storable
from heedful.validation import MAX_SHOWN_TEXT_CHARS, Fields

# The codes of events that stand for text that the agent has read and the store does not
# have: from before the agent was resumed, or in messages that another system keeps.
UNREAD_CODES = ("resume", "unread")
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
        "on conflict (tenant, project, source) do update set steps = :steps",
    )
    calls_lost_so_far = Counter[Mark]()
    for number, step in enumerate(steps):
        # A microsecond between steps keeps their order.
        latest_time = now + number * 1e-6
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
    columns = {"digest": mark, "kind": "error", "name": "", "tool": ""}
    if isinstance(mark, Mark):
        columns = {
            "digest": mark.digest,
            "kind": mark.kind,
            "name": storable(mark.name),
            "tool": storable(mark.tool),
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

    An error is recorded under the digest of its signature, without its text.
    """
    now = time.time()
    calls_lost = Counter[str]()
    last_failed = dict[str, float]()
    for step in steps:
        for digest in set(step.digests):
            calls_lost[digest] += step.calls
            last_failed[digest] = min(step.at or now, now)
    for digest, count in calls_lost.items():
        _record_failure(
            db, scope, source, digest, "", failed_at=last_failed[digest], calls=count
        )


def follow(db: Db, scope: Scope, session: str, event: Fields, *, folder: str) -> None:
    """Record what a new event of a session shows about calls and about files read.

    `event` is the row of the event, and `folder` the root of the repository. The result
    of a call shows whether it passed. Some system events show that the agent no longer
    knows what it has read, or has read what the store does not have.
    """
    if event["type"] == "system_event":
        code = json.loads(event["record"])["code"]
        if code in FORGETTING_CODES:  # such as the compaction of its context
            session_marks.forget_reads(db, scope, session)
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
    passed = not result["error"]
    is_recorded_later = bool(db.actor.via)  # it came through a key of a service
    if passed and not is_recorded_later:
        marks = _marks_of_call(
            db, scope, session, tool=tool, arguments=arguments, folder=folder
        )
        _record_success(db, scope, marks, time.time())
    elif not is_recorded_later:
        _record_failed_call(
            db,
            scope,
            session,
            tool=tool,
            arguments=arguments,
            error=result["error"],
            folder=folder,
        )

    if passed:
        session_marks.mark_read(db, scope, session, arguments=arguments, folder=folder)


def _marks_of_call(
    db: Db,
    scope: Scope,
    session: str,
    *,
    tool: str,
    arguments: Fields,
    folder: str,
) -> list[Mark]:
    """Return the marks of a call: what it has in common with others, such as a path.

    In a session, the contracts that the call seems to break are marks, too. A contract
    is what a tool demands; one demands that a file is read before it is edited.
    `folder` is the root of the repository, to which paths are relative.
    """
    marks = list(marks_of(tool, arguments, folder))
    if session:
        unread = session_marks.has_unread(
            db, scope, session, arguments=arguments, folder=folder
        )
        marks += contract_marks(tool, arguments, unread=unread)
    return marks


def _record_failed_call(
    db: Db,
    scope: Scope,
    session: str,
    *,
    tool: str,
    arguments: Fields,
    error: str,
    folder: str,
) -> None:
    """Record a failed call of a session under each mark that its error is about.

    A mark is what calls have in common: a path, a name, the whole call, or a contract
    that the call broke. `error` is the whole output of the call; under each mark, the
    line of it that names the error is stored.
    """
    errors = named_errors(error, arguments)
    contract = find_contract(arguments, error, errors)
    failed = failed_marks(tool, arguments, errors, contract=contract, folder=folder)
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


def history_of(
    db: Db,
    scope: Scope,
    tool: str,
    arguments: Fields | str,
    *,
    session: str = "",
    folder: str = "",
    stated: Set[str] = frozenset(),
    min_runs: int = MIN_SAME_RUNS,
) -> ActionHistory:
    """Return how calls like this one failed, and the checks and rules that speak of it.

    Calls are alike if they have a mark in common, such as a path. The most specific
    failures come first, at most `MAX_PROMPT_LESSONS`. Left out are failures of the
    `session` itself and those that it was told before, lessons in quarantine, and
    errors from outside unless people trust their sources. `stated` are names of trusted
    sources, besides those of the scope. A command counts once it failed in `min_runs`
    runs. Paths are relative to `folder`, the root of the repository.
    """
    fields = arguments_of(arguments)
    marks = _marks_of_call(
        db, scope, session, tool=tool, arguments=fields, folder=folder
    )
    failed_rows = _find_failures(db, scope, session, marks, min_runs)
    shows_outside = True
    if any(rows[0]["origin"] == "outside" for rows in failed_rows):
        from heedful.store import keys  # a hook seldom needs it

        names = keys.believed_names(db, scope, stated)
        # Show them only if the call itself reads from outside, and from sources that
        # people trust: the error of another call may have come with an event from
        # outside, whose source nobody can know here.
        shows_outside = (
            call_origin(tool, fields) == "outside"
            and call_origin(tool, fields, names) != "outside"
        )

    failures = list[KnownFailure]()
    waiting_entries = set[int]()
    for rows in failed_rows:
        failure, entries = _known_failure(
            db, scope, rows, folder, shows_outside=shows_outside
        )
        waiting_entries |= entries
        earlier_errors = {earlier.error for earlier in failures} - {""}
        if failure is not None and failure.error not in earlier_errors:
            failures.append(replace(failure, text=render.before_call(failure)))

    call = whole_call(tool, arguments)
    checks = exposures.active_checks(db, scope, calls=True)
    return ActionHistory(
        tuple(failures[:MAX_PROMPT_LESSONS]),
        tuple(sorted(waiting_entries)),
        marks=tuple(rows[0]["digest"] for rows in failed_rows),
        checks=tuple(
            check for check in checks if check.refuses_call(call.tool, call.name)
        ),
        rules=tuple(user_rules.about_call(db, scope, tool, arguments, session=session)),
    )


def _find_failures(
    db: Db, scope: Scope, session: str, marks: Sequence[Mark], min_runs: int
) -> list[list[Row]]:
    """Return the failures of other runs that may be told: one list for each mark.

    Only failures that no success has followed are found; of a path or a name, only if
    no call with it ever worked. The lists of the most specific marks come first, and in
    each list the newest failure. A mark is left out if the session was told about it or
    failed with it, and a command if fewer than `min_runs` runs failed with it.
    """
    digests = [mark.digest for mark in marks]
    by_digest: dict[str, list[Row]] = {}
    for row in db.all("failures_of_call", scope, digests=json.dumps(digests)):
        by_digest.setdefault(row["digest"], []).append(row)
    if not by_digest:
        return []

    told_marks = frozenset[str]()
    # The name of the session as a run: each row has that of the run that failed.
    own_source = storable(source_of(session)) if session else None
    if session:
        names = [f"told {digest}" for digest in by_digest]
        told_marks = session_marks.find(db, scope, session, names)
    new_failures = []
    for digest, rows in by_digest.items():
        # Any command may fail once; a path or a name that failed is wrong.
        is_sure = rows[0]["kind"] != "command" or len(rows) >= min_runs
        is_known = f"told {digest}" in told_marks or any(
            row["source"] == own_source for row in rows
        )
        if is_sure and not is_known:
            new_failures.append(rows)
    return sorted(new_failures, key=lambda rows: _KIND_ORDER.index(rows[0]["kind"]))


def _known_failure(
    db: Db, scope: Scope, rows: Sequence[Row], folder: str, *, shows_outside: bool
) -> tuple[KnownFailure | None, set[int]]:
    """Return what may be told of the failures of one mark, and what waits for review.

    `rows` are these failures, the newest first. The set has the ids of the entries in
    quarantine that hold back lessons about them. Returns None and an empty set if the
    lesson about them was retired or superseded and no rule was drawn from it. Unless
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
        runs=len(rows),
        failed=newest["failed"],
    )
    contract = CONTRACTS_BY_NAME.get(mark.name) if mark.kind == "contract" else None
    if contract is not None:
        failure = replace(failure, fix=contract.text)
    if not newest["lesson_id"]:
        return failure, set()

    lesson, entries = _lesson_of(db, scope, newest["lesson_id"])
    # Without a lesson that may be shown, the failure is told only if a lesson waits.
    if lesson is not None:
        failure = replace(failure, lesson=newest["lesson_id"])
        failure = _with_words(db, scope, failure, lesson, mark=mark, folder=folder)
    elif not entries:
        return None, entries
    return failure, entries


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
    db: Db,
    scope: Scope,
    failure: KnownFailure,
    lesson: Row,
    *,
    mark: Mark,
    folder: str,
) -> KnownFailure:
    """Return a failure with the error, the words and the fix that a lesson has for it.

    `mark` is what the failed calls have in common, and `folder` the root of the
    repository. Words and fix are left out if the failure has the text of a contract
    already, or if the call of the lesson does not have the mark. So are all parts from
    outside, and a fix that failed later.
    """
    failure = replace(failure, trust=lesson["trust"], lesson_state=lesson["state"])
    has_contract = failure.fix != ""
    mistake = from_json(lesson["mistake"])
    if mistake is None:
        # The text of the lesson itself says no more than the error; that of a rule
        # drawn from it does.
        if has_contract or lesson["own"]:
            return failure
        return replace(failure, words=lesson["text"])

    safe_parts = without_outside(mistake)
    failure = replace(failure, error=failure.error or safe_parts.error)
    if not has_contract and _has_mark(mistake, mark, folder):
        fix = () if has_failed_fix(db, scope, mistake) else render.fix_lines(safe_parts)
        failure = replace(failure, words=safe_parts.words, fix="\n".join(fix))
    return failure


def _has_mark(mistake: Mistake, mark: Mark, folder: str) -> bool:
    """Return True if the failed call of a mistake has a mark: names it, or is it.

    The failure of a mark may have a lesson about a call without the mark, because other
    calls failed with the same error. Paths are relative to `folder`.
    """
    call = mistake.action
    if call is None:
        return False
    if mark.kind == "command":
        return whole_call(call.tool, call.text, folder) == mark
    words = [call.text, *chain.from_iterable(call.arguments)]
    return mark.kind == "call" or any(mark.name in word.casefold() for word in words)


def knowledge_of(
    db: Db,
    scope: Scope,
    tool: str,
    arguments: Fields,
    *,
    errors: Sequence[str],
    session: str,
    folder: str,
    contract: Contract | None,
) -> tuple[bool, bool]:
    """Return two facts about a call of a session that failed with these `errors`.

    The first is whether the session was told before that such calls fail. The second is
    whether another run broke the `contract` that the call broke, that is a demand of
    its tool; None if it broke none. `folder` is the root of the repository.
    """
    failed = failed_marks(tool, arguments, errors, contract=contract, folder=folder)
    names = [f"told {mark.digest}" for mark in failed]
    is_broken_again = False
    if contract is not None:
        mark = Mark("contract", contract.name, tool)
        key = {**key_of(scope), "digest": mark.digest}
        own_source = storable(source_of(session))
        rows = db.select("source", "call_failure", key)
        is_broken_again = any(row["source"] != own_source for row in rows)
    is_told = bool(session_marks.find(db, scope, session, names))
    return is_told, is_broken_again


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
    return bool(
        db.all("failures_of_call", scope, digests=json.dumps([mistake.fix.digest]))
    )
