"""Make one attempt of a loop: generate, judge, decide, and write it to the journal.

`Run` knows the loop and reads it from the store. For each attempt it makes a
`NextAttempt` of what is known; `NextAttempt.make` returns the `RunState` after it, and
the methods below it stand in the order in which they are called. If the attempt fails,
its `state` has what was reached: an answer that is not judged yet, and what was spent.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from heedful import errors
from heedful.checks.evaluate import Context
from heedful.checks.output import to_stored
from heedful.checks.refusal import refuses
from heedful.drive.generate import (
    CandidateBatch,
    Producer,
    Revise,
    check_countable,
    revise_candidate,
)
from heedful.drive.journal import (
    Journal,
    answer_step,
    append_attempt,
    decision_entry,
)
from heedful.drive.judgement import FUNCTION_JUDGE, Judges, find_repeat
from heedful.lessons.lesson import Match
from heedful.loop import decide, record, stop
from heedful.loop.runs import RaisedError, StageHead, with_stage_feedback
from heedful.models.call import RETRY_TEMPERATURE_STEP
from heedful.redact import redact
from heedful.store import ladders
from heedful.store.records import JournalEntry
from heedful.validation import typed_frozen

# Writes the hint for the next attempt of a stage, from the advice of its memory.
_log = logging.getLogger("heedful")
StageFeedback = Callable[
    [record.Evaluation, tuple[record.Goal, ...], tuple[Match, ...]], Awaitable[str]
]


@typed_frozen(kw_only=True)
class RunState:
    """What a run knows of its loop.

    `values` are the candidates, one for each attempt. `answer` has the candidates of an
    attempt that is not judged yet; None if there is no such attempt.
    """

    loop: record.Loop
    values: tuple[Any, ...] = ()
    verdict: decide.Verdict = field(default_factory=decide.Again)
    answer: CandidateBatch | None = None

    def retry_temperature(self, temperature: float, rung: int) -> float:
        """Return the temperature of the next attempt, which `rung` makes.

        Each repeated candidate makes the model warmer, up to 1.
        """
        if len(self.loop.attempts) < 2 or rung != self.loop.rung:
            return temperature
        repeats = self.loop.of_rung().repeats()
        repeated = [first for first in repeats if first is not None]
        warmer = temperature + RETRY_TEMPERATURE_STEP * len(repeated)
        return max(temperature, min(1.0, warmer))


@dataclass(kw_only=True, eq=False, repr=False)
class NextAttempt:
    """The next attempt of a loop, for which `verdict` asks.

    `context` is what generators and checks may know. `initial` has the candidate that
    the caller gave for this attempt, if any. `timeout` limits the attempt, in seconds,
    with the `wait` before each further call after an error of `retry_on`.
    Only the loop of a stage has a `stage`, and writes its own `feedback`. The loop had
    `resumed_after` attempts when this process opened it. `reserved_at` is when the last
    call was reserved: what it uses counts on the same day.
    """

    state: RunState
    verdict: decide.Again
    context: Context
    producers: Sequence[Producer]
    judges: Judges
    journal: Journal
    policy: decide.Policy
    timeout: float | None
    retry_on: tuple[type[Exception], ...]
    wait: Sequence[float]
    initial: CandidateBatch | None
    revise: Revise | None
    stage: StageHead | None
    feedback: StageFeedback | None
    resumed_after: int
    reserved_at: float

    async def make(self) -> RunState:
        """Make the attempt; return the state of the loop after it.

        If a budget is spent, or if the rung may make no call, there is no attempt, and
        the state has only a new verdict. Raises UserCodeError, ModelError, StoreError,
        UsageUnknown.
        """
        # Calls that failed may have spent a budget before this attempt.
        loop = self.state.loop
        died_out = loop.died and stop.died_out(self.policy.rules, loop)
        if died_out or any(rule(loop) for rule in self.policy.budgets):
            return await self._end_early()

        if self.state.answer is None:
            # The answers of an earlier process do not count: its program may be
            # corrected.
            attempts = loop.attempts[self.resumed_after :]
            check_countable(
                self._producer, self.policy.rules, attempts, rung=self.verdict.rung
            )
            refused = await self._reserve()
            if refused is not None:
                return refused

        try:
            return await self._make_in_time()
        except (errors.GenerateFailed, errors.ModelError) as error:
            next_state = await self._close_failed_rung(error)
            if next_state is None:
                raise
            return next_state

    @property
    def _producer(self) -> Producer:
        """What makes the candidates."""
        return self.producers[self.verdict.rung - 1]

    async def _reserve(self) -> RunState | None:
        """Reserve a call of a rung with a limit of the day, before it is made.

        Returns the next state if it is refused.
        """
        why = await self._reserve_call()
        if not why:
            return None
        name = self._producer.name
        loop, verdict = decide.close_rung(self.state.loop, self.verdict, why, name=name)
        return await self._leave_rung(loop, verdict)

    async def _reserve_call(self) -> str:
        """Reserve a call of the rung; return "", or which limit of the day refuses it.

        No call is needed for a candidate that the caller gave.
        """
        allowance = self._producer.allowance
        store = self.journal.store
        if allowance is None or store is None or self.initial is not None:
            return ""
        scope = self.journal.scope
        self.reserved_at = time.time()
        spent = await store.write(scope, ladders.reserve, allowance, self.reserved_at)
        return "" if spent is None else spent.spent_of(allowance)

    async def _make_in_time(self) -> RunState:
        """Make the attempt within the time that is left for it."""
        # An answer that an interrupted attempt left took part of this attempt's time.
        began = time.perf_counter()
        if self.state.answer is not None:
            began -= self.state.answer.usage.seconds

        limits = (rule.seconds for rule in self.policy.budgets if rule.seconds)
        budget = min(limits, default=inf)
        if budget < inf:
            budget -= self.state.loop.usage.seconds
        budget_left = max(0.001, budget + began - time.perf_counter())
        limit = min(budget_left, self.timeout or budget_left)

        try:
            value, attempt = await self._make_within(limit, began)
        except TimeoutError:
            seconds = time.perf_counter() - began

            if limit < budget_left:
                why = f"no result within {limit:g} s"
                await self._record_failure(seconds, why)
                number = self.context.attempt
                raise errors.ModelTimeout(f"attempt {number} had {why}") from None

            # An attempt without an answer counts as one call.
            answer = self.state.answer
            usage = answer.usage if answer else record.Usage(calls=1)
            return await self._end_early(usage.lasting(max(budget, seconds)))
        except (errors.UserCodeError, errors.ModelError) as error:
            seconds = time.perf_counter() - began
            usage = None
            if isinstance(error, errors.ModelError):
                usage = error.usage or record.Usage(calls=1)
            await self._record_failure(seconds, str(error), usage)
            raise

        return await self._decide_on(value, attempt)

    async def _make_within(
        self, limit: float, began: float
    ) -> tuple[Any, record.Attempt]:
        """Return the best candidate of the attempt, and the record of the attempt.

        An answer that comes too late is refused if the caller's `refuse` has
        TimeoutError. Otherwise raises TimeoutError after `limit` seconds, and
        ModelTimeout; so it does if a judge is late, or if a budget sets the limit.
        """
        try:
            # No timer without a limit: it costs a tenth of an attempt.
            async with nullcontext() if limit == inf else asyncio.timeout(limit):
                return await self._generate_and_judge(began)
        except (TimeoutError, errors.ModelTimeout) as error:
            is_over_budget = isinstance(error, TimeoutError) and limit != self.timeout
            lateness = TimeoutError("there was no answer in time")
            may_refuse = refuses(lateness, self.judges.refuse)
            if is_over_budget or self.state.answer is not None or not may_refuse:
                raise
            failure = errors.GenerateFailed(str(lateness))
            failure.__cause__ = lateness
            return self._refused_attempt(failure, began)

    async def _generate_and_judge(self, began: float) -> tuple[Any, record.Attempt]:
        """Return the best candidate of the attempt, and the record of the attempt."""
        self.judges.refusals.clear()
        try:
            answer = self.state.answer or await self._generate(began)
        except errors.GenerateFailed as error:
            return self._refused_attempt(error, began)

        context = self.context
        producer = self._producer
        value, evaluation, lost = await self.judges.best_of(
            answer, context, self.state.loop.goals, producer
        )

        output = self.judges.output
        text = value if output is None else output.plain(value)
        candidate = record.NO_CANDIDATE
        # A type such as `Invoice | None` has None as an answer.
        is_answer = output is not None and not evaluation.errors
        if value is not None or is_answer:
            candidate = record.Candidate.of(text)

        rung = self.verdict.rung
        is_revised = self.revise is not None and rung == 1
        hears = not context.hint or is_revised or self.stage is not None
        model_wrote = producer.writes and self.revise is None
        usage = answer.usage + evaluation.usage
        attempt = record.Attempt(
            context.attempt,
            candidate,
            evaluation=evaluation,
            usage=usage.lasting(time.perf_counter() - began),
            repeats=find_repeat(candidate, self.state.loop, rung),
            greedy=model_wrote and context.temperature == 0,
            judged_by=self.judges.names_in(self.state.loop),
            model=answer.model,
            rung=rung,
            draft=self.initial is not None,
            deaf="" if hears else producer.deaf,
            candidates=len(answer.values),
            lost=lost,
        )
        return value, attempt

    async def _generate(self, began: float) -> CandidateBatch:
        """Make the candidates of the attempt, and write them if judging may fail."""
        answer = self.initial or await self._produce_with_retries()
        usage = answer.usage.lasting(time.perf_counter() - began)
        # Not `replace`, which takes twice as long.
        answer = CandidateBatch(
            answer.values, usage, answer.model, faults=answer.faults
        )
        # Pure checks are quick and repeatable: then the attempt's entry is enough.
        if self.journal.store is not None and not self.judges.are_pure:
            entry = replace(
                self._answer_entry(answer), spending=self._spending(answer.usage)
            )
            await self.journal.write(entry, self.state.loop)

        state = self.state
        self.state = RunState(
            loop=state.loop,
            values=state.values,
            verdict=state.verdict,
            answer=answer,
        )
        return answer

    async def _produce_with_retries(self) -> CandidateBatch:
        """Ask for candidates; after an error of `retry_on`, wait and ask again.

        Each call counts. The last number of `wait` or a spent budget ends them.
        """
        calls = 1
        while True:
            try:
                return await self._produce()
            except (errors.GenerateFailed, errors.ModelError) as error:
                if not await self._may_ask_again(error, calls):
                    raise
                seconds = self.wait[calls - 1]
                _log.warning("heedful: %s; called again in %g s", error, seconds)
            calls += 1
            await asyncio.sleep(seconds)

    async def _may_ask_again(self, error: errors.HeedfulError, calls: int) -> bool:
        """Return whether another call follows an error; if so, the failed one counts.

        If none follows several `calls`, the error gets their number.
        """
        causes = (error, error.__cause__)
        if not any(isinstance(cause, self.retry_on) for cause in causes):
            return False
        usage = getattr(error, "usage", None) or record.Usage(calls=1)
        loop = replace(self.state.loop, extra=self.state.loop.extra + usage)
        is_last = calls > len(self.wait)
        is_spent = any(rule(loop) for rule in self.policy.budgets)
        if is_last or is_spent or await self._reserve_call():
            if calls > 1:
                error.calls = calls
                error.args = (f"{error} at the last of {calls} calls",)
            return False
        self.state = replace(self.state, loop=loop)
        self.journal.must_write_extra = True
        return True

    async def _produce(self) -> CandidateBatch:
        """Ask the generator, or `revise` if there is a candidate to revise.

        `revise` belongs to the first generator; another rung does not revise. It gets
        the last candidate that is known, and all findings since.
        """
        attempts = self.state.loop.attempts
        drafts = [attempt.number for attempt in attempts if attempt.has_candidate]
        if not drafts or self.revise is None or self.verdict.rung > 1:
            return await self._producer.produce(self.context)

        draft = drafts[-1] - 1
        findings: list[record.Finding] = []
        for attempt in attempts[draft:]:
            findings += attempt.evaluation.findings if attempt.evaluation else ()
        context = replace(self.context, previous=self.state.values[draft])
        answer = await revise_candidate(
            self.revise, context, findings, self.judges.output
        )
        return self._producer.with_price(answer)

    def _refused_attempt(
        self, error: errors.GenerateFailed, began: float
    ) -> tuple[Any, record.Attempt]:
        """Return the attempt of a function that refused its own answer by raising.

        Raises `error` if the exception does not refuse: the function is at fault.
        A stage that never had an output raises its exception, too, instead of ending:
        the next stage could not go on without an output.
        """
        loop = self.state.loop
        rung = self.verdict.rung
        refused = self.judges.refusal(error)
        value = refused.value
        # The candidate of a stage is its change of the state, which it has not made.
        if self.stage is not None:
            value = None
        candidate = record.NO_CANDIDATE
        if value is not None:
            candidate = record.Candidate.of(value)

        attempt = record.Attempt(
            self.context.attempt,
            candidate,
            evaluation=record.Evaluation(refused.findings, met=0.0),
            usage=refused.usage.lasting(time.perf_counter() - began),
            repeats=find_repeat(candidate, loop, rung),
            judged_by=self.judges.names or FUNCTION_JUDGE,
            model=self._producer.model or refused.model,
            rung=rung,
        )
        if self.stage is not None:
            verdict = decide.decide(loop.then(attempt), self.policy)
            if isinstance(verdict, decide.Done) and verdict.best is None:
                raise error
        return value, attempt

    async def _decide_on(self, value: Any, attempt: record.Attempt) -> RunState:
        """Decide on the attempt with its candidate `value`, and write both."""
        state = self.state
        data = value
        if self.journal.store is not None:
            data, type_name = to_stored(value, self.judges.output)
            if type_name:
                attempt = replace(attempt, type_name=type_name)
        loop = append_attempt(state.loop, attempt)
        verdict = await word_verdict(
            decide.decide(loop, self.policy),
            loop,
            feedback=self.feedback,
            advice=self.context.advice,
        )

        if self.journal.store or self.journal.memory:
            # Known fixes are words of lessons, which a store must be able to forget.
            stored_verdict = with_stage_feedback(verdict, loop, self.stage)
            spending = None
            # The answer of pure checks has no entry of its own, nor a refused one.
            if self.judges.are_pure or state.answer is None:
                spending = self._spending(attempt.usage)
            entry = decision_entry(
                loop,
                self.policy,
                stored_verdict,
                attempt=attempt,
                value=data,
                spending=spending,
            )
            await self.journal.write(entry, loop)

        return RunState(
            loop=decide.consume_overrides(loop, verdict),
            values=(*state.values, value),
            verdict=verdict,
        )

    def _spending(self, usage: record.Usage) -> tuple[str, record.Usage, float] | None:
        """Return what the attempt adds to the spending of its rung, if it is limited.

        A candidate that the caller gave was made without a call.
        """
        allowance = self._producer.allowance
        if allowance is None or usage == record.Usage(seconds=usage.seconds):
            return None
        return allowance.name, usage, self.reserved_at or time.time()

    def _answer_entry(self, answer: CandidateBatch) -> JournalEntry:
        """Return the entry for an answer that is not judged yet."""
        loop = self.state.loop
        step = (answer_step(loop), answer.plain(self.judges.output))
        return JournalEntry(id=loop.id, epoch=0, step=step)

    async def _record_failure(
        self, seconds: float, why: str, usage: record.Usage | None = None
    ) -> None:
        """Write why the attempt failed after `seconds`, and its cost.

        `usage` is that of the failed call. If the answer of the attempt is known, only
        the judging failed: the answer is written for the next try, and without a
        `usage` no call is counted.
        """
        loop = self.state.loop
        answer = self.state.answer
        entry = JournalEntry(id=loop.id, epoch=0)
        if answer is None:
            usage = usage or record.Usage(calls=1)
        else:
            seconds = max(0.0, seconds - answer.usage.seconds)
            if self.journal.store is not None:
                entry = self._answer_entry(answer)

        cost = (usage or record.NO_USAGE).lasting(seconds)
        loop = replace(loop, extra=loop.extra + cost)
        failure = RaisedError(error=why, at=time.time())
        entry = replace(entry, failure=failure, extra=loop.extra)
        await self.journal.write(entry, loop)
        self.state = replace(self.state, loop=loop)

    async def _close_failed_rung(self, error: Exception) -> RunState | None:
        """Close the rung that failed; return None if the loop has to fail, too.

        If the answer is known, it was the judge that failed, and not the rung. Nor is
        it the rung if `revise` failed.
        """
        loop = self.state.loop
        revises = self.revise is not None and self.verdict.rung == 1 and loop.attempts
        may_raise = loop.ladder is None or self.policy.on_failure == "raise"
        if may_raise or revises or self.state.answer:
            return None

        why = redact(f"{type(error).__name__}: {error}")[:300]
        loop, verdict = decide.close_rung(loop, self.verdict, why)
        if isinstance(verdict, decide.Done) and not loop.attempts:
            return None
        return await self._leave_rung(loop, verdict)

    async def _leave_rung(self, loop: record.Loop, verdict: decide.Verdict) -> RunState:
        """Write that the rung makes no further attempt, and the verdict after that."""
        loop = replace(loop, at=time.time())
        entry = decision_entry(loop, self.policy, verdict)
        await self.journal.write(replace(entry, ladder=loop.ladder), loop)
        return replace(self.state, loop=loop, verdict=verdict, answer=None)

    async def _end_early(self, cut_off: record.Usage = record.NO_USAGE) -> RunState:
        """End the loop, or its rung, because of calls that left no attempt.

        `cut_off` is what an attempt has cost that its budget of seconds cut off.
        """
        state = self.state
        extra = state.loop.extra + cut_off
        loop = replace(state.loop, at=time.time(), extra=extra)
        verdict = decide.decide(loop, self.policy)
        entry = decision_entry(loop, self.policy, verdict)
        await self.journal.write(replace(entry, extra=extra), loop)
        loop = replace(state.loop, died=0, extra=extra)
        return replace(state, loop=loop, verdict=verdict, answer=None)


async def word_verdict(
    verdict: decide.Verdict,
    loop: record.Loop,
    *,
    feedback: StageFeedback | None,
    advice: tuple[Match, ...],
) -> decide.Verdict:
    """Return the verdict; that of a stage has the feedback of its pipeline."""
    evaluation = loop.last_evaluation
    if feedback is None or evaluation is None or not isinstance(verdict, decide.Again):
        return verdict
    hint = await feedback(evaluation, loop.goals, advice)
    return replace(verdict, feedback=redact(hint))
