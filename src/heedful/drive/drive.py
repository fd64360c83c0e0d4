"""Drive a loop in this process: generate, evaluate, decide, and repeat until it ends.

`Run` holds the state of one loop: the loop so far, its candidates, the last verdict.
Each step computes the next state and writes it to the journal; `decide` alone says
whether another step follows. The state in memory is dropped when a step fails, and read
from the journal again, because a write that raised may still have succeeded.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
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
from heedful.drive.recall import end_trial, on_trial, recall_texts
from heedful.lessons.briefing import PROMPT_FORMS, Briefing, Tell
from heedful.lessons.lesson import Scope
from heedful.lessons.lesson_check import add_findings
from heedful.loop import codec, decide, policies, record, stop
from heedful.loop.explain import Explanation, explain
from heedful.loop.runs import StageHead
from heedful.memory.memory import Memory
from heedful.memory.trial import RecallFunction, RecallOnTrial
from heedful.models.call import RETRY_TEMPERATURE_STEP
from heedful.models.contract import MAX_MODEL_NAME_CHARS, Model
from heedful.redact import redact
from heedful.store.records import Head, JournalEntry, StoredLoop
from heedful.store.store import Store
from heedful.validation import check_name, require

C = TypeVar("C")
UNLIMITED_SECONDS = float("inf")


@dataclass(frozen=True)
class Result(Generic[C]):
    """The result of a loop. `candidate` is the best evaluated candidate, or None.

    `briefing` says what memory showed the loop before each attempt, and what it
    withheld and why.
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
        """The number of the attempt that made `candidate`, from 1, or None."""
        return self.verdict.best

    @property
    def stopped_by(self) -> tuple[stop.Stop, ...]:
        """The rules that stopped the loop, the most important first; none if passed."""
        return self.verdict.stopped_by

    @property
    def wrong(self) -> tuple[str, ...]:
        """What is wrong with `candidate`: each error, and each goal that it misses."""
        if not self.best:
            return ()

        evaluation = self.loop.attempts[self.best - 1].evaluation
        if evaluation is None:
            return ()

        triggers = decide.triggers(evaluation, self.loop.goals)
        return tuple(trigger.detail for trigger in triggers)

    @property
    def usage(self) -> record.Usage:
        """The usage of all attempts together, including failed attempts."""
        return self.loop.usage

    def explain(self) -> Explanation:
        """Explain why the loop went on and ended, and what would have changed that."""
        return explain(self.loop, self.policy)


def validate_options(
    *,
    id: str = "",
    checks: Sequence[Check] = (),
    goals: Sequence[record.Goal | str] = (),
    policy: decide.Policy | str = policies.default,
    timeout: float | None = None,
    evaluate: Evaluate | None = None,
    memory_key: str | None = None,
    model: str = "",
    tell: Tell = "both",
    **_: object,
) -> tuple[decide.Policy, tuple[record.Goal, ...]]:
    """Check the options of a loop; return its policy and its goals.

    Both may be given as text. Without `goals`, the goals are those of the policy. Other
    options are not checked here. Raises InvalidInput, UnknownName.
    """
    if not isinstance(policy, decide.Policy):
        policy = policies.policy(policy)

    allowed = "a name without a secret: ids are not redacted"
    require(redact(str(id)) == str(id), "id", id, allowed)

    _validate_checks(checks)
    allowed = "a function (candidate, context) that returns an Evaluation"
    require(evaluate is None or callable(evaluate), "evaluate", evaluate, allowed)

    loop_goals = _validate_goals(goals) or policy.goals
    record.check_goals(loop_goals)

    if timeout is not None:
        is_number = isinstance(timeout, int | float)
        is_limit = is_number and 0 < timeout < UNLIMITED_SECONDS
        require(is_limit, "timeout", timeout, "a number of seconds above 0")

    check_name("memory_key", memory_key or "", journal.MAX_MEMORY_KEY_CHARS)
    check_name("model", model, MAX_MODEL_NAME_CHARS)
    require(tell in PROMPT_FORMS, "tell", tell, f"one of {', '.join(PROMPT_FORMS)}")

    return policy, loop_goals


