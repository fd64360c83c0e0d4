"""The pages about memory: lessons, quarantine, dreams, proof, and what recall would tell."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import asdict
from typing import Any, Literal, get_args

from heedful.errors import InvalidInput
from heedful.lessons.lesson import KINDS, LONGEST, State
from heedful.lessons.trust import HELD
from heedful.memory.dream import Dreams
from heedful.pages.report import counted
from heedful.service.problems import Problem
from heedful.store.store import token
from heedful.web import figures
from heedful.web.site import Document, Visit, action, cursor_links, page

SHOWN = 50
MOST = 20  # examples, links and rulings on the page of a lesson


@page("/lessons", "lessons", "Lessons")
async def lessons(visit: Visit) -> Document:
    """Show the lessons that fit the filters, or that a search finds."""
    names = ("kind", "state", "error_type", "tag", "text")
    only = {name: visit.query.get(name, "") for name in names}
    shown: Document = {"filters": only, "kinds": KINDS, "states": get_args(State)}
    if only["text"]:
        asked = {"text": only["text"], "kind": only["kind"], "limit": SHOWN}
        found = await visit.ask("POST", "/v1/reflections/query", asked)
        rows = [{**one, "seen": one.get("meta", {}).get("seen")} for one in found["items"]]
        return {**shown, "found": rows, "lessons": [], "next": ""}
    asked = {name: only[name] for name in names[:-1]}
    answer = await visit.get(
        "/v1/reflections", limit=SHOWN, cursor=visit.query.get("cursor"), **asked
    )
    shown |= {"lessons": answer["items"], "found": []}
    return {**shown, **cursor_links(visit, answer["next"])}


@page("/lessons/{id}", "lesson", "Lesson")
async def lesson(visit: Visit, id: str) -> Document:
    """Show a lesson with its examples, where it came from, what became of it, and its effect."""
    record = await visit.get(f"/v1/reflections/{id}")
    name = f"{record['kind']}/{record['signature']}"
    scope, read = visit.caller.scope, visit.caller.read
    about = {"id": record["id"], "token": token(scope), "name": name, "digest": record["signature"]}
    about |= {"text": record["text"], "since": record["judged_from"]}
    (shown,) = await read(figures.rows, "shown_of", **about)
    examples, links, rulings, versions = [
        [dict(row) for row in await read(figures.rows, one, **about, limit=MOST)]
        for one in ("examples_of", "links_of", "rulings_of", "versions_of")
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
        "longest": LONGEST,
        "effect": effect,
        **{k: figures.Share(shown[k] or 0, shown["loops"]).plain for k in ("helped", "hurt")},
    }


def _example(row: dict[str, Any]) -> Document:
    """Return an example without the words of tools and documents, which quarantine shows."""
    held = row["trust"] in HELD or row["state"] == "quarantined"
    kept = {k: row[k] for k in ("id", "state", "trust", "at")}
    record = {} if held else json.loads(row["record"])
    return {**kept, "held": held, "lesson": "" if held else row["lesson"], "example": record}


@page("/quarantine", "quarantine", "Quarantine")
async def quarantine(visit: Visit) -> Document:
    """Show what waits for a ruling."""
    answer = await visit.get("/v1/quarantine", limit=SHOWN, cursor=visit.query.get("cursor"))
    return {"waiting": answer["items"], **cursor_links(visit, answer["next"])}


@page("/quarantine/{id}", "held", "In quarantine")
async def held(visit: Visit, id: str) -> Document:
    """Show a text that waits: as data, with its origin, and what it would change."""
    entry = await visit.get(f"/v1/quarantine/{id}")
    source, would = entry["source"], {}
    if visit.may("approve") and source:
        asked = {"source": source, "dry_run": True}
        with suppress(Problem):  # nothing more comes from it
            would = await visit.ask("POST", "/v1/quarantine/revoke", asked)
    about, read = {"token": token(visit.caller.scope), "id": int(id)}, visit.caller.read
    (lesson,) = await read(figures.rows, "lesson_of", **about)
    again = await read(figures.rows, "seen_since", **about, limit=MOST)
    return {
        "entry": entry,
        "lesson": lesson["reflection"],
        "again": [{"loop": one["loop"], "at": one["at"]} for one in again],
        "would": {k: v for k, v in would.items() if type(v) is int and v},
    }


async def _rule(visit: Visit, ruling: Literal["release", "reject"]) -> str:
    ids = [one for one in visit.form.get("id", "").split(",") if one]
    for id in ids:
        path = f"/v1/quarantine/{id}/{ruling}"
        await visit.ask("POST", path, {"why": visit.form.get("why", "")})
    done = "released; it may be recalled" if ruling == "release" else "rejected; nobody is told it"
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
    body = {"source": visit.form.get("source", ""), "why": visit.form.get("why", "")}
    done = await visit.ask("POST", "/v1/quarantine/revoke", body)
    counts = (
        counted(n, name.removesuffix("s")) for name, n in done.items() if type(n) is int and n
    )
    return f"Removed all of {body['source']}: {', '.join(counts) or 'nothing'}."


@action("approve")
async def amend(visit: Visit) -> str:
    """Pin a lesson or not, retire it, restore it, or give it new words."""
    form = visit.form
    change: Document = {"pin": {"pinned": True}, "unpin": {"pinned": False}}
    words = form.get("text", "").replace("\r\n", "\n")  # browsers end lines so
    change |= {"restore": {"restored": True}, "retire": {"retired": True}, "edit": {"text": words}}
    if form.get("change") not in change:
        raise InvalidInput("change", form.get("change"), ", ".join(change))
    body = {**change[form["change"]], "why": form.get("why", "")}
    headers = {"if-match": f'"{form.get("edition", "")}"'}
    await visit.ask("PATCH", f"/v1/reflections/{form.get('id', '')}", body, headers=headers)
    return f"The lesson is changed: {form['change']}."


@page("/dreams", "dreams", "Dreams")
async def dreams(visit: Visit) -> Document:
    """Show what consolidations merged and reworded."""
    cursor = visit.query.get("cursor", "")
    before = int(cursor) if cursor.isdecimal() else None
    found = await Dreams(visit.caller.memory).log(MOST + 1, before)
    following = str(found[MOST - 1].id) if len(found) > MOST else None
    shown = [{**asdict(one), "nothing": one.nothing, "after": one.after} for one in found[:MOST]]
    return {"dreams": json.loads(json.dumps(shown)), **cursor_links(visit, following)}


@action("approve")
async def rollback(visit: Visit) -> str:
    """Undo a dream."""
    id, caller = visit.form.get("id", ""), visit.caller
    if not id.isdecimal():
        raise InvalidInput("id", id, "the number of a dream")
    caller.record("dream.rollback", id, why=visit.form.get("why", ""))
    asked = {"by": caller.by, "why": visit.form.get("why", "")}
    back = await Dreams(caller.memory).rollback(int(id), **asked)
    return f"Dream {id} is undone; lessons restored: {back}."


@page("/proof", "proof", "Proof")
async def proof(visit: Visit) -> Document:
    """Show whether memory helps: in all, for each lesson, and as it grows."""
    proven, read = await visit.get("/v1/proof", limit=SHOWN), visit.caller.read
    texts = await read(figures.named, [one["lesson"] for one in proven["lessons"]])
    for one in proven["lessons"]:
        one |= texts.get(one["lesson"], {"id": 0, "text": ""})
    return {**proven, **await read(figures.home)}


def _told(lines: Sequence[str]) -> list[Document]:
    """Return the lines of a briefing with their outcomes and the numbers of their lessons."""
    rows = []
    for line in lines:
        outcome, _, said = line.partition(": ")
        if outcome == "silent":
            continue
        number = re.match(r"lesson (\d+)", said)
        rows.append({"outcome": outcome, "said": said, "lesson": number and int(number[1])})
    return rows


@page("/recall", "recall", "Recall")
async def recall(visit: Visit) -> Document:
    """Show what memory would tell for a task, an error or an action, and why not the rest."""
    text, kind = visit.query.get("text", ""), visit.query.get("kind", "task")
    key = visit.query.get("key", "")
    asked = {"text": text, "kind": kind, "key": key}
    memory, made = visit.caller.memory, Document()
    if not visit.may("read", "recall"):
        raise Problem(403, "forbidden", "the key may not recall")
    if text and kind == "error":
        made = await visit.ask("POST", "/v1/seen", {"text": text})
    elif text and kind == "action":
        made = await visit.ask("POST", "/v1/before", {"arguments": text})
    elif text:
        memory = copy(memory)  # the service keeps one for each scope
        memory.holdout = 0.0
        briefing = await memory.brief(text, "", memory_key=key, every=True)
        made = {**briefing.plain(), "silence": briefing.silence, "rows": _told(briefing.lines)}
    return {"asked": asked, "answer": made}
