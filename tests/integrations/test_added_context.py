"""Every framework, by one table: what code around an agent adds to a request.

Documents that middleware or an instruction function puts into a prompt are not the
developer's words, and neither is what the tool of a server says of itself, so a fix
that repeats them waits. Each double names the `WAYS` of its
framework to add words; its function `add` runs an agent with one of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fix_of_page import FAILING, FIXES, PAGE, READ, is_told, memory_in
from tests.hosts import patient_host
from tests.integrations.doubles import OWN_TOOL, Addition, Call
from tests.integrations.test_earlier_turns import OTHERS, double_of
from tests.integrations.test_hosts import NAMES

ADDED = [
    pytest.param(name, way, id=f"{name}: {way}")
    for name in NAMES
    for way in double_of(name).WAYS
]
# A server of the provider adds the words, where heedful cannot read them.
UNREADWAYS = {"made prompt", "server without a list", "tool of the provider"}
READABLE = [case for case in ADDED if not UNREADWAYS.intersection(case.values)]
OWN_WAYS = [
    pytest.param(name, way, id=f"{name}: {way}")
    for name in NAMES
    for way in ("static prompt", OWN_TOOL)
]


async def teach(folder: Path, name: str, *, way: str, text: str) -> bool:
    """Run an agent with an added text; return True if its fix is told later."""
    memory = memory_in(folder)
    host = patient_host(memory=memory, strict=True)
    addition = Addition(
        task="run the tests", script=FIXES, way=way, text=text, results=FAILING
    )
    await double_of(name).add(host, addition)
    return await is_told(memory)


@pytest.mark.parametrize(("name", "way"), ADDED)
async def test_a_fix_in_words_that_code_adds_waits(
    name: str, way: str, tmp_path: Path
) -> None:
    assert not await teach(tmp_path, name, way=way, text=PAGE)


@pytest.mark.parametrize(("name", "way"), READABLE)
async def test_a_fix_is_told_if_code_adds_other_words(
    name: str, way: str, tmp_path: Path
) -> None:
    assert await teach(tmp_path, name, way=way, text="Answer in one line.")


@pytest.mark.parametrize(("name", "way"), OWN_WAYS)
async def test_a_fix_in_words_of_the_developer_is_told(
    name: str, way: str, tmp_path: Path
) -> None:
    assert await teach(tmp_path, name, way=way, text=PAGE)


@pytest.mark.parametrize("name", OTHERS)
async def test_a_fix_after_an_image_that_nobody_has_read_waits(
    name: str, tmp_path: Path
) -> None:
    """The tools of CrewAI return texts only."""
    memory = memory_in(tmp_path)
    double = double_of(name)
    host = patient_host(memory=memory, strict=True)
    await double.drive(
        host,
        "run the tests",
        [Call(READ), *FIXES],
        id="one",
        results={READ: double.PICTURE, **FAILING},
    )
    assert not await is_told(memory)
