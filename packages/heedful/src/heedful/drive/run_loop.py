"""Drive a loop in this process: generate, evaluate, decide, and repeat until it ends.

`Run` holds the state of one loop: the loop so far, its candidates, the last verdict.
Each step computes the next state and writes it to the journal; `decide` alone says
whether another step follows. The state in memory is dropped when a step fails, and read
from the journal again, because a write that raised may still have succeeded.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Unpack

from heedful import errors, telemetry
from heedful.checks.evaluate import (
    Check,
    Context,
    Evaluate,
    list_judges,
    pure,
)
from heedful.checks.output import declared_output, from_stored, to_stored
from heedful.drive import journal
from heedful.drive.generate import (
    CandidateBatch,
    Generators,
    Revise,
    check_countable,
    default_memory_key,
    failed_usage,
    producers,
    revised,
    warn_if_unjudged,
)
from heedful.drive.judgement import Judges, find_repeated, judge_names
from heedful.drive.options import (
    C,
    LoopOptions,
    LoopSettings,
    add_resumption,
    knows_options,
    open_places,
    resumed_ladder,
)
from heedful.drive.result import Result
from heedful.drive.run_state import RunState, count_died_calls
from heedful.lessons.briefing import Briefing
from heedful.lessons.lesson import Match
from heedful.loop import codec, decide, policies, record, stop
from heedful.loop.ladder import Ladder
from heedful.loop.runs import StageHead, with_stage_feedback
from heedful.memory.memory import Memory
from heedful.redact import redact
from heedful.store import DEFAULT_STORE, ladders
from heedful.store.records import Head, JournalEntry, StoredLoop
from heedful.store.store import Store
from heedful.validation import refuses_unknown_options

# Writes the hint for the next attempt of a stage, from the advice of its memory.
StageFeedback = Callable[
    [record.Evaluation, tuple[record.Goal, ...], tuple[Match, ...]], Awaitable[str]
]


@refuses_unknown_options
@dataclass(kw_only=True, eq=False, repr=False)
class Run(LoopSettings[C]):
    """A loop that a program runs step by step; with a store it is resumed by its `id`.

    Takes the arguments of `run`. The first step reads the state of the loop from the
    journal. Only a pipeline gives a `stage`, its `feedback` and its `judges`.
    """

    task: Any = field(kw_only=False)
    generate: Generators
    stage: StageHead | None = None
    feedback: StageFeedback | None = None
    judges: Sequence[Callable[..., Any]] = ()  # what a stage's `evaluate` calls

    def __post_init__(self) -> None:
        super().__post_init__()
        may_exist = bool(self.id)
        self.id = self.id or os.urandom(16).hex()
        self._prepare_functions()
        self._prepare_journal(may_exist)
        self._judges = Judges(
            checks=self.checks,
            evaluate=self.evaluate,
            output=self._output,
            refuse=self.refuse,
            names=self._judge_names,
            stage_checks=self.judges,
            memory=self._memory,
        )
        self._budgets = [
            rule for rule in self.policy.rules if isinstance(rule, stop.Budget)
        ]

        self._state: RunState | None = None
        self._stored_briefing: Briefing | None = None
        # The number of attempts that the loop had when this process opened it.
        self._resumed_after: int | None = None
        self._lock = asyncio.Lock()
        self._began = 0.0
        # When the last call was reserved: what it uses counts on the same day.
        self._reserved_at = 0.0

    def _prepare_functions(self) -> None:
        """Find out what the functions of the caller are: the rungs and the judges."""
        self._output = declared_output(self.output)
        # One for each rung. What memory knows of the model before it has answered is
        # the name of the first.
        self._producers = producers(self.generate, self.model, self._output)
        self._ladder: Ladder | None = None
        if len(self._producers) > 1:
            self._ladder = Ladder(names=tuple(rung.name for rung in self._producers))
        if self.store is None and any(
            producer.allowance is not None for producer in self._producers
        ):
            raise errors.InvalidInput(
                "store", None, "a store, which counts what a rung spends in a day"
            )

        self._pure = pure(self.checks, self.evaluate)
        # Those of a stage are called by its `evaluate`.
        self._judge_names = (
            self.stage.checks
            if self.stage
            else judge_names(self.checks, self.evaluate, self._output)
        )
        if self.memory_key is None:
            self.memory_key = (
                ""
                if self.memory is None
                else default_memory_key(self._producers[0], self.checks)
            )

    def _prepare_journal(self, may_exist: bool) -> None:
        """Name the store, the lease and the memory of the loop; nothing is read yet."""
        memory, store, scope = open_places(self.memory, self.store, self.scope)
        self._lease = journal.Lease(
            store,
            scope=scope,
            id=self.id,
            may_exist=may_exist,
        )
        self._memory = None if memory is None else self._loop_memory(memory)
        self._journal = journal.Journal(
            self._lease.store,
            scope=self._lease.scope,
            writer=self._lease,
            memory=self._memory,
        )

    def _loop_memory(self, memory: Memory) -> journal.LoopMemory:
        """Return what memory does for this loop."""
        shares_store = memory.store == self._lease.store
        return journal.LoopMemory(
            memory=memory,
            task=record.text_of(self.task),
            shares_transaction=shares_store and memory.scope == self._lease.scope,
            evidence="measured" if self._judge_names else "none",
            memory_key=self.memory_key or "",
            model=self._producers[0].model,
            checks=self._judge_names,
            judges=self.judges or list_judges(self.checks, self.evaluate),
            tell=self.tell,
        )

    @property
    def loop(self) -> record.Loop:
        """The loop so far; it has no attempts before the first step."""
        if self._state is None:
            return record.Loop(self.id, self.loop_goals, ladder=self._ladder)
        return self._state.loop

    @property
    def briefing(self) -> Briefing | None:
        """What memory tells the loop; None without memory or before the first step."""
        if self._memory is not None and self._memory.briefing is not None:
            return self._memory.briefing
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
        self.go_on()
        while True:
            state = await self._change_state(self._attempt)
            if not isinstance(state.verdict, decide.Done):
                continue

            best = state.verdict.best
            candidate = None
            if best is not None:
                candidate = state.values[best - 1]

            warn_if_unjudged(self._producers[0], state.loop)
            return Result(
                self.id,
                candidate,
                verdict=state.verdict,
                loop=state.loop,
                policy=self.policy,
                briefing=self.briefing,
                refused_by=self._judges.last_refusal,
            )

    def go_on(self) -> None:
        """Say that each attempt follows the last one at once, so that its call counts
        before it is made.
        """
        self._lease.goes_on = True

    async def cancel(self, by: str) -> decide.Verdict:
        """Cancel the loop for the actor `by`; return the verdict.

        An ended loop does not change.
        """

        async def end(state: RunState) -> RunState:
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

        Several rules are separated by commas. The override counts for this number of
        `decisions`, but not after `until`, in seconds since 1970. Raises
        OverrideRefused if the loop passed, if the override has expired or has no actor
        (`by`), or if a rule is not in the policy or cannot be overridden.
        """
        override = record.Override(rule, by, why=why, decisions=decisions, until=until)

        async def lift(state: RunState) -> RunState:
            """Apply the override, decide again and write both."""
            before = replace(state.loop, at=time.time())
            after, verdict = decide.apply_override(
                before, self.policy, state.verdict, override
            )
            verdict = await self._word_verdict(after, verdict)

            if isinstance(state.verdict, decide.Done) and self._memory is not None:
                # The loop opens again, so it needs lessons.
                await self._memory.brief(self.id, begins=False)

            entry = journal.override_entry(
                before, after, policy=self.policy, last=state.verdict, verdict=verdict
            )
            await self._journal.write(entry, before)
            return replace(state, loop=after, verdict=verdict)

        state = await self._change_state(lift)
        return state.verdict

    async def _change_state(
        self, work: Callable[[RunState], Awaitable[RunState]]
    ) -> RunState:
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
                except BaseException:
                    # Not handled, only noted, also of a cancellation: a write that
                    # raised may still have succeeded, and only the journal knows.
                    self._lease.may_exist = True
                    if self._lease.durable:
                        self._state = None
                    raise

                return self._state

    async def _open(self) -> RunState:
        """Return the state that the journal holds, or the state of a new loop."""
        stored_loop = None
        if self._lease.durable:
            stored_loop = await self._lease.open(self._head())

        if stored_loop is None:
            new = record.Loop(
                self.id,
                self.loop_goals,
                improves=self.policy.improvement,
                task=record.text_of(self.task),
                ladder=self._ladder,
            )
            state = RunState(loop=new)
            self._began = self._began or time.time()
        else:
            state = self._state_of(stored_loop)
            # A ladder whose write failed may be stored all the same: the store knows.
            self._journal.ladder = None
            if state.loop.ladder != stored_loop.loop.ladder:
                self._journal.ladder = state.loop.ladder
            self._began = self._began or stored_loop.created
            self._stored_briefing = stored_loop.briefing

            if self.data is None:
                self.data = stored_loop.head.context

        if self._resumed_after is None:
            self._resumed_after = len(state.loop.attempts)

        if self._lease.durable and any(map(stop.counts_scope, self.policy.rules)):
            echoes = await self._lease.echoes()
            state = replace(state, loop=replace(state.loop, echoes=echoes))
        if stop.has_user_code(self.policy.rules):
            needed = await self._lease.needed(self.memory_key or "")
            state = replace(state, loop=replace(state.loop, needed=needed))

        if self._memory is not None:
            answered = state.answer is not None
            await self._memory.open(state.loop, state.verdict, answered)

        return state

    def _head(self) -> Head:
        """Return what the store holds of the loop besides its attempts."""
        return Head(
            task=self.task,
            goals=[codec.to_document(goal) for goal in self.loop_goals],
            policy=codec.policy_to(self.policy),
            kind="loop" if self.stage is None else "stage",
            stage=self.stage,
            memory_key=self.memory_key or "",
            model=self._producers[0].model,
            ladder=self._ladder,
        )

    def _state_of(self, stored_loop: StoredLoop) -> RunState:
        """Return the state of a stored loop; its candidates are objects again."""
        loop = count_died_calls(stored_loop, is_given=self.initial is not None)
        self._journal.must_count_died = loop.died > 0
        loop = replace(
            loop,
            goals=self.loop_goals,
            improves=self.policy.improvement,
            ladder=resumed_ladder(stored_loop, self._producers, self._ladder),
        )
        verdict = stored_loop.verdict

        values: tuple[Any, ...] = ()
        if loop.attempts:
            pairs = zip(stored_loop.values, loop.attempts, strict=True)
            values = tuple(
                self._restore(value, attempt.type_name) for value, attempt in pairs
            )

        answer = None
        document = stored_loop.journal.get(journal.answer_step(loop))
        if document is not None and isinstance(verdict, decide.Again):
            answer = CandidateBatch.of(document, self._restore)

        return RunState(loop=loop, values=values, verdict=verdict, answer=answer)

    def _restore(self, data: Any, type_name: str) -> Any:
        """Return a candidate from its stored data. Raises OutputChanged."""
        functions = [producer.generate for producer in self._producers]
        return from_stored(data, type_name, self._output, [*functions, self.revise])

    @telemetry.attempt
    async def _attempt(self, state: RunState) -> RunState:
        """Make, judge, decide and write the next attempt, unless the loop has ended."""
        if isinstance(state.verdict, decide.Done):
            return state

        # Calls that failed may have spent a budget before this attempt.
        died_out = stop.died_out(self.policy.rules, state.loop)
        if died_out or any(rule(state.loop) for rule in self._budgets):
            return await self._end_early(state)

        if state.answer is None:
            self._check_countable(state)
        refused = await self._reserve(state)
        if refused is not None:
            return refused

        try:
            return await self._attempt_in_time(state)
        except (errors.GenerateFailed, errors.ModelError) as error:
            taken_over = await self._take_over(self._state or state, error)
            if taken_over is None:
                # A pipeline says itself how to go on with a stage.
                if self.stage is None:
                    add_resumption(error, self._lease)
                raise
            return taken_over

    async def _attempt_in_time(self, state: RunState) -> RunState:
        """Make the next attempt within the time that is left for it."""
        # An answer that an interrupted attempt left took part of this attempt's time.
        began = time.perf_counter()
        if state.answer is not None:
            began -= state.answer.usage.seconds

        limits = (rule.seconds for rule in self._budgets if rule.seconds)
        budget = min(limits, default=inf) - state.loop.usage.seconds
        budget_left = max(0.001, budget + began - time.perf_counter())
        limit = min(budget_left, self.timeout or budget_left)

        try:
            # No timer without a limit: it costs a tenth of an attempt.
            async with asyncio.timeout(None if limit == inf else limit):
                value, attempt = await self._try(state, began)
        except TimeoutError:
            seconds = time.perf_counter() - began

            if limit < budget_left:
                why = f"no result within {limit:g} s"
                await self._record_failure(seconds, why)
                number = len(state.loop.attempts) + 1
                raise errors.ModelTimeout(f"attempt {number} had {why}") from None

            state = self._state or state
            # An attempt without an answer counts as one call.
            usage = state.answer.usage if state.answer else record.Usage(calls=1)
            return await self._end_early(state, usage.lasting(max(budget, seconds)))
        except (errors.UserCodeError, errors.ModelError) as error:
            seconds = time.perf_counter() - began
            await self._record_failure(seconds, str(error), failed_usage(error))
            raise

        return await self._decide_on(state, value, attempt)

    async def _take_over(self, state: RunState, error: Exception) -> RunState | None:
        """Close the rung that failed; return None if the loop has to fail, too.

        If the answer is known, it was the judge that failed, and not the rung. Nor is
        it the rung if `revise` failed.
        """
        verdict = state.verdict
        revises = self.revise is not None and state.rung == 1 and state.loop.attempts
        may_raise = self._ladder is None or self.policy.on_failure == "raise"
        if may_raise or revises or state.answer or isinstance(verdict, decide.Done):
            return None

        why = redact(f"{type(error).__name__}: {error}")[:300]
        loop, next_verdict = decide.close_rung(state.loop, verdict, why)
        if isinstance(next_verdict, decide.Done) and not loop.attempts:
            return None
        return await self._leave_rung(state, loop, next_verdict)

    async def _leave_rung(
        self, state: RunState, loop: record.Loop, verdict: decide.Verdict
    ) -> RunState:
        """Write that a rung makes no further attempt, and the verdict after that."""
        loop = replace(loop, at=time.time())
        entry = journal.decision_entry(loop, self.policy, verdict)
        await self._journal.write(replace(entry, ladder=loop.ladder), loop)
        return replace(state, loop=loop, verdict=verdict, answer=None)

    def _spending(
        self, rung: int, usage: record.Usage
    ) -> tuple[str, record.Usage, float] | None:
        """Return what an attempt adds to the spending of its rung, if that is limited.

        A candidate that the caller gave was made without a call.
        """
        allowance = self._producers[rung - 1].allowance
        if allowance is None or usage == record.Usage(seconds=usage.seconds):
            return None
        return allowance.name, usage, self._reserved_at or time.time()

    def _check_countable(self, state: RunState) -> None:
        """Raise UsageUnknown if a limit cannot be kept by what this process has seen.

        The answers of an earlier process do not count: its program may be corrected.
        """
        producer = self._producers[state.rung - 1]
        if not self._budgets and producer.allowance is None:
            return  # nearly always
        attempts = [
            attempt
            for attempt in state.loop.attempts[self._resumed_after :]
            if attempt.rung == state.rung
        ]
        check_countable(producer, self.policy.rules, attempts)

    async def _reserve(self, state: RunState) -> RunState | None:
        """Reserve a call of a rung with a limit of the day, before it is made.

        Returns the next state if it is refused. No call is needed for a candidate that
        the caller gave, or that an interrupted attempt left.
        """
        allowance = self._producers[state.rung - 1].allowance
        store = self._lease.store
        is_given = self.initial is not None and not state.loop.attempts
        if allowance is None or store is None or is_given or state.answer is not None:
            return None

        scope = self._lease.scope
        self._reserved_at = time.time()
        spent = await store.write(scope, ladders.reserve, allowance, self._reserved_at)
        if spent is None or isinstance(state.verdict, decide.Done):
            return None

        why = spent.spent_of(allowance)
        loop, verdict = decide.close_rung(
            state.loop, state.verdict, why, name=allowance.name
        )
        return await self._leave_rung(state, loop, verdict)

    async def _decide_on(
        self, state: RunState, value: Any, attempt: record.Attempt
    ) -> RunState:
        """Decide on an attempt with its candidate `value`, and write both."""
        data = value
        if self._lease.durable:
            data, type_name = to_stored(value, self._output)
            attempt = replace(attempt, type_name=type_name)
        loop = journal.append_attempt(state.loop, attempt, time.time())
        verdict = await self._word_verdict(loop, decide.decide(loop, self.policy))

        if self._lease.durable:
            # Known fixes are words of lessons, which a store must be able to forget.
            stored_verdict = with_stage_feedback(verdict, loop, self.stage)
            entry = journal.decision_entry(
                loop,
                self.policy,
                stored_verdict,
                attempt=attempt,
                value=data,
            )
            # The answer of pure checks has no entry of its own, nor a refused one.
            answered = self._state is not None and self._state.answer is not None
            spending = None
            if self._pure or not answered:
                spending = self._spending(attempt.rung, attempt.usage)
            entry = replace(entry, spending=spending)
            await self._journal.write(entry, loop)
        elif self._memory is not None:
            entry = JournalEntry(id=self.id, epoch=0, verdict=verdict, attempt=attempt)
            await self._journal.write(entry, loop)

        return RunState(
            loop=decide.consume_overrides(loop, verdict),
            values=(*state.values, value),
            verdict=verdict,
        )

    async def _word_verdict(
        self, loop: record.Loop, verdict: decide.Verdict
    ) -> decide.Verdict:
        """Return the verdict; that of a stage has the feedback of its pipeline."""
        evaluation = loop.attempts[-1].evaluation if loop.attempts else None
        if self.feedback is None or evaluation is None:
            return verdict
        if not isinstance(verdict, decide.Again):
            return verdict

        advice = self.briefing.advice if self.briefing else ()
        feedback = await self.feedback(evaluation, loop.goals, advice)
        return replace(verdict, feedback=redact(feedback))

    async def _try(self, state: RunState, began: float) -> tuple[Any, record.Attempt]:
        """Make one attempt; return its candidate and its record."""
        loop = state.loop
        rung = state.rung
        producer = self._producers[rung - 1]
        number = len(loop.attempts) + 1
        context = self._context(state, number)
        self._judges.raised.clear()

        answer = state.answer
        if answer is None:
            try:
                answer = await self._answer(state, context, rung)
            except errors.GenerateFailed as error:
                return self._refused_attempt(error, state, context, began)
            usage = answer.usage.lasting(time.perf_counter() - began)
            answer = replace(answer, usage=usage)
            # Pure checks are quick and repeatable: then the attempt's entry is enough.
            if self._lease.durable and not self._pure:
                step = (journal.answer_step(loop), answer.plain(self._output))
                entry = JournalEntry(
                    id=self.id,
                    epoch=0,
                    step=step,
                    spending=self._spending(rung, answer.usage),
                )
                await self._journal.write(entry, loop)

            self._state = RunState(
                loop=loop, values=state.values, verdict=state.verdict, answer=answer
            )

        value, evaluation = await self._judges.best_of(
            answer, context, loop.goals, producer
        )

        text = value
        if self._output is not None:
            text = self._output.plain(value)
        candidate = record.NO_CANDIDATE
        # A type such as `Invoice | None` has None as an answer.
        is_answer = self._output is not None and not evaluation.errors
        if value is not None or is_answer:
            candidate = record.Candidate.of(text)
        near_repeat = find_repeated(candidate, loop, rung)

        is_revised = self.revise is not None and rung == 1
        hears = not context.hint or is_revised or self.stage is not None
        deaf = "" if hears else producer.deaf

        model_wrote = producer.writes and self.revise is None
        usage = answer.usage + evaluation.usage
        attempt = record.Attempt(
            number,
            candidate,
            evaluation=evaluation,
            usage=usage.lasting(time.perf_counter() - began),
            repeats=near_repeat,
            greedy=model_wrote and context.temperature == 0,
            judged_by=self._judge_names,
            model=answer.model,
            rung=rung,
            draft=number == 1 and self.initial is not None,
            deaf=deaf,
        )
        return value, attempt

    def _refused_attempt(
        self,
        error: errors.GenerateFailed,
        state: RunState,
        context: Context,
        began: float,
    ) -> tuple[Any, record.Attempt]:
        """Return the attempt of a function that refused its own answer by raising.

        Raises `error` if the exception does not refuse, or if the function is at fault.
        A stage that never had an output raises its exception, too, instead of ending:
        the next stage could not go on without an output.
        """
        loop = state.loop
        refused = self._judges.refusal(error, loop.attempts)
        value = refused.value
        # The candidate of a stage is its change of the state, which it has not made.
        if self.stage is not None:
            value = None
        candidate = record.NO_CANDIDATE
        if value is not None:
            candidate = record.Candidate.of(value)

        attempt = record.Attempt(
            context.attempt,
            candidate,
            evaluation=record.Evaluation(refused.findings, met=0.0),
            usage=refused.usage.lasting(time.perf_counter() - began),
            repeats=find_repeated(candidate, loop, state.rung),
            judged_by=self._judge_names,
            model=self._producers[state.rung - 1].model or refused.model,
            rung=state.rung,
        )
        if self.stage is not None:
            verdict = decide.decide(loop.then(attempt), self.policy)
            if isinstance(verdict, decide.Done) and verdict.best is None:
                raise error
        return value, attempt

    async def _answer(
        self, state: RunState, context: Context, rung: int
    ) -> CandidateBatch:
        """Return the candidates of the attempt that `context` describes.

        `revise` belongs to the first generator; another rung does not revise. It gets
        the last candidate that is known, and all findings since.
        """
        is_first = context.attempt == 1
        if is_first and self.initial is not None:
            return CandidateBatch((self.initial,), record.NO_USAGE, self.model)

        attempts = state.loop.attempts
        drafts = [attempt.number for attempt in attempts if attempt.has_candidate]
        if not drafts or self.revise is None or rung > 1:
            return await self._producers[rung - 1].produce(context)

        draft = drafts[-1] - 1
        findings: list[record.Finding] = []
        for attempt in attempts[draft:]:
            findings += attempt.evaluation.findings if attempt.evaluation else ()
        context = replace(context, previous=state.values[draft])
        answer = await revised(self.revise, context, findings, self._output)
        return self._producers[0].priced(answer)

    def _context(self, state: RunState, number: int) -> Context:
        """Return what checks and generators may know of attempt `number`."""
        hint = ""
        if isinstance(state.verdict, decide.Again):
            hint = state.verdict.feedback

        briefing = self.briefing
        return Context(
            self.task,
            number,
            loop_id=self.id,
            hint=hint,
            previous=state.values[-1] if state.values else None,
            data=self.data,
            temperature=state.warmed(self._producers[state.rung - 1].temperature),
            seed=number - 1,
            examples=briefing.examples if briefing else (),
            advice=briefing.advice if briefing else (),
            began=self._began,
        )

    async def _end_early(
        self, state: RunState, cut_off: record.Usage = record.NO_USAGE
    ) -> RunState:
        """End the loop, or its rung, because of calls that left no attempt.

        `cut_off` is what an attempt has cost that its budget of seconds cut off.
        """
        extra = state.loop.extra + cut_off
        loop = replace(state.loop, at=time.time(), extra=extra)
        verdict = decide.decide(loop, self.policy)
        entry = journal.decision_entry(loop, self.policy, verdict)
        await self._journal.write(replace(entry, extra=loop.extra), loop)
        loop = replace(state.loop, died=0, extra=extra)
        return replace(state, loop=loop, verdict=verdict, answer=None)

    async def _record_failure(
        self, seconds: float, why: str, usage: record.Usage | None = None
    ) -> None:
        """Write why an attempt failed after `seconds`, and its cost.

        `usage` is that of the failed call. If the answer of the attempt is known, only
        the judging failed: the answer is written for the next try, and without a
        `usage` no call is counted.
        """
        state = self._state or RunState(loop=self.loop)
        answer = state.answer

        step = None
        if answer is None:
            failed = (usage or record.Usage(1)).lasting(seconds)
        else:
            judging_seconds = max(0.0, seconds - answer.usage.seconds)
            failed = (usage or record.Usage()).lasting(judging_seconds)
            if self._lease.durable:
                step = (journal.answer_step(state.loop), answer.plain(self._output))

        loop = replace(state.loop, extra=state.loop.extra + failed)
        entry = JournalEntry(
            id=self.id,
            epoch=0,
            step=step,
            failure=why,
            extra=loop.extra,
        )
        await self._journal.write(entry, loop)
        self._state = replace(state, loop=loop)


