"""The pages about memory: the list of lessons, and proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, get_args

from heedful.lessons.briefing import HARMFUL_MEMORY
from heedful.lessons.lesson import (
    LESSON_KINDS,
    Match,
    Matches,
    Scope,
    State,
)
from heedful.lessons.links import link_lesson
from heedful.lessons.proof import NO_CONCLUSION, Conclusion, Effect
from heedful.lessons.sentence import say_gain, say_missing
from heedful.service import review
from heedful.service.wire import split_page
from heedful.store import links as link_store
from heedful.validation import MAX_INTEGER
from heedful.web import figures
from heedful.web.days import read_home
from heedful.web.loops import project_names
from heedful.web.site import (
    READING,
    Document,
    SitePage,
    Visit,
    page_links,
)

MAX_PAGE_LESSONS = 50
MAX_COMPARED_PROJECTS = 5  # others than the one that is shown
MAX_ROW_LINKS = 3  # of each lesson in a list


async def lessons(visit: Visit) -> Document:
    """Show the lessons that fit the filters, or that a search finds."""
    names = ("kind", "state", "error_type", "tag", "text")
    filters = {name: visit.query.get(name, "") for name in names}

    rows: Sequence[Any]
    cursor = None
    silence = ""
    if filters["text"]:
        matches = await _search_lessons(visit, filters)
        rows = await rows_of_matches(visit, matches, filters["state"])
        silence = matches.silence
    else:
        listed = await review.list_lessons(
            visit.caller,
            MAX_PAGE_LESSONS + 1,
            visit.number("cursor") or MAX_INTEGER,
            kind=filters["kind"],
            error_type=filters["error_type"],
            tag=filters["tag"],
            state=filters["state"] or "settled",
        )
        rows, cursor = split_page(listed, MAX_PAGE_LESSONS, "id")

    return {
        "filters": filters,
        "kinds": LESSON_KINDS,
        "states": get_args(State),
        "lessons": await _with_links(visit, rows),
        "silence": silence,
        **page_links(visit, cursor),
    }


async def _with_links(visit: Visit, rows: Sequence[Any]) -> list[Document]:
    """Return the lessons, each with the first things that it is about."""
    ids = [row["id"] for row in rows]
    links: dict[int, list[Document]] = {id: [] for id in ids}
    for words in await visit.caller.read(link_store.read_words_of, ids):
        names = [link for link in link_lesson(words).links if link.kind != "task"]
        links[words.id] = [asdict(link) for link in names[:MAX_ROW_LINKS]]
    return [{**row, "links": links[row["id"]]} for row in rows]


async def _search_lessons(visit: Visit, filters: Document) -> Matches:
    """Return what a search for the text of the filters finds."""
    tags = [filters["tag"]] if filters["tag"] else ()
    return await visit.caller.memory.query(
        filters["text"],
        MAX_PAGE_LESSONS,
        waiting=False,
        kind=filters["kind"],
        error_type=filters["error_type"],
        tags=tags,
    )


async def rows_of_matches(
    visit: Visit, matches: Sequence[Match], state: str
) -> list[Any]:
    """Return the lessons of matches that are in a state; "" is any."""
    # Several matches may be of one lesson.
    ids = list(dict.fromkeys(match.lesson_id for match in matches))
    rows = await visit.caller.read(figures.lessons, ids)
    return [
        review.visible(visit.caller, row) for row in rows if state in ("", row["state"])
    ]


async def proof(visit: Visit) -> Document:
    """Show whether memory helps: in all, for each lesson, and as it grows."""
    model = visit.query.get("model", "")
    answer = await visit.get("/v1/proof", limit=MAX_PAGE_LESSONS, model=model)
    names = [comparison["lesson"] for comparison in answer["lessons"]]
    texts = await visit.caller.read(figures.named, names)
    for comparison in answer["lessons"]:
        comparison |= texts.get(comparison["lesson"], {"id": 0, "text": ""})

    comparisons = [answer["pooled"], *answer["lessons"], *answer["models"].values()]
    for comparison in comparisons:
        comparison |= words_of(comparison)
    answer["lessons"].sort(key=_by_conclusion)

    # Without a coin, what is left to look at is how other projects went.
    compared: list[Document] = []
    if not answer["pooled"]["withheld"]:
        compared = await _compare_projects(visit)

    home = await read_home(visit.caller.setup.store, visit.caller.scope)
    return {
        **answer,
        **home,
        "harm": HARMFUL_MEMORY.reason.capitalize(),
        "compared": compared,
    }


def words_of(comparison: Document) -> Document:
    """Return what a comparison says in words: the gain, or else what is missing."""
    uplift = Effect(**comparison["uplift"])
    gain = ""
    if uplift.gain is not None:
        gain = say_gain(uplift)

    missing = ""
    if comparison["conclusion"] == NO_CONCLUSION:
        missing = say_missing(
            comparison["shown"], comparison["withheld"], comparison.get("missing")
        )
    return {"gain": gain, "lacks": missing}


def _by_conclusion(comparison: Document) -> tuple[int, float]:
    """Return the place of a lesson: what helps, hurts, is no difference, is unknown.

    In each of them the largest gain or loss comes first.
    """
    place = get_args(Conclusion).index(comparison["conclusion"])
    return place, -abs(comparison["uplift"]["gain"] or 0.0)


async def _compare_projects(visit: Visit) -> list[Document]:
    """Return the figures of this project and of others with loops, this one first.

    Returns [] if no other project has any.
    """
    own = visit.caller.scope.project
    names = [name for name in await project_names(visit) if name != own]
    rows = []
    for name in [own, *names[:MAX_COMPARED_PROJECTS]]:
        scope = Scope(visit.caller.scope.tenant, name)
        totals = await read_home(visit.caller.setup.store, scope)
        if totals["loops"]:
            fields = ("loops", "calls", "right", "more", "unread", "whole_days")
            rows.append({"project": name, **{name: totals[name] for name in fields}})
    return rows if len(rows) > 1 else []


PAGES = (
    SitePage(
        address="/lessons",
        template="lessons",
        title="Lessons",
        make=lessons,
        may=READING,
    ),
    SitePage(
        address="/proof", template="proof", title="Proof", make=proof, may=READING
    ),
)
