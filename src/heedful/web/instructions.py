"""What lessons say to do, apart from the mistake that they are about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from heedful.lessons.briefing import EXAMPLE_WORDS
from heedful.service import review
from heedful.store.connection import token
from heedful.web import figures
from heedful.web.site import Document, Visit


async def with_instructions(
    visit: Visit, lessons: Sequence[Mapping[str, Any]]
) -> list[Document]:
    """Return lessons, each with the parts of its text.

    The `instruction` says what to do, and the `mistake` what was wrong before; a text
    that states no mistake is all instruction.
    """
    fixes = await visit.caller.read(
        figures.rows,
        "fixes_of",
        token=token(visit.caller.scope),
        ids=json.dumps([lesson["id"] for lesson in lessons]),
    )
    fix_of = {row["lesson_id"]: row["fix"] for row in fixes}
    return [
        {**lesson, **split_text(lesson["text"], fix_of.get(lesson["id"]) or "")}
        for lesson in lessons
    ]


def split_text(text: str, fix: str) -> Document:
    """Return the instruction in a lesson's text, which begins with `fix`, and the
    mistake before it.

    >>> split_text("no currency. write EUR after it", "write EUR after it")
    {'instruction': 'write EUR after it', 'mistake': 'no currency'}
    """
    mistake, is_found, rest = text.partition(f". {fix}")
    if not fix or not is_found:
        return {"instruction": text, "mistake": ""}
    return {"instruction": fix + rest, "mistake": mistake}


async def name_choices(visit: Visit, choices: Sequence[Document]) -> list[Document]:
    """Return what memory decided for a loop, each choice with the words of its lesson.

    The `words` are those that the loop was shown, or that were withheld; of examples
    and of other choices they are what the lesson says now, "" if it is gone.
    """
    ids = sorted({choice["lesson"] for choice in choices})
    rows = await visit.caller.read(figures.present_lessons, ids)
    texts = {row["id"]: review.visible(visit.caller, row)["text"] for row in rows}
    lessons = []
    for choice in choices:
        text = choice["text"]
        if text in ("", EXAMPLE_WORDS):
            text = texts.get(choice["lesson"], text)
        lessons.append({"id": choice["lesson"], "text": text})
    worded = await with_instructions(visit, lessons)
    return [
        {**choice, "words": lesson["instruction"]}
        for choice, lesson in zip(choices, worded, strict=True)
    ]
