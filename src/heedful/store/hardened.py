"""The checks that lessons became: what they are made from, and what they found.

A check is a row beside its lesson, and is deleted with it. Only a check that was
accepted judges, and only while its lesson is trusted and in use. Whether a check is
retired follows from its counters and times, so nobody has to write it.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass

from heedful.errors import InvalidInput, NotFound
from heedful.lessons.check_proposals import Material, ReplacedCall
from heedful.lessons.commands import release_command
from heedful.lessons.lesson import Example, Scope
from heedful.lessons.lesson_check import LessonCheck
from heedful.lessons.loop_lessons import rule_digest
from heedful.lessons.mistake import from_json
from heedful.lessons.origin import Origin
from heedful.store.connection import (
    Db,
    Row,
    key_of,
    resumable,
    storable,
    storable_json,
    token,
)
from heedful.store.exposures import check_of
from heedful.store.rulings import name_of, rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardenable:
    """A lesson that may become a check: its memory key, and what it is made from."""

    memory_key: str
    trust: Origin
    material: Material


def material(db: Db, scope: Scope, id: int) -> Hardenable:
    """Return what the check of a lesson is made from.

    Examples of other lessons of the memory key belong to it, too, if they broke the
    same rule. Raises NotFound, and InvalidInput for a lesson that is not trusted or not
    in use.
    """
    lesson = _trusted_lesson(db, scope, id)
    if lesson["kind"] == "reflection":
        raise _no_rule(db, scope, id)

    if lesson["kind"] == "strategy":
        own_calls, other_calls = _replaced_calls(db, scope, id)
        commands = Material(
            text=lesson["text"],
            rejected=tuple(call.failed for call in own_calls),
            accepted=_different(call.worked for call in own_calls),
            harmless=_different(call.worked for call in other_calls),
            is_call=True,
        )
        return Hardenable(memory_key="", trust=lesson["trust"], material=commands)

    memory_key = lesson["memory_key"]
    values = {
        "scope": token(scope),
        "id": id,
        "memory_key": memory_key,
        "limit": 1_000,
    }
    rows = db.run("trusted_examples", values).fetchall()
    examples = [(row, Example(**json.loads(row["record"]))) for row in rows]
    rules = set()
    for row, example in examples:
        if row["lesson_id"] == id:
            rules.add(_rule_of(row, example))

    same_rule: list[Example] = []
    others: list[Example] = []
    for row, example in examples:
        is_rejected = memory_key and example.rejected
        if row["lesson_id"] == id or (is_rejected and _rule_of(row, example) in rules):
            same_rule.append(example)
        else:
            others.append(example)
    rejected = [example.rejected for example in same_rule]
    harmless = [example.accepted for example in others]
    # What a caller remembers is about a tool; what loops teach, about answers.
    is_call = lesson["kind"] == "error"
    if is_call:
        _, other_calls = _replaced_calls(db, scope, id)
        harmless += [call.worked for call in other_calls]

    return Hardenable(
        memory_key=memory_key,
        trust=lesson["trust"],
        material=Material(
            text=lesson["text"],
            rejected=tuple(text for text in rejected if text.strip()),
            accepted=_different(example.accepted for example in same_rule),
            harmless=_different(harmless),
            keyed=bool(memory_key),
            is_call=is_call,
        ),
    )


def _no_rule(db: Db, scope: Scope, id: int) -> InvalidInput:
    """Return the error that a lesson says what went wrong in a run, not what to do."""
    rules = [
        row["id"]
        for row in db.all("lesson_and_rules", scope, id=id)
        if not row["own"] and not row["entry"]
    ]
    cure = (
        "its sightings have no commands, and `before` shows it before the same action; "
        "to warn of a command, remember two examples of it, each with the command that "
        "failed as `rejected` and the one that worked as `accepted`"
    )
    if rules and _replaced_calls(db, scope, rules[-1])[0]:
        cure = f"harden the rule that was drawn from it, lesson {rules[-1]}"
    allowed = f"a lesson that says what to do; this one says what went wrong: {cure}"
    return InvalidInput("lesson", id, allowed)


def _replaced_calls(
    db: Db, scope: Scope, id: int
) -> tuple[list[ReplacedCall], list[ReplacedCall]]:
    """Return the commands that runs replaced: those of one lesson, and the others."""
    own_calls: list[ReplacedCall] = []
    others: list[ReplacedCall] = []
    for row in db.all("trusted_rules", scope, id=id, limit=1_000):
        call = ReplacedCall.of(from_json(row["mistake"]))
        if call is not None:
            calls = own_calls if row["lesson_id"] == id else others
            calls.append(call)
    return own_calls, others


def _rule_of(lesson: Row, example: Example) -> str:
    """Return the digest of the rule that an example broke.

    The message of a finding may quote the answer, so that each answer is a lesson.
    """
    check = lesson["error_type"]
    key = f"{check}: {example.wrong}"
    return f"{lesson['kind']} {rule_digest(check, key, example.rejected)}"


def _trusted_lesson(db: Db, scope: Scope, id: int) -> Row:
    """Return a lesson with its memory key. Raises NotFound, InvalidInput."""
    row = db.one("hardenable", scope, id=id)
    if row is None:
        where = f"the lessons of {scope.tenant}/{scope.project}"
        raise NotFound("lesson", str(id), where)

    if row["trust"] == "outside" or row["state"] == "quarantined":
        command = release_command([row["author"] or 0])
        allowed = f"a lesson that somebody trusts; review it, then: {command}"
        raise InvalidInput("lesson", id, allowed)
    if row["state"] not in ("unverified", "verified"):
        raise InvalidInput("lesson", id, f"a lesson in use; this one is {row['state']}")
    return row


def _different(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts that are not blank, each once."""
    return tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))


