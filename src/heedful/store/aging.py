"""What makes a lesson old: a fix that failed itself, and the files that it is about."""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from heedful.lessons import render
from heedful.lessons.mistake import Mistake, from_data, from_json, to_data
from heedful.lessons.scope import Scope
from heedful.store.connection import Db, key_of


def mistakes(db: Db, scope: Scope, ids: Collection[int]) -> dict[int, Mistake]:
    """Return the mistakes that the lessons with these ids are about."""
    mistakes: dict[int, Mistake] = {}
    for id in ids:
        for row in db.select("mistake", "lesson", {**key_of(scope), "id": id}):
            mistake = from_json(row["mistake"])
            if mistake is not None:
                mistakes[id] = mistake
    return mistakes


def failures(db: Db, scope: Scope, limit: int) -> list[render.FailureRow]:
    """Return the failures of runs, those that came most often first."""
    rows: list[render.FailureRow] = []
    for row in db.all("failures", scope, limit=limit):
        mistake = from_json(row["mistake"])
        if mistake is None:
            continue
        failure = render.FailureRow.of(mistake)
        failure.runs = row["seen"]
        failure.calls = row["seen"] * mistake.calls_lost
        failure.last_seen = row["last_seen"]
        failure.state = row["state"]
        failure.lesson = row["id"]
        rows.append(failure)
    return sorted(rows, key=lambda one: (-one.runs, -one.calls))


def has_failed_fix(db: Db, scope: Scope, mistake: Mistake | None) -> bool:
    """Return whether the fix of a mistake failed itself, and has not worked since."""
    if mistake is None or mistake.fix is None or not mistake.fix.digest:
        return False
    digests = json.dumps([mistake.fix.digest])
    return bool(db.all("failures_of_call", scope, digests=digests))


def without_failed_fix(
    db: Db, scope: Scope, lesson: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return a lesson as data, without its fix if that failed itself."""
    mistake = from_data(lesson["mistake"]) if lesson["mistake"] else None
    if mistake is None or not has_failed_fix(db, scope, mistake):
        return lesson
    bare = replace(mistake, fix=None)
    return {**lesson, "text": render.lesson(bare), "mistake": to_data(bare)}
