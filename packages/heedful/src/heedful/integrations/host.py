"""heedful beside an agent that somebody else's framework runs: five verbs for all.

`recall` what fits a task, ask `before` an action, ask whether an error was `seen`, get
a `verdict` on an output, and `learn` from what happened. This module knows no
framework. A call that fails or takes too long says nothing, so the agent continues
without it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from heedful.drive.options import validate_checks
from heedful.drive.report import ReportedLoop, open_loop
from heedful.episodes.episode import Arguments, Ended, Event
from heedful.episodes.reading import read
from heedful.errors import InvalidInput, NotFound, UsageUnknown
from heedful.integrations.call_host import Advice
from heedful.integrations.reminders import measure_checks, settle_reminders
from heedful.integrations.task_host import PromptRun, TaskHost
from heedful.lessons.scope import DAY_SECONDS
from heedful.loop import policies
from heedful.loop.decide import Done, Policy, Verdict
from heedful.loop.record import NO_USAGE, Candidate, Evaluation, Finding, Goal, Usage
from heedful.loop.stop import Budget, Stop
from heedful.memory.memory import Memory
from heedful.memory.session_brief import tool_mistakes
from heedful.memory.sessions import Learned, learn_session
from heedful.models.answers import usage_of
from heedful.store import episodes, loops
from heedful.validation import Document, refuses_unknown_options, require

if TYPE_CHECKING:
    from heedful.checks.evaluate import Check
    from heedful.checks.refusal import Refusing

__all__ = ["Advice", "Host", "HostRun"]
REPORT_USAGE = (
    "let the model report its usage, or after each of its answers call "
    "run.spend(heedful.Usage(…))"
)


@refuses_unknown_options
@dataclass(eq=False, kw_only=True)
class Host(TaskHost):
    """heedful for the runs of one agent: its memory, its checks, and when it must stop.

    Outputs are judged by `checks`, `refuse`, `goals`, `policy`, `memory_key`, `model`
    and `context`, which are those of `open_loop`; without checks and goals no run gets
    a verdict. The budgets of the `policy` bind while an agent works, also then. Tools
    in `polls` wait for something, so an agent may repeat their calls.

    The other fields are the same for each kind of host. `memory` is a Memory, a Store,
    its name, or None. `everywhere` is the database of the user's own memory, whose
    rules hold in all projects, if it is not `memory`. A lookup takes at most `seconds`,
    the first one also the time in which the embedder is loaded. Errors of heedful are
    logged and not raised, except with `strict`. `root` is the folder of the repository
    in which the runs work, if any: lessons name files relative to it. `tell` is what
    memory tells of outputs and stores of them: that of `heedful.run`.
    """

    checks: Sequence[Check] = ()
    refuse: Refusing = ()
    goals: Sequence[Goal | str] = ()
    policy: Policy | str = "default"
    memory_key: str | None = None
    model: str = ""
    context: Any = None
    polls: Collection[str] = ()
    budgets: tuple[Budget, ...] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.budgets = policies.policy(self.policy).budgets
        validate_checks(self.checks)
        require(
            not isinstance(self.polls, str),
            "polls",
            self.polls,
            "a collection of tool names, such as a list",
        )

    def run(self, id: str = "", task: Any = "") -> HostRun:
        """Return the run of an agent; the `id` of an earlier run continues that run.

        Without a `task`, an earlier run that was judged keeps its task.
        """
        return HostRun(host=self, id=id, task=task)

    async def sweep(self) -> None:
        """End runs without an event for a day: they were killed or lost."""
        memory = self.own_memory
        if memory is None:
            return

        before = time.time() - DAY_SECONDS
        for id in await memory.store.read(memory.scope, episodes.abandoned, before):
            await self.run(id)._finish(memory)


@dataclass(eq=False, kw_only=True)
class HostRun(PromptRun):
    """One run of an agent, from its task to its last output; `Host.run` returns one.

    The events of the run are in the store, so that another process can go on with the
    same `id`. `outputs` are those of the attempts, as the host gave them.
    `call_advice` has the advice about calls, by their ids. `room` is how many
    characters of lessons the host can show now: what it cannot show is not recorded as
    shown. `unjudged` says why the last output has no verdict, if heedful failed.
    `spent` is what the current attempt has used, which began at `attempt_began`, in
    seconds of the monotonic clock. An adapter that asks before each request whether a
    budget is spent sets `asks_for_budget`.
    """

    host: Host
    loop: ReportedLoop | None = None
    outputs: list[Any] = field(default_factory=list)
    unjudged: Done | None = None
    spent: Usage = NO_USAGE
    attempt_began: float = field(default_factory=time.monotonic)
    asks_for_budget: bool = False

    def spend(self, usage: Any) -> Stop | None:
        """Count what an answer of the model has used: a Usage, or the usage of an SDK.

        Returns why the run must end, None while a budget has something left. Raises
        InvalidInput, and UsageUnknown as `spent_budget` does.
        """
        counted = usage_of(usage)
        if counted is None:
            raise InvalidInput("usage", usage, "a Usage, or the usage of an SDK")
        self.spent += counted
        return self.spent_budget()

    def spent_budget(self, *, has_answered: bool = False) -> Stop | None:
        """Return why the run must end: the budget that it has spent; None without one.

        Raises UsageUnknown if the model of the agent `has_answered`, or a call of it is
        counted, and nothing that a budget limits is reported.
        """
        usage = self.spent.lasting(time.monotonic() - self.attempt_began)
        if self.loop is not None:
            usage += self.loop.loop.usage

        for budget in self.host.budgets:
            stop = budget.reached(usage)
            if stop is not None:
                return stop
            unreported = budget.unreported(usage)
            if unreported and (has_answered or usage.calls):
                raise UsageUnknown("the model of the agent", unreported, REPORT_USAGE)
        return None

    async def before(
        self,
        tool: str,
        arguments: Arguments,
        call: str = "",
        agent: str = "",
        deny: bool = False,
    ) -> Advice:
        """Return how calls like this one failed, and what fixed them.

        The arguments are those of `CallRun.before`. If a budget is spent, the advice
        denies the call. Raises UsageUnknown if `spend` was not called with what a
        budget limits.
        """
        stop = None
        if not self.asks_for_budget:
            stop = self.spent_budget(has_answered=True)
        if stop is None:
            return await super().before(tool, arguments, call, agent, deny)

        text = f"The run must end: {stop.detail}. Answer with what you know."
        self.call_advice.setdefault(call, []).append(text)
        return Advice(text=text, denies=True)

    async def _advise(self, task: str) -> Advice:
        """Return the hint of the loop if there is one, else lessons on the task.

        What calls of the agent's own tools got wrong in earlier runs is above it.
        """
        if self.judges:
            loop = await self._open()
            advice = Advice(
                text=loop.hint,
                examples=loop.briefing.examples,
                silence=loop.briefing.silence,
            )
        else:
            advice = await super()._advise(task)

        memory = self.host.own_memory
        if memory is None:
            return advice
        mistakes = await memory.store.read(memory.scope, tool_mistakes)
        warning = await self._offer(memory, "session start", mistakes, reader=self.id)
        if mistakes and not advice:
            return warning
        return advice.below(warning.text)

    async def verdict(
        self,
        output: Any,
        usage: Any = None,
        attempt: int | None = None,
        *,
        misfit: str = "",
    ) -> Verdict | None:
        """Check an output and decide; None without checks and goals, or on a failure.

        A `misfit` says why the output is not of the type that the agent must answer
        with: no check reads such an output, it is refused. Checks get the output as it
        is, and have no time limit here; its JSON data are stored. The `usage` is that
        of the attempt, by default what `spend` has counted. After the end of the loop,
        return the last verdict. An output with which an earlier process stopped also
        returns it when it is reported again: the output with the same number or, if the
        host does not count its `attempt`, an equal one.
        """
        if not self.judges:
            return None
        return await self.host.guarded(
            "judge an output",
            work=self._judge(output, usage, attempt, misfit),
            otherwise=None,
            limited=False,
            tell=self._set_unjudged,
        )

    async def _judge(
        self, output: Any, usage: Any, attempt: int | None, misfit: str
    ) -> Verdict | None:
        """Report an output that is new to the loop; return the last verdict."""
        loop = self.loop or await self._open()
        data = _plain_data(output)
        attempts = loop.loop.attempts

        if attempt is not None:
            is_new = attempt > len(attempts)
        else:
            # The first output of this process may be the last of an earlier process.
            digest = Candidate.of(data).digest
            is_last = bool(attempts) and attempts[-1].candidate.digest == digest
            is_new = bool(self.outputs) or not is_last

        if is_new and loop.ended:
            return loop.verdict

        spent = self.spent if usage is None else usage_of(usage)
        if spent is not None and not spent.seconds:
            usage = spent.lasting(time.monotonic() - self.attempt_began)
        fields: Document = {"usage": usage, "judged": output}
        if misfit:
            finding = Finding("output type", misfit, fix="answer with this type only")
            fields.update(evaluation=Evaluation(findings=(finding,)), checks=())
        if is_new:
            await loop.report(data, **fields)
            self.spent = NO_USAGE
            self.attempt_began = time.monotonic()

        self.outputs.append(output)
        return loop.verdict

    def _set_unjudged(self, reason: str) -> None:
        """Note the failure of heedful for which the last output has no verdict."""
        rule = Stop("unjudged", f"not judged: {reason}")
        self.unjudged = Done(None, passed=False, stopped_by=(rule,))

    @property
    def next(self) -> int | None:
        """The number of the next attempt, None before the loop is open.

        It is for a host that may have been restarted.
        """
        return len(self.loop.loop.attempts) + 1 if self.loop else None

    @property
    def ended(self) -> bool:
        """True if the run had its last verdict, perhaps in an earlier process.

        `recall` and `verdict` look.
        """
        return self.loop is not None and self.loop.ended

    @property
    def usage(self) -> Usage:
        """What its attempts have used, in all processes, and what is `spent` since."""
        return self.loop.loop.usage + self.spent if self.loop else self.spent

    @property
    def judges(self) -> bool:
        """True if the host has checks or goals."""
        return bool(self.host.checks or self.host.goals)

    @property
    def best(self) -> Any:
        """The best output, as the host gave it; None before the first verdict."""
        loop = self.loop
        if loop is None or loop.loop.best is None:
            return None

        # The first attempts may be those of an earlier process.
        earlier_attempts = len(loop.loop.attempts) - len(self.outputs)
        index = loop.loop.best - 1 - earlier_attempts
        return self.outputs[index] if index >= 0 else loop.candidate

    async def learn(self, *events: Event, ends: Ended | None = None) -> Learned | None:
        """Keep events; if the run `ends`, store what it teaches and forget its events.

        Learns from errors and from what fixed them, never from an output that was
        rejected. If heedful fails, returns None.
        """
        await self.keep(*events)
        memory = self.host.own_memory
        if ends is None or memory is None:
            return None
        return await self.host.guarded(
            "learn from a run", self._end(memory), otherwise=None, limited=False
        )

    async def _end(self, memory: Memory) -> Learned | None:
        """Store what the run taught, and return it; end the runs that were lost."""
        learned = await self._finish(memory)
        await self.host.sweep()
        return learned

    async def study(self) -> Learned | None:
        """Store what the run has taught so far. Raises StoreError.

        A run that goes on teaches something by its failures only. Returns None if there
        is no memory.
        """
        memory = self.host.own_memory
        if memory is None:
            return None

        events = await self.events()
        # The keys of the service by which the events came.
        keys = frozenset(event.pop("via") for event in events) - {""}
        if not events:
            return Learned()

        document = {"session": self.id, "outcome": "partial", "events": events}
        session = await asyncio.to_thread(next, read(json.dumps(document).encode()))
        return await learn_session(
            session,
            memory=memory,
            sources=keys,
            root=self.host.root,
        )

    async def _open(self) -> ReportedLoop:
        """Open the loop of the run; without a task, the run has that of its loop."""
        host = self.host
        if self.task == "":
            with suppress(NotFound):
                stored_loop = await host.store.read(host.own_scope, loops.read, self.id)
                self.task: Any = stored_loop.head.task

        self.loop = await open_loop(
            self.id,
            _plain_data(self.task),
            memory=host.own_memory,
            memory_key=host.memory_key,
            model=host.model,
            checks=host.checks,
            refuse=host.refuse,
            goals=host.goals,
            policy=host.policy,
            store=host.store,
            scope=host.scope,
            context=host.context,
            tell=host.tell,
        )
        return self.loop

    async def _finish(self, memory: Memory) -> Learned | None:
        """Store what the run taught and whether lessons helped; forget its events.

        Its id stays known, because it may go on.
        """
        until = time.time()
        events = await self.events()
        await settle_reminders(memory, self.id, events, self.host.root)
        await measure_checks(memory, events)
        learned = await self.study()
        await memory.store.write(
            memory.scope, episodes.forget_session, self.id, until=until
        )
        return learned


def _plain_data(value: Any) -> Any:
    """Return JSON data of dataclasses and pydantic objects; a text stays as it is."""
    if isinstance(value, str):
        return value

    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, bytes_mode="base64", fallback=repr)
