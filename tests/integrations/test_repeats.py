"""Calls that repeat, in every framework, by one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from heedful import policy
from heedful.integrations import Host
from tests.hosts import patient_host
from tests.integrations.doubles import Call, Say, Turn
from tests.integrations.test_hosts import NAMES, host_that_judges, memory_in

NOTE = "This call repeats"
HELD = "This call did not run"
LOST = "Error: no order A-1"
# These end the run themselves after a few exceptions of tools.
IMPATIENT = ("adk", "agent_framework")
MAX_TURNS = {"openai_agents": 10}
# CrewAI itself ends a run with five equal results.
STERN = ("crewai",)
# A model of CrewAI says nothing beside its calls.
SILENT = ("crewai",)


class Changing(Mapping[str, Any]):
    """Results of commands that have a number: another one each time."""

    def __init__(self, **texts: str) -> None:
        self.texts = texts
        self.numbers: Iterator[int] = count(10)

    def __getitem__(self, command: str) -> str:
        return self.texts[command].format(next(self.numbers))

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)


@pytest.fixture(params=NAMES)
def double(request: pytest.FixtureRequest) -> Any:
    return import_module(f"tests.integrations.double_{request.param}")


def name_of(double: Any) -> str:
    return str(double.__name__.partition("double_")[2])


def host_of(**options: Any) -> Host:
    return patient_host(memory=None, strict=True, **options)


async def test_the_third_call_is_noted_and_the_fifth_does_not_run(double: Any) -> None:
    driven = await double.drive(
        host_of(), "find it", [Call("find")], id="one", results={"find": LOST}
    )
    assert driven.commands == ["find"] * 4
    assert [NOTE in prompt for prompt in driven.prompts[:4]] == [False] * 3 + [True]
    assert [HELD in prompt for prompt in driven.prompts] == [False] * 5 + [True]
    assert driven.verdict.passed is False
    assert driven.verdict.stopped_by[0].rule == "repeat"
    assert 'shell {"command": "find"}' in driven.answer
    assert LOST in driven.answer


async def test_a_run_ends_with_the_last_text_of_the_model(double: Any) -> None:
    if name_of(double) in SILENT:
        pytest.skip("its model says nothing beside a call")
    turns = [Call("find", text="I look for the order."), Call("find")]
    driven = await double.drive(
        host_of(), "find it", turns, id="one", results={"find": LOST}
    )
    assert driven.answer.endswith("I look for the order.")
    assert driven.verdict.stopped_by[0].rule == "repeat"


async def test_an_exception_of_a_tool_repeats(double: Any) -> None:
    if name_of(double) in IMPATIENT:
        pytest.skip("it ends such a run itself")
    results = {"find": RuntimeError("no order A-1")}
    driven = await double.drive(
        host_of(), "find it", [Call("find")], id="one", results=results
    )
    assert driven.commands == ["find"] * 4
    assert "no order A-1" in driven.answer


@pytest.mark.parametrize(
    ("script", "results", "commands"),
    [
        pytest.param(
            [Call("read"), Call("write")] * 20,
            {"read": "old", "write": "refused"},
            8,
            id="cycle of two calls",
        ),
        pytest.param(
            [Call("read"), Call("edit"), Call("test")] * 20,
            {"read": "old", "edit": "no match", "test": "1 failed in 0.12s"},
            12,
            id="cycle of three calls",
        ),
    ],
)
async def test_a_run_that_repeats_is_stopped(
    double: Any, script: Sequence[Turn], results: Mapping[str, Any], commands: int
) -> None:
    driven = await double.drive(host_of(), "do it", script, id="one", results=results)
    # The call after its limit of turns is one that repeats.
    max_turns = MAX_TURNS.get(name_of(double), commands)
    assert len(driven.commands) == min(commands, max_turns)
    assert driven.verdict.stopped_by[0].rule == "repeat"


@pytest.mark.parametrize(
    ("script", "results", "polls"),
    [
        pytest.param(
            [Call("job")] * 8, Changing(job="{} % done"), (), id="progress of a job"
        ),
        pytest.param(
            [Call("job")] * 8,
            Changing(job="12:00:{0} request 4bf92f35-77b3-4da6-a3ce-929d0e0e47{0} ok"),
            (),
            id="results differ in a time and an id",
        ),
        pytest.param([Call("job")] * 8, {"job": "running"}, ("shell",), id="poll"),
        pytest.param(
            [Call(f"page {number}") for number in range(8)],
            {},
            (),
            id="pages with equal results",
        ),
        pytest.param(
            [*[Call("test"), Call("test"), Call("edit")] * 2, Call("test")],
            {"test": "failed"},
            (),
            id="twice, and something else",
        ),
    ],
)
async def test_a_run_that_goes_on_is_not_disturbed(
    double: Any, script: Sequence[Turn], results: Mapping[str, Any], polls: Any
) -> None:
    if polls and name_of(double) in STERN:
        pytest.skip("it ends such a run itself")
    turns = [*script, Say("ready")]
    driven = await double.drive(
        host_of(polls=polls), "do it", turns, id="one", results=results
    )
    assert driven.answer.endswith("ready")
    assert driven.verdict is None
    assert len(driven.commands) == len(script)
    assert not any(HELD in prompt for prompt in driven.prompts)


async def test_an_agent_that_listens_goes_on(double: Any) -> None:
    turns: list[Turn] = [*[Call("test")] * 5, Call("edit"), Call("test"), Say("ready")]
    driven = await double.drive(
        host_of(), "do it", turns, id="one", results={"test": "1 failed"}
    )
    assert driven.answer.endswith("ready")
    assert driven.verdict is None
    assert driven.commands == [*["test"] * 4, "edit", "test"]


async def test_a_rejected_answer_begins_the_count_anew(
    double: Any, tmp_path: Path
) -> None:
    host = host_that_judges(
        memory_in(tmp_path), policy=policy("attempts.limit=6, unscored=again")
    )
    words = ("bad", "worse", "worst", "dire", "P1")
    turns = [turn for word in words for turn in (Call("look"), Say(word))]
    driven = await double.drive(
        host, "How severe?", turns, id="one", results={"look": "it leaks"}
    )
    assert driven.answer.endswith("P1")
    assert driven.commands == ["look"] * 5
    assert not any(NOTE in prompt for prompt in driven.prompts)


async def test_a_run_with_an_answer_ends_with_the_best(
    double: Any, tmp_path: Path
) -> None:
    turns = [Say("high"), Call("look")]
    driven = await double.drive(
        host_that_judges(memory_in(tmp_path)),
        "How severe?",
        turns,
        id="one",
        results={"look": "it leaks"},
    )
    assert driven.answer.endswith("high")
    assert driven.verdict.best == 1
    assert driven.verdict.stopped_by[0].rule == "repeat"
