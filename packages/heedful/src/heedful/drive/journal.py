"""The journal of a loop: the only way to write a loop.

A program that makes attempts gives the journal an entry for each step. `Journal.write`
adds what memory showed the loop and what the loop teaches, and stores all of it in one
transaction. An attempt takes at most two: one for its answer, one for its evaluation,
verdict, lessons and exposures.

Two kinds of writers exist, and each excludes the others. A process that drives a loop
holds it by a `Lease`. A report from outside writes on the `Snapshot` that it decided
on; if the loop has changed since, nothing is written and the report is decided again.
"""

import asyncio
import functools
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any, ClassVar, Literal, TypeVar, cast

from heedful.checks.evaluate import Context, blocking, check_id, evaluated
from heedful.errors import (
    CheckFailed,
    Conflict,
    InvalidInput,
    LeaseLost,
    ModelError,
    NotJournalable,
    StoreError,
    StoreInDoubt,
)
from heedful.lessons.briefing import Briefing
from heedful.lessons.check_findings import alarms_of
from heedful.lessons.declarations import declared_by
from heedful.lessons.lesson import Example, Lesson, Outcome, Scope
from heedful.lessons.lesson_check import Alarm
from heedful.lessons.loop_lessons import learn, outcome_of, rule_of
from heedful.lessons.telling import Tell
from heedful.loop import codec
from heedful.loop.decide import Again, Done, Policy, Verdict, decide, standing_of
from heedful.loop.ladder import Ladder
from heedful.loop.record import (
    Attempt,
    Candidate,
    Evaluation,
    Finding,
    Loop,
    Override,
    Usage,
    as_data,
)
from heedful.loop.runs import Report as RunReport
from heedful.loop.stop import MaxAttempts, Stop
from heedful.memory.memory import Memory
from heedful.store import exposures, loops
from heedful.store.loops import LOOP_LEASE_SECONDS
from heedful.store.offload import offload
from heedful.store.records import Head, JournalEntry, LoopState, MemoryEntry, StoredLoop
from heedful.store.store import Store
from heedful.validation import Fields

T = TypeVar("T")
ECHO_WINDOW_LOOPS = 20  # number of other loops that stop rules see
# When several write to one loop, one succeeds in each round, and the others try again
# after a random pause. With pauses of up to 20 ms, 64 writers finish within a second.
MAX_WRITE_ROUNDS = 100
_log = logging.getLogger("heedful")


def journalable(value: Any) -> Any:
    """Return `value`, or the data of a pydantic object, as exact JSON.

    Raises NotJournalable.
    """
    value = as_data(value)
    with suppress(TypeError, ValueError, RecursionError):
        if isinstance(value, str) or json.loads(json.dumps(value)) == value:
            return value
    raise NotJournalable(
        f"a candidate of type {type(value).__name__} cannot be stored; generate text, "
        "JSON data or a pydantic object, or run with store=None"
    )


def check_json(**values: Any) -> None:
    """Raise InvalidInput unless each of the named values can be stored."""
    for name, value in values.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(
                name, value, "text or JSON data; or run with store=None"
            ) from error


def answer_step(loop: Loop) -> str:
    """Return the name under which a journal keeps the answer of the next attempt."""
    return f"{len(loop.attempts) + 1}/answer"


def append_attempt(loop: Loop, attempt: Attempt) -> Loop:
    """Return the loop with one more attempt.

    If it has overrides, its time becomes now, so that those that have ended lapse.
    """
    loop = loop.then(attempt)
    return replace(loop, at=time.time()) if loop.overrides else loop


def decision_entry(
    loop: Loop,
    policy: Policy,
    verdict: Verdict,
    attempt: Attempt | None = None,
    value: Any = None,
    spending: tuple[str, Usage, float] | None = None,
) -> JournalEntry:
    """Return the entry for a verdict and, if any, its attempt with value and
    spending.
    """
    climb = None
    if isinstance(verdict, Done) and loop.ladder is not None and not loop.cancelled:
        climb = loop.climb()
    return JournalEntry(
        id=loop.id,
        epoch=0,
        attempt=attempt,
        value=value,
        verdict=verdict,
        standing=standing_of(loop, policy),
        decided=loop.at,
        climb=climb,
        spending=spending,
    )