def _validate_checks(checks: Sequence[Check]) -> None:
    """Raise InvalidInput unless all `checks` can be called with a candidate."""
    if not isinstance(checks, Sequence) or not all(map(callable, checks)):
        allowed = "a list of callables (candidate, context)"
        raise errors.InvalidInput("checks", checks, allowed)

    for check in checks:
        # `checks.words` instead of `checks.words(…)`, which makes the check.
        name = getattr(check, "__qualname__", ".")
        if "." not in name and str(check.__module__).startswith("heedful.checks."):
            raise errors.InvalidInput("checks", name, f"called first: checks.{name}(…)")


def _validate_goals(goals: Sequence[record.Goal | str]) -> tuple[record.Goal, ...]:
    """Return the goals, read from text where they are text. Raises InvalidInput."""
    if not isinstance(goals, Sequence) or isinstance(goals, str):
        allowed = 'a list of Goal or text: ["quality >= 0.8"]'
        raise errors.InvalidInput("goals", goals, allowed)
    return tuple(
        goal if isinstance(goal, record.Goal) else policies.goal(goal) for goal in goals
    )


@dataclass(frozen=True, kw_only=True)
class _State:
    """What a run knows of its loop.

    `values` are the candidates, one for each attempt. `answer` has the candidates of an
    attempt that is not judged yet; None if there is no such attempt.
    """

    loop: record.Loop
    values: tuple[Any, ...] = ()
    verdict: decide.Verdict = field(default_factory=decide.Again)
    answer: CandidateBatch | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Run(Generic[C]):
    """A loop that a program runs step by step; with a store it is resumed by its `id`.

    Takes the arguments of `run`. The first step reads the state of the loop from the
    journal. Only a pipeline gives a `stage`.
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
    model: str = ""
    tell: Tell = "both"
    recall: RecallFunction | RecallOnTrial | None = None
    stage: StageHead | None = None
    judges: Sequence[Callable[..., Any]] = ()  # what a stage's `evaluate` calls

    def __post_init__(self) -> None:
        self.policy, self._goals = validate_options(
            id=self.id,
            checks=self.checks,
            goals=self.goals,
            policy=self.policy,
            timeout=self.timeout,
            evaluate=self.evaluate,
            memory_key=self.memory_key,
            model=self.model,
            tell=self.tell,
        )

        may_exist = bool(self.id)
        self.id = self.id or os.urandom(16).hex()
        self._generate, self._blocks = generator(self.generate)
        # What memory knows of the model before it has answered.
        self._known_model = self.model
        if not self.model and isinstance(self._generate, Writer):
            self._known_model = self._generate.model.name
        self._pure = pure(self.checks, self.evaluate)

        if self.memory_key is None:
            self.memory_key = "" if self.memory is None else self._default_key()

        memory = None
        scope = self.scope
        if self.memory is not None:
            memory = Memory.of(self.memory, scope)
            scope = scope or memory.scope

        self._lease = journal.Lease(
            self.store, scope=scope, id=self.id, may_exist=may_exist
        )
        if self.recall is not None:
            self.recall = on_trial(self.recall, self._lease.store, self._lease.scope)
        self._recalled = ""
        self._memory = None if memory is None else self._loop_memory(memory)
        self._journal = journal.Journal(
            self._lease.store,
            scope=self._lease.scope,
            writer=self._lease,
            memory=self._memory,
        )
        self._stored_briefing: Briefing | None = None

        self._budgets = [
            rule for rule in self.policy.rules if isinstance(rule, stop.Budget)
        ]
        limits = [rule.seconds for rule in self._budgets if rule.seconds]
        self._max_seconds = min(limits, default=UNLIMITED_SECONDS)

        self._state: _State | None = None
        self._lock = asyncio.Lock()
        self._began = 0.0

    def _loop_memory(self, memory: Memory) -> journal.LoopMemory:
        """Return what memory does for this loop."""
        judges = (*self.checks, self.evaluate) if self.evaluate else self.checks
        names = self.stage.checks if self.stage else stop.check_names(judges)
        shares_store = memory.store == self._lease.store
        return journal.LoopMemory(
            memory=memory,
            task=journal.text_of(self.task),
            together=shares_store and memory.scope == self._lease.scope,
            evidence="measured" if judges else "none",
            memory_key=self.memory_key or "",
            model=self._known_model,
            checks=names,
            judges=self.judges or judges,
            tell=self.tell,
        )

    def _default_key(self) -> str:
        """Return the memory key of the function; for a model, that of the checks.

        It is "" if any of the checks has no lasting name.
        """
        if not isinstance(self._generate, Writer):
            return journal.key_of(self._generate)

        keys = []
        for check in self.checks:
            key = journal.key_of(check) if isfunction(check) else ""
            if not key or "<locals>" in key:
                return ""
            keys.append(key)

        return ", ".join(keys)[-journal.MAX_MEMORY_KEY_CHARS :]

    @property
    def loop(self) -> record.Loop:
        """The loop so far; it has no attempts before the first step."""
        if self._state is None:
            return record.Loop(self.id, self._goals)
        return self._state.loop

    @property
    def briefing(self) -> Briefing | None:
        """What memory tells the loop; None without memory or before the first step."""
        if self._memory is not None and self._memory.briefing is not None:
            return self._memory.briefing.of_model(self.loop.model)
        return self._stored_briefing

    async def step(self) -> decide.Verdict:
        """Make one attempt and return the verdict; an ended loop returns its last one.

        Raises UserCodeError, ModelError or StoreError; the loop stays open and can be
        resumed.
        """
        state = await self._change_state(self._attempt)
        return state.verdict

    @telemetry.loop
    async def finish(self) -> Result[C]:
        """Make attempts until the loop ends; return its result. Raises like `step`."""
        while True:
            state = await self._change_state(self._attempt)
            if not isinstance(state.verdict, decide.Done):
                continue

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
        """Cancel the loop for the actor `by`; return the verdict.

        An ended loop does not change.
        """

        async def end(state: _State) -> _State:
            """Cancel the loop, unless it has ended."""
            if isinstance(state.verdict, decide.Done):
                return state

            loop, verdict, entry = journal.cancel_loop(
                state.loop, self.policy, by, time.time()
            )
            await self._journal.write(entry, loop)
            return replace(state, loop=loop, verdict=verdict)

        state = await self._change_state(end)
        return state.verdict

    async def override(
        self,
        rule: str,
        by: str,
        why: str = "",
        decisions: int = 1,
        until: float | None = None,
    ) -> decide.Verdict:
        """Let the loop continue past `rule`; a loop that this rule stopped opens again.

        The override counts for this number of `decisions`, but not after `until`, in
        seconds since 1970. Raises OverrideRefused if the loop passed, if the override
        has expired or has no actor (`by`), or if the rule is not in the policy or
        cannot be overridden.
        """
        override = record.Override(rule, by, why=why, decisions=decisions, until=until)

        async def lift(state: _State) -> _State:
            """Apply the override, decide again and write both."""
            before = replace(state.loop, at=time.time())
            after, verdict = decide.apply_override(
                before, self.policy, state.verdict, override
            )
            verdict = await self._word_verdict(state, after, verdict)

            entry = JournalEntry(id=self.id, epoch=0)
            if isinstance(state.verdict, decide.Done):
                # The loop opens again, so it needs lessons and a recorded decision.
                if self._memory is not None:
                    await self._memory.brief(self.id, begins=False)
                entry = journal.decision_entry(before, self.policy, verdict)

            await self._journal.write(replace(entry, override=override), before)
            return replace(state, loop=after, verdict=verdict)

        state = await self._change_state(lift)
        return state.verdict

    async def _change_state(
        self, work: Callable[[_State], Awaitable[_State]]
    ) -> _State:
        """Compute the next state of the loop with `work`, and remember it.

        Only one task at a time changes the loop. If `work` raises, the next change of a
        stored loop reads its state from the journal again.
        """
        async with self._lock:
            with self._lease:
                if self._state is None:
                    self._state = await self._open()

                try:
                    self._state = await work(self._state)
                    await self._end_trial(self._state)
                except BaseException:
                    # A write that raised may still have succeeded: only the journal
                    # knows.
                    self._lease.may_exist = True
                    if self._lease.durable:
                        self._state = None
                    raise

                return self._state

    async def _open(self) -> _State:
        """Return the state that the journal holds, or the state of a new loop."""
        stored_loop = None
        if self._lease.durable:
            stored_loop = await self._lease.open(self._head())

        if stored_loop is None:
            new = record.Loop(self.id, self._goals, improves=self.policy.improvement)
            state = _State(loop=new)
            self._began = self._began or time.time()
        else:
            state = self._state_of(stored_loop)
            self._began = self._began or stored_loop.created
            self._stored_briefing = stored_loop.briefing

            if self.data is None:
                self.data = stored_loop.head.context

        if self._lease.durable and any(map(stop.counts_scope, self.policy.rules)):
            echoes = await self._lease.echoes()
            state = replace(state, loop=replace(state.loop, echoes=echoes))

        if self._memory is not None:
            answered = state.answer is not None
            await self._memory.open(state.loop, state.verdict, answered)
        await self._recall_texts(state)

        return state

    async def _recall_texts(self, state: _State) -> None:
        """Ask the memory of others what to add to prompts.

        An ended loop asks, too: an override may open it again.
        """
        if not isinstance(self.recall, RecallOnTrial):
            return
        loop = state.loop
        under_way = state.answer or loop.attempts or loop.overrides or loop.extra.calls
        context = self._context(state, len(loop.attempts) + 1)
        self._recalled = await recall_texts(self.recall, context, not under_way)

    async def _end_trial(self, state: _State) -> None:
        """Record the result of an ended loop in the trial of the memory of others."""
        has_ended = isinstance(state.verdict, decide.Done)
        if has_ended and isinstance(self.recall, RecallOnTrial):
            await end_trial(self.recall, state.loop)

    def _head(self) -> Head:
        """Return what the store holds of the loop besides its attempts."""
        return Head(
            task=self.task,
            goals=[codec.to_document(goal) for goal in self._goals],
            policy=codec.policy_to(self.policy),
            kind="loop" if self.stage is None else "stage",
            stage=self.stage,
            memory_key=self.memory_key or "",
            model=self._known_model,
        )

    def _state_of(self, stored_loop: StoredLoop) -> _State:
        """Return the state of a stored loop; its candidates are objects again."""
        loop = replace(
            stored_loop.loop, goals=self._goals, improves=self.policy.improvement
        )

        answer = None
        document = stored_loop.journal.get(_answer_step(loop))
        if document is not None:
            answer = CandidateBatch.of(document)
            answer = replace(answer, values=objects(self._generate, answer.values))

        return _State(
            loop=loop,
            values=objects(self._generate, stored_loop.values),
            verdict=decide.latest_verdict(stored_loop.decisions),
            answer=answer,
        )

    @telemetry.attempt
    async def _attempt(self, state: _State) -> _State:
        """Make, judge, decide and write the next attempt, unless the loop has ended."""
        if isinstance(state.verdict, decide.Done):
            return state

        # Calls that failed may have spent a budget before this attempt.
        if any(rule(state.loop) for rule in self._budgets):
            return await self._end_by_budget(state)

        # An answer that an interrupted attempt left took part of this attempt's time.
        began = time.perf_counter()
        if state.answer is not None:
            began -= state.answer.usage.seconds

        budget = self._max_seconds
        if budget < UNLIMITED_SECONDS:
            budget -= state.loop.usage.seconds
        budget_left = max(0.001, budget + began - time.perf_counter())
        limit = min(budget_left, self.timeout or budget_left)

        try:
            # Only with a limit, because a timer costs a tenth of an attempt.
            if limit == UNLIMITED_SECONDS:
                value, attempt = await self._try(state, began)
            else:
                async with asyncio.timeout(limit):
                    value, attempt = await self._try(state, began)
        except TimeoutError:
            seconds = time.perf_counter() - began

            if limit < budget_left:
                await self._record_failure(seconds)
                raise self._late_error(state) from None

            return await self._end_cut_off(self._state or state, max(budget, seconds))
        except (errors.UserCodeError, errors.ModelError) as error:
            seconds = time.perf_counter() - began
            await self._record_failure(seconds, getattr(error, "usage", None))
            raise

        return await self._decide_on(state, value, attempt)

    async def _decide_on(
        self, state: _State, value: Any, attempt: record.Attempt
    ) -> _State:
        """Decide on an attempt with its candidate `value`, and write both."""
        loop = journal.append_attempt(state.loop, attempt, time.time())
        verdict = await self._word_verdict(
            state, loop, decide.decide(loop, self.policy)
        )

        if self._lease.durable:
            entry = journal.decision_entry(
                loop,
                self.policy,
                verdict,
                attempt=attempt,
                value=journal.journalable(value),
            )
            await self._journal.write(entry, loop)
        elif self._memory is not None:
            entry = JournalEntry(id=self.id, epoch=0, verdict=verdict, attempt=attempt)
            await self._journal.write(entry, loop)

        return _State(
            loop=decide.consume_overrides(loop, verdict),
            values=(*state.values, value),
            verdict=verdict,
        )

    def _late_error(self, state: _State) -> errors.ModelTimeout:
        """Return the error for an attempt that took longer than `timeout`."""
        number = len(state.loop.attempts) + 1
        message = f"attempt {number} had no result within {self.timeout:g} s"
        if self._lease.durable:
            message += f"; the loop can be resumed as {self.id!r}"
        return errors.ModelTimeout(message)

    async def _word_verdict(
        self, state: _State, loop: record.Loop, verdict: decide.Verdict
    ) -> decide.Verdict:
        """Return the verdict, with the feedback that the user's function writes."""
        evaluation = loop.attempts[-1].evaluation if loop.attempts else None
        if self.feedback is None or evaluation is None:
            return verdict
        if not isinstance(verdict, decide.Again):
            return verdict

        context = self._context(state, len(loop.attempts))
        feedback = await worded(self.feedback, evaluation, loop.goals, context)
        return replace(verdict, feedback=feedback)

    async def _try(self, state: _State, began: float) -> tuple[Any, record.Attempt]:
        """Make one attempt; return its candidate and its record."""
        loop = state.loop
        number = len(loop.attempts) + 1
        context = self._context(state, number)

        answer = state.answer
        if answer is None:
            answer = await self._answer(loop, context)
            usage = answer.usage.lasting(time.perf_counter() - began)
            answer = replace(answer, usage=usage)
            # Pure checks are quick and repeatable: then the attempt's entry is enough.
            if self._lease.durable and not self._pure:
                step = (_answer_step(loop), answer.plain())
                entry = JournalEntry(id=self.id, epoch=0, step=step)
                await self._journal.write(entry, loop)

            self._state = _State(
                loop=loop, values=state.values, verdict=state.verdict, answer=answer
            )

        value, evaluation = await self._best_of(loop, answer, context)

        candidate = record.Candidate.of(value)
        near_repeat = None
        if loop.attempts:
            near_repeat = stop.find_near_repeat(candidate, loop.attempts)

        model_wrote = isinstance(self._generate, Writer) and self.revise is None
        usage = answer.usage + evaluation.usage
        attempt = record.Attempt(
            number,
            candidate,
            evaluation=evaluation,
            usage=usage.lasting(time.perf_counter() - began),
            repeats=near_repeat,
            greedy=model_wrote and context.temperature == 0,
            judged_by=self.stage.checks if self.stage else (),
            model=answer.model,
        )
        return value, attempt

    async def _answer(self, loop: record.Loop, context: Context) -> CandidateBatch:
        """Return the candidates of the attempt that `context` describes."""
        is_first = context.attempt == 1
        if is_first and self.initial is not None:
            return CandidateBatch((self.initial,), record.Usage())

        if not is_first and self.revise is not None:
            evaluation = loop.attempts[-1].evaluation
            findings = evaluation.findings if evaluation else ()
            answer = await revised(self.revise, context, findings)
        else:
            answer = await produce(self._generate, context, self._blocks)
        # The name that the user gave counts before the one that a provider gives.
        return replace(answer, model=self.model or answer.model)

    async def _best_of(
        self, loop: record.Loop, answer: CandidateBatch, context: Context
    ) -> tuple[Any, record.Evaluation]:
        """Judge all candidates; return the best one and its evaluation.

        The evaluation has the usage of judging all of them.
        """
        evaluations = [await self._judge(value, context) for value in answer.values]
        if len(evaluations) == 1:  # nearly always
            return answer.values[0], evaluations[0]

        ranks = [
            _rank_with_preference(evaluation, loop.goals) for evaluation in evaluations
        ]
        best = ranks.index(min(ranks))
        usage = sum((evaluation.usage for evaluation in evaluations), record.NO_USAGE)
        return answer.values[best], replace(evaluations[best], usage=usage)

    async def _judge(self, value: Any, context: Context) -> record.Evaluation:
        """Judge a candidate by the loop's own checks, and by those of lessons."""
        evaluation = await evaluated(value, context, self.checks, self.evaluate)
        memory = self._memory
        if memory is None or memory.briefing is None or not memory.briefing.checks:
            return evaluation

        lesson_checks = memory.briefing.checks
        judged = add_findings(evaluation, value, lesson_checks, judges=memory.checks)
        return judged or evaluation

    def _context(self, state: _State, number: int) -> Context:
        """Return what checks and generators may know of attempt `number`."""
        hint = ""
        if isinstance(state.verdict, decide.Again):
            hint = state.verdict.feedback

        temperature = self.temperature
        if number > 2:
            # Each repeated candidate makes the model warmer, up to 1.
            repeated = [first for first in state.loop.repeats() if first is not None]
            warmer = temperature + RETRY_TEMPERATURE_STEP * len(repeated)
            temperature = max(temperature, min(1.0, warmer))

        briefing = self.briefing
        return Context(
            self.task,
            number,
            loop_id=self.id,
            hint=hint,
            previous=state.values[-1] if state.values else None,
            data=self.data,
            temperature=temperature,
            seed=self.seed + number - 1,
            examples=briefing.examples if briefing else (),
            advice=briefing.advice if briefing else (),
            recalled=self._recalled,
            began=self._began,
        )

    async def _end_cut_off(self, state: _State, seconds: float) -> _State:
        """End the loop whose budget of seconds cut off an attempt, and count its cost.

        An attempt without an answer counts as one call.
        """
        usage = state.answer.usage if state.answer else record.Usage(calls=1)
        extra = state.loop.extra + usage.lasting(seconds)
        loop = replace(state.loop, extra=extra)
        return await self._end_by_budget(replace(state, loop=loop))

    async def _end_by_budget(self, state: _State) -> _State:
        """End the loop because a budget is spent."""
        loop = replace(state.loop, at=time.time())
        verdict = decide.decide(loop, self.policy)
        entry = journal.decision_entry(loop, self.policy, verdict)
        await self._journal.write(replace(entry, extra=loop.extra), loop)
        return replace(state, verdict=verdict, answer=None)

    async def _record_failure(
        self, seconds: float, judging: record.Usage | None = None
    ) -> None:
        """Write the cost of an attempt that failed after `seconds`.

        If its answer is known, only the judging failed: the answer is written for the
        next try, and only the usage of `judging` is counted, None for no calls.
        """
        state = self._state or _State(loop=self.loop)
        answer = state.answer

        step = None
        if answer is None:
            failed = record.Usage(1, seconds=seconds)
        else:
            judging_seconds = max(0.0, seconds - answer.usage.seconds)
            failed = (judging or record.Usage()).lasting(judging_seconds)
            if self._lease.durable:
                step = (_answer_step(state.loop), answer.plain())

        loop = replace(state.loop, extra=state.loop.extra + failed)
        entry = JournalEntry(id=self.id, epoch=0, step=step, extra=loop.extra)
        await self._journal.write(entry, loop)
        self._state = replace(state, loop=loop)


