"""Practice: try again, while nobody waits, the tasks that ended without passing.

A practice drives a new loop for a task of a function that is declared repeatable, with
what memory knows today. What passes the checks of the function is learnt as from any
loop. The old loop keeps its verdict, and no figure counts the new one. Several
practices at once, also in other processes, each try other tasks.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from heedful.checks.evaluate import Context, blocking, call
from heedful.errors import (
    HeedfulError,
    InvalidInput,
    LeaseLost,
    ModelError,
    NotFound,
    UserCodeError,
)
from heedful.lessons.lesson import Scope
from heedful.loop.ladder import Allowance
from heedful.loop.record import Usage
from heedful.memory.memory import Memory
from heedful.redact import redact, redact_start
from heedful.store import ladders, loops, practices
from heedful.store.connection import Db
from heedful.store.practices import PracticeClaim, PracticeTask
from heedful.store.store import Store
from heedful.validation import (
    MAX_SCORE,
    check_integer,
    check_name,
    check_number,
    require,
)

# The tasks of one function that a practice looks at.
MAX_PRACTICE_TASKS = 1_000
# If the function fails so often in a row, its model is down, and no other task can do
# better.
MAX_FAILURES_IN_A_ROW = 3
MAX_PRACTICE_ERROR_CHARS = 300
MAX_ALLOWANCE_NAME_CHARS = 200
ALL_TRIED = "every task was tried"
_log = logging.getLogger("heedful")

# Called with the task, the accepted candidate, and the id of the loop that practised.
OnPassed = Callable[[Any, Any, str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeResult:
    """How the loop of a practice ended."""

    passed: bool
    candidate: Any = None


class Drive(Protocol):
    """Runs the loop of a practice, or what is left of it, to its end."""

    async def __call__(
        self,
        practice: PracticeClaim,
        *,
        memory: Memory,
        allowance: Allowance,
        next_rung: bool,
    ) -> PracticeResult:
        """Raise AllowanceSpent, UserCodeError, ModelError, StoreError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeatable:
    """What a practice needs of a decorated function; the decorator attaches it.

    It is `declared` by `practice=True`. `memory` and `scope` are the options of the
    function, and its loops are `stored`. `needs` are the parameters without a default,
    besides the task: a loop stores only the task. `judges` are its checks.
    """

    memory_key: str
    declared: bool
    memory: Memory | Store | str | None
    scope: Scope | None
    stored: bool
    needs: tuple[str, ...]
    judges: Sequence[Callable[..., Any]]
    drive: Drive

    def own_memory(self) -> Memory:
        """Return the memory of the function."""
        memory = self.memory
        assert memory is not None, "`check` refuses a function without a memory"
        return Memory.of(memory, self.scope)

    def check(self) -> None:
        """Raise InvalidInput unless the function may be called again by itself."""
        name = self.memory_key
        person = [judge for judge in self.judges if getattr(judge, "needs_person", 0)]
        person_names = ", ".join(_name_of(judge) for judge in person)
        rules = {
            "declared @heedful.self_correcting(…, practice=True)": self.declared,
            "declared with a memory: memory=…": self.memory is not None,
            "declared with a store: store=…": self.stored,
            "a function with a lasting name, or declared with memory_key=…": name,
            "declared with checks, which say what is right": self.judges,
            "a function that needs only its task: no other parameter "
            "without a default": not self.needs,
            f"declared without {person_names}: a check that needs a person "
            "cannot judge while nobody waits": not person,
        }
        for allowed, is_met in rules.items():
            require(bool(is_met), "function", name or "<lambda>", allowed)


def _name_of(function: Any) -> str:
    """Return the name of a check."""
    return str(getattr(function, "__name__", type(function).__name__))


def repeatable(function: Any) -> Repeatable:
    """Return what a practice needs of a function. Raises InvalidInput."""
    declaration = getattr(function, "repeatable", None)
    if not isinstance(declaration, Repeatable):
        name = getattr(function, "__qualname__", function)
        allowed = "a function that heedful.self_correcting(…, practice=True) decorates"
        raise InvalidInput("function", name, allowed)
    declaration.check()
    return declaration


@dataclass(frozen=True, slots=True, kw_only=True)
class Practice:
    """What a practice did.

    Of the tasks that it `tried`, some `passed`; memory has `learnt` so many examples
    from them. `resting` tasks are not tried until their memory key has a new accepted
    example. `calls`, `tokens` and `cost` are what this practice spent, `why` is why it
    ended, and `errors` are the exceptions of the function and of `on_passed`.
    """

    memory_key: str
    tried: int = 0
    passed: int = 0
    learnt: int = 0
    resting: int = 0
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    why: str = ""
    errors: tuple[str, ...] = ()

    def spent(self, before: Usage, after: Usage) -> Practice:
        """Return the practice with what a loop used between two looks at it."""
        return replace(
            self,
            calls=self.calls + after.calls - before.calls,
            tokens=self.tokens + after.tokens - before.tokens,
            cost=self.cost + after.cost - before.cost,
        )


