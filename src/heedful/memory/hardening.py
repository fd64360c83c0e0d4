"""Lessons that become checks: proposed from examples, accepted by a person or by trust.

A check is proposed without a model and is
executed on the outputs of the lesson and on accepted outputs of others, before a person
is asked. An accepted check judges the loops that memory shows something, and its
findings are counted.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from heedful.errors import InvalidInput
from heedful.lessons.check_proposals import MIN_EXAMPLES, Material, propose
from heedful.lessons.lesson_check import CheckState, LessonCheck
from heedful.memory.memory import Memory
from heedful.store import hardened as hardened_store
from heedful.store.hardened import Hardenable
from heedful.validation import check_actor, check_integer

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
        return await self._store.read(self._scope, hardened_store.listed, limit)

    async def propose(self, lesson: int) -> LessonCheck:
        """Propose the check of a lesson; a check that judges already is returned.

        The check of a lesson that a person wrote or released is accepted at once. A
        check that was rejected stays so, unless new examples make another one. Raises
        InvalidInput with the reason if the examples are too few, or no check separates
        the rejected outputs from the accepted ones.
        """
        return await self._decide(lesson)

    async def accept(self, lesson: int, *, by: str, why: str = "") -> LessonCheck:
        """Let the check of a lesson judge from now on, and reset its counts.

        It is made from the current examples. Raises what `propose` raises, and
        InvalidInput without an actor.
        """
        check_actor(by, why)
        check = await self._make(lesson)
        return await self._settle(check, "accepted", by, why)

    async def reject(self, lesson: int, *, by: str, why: str = "") -> LessonCheck:
        """Stop the check of a lesson from judging.

        Raises InvalidInput without an actor.
        """
        check_actor(by, why)
        check = await self._read(lesson) or await self._make(lesson)
        return await self._settle(check, "rejected", by, why)

    async def false_alarm(self, lesson: int, *, by: str, why: str = "") -> LessonCheck:
        """Say that the last finding of a check was wrong.

        A check that was wrong in more than a fifth of its findings is retired. Raises
        InvalidInput without an actor, and without a finding that may have been wrong.
        """
        check_actor(by, why)
        check_integer("lesson", lesson)
        return await self._store.write(
            self._scope, hardened_store.report_false_alarm, lesson, by=by, why=why
        )

    async def _read(self, lesson: int) -> LessonCheck | None:
        """Return the stored check of a lesson, or None."""
        check_integer("lesson", lesson)
        return await self._store.read(self._scope, hardened_store.read, lesson)

    async def _decide(self, lesson: int) -> LessonCheck:
        """Return the check of a lesson after it was proposed."""
        earlier = await self._read(lesson)
        if earlier is not None and earlier.state == "accepted":
            return earlier

        check = await self._make(lesson)
        if earlier is not None and earlier.rule == check.rule:
            return earlier
        if check.trust == "user":
            return await self._settle(
                check, "accepted", TRUST_ACTOR, "a person wrote or released the lesson"
            )
        return await self._settle(check, "proposed", "", "")

    async def _make(self, lesson: int) -> LessonCheck:
        """Make the check of a lesson and execute it. Raises InvalidInput."""
        check_integer("lesson", lesson)
        source = await self._store.read(self._scope, hardened_store.material, lesson)
        _check_examples(lesson, source)

        material = source.material
        proposed = await asyncio.to_thread(propose, material)
        if proposed is None:
            raise InvalidInput("lesson", lesson, _separable(material))

        return LessonCheck(
            lesson=lesson,
            kind=proposed.kind,
            rule=proposed.rule,
            about=proposed.about,
            memory_key=source.memory_key,
            failed=len(material.rejected),
            passed=len(material.accepted),
            harmless=len(material.harmless),
            trust=source.trust,
        )

    async def _settle(
        self, check: LessonCheck, state: CheckState, by: str, why: str
    ) -> LessonCheck:
        """Store a check in a state; return it as it is stored."""
        return await self._store.write(
            self._scope,
            hardened_store.settle,
            replace(check, state=state),
            by=by,
            why=why,
        )


def _separable(material: Material) -> str:
    """Return which lessons can become a check, if the material of one cannot."""
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


def _check_examples(lesson: int, source: Hardenable) -> None:
    """Raise InvalidInput if a lesson has too few outputs."""
    rejected = len(source.material.rejected)
    accepted = len(source.material.accepted)
    if min(rejected, accepted) >= MIN_EXAMPLES:
        return

    sorts = "rejected", "accepted outputs"
    cure = "harden it when more loops have corrected the mistake"
    if source.material.is_call:
        sorts = "failed commands", "commands that worked instead"
        cure = (
            "harden it when more runs have replaced the command, or remember it again "
            "with an example of both"
        )
    raise InvalidInput(
        "lesson",
        lesson,
        f"one with at least {MIN_EXAMPLES} {sorts[0]} and {MIN_EXAMPLES} different "
        f"{sorts[1]}; it has {rejected} and {accepted}: {cure}",
    )
