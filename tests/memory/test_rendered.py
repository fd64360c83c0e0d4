"""Memory renders what it recalled, in both forms, and learns from evaluations made elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import heedful
from heedful.lessons.lesson import Example

TASK = "convert the weight of the parcel to kilograms"


async def test_both_forms_say_where_an_example_comes_from(tmp_path: Path) -> None:
    memory = heedful.Memory(str(tmp_path / "a.db"))
    example = Example(TASK, "12.0 kg", "12 km", "not a weight")
    await memory.remember("units", "12 km is not a weight", example=example)
    await memory.remember("units", "weight of the parcel in kilograms", lesson="weigh twice")
    found = await memory.recall(TASK)
    asked, answered = memory.render(found)
    assert (asked.content, answered.content) == (TASK, "12.0 kg")
    assert "not verified, seen once, remembered as units" in asked.source
    first, second = memory.render_text(found), memory.render_text(found)
    assert first != second  # the delimiters
    assert TASK in first
    assert "12.0 kg" in first
    assert memory.render(found, budget=5) == ()
    assert memory.render_text(found, budget=1) == ""
    assert memory.render_text([]) == ""
    await memory.store.close()


async def test_the_context_is_kept_with_the_example(tmp_path: Path) -> None:
    memory = heedful.Memory(str(tmp_path / "a.db"))
    await memory.remember("u", "x", example=Example(TASK, "12.0 kg"), context="a parcel desk")
    await memory.remember("v", "the invoice has no number", context="an invoice desk")
    (one,) = await memory.recall(TASK)
    (other,) = await memory.recall("the invoice has no number")
    assert (one.example.context, other.example.context) == ("a parcel desk", "an invoice desk")
    await memory.store.close()


def test_the_log_says_what_became_of_it_and_no_word_of_it(caplog) -> None:
    async def scenario() -> None:
        memory = heedful.Memory(":memory:", max_entries=1)
        for _ in range(2):
            await memory.remember("page", "a word of it", pinned=True)
        await memory.remember("other", "a word of another", trust="model")

    with caplog.at_level("INFO", "heedful"):
        asyncio.run(scenario())
    told = [one.getMessage() for one in caplog.records]
    assert told == ["stored: lesson 1", "duplicate: lesson 1, seen 2 times", "skipped"]
