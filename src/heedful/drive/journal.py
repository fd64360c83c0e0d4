"""What is written down when a loop is decided: the same for every host. Pure.

Where a driven loop is written down: nowhere, or in a store under a lease that is kept alive.
A loop that is written down with what memory has to do with it; for every host the same.
A loop that nobody drives: read it, work out what comes of it, write that, once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from heedful.errors import InvalidInput, LeaseLost, StoreError
from heedful.lessons.lesson import Outcome, Reflection, Scope
from heedful.lessons.ranking import Briefing, outcome_of
from heedful.loop.codec import policy_to, to_document
from heedful.loop.decide import Done, Policy, Verdict, decide, standing_of
from heedful.loop.record import Attempt, Candidate, Goal, Loop
from heedful.memory.memory import Memory
from heedful.store import exposures as exposure_store
from heedful.store import loops, open_store
from heedful.store.loops import LEASE_SECONDS, enter, leave, new_owner
from heedful.store.records import Head, JournalEntry, LoopState, StoredLoop
from heedful.store.store import Store


def attempted(loop: Loop, attempt: Attempt, now: float) -> Loop:
    """The loop with one more attempt; where there are overrides, some may have expired by now."""
    loop = loop.then(attempt)
    return replace(loop, at=now) if loop.overrides else loop


def decided(loop: Loop, policy: Policy, verdict: Verdict) -> JournalEntry:
    """That the verdict fell, at the time of the loop; the epoch is its journal's to fill in."""
    worn = standing_of(loop, policy)
    return JournalEntry(loop.id, 0, verdict=verdict, standing=worn, decided=loop.at)


def cancelled(
    loop: Loop, policy: Policy, by: str, now: float
) -> tuple[Loop, Verdict, JournalEntry]:
    """The loop that somebody ends, its verdict, and what is written down of it."""
    loop = replace(loop, cancelled=by or "cancelled", at=now)
    verdict = decide(loop, policy)
    entry = decided(loop, policy, verdict)
    return loop, verdict, replace(entry, cancelled=loop.cancelled)


ECHO_WINDOW = 20


class Journal(Protocol):
    """Where what becomes of a loop is written."""

    async def commit(self, entry: JournalEntry) -> None:
        """Write down all of `entry` or nothing."""
        ...

    def shares(self, store: Store, scope: Scope) -> bool:
        """Whether what is committed here lands in that scope of `store`, in one transaction."""
        ...


class LoopJournal(Journal, Protocol):
    """What a driver asks of its journal."""

    durable: bool

    def at_work(self) -> AbstractAsyncContextManager[None]:
        """Hold the loop while an attempt is under way."""
        ...

    async def open(self, task: Any, goals: Sequence[Goal], policy: Policy) -> StoredLoop | None:
        """What is stored of the loop; None where it begins."""
        ...

    async def echoes(self) -> Mapping[str, int]:
        """Finding key -> attempts of other loops of the scope that had it."""
        ...

    def reread(self) -> bool:
        """After a failure: whether the state has to be read again from here."""
        ...


class MemoryJournal:
    """No journal: the trace lives in the result alone."""

    durable = False

    def at_work(self) -> AbstractAsyncContextManager[None]:
        """Nothing to hold."""
        return nullcontext()

    async def open(self, task: Any, goals: Sequence[Goal], policy: Policy) -> StoredLoop | None:
        """Nothing is stored."""
        return None

    async def echoes(self) -> Mapping[str, int]:
        """No other loop is known."""
        return {}

    async def commit(self, entry: JournalEntry) -> None:
        """Nothing is written."""

    def reread(self) -> bool:
        """There is nothing to read."""
        return False

    def shares(self, store: Store, scope: Scope) -> bool:
        """Memory has to write for itself."""
        return False


