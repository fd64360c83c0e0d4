"""What an adapter for a framework promises, as cases that it must pass.

    @pytest.mark.parametrize("case", conformance.HOST, ids=conformance.name)
    async def test_our_adapter(case):
        await case(drive)

A case is an async function, and its docstring is the promise. It takes a `Drive`, the
function that drives an agent of the framework. A broken promise raises AssertionError,
or the error that it leads to.
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Any, Protocol

from heedful import (
    Done,
    Finding,
    Memory,
)
from heedful.errors import UsageUnknown
from heedful.integrations.host import Host
from heedful.store import loops
from heedful.testing import FixedEmbedder

Case = Callable[[Any], Awaitable[None]]


def name(case: Any) -> str:
    """Return the promise of a case in a few words, such as for the id of a test."""
    return str(case.__name__).replace("_", " ")


def _expect(holds: object, promise: str, value: object) -> None:
    """Check a promise. Raises AssertionError with the value that breaks it."""
    if not holds:
        raise AssertionError(f"broken promise: {promise}; there is {value!r:.500}")


def _expect_equal(value: object, expected: object, promise: str) -> None:
    """Check that a value is the promised one. Raises AssertionError."""
    _expect(value == expected, f"{promise}: {expected!r:.500}", value)


# -- hosts


@dataclass(frozen=True)
class Say:
    """The model answers with this text, and calls no tool."""

    text: str


@dataclass(frozen=True)
class ScriptedCall:
    """The model calls the tool `shell` with this command, and may say a `text`.

    In the same answer, a tool that the provider of the model runs has said `provided`.
    """

    command: str
    provided: str = ""
    text: str = ""


Turn = Say | ScriptedCall


@dataclass(kw_only=True)
class Driven:
    """What the framework returned, all texts of each request to the model, the commands
    run.
    """

    answer: str = ""
    prompts: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    verdict: Done | None = None


class Drive(Protocol):
    """Runs an agent of a framework, as a user of its adapter would set it up."""

    async def __call__(
        self,
        host: Host,
        task: str,
        script: Sequence[Turn],
        *,
        id: str,
        results: Mapping[str, str | Exception] = ...,
    ) -> Driven:
        """Run the agent on a task, with a host, under an id.

        The framework's model is a fake that takes the turns of the script in order, and
        repeats the last. Its tool `shell` returns
        or raises the result of a command, by default "done". Raises what the framework
        raises.
        """


TASK = "Give the severity of the ticket: the pump leaks"
CURE = "answer with one of P0 to P3"
# The requests to the model that a budget allows; a microsecond is over at once.
BUDGETS: Mapping[str, tuple[int, ...]] = {
    "calls=1": (1,),
    "calls=3": (3,),
    "tokens=1": (1,),
    "cost=0.000001": (1,),
    "seconds=0.000001": (0, 1),
}


def severity(candidate: Any, _: Any) -> Sequence[Finding]:
    """Check that an answer is one of P0 to P3."""
    if str(candidate).strip() in ("P0", "P1", "P2", "P3"):
        return []
    problem = f"{str(candidate)[:40]!r} is no severity"
    return [Finding("severity", problem, fix=CURE, key="one")]


def _host(**options: Any) -> Host:
    """Return a host with a memory of its own, whose lookups wait for a busy machine."""
    memory = Memory(":memory:", embedder=FixedEmbedder(), holdout=0)
    return Host(memory=memory, strict=True, seconds=60.0, **options)


async def host_asks_again_and_recalls(drive: Drive) -> None:
    """A rejected answer is asked again with feedback; a later run has it at first.

    The run counts its requests to the model.
    """
    host = _host(checks=[severity], memory_key="severity")
    turns: list[Turn] = [ScriptedCall("ls"), Say("high"), Say("P1")]
    driven = await drive(host, TASK, turns, id="one")
    _expect_equal(driven.answer, "P1", "the second answer comes back")
    _expect_equal(driven.verdict, Done(2, passed=True), "the second attempt passes")
    _expect_equal(len(driven.prompts), 3, "a call and two attempts are three requests")
    _expect(CURE in driven.prompts[2], "the third has feedback", driven.prompts)
    stored_loop = await host.store.read(host.own_scope, loops.read, "one")
    _expect_equal(stored_loop.loop.usage.calls, 3, "the run counts its requests")
    later = await drive(host, "Grade: the roof is off", [Say("P0")], id="two")
    _expect(CURE in later.prompts[0], "the first request has a lesson", later.prompts)


async def host_returns_the_best_answer(drive: Drive) -> None:
    """If a rule stops the run, the best answer comes back, and is not learnt."""
    host = _host(checks=[severity], policy="attempts.limit=3")
    turns = [Say("bad"), Say("worse"), Say("worst"), Say("P1")]
    driven = await drive(host, TASK, turns, id="one")
    _expect_equal(driven.answer, "bad", "the best of three answers comes back")
    _expect_equal(len(driven.prompts), 3, "three attempts are three requests")
    _expect("'attempts'" in repr(driven.verdict), "its rule ends it", driven.verdict)
    memory = Memory(host.store, host.own_scope, embedder=FixedEmbedder())
    lessons = await memory.recall(TASK, 10)
    accepted = [lesson for lesson in lessons if lesson.example.accepted]
    _expect_equal(accepted, [], "a rejected answer is never learnt as right")


async def host_warns_of_a_call_that_failed(drive: Drive) -> None:
    """Runs learn from failures of tools; a later run is told once, with its call."""
    host = _host()
    results = {"npm run build": RuntimeError('Cannot find module "pads"')}
    turns: list[Turn] = [ScriptedCall("npm run build"), Say("gave up")]
    for id in ("one", "two"):
        await drive(host, "build it", turns, id=id, results=results)
    count = await Memory(host.store, host.own_scope).count()
    _expect_equal(count, 1, "runs that have ended leave a lesson")
    driven = await drive(host, "build the app", turns, id="three", results=results)
    words = "this command failed in 2 sessions, last on"
    _expect_equal(driven.prompts[-1].count(words), 1, "the warning is there once")
    _expect_equal(driven.commands, ["npm run build"], "the call runs once")


async def host_stops_a_call_that_repeats(drive: Drive) -> None:
    """The third equal result is noted, the fifth call does not run, the run ends."""
    results = {"find": "Error: no order A-1"}
    driven = await drive(
        _host(), "find it", [ScriptedCall("find")], id="one", results=results
    )
    _expect_equal(driven.commands, ["find"] * 4, "four calls run")
    notes = ["This call repeats" in prompt for prompt in driven.prompts[:4]]
    _expect_equal(notes, [False] * 3 + [True], "the fourth request has a note")
    refusals = ["This call did not run" in prompt for prompt in driven.prompts]
    _expect_equal(
        refusals, [False] * 5 + [True], "the sixth request says it was held back"
    )
    _expect("'repeat'" in repr(driven.verdict), "its rule ends it", driven.verdict)
    _expect("no order" in driven.answer, "the answer has the result", driven.answer)


async def host_keeps_a_budget_or_refuses_it(drive: Drive) -> None:
    """A spent budget ends a run with its last answer before the next request.

    It does so in each unit, also without checks, and while the agent still calls tools.
    A host that cannot count a unit raises UsageUnknown.
    """
    script = [ScriptedCall(f"page {number}") for number in range(30)]
    for limit, allowed in BUDGETS.items():
        budget = f"default, budget.{limit}"
        for options in ({}, {"checks": [severity]}):
            try:
                host = _host(policy=budget, **options)
                driven = await drive(host, "search", script, id=limit)
            except UsageUnknown as error:
                _expect(
                    limit.startswith(tuple(error.units)), "it names the unit", error
                )
                continue
            requests = len(driven.prompts)
            _expect(requests in allowed, f"{limit} ends a run in time", requests)
            _expect("'budget'" in repr(driven.verdict), "by its rule", driven.verdict)
            _expect(driven.answer, "the run ends with an answer", driven.answer)


async def host_accepts_the_last_answer_of_a_budget(drive: Drive) -> None:
    """An answer that passes ends the run well, also if it has spent the budget."""
    host = _host(checks=[severity], policy="default, budget.calls=3")
    turns: list[Turn] = [ScriptedCall("ls"), ScriptedCall("cat"), Say("P1")]
    driven = await drive(host, TASK, turns, id="one")
    _expect_equal(driven.answer, "P1", "the third answer comes back")
    _expect_equal(driven.verdict, Done(1, passed=True), "it passes")
    _expect_equal(driven.commands, ["ls", "cat"], "all calls run")


HOST: tuple[Case, ...] = (
    host_asks_again_and_recalls,
    host_returns_the_best_answer,
    host_warns_of_a_call_that_failed,
    host_stops_a_call_that_repeats,
    host_keeps_a_budget_or_refuses_it,
    host_accepts_the_last_answer_of_a_budget,
)
