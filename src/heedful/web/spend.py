"""What loops cost and how they went: by memory key, policy, model, or day.

The loops are those of `recent.py`, from the first day on that was read as a whole. By
day, a project with more loops has the figures of `days.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from math import ceil
from time import time

from heedful.errors import InvalidInput
from heedful.lessons.ranking import DAY_SECONDS
from heedful.loop.share import Share
from heedful.web.days import CountedDays, counted_days
from heedful.web.facets import WITHOUT, name_keys
from heedful.web.loops import recent_loops
from heedful.web.periods import day_text
from heedful.web.recent import Recent, RecentLoop, count_loops
from heedful.web.site import READING, Document, SitePage, Visit
from heedful.web.table import Table

# What loops are grouped by: the titles of the tabs, and the group of a loop.
GROUPS: Mapping[str, tuple[str, Callable[[RecentLoop], str]]] = {
    "key": ("memory key", lambda loop: loop.memory_key or WITHOUT),
    "policy": ("policy", lambda loop: loop.policy or WITHOUT),
    "model": ("model", lambda loop: loop.model or WITHOUT),
    "day": ("day", lambda loop: day_text(loop.created)),
}
MAX_SPEND_ROWS = 100
FIRST_DAY = date(1970, 1, 1).toordinal()
SUMS = (
    "loops",
    "calls",
    "tokens",
    "cost",
    "seconds",
    "called",
    "with_tokens",
    "with_cost",
    "unjudged",
)


async def spend(visit: Visit) -> Document:
    """Show what loops cost and how they went, by a property of theirs."""
    by = visit.query.get("by") or "key"
    if by not in GROUPS:
        raise InvalidInput("by", by, ", ".join(GROUPS))

    newest = await recent_loops(visit)
    since = _first_whole_day(newest)
    loops = [loop for loop in newest.loops if loop.created >= since]
    days = None
    if by == "day" and newest.more:
        setup = visit.caller.setup
        days = await counted_days(setup.store, visit.caller.scope)

    rows = _group(loops, GROUPS[by][1]) if days is None else _day_rows(days)

    names = name_keys([row["value"] for row in rows])
    total = _total(rows)
    measure = _measure(total)
    for row in rows:
        row["part"] = (row[measure] or 0) / (total[measure] or 1)
        row["name"] = names[row["value"]]
        row["link"] = _link(visit, by, row["value"], since)

    return {
        "by": by,
        "tabs": {name: title for name, (title, _) in GROUPS.items()},
        "rows": _in_order(rows, by)[:MAX_SPEND_ROWS],
        "groups": len(rows),
        "total": total,
        "measure": measure,
        "course": _course(rows, measure) if by == "day" else [],
        "since": min((loop.created for loop in loops), default=0.0),
        "whole": bool(since),
        "more_loops": newest.more,
        "counted": None if days is None else len(days.figures),
        "uncounted": 0 if days is None else len(days.uncounted),
    }


def _first_whole_day(newest: Recent) -> float:
    """Return the time from which on all loops were read, at the begin of a day.

    Returns 0.0 if there are no older loops, or if no day was read as a whole.
    """
    if not newest.more or not newest.loops:
        return 0.0
    day = ceil(min(loop.created for loop in newest.loops) / DAY_SECONDS)
    if day > time() // DAY_SECONDS:
        return 0.0
    return day * DAY_SECONDS


def _group(
    loops: Sequence[RecentLoop], group_of: Callable[[RecentLoop], str]
) -> list[Document]:
    """Return a row for each group of loops."""
    groups = defaultdict[str, list[RecentLoop]](list)
    for loop in loops:
        groups[group_of(loop)].append(loop)

    rows = []
    for value, group in groups.items():
        counts = count_loops(group)
        counts["unjudged"] = counts["not_validated"]
        rows.append(_row(value, counts))
    return rows


def _day_rows(days: CountedDays) -> list[Document]:
    """Return a row for each day with loops; what a day does not count is None."""
    rows = []
    for day, day_figures in days.figures.items():
        if day_figures["loops"]:
            right = day_figures["right_at_once"]
            counts = {**day_figures, "right": right}
            rows.append(_row(day_text(day * DAY_SECONDS), counts))
    return rows


def _row(value: str, counts: Document) -> Document:
    """Return a row of the page: its value, and the figures of its loops.

    `cost` is None if it is known of no loop, and `cost_a_loop` is that of the loops
    with a cost, None if their number is unknown.
    """
    with_cost = counts.get("with_cost")
    return {
        "value": value,
        **{name: counts.get(name) for name in SUMS},
        "cost": counts["cost"] or None,
        "cost_a_loop": counts["cost"] / with_cost if with_cost else None,
        "right": Share(counts["right"], counts["ended"]).plain,
        "solved": Share(counts["solved"], counts["retried"]).plain,
    }


def _total(rows: Sequence[Document]) -> Document:
    """Return the sums of all rows; what the rows do not count is None."""
    totals: Document = {}
    for name in SUMS:
        counts = [row[name] for row in rows]
        is_counted = name in ("loops", "calls", "tokens", "cost") or None not in counts
        totals[name] = sum(count or 0 for count in counts) if is_counted else None
    return totals


def _measure(total: Document) -> str:
    """Return in what rows are compared: the cost, if it is known of all loops.

    Else it is the tokens, if they are, or the calls; without calls, the loops.
    """
    if not total["calls"]:
        return "loops"
    for name in ("cost", "tokens"):
        if 0 < (total["called"] or 0) <= total[f"with_{name}"]:
            return name
    return "calls"


def _course(rows: Sequence[Document], measure: str) -> list[Document]:
    """Return what each day used, from the first to the last one, without a gap."""
    used = {}
    for row in rows:
        day = date.fromisoformat(row["value"]).toordinal() - FIRST_DAY
        used[day] = row[measure] or 0
    days = range(min(used, default=0), max(used, default=-1) + 1)
    return [{"at": day * DAY_SECONDS, measure: used.get(day, 0)} for day in days]


def _in_order(rows: Sequence[Document], by: str) -> list[Document]:
    """Return the rows of the newest day first, or of those that cost most."""
    if by == "day":
        return sorted(rows, key=lambda row: row["value"], reverse=True)
    return sorted(rows, key=lambda row: (-row["part"], row["value"]))


def _link(visit: Visit, by: str, value: str, since: float) -> str:
    """Return the address of the loops of a row."""
    if by == "day":
        return visit.link("/loops", **{"from": value, "to": value})
    begin = day_text(since) if since else ""
    return visit.link("/loops", **{by: value, "from": begin})


PAGES = (
    SitePage(
        address="/spend",
        template="spend",
        title="Spend",
        make=spend,
        may=READING,
        table=Table(
            rows="rows",
            columns={
                "group": "value",
                "loops": "loops",
                "right at the first try": "right.value",
                "low": "right.low",
                "high": "right.high",
                "ended": "right.of",
                "solved by a retry": "solved.value",
                "retried": "solved.of",
                "calls": "calls",
                "tokens": "tokens",
                "cost": "cost",
                "loops with a cost": "with_cost",
                "not judged": "unjudged",
                "seconds": "seconds",
            },
        ),
    ),
)
