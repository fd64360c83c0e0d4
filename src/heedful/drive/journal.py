"""The journal of a loop: everything that a store holds about the loop.

An attempt takes at most two transactions: one for its answer, one for its evaluation,
verdict, lessons and exposures. A process that drives a loop holds it by a lease. A
report from outside is written only if the loop has not changed since it was read.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import logging
import random
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from heedful.errors import InvalidInput, LeaseLost, NotJournalable, StoreError
from heedful.lessons.briefing import Briefing, Tell
from heedful.lessons.learn import learn, outcome_of
from heedful.lessons.lesson import Lesson, Outcome, Scope
from heedful.loop.decide import Done, Policy, Verdict, decide, standing_of
from heedful.loop.record import Attempt, Candidate, Loop, as_data
from heedful.memory.memory import Memory
from heedful.store import exposures, loops, open_store
from heedful.store.loops import LOOP_LEASE_SECONDS
from heedful.store.records import Head, JournalEntry, LoopState, StoredLoop
from heedful.store.store import Store

ECHO_WINDOW_LOOPS = 20  # number of other loops whose findings are counted
MAX_MEMORY_KEY_CHARS = 200  # characters of a memory key
_log = logging.getLogger("heedful")


def journalable(value: Any) -> Any:
    """Return `value`, or the data of a pydantic object, as exact JSON. Raises
    NotJournalable.
    """
    value = as_data(value)
    with suppress(TypeError, ValueError, RecursionError):
        if isinstance(value, str) or json.loads(json.dumps(value)) == value:
            return value
    raise NotJournalable(
        f"a candidate of type {type(value).__name__} cannot be stored; generate text, "
        "JSON "
        "data or a pydantic object, or run with store=None"
    )


def check_json(**values: Any) -> None:
    """Check that each of the named values can be stored. Raises InvalidInput."""
    for name, value in values.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                name, value, "text or JSON data; or run with store=None"
            ) from error


def append_attempt(loop: Loop, attempt: Attempt, now: float) -> Loop:
    """Return the loop with one more attempt; overrides that ended before `now` count no
    longer.
    """
    loop = loop.then(attempt)
    return replace(loop, at=now) if loop.overrides else loop


def decision_entry(
    loop: Loop,
    policy: Policy,
    verdict: Verdict,
    attempt: Attempt | None = None,
    value: Any = None,
) -> JournalEntry:
    """Return the journal entry for a verdict and, if there is one, the attempt and its
    `value`.
    """
    worn = standing_of(loop, policy)
    decision: dict[str, Any] = {
        "verdict": verdict,
        "standing": worn,
        "decided": loop.at,
    }
    return JournalEntry(id=loop.id, epoch=0, attempt=attempt, value=value, **decision)


def cancel_loop(
    loop: Loop, policy: Policy, by: str, now: float
) -> tuple[Loop, Verdict, JournalEntry]:
    """Return the cancelled loop, its verdict, and the journal entry that records
    both.
    """
    loop = replace(loop, cancelled=by or "cancelled", at=now)
    verdict = decide(loop, policy)
    return (
        loop,
        verdict,
        replace(decision_entry(loop, policy, verdict), cancelled=loop.cancelled),
    )


def text_of(task: Any) -> str:
    """Return a task as text, by which memory can search for it."""
    return task if isinstance(task, str) else Candidate.of(task).text or ""


def key_of(function: Any) -> str:
    """Return the memory key of a function: its module and its qualified name.

    For a script the module is the name of its file. Returns "" for functions without a
    lasting name: lambdas, functions of an interactive session, and objects that are no
    functions.
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function) or function.__name__ == "<lambda>":
        return ""
    module = getattr(function, "__module__", None)
    if module == "__main__":
        main = sys.modules["__main__"]
        file = Path(getattr(main, "__file__", None) or "")
        own = Path(inspect.getfile(function)).name == file.name
        module = getattr(main.__spec__, "name", file.stem) if own else ""
    return f"{module}.{function.__qualname__}"[-MAX_MEMORY_KEY_CHARS:] if module else ""


