"""Host (a): drive a loop in this process, durably: generate, evaluate, decide, and repeat."""

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
from heedful.drive.journal import (
    LoopRecorder,
    after_commit,
    append_attempt,
    cancel_loop,
    decision_entry,
    journal,
    text_of,
)
from heedful.errors import InvalidInput, ModelError, ModelTimeout, UserCodeError
from heedful.lessons.lesson import Scope
from heedful.loop import policies
from heedful.loop.codec import policy_to, to_document
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
from heedful.store.records import Head, JournalEntry, Kind, StageHead, StoredLoop
from heedful.store.store import Store

C = TypeVar("C")


@dataclass(frozen=True)
class Result(Generic[C]):
    """How a loop ended; `candidate` is the best one, or None if no attempt was evaluated."""

    id: str
    candidate: C | None
    verdict: Done
    loop: Loop
    policy: Policy

    @property
    def passed(self) -> bool:
        """True if the candidate has no error and meets every goal."""
        return self.verdict.passed

    @property
    def best(self) -> int | None:
        """The number of the attempt that `candidate` comes from."""
        return self.verdict.best

    @property
    def stopped_by(self) -> tuple[Stop, ...]:
        """The rules that stopped the loop, the most important first; empty if it passed."""
        return self.verdict.stopped_by

    @property
    def usage(self) -> Usage:
        """The usage of all attempts together."""
        return self.loop.usage

    def explain(self) -> Explanation:
        """Explain why the loop went on, why it stopped, and what would have changed that."""
        return explain(self.loop, self.policy)


def validate_arguments(
    id: str,
    checks: Sequence[Check],
    goals: Sequence[Goal],
    policy: Policy,
    labels: Mapping[str, str] | None,
    timeout: float | None,
) -> None:
    """Raise InvalidInput, which names the wrong argument, before anything is spent."""
    if not isinstance(policy, Policy):
        raise InvalidInput("policy", policy, "a Policy, such as heedful.policies.default")
    if redact(str(id)) != str(id):
        raise InvalidInput("id", id, "a name without a secret: it is stored as it is")
    if not isinstance(checks, Sequence) or not all(map(callable, checks)):
        raise InvalidInput("checks", checks, "a list of callables (candidate, context)")
    if not isinstance(goals, Sequence) or not all(isinstance(goal, Goal) for goal in goals):
        raise InvalidInput("goals", goals, "a list of Goal")
    check_goals(tuple(goals))
    if labels is not None and not (
        isinstance(labels, Mapping)
        and all(isinstance(text, str) for pair in labels.items() for text in pair)
    ):
        raise InvalidInput("labels", labels, "a mapping of names to texts")
    if timeout is not None and not 0 < timeout < float("inf"):
        raise InvalidInput("timeout", timeout, "a number of seconds above 0")


