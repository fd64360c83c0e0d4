"""Every framework, by one table: what a model read before a run began is not its own.

A fix that repeats words of an untrusted page waits for a release, whatever turn of the
conversation the page was read in.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.fix_of_page import BAD, FAILING, FIX, FIXES, PAGE, READ, is_told, memory_in
from tests.hosts import patient_host
from tests.integrations.doubles import Call, Say, Turn
from tests.integrations.test_hosts import NAMES

LIST = "ls"
# The guard rails of a task in CrewAI see neither the answers nor the calls before it.
OTHERS = [name for name in NAMES if name != "crewai"]


def double_of(name: str) -> Any:
    return import_module(f"tests.integrations.double_{name}")


@pytest.mark.parametrize("name", OTHERS)
async def test_a_fix_in_words_of_an_earlier_page_waits(
    name: str, tmp_path: Path
) -> None:
    memory = memory_in(tmp_path)
    read: list[Turn] = [Call(READ), Say("I read it.")]
    tasks = {"read the docs": read, "run the tests": FIXES}
    host = patient_host(memory=memory, strict=True)
    await double_of(name).chat(host, tasks, results={READ: PAGE, **FAILING})
    assert not await is_told(memory)


@pytest.mark.parametrize("name", NAMES)
async def test_a_fix_in_words_of_an_earlier_answer_waits(
    name: str, tmp_path: Path
) -> None:
    memory = memory_in(tmp_path)
    tasks = {"what do the docs say?": [Say(PAGE)], "run the tests": FIXES}
    host = patient_host(memory=memory, strict=True)
    await double_of(name).chat(host, tasks, results=FAILING)
    assert not await is_told(memory)


@pytest.mark.parametrize("name", NAMES)
async def test_a_fix_in_words_of_the_user_is_told_in_a_later_turn(
    name: str, tmp_path: Path
) -> None:
    memory = memory_in(tmp_path)
    read: list[Turn] = [Call(LIST), Say("I see.")]
    tasks = {"look at the files": read, PAGE: [Say("Yes.")], "run the tests": FIXES}
    host = patient_host(memory=memory, strict=True)
    await double_of(name).chat(host, tasks, results=FAILING)
    assert await is_told(memory)


@pytest.mark.parametrize("name", NAMES)
async def test_a_fix_in_words_of_the_agent_is_told_in_a_later_turn(
    name: str, tmp_path: Path
) -> None:
    memory = memory_in(tmp_path)
    read: list[Turn] = [Call(READ), Call("npm ci"), Say("I read the docs of it.")]
    tasks = {"read the docs": read, "run the tests": FIXES}
    results = {READ: "A test says what a program does", **FAILING}
    host = patient_host(memory=memory, strict=True)
    await double_of(name).chat(host, tasks, results=results)
    assert await is_told(memory)


@pytest.mark.parametrize("name", OTHERS)
async def test_a_fix_in_words_of_a_trusted_program_is_told_in_a_later_turn(
    name: str, tmp_path: Path
) -> None:
    memory = memory_in(tmp_path)
    look: list[Turn] = [Call(LIST), Say("These are files.")]
    tasks = {"look at the files": look, "run the tests": FIXES}
    results = {LIST: "evil.js\njest.json\npads.js", **FAILING}
    host = patient_host(memory=memory, strict=True)
    await double_of(name).chat(host, tasks, results=results)
    assert await is_told(memory)


@pytest.mark.parametrize("name", OTHERS)
async def test_a_fix_in_words_of_a_tool_of_the_provider_waits(
    name: str, tmp_path: Path
) -> None:
    memory = memory_in(tmp_path)
    turns: list[Turn] = [Call(BAD, provided=PAGE), Call(FIX), Say("the tests pass")]
    host = patient_host(memory=memory, strict=True)
    await double_of(name).chat(host, {"run the tests": turns}, results=FAILING)
    assert not await is_told(memory)