class Journal:
    """The journal of one loop; it renews the lease on the loop while an attempt runs.

    A loop is `known` if its id came from the caller: it may exist, so its lease is
    taken before the first attempt. Any other loop is created by its first entry.
    Without a store, nothing is kept.
    """

    def __init__(
        self, store: Store | str | None, scope: Scope | None, id: str, known: bool
    ) -> None:
        self.store: Store | None = (
            store if isinstance(store, Store | None) else open_store(store)
        )
        self.durable: bool = self.store is not None
        self.known: bool = known
        self.scope: Scope = scope or Scope()
        self._id = id
        self._owner = loops.new_owner() if self.store is not None else ""
        self._head: Head | None = None  # if it is not stored yet
        self._claimed = False
        self._epoch = 1

    def __enter__(self) -> None:
        """Hold the loop's lease in a `with` block, which raises LeaseLost if it is
        taken over.
        """
        if self.store is None:
            return
        loops.enter(self._owner)
        self._driver = asyncio.current_task()
        self._beats = list[asyncio.Task[None]]()
        # Most attempts end before a lease has to be renewed.
        begin = lambda: self._beats.append(asyncio.create_task(self._beat()))  # noqa: E731
        self._timer = asyncio.get_running_loop().call_later(
            LOOP_LEASE_SECONDS / 3, begin
        )

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self.store is None:
            return
        self._timer.cancel()
        loops.leave(self._owner)
        driver = self._driver
        lost = None
        for beat in self._beats:
            beat.cancel()
            if beat.done() and not beat.cancelled():
                lost = (
                    beat.exception()
                )  # only a driver that it cancelled has not yet ended
        cancelled = lost and isinstance(error, asyncio.CancelledError)
        if cancelled and driver is not None and driver.uncancel() == 0:
            raise LeaseLost(str(lost)) from None

    async def open(self, head: Head) -> StoredLoop | None:
        """Take the lease and return the loop as the store holds it; return None for a
        new loop.

        Raises LeaseLost, and InvalidInput if the task cannot be stored.
        """
        stored = None
        if self.store is None:
            return None
        check_json(task=head.task)
        if self.known:
            self._claimed = False  # so `_beat` does not renew the old epoch
            stored = await self.store.write(
                self.scope, loops.claim, self._id, head, self._owner
            )
            self._epoch = stored.epoch
            self._claimed = True

        def lasting(head: Head) -> tuple[Any, ...]:
            return (
                head.kind,
                head.stage,
                head.memory_key,
                list(head.goals),
                dict(head.policy),
            )

        self._head = None if stored and lasting(stored.head) == lasting(head) else head
        return stored

    async def echoes(self) -> Mapping[str, int]:
        """Count, for each finding's key, the attempts with that finding in other recent
        loops.
        """
        if self.store is None:
            return {}
        return await self.store.read(
            self.scope, loops.echoes, self._id, ECHO_WINDOW_LOOPS
        )

    async def commit(self, entry: JournalEntry) -> int:
        """Write `entry` in one transaction.

        The first decision of this process also writes the loop's goals and policy, if
        they differ from the stored ones. Raises LeaseLost if another process drives the
        loop, or StoreError.
        """
        if self.store is None:
            return 0
        head = None if self._claimed and entry.verdict is None else self._head
        entry = replace(entry, epoch=self._epoch, head=head)
        number = await self.store.write(self.scope, loops.commit, entry, self._owner)
        self._claimed = True
        self._head = None if head is not None else self._head
        return number

    async def _beat(self) -> None:
        """Renew the lease until cancelled; cancel the driver if the lease is lost."""
        while self.store is not None:
            try:
                if self._claimed:
                    await self.store.write(
                        self.scope, loops.beat, self._id, self._epoch
                    )
            except LeaseLost:
                if self._driver is not None:
                    self._driver.cancel()
                raise
            except StoreError:
                # the next renewal may succeed; until then the epoch protects the loop
                pass
            await asyncio.sleep(LOOP_LEASE_SECONDS / 3)