def read(db: Db, scope: Scope, id: int) -> LessonCheck | None:
    """Return the check of a lesson, or None."""
    row = db.one("lesson_checks", scope, lesson=id, limit=1)
    return None if row is None else check_of(row)


def listed(db: Db, scope: Scope, limit: int) -> list[LessonCheck]:
    """Return the checks of the scope, newest decision first."""
    rows = db.all("lesson_checks", scope, lesson=0, limit=limit)
    return [check_of(row) for row in rows]


@resumable(result=LessonCheck)
def settle(
    db: Db, scope: Scope, check: LessonCheck, *, by: str, why: str
) -> LessonCheck:
    """Store a check in its state, which is a decision of `by` unless it is "proposed".

    Accepting a check resets its counts. Raises NotFound, and InvalidInput for a
    lesson that is not trusted any more.
    """
    lesson = _trusted_lesson(db, scope, check.lesson)
    now = time.time()
    key = {**key_of(scope), "lesson_id": check.lesson}
    columns = {
        "memory_key": storable(check.memory_key),
        "kind": check.kind,
        "rule": storable_json(check.rule),
        "about": storable(check.about),
        "failed": check.failed,
        "passed": check.passed,
        "harmless": check.harmless,
        "state": check.state,
        "hits": 0,
        "false_alarms": 0,
        "last_hit": 0.0,
        "decided": now,
        "by": storable(by),
        "why": storable(why),
    }
    if not db.update("hardened", key, columns):
        db.insert("hardened", {**key, **columns})
    if check.state != "proposed":
        rule(
            db,
            scope,
            action=f"harden {check.state}",
            subject=name_of(lesson),
            by=by,
            why=why,
            now=now,
            record={"kind": check.kind, "about": check.about},
        )

    settled = read(db, scope, check.lesson)
    assert settled is not None
    return settled


@resumable(result=LessonCheck)
def report_false_alarm(
    db: Db, scope: Scope, id: int, *, by: str, why: str
) -> LessonCheck:
    """Count the last finding of a check as wrong; return the check.

    Raises NotFound, and InvalidInput if all that it found is counted as wrong already.
    """
    check = read(db, scope, id)
    if check is None:
        where = f"the checks of {scope.tenant}/{scope.project}: harden the lesson first"
        raise NotFound("check of lesson", str(id), where)
    if check.false_alarms >= check.hits:
        allowed = "one whose check found something that is not yet a false alarm"
        raise InvalidInput("lesson", id, allowed)

    lesson = _trusted_lesson(db, scope, id)
    key = {**key_of(scope), "lesson_id": id}
    db.update("hardened", key, {"false_alarms": check.false_alarms + 1})
    rule(
        db,
        scope,
        action="harden false alarm",
        subject=name_of(lesson),
        by=by,
        why=why,
        now=time.time(),
    )
    answer = read(db, scope, id)
    assert answer is not None
    return answer