def _answer_step(loop: record.Loop) -> str:
    """Return the name under which the journal keeps the answer of the next attempt."""
    return f"{len(loop.attempts) + 1}/answer"


def _rank_with_preference(
    evaluation: record.Evaluation, goals: tuple[record.Goal, ...]
) -> tuple[float, ...]:
    """Return a sort key, smallest for the best of several candidates of one attempt.

    It is `Evaluation.rank`, with the preference of critics before the margins.
    """
    failed, missed, *margins = evaluation.rank(goals)
    return failed, missed, -evaluation.preference, *margins


# The keyword arguments that `run` and `self_correcting` share.
RUN_OPTIONS = tuple(
    option.name
    for option in fields(Run)
    if option.name not in ("task", "generate", "stage")
)


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
    model: str = "",
    tell: Tell = "both",
    recall: RecallFunction | RecallOnTrial | None = None,
) -> Result[Any]:
    """Drive one task until a candidate passes or a rule stops the loop.

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
    default it is the module and the name of the function `generate`. `model` names the
    model that `generate` asks, so that lessons and proof tell models apart; a Model, a
    Writer and the answer of an SDK name their own. `tell` is what
    memory adds to prompts: "rules", "examples" or "both". With "rules" it never stores
    or shows outputs, only errors and fixes. `recall(task)` returns texts of another
    memory that prompts show; they are on trial under the function's name, or as
    `Trial.of` says.

    Raises UserCodeError, ModelError or StoreError; the loop stays open and can be
    resumed.
    """
    loop: Run[Any] = Run(  # a call of `Run[Any]` takes longer
        task,
        generate=generate,
        checks=checks,
        evaluate=evaluate,
        goals=goals,
        policy=policies.policy(policy),
        revise=revise,
        memory=memory,
        initial=initial,
        store=store,
        id=id,
        scope=scope,
        data=data,
        timeout=timeout,
        temperature=temperature,
        seed=seed,
        feedback=feedback,
        memory_key=memory_key,
        model=model,
        tell=tell,
        recall=recall,
    )
    return await loop.finish()
