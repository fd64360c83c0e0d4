"""The page of a lesson: its words, whether they help, where they were learnt."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter

from heedful.errors import InvalidInput
from heedful.lessons.lesson import MAX_EXAMPLE_TEXT_CHARS
from heedful.lessons.quarantine import QuarantinedLesson
from heedful.loop.share import Share
from heedful.pages.report import counted
from heedful.service import review
from heedful.service.wire import lesson_from_wire
from heedful.store import hardened, quarantine
from heedful.store.connection import token
from heedful.store.recent import sum_loops
from heedful.web import figures
from heedful.web.lessons import measure, say_draws_of
from heedful.web.loops import recent_loops
from heedful.web.site import READING, Document, SiteAction, SitePage, Visit

MAX_LESSON_PAGE_ROWS = 20  # in each table on the page
LOOP_SOURCE_PREFIX = "loop:"
RETIRED_STATES = ("retired", "superseded")


async def lesson(visit: Visit, n: int) -> Document:
    """Show a lesson: whether it helps, its versions, examples, origins and links."""
    record = lesson_from_wire(await visit.get(f"/v1/reflections/{n}"))
    name = f"{record['kind']}/{record['signature']}"
    # The parameters of the statements of this page; each uses some of them.
    values = {
        "id": record["id"],
        "token": token(visit.caller.scope),
        "name": name,
        "digest": record["signature"],
        "text": record["text"],
        "limit": MAX_LESSON_PAGE_ROWS,
        "chars": 1_000,
        "reviews": review.may_review(visit.caller),
    }

    examples = await _rows_of(visit, "examples_of", values)
    sources = await _rows_of(visit, "sources_of", values)
    loops = await _rows_of(visit, "loops_of", values)

    held_id = visit.number("held")  # a text that a reviewer wants to reword
    waiting, waiting_texts = await _read_waiting(visit, record, held_id)

    links = await _rows_of(visit, "links_of", values)
    relatives = {link["child"] for link in links} | {link["parent"] for link in links}
    relatives.discard(name)

    versions = await _rows_of(visit, "versions_of", values)
    # The present words begin where the ones before them ended.
    since = max([record["judged_from"], *(version["at"] for version in versions[:1])])
    kind = record["kind"]
    (shown,) = await _rows_of(
        visit, "shown_since", {**values, "kind": kind, "since": since}
    )
    # Counting exposures takes seconds in a large project, so the list of lessons and
    # this page share what was counted last.
    measures = await measure(visit)
    effect = measures.effects.get(name)
    check = await visit.caller.read(hardened.read, record["id"])
    rulings = fold_rulings(await _rows_of(visit, "rulings_of", values))
    last_ruling = rulings[0]["action"] if rulings else ""
    rejected = record["state"] == "retired" and last_ruling == "reject"
    sentence = describe_effect(effect, shown["loops"])
    if not effect and rejected:
        sentence = "Nobody is shown it: it was rejected"
    elif not effect and record["state"] == "quarantined":
        sentence = "Nobody is shown it: it waits for a review"
    elif not effect and not shown["loops"]:
        sentence = "Never shown"

    newest = await recent_loops(visit.caller)
    known_relatives = await visit.caller.read(figures.named, sorted(relatives))
    heirs = [
        known_relatives[link["parent"]]["id"]
        for link in links
        if link["child"] == name
        and link["relation"] == "became"
        and link["parent"] in known_relatives
    ]
    return {
        "lesson": record,
        "replacement": heirs[0] if record["state"] == "superseded" and heirs else None,
        "check": asdict(check) if check else None,
        "name": name,
        "rewords": bool(waiting) and waiting[0].id == held_id,
        "waiting_texts": waiting_texts,
        "held_id": waiting[0].id if waiting else 0,
        "held_text": waiting[0].lesson or waiting[0].pattern if waiting else "",
        "examples": [_example(row) for row in examples],
        "all_examples": examples[0]["number"] if examples else 0,
        "links": links,
        "relatives": known_relatives,
        "rulings": rulings,
        "rejected": rejected,
        "versions": versions,
        "sources": _other_sources(sources),
        "tasks": group_tasks(loops),
        "all_loops": loops[0]["loops"] if loops else 0,
        "longest": MAX_EXAMPLE_TEXT_CHARS,
        "effect": effect,
        "sentence": sentence,
        "draws": say_draws_of(measures),
        "right": sum_loops(newest.loops).right.plain,
        "helped": Share(shown["helped"] or 0, shown["loops"]).plain,
        "hurt": Share(shown["hurt"] or 0, shown["loops"]).plain,
    }


def describe_effect(effect: Document | None, loops: int = 0) -> str:
    """Return in one sentence whether a lesson helps, or what lacks to say it.

    `loops` is how many loops were shown its present words.

    >>> describe_effect(None)
    'Not known yet: no loop that ended was shown it'
    >>> describe_effect(None, 15)
    'Not known yet: its 15 loops compare memory as a whole, not this lesson alone'
    """
    if effect is None:
        if loops:
            verb = "compares" if loops == 1 else "compare"
            return (
                f"Not known yet: its {counted(loops, 'loop')} {verb} memory as a "
                "whole, not this lesson alone"
            )
        return "Not known yet: no loop that ended was shown it"
    words: str = effect["gain"]
    if not words:
        return f"Not known yet: it {effect['lacks']}"
    if effect["conclusion"] in ("helps", "hurts"):
        words = f"{effect['verdict'].capitalize()} at the first try: {words}"
    if effect["repeats"]:
        words = f"{words}. {effect['repeats'].capitalize()}"
    if effect["lacks"]:
        return f"{words}. It {effect['lacks']}"
    return words


def fold_rulings(rulings: Sequence[Document]) -> list[Document]:
    """Return rulings, of those alike that follow one another the first with a `number`.

    >>> ruling = {"action": "reject", "by": "ann", "why": "", "at": 2.0}
    >>> [each["number"] for each in fold_rulings([ruling, ruling | {"at": 1.0}])]
    [2]
    """
    alike = groupby(rulings, key=itemgetter("action", "by", "why"))
    groups = [list(group) for _, group in alike]
    return [{**group[0], "number": len(group)} for group in groups]


def group_tasks(loops: Sequence[Document]) -> list[Document]:
    """Return the tasks of loops, equal ones together, those of the newest loop first.

    Of a loop that is gone, the task is None.
    """
    groups: dict[tuple[str, str], Document] = {}
    for row in loops:
        task = None
        left_out = 0
        same: tuple[str, str] = ("gone", row["loop"])
        if row["task"] is not None:
            task, left_out = figures.beginning(row["task"], row["task_chars"])
            same = ("task", row["task"])

        group = groups.setdefault(
            same,
            {
                "task": task,
                "left_out": left_out,
                "loop": row["loop"],
                "state": row["state"],
                "at": row["at"],
                "number": 0,
            },
        )
        group["number"] += 1
    return list(groups.values())


def _other_sources(sources: Sequence[Document]) -> list[str]:
    """Return the sources of a lesson that are no loops: its loops have their tasks."""
    return [
        row["source"]
        for row in sources
        if not row["source"].startswith(LOOP_SOURCE_PREFIX)
    ]


async def _read_waiting(
    visit: Visit, record: Document, held_id: int
) -> tuple[list[QuarantinedLesson], int]:
    """Return the text `held_id` of a lesson, or one that waits, and how many wait."""
    if not (visit.may("read") and (held_id or record["state"] == "quarantined")):
        return [], 0

    lesson_of = await visit.caller.read(quarantine.lessons_of_waiting)
    ids = [id for id in lesson_of if lesson_of[id] == record["id"]]
    shown_ids = [held_id] if held_id in ids else ids[:1]
    return await visit.caller.read(quarantine.quarantined, shown_ids), len(ids)


async def _rows_of(visit: Visit, statement: str, values: Document) -> list[Document]:
    """Return the rows of a named statement with these parameters."""
    return [
        dict(row) for row in await visit.caller.read(figures.rows, statement, **values)
    ]


def _example(row: Document) -> Document:
    """Return an example as the page shows it.

    What tools and documents wrote is left out: it is shown in quarantine only.
    """
    hidden = row["trust"] == "outside" or row["state"] == "quarantined"
    return {
        **{name: row[name] for name in ("id", "state", "trust", "at")},
        "held": hidden,
        "lesson": "" if hidden else row["lesson"],
        "example": {} if hidden else json.loads(row["record"]),
    }


async def amend(visit: Visit) -> str:
    """Pin a lesson or not, retire it, restore it, or give it new words."""
    form = visit.form
    # Browsers end the lines of a text with "\r\n".
    words = form.get("text", "").replace("\r\n", "\n")
    changes: dict[str, Document] = {
        "pin": {"pinned": True},
        "unpin": {"pinned": False},
        "restore": {"restored": True},
        "retire": {"retired": True},
        "edit": {"text": words},
    }

    change = form.get("change")
    if change not in changes:
        raise InvalidInput("change", change, ", ".join(changes))

    await visit.ask(
        "PATCH",
        f"/v1/reflections/{form.get('id', '')}",
        {**changes[change], "why": form.get("why", "")},
        headers={"if-match": f'"{form.get("edition", "")}"'},
    )
    return f"The lesson is changed: {change}."


PAGES = (
    SitePage(
        address="/lessons/{n:int}",
        template="lesson",
        title="Lesson",
        make=lesson,
        may=READING,
    ),
)
ACTIONS = tuple(SiteAction(do, ("approve",)) for do in (amend,))