# After each repeat the temperature rises: greedy decoding gives the rejected answer again.
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

    Takes the arguments of `run`. The state is read from the journal at the first step.
    """

    _state: _State | None = None
    _stage: StageHead | None = None  # of the pipeline, if it is the loop of a stage

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
        validate_arguments(id, checks, goals, policy, labels, timeout)
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
        self._recorder = LoopRecorder(
            self._journal.commit,
            remembers,
            text_of(task),
            together=remembers is not None
            and self._journal.shares(remembers.store, remembers.scope),
            judged=bool(checks or evaluate),
            examples=examples,
        )
        self._lock, self._began = asyncio.Lock(), 0.0
        self._stored: StoredLoop | None = None

    @classmethod
    def of_stage(cls, stage: StageHead, task: Any, **options: Any) -> Run[C]:
        """Return the loop of a pipeline's stage, with the options of `run`."""
        run = cls(task, **options)
        run._stage = stage
        return run

    @property
    def _budgets(self) -> list[Budget]:
        return [rule for rule in self.policy.rules if isinstance(rule, Budget)]

    @property
    def loop(self) -> Loop:
        """The loop so far; before the first step it has no attempt."""
        return self._state.loop if self._state else Loop(self.id, self._goals)

    @property
    def stored(self) -> StoredLoop | None:
        """The loop as its journal holds it: without secrets, each decision with its time.

        `values` and `journal` are those that were read at the first step, before which it is None.
        """
        return self._stored

    async def step(self) -> Verdict:
        """Make one attempt and decide; a loop that has ended returns its verdict again.

        Raises UserCodeError, ModelError or StoreError; the loop stays open and can be resumed.
        """
        return (await self._change(self._attempt)).verdict

    async def reconsider(self) -> Verdict:
        """Judge the last candidate once more, as another attempt; without one, make the first.

        For a loop that ended because of checks that have been fixed since. Raises as `step`.
        """

        async def judge_again(state: _State) -> _State:
            if state.values:
                key = f"{len(state.values) + 1}/answer"
                last = Produced((state.values[-1],), Usage())
                state = replace(state, verdict=Again(), finished=(key, last))
            return await self._attempt(state)

        return (await self._change(judge_again)).verdict

    @telemetry.loop
    async def finish(self) -> Result[C]:
        """Step until the loop has ended."""
        while not isinstance(verdict := await self.step(), Done):
            pass
        return self._result(verdict)

    async def cancel(self, by: str) -> Verdict:
        """End the loop on request of `by`. A loop that has ended stays as it is."""

        async def end(state: _State) -> _State:
            if isinstance(state.verdict, Done):
                return state
            loop, verdict, entry = cancel_loop(state.loop, self.policy, by, time.time())
            await self._commit(entry, loop)
            return replace(state, loop=loop, verdict=verdict)

        return (await self._change(end)).verdict

    async def override(
        self, rule: str, by: str, why: str = "", decisions: int = 1, until: float | None = None
    ) -> Verdict:
        """Let the loop go on past one rule for a number of decisions; a stopped loop reopens.

        `until`, in seconds since 1970, is when the override expires. Raises OverrideRefused for a
        rule that cannot be lifted or that the policy does not have, without an actor, if the
        override has expired, or if the loop passed.
        """

        async def lift(state: _State) -> _State:
            new = Override(rule, by, why, decisions, until=until)
            loop = replace(state.loop, at=time.time())
            after, verdict = apply_override(loop, self.policy, state.verdict, new)
            verdict = await self._worded(state, after, verdict)
            entry = JournalEntry(self.id, 0)
            if isinstance(state.verdict, Done):
                await self._recorder.brief(self.id, begins=False)
                entry = decision_entry(loop, self.policy, verdict)
            await self._commit(replace(entry, override=new), loop)
            return replace(state, loop=after, verdict=verdict)

        return (await self._change(lift)).verdict

    async def _change(self, work: Callable[[_State], Awaitable[_State]]) -> _State:
        """Hold the loop while `work` makes its next state."""
        async with self._lock, self._journal.at_work():
            self._state, state = self._state or await self._open(), None
            try:
                self._state = state = await work(self._state)
                return state
            finally:
                # A write may have succeeded without an answer: only the journal knows.
                if state is None and self._journal.reread():
                    self._state = None

    async def _open(self) -> _State:
        """Return the state that the journal holds, or the first one."""
        stored = None
        if self._journal.durable or self._stage is not None:
            kind: Kind = "loop" if self._stage is None else "stage"
            goals = [to_document(goal) for goal in self._goals]
            head = Head(self._task, goals, policy_to(self.policy), None, kind, self._stage)
            stored = await self._journal.open(head)
            if self._stage is not None:
                at = self._began or time.time()
                empty = StoredLoop(self.id, head, Loop(self.id, self._goals), (), (), {}, 1, at, at)
                self._stored = stored or empty
                self._began = self._began or self._stored.created
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
        await self._recorder.opened(state.loop, state.verdict, state.finished is not None)
        return state

    @telemetry.attempt
    async def _attempt(self, state: _State) -> _State:
        """Make, judge, decide and write one more attempt, unless the loop has ended."""
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
            await self._record_failure(seconds)
            again = f"; the loop can be resumed as {self.id!r}" if self._journal.durable else ""
            raise ModelTimeout(
                f"attempt {len(state.loop.attempts) + 1} had no result within "
                f"{self._timeout:g} s{again}"
            ) from None
        except (UserCodeError, ModelError) as error:
            await self._record_failure(time.perf_counter() - began, getattr(error, "usage", None))
            raise
        loop = append_attempt(state.loop, attempt, time.time())
        verdict = await self._worded(state, loop, decide(loop, self.policy))
        durable = self._journal.durable
        entry = JournalEntry(self.id, 0, verdict=verdict)
        entry = decision_entry(loop, self.policy, verdict) if durable else entry
        await self._commit(replace(entry, attempt=attempt, value=value), loop)
        return _State(consume_overrides(loop, verdict), (*state.values, value), verdict)

    async def _commit(self, entry: JournalEntry, loop: Loop) -> None:
        """Write an entry, and keep what was written of it."""
        committed = await self._recorder.commit(entry, loop)
        if self._stored is not None:
            self._stored = after_commit(self._stored, entry, committed)

    async def _worded(self, state: _State, loop: Loop, verdict: Verdict) -> Verdict:
        """Return the verdict; if another attempt follows, with feedback in the user's words."""
        evaluation = loop.attempts[-1].evaluation if loop.attempts else None
        if not (isinstance(verdict, Again) and self._feedback and evaluation):
            return verdict
        at = self._context(state, len(loop.attempts))
        feedback = await worded(self._feedback, evaluation, loop.goals, at)
        return replace(verdict, feedback=feedback)

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
                await self._commit(JournalEntry(self.id, 0, step=(key, plain)), loop)
            self._state = _State(loop, state.values, state.verdict, (key, produced))
        value, evaluation = await self._best_of(loop, produced, at)
        candidate = Candidate.of(value)
        usage = (produced.usage + evaluation.usage).lasting(time.perf_counter() - began)
        seen = find_near_repeat(candidate, loop.attempts) if loop.attempts else None
        greedy = self._samples and at.temperature == 0
        judged_by = self._stage.checks if self._stage else ()
        return value, Attempt(
            number,
            candidate,
            evaluation,
            usage,
            seen,
            self._labels,
            greedy,
            judged_by=judged_by,
        )

    async def _produced(self, state: _State, at: Context) -> Produced:
        if at.attempt == 1 and self._initial is not None:
            return Produced((self._initial,), Usage())
        if self._revise is not None and at.attempt > 1:
            last = state.loop.attempts[-1].evaluation
            return await revised(self._revise, at, at.previous, last.findings if last else ())
        return await produce(self._generate, at)

    async def _best_of(self, loop: Loop, produced: Produced, at: Context) -> tuple[Any, Evaluation]:
        """Judge every candidate; return the best by errors, goals met, preference and margin."""
        tried = [
            (value, await evaluated(value, at, self._checks, self._evaluate))
            for value in produced.values
        ]
        if len(tried) == 1:
            return tried[0]

        def order(candidate: tuple[Any, Evaluation]) -> tuple[float, ...]:
            errors, missed, margin, _ = loop.rank(0, candidate[1])
            return errors, missed, -candidate[1].preference, margin

        value, best = min(tried, key=order)
        return value, replace(best, usage=sum((each.usage for _, each in tried), Usage()))

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
            self._recorder.briefing.examples,
            self._recorder.briefing.advice,
            self._began,
        )

    def _room(self, loop: Loop) -> float | None:
        """Return how many seconds the next attempt may take; None if nothing limits it."""
        limits = [budget.seconds for budget in self._budgets if budget.seconds]
        return min(limits) - loop.usage.seconds if limits else None

    async def _out_of_time(self, seconds: float) -> _State:
        """End the loop because an attempt used up the budget of seconds; its cost counts."""
        state = self._state or _State(Loop(self.id))
        spent = state.finished[1].usage if state.finished else Usage(calls=1)
        loop = replace(state.loop, extra=state.loop.extra + spent.lasting(seconds))
        return await self._over(replace(state, loop=loop))

    async def _over(self, state: _State) -> _State:
        """End the loop because a budget is spent, without another attempt."""
        loop = replace(state.loop, at=time.time())
        verdict = decide(loop, self.policy)
        entry = replace(decision_entry(loop, self.policy, verdict), extra=loop.extra)
        await self._commit(entry, loop)
        return replace(state, verdict=verdict, finished=None)

    async def _record_failure(self, seconds: float, judging: Usage | None = None) -> None:
        """Count what a failed attempt spent, and keep its answer if it had one."""
        state = self._state or _State(Loop(self.id))
        extra, step = Usage(1, seconds=seconds), None
        if state.finished:
            key, produced = state.finished
            seconds = max(0.0, seconds - produced.usage.seconds)
            extra = (judging or Usage()).lasting(seconds)
            step = (key, produced.plain()) if self._journal.durable else None
        loop = replace(state.loop, extra=state.loop.extra + extra)
        await self._commit(JournalEntry(self.id, 0, step=step, extra=loop.extra), loop)
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

    `generate(task, hint)` returns a candidate, or a list of candidates; the best becomes
    the attempt; a Model or a Writer is a generator too. `checks` find what is wrong, `evaluate`
    scores, and `goals` say which scores are enough. `revise(task, candidate, findings)` makes the
    next candidate from the last. An `initial` candidate counts as attempt 1. With `memory`,
    accepted answers are recalled and learnt. `store` makes the loop durable (None keeps nothing),
    and a loop with an `id` can be resumed. Checks and generator find `data` as `Context.data`.
    `labels` (who took part) are kept with each attempt. `timeout` limits one attempt, in seconds.
    A sampling generator begins with `temperature` and `seed`. `feedback(evaluation, goals)` writes
    what the next attempt reads. Without `examples` memory keeps and shows no output of a
    candidate, only what was wrong and how it was fixed.

    Raises UserCodeError, ModelError or StoreError; the loop stays open and can be resumed.
    """
    options = dict(locals())  # Run has the same arguments
    return await Run[Any](**options).finish()
