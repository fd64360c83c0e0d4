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


def takes_place(db: Db, lesson: Lesson, values: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether a lesson raises the origin of a stored one, and if it renews it.

    It renews one that is believed no more than it is, if it has other words or another
    fix for a known error. A finding is another one if it says something else without
    the particulars of its task. `values` are the columns of the lesson.
    """
    key = {name: values[name] for name in ("tenant", "project", "kind", "signature")}
    rows = db.select("text, trust, mistake, author", "lesson", key)
    if lesson.trust == "outside" or not rows:
        return False, False

    [row] = rows
    fix = render.shown_fix(lesson.mistake) if lesson.mistake else None
    if lesson.kind == "check" and lesson.example is not None:
        is_other = _says_otherwise(db, row, lesson.example)
        has_words = bool(lesson.example.fix)
    else:
        mistake = from_json(row["mistake"])
        stored_fix = render.shown_fix(mistake) if mistake else None
        is_other = (row["text"], stored_fix) != (values["text"], fix)
        has_words = lesson.kind == "error" and lesson.text != lesson.sighting

    level = ORIGINS.index(lesson.trust)
    stored_level = ORIGINS.index(row["trust"])
    renews = bool(fix or has_words) and is_other and level <= stored_level
    return level < stored_level, renews


def _says_otherwise(db: Db, row: Row, example: Example) -> bool:
    """Return True if a finding has another fix than that of a stored lesson."""
    for author in db.select("record", "example", {"id": row["author"]}):
        record = json.loads(author["record"])
        words_of_record = record["rule"] or record["fix"]
        return bool(record["fix"]) and words_of_record != (example.rule or example.fix)
    return False
