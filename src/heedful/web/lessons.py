"""The pages about memory: lessons, quarantine, dreams, proof, and what recall would
tell.
"""

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
from heedful.store import patterns
from heedful.store.connection import token
from heedful.validation import MAX_INTEGER
from heedful.web import figures
from heedful.web.site import Document, Visit, action, cursor_links, page

MAX_PAGE_LESSONS = 50
MAX_LESSON_PAGE_ROWS = 20  # examples, links and rulings on the page of a lesson
QUESTION_KINDS = ("task", "error", "action")
MAX_SOURCE_PREVIEWS = 5  # the page shows the lessons of this many sources of a text


@page("/lessons", "lessons", "Lessons")
async def lessons(visit: Visit) -> Document:
    """Show the lessons that fit the filters, or that a search finds."""
    names = ("kind", "state", "error_type", "tag", "text")
    only = {name: visit.query.get(name, "") for name in names}
    shown: Document = {
        "filters": only,
        "kinds": LESSON_KINDS,
        "states": get_args(State),
    }
    visit.needs("read", "recall")
    read = visit.caller.read
    before = visit.number("cursor") or MAX_INTEGER
    if only["text"]:
        about: Any = {"kind": only["kind"], "error_type": only["error_type"]}
        about["tags"] = [only["tag"]] if only["tag"] else ()
        query = visit.caller.memory.query
        found = await query(only["text"], MAX_PAGE_LESSONS, waiting=False, **about)
        ids = list(dict.fromkeys(one.reflection for one in found))
        rows = await read(figures.lessons, ids)
        rows = [one for one in rows if only["state"] in ("", one["state"])]
        return {**shown, "lessons": rows, "next": ""}
    asked = {name: only[name] for name in names[:-1]}
    asked["state"] = asked["state"] or "settled"
    rows = await read(patterns.list_lessons, MAX_PAGE_LESSONS + 1, before, **asked)
    following = (
        str(rows[MAX_PAGE_LESSONS - 1]["id"]) if len(rows) > MAX_PAGE_LESSONS else None
    )
    return {
        **shown,
        "lessons": rows[:MAX_PAGE_LESSONS],
        **cursor_links(visit, following),
    }


@page("/lessons/{n}", "lesson", "Lesson")
async def lesson(visit: Visit, n: str) -> Document:
    """Show a lesson with its examples, where it came from, what became of it, and its
    effect.
    """
    record = await visit.get(f"/v1/reflections/{n}")
    name = f"{record['kind']}/{record['signature']}"
    scope = visit.caller.scope
    read = visit.caller.read
    about = {
        "id": record["id"],
        "token": token(scope),
        "name": name,
        "digest": record["signature"],
    }
    about |= {"text": record["text"], "since": record["judged_from"]}
    (shown,) = await read(figures.rows, "shown_of", **about)
    parts = (
        "examples_of",
        "links_of",
        "rulings_of",
        "versions_of",
        "sources_of",
        "loops_of",
    )
    examples, links, rulings, versions, sources, loops = [
        [
            dict(row)
            for row in await read(
                figures.rows, one, **about, limit=MAX_LESSON_PAGE_ROWS
            )
        ]
        for one in parts
    ]
    others = {one["child"] for one in links} | {one["parent"] for one in links}
    relatives = await read(figures.named, sorted(others - {name}))
    proven = await visit.get("/v1/proof", limit=200)
    effect = next((one for one in proven["lessons"] if one["lesson"] == name), None)
    return {
        "lesson": record,
        "name": name,
        "examples": [_example(one) for one in examples],
        "links": links,
        "relatives": relatives,
        "rulings": rulings,
        "versions": versions,
        "sources": [one["source"] for one in sources],
        "loops": [one["loop"] for one in loops],
        "longest": MAX_EXAMPLE_TEXT_CHARS,
        "effect": effect,
        **{
            k: figures.Share(shown[k] or 0, shown["loops"]).plain
            for k in ("helped", "hurt")
        },
    }