@knows_options
async def run(
    task: Any,
    *,
    generate: Generators,
    checks: Sequence[Check] = (),
    evaluate: Evaluate | None = None,
    goals: Sequence[record.Goal | str] = (),
    policy: decide.Policy | str = policies.default,
    max_attempts: int | None = None,
    revise: Revise | None = None,
    memory: Memory | Store | str | None = None,
    initial: Any = None,
    store: Store | str | None = DEFAULT_STORE,
    id: str = "",
    output: Any = None,
    **options: Unpack[LoopOptions],
) -> Result[Any]:
    """Drive one task until a candidate passes or a rule stops the loop.

    `generate(task, hint)` returns a candidate, or a list whose best candidate becomes
    the attempt; a Model or a Writer is also a generator. Of a list of generators,
    cheapest first, the next one takes over when a rule ends the attempts of one; a
    `Rung` also has a price and limits of the day. `checks` find what is wrong,
    `evaluate` gives scores, and `goals` say which scores are enough. The `policy` says
    when to stop; `max_attempts` replaces its limit of attempts. `revise(task,
    candidate, findings)` makes the next candidate from the last one. An `initial`
    candidate is attempt 1. `memory` adds lessons of earlier loops to prompts and learns
    from this loop. `store` makes the loop durable, by default beside its memory; None
    stores nothing. A stored loop with an `id` can be resumed. `output` is the type of
    the candidates, such as a pydantic class: answers are read as it, and checks and the
    result get objects. For further `options` see `LoopOptions`.

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
        max_attempts=max_attempts,
        revise=revise,
        memory=memory,
        initial=initial,
        store=store,
        id=id,
        output=output,
        **options,
    )
    return await loop.finish()
