"""What is kept of a capable model's answers, written by hand, two on each of 7 runs.

One answer of a run is general, as a large model writes; the other names calls and
errors. Each is given as it is, and once more with a sentence that has a figure or a
quotation that the run lacks. The baseline gives the same answers as those of a model
that is known to be small. That the answers of a real large model are as good is not
measured: none is at hand.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import heedful
from bench.quality.rows import Row
from heedful.memory.reflect import Reflected
from heedful.testing import ScriptedModel

RUNS = Path(__file__).with_name("believed.json")


class SmallModel(ScriptedModel):
    """A scripted model that is known to be small."""

    is_capable = False


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield the shares of texts and strategies kept, and of invented sentences."""
    pairs = list(read_answers())
    ours = asyncio.run(count_kept(pairs, ScriptedModel))
    small = asyncio.run(count_kept(pairs, SmallModel))
    for key, count in ours.items():
        share = count / len(pairs)
        yield Row(key=f"believed.{key}", ours=share, baseline=small[key] / len(pairs))
    yield Row(key="believed.answers", ours=len(pairs))


def read_answers() -> Iterator[tuple[heedful.Episode, dict[str, str]]]:
    """Yield each answer with its run."""
    for row in json.loads(RUNS.read_text("utf-8")):
        answers = row.pop("answers")
        (episode,) = heedful.episodes.read(json.dumps(row).encode())
        for answer in answers:
            yield episode, answer


async def count_kept(
    pairs: list[tuple[heedful.Episode, dict[str, str]]], kind: type[ScriptedModel]
) -> dict[str, int]:
    """Count whole texts and strategies that are kept, and invented sentences."""
    counts = {"texts": 0, "strategies": 0, "invented": 0}
    for episode, answer in pairs:
        reflected = await ask(kind, episode, answer["reflection"], answer["strategy"])
        if reflected.text == answer["reflection"]:
            counts["texts"] += 1
        if reflected.strategy and reflected.strategy.text == answer["strategy"]:
            counts["strategies"] += 1

        for place in ("reflection", "strategy"):
            texts = {**answer, place: f"{answer[place]} {answer['invented']}"}
            reflected = await ask(kind, episode, texts["reflection"], texts["strategy"])
            words = f"{reflected.text} {reflected.strategy and reflected.strategy.text}"
            if answer["invented"] in words:
                counts["invented"] += 1
    return counts


async def ask(
    kind: type[ScriptedModel], episode: heedful.Episode, text: str, strategy: str
) -> Reflected:
    """Return what is kept of an answer of a model of this kind."""
    answer = {"reflection": text, "strategy": strategy, "importance": 0.8, "tags": []}
    model = kind(json.dumps(answer), forever=True)
    reflected = await heedful.reflect(episode, model=model)
    assert reflected is not None
    return reflected