def _example(row: dict[str, Any]) -> Document:
    """Return an example without the words of tools and documents, which quarantine
    shows.
    """
    held = row["trust"] in QUARANTINE_TRUST or row["state"] == "quarantined"
    kept = {k: row[k] for k in ("id", "state", "trust", "at")}
    record = {} if held else json.loads(row["record"])
    return {
        **kept,
        "held": held,
        "lesson": "" if held else row["lesson"],
        "example": record,
    }


@page("/quarantine", "quarantine", "Quarantine")
async def quarantine(visit: Visit) -> Document:
    """Show what waits for a ruling, and from which sources."""
    visit.needs("read")
    filters = {name: visit.query.get(name, "") for name in ("source", "trust")}
    found, texts, sources = await visit.caller.read(
        figures.waiting, MAX_PAGE_LESSONS + 1, visit.number("cursor"), **filters
    )
    following = (
        str(found[MAX_PAGE_LESSONS - 1].id) if len(found) > MAX_PAGE_LESSONS else None
    )
    return {
        "waiting": [asdict(one) for one in found[:MAX_PAGE_LESSONS]],
        "texts": texts,
        "sources": sources,
        "filters": filters,
        "would": await _revocable(
            visit, [filters["source"]] if filters["source"] else []
        ),
        **cursor_links(visit, following),
    }


async def _revocable(visit: Visit, sources: Sequence[str]) -> list[Document]:
    """Return for each source what its revocation would remove, if the key may
    revoke.
    """
    rows = []
    for source in sources[:MAX_SOURCE_PREVIEWS] if visit.may("approve") else ():
        counts: Document = {}
        with suppress(Problem):  # nothing more comes from it
            asked = {"source": source, "dry_run": True}
            counts = await visit.ask("POST", "/v1/quarantine/revoke", asked)
        removed = {k: v for k, v in counts.items() if type(v) is int and v}
        rows.append({"source": source, "removed": removed})
    return rows


@page("/quarantine/{n}", "held", "In quarantine")
async def held(visit: Visit, n: str) -> Document:
    """Show a text that waits: as data, with its origin, and what it would change."""
    entry = await visit.get(f"/v1/quarantine/{n}")
    sources = entry["provenance"]["sources"]
    about = {"token": token(visit.caller.scope), "id": int(n)}
    read = visit.caller.read
    (lesson,) = await read(figures.rows, "lesson_of", **about)
    again = await read(figures.rows, "seen_since", **about, limit=MAX_LESSON_PAGE_ROWS)
    only = {name: visit.query.get(name, "") for name in ("source", "trust")}
    older, texts, _ = await read(figures.waiting, 1, int(n), **only)
    following = f"/quarantine/{older[0].id}" if older else "/quarantine"
    return {
        "entry": entry,
        "sources": sources,
        "lesson": lesson["reflection"],
        "again": [{"loop": one["loop"], "at": one["at"]} for one in again],
        "would": await _revocable(visit, sources),
        "following": visit.link(following, **only),
        "texts": texts,
    }


async def _rule(visit: Visit, ruling: Literal["release", "reject"]) -> str:
    ids = [one for one in visit.form.get("id", "").split(",") if one]
    for id in ids:
        path = f"/v1/quarantine/{id}/{ruling}"
        await visit.ask("POST", path, {"why": visit.form.get("why", "")})
    done = (
        "released; it may be recalled"
        if ruling == "release"
        else "rejected; nobody is told it"
    )
    return f"{len(ids)} {done}."


@action("approve")
async def release(visit: Visit) -> str:
    """Release texts from quarantine."""
    return await _rule(visit, "release")


@action("approve")
async def reject(visit: Visit) -> str:
    """Reject texts."""
    return await _rule(visit, "reject")


