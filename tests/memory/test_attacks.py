"""What an attacker writes into memory reaches no prompt, whichever way it is asked
for.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from heedful.lessons.lesson import Filter, Lesson, Match
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.store import exposures, search
from tests.memory.conftest import by_words_and_vectors
from tests.memory.test_quarantine import SIMILAR, WEIGHT, learn_loop, read_rows

memory = by_words_and_vectors

EVIL = "zzevil"  # a word of every text of the attacker, and of none of ours
POISON = replace(WEIGHT, accepted=f"{EVIL} 7 stones", wrong=f"{EVIL} unit")
FILTERS: Sequence[dict[str, Any]] = [
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


async def attack(
    memory: Memory, error_type: str = "u", text: str = "x", **changes: Any
) -> None:
    for trust in ("external", "tool"):
        options: dict[str, Any] = {
            "lesson": f"{EVIL}: {SIMILAR}",
            "context": f"{EVIL} {SIMILAR}",
            "tags": ["t", EVIL],
            "importance": 1.0,
            "source": "https://evil.example",
            "trust": trust,
            **changes,
        }
        await memory.remember(error_type, text, **options)


async def recall_everything(memory: Memory) -> set[str]:
    """All that any question brings, by any way."""
    matches: list[Match] = []
    for question in (
        SIMILAR,
        WEIGHT.task,
        EVIL,
        f"{EVIL} {SIMILAR}",
        POISON.accepted,
        "u x t",
    ):
        matches += await memory.recall(question, 99)
        space, vector = await memory._embed(question)
        for meaning in (vector, None):
            matches += await memory.store.read(
                memory.scope, search.search, question, space, meaning, 99, Filter()
            )
        briefing = await memory.brief(question, f"loop {question}")
        assert EVIL not in str(briefing.examples)
    for filters in FILTERS:
        matches += await memory.recall(f"{EVIL} {SIMILAR}", 99, **filters)
    return {f"{match.lesson} {match.example} {match.tags}" for match in matches}


async def remember_ours(memory: Memory) -> None:
    """A verified lesson of a loop, and one of an operator."""
    await learn_loop(memory, "ours", WEIGHT.task, "7", "7 kg")
    await memory.remember(
        "u", "x", lesson="Kilograms, please.", example=WEIGHT, tags=["t"]
    )


@pytest.mark.parametrize("changes", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize(
    "first",
    [
        pytest.param(True, id="before ours", marks=pytest.mark.nightly),
        pytest.param(False, id="after ours"),
    ],
)
async def test_nothing_of_it_is_brought_and_ours_are_as_before(memory, first, changes):
    if first:
        await attack(memory, **changes)
    await remember_ours(memory)
    if not first:
        before = await recall_everything(memory)
        lessons = [
            lesson for lesson in await memory.top() if lesson["trust"] != "external"
        ]
        await attack(memory, **changes)
        assert await recall_everything(memory) == before
        fields = (
            "text",
            "state",
            "trust",
            "tags",
            "importance",
            "pinned",
            "useful",
            "source",
        )
        after = {lesson["id"]: lesson for lesson in await memory.top()}
        for lesson in lessons:
            assert [after[lesson["id"]][field] for field in fields] == [
                lesson[field] for field in fields
            ]
    texts = await recall_everything(memory)
    assert len(texts) >= 2
    assert EVIL not in str(texts)
    index = "select count(*) from example_fts where example_fts match 's1x' || ?"
    assert await read_rows(memory, index, EVIL) == [(0,)]


async def test_who_is_not_trusted_moves_no_example_in_the_space_of_meanings(memory):
    await memory.remember("u", "x", example=WEIGHT)
    before = await read_rows(memory, "select space, data from vector")
    lesson = Lesson(
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
    await memory.store.write(memory.scope, exposures.remember, [lesson])
    if before:
        assert await read_rows(memory, "select space, data from vector") == before
