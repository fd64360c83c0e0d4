"""What lessons are about: the tools, files and errors that their words name."""

from typing import Any

import pytest

from heedful.lessons.lesson import Example, Scope
from heedful.lessons.links import links_of
from heedful.memory.dream import read_words
from heedful.memory.memory import Memory
from heedful.store.store import Store

pytestmark = pytest.mark.both_nightly

MISSING_MODULE = "ModuleNotFoundError: No module named 'yaml'"


@pytest.fixture
def memory(store: Store) -> Memory:
    trusted_sources = ("tool:open", "tool:search", "tool:Bash", "program:pytest")
    return Memory(store, trust=trusted_sources)


async def remember(memory: Memory, text: str, lesson: str = "", **more: Any) -> int:
    """Remember an error under its type; return the id of its lesson."""
    remembered = await memory.remember("", text, lesson=lesson, **more)
    return remembered.id


async def links_by_lesson(memory: Memory) -> dict[int, list[str]]:
    """Return what each lesson in use is about, by its id."""
    words = await memory.store.read(memory.scope, read_words)
    return {lesson.id: [str(link) for link in links_of(lesson)] for lesson in words}


async def test_a_lesson_knows_what_it_is_about(memory):
    first = await remember(
        memory,
        f"docs/conf.py:3: {MISSING_MODULE}",
        "Run `pip install yaml` before `make docs`",
        example=Example("Build the docs of release 12", "built"),
    )
    unnamed = await remember(memory, "disk full")

    links = await links_by_lesson(memory)
    assert links[first] == [
        "error modulenotfounderror",
        "file conf.py",
        "tool make",
        "tool pip",
    ]
    assert links[unnamed] == []


async def test_nothing_that_waits_for_a_review_is_linked(memory):
    waiting = await memory.remember(
        "", "evil.py: ModuleNotFoundError `rm x`", origin="outside"
    )
    assert await links_by_lesson(memory) == {}

    await memory.quarantine.release([waiting.entry], by="ada")
    assert "file evil.py" in (await links_by_lesson(memory))[waiting.id]


async def test_a_text_of_a_tool_adds_no_link_to_a_trusted_lesson(memory):
    text = "ModuleNotFoundError in src/app.py"
    id = await remember(memory, text)
    await memory.remember(
        "",
        text,
        lesson="Run `evil now`",
        example=Example("evil task", "evil"),
        origin="outside",
    )
    links = await links_by_lesson(memory)
    assert links[id] == ["error modulenotfounderror", "file app.py"]


async def test_links_end_with_their_lesson_and_scope(memory):
    subject = await remember(memory, "app.py: ModuleNotFoundError")
    gone = await remember(memory, "app.py: SyntaxError", source="wiki")
    elsewhere = Memory(memory.store, Scope("default", "other"))
    await remember(elsewhere, "app.py: IndentationError")

    assert {*await links_by_lesson(memory)} == {subject, gone}
    await memory.quarantine.revoke("wiki", by="ada")
    assert [*await links_by_lesson(memory)] == [subject]
