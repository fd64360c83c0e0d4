"""How a driven loop ended.

What a host is given, looked at before anything is spent.
Host (a): drive a loop in this process, durably: generate, evaluate, decide, again.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from heedful import telemetry
from heedful.checks.evaluate import Check, Context, Evaluate, Feedback, evaluated, pure, worded
from heedful.drive.generate import Generate, Produced, Revise, Writer, generator, produce, revised
from heedful.drive.journal import LoopRecorder, attempted, cancelled, decided, journal, text_of
from heedful.errors import InvalidInput, ModelError, ModelTimeout, UserCodeError
from heedful.lessons.lesson import Scope
from heedful.loop import policies
from heedful.loop.decide import (
    Again,
    Done,
    Policy,
    Verdict,
    apply_override,
    consume_overrides,
    decide,
    latest_verdict,
)
from heedful.loop.explain import Explanation, explain
from heedful.loop.record import (
    Attempt,
    Candidate,
    Evaluation,
    Goal,
    Loop,
    Override,
    Usage,
    check_goals,
)
from heedful.loop.stop import Budget, Stop, counts_scope, find_near_repeat
from heedful.memory.memory import Memory
from heedful.models.contract import Model
from heedful.redact import redact
from heedful.store.records import JournalEntry
from heedful.store.store import Store

C = TypeVar("C")


@dataclass(frozen=True)
class Result(Generic[C]):
    """How a loop ended. `candidate` is the best one, None where no attempt was evaluated."""

    id: str
    candidate: C | None
    verdict: Done
    loop: Loop
    policy: Policy

    @property
    def passed(self) -> bool:
        """Whether the candidate has no error and meets every goal."""
        return self.verdict.passed

    @property
    def best(self) -> int | None:
        """The number of the attempt that `candidate` comes from."""
        return self.verdict.best

    @property
    def stopped_by(self) -> tuple[Stop, ...]:
        """The rules that stopped the loop, the one that counts first; empty where it passed."""
        return self.verdict.stopped_by

    @property
    def usage(self) -> Usage:
        """What all attempts cost."""
        return self.loop.usage

    def explain(self) -> Explanation:
        """Why it went on, why it stopped, and what would have changed it."""
        return explain(self.loop, self.policy)


def given(
    id: str,
    checks: Sequence[Check],
    goals: Sequence[Goal],
    policy: Policy,
    labels: Mapping[str, str] | None,
    timeout: float | None,
) -> None:
    """Raises InvalidInput that names the argument, before anything is spent."""
    if not isinstance(policy, Policy):
        raise InvalidInput("policy", policy, "a Policy, such as heedful.policies.default")
    if redact(str(id)) != str(id):
        raise InvalidInput("id", id, "a name without a secret: it is stored as it is")
    if not isinstance(checks, Sequence) or not all(map(callable, checks)):
        raise InvalidInput("checks", checks, "a list of callables (candidate, context)")
    if not isinstance(goals, Sequence) or not all(isinstance(goal, Goal) for goal in goals):
        raise InvalidInput("goals", goals, "a list of Goal")
    check_goals(tuple(goals))
    if labels is not None and not _texts(labels):
        raise InvalidInput("labels", labels, "a mapping of names to texts")
    if timeout is not None and not 0 < timeout < float("inf"):
        raise InvalidInput("timeout", timeout, "a number of seconds above 0")


def _texts(labels: Any) -> bool:
    named = isinstance(labels, Mapping)
    return named and all(isinstance(text, str) for pair in labels.items() for text in pair)


# What a sampling generator is told after a repeat: greedy decoding gives the rejected answer again.
WARMER = 0.5
WARMEST = 1.0


@dataclass(frozen=True)
class _State:
    loop: Loop
    values: tuple[Any, ...] = ()
    verdict: Verdict = field(default_factory=Again)
    finished: tuple[str, Produced] | None = None  # a journalled answer that is not recorded yet


class Run(Generic[C]):
    """One loop, one attempt at a time; with a store it can be resumed by its `id`.

    Arguments as of `run`. The state is what the journal says; it is read at the first step.
    """

    _state: _State | None = None

    def __init__(
        self,
        task: Any,
        *,
        generate: Generate | Writer | Model,
        checks: Sequence[Check] = (),
        evaluate: Evaluate | None = None,
        goals: Sequence[Goal] = (),
        policy: Policy = policies.default,
        revise: Revise | None = None,
        memory: Memory | Store | str | None = None,
        initial: C | None = None,
        store: Store | str | None = "heedful.db",
        id: str = "",
        scope: Scope | None = None,
        data: Any = None,
        labels: Mapping[str, str] | None = None,
        timeout: float | None = None,
        temperature: float = 0.0,
        seed: int = 0,
        feedback: Feedback | None = None,
        examples: bool = True,
    ) -> None:
        given(id, checks, goals, policy, labels, timeout)
        self.id: str = id or os.urandom(16).hex()
        self.policy = policy
        self._task, self._data, self._initial = task, data, initial
        self._generate = generator(generate)
        self._revise, self._evaluate, self._feedback = revise, evaluate, feedback
        self._samples = isinstance(self._generate, Writer) and revise is None
        self._pure = pure(checks, evaluate)
        self._checks, self._goals = tuple(checks), tuple(goals) or policy.goals
        remembers = memory if memory is None else Memory.of(memory, scope)
        self._timeout, self._labels = timeout, dict(labels or {})
        self._temperature, self._seed = temperature, seed
        there = scope or (remembers.scope if remembers else None)
        self._journal = journal(store, there, self.id, known=bool(id))
        judged = bool(checks or evaluate)
        self._record = LoopRecorder(self._journal, remembers, text_of(task), judged, examples)
        self._lock, self._began = asyncio.Lock(), 0.0

    @property
    def _budgets(self) -> list[Budget]:
        return [rule for rule in self.policy.rules if isinstance(rule, Budget)]

    @property
    def loop(self) -> Loop:
        """The loop as far as it has come; before the first step it has no attempt."""
        return self._state.loop if self._state else Loop(self.id, self._goals)

    async def step(self) -> Verdict:
        """Make one attempt and decide; a loop that has ended answers its verdict again.

        Raises UserCodeError, ModelError or StoreError; the loop stays open and can be resumed.
        """
        return (await self._held(self._attempted)).verdict

    async def reconsider(self) -> Verdict:
        """Judge the last candidate once more, as another attempt; without one, make the first.

        For a loop that has ended on checks that are mended by now. Raises as `step`.
        """

        async def anew(state: _State) -> _State:
            if state.values:
                key = f"{len(state.values) + 1}/answer"
                given = Produced((state.values[-1],), Usage())
                state = replace(state, verdict=Again(), finished=(key, given))
            return await self._attempted(state)

        return (await self._held(anew)).verdict

    @telemetry.loop
    async def finish(self) -> Result[C]:
        """Step until the loop has ended."""
        while not isinstance(verdict := await self.step(), Done):
            pass
        return self._result(verdict)

    async def cancel(self, by: str) -> Verdict:
        """End the loop on request; `by` says whose. A loop that has ended stays as it is."""

        async def ended(state: _State) -> _State:
            if isinstance(state.verdict, Done):
                return state
            loop, verdict, entry = cancelled(state.loop, self.policy, by, time.time())
            await self._record.commit(entry, loop)
            return replace(state, loop=loop, verdict=verdict)

        return (await self._held(ended)).verdict

    async def override(
        self, rule: str, by: str, why: str = "", decisions: int = 1, until: float | None = None
    ) -> Verdict:
        """Let the loop go on past one rule for a number of decisions; a stopped loop reopens.

        `until`, in seconds since 1970, is when the override expires. Raises OverrideRefused for a
        rule that cannot be lifted or that the policy does not have, without an actor, where it has
        expired, or on a loop that passed.
        """

        async def lifted(state: _State) -> _State:
            given = Override(rule, by, why, decisions, until=until)
            loop = replace(state.loop, at=time.time())
            after, verdict = apply_override(loop, self.policy, state.verdict, given)
            verdict = await self._worded(state, after, verdict)
            entry = JournalEntry(self.id, 0)
            if isinstance(state.verdict, Done):
                await self._record.brief(self.id, begins=False)
                entry = decided(loop, self.policy, verdict)
            await self._record.commit(replace(entry, override=given), loop)
            return replace(state, loop=after, verdict=verdict)

        return (await self._held(lifted)).verdict

    async def _held(self, work: Callable[[_State], Awaitable[_State]]) -> _State:
        """The state after some work on it, the loop held meanwhile."""
        async with self._lock, self._journal.at_work():
            self._state, state = self._state or await self._opened(), None
            try:
                self._state = state = await work(self._state)
                return state
            finally:
                # A write may have landed though nobody waited for it: only the journal knows.
                if state is None and self._journal.reread():
                    self._state = None

    async def _opened(self) -> _State:
        """The state that the journal holds, or a fresh one."""
        stored = await self._journal.open(self._task, self._goals, self.policy)
        self._began = self._began or (stored.created if stored else time.time())
        state = _State(Loop(self.id, self._goals, improves=self.policy.improvement))
        if stored is not None:
            loop = replace(stored.loop, goals=self._goals, improves=self.policy.improvement)
            last = latest_verdict(stored.decisions)
            state = replace(state, loop=loop, values=stored.values, verdict=last)
            self._data = stored.head.context if self._data is None else self._data
            for key, plain in stored.journal.items():
                state = replace(state, finished=(key, Produced.of(plain)))
        if self._journal.durable and any(map(counts_scope, self.policy.rules)):
            echoes = await self._journal.echoes()
            state = replace(state, loop=replace(state.loop, echoes=echoes))
        await self._record.opened(state.loop, state.verdict, state.finished is not None)
        return state

    @telemetry.attempt
    async def _attempted(self, state: _State) -> _State:
        """One more attempt, evaluated, decided and committed; none where the loop has ended."""
        if isinstance(state.verdict, Done):
            return state
        if any(budget(state.loop) for budget in self._budgets):
            return await self._over(state)  # calls that failed have spent it
        began = time.perf_counter() - (state.finished[1].usage.seconds if state.finished else 0)
        room = self._room(state.loop)
        left = max(0.001, room + began - time.perf_counter()) if room is not None else None
        limits = [t for t in (left, self._timeout) if t is not None]
        try:
            if limits:
                async with asyncio.timeout(min(limits)):
                    value, attempt = await self._try(state, began)
            else:
                value, attempt = await self._try(state, began)
        except TimeoutError:
            seconds = time.perf_counter() - began
            if left is not None and room is not None and left <= min(limits):
                return await self._out_of_time(max(room, seconds))
            await self._cut(seconds)
            again = f"; the loop can be resumed as {self.id!r}" if self._journal.durable else ""
            raise ModelTimeout(
                f"attempt {len(state.loop.attempts) + 1} had no result within "
                f"{self._timeout:g} s{again}"
            ) from None
        except (UserCodeError, ModelError) as error:
            await self._cut(time.perf_counter() - began, getattr(error, "usage", None))
            raise
        return await self._decided(state, value, attempt)

    async def _decided(self, state: _State, value: Any, attempt: Attempt) -> _State:
        """The state after this attempt, its verdict and all written down."""
        loop = attempted(state.loop, attempt, time.time())
        verdict = await self._worded(state, loop, decide(loop, self.policy))
        entry = JournalEntry(self.id, 0, verdict=verdict)
        if self._journal.durable:
            entry = decided(loop, self.policy, verdict)
        await self._record.commit(replace(entry, attempt=attempt, value=value), loop)
        return _State(consume_overrides(loop, verdict), (*state.values, value), verdict)

    async def _worded(self, state: _State, loop: Loop, verdict: Verdict) -> Verdict:
        """The verdict in the user's own words, where another attempt is made."""
        evaluation = loop.attempts[-1].evaluation if loop.attempts else None
        if not (isinstance(verdict, Again) and self._feedback and evaluation):
            return verdict
        at = self._context(state, len(loop.attempts))
        said = await worded(self._feedback, evaluation, loop.goals, at)
        return replace(verdict, feedback=said)

    async def _try(self, state: _State, began: float) -> tuple[Any, Attempt]:
        loop, number = state.loop, len(state.loop.attempts) + 1
        at = self._context(state, number)
        key = f"{number}/answer"
        if state.finished is not None and state.finished[0] == key:
            produced = state.finished[1]
        else:
            produced = await self._produced(state, at)
            cost = produced.usage.lasting(time.perf_counter() - began)
            produced = Produced(produced.values, cost)
            plain = produced.plain() if self._journal.durable else None
            if plain and not self._pure:
                await self._record.commit(JournalEntry(self.id, 0, step=(key, plain)), loop)
            self._state = _State(loop, state.values, state.verdict, (key, produced))
        value, evaluation = await self._best_of(loop, produced, at)
        candidate = Candidate.of(value)
        usage = (produced.usage + evaluation.usage).lasting(time.perf_counter() - began)
        seen = find_near_repeat(candidate, loop.attempts) if loop.attempts else None
        greedy = self._samples and at.temperature == 0
        return value, Attempt(number, candidate, evaluation, usage, seen, self._labels, greedy)

    async def _produced(self, state: _State, at: Context) -> Produced:
        if at.attempt == 1 and self._initial is not None:
            return Produced((self._initial,), Usage())
        if self._revise is not None and at.attempt > 1:
            last = state.loop.attempts[-1].evaluation
            return await revised(self._revise, at, at.previous, last.findings if last else ())
        return await produce(self._generate, at)

    async def _best_of(self, loop: Loop, produced: Produced, at: Context) -> tuple[Any, Evaluation]:
        """Evaluate every candidate; the best by errors, goals met, preference, and margin."""
        tried = [
            (value, await evaluated(value, at, self._checks, self._evaluate))
            for value in produced.values
        ]
        if len(tried) == 1:
            return tried[0]

        def order(one: tuple[Any, Evaluation]) -> tuple[float, ...]:
            errors, missed, margin, _ = loop.rank(0, one[1])
            return errors, missed, -one[1].preference, margin

        value, best = min(tried, key=order)
        return value, replace(best, usage=sum((one.usage for _, one in tried), Usage()))

    def _context(self, state: _State, number: int) -> Context:
        verdict, repeats = state.verdict, state.loop.repeats
        warmer = min(WARMEST, self._temperature + WARMER * repeats)
        return Context(
            self._task,
            number,
            self.id,
            verdict.feedback if isinstance(verdict, Again) else "",
            state.values[-1] if state.values else None,
            self._data,
            max(warmer, self._temperature),
            self._seed + number - 1,
            self._record.briefing.examples,
            self._record.briefing.advice,
            self._began,
        )

    def _room(self, loop: Loop) -> float | None:
        """How many seconds the next attempt may take as a whole; None where nothing bounds it."""
        limits = [budget.seconds for budget in self._budgets if budget.seconds]
        return min(limits) - loop.usage.seconds if limits else None

    async def _out_of_time(self, seconds: float) -> _State:
        """The budget of seconds ran out within an attempt: what was spent counts, and it ends."""
        state = self._state or _State(Loop(self.id))
        spent = state.finished[1].usage if state.finished else Usage(calls=1)
        loop = replace(state.loop, extra=state.loop.extra + spent.lasting(seconds))
        return await self._over(replace(state, loop=loop))

    async def _over(self, state: _State) -> _State:
        """A budget is spent without another attempt."""
        loop = replace(state.loop, at=time.time())
        verdict = decide(loop, self.policy)
        entry = replace(decided(loop, self.policy, verdict), extra=loop.extra)
        await self._record.commit(entry, loop)
        return replace(state, verdict=verdict, finished=None)

    async def _cut(self, seconds: float, judging: Usage | None = None) -> None:
        """An attempt was given up or failed: what it spent counts, and an answer it had is kept."""
        state = self._state or _State(Loop(self.id))
        extra, step = Usage(1, seconds=seconds), None
        if state.finished:
            key, produced = state.finished
            seconds = max(0.0, seconds - produced.usage.seconds)
            extra = (judging or Usage()).lasting(seconds)
            step = (key, produced.plain()) if self._journal.durable else None
        loop = replace(state.loop, extra=state.loop.extra + extra)
        await self._record.commit(JournalEntry(self.id, 0, step=step, extra=loop.extra), loop)
        self._state = replace(state, loop=loop)

    def _result(self, verdict: Done) -> Result[C]:
        state = self._state or _State(Loop(self.id))
        value = state.values[verdict.best - 1] if verdict.best else None
        return Result(self.id, value, verdict, state.loop, self.policy)


