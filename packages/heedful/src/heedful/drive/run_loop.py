"""Drive a loop in this process: make attempts until it ends.

`Run` holds the state of one loop: the loop so far, its candidates, the last verdict.
Each step computes the next state and writes it to the journal, an attempt by
`drive/attempt.py`; `decide` alone says whether another step follows. The state in
memory is dropped when a step fails, and read from the journal again, because a write
that raised may still have succeeded.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from heedful import errors, telemetry
from heedful.checks.evaluate import (
    Check,
    Context,
    Evaluate,
    list_judges,
    pure,
)
from heedful.checks.output import declared_output, from_stored, is_refused
from heedful.drive import journal
from heedful.drive.attempt import NextAttempt, RunState, StageFeedback, word_verdict
from heedful.drive.generate import (
    CandidateBatch,
    Generators,
    Revise,
    default_memory_key,
    producers,
    warn_if_unjudged,
)
from heedful.drive.judgement import Judges, judge_names
from heedful.drive.options import (
    C,
    LoopOptions,
    LoopSettings,
    MemoryPlace,
    add_resume_hint,
    knows_options,
    open_places,
    resumed_ladder,
)
from heedful.drive.result import Result
from heedful.lessons.briefing import Briefing
from heedful.loop import codec, decide, policies, record
from heedful.loop.ladder import Ladder
from heedful.loop.runs import StageHead
from heedful.memory.memory import Memory
from heedful.store import DEFAULT_STORE
from heedful.store.records import Head, StoredLoop
from heedful.store.store import Store
from heedful.validation import refuses_unknown_options, require


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
        self.id: str = self.id or os.urandom(16).hex()
        self._prepare_functions()
        self._prepare_journal(may_exist)
        self._judges = Judges(
            checks=self.checks,
            evaluate=self.evaluate,
            output=self._output,
            refuse=self.refuse,
            names=self._judge_names,
            are_pure=pure(self.checks, self.evaluate),
            stage_checks=self.judges,
            memory=self._memory,
        )

        self._state: RunState | None = None
        self._stored_briefing: Briefing | None = None
        # The number of attempts that the loop had when this process opened it.
        self._resumed_after: int | None = None
        self._lock = asyncio.Lock()
        self._began = 0.0
        # When the last call was reserved: what it uses counts on the same day.
        self._reserved_at = 0.0
        # True for a stored loop that was not decided under the limits of this run yet.
        self._has_new_limits = False

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

        # Those of a stage are called by its `evaluate`.
        self._judge_names = (
            self.stage.checks
            if self.stage
            else judge_names(self.checks, self.evaluate, self._output)
        )
        if self.memory_key is None:
            self.memory_key: str | None = (
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

    def _loop_memory(self, memory: Any) -> journal.LoopMemory:
        """Return what memory does for this loop."""
        is_local = isinstance(memory, Memory)
        shares_store = is_local and memory.store == self._lease.store
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
        return (await self._change_state(self._attempt)).verdict

    @telemetry.loop
    async def finish(self) -> Result[C]:
        """Make attempts until the loop ends; return its result. Raises like `step`."""
        self.go_on()
        while True:
            state = await self._change_state(self._attempt)
            if not isinstance(state.verdict, decide.Done):
                continue

            best = state.verdict.best
            candidate = state.values[best - 1] if best is not None else None
            output = None if state.verdict.passed else self._output
            if output is not None and is_refused(output.read(candidate)[1]):
                candidate = None

            warn_if_unjudged(self._producers[0], state.loop)
            return Result(
                self.id,
                candidate,
                verdict=state.verdict,
                loop=state.loop,
                policy=self.policy,
                briefing=self.briefing,
                refused_by=next(reversed(self._judges.refusals), None),
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

            loop, verdict, entry = journal.cancel_loop(state.loop, self.policy, by)
            await self._journal.write(entry, loop)
            return replace(state, loop=loop, verdict=verdict)

        return (await self._change_state(end)).verdict

    async def override(
        self,
        rule: str,
        by: str,
        why: str = "",
        decisions: int = 1,
        until: float | None = None,
        *,
        key: str = "",
    ) -> decide.Verdict:
        """Let the loop continue past `rule`; a loop that this rule stopped opens again.

        Several rules are separated by commas. The override counts for this number of
        `decisions`, but not after `until`, in seconds since 1970. A call that is made
        again with its `key` within a day lets nothing continue once more. Raises
        Conflict if the key belongs to another call, and
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
            return await self._go_on(state, before, after=after, verdict=verdict)

        async def lifted() -> decide.Verdict:
            """Write the override; return the new verdict."""
            return (await self._change_state(lift)).verdict

        store = self._lease.store
        if store is None:
            allowed = "left out: a loop without a store remembers no calls"
            require(not key, "key", key, allowed)
            return await lifted()
        return await journal.override_once(
            store, self._lease.scope, self.id, override, key=key, lift=lifted
        )

    async def _go_on(
        self,
        state: RunState,
        before: record.Loop,
        *,
        after: record.Loop,
        verdict: decide.Verdict,
    ) -> RunState:
        """Write the new `verdict` of a loop that goes on, and return its state.

        `after` has overrides that `before` does not.
        """
        verdict = await word_verdict(
            verdict,
            after,
            feedback=self.feedback,
            advice=self.briefing.advice if self.briefing else (),
        )
        if isinstance(state.verdict, decide.Done):
            await self._lease.reopen(self._head())
            if self._memory is not None:
                # The loop opens again, so it needs lessons.
                await self._memory.brief(self.id, begins=False)

        entry = journal.override_entry(
            before, after, policy=self.policy, last=state.verdict, verdict=verdict
        )
        await self._journal.write(entry, before)
        return replace(state, loop=after, verdict=verdict)

    async def _under_new_limits(self, state: RunState) -> RunState:
        """Open a loop again that the limits of an earlier run have stopped.

        Limits of a day are asked again, as another day has others.
        """
        loop = replace(state.loop, at=time.time())
        if loop.ladder is not None:
            loop = replace(loop, ladder=replace(loop.ladder, closings=()))
        verdict = decide.decide(loop, self.policy)
        if isinstance(verdict, decide.Done):
            return state
        self._journal.ladder = loop.ladder
        return await self._go_on(state, loop, after=loop, verdict=verdict)

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
                    if self._lease.store is not None:
                        self._state = None
                    raise

                return self._state

    async def _open(self) -> RunState:
        """Return the state that the journal holds, or the state of a new loop."""
        stored_loop = None
        if self._lease.store is not None:
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
            self._has_new_limits = _has_new_limits(stored_loop, self.policy)

            if self.data is None:
                self.data: Any = stored_loop.head.context

        if self._resumed_after is None:
            self._resumed_after = len(state.loop.attempts)

        if self.policy.counts_scope:
            echoes = await self._lease.echoes()
            state = replace(state, loop=replace(state.loop, echoes=echoes))
        if self.policy.has_user_code:
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
        loop = count_died_calls(stored_loop, has_initial=self.initial is not None)
        self._journal.must_write_extra = loop.died > 0
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
        """Return the state after the next attempt; `state` if the loop has ended."""
        if self._has_new_limits:
            self._has_new_limits = False
            state = await self._under_new_limits(state)
        if isinstance(state.verdict, decide.Done):
            return state

        attempt = self._next_attempt(state, state.verdict)
        try:
            return await attempt.make()
        except (errors.GenerateFailed, errors.ModelError) as error:
            # A pipeline says itself how to go on with a stage.
            if self.stage is None:
                add_resume_hint(error, self._lease)
            raise
        finally:
            self._state = attempt.state
            self._reserved_at = attempt.reserved_at

    def _next_attempt(self, state: RunState, verdict: decide.Again) -> NextAttempt:
        """Return the next attempt, for which the last `verdict` asks."""
        number = len(state.loop.attempts) + 1
        initial = None
        if self.initial is not None and number == 1:
            initial = CandidateBatch((self.initial,), record.NO_USAGE, self.model)
        producer = self._producers[verdict.rung - 1]
        briefing = self.briefing
        return NextAttempt(
            state=state,
            verdict=verdict,
            context=Context(
                self.task,
                number,
                loop_id=self.id,
                hint=verdict.feedback,
                previous=state.values[-1] if state.values else None,
                data=self.data,
                temperature=state.retry_temperature(producer.temperature, verdict.rung),
                seed=number - 1,
                examples=briefing.examples if briefing else (),
                advice=briefing.advice if briefing else (),
                began=self._began,
            ),
            producers=self._producers,
            judges=self._judges,
            journal=self._journal,
            policy=self.policy,
            timeout=self.timeout,
            retry_on=tuple(self.retry_on),
            wait=self.wait,
            initial=initial,
            revise=self.revise,
            stage=self.stage,
            feedback=self.feedback,
            resumed_after=self._resumed_after or 0,
            reserved_at=self._reserved_at,
        )


