"""How loops went, day by day: each closed day is counted once and then stored.

Days are those of UTC, and a loop belongs to the day on which it began. The table
`day_figure` has the figures of days that have ended; a trigger deletes those of a day
when one of its loops changes, so that the next page counts the day again. Today is
counted for each page.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from heedful.errors import StoreError
from heedful.lessons.lesson import Scope
from heedful.lessons.ranking import DAY_SECONDS
from heedful.loop.share import Share
from heedful.store.connection import Db, Row, bulk, holds, key_of, resumable
from heedful.store.store import Store
from heedful.web import figures as newest_figures
from heedful.web.figures import rows
from heedful.web.weeks import count_weeks

WHOLE_DAYS = 30  # whole days before today that a page has
# A transaction that began before midnight may commit after it, and clocks differ.
CLOSING_SECONDS = 3_600.0
# A page does not wait longer for days that were not counted yet.
MAX_COUNTING_SECONDS = 2.0
DAY_FIGURES = (
    "loops",
    "ended",
    "right_at_once",
    "retried",
    "solved",
    "stopped",
    "calls",
    "tokens",
    "cost",
)
Plain = dict[str, Any]


class CountedDays(NamedTuple):
    """The figures of the days up to today, by their number since 1970.

    `uncounted` are the days before today that were not counted yet, newest first.
    """

    figures: Mapping[int, Plain]
    today: int
    uncounted: tuple[int, ...]

    @property
    def first(self) -> int:
        """Return the day from which on all days are counted."""
        if self.uncounted:
            return self.uncounted[0] + 1
        return self.today - WHOLE_DAYS


def add_figures(figures: Iterable[Mapping[str, Any]]) -> Plain:
    """Return the sums of the figures of several days."""
    total: Plain = dict.fromkeys(DAY_FIGURES, 0)
    for day in figures:
        for name in DAY_FIGURES:
            total[name] += day[name]
    return total


@bulk
def count_day(db: Db, scope: Scope, day: int) -> Plain:
    """Count the loops that began on a day."""
    (row,) = rows(
        db,
        scope,
        "day_counted",
        begin=day * DAY_SECONDS,
        end=(day + 1) * DAY_SECONDS,
    )
    return {name: row[name] for name in DAY_FIGURES}


@bulk
def read_days(db: Db, scope: Scope, now: float) -> CountedDays:
    """Return the stored days, and count those that cannot be stored yet."""
    today = int(now // DAY_SECONDS)
    last_closed = _last_closed(now)
    day_rows = rows(db, scope, "days", first=today - WHOLE_DAYS, last=last_closed)
    figures = {row["day"]: _of_row(row) for row in day_rows}
    for day in range(last_closed + 1, today + 1):
        figures[day] = count_day(db, scope, day)

    uncounted = tuple(
        day
        for day in range(last_closed, today - WHOLE_DAYS - 1, -1)
        if day not in figures
    )
    return CountedDays(figures, today, uncounted)


def _last_closed(now: float) -> int:
    """Return the last day whose figures may be stored."""
    return int((now - CLOSING_SECONDS) // DAY_SECONDS) - 1


def _of_row(row: Row) -> Plain:
    return {name: row[name] for name in DAY_FIGURES}


@holds()
@resumable(result=None)
def store_day(db: Db, scope: Scope, day: int) -> None:
    """Count a closed day, and store its figures.

    A change of its loops waits meanwhile, or is committed before.
    """
    rows(db, scope, "lock_days")
    figures = count_day(db, scope, day)
    key = {**key_of(scope), "day": day}
    db.delete("day_figure", key)
    db.insert("day_figure", {**key, **figures})


async def counted_days(store: Store, scope: Scope) -> CountedDays:
    """Return the days up to today, after counting those that are missing.

    This ends after `MAX_COUNTING_SECONDS`; the next call continues.
    """
    now = time.time()
    days = await store.read(scope, read_days, now)
    if not days.uncounted:
        return days

    deadline = time.monotonic() + MAX_COUNTING_SECONDS
    try:
        for day in days.uncounted:
            await store.write(scope, store_day, day)
            if time.monotonic() > deadline:
                break
    except StoreError:
        # What cannot be written is not counted; the page says so.
        return days
    return await store.read(scope, read_days, now)


async def read_home(store: Store, scope: Scope) -> Plain:
    """Return how loops went in the last `WHOLE_DAYS` whole days and today.

    Of a project with few loops, or with older ones only, the figures are those of the
    newest loops, as `figures.home` returns them. `whole_days` is then 0.
    """
    limit = newest_figures.MAX_FIGURE_LOOPS
    (newest,) = await store.read(scope, rows, "newest", limit=limit + 1)
    begin = (time.time() // DAY_SECONDS - WHOLE_DAYS) * DAY_SECONDS
    if newest["number"] <= limit or newest["last"] < begin:
        return await store.read(scope, newest_figures.home)

    days = await counted_days(store, scope)
    total = add_figures(days.figures.values())
    if not total["loops"]:
        return await store.read(scope, newest_figures.home)

    return {
        "loops": total["loops"],
        "more": False,
        "unread": 0,
        "calls": total["calls"],
        "tokens": total["tokens"],
        "cost": total["cost"],
        "spent": total,
        "right": Share(total["right_at_once"], total["ended"]).plain,
        "solved": Share(total["solved"], total["retried"]).plain,
        "stopped": Share(total["stopped"], total["ended"]).plain,
        "passed": Share(total["ended"] - total["stopped"], total["ended"]).plain,
        "since": days.first * DAY_SECONDS,
        "whole_days": WHOLE_DAYS,
        "uncounted": len(days.uncounted),
        "course": [
            newest_figures.course_point(day * DAY_SECONDS, days.figures[day])
            for day in range(days.first, days.today + 1)
        ],
        "by": "day",
        "weeks": count_weeks(days.figures, days.first, days.today),
    }
