"""The page of a search: the loops, lessons, held texts, traces and runs with a text.

Each list finds what its own page finds, with the same rights: texts that wait in
quarantine, and tasks of traces, are shown only to reviewers.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from heedful.lessons.lesson import Example
from heedful.service import review
from heedful.store import editions, quarantine
from heedful.store.loop_texts import fold, search_loops
from heedful.web import figures
from heedful.web.alike import group_alike, name_alike
from heedful.web.found_traces import (
    MAX_SEARCHED_EPISODES,
    found_episodes,
    spellings_of,
)
from heedful.web.lessons import rows_of_matches
from heedful.web.render import excerpt, hit
from heedful.web.site import READING, Document, SitePage, Visit
from heedful.web.summaries import found_words, summaries

MAX_FOUND_ROWS = 10  # of each list on the page
# A search for lessons compares so many with the text, in any case.
MAX_COUNTED_LESSONS = 200
MAX_SEARCHED_LESSONS = 2_000  # the newest ones, in whose words a search looks
MAX_SEARCHED_RUNS = 1_000  # the newest ones, in whose names a search looks
MAX_FOUND_CHARS = 160
LESSON_NUMBER = r"^(?:lesson )?([0-9]{1,15})$"


async def search(visit: Visit) -> Document:
    """Show the newest loops, traces and runs with a text, and the best lessons."""
    # Many addresses of searches have "q".
    text = (visit.query.get("text") or visit.query.get("q", "")).strip()
    facts: Document = {
        "text": text,
        "searched_runs": MAX_SEARCHED_RUNS,
        "searched_traces": MAX_SEARCHED_EPISODES,
    }
    if not text:
        return facts

    finders = {
        "loops": _find_loops,
        "lessons": _find_lessons,
        "runs": _find_runs,
    }
    facts |= {"waiting": None, "traces": None}
    if visit.may("read"):
        finders |= {"waiting": _find_waiting, "traces": _find_traces}

    # At once: each of the searches for lessons takes as long as all the others.
    results = await asyncio.gather(*(find(visit, text) for find in finders.values()))
    return facts | dict(zip(finders, results, strict=True))


async def _find_loops(visit: Visit, text: str) -> Document:
    """Return the newest loops with a text, and where each of them has it.

    There may be `more` if the search ended early. `unindexed` are loops that no search
    has read yet.
    """
    matches = await search_loops(visit.caller.setup.store, visit.caller.scope, text)
    rows = await visit.caller.read(summaries, matches.loops[:MAX_FOUND_ROWS])
    excerpts = await visit.caller.read(found_words, rows, text)
    for row in rows:
        row.update(excerpts.get(row["n"], {"found": ""}))
    return {
        "rows": rows,
        "number": len(matches.loops),
        "more": matches.oldest > 0,
        "unindexed": matches.unindexed,
    }


async def _find_lessons(visit: Visit, text: str) -> Document:
    """Return the lessons in use that fit a text best, then others that have it.

    A lesson has the text, too, if one of its examples in use does. `silence` says why
    none fits.
    """
    matches = await visit.caller.memory.query(
        text, MAX_COUNTED_LESSONS, waiting=False, reviews=visit.may("read")
    )
    rows: list[Any] = await rows_of_matches(visit, matches, "")
    with_text = await visit.caller.read(
        figures.rows,
        "lessons_with",
        spellings=spellings_of(text),
        window=MAX_SEARCHED_LESSONS,
    )
    example_of = await _find_examples(visit, text)
    fitting_ids = {row["id"] for row in rows}
    named_ids = {int(number) for number in re.findall(LESSON_NUMBER, text.lower())}
    ids_with_text = {row["id"] for row in with_text} | set(example_of) | named_ids
    other_ids = sorted(ids_with_text - fitting_ids, reverse=True)
    others = await visit.caller.read(editions.some, other_ids[:MAX_COUNTED_LESSONS])
    rows += [review.visible(visit.caller, row) for row in others]
    lessons = rows[:MAX_FOUND_ROWS]
    match_of = {match.lesson_id: match for match in reversed(matches)}
    for lesson in lessons:
        match = match_of.get(lesson["id"])
        example = example_of.get(lesson["id"], ())
        if match and (visit.may("read") or match.trust != "outside"):
            example = (match.example.task, match.example.accepted, match.example.wrong)
        lesson |= _place_in_lesson(lesson, example, text)
        lesson["by_meaning"] = match is not None and match.cosine is not None
        lesson["is_named"] = lesson["id"] in named_ids
    # What shares only a part of a word with the text is no hit: "report" of "report-2".
    hits = [
        lesson
        for lesson in lessons
        if lesson["sought"] or lesson["by_meaning"] or lesson["is_named"]
    ]
    return {
        "rows": hits,
        "number": len(rows) - len(lessons) + len(hits),
        "more": len(matches) == MAX_COUNTED_LESSONS,
        "silence": matches.silence,
    }


async def _find_examples(visit: Visit, text: str) -> dict[int, tuple[str, ...]]:
    """Return the texts of an example in use, by lesson, if the example has a text."""
    rows = await visit.caller.read(
        figures.rows,
        "examples_with",
        spellings=spellings_of(text),
        window=MAX_SEARCHED_LESSONS,
        most=MAX_SEARCHED_LESSONS,
    )
    examples: dict[int, tuple[str, ...]] = {}
    for row in rows:
        record = json.loads(row["record"])
        texts = (row["task"], record.get("accepted", ""), record.get("wrong", ""))
        # Names of its fields are no words of an example.
        if any(hit(words, text) for words in texts):
            examples.setdefault(row["id"], texts)
    return examples


def _place_in_lesson(lesson: Document, example: Sequence[str], text: str) -> Document:
    """Return which words of a text a lesson or its example has, and where.

    `sought` is the whole text, or else its longest word that is there; "" if none is.
    `found` has the words around it, if the list does not show them anyway, and
    `in_example` is whether they are in its example.
    """
    other_texts = (lesson["pattern"], *example)
    nowhere = {"sought": "", "found": "", "in_example": False}
    for sought in (text, *sorted(text.split(), key=len, reverse=True)):
        if hit(lesson["text"], sought):
            return {**nowhere, "sought": sought}
        for place, words in enumerate(other_texts):
            if hit(words, sought):
                around = excerpt(words, sought, MAX_FOUND_CHARS)
                return {"sought": sought, "found": around, "in_example": place > 0}
    return nowhere


async def _find_waiting(visit: Visit, text: str) -> Document:
    """Return the texts in quarantine that have a text, those that fit best first.

    Their errors and their examples count, too: `found` has the words around it there.
    Near-equal texts are one row.
    """
    matches = await visit.caller.memory.query(text, MAX_COUNTED_LESSONS)
    ids = [match.id for match in matches if match.state == "quarantined"]
    entries = await visit.caller.read(quarantine.quarantined, ids)
    entry_of = {entry.id: entry for entry in entries}
    waiting: list[Document] = []
    for entry in map(entry_of.__getitem__, ids):
        example = entry.example or Example("", "")
        title = entry.lesson or entry.pattern
        texts = (title, entry.pattern, example.task, example.accepted, example.wrong)
        words = next((words for words in texts if hit(words, text)), "")
        if words:
            around = "" if words == title else excerpt(words, text, MAX_FOUND_CHARS)
            row = {"id": entry.id, "text": title, "found": around}
            waiting.append({**row, "trust": entry.trust, "at": entry.at})
    rows = []
    for near in group_alike(waiting, itemgetter("text"), itemgetter("trust")):
        text_of_all = name_alike([row["text"] for row in near])
        ids = [row["id"] for row in near]
        rows.append({**near[0], "ids": ids, "text": text_of_all})
    more = len(matches) == MAX_COUNTED_LESSONS
    return {"rows": rows[:MAX_FOUND_ROWS], "number": len(waiting), "more": more}


async def _find_traces(visit: Visit, text: str) -> Document:
    """Return those of the newest traces that have a text in their task, name or id."""
    episode_rows = await visit.caller.read(
        found_episodes, MAX_SEARCHED_EPISODES, text=text, state="", before=0
    )
    rows = episode_rows[:MAX_FOUND_ROWS]
    digests = [row["digest"] for row in rows]
    episodes = await visit.caller.read(figures.episodes, digests)
    traces = [{**row, **episodes.get(row["digest"], {})} for row in rows]
    return {"rows": traces, "number": len(episode_rows), "more": False}


async def _find_runs(visit: Visit, text: str) -> Document:
    """Return those of the newest runs whose pipeline or id has a text."""
    newest = await visit.caller.read(figures.runs, MAX_SEARCHED_RUNS, before=0)
    words = fold(text)
    runs = [run for run in newest if words in fold(f"{run['pipeline']} {run['id']}")]
    return {"rows": runs[:MAX_FOUND_ROWS], "number": len(runs), "more": False}


PAGES = (
    SitePage(
        address="/search",
        template="search",
        title="Search",
        make=search,
        may=READING,
    ),
)
