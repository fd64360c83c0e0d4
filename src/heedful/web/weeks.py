"""How loops went in the last days.

Days are those of UTC. A period begins with the first day that was counted as a whole;
it says how many days it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heedful.lessons.ranking import DAY_SECONDS
from heedful.loop.share import Share

WEEK_DAYS = 7
Plain = dict[str, Any]


def count_weeks(days: Mapping[int, Plain], first: int, today: int) -> Plain:
    """Return the figures of today, of the last week with today, and of the one before.

    `days` has the figures of days by their number since 1970; a day without loops may
    be missing. All days from `first` on were counted.
    """
    week = today + 1 - WEEK_DAYS
    before = week - WEEK_DAYS
    return {
        "today": _count(days, max(first, today), today + 1),
        "week": _count(days, max(first, week), today + 1),
        "before": _count(days, max(first, before), week),
    }


def _count(days: Mapping[int, Plain], begin: int, end: int) -> Plain:
    """Return the figures of the loops that began on the days before `end`.

    `days` of the answer is 0 if no day was counted as a whole.
    """
    period = [days[day] for day in range(begin, end) if day in days]
    right = sum(day["right_at_once"] for day in period)
    ended = sum(day["ended"] for day in period)
    stopped = sum(day["stopped"] for day in period)
    solved = sum(day["solved"] for day in period)
    retried = sum(day["retried"] for day in period)
    return {
        "from": begin * DAY_SECONDS,
        "days": max(0, end - begin),
        "loops": sum(day["loops"] for day in period),
        "right": Share(right, ended).plain,
        "passed": Share(ended - stopped, ended).plain,
        "solved": Share(solved, retried).plain,
    }
