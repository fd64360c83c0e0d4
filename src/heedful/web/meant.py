"""What somebody means by a text under which no error was seen.

It may be the words of a lesson, or the name of a type of error or of a check. The error
of the lesson is then what to ask for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from heedful.lessons.lesson import Scope
from heedful.pages.report import counted, cut
from heedful.service import review
from heedful.store import editions
from heedful.store.connection import Db, token
from heedful.store.patterns import comparable
from heedful.web import figures
from heedful.web.site import Document, Visit

MAX_MEANT_LESSONS = 5
MIN_PART_CHARS = 20  # of a part of a lesson's words that stands for all of them
Lesson = Mapping[str, Any]
Meaning = Literal["words", "type"]


@dataclass(frozen=True, kw_only=True)
class Meant:
    """What a text is, with the lessons that this leads to.

    `name` is that of the type of error or of the check. `waiting` are lessons of the
    type that wait in quarantine.
    """

    meaning: Meaning
    name: str
    lessons: Sequence[Lesson] = ()
    waiting: Sequence[int] = ()

    @property
    def sentence(self) -> str:
        """What the text is, in words."""
        if not self.lessons:
            return (
                f"{self.name} is a type of error; what is known of it waits for a "
                "review"
            )

        lesson = self.lessons[0]
        if self.meaning == "words":
            error = cut(error_of(lesson), 120)
            return (
                f"these are the words of lesson {lesson['id']}, and no error; its "
                f"error is {error}"
            )

        kind = "a check" if lesson["kind"] == "check" else "a type of error"
        number = counted(len(self.lessons), "lesson")
        return (
            f"{self.name} is {kind}. Memory compares whole errors; it has {number} "
            f"about those of {self.name}"
        )


def error_of(lesson: Lesson) -> str:
    """Return the text under which the error of a lesson is found; "" if it is hidden.

    >>> error_of({"error_type": "RateLimit", "pattern": "slow down"})
    'RateLimit: slow down'
    """
    error_type = lesson["error_type"]
    pattern: str = lesson["pattern"]
    is_titled = pattern.startswith(f"{error_type}: ")
    if not pattern or not error_type or is_titled:
        return pattern
    return f"{error_type}: {pattern}"


async def find_meant(
    visit: Visit, text: str, similar: Sequence[Lesson]
) -> Meant | None:
    """Return what a text means; None if it is nothing that memory knows.

    `similar` are the lessons that a search for the text finds.
    """
    for lesson in similar:
        if _is_part(text, lesson["text"]):
            return Meant(meaning="words", name=lesson["error_type"], lessons=[lesson])

    names = _names_in(text)
    ids = await visit.caller.read(_lessons_of_type, names)
    waiting: list[int] = []
    if visit.may("read"):
        waiting = await visit.caller.read(_waiting_of_type, names)
    if ids or waiting:
        rows = await visit.caller.read(editions.some, ids)
        lessons = [review.visible(visit.caller, row) for row in rows]
        name = lessons[0]["error_type"] if lessons else names[0]
        return Meant(meaning="type", name=name, lessons=lessons, waiting=waiting)
    return None


def _is_part(text: str, words: str) -> bool:
    """Return whether a text is the words of a lesson, or a large part of them."""
    part = comparable(text)
    plain_words = comparable(words)
    if len(part) < MIN_PART_CHARS:
        return bool(part) and part == plain_words
    return part in plain_words


def _names_in(text: str) -> list[str]:
    """Return what may be the name of a type of error in a text.

    >>> _names_in("requests.RateLimit: slow down")
    ['requests.RateLimit', 'RateLimit']
    """
    title = text.strip().partition(":")[0].strip()[:200]
    return list(dict.fromkeys([title, title.rpartition(".")[2]]))


def _lessons_of_type(db: Db, scope: Scope, names: Sequence[str]) -> list[int]:
    """Return the newest lessons about these types of error, as ids."""
    rows = figures.rows(
        db,
        scope,
        "lessons_of_type",
        names=json.dumps(list(names)),
        limit=MAX_MEANT_LESSONS,
    )
    return [row["id"] for row in rows]


def _waiting_of_type(db: Db, scope: Scope, names: Sequence[str]) -> list[int]:
    """Return the newest lessons about these types that wait in quarantine, as ids."""
    rows = figures.rows(
        db,
        scope,
        "waiting_of_type",
        token=token(scope),
        names=json.dumps(list(names)),
        newest=figures.MAX_SOURCE_TEXTS,
        limit=MAX_MEANT_LESSONS,
    )
    return [row["lesson_id"] for row in rows]


def described(lesson: Lesson) -> Document:
    """Return a lesson as the page lists it, with the error to ask for."""
    return {**lesson, "ask": error_of(lesson)}
