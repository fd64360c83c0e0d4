"""Make `docs/demo.svg`, the moving picture of README, from the recorded demo.

It shows the first task that was corrected, and the first that was right at once because
of memory, with the words of the recording. `python -m scripts.demo_picture` writes it;
a test compares it.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

from jinja2 import Environment, FileSystemLoader

from examples.demo.figures import MEMORY
from examples.demo.lab import SCOPES
from examples.demo.recording import DATABASE, story_ids, unpack
from examples.demo.stories import Story, story
from heedful.store import open_store
from scripts.workspace import ROOT

PICTURE = ROOT / "docs" / "demo.svg"
TITLE = "A check refuses an answer and says why; a later task is right at once"
SECONDS = 14
WIDTH_COLUMNS = 70
Line = tuple[str, str, str]  # its look, its label and its words


def lines_of(telling: Story) -> Iterator[Line]:
    """Yield the lines of one task."""
    yield "head", "task", telling.task
    for example in telling.shown:
        yield "", "from memory", f"{example.task} → {example.accepted}"
    for attempt in telling.tries:
        look, mark = ("bad", "✗") if attempt.wrong else ("good", "✓")
        yield look, "answer", f"{attempt.answer}  {mark}"
        for number, part in enumerate(wrap(" ".join(attempt.wrong), WIDTH_COLUMNS)):
            yield "", "" if number else "feedback", part
    if telling.at_once:
        yield "good", "", "right at the first try"


async def stories() -> tuple[Story, Story]:
    """Return the first task of the recording, and the first that memory got right."""
    with tempfile.TemporaryDirectory() as folder:
        rows = unpack(Path(folder)).rows[MEMORY]
        ids = story_ids(rows)
        knew = next(row for row in rows if row.at_once and row.id in ids)
        store = open_store(f"{folder}/{DATABASE}")
        try:
            first = await story(store, SCOPES[MEMORY], rows[0].loop)
            return first, await story(store, SCOPES[MEMORY], knew.loop)
        finally:
            await store.close()


def picture() -> str:
    """Return the picture."""
    corrected, knew = asyncio.run(stories())
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
    )
    template = environment.get_template("demo.svg.j2")
    lines = [*lines_of(corrected), ("", "", ""), *lines_of(knew)]
    return template.render(title=TITLE, seconds=SECONDS, lines=lines) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
