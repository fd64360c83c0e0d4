"""How loops went today, in the seven whole days before, and in the week before those.

Days are those of UTC. Pages read only the newest loops, so a period begins with the
first day that was read as a whole; it says how many days it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from heedful.lessons.ranking import DAY_SECONDS
from heedful.loop.share import Share
from heedful.store.connection import Row

WEEK_DAYS = 7
Plain = dict[str, Any]


def count_weeks(loops: Sequence[Row], limited: bool, now: float) -> Plain:
    """Return the figures of today, of the last week, and of the one before.

    The first of `loops` is the newest. `limited` says that there are older ones.
    """
    first = 0.0
    if limited:
        first = ceil(loops[-1]["created"] / DAY_SECONDS) * DAY_SECONDS

    today = now // DAY_SECONDS * DAY_SECONDS
    week = today - WEEK_DAYS * DAY_SECONDS
    before = week - WEEK_DAYS * DAY_SECONDS
    return {
        "today": _count(loops, max(first, today), today + DAY_SECONDS),
        "week": _count(loops, max(first, week), today),
        "before": _count(loops, max(first, before), week),
    }


def _count(loops: Sequence[Row], begin: float, end: float) -> Plain:
    """Return the figures of the loops that began in a period.

    `days` counts its whole days; it is 0 if none was read as a whole.
    """
    period = [loop for loop in loops if begin <= loop["created"] < end]
    ended = [loop for loop in period if loop["state"] != "open"]
    passed = [loop for loop in ended if loop["state"] == "passed"]
    right = [loop for loop in passed if loop["attempts"] == 1]
    return {
        "from": begin,
        "days": max(0, round((end - begin) / DAY_SECONDS)),
        "loops": len(period),
        "right": Share(len(right), len(ended)).plain,
    }
