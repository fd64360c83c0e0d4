"""What loops cost and how they went: by memory key, policy, model, or day.

The loops are those of `recent.py`, from the first day on that was read as a whole. By
day, a project with more loops has the figures of `days.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from math import ceil
from operator import itemgetter
from time import time

from heedful.errors import InvalidInput
from heedful.lessons.ranking import DAY_SECONDS
from heedful.loop.share import Share
from heedful.web.days import CountedDays, counted_days
from heedful.web.facets import WITHOUT, allowed_sorts, name_keys, unknown_filters
from heedful.web.figures import ALL_TIME, Period
from heedful.web.loops import recent_loops, sort_links
from heedful.web.periods import day_text, period_of
from heedful.web.projects import read_project
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
SINGLES = ""  # the value of the row of all keys with one loop
MAX_SINGLES = 5  # keys with one loop that have a row each
# Rows are compared in what is known of this share of the loops with calls.
MIN_KNOWN_SHARE = 0.95
# What the rows can be sorted by; '-' before the name puts the largest first.
SPEND_SORTS = (
    "group",
    "part",
    "loops",
    "right",
    "solved",
    "calls",
    "tokens",
    "cost",
    "seconds",
)
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
    "with_seconds",
    "unjudged",
)


async def spend(visit: Visit) -> Document:
    """Show what loops cost and how they went, by a property of theirs.

    Many keys with one loop each have one row together. Raises InvalidInput.
    """
    period = period_of(visit)
    newest = await recent_loops(visit, period)
    since = _first_whole_day(newest)
    loops = [loop for loop in newest.loops if loop.created >= since]

    by = visit.query.get("by") or "key"
    if by not in GROUPS:
        raise InvalidInput("by", by, ", ".join(GROUPS))

    sort = visit.query.get("sort") or ("-group" if by == "day" else "-part")
    if sort.removeprefix("-") not in SPEND_SORTS:
        raise InvalidInput("sort", sort, allowed_sorts(SPEND_SORTS))

    days = None
    if by == "day" and newest.more:
        days = await counted_days(visit.caller.setup.store, visit.caller.scope)

    # In a spreadsheet each key has a row.
    rows = _group(loops, GROUPS[by][1], folds=by == "key" and not visit.is_table)
    if days is not None:
        rows = _day_rows(days, period)
    rows_of_days = rows if by == "day" else _group(loops, GROUPS["day"][1], folds=False)

    spending = None
    if loops and period == ALL_TIME and not visit.is_table:
        home = await read_project(visit.caller.setup.store, visit.caller.scope)
        spending = home["spending"]

    names = name_keys([row["value"] for row in rows])
    total = _total(rows)
    measure = _measure(total)
    for row in rows:
        row["part"] = (row[measure] or 0) / (total[measure] or 1)
        row["name"] = names[row["value"]] or f"{row['loops']:,} keys with one loop each"
        row["link"] = _link(visit, by, row["value"], since)

    return {
        "by": by,
        "unknown": unknown_filters(visit.query, "by", "from", "to"),
        "tabs": {name: title for name, (title, _) in GROUPS.items()},
        "sorts": sort_links(visit, sort, SPEND_SORTS),
        "rows": _in_order(rows, sort)[:MAX_SPEND_ROWS],
        "groups": len(rows),
        "total": total,
        "measure": measure,
        "spending": spending,
        "largest": max(rows, key=itemgetter("part"), default=None),
        "course": _course(rows_of_days, measure),
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
    loops: Sequence[RecentLoop],
    group_of: Callable[[RecentLoop], str],
    *,
    folds: bool,
) -> list[Document]:
    """Return a row for each group of loops.

    If it `folds`, more than `MAX_SINGLES` groups of one loop have one row together.
    """
    groups = defaultdict[str, list[RecentLoop]](list)
    for loop in loops:
        groups[group_of(loop)].append(loop)

    singles = [value for value, group in groups.items() if len(group) == 1]
    if folds and len(singles) > MAX_SINGLES:
        groups[SINGLES] = [groups.pop(value)[0] for value in singles]

    counts_of = {value: count_loops(group) for value, group in groups.items()}
    return [
        _row(
            value,
            {**counts, "unjudged": counts["unchecked"] + counts["not_validated"]},
        )
        for value, counts in counts_of.items()
    ]


def _day_rows(days: CountedDays, period: Period) -> list[Document]:
    """Return a row for each day of a period with loops; None is not counted."""
    return [
        _row(
            day_text(day * DAY_SECONDS),
            {**day_figures, "right": day_figures["right_at_once"]},
        )
        for day, day_figures in days.figures.items()
        if day_figures["loops"] and period.begin <= day * DAY_SECONDS < period.end
    ]


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
    """Return in what rows are compared: the cost, if it is known of nearly all loops.

    Else it is the tokens, if they are, or the calls; without calls, the loops.
    """
    if not total["calls"]:
        return "loops"
    for name in ("cost", "tokens"):
        if 0 < MIN_KNOWN_SHARE * (total["called"] or 0) <= total[f"with_{name}"]:
            return name
    return "calls"


def _course(rows: Sequence[Document], measure: str) -> list[Document]:
    """Return what each day used, from the first to the last one, without a gap."""
    used = {
        date.fromisoformat(row["value"]).toordinal() - FIRST_DAY: row[measure] or 0
        for row in rows
    }
    days = range(min(used, default=0), max(used, default=-1) + 1)
    return [{"at": day * DAY_SECONDS, measure: used.get(day, 0)} for day in days]


def _in_order(rows: Sequence[Document], sort: str) -> list[Document]:
    """Return the rows in an order; those that are equal in it are sorted by name."""
    name = sort.removeprefix("-")
    by_value = sorted(rows, key=itemgetter("value"))
    if name == "group":
        return by_value[::-1] if sort != name else by_value

    def figure(row: Document) -> float:
        """Return the number by which a row is sorted."""
        value = row[name]
        return (value["value"] if isinstance(value, dict) else value) or 0.0

    return sorted(by_value, key=figure, reverse=sort != name)


def _link(visit: Visit, by: str, value: str, since: float) -> str:
    """Return the address of the loops of a row; "" if they have no value in common."""
    if by == "day":
        return visit.link("/loops", **{"from": value, "to": value})
    begin = day_text(since) if since else visit.query.get("from")
    days = {"from": begin, "to": visit.query.get("to")}
    return visit.link("/loops", **{by: value, **days}) if value else ""


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
