"""Failure attribution by the embedded model as it comes, asked with what the program found.

It chooses among the first-ranked steps, each with its signals; an answer that names none of them is
the first. Minutes on two cores, so it runs only when it is asked for by name.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import heedful
from bench.quality.rows import Row, read
from bench.quality.whowhen import Blame, blamed, episode_of, hits, share
from heedful.loop.feedback import clean

# The candidates that the model is shown, and the characters of each text.
CANDIDATES = 3
SHOWN = 90
TOKENS = 4


def run(data: Path, split: str) -> Iterator[Row]:
    """The model's choice, beside that of the program alone."""
    rows = list(read(data, "whowhen", split))
    chosen = asyncio.run(_ask(rows))
    steps, agents = hits(rows, lambda row: chosen[row["id"]])
    alone = hits(rows, blamed)
    yield Row("whowhen.embedded_step", share(steps), share(alone[0]), "best LLM .142")
    yield Row("whowhen.embedded_agent", share(agents), share(alone[1]), "best LLM .535")


async def _ask(rows: list[dict[str, Any]]) -> dict[str, Blame]:
    model = heedful.open_model("embedded")
    try:
        return {row["id"]: await _choose(model, row) for row in rows}
    finally:
        await model.close()


async def _choose(model: heedful.Model, row: dict[str, Any]) -> Blame:
    episode = episode_of(row)
    steps = heedful.attribute(episode).steps[:CANDIDATES]
    lines = [
        f"{number}. {one.agent}: {clean(episode.events[one.at].content, SHOWN)}"
        f" ({clean('; '.join(one.reasons), SHOWN)})"
        for number, one in enumerate(steps, 1)
    ]
    asked = "\n".join(
        [
            f"Agents failed at this task: {clean(episode.task, 2 * SHOWN)}",
            "Steps that may have been the mistake:",
            *lines,
            "Which one was it? Answer with its number only.",
        ]
    )
    answer = await model.complete([heedful.Message("user", asked)], max_tokens=TOKENS)
    number = re.search(r"\d", answer.text)
    at = int(number[0]) - 1 if number else 0
    step = steps[at if 0 <= at < len(steps) else 0]
    return step.at, step.agent
