"""Lessons that become checks: proposed from examples, accepted by a person or by trust.

A check is proposed without a model and is executed on the outputs of the lesson and on
accepted outputs of others, before a person is asked. It is a row beside its lesson, and
is deleted with it. Only a check that was accepted judges, the loops that memory shows
something, and only while its lesson is trusted and in use; its findings are counted.
Whether a check is retired follows from its counters and times, so nobody has to write
it.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

from heedful.errors import InvalidInput, NotFound
from heedful.lessons.check_proposals import (
    MIN_EXAMPLES,
    Material,
    ReplacedCall,
    propose,
)
from heedful.lessons.commands import release_command
from heedful.lessons.lesson import Example, Scope
from heedful.lessons.lesson_check import CheckState, LessonCheck
from heedful.lessons.loop_lessons import rule_digest
from heedful.lessons.mistake import from_json
from heedful.lessons.origin import standing_of
from heedful.memory.memory import Memory
from heedful.store.connection import (
    Db,
    Row,
    key_of,
    resumable,
    storable,
    storable_json,
)
from heedful.store.exposures import check_of
from heedful.store.rulings import name_of, rule
from heedful.store.search import example_of
from heedful.validation import check_actor, check_integer, require

# Who accepts the check of a lesson that a person wrote or released.
TRUST_ACTOR = "trust"


class LessonChecks:
    """The checks that the lessons of one memory became.

    Every decision is recorded. All methods raise StoreError; those about one lesson
    raise NotFound, and InvalidInput for a lesson that is not trusted or not in use.
    """

    def __init__(self, memory: Memory) -> None:
        self._store = memory.store
        self._scope = memory.scope

    async def list(self, limit: int = 50) -> Sequence[LessonCheck]:
        """Return the checks, newest decision first. Raises InvalidInput."""
        check_integer("limit", limit)
        return await self._store.read(self._scope, read_checks, limit)

    async def propose(self, lesson: int) -> LessonCheck:
        """Propose a check that finds the mistake of a lesson; return it.

        `lesson` is its id. A check that was accepted already is returned as it is. The
        check of a lesson that a person wrote or released is accepted at once. A check
        that was rejected stays so, unless new examples make another one. Raises
        InvalidInput with the reason if the examples are too few, or no check separates
        the rejected outputs from the accepted ones.
        """
        earlier = await self._read_check(lesson)
        if earlier is not None and earlier.state == "accepted":
            return earlier

        check = await self._make_check(lesson)
        # It was proposed or rejected before, and no new examples have changed it.
        if earlier is not None and earlier.rule == check.rule:
            return earlier
        if standing_of(check.trust, check.released_by) == "user":
            return await self._store_check(
                check, "accepted", TRUST_ACTOR, "a person wrote or released the lesson"
            )
        return await self._store_check(check, "proposed", "", "")

    async def accept(
        self, lesson: int, *, by: str, why: str = "", key: str = ""
    ) -> LessonCheck:
        """Let the check of a lesson judge from now on, and reset its counts.

        It is made from the current examples. The decision is recorded with its actor
        `by` and the reason `why`. A call that is made again with its `key` within a day
        changes nothing. Raises what `propose` raises, InvalidInput without an actor,
        and Conflict if the key belongs to another call.
        """
        return await self._decide("accept", lesson, by=by, why=why, key=key)

    async def reject(
        self, lesson: int, *, by: str, why: str = "", key: str = ""
    ) -> LessonCheck:
        """Stop the check of a lesson from judging; return it.

        `by`, `why` and `key` are as in `accept`. Raises InvalidInput without an actor,
        and Conflict if the key belongs to another call.
        """
        return await self._decide("reject", lesson, by=by, why=why, key=key)

    async def false_alarm(
        self, lesson: int, *, by: str, why: str = "", key: str = ""
    ) -> LessonCheck:
        """Record that the last finding of a check was wrong; return the check.

        `lesson` is the id of its lesson, and `by` is who says so. A check that was
        wrong in more than a fifth of its findings is retired. A call that is made again
        with its `key` within a day counts nothing. Raises InvalidInput without an
        actor, and without a finding that may have been wrong; Conflict if the key
        belongs to another call.
        """
        check_actor(by, why)
        check_integer("lesson", lesson)
        return await self._store.write_once(
            key, self._scope, report_false_alarm, lesson, by=by, why=why
        )

    async def _decide(
        self,
        action: Literal["accept", "reject"],
        lesson: int,
        *,
        by: str,
        why: str,
        key: str,
    ) -> LessonCheck:
        """Accept or reject the check of a lesson, once for each `key`; return it."""
        check_actor(by, why)

        async def decide() -> LessonCheck:
            if action == "accept":
                check = await self._make_check(lesson)
                return await self._store_check(check, "accepted", by, why)
            # It may be rejected before it was ever proposed.
            check = await self._read_check(lesson) or await self._make_check(lesson)
            return await self._store_check(check, "rejected", by, why)

        request = action, lesson, by, why
        return await self._store.once(
            self._scope, settle, decide, key=key, request=request
        )

    async def _read_check(self, lesson: int) -> LessonCheck | None:
        """Return the stored check of a lesson, or None."""
        check_integer("lesson", lesson)
        checks = await self._store.read(self._scope, read_checks, 1, lesson)
        return checks[0] if checks else None

    async def _make_check(self, lesson: int) -> LessonCheck:
        """Return a new check, made from a lesson's examples and tried on them.

        It is not stored. Raises NotFound, and InvalidInput if the lesson is not trusted
        or not in use, or if no check can be made from it.
        """
        check_integer("lesson", lesson)
        memory_key, row, material = await self._store.read(
            self._scope, read_material, lesson
        )
        _check_examples(lesson, material)
        # Each candidate is executed on all examples, so this runs in a thread.
        proposed = await asyncio.to_thread(propose, material)
        if proposed is None:
            raise InvalidInput("lesson", lesson, _hardenable_lessons(material))

        return LessonCheck(
            lesson=lesson,
            kind=proposed.kind,
            rule=proposed.rule,
            about=proposed.about,
            memory_key=memory_key,
            failed=len(material.rejected),
            passed=len(material.accepted),
            harmless=len(material.harmless),
            trust=row["trust"],
            released_by=row["released_by"],
        )

    async def _store_check(
        self, check: LessonCheck, state: CheckState, by: str, why: str
    ) -> LessonCheck:
        """Store a check in a state; return it as it is stored.

        `by` decided so, and said `why`; both are "" for a check that is proposed.
        """
        return await self._store.write(
            self._scope,
            settle,
            replace(check, state=state),
            by=by,
            why=why,
        )


def _hardenable_lessons(material: Material) -> str:
    """Return in words which lessons can become a check, for an error message.

    `material` is that of a lesson that cannot: no check separates its rejected outputs
    from its accepted ones.
    """
    if material.is_call:
        return (
            "one whose failed calls all begin with words that no call has which worked"
        )

    missing = ""
    if not material.keyed:
        missing = (
            "; its loops have no memory key, so a check cannot demand anything of "
            "their answers: pass memory_key"
        )
    return (
        "one whose rejected outputs differ from the accepted ones in a form, a bound "
        "or a word that its text shows; a fix with an example, as in 'write it as 7 "
        f"kg', shows one{missing}"
    )


def _check_examples(lesson: int, material: Material) -> None:
    """Raise InvalidInput if a lesson has too few outputs to make a check from.

    It needs `MIN_EXAMPLES` rejected and as many different accepted ones.
    """
    rejected = len(material.rejected)
    accepted = len(material.accepted)
    if min(rejected, accepted) >= MIN_EXAMPLES:
        return

    needed = f"{MIN_EXAMPLES} rejected and {MIN_EXAMPLES} different accepted outputs"
    cure = "harden it when more loops have corrected the mistake"
    if material.is_call:
        needed = (
            f"{MIN_EXAMPLES} failed commands and {MIN_EXAMPLES} different commands "
            "that worked instead"
        )
        cure = (
            "harden it when more runs have replaced the command, or remember it again "
            "with an example of both"
        )
    raise InvalidInput(
        "lesson",
        lesson,
        f"one with at least {needed}; it has {rejected} and {accepted}: {cure}",
    )


def read_material(db: Db, scope: Scope, id: int) -> tuple[str, Row, Material]:
    """Return three values: a memory key, a lesson's row, and what its check is made of.

    The check judges only loops with the memory key, "" for a check of calls. The check
    of a strategy, which a run taught, is made from the commands that failed and those
    that worked instead; that of another lesson, from its examples. What other lessons
    accepted must pass the check, so it is `harmless`. Raises NotFound, and InvalidInput
    for a lesson that is not trusted or not in use, or that does not say what to do.
    """
    lesson = _trusted_lesson(db, scope, id)
    if lesson["kind"] == "reflection":
        raise _reflection_error(db, scope, id)

    # Its check judges the calls of an agent, not loops, so it has no memory key.
    if lesson["kind"] == "strategy":
        own_calls, other_calls = _replaced_calls(db, scope, id)
        commands = Material(
            text=lesson["text"],
            rejected=tuple(call.failed for call in own_calls),
            accepted=_unique_texts(call.worked for call in own_calls),
            harmless=_unique_texts(call.worked for call in other_calls),
            is_call=True,
        )
        return "", lesson, commands

    memory_key = lesson["memory_key"]
    same_rule, others = _examples_by_rule(db, scope, id, memory_key)
    harmless = [example.accepted for example in others]
    # What a caller remembers is about a tool; what loops teach, about answers.
    is_call = lesson["kind"] == "error"
    if is_call:
        _, other_calls = _replaced_calls(db, scope, id)
        harmless += [call.worked for call in other_calls]

    material = Material(
        text=lesson["text"],
        rejected=tuple(
            example.rejected for example in same_rule if example.rejected.strip()
        ),
        accepted=_unique_texts(example.accepted for example in same_rule),
        harmless=_unique_texts(harmless),
        keyed=bool(memory_key),
        is_call=is_call,
    )
    return memory_key, lesson, material


def _examples_by_rule(
    db: Db, scope: Scope, id: int, memory_key: str
) -> tuple[list[Example], list[Example]]:
    """Return the examples that broke a rule of a lesson, and then all others.

    `id` is that of the lesson. Its own examples belong to the first, and so do rejected
    outputs of other lessons of the `memory_key` that broke the same rule. Without a
    key, the first has only its own. Quarantined examples are left out.
    """
    rows = db.all("trusted_examples", scope, id=id, memory_key=memory_key, limit=1_000)
    examples = [(row, example_of(row)) for row in rows]
    own_rules = {
        _rule_of(row, example) for row, example in examples if row["lesson_id"] == id
    }

    same_rule: list[Example] = []
    others: list[Example] = []
    for row, example in examples:
        is_own = row["lesson_id"] == id
        is_rejected = memory_key and example.rejected
        if is_own or (is_rejected and _rule_of(row, example) in own_rules):
            same_rule.append(example)
        else:
            others.append(example)
    return same_rule, others


def _reflection_error(db: Db, scope: Scope, id: int) -> InvalidInput:
    """Return the error that a lesson says only what went wrong, not what to do.

    A check cannot be made from it. The error says what to do instead: to harden the
    rule that was drawn from the lesson, if there is one with commands.
    """
    # Not the lesson itself, nor a rule that waits in quarantine.
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
    """Return the commands that failed in runs, each with the one that worked instead.

    The first list has those of the lesson `id`, the second those of other lessons.
    """
    own_calls: list[ReplacedCall] = []
    others: list[ReplacedCall] = []
    for row in db.all("trusted_rules", scope, id=id, limit=1_000):
        call = ReplacedCall.of(from_json(row["mistake"]))
        if call is not None:
            calls = own_calls if row["lesson_id"] == id else others
            calls.append(call)
    return own_calls, others


def _rule_of(lesson: Row, example: Example) -> str:
    """Return the digest of the rule that an example broke; `lesson` is its row.

    The message of a finding may quote the answer, so each answer may have a lesson of
    its own. The digest leaves the quotation out, so they all have one rule.
    """
    check = lesson["error_type"]
    key = f"{check}: {example.wrong}"
    return f"{lesson['kind']} {rule_digest(check, key, example.rejected)}"


def _trusted_lesson(db: Db, scope: Scope, id: int) -> Row:
    """Return the row of a lesson that is trusted and in use, with its memory key.

    Raises NotFound, and InvalidInput for a lesson that waits in quarantine, or that was
    retired or superseded.
    """
    row = db.one("hardenable", scope, id=id)
    if row is None:
        raise NotFound("lesson", str(id), f"the lessons of {scope}")

    if row["unreviewed"] or row["state"] == "quarantined":
        command = release_command([row["author"] or 0])
        allowed = f"a lesson that somebody trusts; review it, then: {command}"
        raise InvalidInput("lesson", id, allowed)
    if row["state"] not in ("unverified", "verified"):
        raise InvalidInput("lesson", id, f"a lesson in use; this one is {row['state']}")
    return row


def _unique_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts that are not blank, each once."""
    return tuple(dict.fromkeys(text.strip() for text in texts if text.strip()))


