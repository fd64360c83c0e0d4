"""A loop that is written down with what memory has to do with it; for every host the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from heedful.errors import StoreError
from heedful.journal import Written
from heedful.loop.decide import Done, Verdict
from heedful.loop.record import Candidate, Loop
from heedful.memory.briefing import Briefing, outcome
from heedful.memory.memory import Memory
from heedful.protocols import Entry

if TYPE_CHECKING:
    from heedful.memory.learn import Reflection
    from heedful.memory.proof import Outcome

_log = logging.getLogger("heedful")


class Remembering:
    """The journal of one loop and its memory, where it has one.

    What the loop is shown is written with its first entry, so that it counts however the loop goes
    on; what it teaches and what it came to with the decision that ends it. All is one transaction
    where journal and memory share a store. Else what is shown is written before the entry, since
    the prompt may have led to it, and the rest after it, since only who holds the lease may teach;
    what a crash kept from being written then is written when the loop is opened again, each once.
    `judged`: something evaluates candidates; else an accepted one teaches nothing. Without
    `examples` no output is kept or shown, but what was wrong, and what mended it. What nobody has
    `measured` is a model's word: a lesson that is not verified.
    """

    def __init__(
        self,
        journal: Written,
        memory: Memory | None,
        task: str,
        judged: bool,
        examples: bool = True,
        measured: bool = True,
    ) -> None:
        self._journal, self._memory = journal, memory
        self._task, self._judged, self._examples = task, judged, examples
        self._measured = measured
        self.briefing: Briefing = Briefing()
        self._begun = False

    async def opened(self, loop: Loop, verdict: Verdict, answered: bool) -> None:
        """Brief a loop that goes on; write what one that has ended still owes to memory elsewhere.

        `answered`: the journal has an answer that is no attempt yet. Raises StoreError.
        """
        if not isinstance(verdict, Done):
            begun = answered or loop.attempts or loop.overrides or loop.extra.calls
            await self.brief(loop.id, begins=not begun)
        elif self._memory and not self._journal.shares(self._memory.store, self._memory.scope):
            await self._settle(self._memory, loop)

    async def brief(self, loop: str, begins: bool) -> None:
        """Ask what the loop is to be shown: the same again where it was shown something before.

        One that no longer `begins`, of which something is written, is shown nothing else.
        """
        if self._memory is not None:
            self.briefing = await self._memory.brief(self._task, loop, begins, self._examples)
            self._begun = False

    def told(self, briefing: Briefing) -> None:
        """What somebody else has shown the loop, and written down."""
        self.briefing, self._begun = briefing, True

    async def commit(self, entry: Entry, loop: Loop) -> None:
        """Write down `entry`, by which the loop has become `loop`. Raises StoreError."""
        if self._memory is None:
            await self._journal.commit(entry)
        else:
            await self._commit(self._memory, entry, loop)

    async def _commit(self, memory: Memory, entry: Entry, loop: Loop) -> None:
        exposures = () if self._begun else self.briefing.exposures
        ended = isinstance(entry.verdict, Done)
        lessons, end = self._ending(memory, loop) if ended else ((), None)
        if self._journal.shares(memory.store, memory.scope):
            most = memory.max_entries or 0
            entry = replace(entry, reflections=lessons, exposures=exposures, outcome=end, most=most)
            await self._journal.commit(entry)
        else:
            if exposures:
                await memory.store.remember(memory.scope, (), exposures=exposures)
            await self._journal.commit(entry)
            await _teach(memory, lessons, end)
        self._begun = True
        if end is not None:
            await _look(memory, loop.id)

    def _ending(self, memory: Memory, loop: Loop) -> tuple[Sequence[Reflection], Outcome | None]:
        """What a loop that has ended teaches, and what it came to."""
        lessons = self._lessons(memory, loop, self.briefing) if self._judged else ()
        # One that was cancelled has none: how it would have ended is not known.
        return lessons, outcome(loop) if self.briefing.exposures and not loop.cancelled else None

    def _lessons(self, memory: Memory, loop: Loop, briefing: Briefing) -> Sequence[Reflection]:
        lessons = memory.lessons(loop, self._task, briefing, self._examples)
        if self._measured:
            return lessons
        return [replace(one, trust="model", state="candidate") for one in lessons]

    async def _settle(self, memory: Memory, loop: Loop) -> None:
        past = await memory.store.past(memory.scope, loop.id)
        teaches = self._judged and not past.taught and self._lessons(memory, loop, Briefing())
        if not teaches and (past.number or loop.cancelled or not past.exposures):
            return
        await self.brief(loop.id, begins=False)
        lessons, end = self._ending(memory, loop)
        await _teach(memory, lessons, end)
        if end is not None:
            await _look(memory, loop.id)


def text_of(task: Any) -> str:
    """The words by which memory finds what fits a task."""
    return task if isinstance(task, str) else Candidate.of(task).text or ""


async def _teach(memory: Memory, lessons: Sequence[Reflection], end: Outcome | None) -> None:
    """Write to a memory elsewhere; it takes what a loop teaches, and what it came to, once."""
    if lessons or end:
        most = memory.max_entries or 0
        await memory.store.remember(memory.scope, lessons, outcome=end, most=most)


async def _look(memory: Memory, loop: str) -> None:
    """All is written by now, so a look that fails fails no loop: the next one sees the same."""
    try:
        await memory.look(loop)
    except StoreError as error:
        told = "loop %s has ended; what lessons are worth was not looked at, the next look will: %s"
        _log.warning(told, loop, error)