def cancel_loop(
    loop: Loop, policy: Policy, by: str
) -> tuple[Loop, Verdict, JournalEntry]:
    """Return the loop, cancelled now, its verdict, and the entry for both."""
    loop = replace(loop, cancelled=by or "cancelled", at=time.time())
    verdict = decide(loop, policy)
    entry = decision_entry(loop, policy, verdict)
    return loop, verdict, replace(entry, cancelled=loop.cancelled)


def override_entry(
    before: Loop, after: Loop, *, policy: Policy, last: Verdict, verdict: Verdict
) -> JournalEntry:
    """Return the entry for the overrides that `after` has and `before` does not.

    If the `last` verdict ended the loop, the entry has the new `verdict`, too. It is
    the answer in any case.
    """
    entry = JournalEntry(id=before.id, epoch=0)
    if isinstance(last, Done):
        entry = decision_entry(before, policy, verdict)
    overrides = after.overrides[len(before.overrides) :]
    return replace(entry, overrides=overrides, answer=verdict)


async def override_once(
    store: Store,
    scope: Scope,
    loop: str,
    override: Override,
    *,
    key: str,
    lift: Callable[[], Awaitable[Verdict]],
) -> Verdict:
    """Return the verdict of `lift`, which writes an override to a loop.

    A call that is made again with its `key` gets its first verdict. Raises Conflict if
    the key belongs to another call.
    """

    async def lifted() -> Fields:
        """Return the verdict as it is stored."""
        return codec.verdict_to(await lift(), redacts=True)

    document = await store.once(
        scope, loops.lift, lifted, key=key, request=("override", loop, override)
    )
    return codec.verdict_from(document)


class Journal:
    """The journal of one loop; without a store, only memory gets what is written.

    The `writer` signs the entries. `memory` is None for a loop without memory.
    """

    def __init__(
        self,
        store: Store | None,
        scope: Scope,
        writer: "Lease | Snapshot",
        memory: "LoopMemory | None" = None,
    ) -> None:
        self.store = store
        self.scope = scope
        self.memory = memory
        # The new ladder of a resumed loop whose rungs have changed; None once an entry
        # has written it.
        self.ladder: Ladder | None = None
        # True if calls without an answer were made, as before a crash, until an entry
        # has counted them.
        self.must_write_extra: bool = False
        self._writer = writer

    async def write(self, entry: JournalEntry, loop: Loop) -> None:
        """Write `entry`, exposures and lessons; `loop` includes the entry.

        Raises LeaseLost if the writer no longer holds the loop, LoopChanged if its
        snapshot is no longer true, or StoreError.
        """
        memory = self.memory
        memory_entry = None
        if memory is not None:
            memory_entry = await memory.entry_for(entry, loop)
        if self.ladder is not None and entry.ladder is None:
            entry = replace(entry, ladder=self.ladder)
        if self.must_write_extra and entry.extra is None:
            entry = replace(entry, extra=loop.extra)

        outcome_number = 0
        if self.store is not None:
            self._writer.sign(entry)
            owner = self._writer.owner
            if entry.overrides:
                await self.store.write(
                    self.scope, loops.lift, entry, owner=owner, memory=memory_entry
                )
            else:
                outcome_number = await self.store.write(
                    self.scope, loops.commit, entry, owner=owner, memory=memory_entry
                )
            self._writer.note_written(entry)
            self.ladder = None
            self.must_write_extra = False

        if memory is not None:
            await memory.note_written(entry, loop, outcome_number)


