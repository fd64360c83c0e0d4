"""What an attacker writes into memory reaches no prompt, whichever way it is asked
for.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from heedful.lessons.lesson import Filter, Lesson
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import exposures, search
from heedful.testing import FixedEmbedder
from tests.memory.test_quarantine import SIMILAR, WEIGHT, learns, rows
from tests.store.support import opened

EVIL = "zzevil"  # a word of every text of the attacker, and of none of ours
POISON = replace(WEIGHT, accepted=f"{EVIL} 7 stones", wrong=f"{EVIL} unit")
FILTERS: Sequence[dict[str, Any]] = [
    {},
    {"tags": ["t"]},
    {"tags": ["t", EVIL]},
    {"tags": ["t", EVIL], "match": "all"},
    {"kind": "error"},
    {"kind": "check"},
    {"error_type": "u"},
    {"error_type": EVIL},
    {"importance": 0.99},
    {"since": 1.0},
]


ATTACKS: dict[str, dict[str, Any]] = {
    "other words": {},
    "poisoned example": {"example": POISON},
    "our example": {"example": WEIGHT},
    "our words": {"lesson": "Kilograms, please."},
    "our words and example": {"lesson": "Kilograms, please.", "example": WEIGHT},
    "another error": {"error_type": EVIL},
    "the error of a loop": {"error_type": "unit", "text": "no unit", "example": POISON},
    "as if by a loop": {"source": "loop:ours"},
}


@pytest.fixture(params=["words", "vectors"])
def memory(request, tmp_path):
    with opened(tmp_path / "a.db") as store:
        yield Memory(
            store, embedder=FixedEmbedder() if request.param == "vectors" else None
        )


async def attack(
    memory: Memory, error_type: str = "u", text: str = "x", **more: Any
) -> None:
    for trust in ("external", "tool"):
        given: dict[str, Any] = {
            "lesson": f"{EVIL}: {SIMILAR}",
            "context": f"{EVIL} {SIMILAR}",
            "tags": ["t", EVIL],
            "importance": 1.0,
            "source": "https://evil.example",
            "trust": trust,
            **more,
        }
        await memory.remember(error_type, text, **given)


async def brought(memory: Memory) -> set[str]:
    """All that any question brings, by any way."""
    found = []
    for asked in (
        SIMILAR,
        WEIGHT.task,
        EVIL,
        f"{EVIL} {SIMILAR}",
        POISON.accepted,
        "u x t",
    ):
        for only in FILTERS:
            found += await memory.recall(asked, 99, **only)
        space, vector = await memory._embed(asked)
        for given in (vector, None):
            found += await memory.store.read(
                memory.scope, search.search, asked, space, given, 99, Filter()
            )
        shown = await memory.brief(asked, f"loop {asked}")
        assert EVIL not in str(shown.examples)
    return {f"{one.lesson} {one.example} {one.tags}" for one in found}


async def ours(memory: Memory) -> None:
    """A verified lesson of a loop, and one of an operator."""
    await learns(memory, "ours", WEIGHT.task, "7", "7 kg")
    await memory.remember(
        "u", "x", lesson="Kilograms, please.", example=WEIGHT, tags=["t"]
    )


@pytest.mark.parametrize("first", [True, False], ids=["before ours", "after ours"])
@pytest.mark.parametrize("more", ATTACKS.values(), ids=ATTACKS)
async def test_nothing_of_it_is_brought_and_ours_are_as_before(memory, first, more):
    if first:
        await attack(memory, **more)
    await ours(memory)
    if not first:
        before = await brought(memory)
        known = [one for one in await memory.top() if one["trust"] != "external"]
        await attack(memory, **more)
        assert await brought(memory) == before
        facts = (
            "text",
            "state",
            "trust",
            "tags",
            "importance",
            "pinned",
            "useful",
            "source",
        )
        after = {one["id"]: one for one in await memory.top()}
        for one in known:
            assert [after[one["id"]][fact] for fact in facts] == [
                one[fact] for fact in facts
            ]
    texts = await brought(memory)
    assert len(texts) >= 2
    assert EVIL not in str(texts)
    index = "select count(*) from example_fts where example_fts match 's1x' || ?"
    assert await rows(memory, index, EVIL) == [(0,)]


async def test_who_is_not_trusted_moves_no_example_in_the_space_of_meanings(memory):
    await memory.remember("u", "x", example=WEIGHT)
    before = await rows(memory, "select space, data from vector")
    one = Lesson(
        "error",
        signature("u", "x"),
        error_type="u",
        text=EVIL,
        sighting="x",
        loop="",
        example=WEIGHT,
        trust="external",
        space=before[0][0] if before else "",
        vector=[0.5] * 4,
    )
    await memory.store.write(memory.scope, exposures.remember, [one])
    if before:
        assert await rows(memory, "select space, data from vector") == before