async def run(
    task: Any,
    *,
    generate: Generate | Writer | Model,
    checks: Sequence[Check] = (),
    evaluate: Evaluate | None = None,
    goals: Sequence[Goal] = (),
    policy: Policy = policies.default,
    revise: Revise | None = None,
    memory: Memory | Store | str | None = None,
    initial: Any = None,
    store: Store | str | None = "heedful.db",
    id: str = "",
    scope: Scope | None = None,
    data: Any = None,
    labels: Mapping[str, str] | None = None,
    timeout: float | None = None,  # noqa: ASYNC109 - one attempt's, not this call's
    temperature: float = 0.0,
    seed: int = 0,
    feedback: Feedback | None = None,
    examples: bool = True,
) -> Result[Any]:
    """Drive one task until it passes or a rule stops it.

    `generate(task, hint)` returns a candidate, or a list of them: all are evaluated, the best is
    the attempt's; a Model or a Writer is a generator too. `checks` find what is wrong, `evaluate`
    scores, `goals` say which scores are enough. `revise(task, candidate, findings)` makes the next
    candidate out of the last. An `initial` candidate counts as attempt 1. With `memory`, accepted
    answers are recalled and learnt. `store` makes it durable (None: not at all), and under a given
    `id` it can be resumed. `data` reaches checks and generator as `Context.data`. `labels`, who
    took part, are kept with each attempt. `timeout` bounds one attempt, in seconds. `temperature`
    and `seed` are where a sampling generator begins. `feedback(evaluation, goals)` words what the
    next attempt reads. Without `examples` memory keeps and shows no output of a candidate, only
    what was wrong and what mended it.

    Raises UserCodeError, ModelError or StoreError; the loop stays open and can be resumed.
    """
    options = dict(locals())  # every argument by its name, which is that of Run's
    return await Run[Any](**options).finish()
