"""The page of dreams: what consolidations merged and wrote, and what came of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from heedful.loop.share import Share
from heedful.memory.dream import Dream, Dreams
from heedful.pages.report import counted
from heedful.service.wire import split_page
from heedful.web import figures
from heedful.web.site import READING, Document, SiteAction, SitePage, Visit, page_links

MAX_PAGE_DREAMS = 20
MAX_MEASURED_MERGES = 10  # the newest ones of a page
END_OF_TIME = 1e18


async def dreams(visit: Visit) -> Document:
    """Show what consolidations merged and reworded, and how loops went since."""
    before = visit.number("cursor") or None
    log = await Dreams(visit.caller.memory).log(MAX_PAGE_DREAMS + 1, before)
    page, cursor = split_page(log, MAX_PAGE_DREAMS, "id")

    ids = {id for dream in page for id in dream.texts}
    rows = await visit.caller.read(
        figures.rows, "lesson_names", ids=json.dumps(sorted(ids))
    )
    lessons = {row["id"]: dict(row) for row in rows}
    effects = await _effects(visit, page, lessons)

    documents = [
        {
            **asdict(dream),
            "nothing": dream.nothing,
            "after": dream.after,
            "effects": effects.get(dream.id, {}),
        }
        for dream in page
    ]
    # A template reads JSON data; a dream has tuples and keys that are numbers.
    return {
        "dreams": json.loads(json.dumps(documents)),
        "lessons": {str(id): lesson["state"] for id, lesson in lessons.items()},
        "sentence": describe_dreams(page),
        **page_links(visit, cursor),
    }


def describe_dreams(dreams: Sequence[Dream]) -> str:
    """Return in one sentence what dreams did, without those that were undone.

    >>> describe_dreams([])
    ''
    """
    if not dreams:
        return ""
    kept = [dream for dream in dreams if dream.undone is None]
    if not kept:
        return f"{counted(len(dreams), 'dream')}, undone"
    counts = Counter(proposal.action for dream in kept for proposal in dream.done)
    parts = []
    if counts["merge"]:
        gone = sum(dream.superseded for dream in kept)
        parts.append(f"replaced {counted(gone, 'lesson')} that said the same")
    if counts["reword"]:
        parts.append(f"gave {counted(counts['reword'], 'lesson')} better words")
    if counts["reflect"]:
        parts.append(f"wrote {counted(counts['reflect'], 'reflection')}")

    done = ", ".join(parts) or "changed nothing"
    undone = len(dreams) - len(kept)
    ending = f"; {counted(undone, 'dream')} undone" if undone else ""
    return f"{counted(len(dreams), 'dream')} {done}{ending}"


async def _effects(
    visit: Visit, dreams: Iterable[Dream], lessons: dict[int, Document]
) -> dict[int, dict[int, Document]]:
    """Return, for each dream and each lesson that remained, how loops went.

    `before` is of the loops that were shown one of the lessons that were merged, before
    the dream; `since` of those that were shown what remained, since then.
    """
    effects: dict[int, dict[int, Document]] = {}
    measured = 0
    for dream in dreams:
        for proposal in dream.done:
            is_change = proposal.action in ("merge", "reword", "reflect")
            if not is_change or proposal.survivor not in lessons:
                continue
            if measured == MAX_MEASURED_MERGES:
                return effects
            measured += 1

            merged = [id for id in proposal.members if id in lessons]
            if proposal.action != "reflect":
                merged.append(proposal.survivor)
            until = dream.undone or END_OF_TIME
            survivor = [lessons[proposal.survivor]]
            effects.setdefault(dream.id, {})[proposal.survivor] = {
                "before": await _right(
                    visit, [lessons[id] for id in merged], 0.0, dream.at
                ),
                "since": await _right(visit, survivor, dream.at, until),
            }
    return effects


async def _right(
    visit: Visit, lessons: Iterable[Document], since: float, until: float
) -> Document:
    """Return how many loops that were shown a lesson were right at the first try."""
    right = 0
    loops = 0
    for lesson in lessons:
        (row,) = await visit.caller.read(
            figures.rows,
            "shown_of",
            name=f"{lesson['kind']}/{lesson['signature']}",
            digest=lesson["signature"],
            since=since,
            until=until,
        )
        right += row["helped"] or 0
        loops += row["loops"]
    return Share(right, loops).plain


async def rollback(visit: Visit) -> str:
    """Undo a dream."""
    id = visit.number("id")
    why = visit.form.get("why", "")
    caller = visit.caller
    caller.record("dream.rollback", str(id), why=why)
    restored = await Dreams(caller.memory).rollback(id, by=caller.by, why=why)
    return f"Dream {id} is undone; lessons restored: {restored}."


PAGES = (
    SitePage(
        address="/dreams", template="dreams", title="Dreams", make=dreams, may=READING
    ),
)
ACTIONS = (SiteAction(rollback, ("approve",)),)
