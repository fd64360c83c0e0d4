"""The attempts of one run, for frameworks that show each request to the model.

`Host` has the five verbs. An adapter that adds to requests what memory shows, and asks
again after a rejected answer, keeps the same things between these verbs, whatever its
framework: what was recalled, the last rejected answer, the tokens of the attempt, and
the calls of tools that run.
"""

import secrets
import time
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    MutableMapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from heedful.drive.portal import run_sync
from heedful.episodes.episode import Ended, Event
from heedful.episodes.signals import canonical_json
from heedful.errors import Conflict, UsageUnknown
from heedful.integrations.host import Host, HostRun
from heedful.integrations.repeats import Repeats
from heedful.integrations.results import PASSED_OUTCOMES
from heedful.lessons.render import MAX_MOMENT_CHARS
from heedful.loop import policies
from heedful.loop.decide import Again, Done, Verdict
from heedful.loop.ladder import COST_UNITS
from heedful.loop.record import NO_USAGE, Candidate, Usage
from heedful.loop.stop import Budget, Stop
from heedful.models.answers import value_at
from heedful.validation import require

T = TypeVar("T")
Role = Literal["user", "assistant"]
# Where the caller of an agent gives the id of a run.
ID_KEY = "heedful_id"
# Providers refuse a message without a text.
EMPTY_ANSWER = "(an empty answer)"
# The budgets that most frameworks can keep: they know no price.
COUNTED_UNITS = ("calls", "tokens", "seconds")
# The runs of an adapter that are open in this process.
MAX_OPEN_RUNS = 1_000


def checked_host(
    host: Any, framework: str = "", kept_units: Collection[str] = COUNTED_UNITS
) -> Host:
    """Return `host`, for a framework that can keep budgets of these units.

    Raises InvalidInput if it is no host, and UsageUnknown if a budget limits another
    unit.
    """
    require(isinstance(host, Host), "host", host, "a Host: Host(checks=[…])")
    parts = policies.policy(host.policy).parts
    budgets = [part for part in parts if isinstance(part, Budget)]
    for unit in COST_UNITS:
        is_limited = any(getattr(budget, unit) is not None for budget in budgets)
        if is_limited and unit not in kept_units:
            cure = f"limit {' or '.join(kept_units)} instead"
            raise UsageUnknown(framework, [unit], cure)
    return cast("Host", host)


