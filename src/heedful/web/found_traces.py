"""Traces as a list has them: found by their task, and how much each one taught."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from heedful.lessons.lesson import Scope
from heedful.store.connection import Db, bulk, token
from heedful.web.figures import rows

MAX_SEARCHED_EPISODES = 1_000  # the newest ones, in whose tasks a search looks
Plain = dict[str, Any]


@bulk
def found_episodes(
    db: Db, scope: Scope, limit: int, *, text: str, state: str, before: int
) -> list[Plain]:
    """Return those of the newest episodes that have a text in their task or name.

    A part of an id finds its episode, too.
    """
    episode_rows = rows(
        db,
        scope,
        "found_episodes",
        # JSON in a column has escapes; the task that the statement reads has none.
        spellings=spellings_of(text),
        state=state,
        before=before,
        window=MAX_SEARCHED_EPISODES,
        limit=limit,
    )
    return [dict(row) for row in episode_rows]


def spellings_of(text: str) -> str:
    """Return as JSON how a text may be spelt: SQLite lowers only ASCII."""
    spellings = (text.lower(), text, text.upper(), text.capitalize())
    return json.dumps(list(dict.fromkeys(spellings)))


def lessons_learnt(db: Db, scope: Scope, digests: Sequence[str]) -> dict[str, int]:
    """Return how many lessons were learnt from each episode, by digest."""
    sources = {f"episode:{digest[:16]}": digest for digest in digests}
    counts = rows(
        db,
        scope,
        "learnt_counts",
        token=token(scope),
        sources=json.dumps(list(sources)),
    )
    return {sources[row["source"]]: row["lessons"] for row in counts}
