"""Which words of a known error stand: the newest of the same or a higher origin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from heedful.lessons import render
from heedful.lessons.lesson import Example, Lesson
from heedful.lessons.mistake import from_json
from heedful.lessons.origin import ORIGINS
from heedful.store.connection import Db, Row


def takes_place(
    db: Db, key: Mapping[str, Any], lesson: Lesson, values: Mapping[str, Any]
) -> tuple[bool, bool]:
    """Return whether a lesson raises the origin of a stored one, and if it renews it.

    It renews one that is believed no more than it is, if it has other words or another
    fix for a known error. A finding is another one if it says something else without
    the particulars of its task.
    """
    fix = render.shown_fix(lesson.mistake) if lesson.mistake else None
    example = lesson.example if lesson.kind == "check" else None
    has_words = lesson.kind == "error" and lesson.text != lesson.sighting
    has_words = has_words or (example is not None and bool(example.fix))
    if lesson.trust == "outside":
        return False, False
    name = {"kind": lesson.kind, "signature": values["signature"]}
    columns_stored = {"tenant": key["tenant"], "project": key["project"], **name}
    for row in db.select("text, trust, mistake, author", "lesson", columns_stored):
        if example is not None:
            is_other = _says_otherwise(db, row, example)
        else:
            mistake = from_json(row["mistake"])
            stored_fix = render.shown_fix(mistake) if mistake else None
            is_other = (row["text"], stored_fix) != (values["text"], fix)
        level, stored_level = map(ORIGINS.index, (lesson.trust, row["trust"]))
        raises = level < stored_level
        renews = bool(fix or has_words) and is_other and level <= stored_level
        return raises, renews
    return False, False


def _says_otherwise(db: Db, row: Row, example: Example) -> bool:
    """Return True if a finding has another fix than that of a stored lesson."""
    for author in db.select("record", "example", {"id": row["author"]}):
        record = json.loads(author["record"])
        words_of_record = record["rule"] or record["fix"]
        return bool(record["fix"]) and words_of_record != (example.rule or example.fix)
    return False