def practice_allowance(
    name: str, calls: int, *, tokens: int | None, cost: float | None
) -> Allowance:
    """Return what a practice may spend. Raises InvalidInput."""
    check_integer("calls", calls)
    if tokens is not None:
        check_integer("tokens", tokens)
    if cost is not None:
        check_number("cost", cost, low=1e-9, high=MAX_SCORE)
    check_name("allowance", name, MAX_ALLOWANCE_NAME_CHARS)
    return Allowance(
        name=f"practice {name or os.urandom(16).hex()}",
        calls=calls,
        tokens=tokens,
        cost=cost,
    )


async def practise(
    memory: Memory,
    function: Any,
    *,
    allowance: Allowance,
    next_rung: bool = False,
    on_passed: OnPassed | None = None,
    progress: Callable[[Practice], None] | None = None,
) -> Practice:
    """Try the tasks of a function again; see `Memory.practice`."""
    work = _Work(
        memory=memory,
        repeatable=repeatable(function),
        allowance=allowance,
        next_rung=next_rung,
        on_passed=on_passed,
        owner=loops.new_owner(),
    )
    loops.enter(work.owner)
    try:
        return await work.run(progress)
    finally:
        loops.leave(work.owner)


async def asked_most(functions: Sequence[Any]) -> list[tuple[Any, int]]:
    """Return functions with how many loops of users each has, those with most first.

    Raises InvalidInput.
    """
    counts = []
    for function in functions:
        declaration = repeatable(function)
        memory = declaration.own_memory()
        loops_of_users = await memory.store.read(
            memory.scope, practices.asked, declaration.memory_key
        )
        counts.append((function, loops_of_users))
    return sorted(counts, key=lambda pair: -pair[1])


async def practise_all(
    functions: Sequence[Any],
    *,
    allowance: Allowance,
    next_rung: bool = False,
    progress: Callable[[Practice], None] | None = None,
) -> list[Practice]:
    """Practise functions in this order, each in its own memory, within one allowance.

    A database counts what is spent of the allowance there, so what was spent in others
    is taken off before.
    """
    records: list[Practice] = []
    places: list[tuple[str, Scope]] = []
    for function in functions:
        memory = repeatable(function).own_memory()
        place = (memory.store.url, memory.scope)
        elsewhere = [
            record
            for record, other in zip(records, places, strict=True)
            if other != place
        ]
        record = await practise(
            memory,
            function,
            allowance=_left_of(allowance, elsewhere),
            next_rung=next_rung,
            progress=progress,
        )
        records.append(record)
        places.append(place)
    return records


