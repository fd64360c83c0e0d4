"""The pages about memory: lessons, quarantine, dreams, proof, and recall."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import asdict
from typing import Any, Literal, get_args
from urllib.parse import unquote

from heedful.errors import InvalidInput
from heedful.lessons.lesson import LESSON_KINDS, MAX_EXAMPLE_TEXT_CHARS, State
from heedful.lessons.trust import QUARANTINE_TRUST
from heedful.memory.dream import Dreams
from heedful.pages.report import counted
from heedful.service.problems import Problem
from heedful.service.wire import lesson_from_wire
from heedful.store import editions
from heedful.store.connection import token
from heedful.validation import MAX_INTEGER
from heedful.web import figures
from heedful.web.site import (
    Document,
    SiteAction,
    SitePage,
    Visit,
    page_links,
    split_page,
)

MAX_PAGE_LESSONS = 50
MAX_LESSON_PAGE_ROWS = 20  # examples, links and rulings on the page of a lesson
QUESTION_KINDS = ("task", "error", "action")
MAX_SOURCE_PREVIEWS = 5  # the page shows the lessons of this many sources of a text


async def lessons(visit: Visit) -> Document:
    """Show the lessons that fit the filters, or that a search finds."""
    names = ("kind", "state", "error_type", "tag", "text")
    filters = {name: visit.query.get(name, "") for name in names}
    visit.needs("read", "recall")
    rows: Sequence[Any]
    cursor = None
    if filters["text"]:
        rows = await _found_lessons(visit, filters)
    else:
        listed = await visit.caller.read(
            editions.list_lessons,
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
        "lessons": rows,
        **page_links(visit, cursor),
    }


async def _found_lessons(visit: Visit, filters: Document) -> list[Any]:
    """Return the lessons that a search for the text of the filters finds."""
    tags = [filters["tag"]] if filters["tag"] else ()
    matches = await visit.caller.memory.query(
        filters["text"],
        MAX_PAGE_LESSONS,
        waiting=False,
        kind=filters["kind"],
        error_type=filters["error_type"],
        tags=tags,
    )
    ids = list(dict.fromkeys(match.lesson_id for match in matches))
    rows = await visit.caller.read(figures.lessons, ids)
    return [row for row in rows if filters["state"] in ("", row["state"])]


async def lesson(visit: Visit, n: int) -> Document:
    """Show a lesson: its examples, origins and links, and what became of it."""
    record = lesson_from_wire(await visit.get(f"/v1/reflections/{n}"))
    name = f"{record['kind']}/{record['signature']}"
    read = visit.caller.read
    values = {
        "id": record["id"],
        "token": token(visit.caller.scope),
        "name": name,
        "digest": record["signature"],
        "text": record["text"],
        "since": record["judged_from"],
    }

    async def rows_of(statement: str) -> list[Document]:
        rows = await read(figures.rows, statement, **values, limit=MAX_LESSON_PAGE_ROWS)
        return [dict(row) for row in rows]

    (exposed,) = await read(figures.rows, "shown_of", **values)
    loops = exposed["loops"]
    links = await rows_of("links_of")
    relatives = {link["child"] for link in links} | {link["parent"] for link in links}
    proof = await visit.get("/v1/proof", limit=200)
    effects = [effect for effect in proof["lessons"] if effect["lesson"] == name]
    return {
        "lesson": record,
        "name": name,
        "examples": [_example(row) for row in await rows_of("examples_of")],
        "links": links,
        "relatives": await read(figures.named, sorted(relatives - {name})),
        "rulings": await rows_of("rulings_of"),
        "versions": await rows_of("versions_of"),
        "sources": [row["source"] for row in await rows_of("sources_of")],
        "loops": [row["loop"] for row in await rows_of("loops_of")],
        "longest": MAX_EXAMPLE_TEXT_CHARS,
        "effect": effects[0] if effects else None,
        "helped": figures.Share(exposed["helped"] or 0, loops).plain,
        "hurt": figures.Share(exposed["hurt"] or 0, loops).plain,
    }


def _example(row: dict[str, Any]) -> Document:
    """Return an example without the words of tools and documents.

    Those are shown in quarantine only.
    """
    hidden = row["trust"] in QUARANTINE_TRUST or row["state"] == "quarantined"
    example: Document = {name: row[name] for name in ("id", "state", "trust", "at")}
    example |= {"held": hidden, "lesson": "", "example": {}}
    if not hidden:
        example["lesson"] = row["lesson"]
        example["example"] = json.loads(row["record"])
    return example


async def quarantine(visit: Visit) -> Document:
    """Show what waits for a review, and from which sources."""
    visit.needs("read")
    source = visit.query.get("source", "")
    trust = visit.query.get("trust", "")
    lessons, texts, sources = await visit.caller.read(
        figures.waiting,
        MAX_PAGE_LESSONS + 1,
        before=visit.number("cursor"),
        source=source,
        trust=trust,
    )
    waiting, cursor = split_page(lessons, MAX_PAGE_LESSONS, "id")
    sources_to_revoke = [source] if source else []
    return {
        "waiting": [asdict(lesson) for lesson in waiting],
        "texts": texts,
        "sources": sources,
        "filters": {"source": source, "trust": trust},
        "would": await _revocable(visit, sources_to_revoke),
        **page_links(visit, cursor),
    }


async def _revocable(visit: Visit, sources: Sequence[str]) -> list[Document]:
    """Return what the revocation of each source would remove, if the key may revoke."""
    if not visit.may("approve"):
        return []
    rows = []
    for source in sources[:MAX_SOURCE_PREVIEWS]:
        counts: Document = {}
        with suppress(Problem):  # nothing more comes from it
            body = {"source": source, "dry_run": True}
            counts = await visit.ask("POST", "/v1/quarantine/revoke", body)
        rows.append({"source": source, "removed": _removed(counts)})
    return rows


def _removed(counts: Document) -> dict[str, int]:
    """Return the numbers above 0 in the answer of a revocation."""
    return {
        name: number
        for name, number in counts.items()
        if type(number) is int and number
    }


async def held(visit: Visit, n: int) -> Document:
    """Show a text that waits: as data, with its origin, and what it would change."""
    entry = lesson_from_wire(await visit.get(f"/v1/quarantine/{n}"))
    sources = entry["provenance"]["sources"]
    read = visit.caller.read
    place = token(visit.caller.scope)
    (lesson,) = await read(figures.rows, "lesson_of", token=place, id=n)
    again = await read(
        figures.rows, "seen_since", token=place, id=n, limit=MAX_LESSON_PAGE_ROWS
    )
    source = visit.query.get("source", "")
    trust = visit.query.get("trust", "")
    older, texts, _ = await read(
        figures.waiting, 1, before=n, source=source, trust=trust
    )
    following = f"/quarantine/{older[0].id}" if older else "/quarantine"
    return {
        "entry": entry,
        "sources": sources,
        "lesson": lesson["lesson_id"],
        "again": [{"loop": row["loop"], "at": row["at"]} for row in again],
        "would": await _revocable(visit, sources),
        "following": visit.link(following, source=source, trust=trust),
        "texts": texts,
    }


async def _review(visit: Visit, ruling: Literal["release", "reject"]) -> int:
    """Release or reject the texts of a form, and return how many."""
    ids = [id for id in visit.form.get("id", "").split(",") if id]
    for id in ids:
        path = f"/v1/quarantine/{id}/{ruling}"
        await visit.ask("POST", path, {"why": visit.form.get("why", "")})
    return len(ids)


async def release(visit: Visit) -> str:
    """Release texts from quarantine."""
    texts = await _review(visit, "release")
    return f"{texts} released; it may be recalled."


async def reject(visit: Visit) -> str:
    """Reject texts."""
    texts = await _review(visit, "reject")
    return f"{texts} rejected; it is never shown to a loop."


async def revoke(visit: Visit) -> str:
    """Remove a source and all that derives from it."""
    source = unquote(visit.form.get("source", ""))  # what a page shows of it may differ
    body = {"source": source, "why": visit.form.get("why", "")}
    counts = await visit.ask("POST", "/v1/quarantine/revoke", body)
    removed = [
        counted(number, name.removesuffix("s"))
        for name, number in _removed(counts).items()
    ]
    return f"Removed all of {source}: {', '.join(removed) or 'nothing'}."


async def amend(visit: Visit) -> str:
    """Pin a lesson or not, retire it, restore it, or give it new words."""
    form = visit.form
    words = form.get("text", "").replace("\r\n", "\n")  # browsers end lines so
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


async def dreams(visit: Visit) -> Document:
    """Show what consolidations merged and reworded."""
    before = visit.number("cursor") or None
    log = await Dreams(visit.caller.memory).log(MAX_LESSON_PAGE_ROWS + 1, before)
    page, cursor = split_page(log, MAX_LESSON_PAGE_ROWS, "id")
    rows = [
        {**asdict(dream), "nothing": dream.nothing, "after": dream.after}
        for dream in page
    ]
    return {"dreams": json.loads(json.dumps(rows)), **page_links(visit, cursor)}


async def rollback(visit: Visit) -> str:
    """Undo a dream."""
    id = visit.number("id")
    why = visit.form.get("why", "")
    caller = visit.caller
    caller.record("dream.rollback", str(id), why=why)
    restored = await Dreams(caller.memory).rollback(id, by=caller.by, why=why)
    return f"Dream {id} is undone; lessons restored: {restored}."


async def proof(visit: Visit) -> Document:
    """Show whether memory helps: in all, for each lesson, and as it grows."""
    answer = await visit.get("/v1/proof", limit=MAX_PAGE_LESSONS)
    read = visit.caller.read
    names = [comparison["lesson"] for comparison in answer["lessons"]]
    texts = await read(figures.named, names)
    for comparison in answer["lessons"]:
        comparison |= texts.get(comparison["lesson"], {"id": 0, "text": ""})
    return {**answer, **await read(figures.home)}


async def recall(visit: Visit) -> Document:
    """Show what memory would say for a task, an error or an action, and why."""
    visit.needs("read", "recall")
    text = visit.query.get("text", "")
    kind = visit.query.get("kind", "task")
    key = visit.query.get("key", "")
    if kind not in QUESTION_KINDS:
        raise InvalidInput("kind", kind, ", ".join(QUESTION_KINDS))
    answer = Document()
    if text and kind == "error":
        answer = await visit.ask("POST", "/v1/seen", {"text": text})
    elif text and kind == "action":
        answer = await visit.ask("POST", "/v1/before", {"arguments": text})
    elif text:
        memory = copy(visit.caller.memory)  # the service keeps one for each scope
        memory.holdout = 0.0
        briefing = await memory.brief(text, "", memory_key=key, every=True)
        answer = {
            **briefing.plain(),
            "silence": briefing.silence,
            "rows": figures.choices(briefing),
        }
    question = {"text": text, "kind": kind, "key": key}
    return {"asked": question, "kinds": QUESTION_KINDS, "answer": answer}


PAGES = (
    SitePage(address="/lessons", template="lessons", title="Lessons", make=lessons),
    SitePage(
        address="/lessons/{n:int}", template="lesson", title="Lesson", make=lesson
    ),
    SitePage(
        address="/quarantine",
        template="quarantine",
        title="Quarantine",
        make=quarantine,
    ),
    SitePage(
        address="/quarantine/{n:int}",
        template="held",
        title="In quarantine",
        make=held,
    ),
    SitePage(address="/dreams", template="dreams", title="Dreams", make=dreams),
    SitePage(address="/proof", template="proof", title="Proof", make=proof),
    SitePage(address="/recall", template="recall", title="Recall", make=recall),
)
ACTIONS = tuple(
    SiteAction(do, ("approve",)) for do in (release, reject, revoke, amend, rollback)
)