@dataclass(eq=False, kw_only=True)
class Attempts:
    """The attempts of one run: what each request shows, and the best answer.

    An adapter awaits `begin`, before each request asks for the `early_answer`, and
    sends what `advised` returns. It adds the usage of the request to `run.spent` (or
    calls `count` with the total) before the next one, gives a text to `hear`, an answer
    to `judge`, and runs a call by `watch`, or between `ask` and `keep`. When the run is
    over, also by an error, it awaits `end`.

    `recalled` is what memory has for the task. `rejected` is the last answer if it was
    rejected, `feedback` what is wrong with it. `counted` is the usage that `run.spent`
    has already. `spent_budget` is the stop of a budget while the agent works. `running`
    has the tools of calls without a result, by the ids of these calls. With
    `hold_back`, a call with advice does not run at first; `held_back` has these calls.
    `place` is the number of messages in a request before the rejected answer, None
    before the first request of an attempt.
    """

    run: HostRun
    hold_back: bool = False
    recalled: str = ""
    rejected: str = ""
    feedback: str = ""
    counted: Usage = NO_USAGE
    verdict: Verdict | None = None
    spent_budget: Stop | None = None
    running: dict[str, str] = field(default_factory=dict)
    held_back: set[str] = field(default_factory=set)
    last_text: str = ""
    place: int | None = None

    def __post_init__(self) -> None:
        self.repeats: Repeats = Repeats(self.run.host.polls)

    async def begin(self) -> None:
        """Recall; if an earlier process was interrupted, go on after its last answer.

        If that process ended the run, its best answer is the `early_answer`.
        """
        self.run.asks_for_budget = True
        self.recalled = (await self.run.recall()).text
        # What heedful took to look up lessons is no time of the agent.
        self.run.attempt_began = time.monotonic()
        loop = self.run.loop
        if loop is None or not loop.loop.attempts:
            return

        self.verdict = loop.verdict
        if isinstance(loop.verdict, Again):
            feedback = loop.verdict.feedback
            self.recalled = self.recalled.removesuffix(feedback).rstrip()
            self._reject(loop.stored.values[-1], feedback)

    async def begin_turn(self) -> None:
        """Begin; an id of an ended run or of another task gets a random suffix."""
        with suppress(Conflict):
            await self.begin()
            loop = self.run.loop
            if not self.run.judges or (loop and not loop.ended):
                return

        self.verdict = None
        id = f"{self.run.id}~{secrets.token_hex(4)}"
        self.run = self.run.host.run(id, self.run.task)
        await self.begin()

    @property
    def has_better(self) -> bool:
        """True if the run is over, and an earlier answer is better than its last."""
        best = self.run.best
        if best is None or not isinstance(self.verdict, Done):
            return False
        outputs = self.run.outputs
        return not outputs or best is not outputs[-1]

    @property
    def done(self) -> Done | None:
        """The verdict that ends the run, None while it goes on or without checks."""
        loop = self.run.loop
        best = loop.loop.best if loop else None
        if self.stopped:
            return Done(best, passed=False, stopped_by=(self.stopped,))
        return self.verdict if isinstance(self.verdict, Done) else self.run.unjudged

    @property
    def best_text(self) -> str:
        """The best answer as a text."""
        return Candidate.of(self.run.best).text or ""

    def best_as(self, kind: Any) -> Any:
        """Return the best answer as an object of the type `kind`, if it can be one."""
        best = self.run.best
        if not isinstance(kind, type) or isinstance(best, kind):
            return best

        try:
            return TypeAdapter(kind).validate_python(best)
        except ValidationError:
            return best

    def hear(self, text: str | None) -> None:
        """Keep the last text of the model, unless it says nothing."""
        self.last_text = text or self.last_text

    @property
    def stopped(self) -> Stop | None:
        """Why the run ends while the agent works: its budget is spent, or it repeats a
        call.
        """
        return self.spent_budget or self.repeats.stopped

    def must_stop(self) -> bool:
        """Ask whether a budget is spent; return True if the run ends, also by a repeat.

        Raises UsageUnknown as `HostRun.spent_budget` does.
        """
        if self.stopped is None:
            self.spent_budget = self.run.spent_budget()
        return self.stopped is not None

    def closing(self, heard: Iterable[str] = (), *, at_limit: bool = False) -> str:
        """Return the answer that ends the run because it `must_stop`, or "".

        Ask before each request to the model, which the answer replaces, and `at_limit`
        when the framework itself would end the run. `heard` are texts of the model that
        `hear` did not get. It is the best answer of the run, else its last text, else a
        sentence about the reason. Raises UsageUnknown.
        """
        for text in heard:
            self.hear(text)
        self.repeats.before_request(at_limit=at_limit)
        if not self.must_stop():
            return ""
        if self.run.best is not None:
            return self.best_text
        return self.last_text or f"The run ended: {self.stopped}"

    def early_answer(self, heard: Iterable[str] = (), *, at_limit: bool = False) -> str:
        """Return the answer that ends the run without a request to the model, or "".

        It is the best one of an earlier process that ended the run, or the `closing`.
        """
        ended_before = self.run.ended and not self.run.outputs
        if ended_before and self.run.best is not None:
            return self.best_text or EMPTY_ANSWER
        return self.closing(heard, at_limit=at_limit)

    def count(self, total: Usage) -> None:
        """Count what the run has used so far, of which `counted` is counted already."""
        before = self.counted
        self.counted = total
        self.run.spent += Usage(
            total.calls - before.calls,
            total.prompt_tokens - before.prompt_tokens,
            completion_tokens=total.completion_tokens - before.completion_tokens,
            cost=total.cost - before.cost,
        )

    async def judge(
        self, output: Any, attempt: int | None = None, misfit: str = ""
    ) -> bool:
        """Judge an answer; return True if the agent must answer again.

        The arguments are those of `HostRun.verdict`.
        """
        if self.stopped:
            self.verdict = self.done
            return False

        # The agent goes on from what is wrong, perhaps with the same calls.
        self.repeats.forget()
        number = attempt or self.run.next
        self.verdict = await self.run.verdict(output, attempt=number, misfit=misfit)
        if not isinstance(self.verdict, Again):
            return False
        self._reject(output, self.verdict.feedback)
        return True

    def _reject(self, output: Any, feedback: str) -> None:
        """Keep the last rejected answer, and what is wrong with it."""
        self.rejected = Candidate.of(output).text or EMPTY_ANSWER
        self.feedback = feedback or "Try again."
        self.place = None

    async def ask(
        self, tool: str, arguments: Any, call: str, *, hold_back: bool = False
    ) -> str:
        """Ask about a call before it runs, once; return why it is held back, or ""."""
        repeated = self.repeats.hold(tool, arguments, call)
        if repeated or call in self.running:
            return repeated

        advice = await self.run.before(tool, arguments, call)
        request = f"{tool} {canonical_json(arguments)}"
        holds = hold_back or self.hold_back
        if advice and holds and request not in self.held_back:
            # The advice is the result of the call, so it is not shown again after it.
            self.held_back.add(request)
            self.run.call_advice.pop(call, None)
            return advice.text

        self.running[call] = tool
        return ""

    async def keep(
        self, tool: str, result: str, call: str, *, failed: bool = False
    ) -> None:
        """Keep the result of a call that runs; ask about its error."""
        if call not in self.running:
            return
        del self.running[call]
        if failed:
            await self.run.seen(tool, result, call)
        else:
            await self.run.learn(Event("tool_response", result, tool=tool, call=call))
        note = self.repeats.note(call, result, failed=failed)
        if note:
            self.run.call_advice.setdefault(call, []).append(note)

    async def watch(
        self,
        tool: str,
        arguments: Any,
        call: str,
        *,
        work: Callable[[], Awaitable[Any]],
        text: Callable[[Any], str] = str,
        failed: Callable[[Any], bool] = lambda _: False,
        others: tuple[type[Exception], ...] = (),
    ) -> Any:
        """Return what a call returns, or why it is held back.

        Keeps its result, of which `text` makes a text, or its error: a result may be
        one, as `failed` says. Raises what the call raises; of that, the `others` are no
        failures of the tool.
        """
        held_back = await self.ask(tool, arguments, call)
        if held_back:
            return held_back
        try:
            result = await work()
        except Exception as error:
            if not isinstance(error, others):
                error_text = f"{type(error).__name__}: {error}"
                await self.keep(tool, error_text, call, failed=True)
            raise
        await self.keep(tool, text(result), call, failed=failed(result))
        return result

    def call_advice(self) -> dict[str, str]:
        """Return the advice about calls for the next request, by the ids of calls.

        It has a limited room: the latest calls come first.
        """
        room = MAX_MOMENT_CHARS - len(self.recalled)
        text_by_call: dict[str, str] = {}
        for call, texts in reversed(self.run.call_advice.items()):
            text = "\n".join(texts)
            if len(text) <= room:
                text_by_call[call] = text
                room -= len(text)
        return text_by_call

    def advised(
        self,
        messages: Sequence[T],
        *,
        task: int,
        last: int | None = None,
        calls: Callable[[T], Iterable[object]],
        message: Callable[[Role, str], T],
    ) -> list[T]:
        """Return a request with what memory has, and the last rejected answer.

        What memory has follows the message `task` and the results of calls, whose ids
        `calls` returns. The rejected answer follows the message `last`, by default the
        last one of the first request after it. `message` makes one.
        """
        if last is None:
            # A request may have been compacted.
            self.place = min(len(messages), self.place or len(messages))
            last = self.place - 1

        call_advice = self.call_advice()
        request: list[T] = []
        # Advice waits until the results of parallel calls, which stay together, end.
        waiting: list[T] = []
        for number, own_message in enumerate(messages):
            ids = list(map(str, calls(own_message)))
            if not ids:
                request += waiting
                waiting = []
            request.append(own_message)
            texts = [call_advice.get(id, "") for id in ids]
            if number == task:
                texts.append(self.recalled)
            waiting += [message("user", text) for text in texts if text]
            if number == last and self.feedback:
                waiting.append(message("assistant", self.rejected))
                waiting.append(message("user", self.feedback))

        return request + waiting

    async def end(self, ends: Ended | None = None) -> Done | None:
        """Learn from the run; return the verdict on its answer, None without checks.

        The run ends as its verdict says, or as `ends` says, for example with an error.
        """
        if isinstance(self.verdict, Again) and self.run.loop:
            # The framework ended the run before its policy did.
            self.verdict = Done(self.run.loop.loop.best, passed=False)

        done = self.done
        is_judged = done is not None and done is not self.run.unjudged
        outcome = PASSED_OUTCOMES[done.passed if done and is_judged else None]
        await self.run.learn(ends=ends or outcome)
        return done


