"""The list of loops: a search, three facets, how they went, and why they failed."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakKeyDictionary

from heedful.display import counted
from heedful.errors import InvalidInput, NotFound, UsageError
from heedful.loop.record import DOUBT_STATES
from heedful.memory.memory import Memory
from heedful.store.loop_names import find_loop
from heedful.store.recent import (
    FAILED_STATES,
    LoopFigures,
    RecentLoop,
    RecentLoops,
    cause_of,
    group_causes,
    read_recent,
    sum_loops,
)
from heedful.validation import MAX_SHOWN_ROWS, Document
from heedful_server.auth import Caller
from heedful_server.web.lists import (
    WITHOUT,
    facet,
    short_names,
    table,
    unknown_filters,
)
from heedful_server.web.loop_summaries import found_words, summaries
from heedful_server.web.loop_texts import search_loops
from heedful_server.web.site import Visit, page_links

LOOP_STATES = ("open", "failed", "passed", *DOUBT_STATES, "stopped")
CURSOR_PATTERN = re.compile(r"([0-9]{1,16})-([0-9]{1,6})")
FACETS = ("state", "check", "key")
FILTERS = ("text", "cause", *FACETS)
STATE_WORDS = {"not_validated": "not validated"}
DEFAULT_ORDER = "-changed"  # addresses leave it out
ORDERS = {
    "-changed": "changed last",
    "changed": "changed first",
    "-cost": "most costly",
}
SORTS: Mapping[str, Callable[[RecentLoop], tuple[float, ...]]] = {
    "-changed": lambda loop: (-loop.updated,),
    "changed": lambda loop: (loop.updated,),
    "-cost": lambda loop: (-loop.usage.cost, -loop.usage.calls),
}
MADE_UP_ID_PART = re.compile(r"[0-9a-f-]{6,36}")
# The newest loops as they were read last, by number, by the memory of a scope.
_recent_loops = WeakKeyDictionary[Memory, Mapping[int, RecentLoop]]()


async def recent_loops(caller: Caller) -> RecentLoops:
    """Return the newest loops of a caller's project.

    Those that have not changed since they were read last are not read again.
    """
    memory = caller.memory
    seen_loops = _recent_loops.get(memory, {})
    newest = await caller.read(read_recent, seen_loops)
    _recent_loops[memory] = {loop.n: loop for loop in newest.loops}
    return newest


async def loops(visit: Visit) -> Document:
    """Show loops that fit the filters, how they went, and their facets.

    The newest loops are read together, filtered, and shown in pages; the last of these
    leads to older loops. A stage of a pipeline is on the page of its run. It is listed
    here only in a search, or if its memory key or the cause of its failure is chosen.
    """
    visit.query_choice("state", LOOP_STATES)
    filters = {name: visit.query_text(name) for name in FILTERS}
    text = filters["text"].strip()
    before, begin = _place_of(visit)
    window = await _read_window(visit, text, before)
    fitting, facet_counts = narrow(window.loops, filters)
    order = visit.query_choice("sort", SORTS) or DEFAULT_ORDER
    fitting.sort(key=SORTS[order])

    end = begin + MAX_SHOWN_ROWS
    cursor = ""
    if end < len(fitting):
        cursor = f"{before}-{end}"
    elif window.oldest:
        cursor = f"{window.oldest}-0"
    rows = await _rows_of(visit, fitting[begin:end], window)
    if text:
        visit.following = await loop_called(visit, text, rows)
        snippets = await visit.caller.read(found_words, rows, text)
        for row in rows:
            row.update(snippets.get(row["n"], {"found": ""}))

    totals = sum_loops(fitting)
    key_names = short_names([loop.memory_key for loop in window.loops])
    answer = totals.sentence
    if before or window.oldest:
        number = f"{len(window.loops):,}"
        which = f"{number} older" if before else f"the newest {number}"
        answer = f"{answer}, of {which} loops"
    # Only the facet that shows stages counts them.
    stages = 0
    if not filters["key"]:
        stages = facet_counts["key"].total() - len(fitting)
    stage_words = counted(stages, "stage of a run", "stages of runs") if stages else ""
    if stage_words:
        answer += f"; besides, {stage_words}"
    return {
        "heading": "Loops",
        "search": "Task, answer, finding or id",
        "facets": [
            facet(visit, "state", "State", facet_counts["state"], labels=STATE_WORDS),
            facet(visit, "check", "Failed check", facet_counts["check"]),
            facet(
                visit,
                "key",
                "Memory key",
                facet_counts["key"],
                labels={WITHOUT: "none", **key_names},
            ),
            _orders(visit, order),
        ],
        "answer": {"words": answer, "kind": ""} if fitting else None,
        "parts": parts_of(totals),
        "tables": [table("loops", ("task", "state", "#attempts", "#used", "changed"))],
        "loops": rows,
        "totals": totals.plain,
        "nothing": _nothing(window, filters, stage_words),
        "unknown": unknown_filters(visit.query, *FILTERS),
        **page_links(visit, cursor),
    }


def _orders(visit: Visit, chosen: str) -> Document:
    """Return the orders of the list as a facet without counts."""
    values = [
        {
            "value": name,
            "label": label,
            "chosen": name == chosen,
            "link": visit.turned(sort="" if name == DEFAULT_ORDER else name),
        }
        for name, label in ORDERS.items()
    ]
    return {
        "name": "sort",
        "title": "Order",
        "values": values,
        "number": len(values),
        "open": len(values),
    }


async def _rows_of(
    visit: Visit, loops: Sequence[RecentLoop], window: RecentLoops
) -> list[Document]:
    """Return the rows of loops, each with how many failed alike, and since when."""
    rows = await visit.caller.read(summaries, loops)
    causes = {cause.signature: cause for cause in group_causes(window.loops)}
    for row, loop in zip(rows, loops, strict=False):
        cause = causes[cause_of(loop)] if loop.state in FAILED_STATES else None
        row["alike"] = cause.loops if cause else 0
        row["since"] = cause.since if cause else 0.0
    return rows


def _nothing(
    window: RecentLoops, filters: Mapping[str, str], stage_words: str
) -> Document:
    """Return what the list says without rows; `stage_words` count stages that fit."""
    if stage_words:
        words = f"No loop, but {stage_words}."
        return {"words": words, "path": "/work", "label": "runs"}
    if window.oldest:
        return {"words": "No loop fits of those that were read; older ones follow."}
    if any(filters.values()):
        return {"words": "No loop fits."}
    return {
        "words": "No loop was recorded in this project yet.",
        "path": "/",
        "label": "how to begin",
    }


async def _read_window(visit: Visit, text: str, before: int) -> RecentLoops:
    """Return the newest loops below a number, or those that a search finds."""
    if text:
        matches = await visit.caller.read(search_loops, text, before)
        newest = await recent_loops(visit.caller)
        window = await visit.caller.read(
            read_recent,
            {loop.n: loop for loop in newest.loops},
            before=before,
            numbers=matches.loops,
        )
        return RecentLoops(window.loops, window.oldest or matches.oldest)
    if before:
        return await visit.caller.read(read_recent, before=before)
    return await recent_loops(visit.caller)


def narrow(
    loops: Sequence[RecentLoop], filters: Mapping[str, str]
) -> tuple[list[RecentLoop], dict[str, Counter[str]]]:
    """Return the loops that fit the filters, and the counts of each facet.

    A facet counts the loops that fit all filters besides its own: each count says how
    many loops a click leaves.
    """
    fitting = []
    counts = {name: Counter[str]() for name in FACETS}
    for loop in loops:
        has_failed = loop.state in FAILED_STATES
        values = {
            "cause": (cause_of(loop) if has_failed else "",),
            "state": (loop.state,),
            "check": loop.checks,
            "key": (loop.memory_key or WITHOUT,),
        }
        missed = [
            name
            for name in ("cause", *FACETS)
            if filters[name] and filters[name] not in values[name]
        ]
        # A stage is listed in a search, or if its key or its cause is chosen.
        shows_stages = filters["text"] or filters["key"] or filters["cause"]
        if loop.kind == "stage" and not shows_stages:
            missed.append("key")
        if not missed:
            fitting.append(loop)
        for name in FACETS:
            if not missed or missed == [name]:
                counts[name].update(values[name])
    return fitting, counts


def parts_of(totals: LoopFigures) -> list[tuple[str, int, str]]:
    """Return how loops ended as the parts of a bar: kind, number and words of each."""
    return [
        ("good", totals.right.number, "right at the first try"),
        ("front", totals.solved.number, "solved by a retry"),
        ("bad", totals.stopped, "stopped unsolved"),
        ("track", totals.unjudged, "passed without a check"),
        ("other", totals.open, "open"),
    ]


async def loop_called(visit: Visit, text: str, rows: Sequence[Document]) -> str:
    """Return the address of the loop or run whose id is the searched text; "" if none.

    If heedful made the id, a part of it is enough. An id that a program gave may be a
    common word, so it counts only if the search found nothing else: at most one row.
    """
    id = text.strip()
    if MADE_UP_ID_PART.fullmatch(id):
        try:
            id = await visit.caller.read(find_loop, id)
        except (NotFound, UsageError):
            return ""
    elif len(rows) > 1 or not await visit.rows("head", id=id, chars=0):
        return ""
    return visit.link(f"/loops/{id}")


def _place_of(visit: Visit) -> tuple[int, int]:
    """Return where the page of a list begins. Raises InvalidInput.

    The cursor of the address says below which number loops were read, 0 for the newest,
    and how many of their rows are on the pages before.
    """
    cursor = visit.query.get("cursor") or "0-0"
    match = CURSOR_PATTERN.fullmatch(cursor)
    if match is None:
        raise InvalidInput("cursor", cursor, "that of a page of this list")
    return int(match[1]), int(match[2])
