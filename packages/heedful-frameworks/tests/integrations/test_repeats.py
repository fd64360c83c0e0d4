"""Calls that repeat, in every framework, by one table."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from heedful import policy
from heedful.integrations import Host
from tests.hosts import patient_host
from tests.integrations.doubles import Call, Say, Turn
from tests.integrations.test_hosts import NAMES, host_that_judges, memory_in

NOTE = "This call repeats"
LOST = "Error: no order A-1"
MAX_TURNS = {"openai_agents": 10}
# A model of CrewAI says nothing beside its calls.
SILENT = ("crewai",)


@pytest.fixture(params=NAMES)
def double(request: pytest.FixtureRequest) -> Any:
    return import_module(f"tests.integrations.double_{request.param}")


def name_of(double: Any) -> str:
    return str(double.__name__.partition("double_")[2])


def host_of(**options: Any) -> Host:
    return patient_host(memory=None, strict=True, **options)


async def test_a_run_ends_with_the_last_text_of_the_model(double: Any) -> None:
    if name_of(double) in SILENT:
        pytest.skip("its model says nothing beside a call")
    turns = [Call("find", text="I look for the order."), Call("find")]
    driven = await double.drive(
        host_of(), "find it", turns, id="one", results={"find": LOST}
    )
    assert driven.answer.endswith("I look for the order.")
    assert driven.verdict.stopped_by[0].rule == "repeat"


async def test_a_run_that_repeats_a_cycle_is_stopped(double: Any) -> None:
    script = [Call("read"), Call("edit"), Call("test")] * 20
    results = {"read": "old", "edit": "no match", "test": "1 failed in 0.12s"}
    driven = await double.drive(
        host_of(),
        "do it",
        script,
        id="one",
        results=results,
    )
    # The call after its limit of turns is one that repeats.
    assert len(driven.commands) == min(12, MAX_TURNS.get(name_of(double), 12))
    assert driven.verdict.stopped_by[0].rule == "repeat"


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