class Adapter:
    """What the plugins of all frameworks have: the host, and the runs of this process.

    `runs` has those that are open. With `hold_back`, a call of a tool that failed
    before does not run at first. Budgets that the `framework` cannot keep are refused.
    """

    framework: ClassVar[str] = ""

    def __init__(self, host: Host, *, hold_back: bool = False) -> None:
        self.host: Host = checked_host(host, self.framework)
        self.hold_back = hold_back
        self.runs: MutableMapping[Any, Any] = {}

    def attempts(self, id: str, task: str) -> Attempts:
        """Return the attempts of a run, which `begin` has yet to begin."""
        return Attempts(run=self.host.run(id, task), hold_back=self.hold_back)

    def keep_open(self, id: str, run: Attempts) -> None:
        """Keep an open run; forget the oldest one if there are too many.

        Nobody ended those: they were cancelled.
        """
        if len(self.runs) >= MAX_OPEN_RUNS:
            self.runs.pop(next(iter(self.runs)))
        self.runs[id] = run


def misfit_of(kind: Any, answer: str) -> str:
    """Return why an answer is no JSON of a type, "" if it is."""
    try:
        TypeAdapter(kind).validate_json(answer)
    except ValidationError as error:
        return str(error)
    return ""


def text_in(content: Any) -> str:
    """Return the text of a message or of a result: a text, or parts with texts."""
    if isinstance(content, str):
        return content
    texts = [
        part if isinstance(part, str) else value_at(part, "text")
        for part in content or ()
    ]
    return "\n".join(filter(None, texts))


def place_of(values: Sequence[object], sought: object) -> int:
    """Return the number of the last value that is the sought one; of the last, without.

    The values are those of messages: a framework may have summarized them.
    """
    places = [number for number, value in enumerate(values) if value == sought]
    return places[-1] if places else len(values) - 1


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine for a synchronous caller, also inside a running event loop."""
    # A new thread has no event loop.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, run_sync, work).result()