@action("approve")
async def revoke(visit: Visit) -> str:
    """Remove a source and all that derives from it."""
    source = unquote(visit.form.get("source", ""))  # what a page shows of it may differ
    body = {"source": source, "why": visit.form.get("why", "")}
    done = await visit.ask("POST", "/v1/quarantine/revoke", body)
    counts = (
        counted(n, name.removesuffix("s"))
        for name, n in done.items()
        if type(n) is int and n
    )
    return f"Removed all of {source}: {', '.join(counts) or 'nothing'}."


@action("approve")
async def amend(visit: Visit) -> str:
    """Pin a lesson or not, retire it, restore it, or give it new words."""
    form = visit.form
    change: Document = {"pin": {"pinned": True}, "unpin": {"pinned": False}}
    words = form.get("text", "").replace("\r\n", "\n")  # browsers end lines so
    change |= {
        "restore": {"restored": True},
        "retire": {"retired": True},
        "edit": {"text": words},
    }
    if form.get("change") not in change:
        raise InvalidInput("change", form.get("change"), ", ".join(change))
    body = {**change[form["change"]], "why": form.get("why", "")}
    headers = {"if-match": f'"{form.get("edition", "")}"'}
    await visit.ask(
        "PATCH", f"/v1/reflections/{form.get('id', '')}", body, headers=headers
    )
    return f"The lesson is changed: {form['change']}."


@page("/dreams", "dreams", "Dreams")
async def dreams(visit: Visit) -> Document:
    """Show what consolidations merged and reworded."""
    before = visit.number("cursor") or None
    found = await Dreams(visit.caller.memory).log(MAX_LESSON_PAGE_ROWS + 1, before)
    following = (
        str(found[MAX_LESSON_PAGE_ROWS - 1].id)
        if len(found) > MAX_LESSON_PAGE_ROWS
        else None
    )
    shown = [
        {**asdict(one), "nothing": one.nothing, "after": one.after}
        for one in found[:MAX_LESSON_PAGE_ROWS]
    ]
    return {"dreams": json.loads(json.dumps(shown)), **cursor_links(visit, following)}


@action("approve")
async def rollback(visit: Visit) -> str:
    """Undo a dream."""
    id = visit.number("id")
    caller = visit.caller
    caller.record("dream.rollback", str(id), why=visit.form.get("why", ""))
    asked = {"by": caller.by, "why": visit.form.get("why", "")}
    back = await Dreams(caller.memory).rollback(id, **asked)
    return f"Dream {id} is undone; lessons restored: {back}."


@page("/proof", "proof", "Proof")
async def proof(visit: Visit) -> Document:
    """Show whether memory helps: in all, for each lesson, and as it grows."""
    proven = await visit.get("/v1/proof", limit=MAX_PAGE_LESSONS)
    read = visit.caller.read
    texts = await read(figures.named, [one["lesson"] for one in proven["lessons"]])
    for one in proven["lessons"]:
        one |= texts.get(one["lesson"], {"id": 0, "text": ""})
    return {**proven, **await read(figures.home)}


@page("/recall", "recall", "Recall")
async def recall(visit: Visit) -> Document:
    """Show what memory would tell for a task, an error or an action, and why not the
    rest.
    """
    text = visit.query.get("text", "")
    kind = visit.query.get("kind", "task")
    key = visit.query.get("key", "")
    asked = {"text": text, "kind": kind, "key": key}
    memory = visit.caller.memory
    made = Document()
    visit.needs("read", "recall")
    if kind not in QUESTION_KINDS:
        raise InvalidInput("kind", kind, ", ".join(QUESTION_KINDS))
    if text and kind == "error":
        made = await visit.ask("POST", "/v1/seen", {"text": text})
    elif text and kind == "action":
        made = await visit.ask("POST", "/v1/before", {"arguments": text})
    elif text:
        memory = copy(memory)  # the service keeps one for each scope
        memory.holdout = 0.0
        briefing = await memory.brief(text, "", memory_key=key, every=True)
        made = {
            **briefing.plain(),
            "silence": briefing.silence,
            "rows": figures.told(briefing),
        }
    return {"asked": asked, "kinds": QUESTION_KINDS, "answer": made}