@dataclass(eq=False, repr=False, kw_only=True)
class LoopRecorder:
    """Writes a loop to its journal, and what the loop teaches to its memory.

    Exposures are written with the first entry, lessons and outcome with the last. If
    journal and memory share a store and scope (`together`), each is in the transaction
    of its entry. If not, exposures are written before the entry, because the prompt may
    have influenced the attempt, and lessons after the entry, because only the holder of
    the lease may teach. When a loop is opened again, the recorder writes what a crash
    prevented. Loops without evaluations (`judged` is False) teach nothing. Lessons of
    evaluations that are not `measured` are quarantined. `briefing` is what `brief`
    recalled, and `exposed` is True if it is already stored. `memory_key`, the names of
    the `checks` and `tell` are as in `Memory.brief`.
    """

    write: Callable[[JournalEntry], Awaitable[int]]
    memory: Memory | None
    task: str
    together: bool
    judged: bool = True
    measured: bool = True
    briefing: Briefing | None = None
    exposed: bool = False
    memory_key: str = ""
    checks: tuple[str, ...] = ()
    tell: Tell = "both"

    async def opened(self, loop: Loop, verdict: Verdict, answered: bool) -> None:
        """Recall lessons for an open loop; for an ended loop, write what a crash
        prevented.

        `answered` is True if the journal holds an answer without a verdict. Raises
        StoreError.
        """
        memory = self.memory
        ended = isinstance(verdict, Done)
        if memory is None or (ended and self.together):
            return
        begun = ended or answered or loop.attempts or loop.overrides or loop.extra.calls
        await self.brief(loop.id, begins=not begun)
        if ended:
            await self._teach(memory, loop, self._ending(loop))

    async def brief(self, loop: str, begins: bool) -> None:
        """Recall lessons for a loop; a resumed loop (not `begins`) gets its first
        lessons again.
        """
        if self.memory is not None:
            how = self.memory_key, self.checks, self.tell
            self.briefing = await self.memory.brief(self.task, loop, begins, *how)
            self.exposed = False

    async def commit(self, entry: JournalEntry, loop: Loop) -> None:
        """Write `entry`, exposures and lessons; `loop` includes the entry. Raises
        StoreError.
        """
        memory = self.memory
        if memory is None:
            await self.write(entry)
            return
        told = None if self.exposed else self.briefing
        ended = isinstance(entry.verdict, Done)
        lessons, outcome = self._ending(loop) if ended else ((), None)
        if self.together:
            most = memory.max_entries or 0
            taught: Any = {"reflections": lessons, "outcome": outcome, "most": most}
            entry = replace(entry, briefing=told, quota=memory.quota, **taught)
        elif told is not None:
            shown = told.exposures
            entry = replace(entry, briefing=replace(told, exposures=()))
            if shown:
                await memory.store.write(
                    memory.scope, exposures.remember, (), exposures=shown
                )
        number = await self.write(entry)
        self.exposed = True
        if ended:
            await self._teach(memory, loop, (lessons, outcome), number)

    def _ending(self, loop: Loop) -> _Taught:
        """Return the lessons and the outcome (None if cancelled) of an ended loop."""
        told = self.briefing or Briefing()
        # If a source is revoked, lessons that were learnt with its text in the prompt
        # go, too.
        origin: dict[str, Any] = {"source": f"loop:{loop.id}", "parents": told.shown}
        origin |= {
            "space": told.space,
            "vector": told.vector,
            "memory_key": told.memory_key,
        }
        origin |= {} if self.measured else {"trust": "tool"}
        about = self.task, self.tell != "rules", told.memory_key, self.checks
        lessons = [
            replace(one, **origin)
            for one in (learn(loop, *about) if self.judged else ())
        ]
        broken = frozenset(one.cause.rule for one in lessons if one.cause)
        return lessons, None if loop.cancelled else outcome_of(
            loop, told.memory_key, broken
        )

    async def _teach(
        self, memory: Memory, loop: Loop, taught: _Taught, number: int = 0
    ) -> None:
        """Write to a memory that has another store; review its lessons and log errors
        of that.
        """
        lessons, outcome = taught
        if not self.together and (lessons or outcome):
            most = memory.max_entries or 0
            remember = exposures.remember
            await memory.store.write(
                memory.scope, remember, lessons, outcome=outcome, most=most
            )
            number = (
                await memory.store.read(memory.scope, exposures.past, loop.id)
            ).number
        try:
            await memory.look(number)
        except StoreError as error:
            _log.warning(
                "loop %s ended; its lessons were not reviewed: %s", loop.id, error
            )


_Taught = tuple[Sequence[Lesson], Outcome | None]
T = TypeVar("T")
# When several write to one loop, one succeeds in each round; the others try again after
# a random pause. With these values 64 writers finish within a second.
MAX_WRITE_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A loop as it was read; one entry may be written, if the loop has not changed
    since then.
    """

    store: Store
    scope: Scope
    state: LoopState

    async def commit(self, entry: JournalEntry) -> int:
        """Write `entry` in one transaction. Raises _ChangedError if the loop has
        changed.
        """
        try:
            stored = self.state.stored
            entry = replace(entry, epoch=stored.epoch, seen=stored.updated)
            return await self.store.write(self.scope, loops.commit, entry, owner="")
        except LeaseLost as error:
            raise _ChangedError from error

    def check_free(self) -> None:
        """Raise LeaseLost if a process drives the loop."""
        if self.state.driver:
            driven = f"loop {self.state.stored.id!r} is being driven by another process"
            raise LeaseLost(f"{driven} ({self.state.driver}); wait for it, or stop it")


class _ChangedError(Exception):
    """The loop has changed since it was read."""


async def retry_on_conflict(
    store: Store, scope: Scope, id: str, work: Callable[[Snapshot], Awaitable[T]]
) -> T:
    """Read the loop and call `work` with it; repeat both if another process wrote at
    the same time.

    Returns the result of `work`. Raises NotFound, and LeaseLost after 100 conflicts.
    """
    for _ in range(MAX_WRITE_ROUNDS):
        state = await store.read(scope, loops.state, id, ECHO_WINDOW_LOOPS)
        try:
            return await work(Snapshot(store, scope, state))
        except _ChangedError:
            await asyncio.sleep(random.random() * 0.02)  # seconds
    raise LeaseLost(f"other processes keep writing to loop {id!r}; try again later")
