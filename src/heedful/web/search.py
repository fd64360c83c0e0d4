"""The page of a search: the loops, lessons and traces that have a text.

Each list finds what its own page finds, with the same rights: a text that waits in
quarantine is in none of them, and tasks of traces are shown only to reviewers.
"""

from __future__ import annotations

from typing import Any

from heedful.store.loop_texts import search_loops
from heedful.web import figures
from heedful.web.found_traces import MAX_SEARCHED_EPISODES, found_episodes
from heedful.web.instructions import with_instructions
from heedful.web.lessons import rows_of_matches
from heedful.web.site import READING, Document, SitePage, Visit
from heedful.web.summaries import found_words, summaries

MAX_FOUND_ROWS = 10  # of each list on the page
MAX_COUNTED_ROWS = 50  # of each list; a page says of more that there are more


async def search(visit: Visit) -> Document:
    """Show the newest loops and traces with a text, and the best lessons for it."""
    text = visit.query.get("text", "").strip()
    loops = Document(rows=[], number=0, unindexed=0)
    lessons = Document(rows=[], number=0, silence="")
    traces = Document(rows=[], number=0, allowed=visit.may("read"))
    if text:
        loops = await _find_loops(visit, text)
        lessons = await _find_lessons(visit, text)
    if text and traces["allowed"]:
        traces |= await _find_traces(visit, text)
    return {
        "text": text,
        "loops": loops,
        "lessons": lessons,
        "traces": traces,
        "counted": MAX_COUNTED_ROWS,
        "searched_traces": MAX_SEARCHED_EPISODES,
    }


async def _find_loops(visit: Visit, text: str) -> Document:
    """Return the newest loops with a text, and where each of them has it.

    `unindexed` are loops that no search has read yet.
    """
    matches = await search_loops(visit.caller.setup.store, visit.caller.scope, text)
    numbers, _ = await visit.caller.read(
        figures.listed, MAX_COUNTED_ROWS, matches=matches
    )
    rows = await visit.caller.read(summaries, numbers[:MAX_FOUND_ROWS])
    excerpts = await visit.caller.read(found_words, rows, text)
    for row in rows:
        row["found"] = excerpts.get(row["n"], "")
    return {"rows": rows, "number": len(numbers), "unindexed": matches.unindexed}


async def _find_lessons(visit: Visit, text: str) -> Document:
    """Return the lessons in use that fit a text best, or why none does: `silence`."""
    matches = await visit.caller.memory.query(text, MAX_COUNTED_ROWS, waiting=False)
    rows: list[Any] = await rows_of_matches(visit, matches, "")
    lessons = await with_instructions(visit, rows[:MAX_FOUND_ROWS])
    return {"rows": lessons, "number": len(rows), "silence": matches.silence}


async def _find_traces(visit: Visit, text: str) -> Document:
    """Return those of the newest traces that have a text in their task."""
    episode_rows = await visit.caller.read(
        found_episodes, MAX_COUNTED_ROWS, text=text, state="", before=0
    )
    rows = episode_rows[:MAX_FOUND_ROWS]
    digests = [row["digest"] for row in rows]
    episodes = await visit.caller.read(figures.episodes, digests)
    traces = [{**row, **episodes.get(row["digest"], {})} for row in rows]
    return {"rows": traces, "number": len(episode_rows)}


PAGES = (
    SitePage(
        address="/search",
        template="search",
        title="Search",
        make=search,
        may=READING,
    ),
)