class Lease:
    """The right of this process to write one loop, renewed while an attempt runs.

    A loop `may_exist` if its id came from the caller: its lease is then taken by
    `open`, before the first attempt. Any other loop is created by its first entry. The
    first decision of this process also writes the loop's goals and policy, if they
    differ from the stored ones. Without a store there is nothing to hold.

    A StoreInDoubt of its `with` block says that the loop or run may be resumed by its
    id. It keeps the key of a call within the block, such as that of an override.
    """

    def __init__(
        self, store: Store | None, scope: Scope, id: str, may_exist: bool
    ) -> None:
        self.store = store
        self.scope = scope
        self.may_exist = may_exist
        self.owner: str = loops.new_owner() if store is not None else ""

        self.id = id
        # The head that the next decision writes; None if the store has it already.
        self._head: Head | None = None
        self._claimed = False
        self._epoch = 1
        # True if the driver makes the next attempt at once.
        self.goes_on = False

    def __enter__(self) -> None:
        """Hold the loop in a `with` block; raises LeaseLost if it is taken over."""
        if self.store is None:
            return
        loops.working_drivers.add(self.owner)
        self._driver = asyncio.current_task()
        self._cancels_before = self._driver.cancelling() if self._driver else 0
        self._heartbeats = list[asyncio.Task[None]]()
        # Most attempts end before a lease has to be renewed.
        self._timer = asyncio.get_running_loop().call_later(
            LOOP_LEASE_SECONDS / 3, self._begin_heartbeat
        )

    def _begin_heartbeat(self) -> None:
        """Start the task that renews the lease."""
        self._heartbeats.append(asyncio.create_task(self._beat()))

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self.store is not None:
            self._let_go(error)
        if isinstance(error, StoreInDoubt) and (
            not error.key or error.argument == "id"
        ):
            raise StoreInDoubt(error.what, key=self.id, argument="id") from error

    def _let_go(self, error: BaseException | None) -> None:
        """End the lease, after this `error`. Raises LeaseLost if it ended before."""
        self._timer.cancel()
        loops.working_drivers.discard(self.owner)

        # A heartbeat that has ended by itself has lost the lease.
        lost = None
        for heartbeat in self._heartbeats:
            heartbeat.cancel()
            if heartbeat.done() and not heartbeat.cancelled():
                lost = heartbeat.exception()

        # The heartbeat has cancelled the driver; the caller should see the reason.
        was_cancelled = lost is not None and isinstance(error, asyncio.CancelledError)
        driver = self._driver
        if not was_cancelled or driver is None:
            return
        if driver.uncancel() <= self._cancels_before:
            raise LeaseLost(str(lost)) from None

    async def open(self, head: Head) -> StoredLoop | None:
        """Take the lease; return the loop as the store holds it, None for a new loop.

        Raises LeaseLost, and InvalidInput if the task cannot be stored.
        """
        if self.store is None:
            return None
        check_json(task=head.task)

        stored_loop = None
        if self.may_exist:
            self._claimed = False  # so `_beat` does not renew the old epoch
            stored_loop = await self._claim(self.store, head)
            self._claimed = not stored_loop.ended

        self._head = head
        if stored_loop is not None and _is_same_head(stored_loop.head, head):
            self._head = None
        return stored_loop

    async def reopen(self, head: Head) -> None:
        """Claim a loop that had ended when it was read.

        Raises LeaseLost if another driver has opened it since.
        """
        if self.store is None:
            return
        await self._claim(self.store, head, reopens=self._epoch)
        self._claimed = True

    async def _claim(
        self, store: Store, head: Head, reopens: int | None = None
    ) -> StoredLoop:
        """Claim the loop, and return it; an ended one only if it `reopens`."""
        stored_loop = await store.write(
            self.scope,
            loops.claim,
            self.id,
            head,
            owner=self.owner,
            at=time.time(),
            reopens=reopens,
        )
        self._epoch = stored_loop.epoch
        return stored_loop

    async def echoes(self) -> Mapping[str, int]:
        """Count, by a finding's key, the attempts with it in other recent loops."""
        if self.store is None:
            return {}
        return await self.store.read(
            self.scope, loops.echoes, self.id, ECHO_WINDOW_LOOPS
        )

    async def needed(self, memory_key: str) -> tuple[int, ...]:
        """Return how many attempts recent loops of a memory key needed to pass."""
        if self.store is None or not memory_key:
            return ()
        return await self.store.read(
            self.scope, loops.needed, self.id, memory_key, ECHO_WINDOW_LOOPS
        )

    def sign(self, entry: JournalEntry) -> None:
        """Give the entry the epoch of the lease and the head, if it is due."""
        entry.epoch = self._epoch
        entry.head = None if self._claimed and entry.verdict is None else self._head
        entry.goes_on = self.goes_on and isinstance(entry.verdict, Again)

    def note_written(self, entry: JournalEntry) -> None:
        """Remember that the loop exists now, and that its head is stored."""
        self._claimed = True
        if entry.head is not None:
            self._head = None

    async def _beat(self) -> None:
        """Renew the lease until cancelled; cancel the driver if the lease is lost."""
        while self.store is not None:
            try:
                if self._claimed:
                    await self.store.write(self.scope, loops.beat, self.id, self._epoch)
            except LeaseLost:
                if self._driver is not None:
                    self._driver.cancel()
                raise
            except StoreError:
                # The next renewal may succeed; until then the epoch protects the loop.
                pass

            await asyncio.sleep(LOOP_LEASE_SECONDS / 3)


