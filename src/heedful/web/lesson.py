"""The page of a lesson: its words, whether they help, where they were learnt."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter

from heedful.errors import InvalidInput
from heedful.lessons.lesson import MAX_EXAMPLE_TEXT_CHARS
from heedful.lessons.quarantine import QuarantinedLesson
from heedful.loop.share import Share, percent
from heedful.pages.report import counted
from heedful.service import review
from heedful.service.wire import lesson_from_wire
from heedful.store import editions, hardened, quarantine
from heedful.store.connection import token
from heedful.web import figures, unshown
from heedful.web.days import read_home
from heedful.web.lessons import measure, say_draws_of
from heedful.web.site import READING, Document, SiteAction, SitePage, Visit

MAX_RELATED_LESSONS = 5
# The newest lessons among which these are looked for: more would take long.
MAX_COMPARED_LESSONS = 2_000
MAX_LESSON_PAGE_ROWS = 20  # in each table on the page
MAX_MEASURED_VERSIONS = figures.MAX_BORDERS  # the newest ones
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
    measured = await _measure_versions(visit, name, record["judged_from"], versions)
    helped = [period["helped"] for period in measured if period]
    # Counting exposures takes seconds in a large project, so the list of lessons and
    # this page share what was counted last.
    measures = await measure(visit)
    effect = measures.effects.get(name)
    check = await visit.caller.read(hardened.read, record["id"])
    related = await visit.caller.memory.related(
        n, MAX_RELATED_LESSONS, among=MAX_COMPARED_LESSONS
    )

    relations = asdict(related)
    rulings = fold_rulings(await _rows_of(visit, "rulings_of", values))
    last_ruling = rulings[0]["action"] if rulings else ""
    rejected = record["state"] == "retired" and last_ruling == "reject"
    sentence = describe_effect(effect, helped)
    if not effect and rejected:
        sentence = "Nobody is shown it: it was rejected"
    elif not effect and record["state"] == "quarantined":
        sentence = "Nobody is shown it: it waits for a review"
    elif not effect and not any(share["of"] for share in helped):
        reasons = await unshown.find_reasons(visit, [record])
        if reasons:
            sentence = f"Never shown: {reasons[record['id']]}"

    home = await read_home(visit.caller.setup.store, visit.caller.scope)
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
        "related": relations,
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
        "versions": [
            {**version, **figures_of_version}
            for version, figures_of_version in zip(versions, measured[1:], strict=True)
        ],
        "sources": _other_sources(sources),
        "tasks": group_tasks(loops),
        "all_loops": loops[0]["loops"] if loops else 0,
        "longest": MAX_EXAMPLE_TEXT_CHARS,
        "effect": effect,
        "sentence": sentence,
        "draws": say_draws_of(measures),
        "worse": compare_versions(helped),
        "right": home["right"],
        **measured[0],
    }


def describe_effect(effect: Document | None, helped: Sequence[Document] = ()) -> str:
    """Return in one sentence whether a lesson helps, or what lacks to say it.

    `helped` has the shares of loops that were right at the first try with its present
    words, then with its earlier ones.

    >>> describe_effect(None)
    'Not known yet: no loop that ended was shown it'
    >>> describe_effect(None, [{"of": 15, "value": 0.8}])
    'Not known yet: its 15 loops compare memory as a whole, not this lesson alone'
    """
    if effect is None:
        if helped and helped[0]["of"]:
            loops = counted(helped[0]["of"], "loop")
            verb = "compares" if helped[0]["of"] == 1 else "compare"
            return (
                f"Not known yet: its {loops} {verb} memory as a whole, not this lesson "
                "alone"
            )
        for share in helped[1:]:
            if share["of"]:
                return (
                    "Not known yet: no loop that was shown the new words has ended; "
                    f"with the words before, {percent(share['value'])} of "
                    f"{counted(share['of'], 'loop')} were right at the first try"
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


def compare_versions(helped: Sequence[Document]) -> str:
    """Return in one sentence that new words do worse than the ones before, or "".

    `helped` has the shares of loops that were right at the first try, newest first.
    """
    if len(helped) < 2:
        return ""
    new, old, *_ = helped
    if not new["of"] or not old["of"] or new["value"] >= old["value"]:
        return ""

    chance = ""
    if new["high"] >= old["low"]:
        chance = ", which may be chance"
    return (
        f"The new words do worse so far than the ones before{chance}: right at the "
        f"first try in {percent(new['value'])} of their loops against "
        f"{percent(old['value'])}. These loops were at different times and of "
        "different tasks, not chosen at random."
    )


async def _measure_versions(
    visit: Visit, name: str, judged_from: float, versions: Sequence[Document]
) -> list[Document]:
    """Return how loops ended that were shown each version, the present one first.

    A version begins when the one before it was replaced, the present one when it was
    judged anew. Only the newest ones are measured; the others have no figures.
    """
    ends = [version["at"] for version in versions[:MAX_MEASURED_VERSIONS]]
    oldest_first = ends[::-1]
    if oldest_first:
        oldest_first[-1] = max(oldest_first[-1], judged_from)
    elif judged_from:
        oldest_first = [judged_from]

    periods = await visit.caller.read(figures.shown_loops, name, oldest_first)
    newest_first = [_shares(counts) for counts in reversed(periods)]
    if len(versions) > MAX_MEASURED_VERSIONS:
        # The oldest period is that of several versions.
        newest_first.pop()
    unmeasured: list[Document] = [{} for _ in versions]
    return [*newest_first, *unmeasured][: len(versions) + 1]


def _shares(counts: figures.ShownLoops) -> Document:
    """Return the shares of loops that were right at the first try, or failed again."""
    return {
        "helped": Share(counts.helped, counts.loops).plain,
        "hurt": Share(counts.hurt, counts.loops).plain,
    }


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


async def retire(visit: Visit) -> str:
    """Retire the lessons whose ids a form names; each can be restored on its page."""
    retired = 0
    texts = visit.form.get("id", "").split(",")
    ids = [int(text) for text in texts if re.fullmatch("[0-9]{1,16}", text)]
    for record in await visit.caller.read(editions.some, ids):
        if record["state"] not in RETIRED_STATES:
            await visit.ask(
                "PATCH",
                f"/v1/reflections/{record['id']}",
                {"retired": True, "why": visit.form.get("why", "")},
                headers={"if-match": f'"{record["edition"]}"'},
            )
            retired += 1
    return f"{counted(retired, 'lesson')} retired; the page of each can restore it."


PAGES = (
    SitePage(
        address="/lessons/{n:int}",
        template="lesson",
        title="Lesson",
        make=lesson,
        may=READING,
    ),
)
ACTIONS = tuple(SiteAction(do, ("approve",)) for do in (amend, retire))