def _has_new_limits(stored_loop: StoredLoop, policy: decide.Policy) -> bool:
    """Return whether limits stopped a loop that may not stop it now.

    It stopped under another policy, or because a rung had spent what it may in a day.
    """
    verdict = stored_loop.verdict
    if not isinstance(verdict, decide.Done) or verdict.passed:
        return False
    is_closed = any(item.rule == "closed" for item in verdict.stopped_by)
    return is_closed or codec.policy_to(policy) != stored_loop.head.policy


def count_died_calls(stored_loop: StoredLoop, *, has_initial: bool) -> record.Loop:
    """Return the loop; a call that died with its process counts, as it was made.

    With an answer, or with the candidate that the caller gives, no call was needed:
    then `died` is 0.
    """
    loop = stored_loop.loop
    has_answer = journal.answer_step(loop) in stored_loop.journal
    needs_no_call = (
        has_answer or stored_loop.ended or (has_initial and not loop.attempts)
    )
    if not loop.died or needs_no_call:
        return replace(loop, died=0)
    return replace(loop, extra=loop.extra + record.Usage(loop.died))


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
    memory: MemoryPlace = None,
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
    from this loop: a Memory, its store, a `heedful.Client`, or the address of a service
    with the key as its password, in `scope.project`. `store` makes the loop durable, by
    default beside its memory, but not at a service; None stores nothing. A stored loop
    with an `id` can be resumed. `output` is the type of the candidates, such as a
    pydantic class: answers are read as it, and checks and the result get objects. For
    further `options` see `LoopOptions`.

    Raises UserCodeError, ModelError or StoreError; the loop stays open and can be
    resumed. With a service as memory, also raises the errors of a Client: Unreachable
    before the first attempt, or after the last one. If the loop has a store, run it
    again with its id: it has its answer, and reports it.
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