def _is_same_head(stored_head: Head, head: Head) -> bool:
    """Return True if `head` changes nothing.

    Without a model, it keeps the stored one. Task, context and ladder are not compared.
    """
    unchanged = replace(
        head,
        task=stored_head.task,
        context=stored_head.context,
        ladder=stored_head.ladder,
        model=head.model or stored_head.model,
    )
    return unchanged == stored_head


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A loop as it was read. One entry may be written, if the loop has not changed."""

    store: Store
    scope: Scope
    state: LoopState
    owner: ClassVar[str] = ""  # no process drives the loop

    def journal(self, memory: "LoopMemory | None" = None) -> Journal:
        """Return the journal that writes on this snapshot."""
        return Journal(self.store, self.scope, writer=self, memory=memory)

    def sign(self, entry: JournalEntry) -> None:
        """Give the entry the state in which the loop must still be."""
        entry.epoch = self.state.stored.epoch
        entry.seen = self.state.stored

    def note_written(self, entry: JournalEntry) -> None:
        """Do nothing: nobody writes twice on one snapshot."""

    def check_free(self) -> None:
        """Raise LeaseLost if a process drives the loop."""
        if self.state.driver:
            raise LeaseLost(
                loops.driven_message(self.state.stored.id, self.state.driver)
            )


async def retry_on_conflict(
    store: Store, scope: Scope, id: str, work: Callable[[Snapshot], Awaitable[T]]
) -> T:
    """Read the loop and call `work` with it; repeat both if another process wrote.

    Returns the result of `work`. Raises NotFound, and LeaseLost after 100 conflicts.
    """
    for _ in range(MAX_WRITE_ROUNDS):
        state = await store.read(scope, loops.state, id)
        if state.policy.counts_scope:
            echoes = await store.read(scope, loops.echoes, id, ECHO_WINDOW_LOOPS)
            state = replace(state, echoes=echoes)

        try:
            return await work(Snapshot(store, scope, state))
        except loops.LoopChanged:
            await asyncio.sleep(random.uniform(0, 0.02))
    raise LeaseLost(f"other processes keep writing to loop {id!r}; try again later")


# What the evaluations of a loop prove. "measured": its own checks and critics, or a
# trusted host, judged the candidates. "outside": the reports are from outside, so
# their lessons wait in quarantine. "none": nothing judged the candidates,
# and the loop teaches nothing.
Evidence = Literal["measured", "outside", "none"]


class _ContextOfAnswer(Context):
    """The context in which a check judges a remembered answer.

    The data of the loop that got the answer is not stored, so reading `data` raises.
    """

    def __getattribute__(self, name: str) -> Any:
        if name == "data":
            raise AttributeError("the data of the answer's loop is not stored")
        return super().__getattribute__(name)


async def _accepts(check: Callable[..., Any], answer: Any, task: str) -> bool:
    """Return False if a check finds an error in a remembered answer to a task.

    If the check fails, as it does if it reads `Context.data`, returns True.
    """
    try:
        evaluation = await evaluated(
            answer, _ContextOfAnswer(task), [check], None, tries=1
        )
    except (CheckFailed, ModelError):
        return True
    return not evaluation.errors


@dataclass(eq=False, repr=False, kw_only=True)
class LoopMemory:
    """What memory tells one loop, and what the loop teaches memory.

    The loop passes three states:

    1. `brief` has recalled lessons: `briefing` is set, and `unwritten_briefing`, too.
    2. The next entry has written the briefing with its exposures.
    3. The entry that ends the loop has written the lessons and the outcome.

    If memory has the store and the scope of the journal (`shares_transaction`), each
    entry and what memory writes are one transaction. If not, exposures are written
    before the entry, because the prompt may have influenced the attempt, and lessons
    after it, because only the holder of the lease may teach. When a loop is opened
    again, `open` writes what a crash prevented. A service records exposures when it
    tells them, and learns from the loop that it gets after the last entry.

    `brief` passes `task`, `memory_key`, `model`, the names of the `checks` and `tell`
    to `Memory.brief`, and lets the functions that judge, the `judges`, refuse
    remembered answers. What the loop teaches follows from `task`, `evidence`, `checks`,
    `judges` and `tell`; if the loop `is_large`, another thread finds it.
    """

    memory: Any  # a Memory, or a Client, whose service is the memory
    task: str
    shares_transaction: bool
    evidence: Evidence = "measured"
    briefing: Briefing | None = None
    memory_key: str = ""
    model: str = ""
    checks: tuple[str, ...] = ()
    judges: Sequence[Callable[..., Any]] = ()
    tell: Tell = "both"
    unwritten_briefing: Briefing | None = None
    is_large: bool = False

    async def open(self, loop: Loop, verdict: Verdict, answered: bool) -> None:
        """Recall lessons for an open loop; teach what an ended loop has not taught.

        `answered` is True if the journal holds an answer without a verdict. Raises
        StoreError.
        """
        ended = isinstance(verdict, Done)
        if ended and self.shares_transaction:
            return

        is_under_way = answered or loop.is_under_way
        begins = not (ended or is_under_way)
        # Holding lessons back measures only the first rung; later rungs see them all.
        await self.brief(loop.id, begins, withholds=loop.rung == 1)
        if ended:
            await self.end(loop)

    async def brief(self, loop: str, begins: bool, withholds: bool = True) -> None:
        """Recall lessons for a loop; a resumed loop gets its first lessons again.

        With `withholds`, some lessons are held back at random, to measure their effect.
        """
        self.briefing = await self._recall(
            loop, begins, withholds=withholds, refuses=self._refuses
        )
        self.unwritten_briefing = self.briefing

    async def _recall(self, loop: str, begins: bool, **options: Any) -> Briefing:
        """Ask memory what to show a loop; it stores the answer with a loop it has."""
        return cast(
            "Briefing",
            await self.memory.brief(
                self.task,
                loop,
                begins,
                memory_key=self.memory_key,
                checks=self.checks,
                tell=self.tell,
                model=self.model,
                check_ids=[check_id(judge) for judge in self.judges],
                **options,
            ),
        )

    async def _refuses(self, example: Example) -> bool:
        """Return True if a judge now finds an error in an example's accepted answer.

        Only synchronous functions at the top of a module are asked. A ready-made check
        would say the same again, a lambda or an inner function may be made for one
        task, and an async function may cost money. A check with `remembered = False`
        has effects, and is not asked.
        """
        texts = [example.accepted]
        with suppress(ValueError):
            texts.append(json.loads(example.accepted))
        for check in self.judges:
            is_plain = isinstance(check, FunctionType) and blocking(check)
            if not is_plain or not check_id(check):
                continue
            if not getattr(check, "remembered", True):
                continue
            # The answer may be a text, or data that is stored as JSON.
            answers = [await _accepts(check, text, example.task) for text in texts]
            if not any(answers):
                return True
        return False

    async def entry_for(self, entry: JournalEntry, loop: Loop) -> MemoryEntry:
        """Return what memory writes in the transaction of `entry`.

        These are the exposures and, if the entry ends the loop, the lessons and the
        outcome. If memory has a store of its own, the exposures are written there now.
        """
        memory = self.memory
        briefing = self.unwritten_briefing

        if not self.shares_transaction:
            if briefing is None:
                return MemoryEntry()
            # A service has recorded them before it said what to show.
            if briefing.exposures and isinstance(memory, Memory):
                await memory.store.write(
                    memory.scope,
                    exposures.remember,
                    (),
                    exposures=briefing.exposures,
                )
            return MemoryEntry(briefing=replace(briefing, exposures=()))

        lessons: list[Lesson] = []
        outcome = None
        if isinstance(entry.verdict, Done):
            if self.is_large:
                lessons, outcome = await offload(self._lessons_and_outcome, loop)
            else:
                lessons, outcome = self._lessons_and_outcome(loop)
        return MemoryEntry(
            briefing=briefing,
            lessons=lessons,
            outcome=outcome,
            alarms=self._alarms(entry),
            most=memory.max_entries or 0,
            quota=memory.quota,
        )

    async def note_written(
        self, entry: JournalEntry, loop: Loop, outcome_number: int
    ) -> None:
        """Teach another store and review the lessons, if the entry ended the loop.

        `outcome_number` is that of the outcome which the entry wrote, 0 for none.
        """
        self.unwritten_briefing = None
        alarms = () if self.shares_transaction else self._alarms(entry)
        if alarms and isinstance(self.memory, Memory):
            await self.memory.store.write(
                self.memory.scope, exposures.count_alarms, alarms
            )

        if isinstance(entry.verdict, Done):
            await self.end(loop, outcome_number)

    async def end(self, loop: Loop, outcome_number: int = 0) -> None:
        """Teach memory elsewhere and review the lessons of a loop that has ended.

        A StoreError of the review is only logged.
        """
        if not isinstance(self.memory, Memory):
            with suppress(Conflict):  # it ended there before it was opened again here
                await self._report(loop)
            return

        if not self.shares_transaction:
            outcome_number = await self._teach(loop)
        try:
            await self.memory.look(outcome_number)
        except StoreError as error:
            _log.warning(
                "heedful: loop %s ended, but its lessons were not reviewed: %s",
                loop.id,
                error,
            )

    async def _report(self, loop: Loop) -> None:
        """Report the whole loop to the service that is the memory, as it was made.

        The service does not decide: the loop ends there where it ended here. It does
        not have the checks, which know what is no particular of a task, so each finding
        gets its rule. Nothing is reported if nobody judged the attempts.
        """
        is_judged = self.evidence == "measured" or loop.judges_itself
        count = len(loop.attempts)
        if not count or not is_judged:
            return

        limit = count + 1 if loop.cancelled else count
        policy = Policy((MaxAttempts(limit),), loop.improves, unscored="again")
        await self.memory.open(
            loop.id,
            self.task,
            goals=loop.goals,
            policy=policy,
            memory_key=self.memory_key,
            model=self.model,
        )
        # The service did not have the loop when it said what to show.
        await self._recall(loop.id, begins=False)

        declare = functools.partial(declared_by, self.judges)
        for attempt in loop.attempts:
            output = None if self.tell == "rules" else attempt.candidate.text
            evaluation = attempt.evaluation or Evaluation()
            findings = [
                replace(
                    finding,
                    rule=rule_of(
                        finding,
                        loop,
                        refused=attempt,
                        task=self.task,
                        declare=declare,
                    ),
                )
                for finding in evaluation.findings
            ]
            await self.memory.report(
                loop.id,
                attempt.number,
                output=output,
                digest=attempt.candidate.digest,
                evaluation=replace(evaluation, findings=tuple(findings)),
                usage=attempt.usage,
                model=attempt.model,
            )
        if loop.cancelled:
            await self.memory.call(
                "POST", "loops", loop.id, "cancel", body={"why": loop.cancelled}
            )

    def _alarms(self, entry: JournalEntry) -> tuple[Alarm, ...]:
        """Return what the checks of lessons found in the attempt of an entry."""
        if entry.attempt is None or self.briefing is None or not self.briefing.checks:
            return ()
        return alarms_of(entry.attempt.evaluation)

    def _lessons_and_outcome(self, loop: Loop) -> tuple[list[Lesson], Outcome | None]:
        """Return the lessons and the outcome (None if cancelled) of an ended loop."""
        briefing = self.briefing or Briefing()
        lessons: list[Lesson] = []
        if loop.judges_itself or self.evidence != "none":
            learnt = learn(
                loop,
                self.task,
                outputs=self.tell != "rules",
                memory_key=briefing.memory_key,
                checks=self.checks,
                declare=functools.partial(declared_by, self.judges),
            )
            lessons = [self._sign_lesson(lesson, loop, briefing) for lesson in learnt]

        if loop.cancelled:
            return lessons, None

        broken = frozenset(lesson.cause.rule for lesson in lessons if lesson.cause)
        return lessons, outcome_of(loop, briefing.memory_key, broken)

    def _sign_lesson(self, lesson: Lesson, loop: Loop, briefing: Briefing) -> Lesson:
        """Return the lesson with its origin, its place in memory and its trust."""
        trust = "outside" if self.evidence == "outside" else lesson.trust
        return replace(
            lesson,
            source=f"loop:{loop.id}",
            # If a source is revoked, lessons that were learnt with its text in the
            # prompt go, too.
            parents=briefing.shown,
            space=briefing.space,
            vector=briefing.vector,
            memory_key=briefing.memory_key,
            trust=trust,
        )

    async def _teach(self, loop: Loop) -> int:
        """Write lessons and outcome to memory's own store; return its number."""
        memory: Memory = self.memory
        lessons, outcome = self._lessons_and_outcome(loop)
        if not lessons and outcome is None:
            return 0

        await memory.store.write(
            memory.scope,
            exposures.remember,
            lessons,
            outcome=outcome,
            most=memory.max_entries or 0,
        )
        past = memory.store.read(memory.scope, exposures.past, loop.id)
        return (await past).number


def end_entry(report: RunReport, number: int) -> JournalEntry:
    """Return the journal entry for the end of a run.

    The run is attempt `number` of its loop. Each failed stage is a finding.
    """
    actions = {stage.name: stage.action for stage in report.stages}
    failures = {
        stage.name: f"{stage.name}: {stage.status}, {stage.action}"
        for stage in report.stages
        if stage.degraded or stage.action == "halted"
    }
    findings = tuple(
        Finding("stage", text, key=f"stage: {name}") for name, text in failures.items()
    )
    attempt = Attempt(
        number,
        Candidate.of(actions),
        evaluation=Evaluation(findings),
        usage=Usage(seconds=report.ended - report.began),
    )

    stops: tuple[Stop, ...] = ()
    if failures:
        stops = (Stop(report.status, ", ".join(failures.values())),)
    return JournalEntry(
        id=report.run,
        epoch=0,
        attempt=attempt,
        value=actions,
        verdict=Done(number, not failures, stopped_by=stops),
        decided=report.ended,
    )