def _left_of(allowance: Allowance, records: Sequence[Practice]) -> Allowance:
    """Return the allowance without what practices spent; nothing left is 0."""
    left: dict[str, Any] = {}
    for unit in ("calls", "tokens", "cost"):
        limit = getattr(allowance, unit)
        if limit is not None:
            spent = sum(getattr(record, unit) for record in records)
            left[unit] = max(0, limit - spent)
    return replace(allowance, **left)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One practice of one function, which claims tasks as `owner`."""

    memory: Memory
    repeatable: Repeatable
    allowance: Allowance
    next_rung: bool
    on_passed: OnPassed | None
    owner: str

    async def run(self, progress: Callable[[Practice], None] | None) -> Practice:
        """Try each task once, until all are tried or the allowance is spent."""
        record = Practice(memory_key=self.repeatable.memory_key)
        tasks = await self._tasks()
        why = ALL_TRIED if tasks else "no task to practise"
        failures = 0
        for task in tasks:
            claim = await self._claim(task)
            if claim is None:
                continue  # somebody else tries it
            try:
                record, error = await self._try(task, claim, record)
            except LeaseLost:
                continue

            failures = failures + 1 if error else 0
            if progress is not None:
                progress(record)
            if isinstance(error, ladders.AllowanceSpent):
                why = str(error)
                break
            if failures == MAX_FAILURES_IN_A_ROW:
                why = f"{failures} tasks in a row failed with an error"
                break

        waiting = await self._read(practices.tasks)
        resting = sum(task.rests for task in waiting)
        return replace(record, why=why, resting=resting)

    async def _tasks(self) -> list[PracticeTask]:
        """Return what is left of earlier practices, and then the tasks to try."""
        unsettled = await self._read(practices.unsettled)
        if self.on_passed is None:
            unsettled = [task for task in unsettled if task.state == "open"]
        first = {task.id for task in unsettled}
        tasks = await self._read(practices.tasks)
        return unsettled + [
            task for task in tasks if task.id not in first and not task.rests
        ]

    async def _read(
        self, read: Callable[[Db, Scope, str, int], list[PracticeTask]]
    ) -> list[PracticeTask]:
        """Return tasks of the function."""
        memory = self.memory
        memory_key = self.repeatable.memory_key
        return await memory.store.read(
            memory.scope, read, memory_key, MAX_PRACTICE_TASKS
        )

    async def _claim(self, task: PracticeTask) -> PracticeClaim | None:
        """Claim a task; None if somebody else has it, or has tried it meanwhile."""
        return await self.memory.store.write(
            self.memory.scope,
            practices.claim,
            task,
            loop=os.urandom(16).hex(),
            owner=self.owner,
            tells=self.on_passed is not None,
        )

    async def _try(
        self, task: PracticeTask, claim: PracticeClaim, record: Practice
    ) -> tuple[Practice, HeedfulError | None]:
        """Drive the loop of a claimed task; return the record, and why it failed."""
        store = self.memory.store
        scope = self.memory.scope
        before = await self._usage(claim)
        result = PracticeResult(passed=False)
        error: HeedfulError | None = None
        try:
            result = await self.repeatable.drive(
                claim,
                memory=self.memory,
                allowance=self.allowance,
                next_rung=self.next_rung or claim.climbs,
            )
        except (ladders.AllowanceSpent, UserCodeError, ModelError) as failure:
            error = failure

        record = record.spent(before, await self._usage(claim))
        if isinstance(error, ladders.AllowanceSpent):
            await store.write(scope, practices.release, claim)
            return record, error
        if task.state != "passed":
            record = await self._end(claim, record, result=result, error=error)
        if not result.passed:
            return record, error

        problems: tuple[str, ...] = ()
        if claim.untold:
            problems = await self._tell(claim, result.candidate)
        is_told = self.on_passed is not None and not problems
        await store.write(scope, practices.release, claim, is_told=is_told)
        return replace(record, errors=(*record.errors, *problems)), error

    async def _end(
        self,
        claim: PracticeClaim,
        record: Practice,
        *,
        result: PracticeResult,
        error: HeedfulError | None,
    ) -> Practice:
        """Write how a task ended; return the record with it."""
        store = self.memory.store
        scope = self.memory.scope
        await store.write(
            scope,
            practices.end,
            claim,
            memory_key=self.repeatable.memory_key,
            passed=result.passed,
            is_open=error is not None,
        )
        record = replace(record, tried=record.tried + 1)
        if error is not None:
            text = f"loop {claim.loop}: {type(error).__name__}: {error}"
            text = redact_start(text, MAX_PRACTICE_ERROR_CHARS)
            _log.warning("heedful: a practice failed: %s", text)
            record = replace(record, errors=(*record.errors, text))
        if result.passed:
            learnt = await store.read(scope, practices.learnt, claim.loop)
            record = replace(
                record, passed=record.passed + 1, learnt=record.learnt + learnt
            )
        return record

    async def _tell(self, claim: PracticeClaim, candidate: Any) -> tuple[str, ...]:
        """Call `on_passed`; return what it raised, which the next practice retries."""
        on_passed = self.on_passed
        if on_passed is None:
            return ()
        context = Context(claim.task, loop_id=claim.loop)
        try:
            await call(
                _on_passed_failed,
                partial(on_passed, claim.task, candidate, claim.loop),
                at=context,
                thread=blocking(on_passed),
            )
        except HeedfulError as error:
            text = redact_start(f"loop {claim.loop}: {error}", MAX_PRACTICE_ERROR_CHARS)
            _log.warning("heedful: on_passed failed: %s", text)
            return (text,)
        return ()

    async def _usage(self, claim: PracticeClaim) -> Usage:
        """Return what the loop of a practice has used so far."""
        try:
            stored_loop = await self.memory.store.read(
                self.memory.scope, loops.read_decisions, claim.loop
            )
        except NotFound:
            return Usage()
        return stored_loop.loop.usage


def _on_passed_failed(error: BaseException) -> UserCodeError:
    """Return the error for an exception of `on_passed`."""
    reason = f"{type(error).__name__}: {redact(str(error))}"
    return UserCodeError(f"on_passed raised {reason}; the next practice calls it again")