class StoreJournal:
    """A journal in a store. `known` says that the caller named the loop, so it may exist already.

    A loop that only this process can know of is created by its first commit; one that was named is
    claimed first. While an attempt is under way the lease is renewed.
    """

    durable = True

    def __init__(self, store: Store, scope: Scope, id: str, known: bool) -> None:
        self._store, self._scope, self._id, self._known = store, scope, id, known
        self._owner = new_owner()
        self._head: Head | None = None  # what the store does not hold yet
        self._claimed = False
        self._epoch = 1

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Hold the loop; LeaseLost ends the attempt where another process took it over."""
        enter(self._owner)
        task = asyncio.current_task()
        beat = asyncio.create_task(self._beat(task))
        try:
            yield
        except asyncio.CancelledError:
            lost = beat.exception() if beat.done() and not beat.cancelled() else None
            if lost is not None and task is not None and task.uncancel() == 0:
                raise LeaseLost(str(lost)) from None
            raise  # somebody else cancelled, too
        finally:
            beat.cancel()
            if beat.done() and not beat.cancelled():
                beat.exception()  # told above, or too late to matter
            leave(self._owner)

    async def open(self, task: Any, goals: Sequence[Goal], policy: Policy) -> StoredLoop | None:
        """Claim a loop that was named; remember the head of one that is new. Raises LeaseLost."""
        _storable(task)
        head = Head(task, [to_document(g) for g in goals], policy_to(policy))
        stored = await self.claim(head) if self._known else None
        same = stored is not None and _same(stored.head, head)
        self._head = None if same else head
        return stored

    async def claim(self, head: Head) -> StoredLoop:
        """Claim a loop, which is created where it is new. Raises LeaseLost."""
        stored = await self._store.write(self._scope, loops.claim, self._id, head, self._owner)
        self._epoch, self._claimed = stored.epoch, True
        return stored

    async def echoes(self) -> Mapping[str, int]:
        """Counted over the newest other loops of the scope."""
        return await self._store.read(self._scope, loops.echoes, self._id, ECHO_WINDOW)

    async def commit(self, entry: JournalEntry) -> None:
        """Raises LeaseLost, Conflict and the other kinds of StoreError.

        Other goals or another policy than are stored are written with the first decision on them.
        """
        head = None if self._claimed and entry.verdict is None else self._head
        await self._store.write(
            self._scope, loops.commit, replace(entry, epoch=self._epoch, head=head), self._owner
        )
        self._claimed = True
        self._head = None if head is not None else self._head

    def reread(self) -> bool:
        """The store knows what landed; from now on the loop is one that may exist."""
        self._known = True
        return True

    def shares(self, store: Store, scope: Scope) -> bool:
        """Whether it is the same store and the same scope of it."""
        return store is self._store and scope == self._scope

    async def _beat(self, driven: asyncio.Task[Any] | None) -> None:
        """Renew the lease as long as the attempt lasts; stop the attempt where it is lost."""
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            if not self._claimed:
                continue
            try:
                await self._store.write(self._scope, loops.beat, self._id, self._epoch)
            except LeaseLost:
                if driven is not None:
                    driven.cancel()
                raise
            except StoreError:
                continue  # the next one may get through; until then the epoch fences


def journal(store: Store | str | None, scope: Scope | None, id: str, known: bool) -> LoopJournal:
    """No journal for None; else one on the store, or on the store of that name."""
    if store is None:
        return MemoryJournal()
    opened = open_store(store) if isinstance(store, str) else store
    if not isinstance(opened, Store):
        raise InvalidInput("store", store, "a path, :memory:, a Store or None")
    return StoreJournal(opened, scope or Scope(), id, known)


def _same(one: Head, other: Head) -> bool:
    """Whether goals and policy are the same."""
    return (list(one.goals), dict(one.policy)) == (list(other.goals), dict(other.policy))


def _storable(task: Any) -> None:
    """Raises InvalidInput before anything is spent on a task that cannot be written down."""
    try:
        json.dumps(task)
    except (TypeError, ValueError) as error:
        allowed = "text or JSON data; or run with store=None"
        raise InvalidInput("task", task, allowed) from error


_log = logging.getLogger("heedful")


class LoopRecorder:
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
        journal: Journal,
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

    async def commit(self, entry: JournalEntry, loop: Loop) -> None:
        """Write down `entry`, by which the loop has become `loop`. Raises StoreError."""
        if self._memory is None:
            await self._journal.commit(entry)
        else:
            await self._commit(self._memory, entry, loop)

    async def _commit(self, memory: Memory, entry: JournalEntry, loop: Loop) -> None:
        exposures = () if self._begun else self.briefing.exposures
        ended = isinstance(entry.verdict, Done)
        lessons, end = self._ending(memory, loop) if ended else ((), None)
        if self._journal.shares(memory.store, memory.scope):
            most = memory.max_entries or 0
            entry = replace(entry, reflections=lessons, exposures=exposures, outcome=end, most=most)
            await self._journal.commit(entry)
        else:
            if exposures:
                await memory.store.write(
                    memory.scope, exposure_store.remember, (), exposures=exposures
                )
            await self._journal.commit(entry)
            await _teach(memory, lessons, end)
        self._begun = True
        if end is not None:
            await _look(memory, loop.id)

    def _ending(self, memory: Memory, loop: Loop) -> tuple[Sequence[Reflection], Outcome | None]:
        """What a loop that has ended teaches, and what it came to."""
        lessons = self._lessons(memory, loop, self.briefing) if self._judged else ()
        # One that was cancelled has none: how it would have ended is not known.
        return lessons, outcome_of(loop) if self.briefing.exposures and not loop.cancelled else None

    def _lessons(self, memory: Memory, loop: Loop, briefing: Briefing) -> Sequence[Reflection]:
        lessons = memory.lessons(loop, self._task, briefing, self._examples)
        if self._measured:
            return lessons
        return [replace(one, trust="model", state="candidate") for one in lessons]

    async def _settle(self, memory: Memory, loop: Loop) -> None:
        past = await memory.store.read(memory.scope, exposure_store.past, loop.id)
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
        await memory.store.write(
            memory.scope, exposure_store.remember, lessons, outcome=end, most=most
        )


async def _look(memory: Memory, loop: str) -> None:
    """All is written by now, so a look that fails fails no loop: the next one sees the same."""
    try:
        await memory.look(loop)
    except StoreError as error:
        told = "loop %s has ended; what lessons are worth was not looked at, the next look will: %s"
        _log.warning(told, loop, error)


T = TypeVar("T")
# Of those who write to one loop at once, one gets through at each turn; the others try again within
# so many seconds, at random, so that 64 of them are done within a second.
TURNS = 100
LONGEST = 0.02


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A loop as it is, and a journal for the one entry that comes of that."""

    store: Store
    scope: Scope
    known: LoopState

    async def commit(self, entry: JournalEntry) -> None:
        """Write all of `entry`, or nothing where the loop has changed meanwhile."""
        try:
            stored = self.known.stored
            upon = replace(entry, epoch=stored.epoch, seen=stored.updated)
            await self.store.write(self.scope, loops.commit, upon, owner="")
        except LeaseLost as error:
            raise _Overtaken from error

    def shares(self, store: Store, scope: Scope) -> bool:
        """Whether it is the same store and the same scope of it."""
        return store is self.store and scope == self.scope

    def free(self) -> None:
        """Raises LeaseLost where a process drives the loop just now."""
        if self.known.driver:
            raise LeaseLost(
                f"loop {self.known.stored.id!r} is being driven by another process "
                f"({self.known.driver}); wait for it, or stop it"
            )


async def retry_on_conflict(
    store: Store, scope: Scope, id: str, work: Callable[[Snapshot], Awaitable[T]]
) -> T:
    """What `work` answers to the loop as it is, once what it has committed has landed.

    Where another was quicker, `work` is called again with what that one has left. Raises NotFound,
    LeaseLost where others are always quicker, and what `work` raises.
    """
    for _ in range(TURNS):
        turn = Snapshot(store, scope, await store.read(scope, loops.state, id, ECHO_WINDOW))
        try:
            return await work(turn)
        except _Overtaken:
            await asyncio.sleep(random.random() * LONGEST)
    raise LeaseLost(f"others write to loop {id!r} all the time; try again later")


class _Overtaken(Exception):
    """The loop is not as it was read."""
