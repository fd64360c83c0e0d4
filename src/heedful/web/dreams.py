"""The page of dreams: what consolidations superseded and wrote, and what came of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain

from heedful.lessons.consolidate import Proposal
from heedful.loop.share import Share
from heedful.memory.dream import Dream, Dreams
from heedful.pages.report import counted
from heedful.service.wire import split_page
from heedful.web import figures
from heedful.web.site import READING, Document, SiteAction, SitePage, Visit, page_links

MAX_PAGE_DREAMS = 20
MAX_USED_LESSONS = 10_000
MAX_MEASURED_DREAMS = 3  # the newest ones of a page


async def dreams(visit: Visit) -> Document:
    """Show what consolidations superseded and wrote, and how loops went since."""
    before = visit.number("cursor") or None
    log = await Dreams(visit.caller.memory).log(MAX_PAGE_DREAMS + 1, before)
    page, cursor = split_page(log, MAX_PAGE_DREAMS, "id")

    ids = set(chain.from_iterable(dream.texts for dream in page))
    rows = await visit.caller.read(
        figures.rows, "lesson_names", ids=json.dumps(sorted(ids))
    )
    lessons = {row["id"]: dict(row) for row in rows}
    effects = await _effects(visit, page, lessons)
    (counts,) = await visit.caller.read(
        figures.rows, "lessons_in_use", limit=MAX_USED_LESSONS
    )

    documents = [
        {
            **asdict(dream),
            "nothing": dream.nothing,
            "after": dream.after,
            "effects": effects.get(dream.id, {}),
        }
        for dream in page
    ]
    unmeasured = say_unmeasured(page, effects)
    # A template reads JSON data; a dream has tuples and keys that are numbers.
    return {
        "dreams": json.loads(json.dumps(documents)),
        "lessons": {str(id): lesson["state"] for id, lesson in lessons.items()},
        "in_use": counts["lessons"],
        "change": describe_change(page, counts["lessons"], is_newest=not before),
        "sentence": f"{describe_dreams(page)}{unmeasured}",
        "measured": not unmeasured,
        **page_links(visit, cursor),
    }


def describe_dreams(dreams: Sequence[Dream]) -> str:
    """Return in one sentence what dreams did, without those that were undone.

    >>> describe_dreams([])
    ''
    """
    if not dreams:
        return ""
    lasting = [dream for dream in dreams if dream.undone is None]
    if not lasting:
        return f"{counted(len(dreams), 'dream')}, undone"
    proposals = chain.from_iterable(dream.done for dream in lasting)
    counts = Counter(proposal.action for proposal in proposals)
    parts = []
    if counts["supersede"]:
        parts.append(f"ended {counted(counts['supersede'], 'contradicted rule')}")
    if counts["reword"]:
        parts.append(f"gave {counted(counts['reword'], 'lesson')} better words")
    if counts["reflect"]:
        parts.append(f"wrote {counted(counts['reflect'], 'reflection')}")

    done = ", ".join(parts) or "changed nothing"
    undone = len(dreams) - len(lasting)
    ending = f"; {counted(undone, 'dream')} undone" if undone else ""
    return f"{counted(len(dreams), 'dream')} {done}{ending}"


def say_unmeasured(
    dreams: Sequence[Dream], effects: Mapping[int, Mapping[int, Document]]
) -> str:
    """Return that nothing tells whether these dreams were worth it; "" if loops do."""
    lasting = [dream.id for dream in dreams if dream.undone is None]
    measured = list(chain.from_iterable(effects.get(id, {}).values() for id in lasting))
    loops = [effect["before"]["of"] + effect["since"]["of"] for effect in measured]
    if not loops or any(loops):
        return ""
    return "; not known if it was worth it: no loop was shown these lessons"


def describe_change(dreams: Sequence[Dream], in_use: int, *, is_newest: bool) -> str:
    """Return how many lessons more are in use than after the newest dream.

    Returns "" on a page of older dreams, and if the newest one was undone.
    """
    if not dreams or not is_newest or dreams[0].undone is not None:
        return ""
    newest = dreams[0]
    difference = in_use - newest.after
    if difference > 0:
        return f"{difference:,} more than after dream {newest.id}: learnt since"
    if difference < 0:
        return f"{-difference:,} fewer than after dream {newest.id}: retired since"
    return f"as many as after dream {newest.id}"


async def _effects(
    visit: Visit, dreams: Iterable[Dream], lessons: dict[int, Document]
) -> dict[int, dict[int, Document]]:
    """Return, for each dream and each lesson that remained, how loops went.

    `before` is of the loops that were shown one of the lessons that changed, before the
    dream; `since` of those that were shown what remained, until it was undone. Only
    the newest dreams that changed something are measured.
    """
    changing = [dream for dream in dreams if dream.done]
    effects: dict[int, dict[int, Document]] = {}
    for dream in changing[:MAX_MEASURED_DREAMS]:
        ids = {proposal.survivor for proposal in dream.done}
        ids.update(*(proposal.members for proposal in dream.done))
        names = {id: _name(lessons[id]) for id in ids if id in lessons}
        borders = [dream.at]
        if dream.undone is not None:
            borders.append(dream.undone)
        periods = await visit.caller.read(
            figures.shown_loops, list(names.values()), borders
        )

        effects[dream.id] = {
            proposal.survivor: _effect_of(proposal, names, periods)
            for proposal in dream.done
            if proposal.survivor in names
        }
    return effects


def _name(lesson: Document) -> str:
    """Return the name of a lesson in exposures."""
    return f"{lesson['kind']}/{lesson['signature']}"


def _effect_of(
    proposal: Proposal,
    names: dict[int, str],
    periods: dict[str, list[figures.ShownLoops]],
) -> Document:
    """Return how loops went before a change of lessons, and since."""
    merged = [id for id in proposal.members if id in names]
    if proposal.action != "reflect":
        merged.append(proposal.survivor)
    before = [periods[names[id]][0] for id in merged]
    since = periods[names[proposal.survivor]][1]
    right_before = sum(counts.helped for counts in before)
    loops_before = sum(counts.loops for counts in before)
    return {
        "before": Share(right_before, loops_before).plain,
        "since": Share(since.helped, since.loops).plain,
    }


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
