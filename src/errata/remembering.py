"""A loop that is written down with what memory has to do with it; for every host the same."""

from __future__ import annotations

from dataclasses import replace

from errata.journal import Journal
from errata.loop.decide import Done
from errata.loop.record import Loop
from errata.memory.briefing import Briefing, outcome
from errata.memory.memory import Memory
from errata.protocols import Entry


class Remembering:
    """The journal of one loop and its memory, where it has one.

    What the loop is shown is written with its first entry, so that it counts however the loop goes
    on; what it teaches and what it came to with the decision that ends it. All is one transaction
    where journal and memory share a store; else memory is written first, and what is there already
    stays. `judged`: something evaluates candidates; else an accepted one teaches nothing.
    """

    def __init__(self, journal: Journal, memory: Memory | None, task: str, judged: bool) -> None:
        self._journal, self._memory = journal, memory
        self._task, self._judged = task, judged
        self.briefing = Briefing()
        self._begun = False

    async def brief(self, loop: str) -> None:
        """Ask what the loop is to be shown: the same again where it was shown something before."""
        if self._memory is not None:
            self.briefing = await self._memory.brief(self._task, loop)
            self._begun = False

    async def commit(self, entry: Entry, loop: Loop) -> None:
        """Write down `entry`, by which the loop has become `loop`. Raises StoreError."""
        if self._memory is None:
            await self._journal.commit(entry)
        else:
            await self._commit(self._memory, self.briefing, entry, loop)

    async def _commit(self, memory: Memory, briefing: Briefing, entry: Entry, loop: Loop) -> None:
        exposures = () if self._begun else briefing.exposures
        ended = isinstance(entry.verdict, Done)
        lessons = memory.lessons(loop, self._task, briefing) if ended and self._judged else ()
        # One that was cancelled has none: how it would have ended is not known.
        end = outcome(loop) if ended and briefing.exposures and not loop.cancelled else None
        most = memory.max_entries or 0
        if self._journal.shares(memory.store, memory.scope):
            entry = replace(entry, reflections=lessons, exposures=exposures, outcome=end, most=most)
        elif exposures or lessons or end:
            await memory.store.remember(
                memory.scope, lessons, exposures=exposures, outcome=end, most=most
            )
        await self._journal.commit(entry)
        self._begun = True
        if end is not None:
            await memory.look(loop.id)
