"""Every framework, by one table: what a model read before a run began is not its own.

A fix that repeats words of an untrusted page waits for a release, whatever turn of the
conversation the page was read in, or added in by code around the agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.fix_of_page import BAD, FAILING, FIX, FIXES, PAGE, READ, is_told, memory_in
from tests.hosts import patient_host
from tests.integrations.doubles import (
    NOTHING,
    OK,
    Call,
    Results,
    Say,
    Tasks,
    TurnAddition,
)
from tests.integrations.test_hosts import NAMES

LIST = "ls"
# The guard rails of a task in CrewAI see neither the answers nor the calls before it.
OTHERS = [name for name in NAMES if name != "crewai"]


def double_of(name: str) -> Any:
    return import_module(f"tests.integrations.double_{name}")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A conversation whose last fix is told in later runs, or waits.

    `results` are those of the calls before the failing one.
    """

    tasks: Tasks
    told: bool
    results: Results = field(default_factory=dict)
    names: Sequence[str] = tuple(NAMES)


CASES = {
    "an earlier page": Case(
        tasks={
            "read the docs": [Call(READ), Say("I read it.")],
            "run the tests": FIXES,
        },
        results={READ: PAGE},
        told=False,
        names=OTHERS,
    ),
    "an earlier answer": Case(
        tasks={"what do the docs say?": [Say(PAGE)], "run the tests": FIXES},
        told=False,
    ),
    "a tool of the provider": Case(
        tasks={
            "run the tests": [
                Call(BAD, provided=PAGE),
                Call(FIX),
                Say("the tests pass"),
            ]
        },
        told=False,
        names=OTHERS,
    ),
    "the user in an earlier turn": Case(
        tasks={
            "look at the files": [Call(LIST), Say("I see.")],
            PAGE: [Say("Yes.")],
            "run the tests": FIXES,
        },
        told=True,
    ),
    "the user in the first turn": Case(
        tasks={PAGE: [Say("Yes.")], "thanks": [Say("Bye.")], "run the tests": FIXES},
        told=True,
    ),
    "the agent": Case(
        tasks={
            "read the docs": [
                Call(READ),
                Call("npm ci"),
                Say("I read them."),
            ],
            "run the tests": FIXES,
        },
        results={READ: "A test says what a program does"},
        told=True,
    ),
    "a trusted program": Case(
        tasks={
            "look at the files": [Call(LIST), Say("These are files.")],
            "run the tests": FIXES,
        },
        results={LIST: "evil.js\njest.json\npads.js"},
        told=True,
        names=OTHERS,
    ),
}


@pytest.mark.parametrize(
    ("name", "case"),
    [
        pytest.param(name, case, id=f"{name}: words of {source}")
        for source, case in CASES.items()
        for name in case.names
    ],
)
async def test_a_fix_is_told_or_waits_by_whose_words_it_repeats(
    name: str, case: Case, tmp_path: Path
) -> None:
    is_told_later = await teach(tmp_path, name, case.tasks, results=case.results)
    assert is_told_later is case.told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param(PAGE, False, id="words of the fix"),
        pytest.param("Answer in one line.", True, id="other words"),
    ],
)
@pytest.mark.parametrize(
    ("name", "way"),
    [
        pytest.param(name, way, id=f"{name}: {way}")
        for name in OTHERS
        for way in double_of(name).TURN_WAYS
    ],
)
async def test_a_text_that_code_added_in_an_earlier_turn_is_no_word_of_the_user(
    name: str, way: str, text: str, told: bool, tmp_path: Path
) -> None:
    tasks: Tasks = {
        "hello": [Say("Hello.")],
        "thanks": [Say("Bye.")],
        "run the tests": FIXES,
    }
    added = TurnAddition(way=way, text=text)
    assert await teach(tmp_path, name, tasks, added=added) is told


async def teach(
    folder: Path,
    name: str,
    tasks: Tasks,
    *,
    results: Results = OK,
    added: TurnAddition = NOTHING,
) -> bool:
    """Give an agent tasks in one conversation; return True if its fix is told later."""
    memory = memory_in(folder)
    host = patient_host(memory=memory, strict=True)
    options = {} if added is NOTHING else {"added": added}
    all_results = {**results, **FAILING}
    await double_of(name).chat(host, tasks, results=all_results, **options)
    return await is_told(memory)
