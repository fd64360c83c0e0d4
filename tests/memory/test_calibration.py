"""The thresholds of recall as numbers: a test that compared with the constants could not fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import errata
from errata.memory.recall import rank
from errata.protocols import Found


def found(task: str, cosine: float | None) -> Found:
    return Found(1, 1, errata.Example(task, "answer"), "check", True, 1, 0.5, 0.0, cosine)


@pytest.mark.parametrize(("cosine", "related"), [(0.37, 0), (0.44, 0), (0.46, 1), (0.57, 1)])
def test_how_near_a_meaning_must_lie(cosine, related):
    assert len(rank("other words", [found("some task", cosine)], 5)) == related


@pytest.mark.parametrize(
    ("task", "related"),
    [("one two x y z w", 0), ("one two three x y z", 1), ("one two three four five six", 1)],
)
def test_how_many_words_must_be_shared_without_meanings(task, related):
    assert len(rank("one two three four five six", [found(task, None)], 5)) == related


def test_the_short_words_of_a_task_find_it_too(tmp_path: Path):
    async def recalled() -> int:
        memory = errata.Memory(str(tmp_path / "errata.db"))
        example = errata.Example("weigh the red box now", "KG:3")
        await memory.remember("Format", "wrong form", example=example)
        return len(await memory.recall("weigh the red box now immediately please"))

    assert asyncio.run(recalled()) == 1