def read_checks(db: Db, scope: Scope, limit: int, lesson: int = 0) -> list[LessonCheck]:
    """Return the checks of the scope, newest decision first, or that of a lesson."""
    return [
        check_of(row)
        for row in db.all("lesson_checks", scope, lesson=lesson, limit=limit)
    ]


@resumable(result=LessonCheck, counts=True)
def settle(
    db: Db, scope: Scope, check: LessonCheck, *, by: str, why: str
) -> LessonCheck:
    """Store a check in the state that it has, with its counts reset; return it.

    Every state but "proposed" is a decision of `by`, and is recorded. Raises NotFound,
    and InvalidInput for a lesson that is not trusted any more.
    """
    # Somebody may have changed the lesson while its check was made.
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
    # The row of an earlier check of the lesson is replaced.
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
            record={"kind": check.kind, "about": check.about},
        )

    return read_checks(db, scope, limit=1, lesson=check.lesson)[0]


@resumable(result=LessonCheck, counts=True)
def report_false_alarm(
    db: Db, scope: Scope, id: int, *, by: str, why: str
) -> LessonCheck:
    """Count the last finding of a lesson's check as wrong; return the check.

    `id` is that of the lesson, and `by` is who says so. Raises NotFound, and
    InvalidInput if all that the check found is counted as wrong already, or if the
    lesson is not trusted any more.
    """
    checks = read_checks(db, scope, limit=1, lesson=id)
    if not checks:
        raise NotFound(
            "check of lesson",
            str(id),
            f"the checks of {scope}: harden the lesson first",
        )
    check = checks[0]
    allowed = "one whose check found something that is not yet a false alarm"
    require(check.false_alarms < check.hits, "lesson", id, allowed)

    # A check of a lesson that is not trusted any more does not judge.
    lesson = _trusted_lesson(db, scope, id)
    db.update(
        "hardened",
        {**key_of(scope), "lesson_id": id},
        {"false_alarms": check.false_alarms + 1},
    )
    rule(
        db,
        scope,
        action="harden false alarm",
        subject=name_of(lesson),
        by=by,
        why=why,
    )
    return read_checks(db, scope, limit=1, lesson=id)[0]
