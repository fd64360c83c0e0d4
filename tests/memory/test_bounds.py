"""What memory writes and shows is bounded, and a place that comes later is kept."""

from __future__ import annotations

import asyncio
from pathlib import Path

import heedful
from heedful.lessons.learn import MOST, learn
from heedful.lessons.lesson import Match
from heedful.lessons.ranking import BUDGET, choose
from heedful.loop.record import Attempt, Candidate
from heedful.testing import FixedEmbedder


def found(id: int, task: str, accepted: str) -> Match:
    return Match(
        id, id, heedful.Example(task, accepted), "check", True, 1, 0.5, 0.0, 0.9 - id / 100
    )


def test_all_examples_together_have_a_bound():
    long = [found(n, "a word " * 90, "so " * 90) for n in range(3)]
    chosen = choose([*long, found(9, "short", "answer")])
    assert [one.id for one in chosen] == [0, 1, 9]
    assert BUDGET == 600
    short = [found(n, f"task {n}", "answer") for n in range(4)]
    assert [one.id for one in choose(short)] == [0, 1, 2]


def test_a_loop_gives_at_most_so_many_lessons_the_most_severe():
    findings = tuple(
        heedful.Finding("c", f"wrong {n}", key=f"key {n}", severity=n / 100) for n in range(60)
    )
    attempts = (
        Attempt(1, Candidate.of("bad"), heedful.Evaluation(findings)),
        Attempt(2, Candidate.of("good"), heedful.Evaluation()),
    )
    lessons = learn(heedful.Loop("a", attempts=attempts), "task")
    assert len(lessons) == MOST
    assert {one.sighting for one in lessons} == {f"wrong {n}" for n in range(40, 60)}


def test_an_example_gets_its_place_when_there_is_an_embedder(tmp_path: Path):
    path = str(tmp_path / "heedful.db")
    example = heedful.Example("weigh the parcel", "KG:3")

    async def remembered() -> list[float | None]:
        places = []
        for embedder in (None, FixedEmbedder()):
            memory = heedful.Memory(path, embedder=embedder)
            await memory.remember("Format", "wrong form", example=example)
            places += [one.cosine for one in await memory.recall("weigh the parcel")]
        return places

    before, after = asyncio.run(remembered())
    assert before is None
    assert after is not None
    assert after > 0.99
