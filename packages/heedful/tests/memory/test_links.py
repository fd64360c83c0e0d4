"""What lessons are about, and which of them are about the same."""

from typing import Any

import pytest

from heedful.errors import InvalidInput, NotFound
from heedful.lessons.lesson import Example, Scope
from heedful.lessons.links import Related
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


def links_of(related: Related) -> list[str]:
    return [str(link) for link in related.lesson.links]


async def test_a_lesson_knows_what_it_is_about(memory):
    first = await remember(
        memory,
        f"docs/conf.py:3: {MISSING_MODULE}",
        "Run `pip install yaml` before `make docs`",
        example=Example("Build the docs of release 12", "built"),
    )
    second = await remember(
        memory,
        "src/docs/conf.py:9: SyntaxError: invalid syntax",
        example=Example("Build the docs of release 13", "built, too"),
    )
    await remember(memory, "disk full")

    related = await memory.related(first)
    assert links_of(related) == [
        "error modulenotfounderror",
        "file conf.py",
        "tool make",
        "tool pip",
    ]
    [other] = related.related
    assert other.lesson.id == second
    assert [str(link) for link in other.shared] == ["file conf.py"]
    assert related.compared == 3
    assert related.silence == ""


async def test_nothing_that_waits_for_a_review_is_linked(memory):
    trusted = await remember(memory, "app.py: ModuleNotFoundError")
    quarantined = await memory.remember(
        "", "evil.py: ModuleNotFoundError `rm x`", origin="outside"
    )

    related = await memory.related(trusted)
    assert related.related == ()
    assert related.compared == 1

    waiting = await memory.related(quarantined.id)
    assert waiting.lesson.links == ()
    assert waiting.lesson.text == ""
    assert "or is not in use" in waiting.silence

    await memory.quarantine.release([quarantined.entry], by="ada")
    [other] = (await memory.related(trusted)).related
    assert other.lesson.id == quarantined.id


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
    assert links_of(await memory.related(id)) == [
        "error modulenotfounderror",
        "file app.py",
    ]


async def test_links_end_with_their_lesson_and_scope(memory):
    subject = await remember(memory, "app.py: ModuleNotFoundError")
    gone = await remember(memory, "app.py: SyntaxError", source="wiki")
    elsewhere = Memory(memory.store, Scope("default", "other"))
    await remember(elsewhere, "app.py: IndentationError")

    [other] = (await memory.related(subject)).related
    assert other.lesson.id == gone
    await memory.quarantine.revoke("wiki", by="ada")
    silence = (await memory.related(subject)).silence
    assert silence == "no other lesson in use names the same, or too many do"


async def test_an_empty_answer_says_why(memory):
    bare = await remember(memory, "it fails")
    silence = (await memory.related(bare)).silence
    assert silence == "the lesson names no tool, file or error, or is not in use"
    with pytest.raises(NotFound):
        await memory.related(999)
    with pytest.raises(InvalidInput):
        await memory.related(bare, limit=0)
