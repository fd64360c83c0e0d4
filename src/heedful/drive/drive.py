"""Drive a loop in this process: generate, evaluate, decide, and repeat until the loop
ends.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from inspect import isfunction
from typing import Any, Generic, TypeVar

from heedful import errors, telemetry
from heedful.checks.evaluate import (
    Check,
    Context,
    Evaluate,
    Feedback,
    evaluated,
    pure,
    worded,
)
from heedful.drive import journal
from heedful.drive.generate import (
    CandidateBatch,
    Generate,
    Revise,
    Writer,
    generator,
    objects,
    produce,
    revised,
)
from heedful.lessons.briefing import PROMPT_FORMS, Briefing, Tell
from heedful.lessons.lesson import Scope
from heedful.loop import codec, decide, policies, record, stop
from heedful.loop.explain import Explanation, explain
from heedful.loop.runs import StageHead
from heedful.memory.memory import Memory
from heedful.models.call import RETRY_TEMPERATURE_STEP
from heedful.models.contract import Model
from heedful.redact import redact
from heedful.store.records import Head, JournalEntry, Kind
from heedful.store.store import Store
from heedful.validation import require

C = TypeVar("C")


@dataclass(frozen=True)
class Result(Generic[C]):
    """The result of a loop. `candidate` is the best evaluated candidate, or None.

    `briefing` says what memory told the loop before each attempt, and what it withheld
    and why.
    """

    id: str
    candidate: C | None
    _: KW_ONLY
    verdict: decide.Done
    loop: record.Loop
    policy: decide.Policy
    briefing: Briefing | None = None

    @property
    def passed(self) -> bool:
        """True if the candidate has no error and meets every goal."""
        return self.verdict.passed

    @property
    def best(self) -> int | None:
        """The number of the attempt that made `candidate`, from 1; None without a
        candidate.
        """
        return self.verdict.best

    @property
    def stopped_by(self) -> tuple[stop.Stop, ...]:
        """The rules that stopped the loop, the most important first; empty if the loop
        passed.
        """
        return self.verdict.stopped_by

    @property
    def wrong(self) -> tuple[str, ...]:
        """What is wrong with `candidate`: each error, and each goal that it misses."""
        judged = self.loop.attempts[self.best - 1].evaluation if self.best else None
        found = decide.triggers(judged, self.loop.goals) if judged else ()
        return tuple(each.detail for each in found)

    @property
    def usage(self) -> record.Usage:
        """The usage of all attempts together, including failed attempts."""
        return self.loop.usage

    def explain(self) -> Explanation:
        """Explain why the loop continued, why it ended, and what would have changed
        that.
        """
        return explain(self.loop, self.policy)


def validate_arguments(
    id: str,
    checks: Sequence[Check],
    goals: Sequence[record.Goal | str],
    policy: decide.Policy | str,
    timeout: float | None = None,
    evaluate: Evaluate | None = None,
    memory_key: str | None = None,
) -> tuple[decide.Policy, tuple[record.Goal, ...]]:
    """Check the arguments of a loop; return the policy and the goals, which may be
    given as text.

    Without `goals`, the goals are those of the policy. Raises InvalidInput,
    UnknownName.
    """
    if not isinstance(policy, decide.Policy):
        policy = policies.policy(policy)
    if redact(str(id)) != str(id):
        raise errors.InvalidInput(
            "id", id, "a name without a secret: ids are not redacted"
        )
    if not isinstance(checks, Sequence) or not all(map(callable, checks)):
        raise errors.InvalidInput(
            "checks", checks, "a list of callables (candidate, context)"
        )
    for check in checks:
        name = getattr(check, "__qualname__", ".")
        if "." not in name and str(check.__module__).startswith("heedful.checks."):
            raise errors.InvalidInput("checks", name, f"called first: checks.{name}(…)")
    allowed = "a function (candidate, context) that returns an Evaluation"
    require(evaluate is None or callable(evaluate), "evaluate", evaluate, allowed)
    if not isinstance(goals, Sequence) or isinstance(goals, str):
        raise errors.InvalidInput(
            "goals", goals, 'a list of Goal or text: ["quality >= 0.8"]'
        )
    given = (
        one if isinstance(one, record.Goal) else policies.goal(one) for one in goals
    )
    aims = tuple(given) or policy.goals
    record.check_goals(aims)
    if timeout is not None and not (
        isinstance(timeout, int | float) and 0 < timeout < UNLIMITED_SECONDS
    ):
        raise errors.InvalidInput("timeout", timeout, "a number of seconds above 0")
    most = journal.MAX_MEMORY_KEY_CHARS
    shown = isinstance(memory_key, str) and memory_key.isprintable()
    if memory_key and not (shown and redact(memory_key[:most]) == memory_key):
        allowed = f"None, or at most {most} printable characters without a secret"
        raise errors.InvalidInput("memory_key", memory_key, allowed)
    return policy, aims


UNLIMITED_SECONDS = float("inf")  # seconds


@dataclass(frozen=True, kw_only=True)
class _State:
    loop: record.Loop
    values: tuple[Any, ...] = ()
    verdict: decide.Verdict = field(default_factory=decide.Again)
    answer: CandidateBatch | None = None  # of an attempt that is not stored yet


@dataclass(kw_only=True, eq=False, repr=False)
class Run(Generic[C]):
    """A loop that a program can run step by step; with a store it can be resumed by its
    `id`.

    Takes the arguments of `run`. The first step reads the state of the loop from the
    journal. Only a pipeline sets `stage`, before the first step.
    """

    task: Any = field(kw_only=False)
    generate: Generate | Writer | Model
    checks: Sequence[Check] = ()
    evaluate: Evaluate | None = None
    goals: Sequence[record.Goal | str] = ()
    policy: decide.Policy = policies.default  # or text: `heedful.policy` reads it
    revise: Revise | None = None
    memory: Memory | Store | str | None = None
    initial: C | None = None
    store: Store | str | None = "heedful.db"
    id: str = ""
    scope: Scope | None = None
    data: Any = None
    timeout: float | None = None
    temperature: float = 0.0
    seed: int = 0
    feedback: Feedback | None = None
    memory_key: str | None = None
    tell: Tell = "both"
    stage: StageHead | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.policy, self._goals = validate_arguments(
            *(self.id, self.checks, self.goals, self.policy, self.timeout),
            *(self.evaluate, self.memory_key),
        )
        require(
            self.tell in PROMPT_FORMS,
            "tell",
            self.tell,
            f"one of {', '.join(PROMPT_FORMS)}",
        )
        known = bool(self.id)
        self.id = self.id or os.urandom(16).hex()
        self._generate, self._blocks = generator(self.generate)
        if self.memory_key is None:
            self.memory_key = "" if self.memory is None else self._default_key()
        self._pure = pure(self.checks, self.evaluate)
        memory = (
            self.memory if self.memory is None else Memory.of(self.memory, self.scope)
        )
        scope = self.scope or (memory.scope if memory else None)
        judges = (*self.checks, self.evaluate) if self.evaluate else self.checks
        held = self._journal = journal.Journal(
            store=self.store, scope=scope, id=self.id, known=known
        )
        at = None if memory is None else (memory.store, memory.scope)
        self._recorder = journal.LoopRecorder(
            write=held.commit,
            memory=memory,
            task=journal.text_of(self.task),
            together=at == (held.store, held.scope),
            judged=bool(judges),
            memory_key=self.memory_key,
            checks=stop.check_names(judges) if memory else (),
            tell=self.tell,
        )
        self._budgets = [
            rule for rule in self.policy.rules if isinstance(rule, stop.Budget)
        ]
        seconds = (rule.seconds for rule in self._budgets if rule.seconds)
        self._most_seconds = min(seconds, default=UNLIMITED_SECONDS)
        self._state: _State | None = None
        self._lock = asyncio.Lock()
        self._began = 0.0

    def _default_key(self) -> str:
        """Return the memory key of the function, or for a model that of its checks'
        functions.
        """
        if not isinstance(self._generate, Writer):
            return journal.key_of(self._generate)
        keys = [
            journal.key_of(check) if isfunction(check) else "" for check in self.checks
        ]
        lasting = all(key and "<locals>" not in key for key in keys)
        return ", ".join(keys)[-journal.MAX_MEMORY_KEY_CHARS :] if lasting else ""

    @property
    def loop(self) -> record.Loop:
        """The loop so far; it has no attempts before the first step."""
        return self._state.loop if self._state else record.Loop(self.id, self._goals)

    @property
    def briefing(self) -> Briefing | None:
        """What memory tells the loop; None without a memory, and before the first
        step.
        """
        return self._recorder.briefing

    async def step(self) -> decide.Verdict:
        """Make one attempt and return the verdict; a loop that has ended returns its
        last verdict.

        Raises UserCodeError, ModelError or StoreError; the loop stays open and can be
        resumed.
        """
        return (await self._change(self._attempt)).verdict

    @telemetry.loop
    async def finish(self) -> Result[C]:
        """Make attempts until the loop ends, and return its result. Raises the errors
        of `step`.
        """
        while True:
            state = await self._change(self._attempt)
            if isinstance(state.verdict, decide.Done):
                best = state.verdict.best
                candidate = None
                if best is not None:
                    candidate = state.values[best - 1]
                return Result(
                    self.id,
                    candidate,
                    verdict=state.verdict,
                    loop=state.loop,
                    policy=self.policy,
                    briefing=self.briefing,
                )

    async def cancel(self, by: str) -> decide.Verdict:
        """Cancel the loop for the actor `by`; return the verdict. An ended loop does
        not change.
        """

        async def end(state: _State) -> _State:
            if isinstance(state.verdict, decide.Done):
                return state
            loop, verdict, entry = journal.cancel_loop(
                state.loop, self.policy, by, time.time()
            )
            await self._recorder.commit(entry, loop)
            return replace(state, loop=loop, verdict=verdict)

        return (await self._change(end)).verdict

    async def override(
        self,
        rule: str,
        by: str,
        why: str = "",
        decisions: int = 1,
        until: float | None = None,
    ) -> decide.Verdict:
        """Let the loop continue past `rule`; a loop that this rule stopped is open
        again.

        The override counts for this number of `decisions`, but not after `until`, in
        seconds since
        1970. Raises OverrideRefused if the loop passed, if the override has expired or
              has no actor
        (`by`), or if the rule is not in the policy or cannot be overridden.
        """

        async def lift(state: _State) -> _State:
            new = record.Override(rule, by, why=why, decisions=decisions, until=until)
            loop = replace(state.loop, at=time.time())
            after, verdict = decide.apply_override(
                loop, self.policy, state.verdict, new
            )
            verdict = await self._worded(state, after, verdict)
            entry = JournalEntry(id=self.id, epoch=0)
            if isinstance(state.verdict, decide.Done):
                await self._recorder.brief(self.id, begins=False)
                entry = journal.decision_entry(loop, self.policy, verdict)
            await self._recorder.commit(replace(entry, override=new), loop)
            return replace(state, loop=after, verdict=verdict)

        return (await self._change(lift)).verdict

    async def _change(self, work: Callable[[_State], Awaitable[_State]]) -> _State:
        """Lock the loop, compute its next state with `work`, remember this state, and
        return it.
        """
        async with self._lock:
            with self._journal:
                self._state = self._state or await self._open()
                state = None
                try:
                    self._state = state = await work(self._state)
                    return state
                finally:
                    # A write that raised may still have succeeded: only the journal
                    # knows.
                    if state is None:
                        self._journal.known = True
                        self._state = None if self._journal.durable else self._state

    async def _open(self) -> _State:
        """Return the state that the journal holds, or the state of a new loop."""
        if self.stage is not None:
            self._recorder.checks = self.stage.checks
        state = _State(
            loop=record.Loop(self.id, self._goals, improves=self.policy.improvement)
        )
        stored = None
        if self._journal.durable:
            kind: Kind = "loop" if self.stage is None else "stage"
            goals = [codec.to_document(goal) for goal in self._goals]
            policy = codec.policy_to(self.policy)
            key = self.memory_key or ""
            head = Head(
                task=self.task,
                goals=goals,
                policy=policy,
                context=None,
                kind=kind,
                stage=self.stage,
                memory_key=key,
            )
            stored = await self._journal.open(head)
        self._began = self._began or (stored.created if stored else time.time())
        if stored is not None:
            self._recorder.briefing = stored.briefing
            self.data = stored.head.context if self.data is None else self.data
            answer = stored.journal.get(f"{len(stored.loop.attempts) + 1}/answer")
            made = None if answer is None else CandidateBatch.of(answer)
            produced = made and replace(
                made, values=objects(self._generate, made.values)
            )
            loop = replace(
                stored.loop, goals=self._goals, improves=self.policy.improvement
            )
            last = decide.latest_verdict(stored.decisions)
            state = _State(
                loop=loop,
                values=objects(self._generate, stored.values),
                verdict=last,
                answer=produced,
            )
        if self._journal.durable and any(map(stop.counts_scope, self.policy.rules)):
            state = replace(
                state, loop=replace(state.loop, echoes=await self._journal.echoes())
            )
        await self._recorder.opened(state.loop, state.verdict, state.answer is not None)
        return state

    @telemetry.attempt
    async def _attempt(self, state: _State) -> _State:
        """Generate, evaluate, decide and write the next attempt, unless the loop has
        ended.
        """
        if isinstance(state.verdict, decide.Done):
            return state
        if any(rule(state.loop) for rule in self._budgets):
            return await self._over(state)  # failed calls have spent the budget
        began = time.perf_counter() - (
            state.answer.usage.seconds if state.answer else 0
        )
        budget = self._most_seconds
        if budget < UNLIMITED_SECONDS:
            budget -= state.loop.usage.seconds
        left = max(0.001, budget + began - time.perf_counter())
        limit = min(left, self.timeout or left)
        try:
            if limit == UNLIMITED_SECONDS:  # a timer costs a tenth of an attempt
                value, attempt = await self._try(state, began)
            else:
                async with asyncio.timeout(limit):
                    value, attempt = await self._try(state, began)
        except TimeoutError:
            seconds = time.perf_counter() - began
            if (
                left <= limit
            ):  # the budget ends the loop, and the cost of the attempt counts
                state = self._state or state
                spent = state.answer.usage if state.answer else record.Usage(calls=1)
                extra = state.loop.extra + spent.lasting(max(budget, seconds))
                return await self._over(
                    replace(state, loop=replace(state.loop, extra=extra))
                )
            await self._record_failure(seconds)
            again = (
                f"; the loop can be resumed as {self.id!r}"
                if self._journal.durable
                else ""
            )
            late = (
                f"attempt {len(state.loop.attempts) + 1} had no result within "
                f"{self.timeout:g} s"
            )
            raise errors.ModelTimeout(f"{late}{again}") from None
        except (errors.UserCodeError, errors.ModelError) as error:
            await self._record_failure(
                time.perf_counter() - began, getattr(error, "usage", None)
            )
            raise
        loop = journal.append_attempt(state.loop, attempt, time.time())
        verdict = await self._worded(state, loop, decide.decide(loop, self.policy))
        if self._journal.durable:
            data = journal.journalable(value)
            entry = journal.decision_entry(
                loop, policy=self.policy, verdict=verdict, attempt=attempt, value=data
            )
            await self._recorder.commit(entry, loop)
        elif self._recorder.memory is not None:
            await self._recorder.commit(
                JournalEntry(id=self.id, epoch=0, verdict=verdict), loop
            )
        return _State(
            loop=decide.consume_overrides(loop, verdict),
            values=(*state.values, value),
            verdict=verdict,
        )

    async def _worded(
        self, state: _State, loop: record.Loop, verdict: decide.Verdict
    ) -> decide.Verdict:
        """Return the verdict; the user's `feedback` function, if any, writes its
        feedback.
        """
        evaluation = loop.attempts[-1].evaluation if loop.attempts else None
        if not (isinstance(verdict, decide.Again) and self.feedback and evaluation):
            return verdict
        at = self._context(state, len(loop.attempts))
        return replace(
            verdict, feedback=await worded(self.feedback, evaluation, loop.goals, at)
        )

    async def _try(self, state: _State, began: float) -> tuple[Any, record.Attempt]:
        loop = state.loop
        number = len(state.loop.attempts) + 1
        at = self._context(state, number)
        answer = state.answer
        if answer is None:
            if number == 1 and self.initial is not None:
                answer = CandidateBatch((self.initial,), record.Usage())
            elif number > 1 and self.revise is not None:
                last = loop.attempts[-1].evaluation
                answer = await revised(self.revise, at, last.findings if last else ())
            else:
                answer = await produce(self._generate, at, self._blocks)
            answer = CandidateBatch(
                answer.values, answer.usage.lasting(time.perf_counter() - began)
            )
            if self._journal.durable and not self._pure:
                step = (f"{number}/answer", answer.plain())
                await self._recorder.commit(
                    JournalEntry(id=self.id, epoch=0, step=step), loop
                )
            self._state = _State(
                loop=loop, values=state.values, verdict=state.verdict, answer=answer
            )
        value, evaluation = await self._best_of(loop, answer, at)
        candidate = record.Candidate.of(value)
        judges = self.stage.checks if self.stage else ()
        usage = (answer.usage + evaluation.usage).lasting(time.perf_counter() - began)
        near = (
            stop.find_near_repeat(candidate, loop.attempts) if loop.attempts else None
        )
        greedy = (
            isinstance(self._generate, Writer)
            and self.revise is None
            and at.temperature == 0
        )
        attempt = record.Attempt(
            number,
            candidate,
            evaluation=evaluation,
            usage=usage,
            repeats=near,
            greedy=greedy,
            judged_by=judges,
        )
        return value, attempt

    async def _best_of(
        self, loop: record.Loop, answer: CandidateBatch, at: Context
    ) -> tuple[Any, record.Evaluation]:
        """Judge all candidates; return the best by rank, where preference comes before
        margins.
        """
        tried = [
            await evaluated(value, at, self.checks, self.evaluate)
            for value in answer.values
        ]
        if len(tried) == 1:  # nearly always
            return answer.values[0], tried[0]

        def order(number: int) -> tuple[float, ...]:
            failed, missed, *rest = tried[number].rank(loop.goals)
            return failed, missed, -tried[number].preference, *rest

        best = min(range(len(tried)), key=order)
        usage = sum((each.usage for each in tried), record.NO_USAGE)
        return answer.values[best], replace(tried[best], usage=usage)

    def _context(self, state: _State, number: int) -> Context:
        told = self._recorder.briefing
        warmth = self.temperature
        if number > 2:
            repeats = sum(of is not None for of in state.loop.repeats())
            warmth = max(warmth, min(1.0, warmth + RETRY_TEMPERATURE_STEP * repeats))
        hint = state.verdict.feedback if isinstance(state.verdict, decide.Again) else ""
        previous = state.values[-1] if state.values else None
        return Context(
            self.task,
            number,
            loop_id=self.id,
            hint=hint,
            previous=previous,
            data=self.data,
            temperature=warmth,
            seed=self.seed + number - 1,
            examples=told.examples if told else (),
            advice=told.advice if told else (),
            began=self._began,
        )

    async def _over(self, state: _State) -> _State:
        """End the loop because a budget is spent."""
        loop = replace(state.loop, at=time.time())
        verdict = decide.decide(loop, self.policy)
        entry = replace(
            journal.decision_entry(loop, self.policy, verdict), extra=loop.extra
        )
        await self._recorder.commit(entry, loop)
        return replace(state, verdict=verdict, answer=None)

    async def _record_failure(
        self, seconds: float, judging: record.Usage | None = None
    ) -> None:
        """Add the cost of a failed attempt to the loop, and its answer, if any, to the
        journal.
        """
        state = self._state or _State(loop=self.loop)
        extra = record.Usage(1, seconds=seconds)
        step = None
        answer = state.answer
        if answer is not None:
            extra = (judging or record.Usage()).lasting(
                max(0.0, seconds - answer.usage.seconds)
            )
            if self._journal.durable:
                step = (f"{len(state.loop.attempts) + 1}/answer", answer.plain())
        loop = replace(state.loop, extra=state.loop.extra + extra)
        await self._recorder.commit(
            JournalEntry(id=self.id, epoch=0, step=step, extra=loop.extra), loop
        )
        self._state = replace(state, loop=loop)


async def run(
    task: Any,
    *,
    generate: Generate | Writer | Model,
    checks: Sequence[Check] = (),
    evaluate: Evaluate | None = None,
    goals: Sequence[record.Goal | str] = (),
    policy: decide.Policy | str = policies.default,
    revise: Revise | None = None,
    memory: Memory | Store | str | None = None,
    initial: Any = None,
    store: Store | str | None = "heedful.db",
    id: str = "",
    scope: Scope | None = None,
    data: Any = None,
    timeout: float | None = None,  # noqa: ASYNC109 - one attempt's, not this call's
    temperature: float = 0.0,
    seed: int = 0,
    feedback: Feedback | None = None,
    memory_key: str | None = None,
    tell: Tell = "both",
) -> Result[Any]:
    """Drive one task until a candidate passes or a rule stops the loop, and return the
    result.

    `generate(task, hint)` returns a candidate, or a list whose best candidate becomes
    the attempt; a Model or a Writer is also a generator. `checks` find what is wrong,
    `evaluate` gives scores, and `goals` say which scores are enough. `revise(task,
    candidate, findings)` makes the next candidate from the last one. An `initial`
    candidate is attempt 1. `memory` adds lessons of earlier loops to prompts and learns
    from this loop. `store` makes the loop durable; None stores nothing. A stored loop
    with an `id` can be resumed. Checks and generators find `data` as `Context.data`.
    `timeout` limits one attempt, in seconds. The first attempt has this `temperature`
    and `seed`. `feedback(evaluation, goals)` writes the hint for the next attempt.
    Loops with the same `memory_key` tell each other the rules that they broke; by
    default it is the module and the name of the function `generate`. `tell` is what
    memory adds to prompts: "rules", "examples" or "both". With "rules" it never stores
    or shows outputs, only errors and fixes.

    Raises UserCodeError, ModelError or StoreError; the loop stays open and can be
    resumed.
    """
    options: dict[str, Any] = dict(locals())  # Run has the same arguments
    loop: Run[Any] = Run(**options)  # a call of `Run[Any]` takes longer
    return await loop.finish()
