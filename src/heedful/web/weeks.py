"""How loops went in the last days, and what they used against the week before.

Days are those of UTC. A period begins with the first day that was counted as a whole;
it says how many days it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heedful.lessons.ranking import DAY_SECONDS
from heedful.loop.share import Share, percent
from heedful.pages.report import counted

WEEK_DAYS = 7
# A week with fewer loops is not compared: one loop more would change it by much.
MIN_COMPARED_LOOPS = 20
# What is compared must be known of this share of the loops of both weeks.
MIN_REPORTED_SHARE = 0.95
SAME_SHARE = 0.005  # a change that rounds to 0 %
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


def compare_weeks(days: Mapping[int, Plain], first: int, today: int) -> Plain:
    """Return what the last seven whole days used, against the seven days before.

    Today is not over, so it is in neither. `changes` has a row for each figure that is
    known of both weeks, the cost first, and `unknown` the names of the others.
    `silence` says why no figure is compared. All days from `first` on were counted.
    """
    begin = today - WEEK_DAYS
    week = _sum_days(days, begin, today)
    before = _sum_days(days, begin - WEEK_DAYS, begin)
    changes: list[Plain] = []
    unknown: list[str] = []
    silence = ""
    if first > begin - WEEK_DAYS:
        silence = "the days before were not counted as a whole"
    elif min(week["loops"], before["loops"]) < MIN_COMPARED_LOOPS:
        silence = (
            f"too few to say: {counted(week['loops'], 'loop')}, "
            f"and {before['loops']:,} in the week before; each week needs "
            f"{MIN_COMPARED_LOOPS}"
        )
    else:
        for name in ("cost", "calls", "tokens", "loops"):
            if not (_is_known(week, name) and _is_known(before, name)):
                unknown.append(name)
                continue
            change = say_change(week[name], before[name])
            row = {"name": name, "week": week[name], "before": before[name]}
            changes.append({**row, "change": change})
    return {
        "from": begin * DAY_SECONDS,
        "changes": changes,
        "unknown": unknown,
        "silence": silence,
    }


def say_change(new: float, old: float) -> str:
    """Return in words, with an arrow, how a number that was above 0 has changed.

    >>> say_change(112, 100), say_change(3, 4), say_change(1000, 1001)
    ('↑ up 12 %', '↓ down 25 %', '→ the same')
    >>> say_change(25, 10)
    '↑ 2.5 times as much'
    """
    change = new / old - 1
    if abs(change) < SAME_SHARE:
        return "→ the same"
    if change >= 1:
        return f"↑ {new / old:,.1f} times as much"
    if change > 0:
        return f"↑ up {percent(change)}"
    return f"↓ down {percent(-change)}"


def _sum_days(days: Mapping[int, Plain], begin: int, end: int) -> Plain:
    """Return what loops used on the days before `end`.

    Counts of loops that reported tokens and cost are None where days have none.
    """
    period = [days[day] for day in range(begin, end) if day in days]
    sums: Plain = {}
    for name in ("loops", "calls", "tokens", "cost"):
        sums[name] = sum(day[name] for day in period)
    for name in ("with_tokens", "with_cost"):
        counts = [day.get(name) for day in period]
        sums[name] = None if None in counts else sum(counts)
    return sums


def _is_known(week: Plain, name: str) -> bool:
    """Return whether a figure of a week is known of nearly all of its loops."""
    reports = week.get(f"with_{name}")
    is_partial = reports is not None and reports < MIN_REPORTED_SHARE * week["loops"]
    return bool(week[name]) and not is_partial
