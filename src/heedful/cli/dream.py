"""`heedful dream`: merge lessons, see what was merged and why, and undo it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from heedful.cli.app import PLAIN
from heedful.cli.output import (
    MOST,
    By,
    Columns,
    Db,
    Json,
    Newest,
    Why,
    answer,
    counted,
    emit,
    following,
    print_json,
    show,
    when,
)
from heedful.cli.progress import Progress, drive
from heedful.cli.settings import ask, memory_of, settings, stored
from heedful.lessons.consolidate import VETOES, Proposal
from heedful.lessons.words import difference
from heedful.loop.record import clean
from heedful.memory.dream import Dream, Dreams, consolidate

app: typer.Typer = typer.Typer(add_completion=False, **PLAIN)

Id = Annotated[int, typer.Argument(min=1, max=MOST, help="The id of a dream, as the log shows it.")]
WORDS = 200  # characters of a text that are shown
SHOWN = 30


@app.callback(invoke_without_command=True)
def dream(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done, and why.")
    ] = False,
    mode: Annotated[
        str, typer.Option(help="lite: all lessons; full: those of the last 24 hours.")
    ] = "lite",
    by: By = "heedful",
    db: Db = None,
    json: Json = False,
) -> int:
    """Merge lessons that say the same.

    Only if recall stays as good; `rollback` undoes it.
    """
    if context.invoked_subcommand is not None:
        return 0
    options: dict[str, Any] = {"mode": mode, "dry_run": dry_run, "by": by}
    with Progress() as progress:
        one = drive(_dream(db, options, progress), lambda: "stopped; nothing was changed")
    if json:
        print_json(dream_document(one))
        return 0
    _print(one)
    if dry_run and one.done:
        again = ["--mode", mode] if mode != "lite" else []
        show(following("dream", *again, db=db))
    elif one.done:
        show(following("dream", "show", str(one.id), db=db))
    else:
        show(following("lessons", db=db))
    return 0


async def _dream(db: str | None, options: Mapping[str, Any], progress: Progress) -> Dream:
    values = settings(db=db)
    watch = partial(progress.counted, noun="texts")
    async with stored(values) as store:
        memory = memory_of(values, store, progress.fetched)
        return await consolidate(memory, **options, progress=watch)


@app.command()
def log(limit: Newest = 20, db: Db = None, json: Json = False) -> int:
    """List the dreams, including those that changed nothing, and why."""
    found = ask(db, lambda memory: Dreams(memory).log(limit))
    columns: Columns = {
        "what": _what,
        **{name: name for name in ("by", "id", "mode", "before", "after")},
        "at": lambda one: when(one.at),
    }
    options: dict[str, Any] = {"key": "dreams", "text": 2, "empty": "no dream yet"}
    emit(found, columns, json=json, document=dream_document, **options)
    if not json:
        then = ["show", str(found[0].id)] if found else ["--dry-run"]
        show(following("dream", *then, db=db))
    return 0


@app.command("show")
def show_(id: Id, db: Db = None, json: Json = False) -> int:
    """Show what a dream did to which lessons, and how their texts differ."""
    one = ask(db, lambda memory: Dreams(memory).show(id))
    if json:
        print_json(dream_document(one))
        return 0
    _print(one)
    undo = one.done and one.undone is None
    then = ["rollback", str(id), "--by", "NAME"] if undo else ["log"]
    show(following("dream", *then, db=db))
    return 0


@app.command()
def rollback(id: Id, by: By, why: Why = "", db: Db = None, json: Json = False) -> int:
    """Undo a dream: recall is as before, and later lessons stay. On record."""
    back = ask(db, lambda memory: Dreams(memory).rollback(id, by=by, why=why))
    answer(
        {"dream": id, "by": by, "why": why, "lessons": back},
        f"dream {id} is rolled back: {counted(back, 'lesson')} back",
        following("dream", "log", db=db),
        json=json,
    )
    return 0


def dream_document(one: Dream) -> dict[str, Any]:
    """Return a dream as JSON data; each merge says how the texts differ."""
    proposals = [
        {**asdict(proposal), "differs": _differences(one, proposal)} for proposal in one.proposals
    ]
    return {**asdict(one), "after": one.after, "nothing": one.nothing, "proposals": proposals}


def _what(one: Dream) -> str:
    what = one.nothing or f"{counted(sum(len(p.members) for p in one.done), 'lesson')} superseded"
    return what if one.undone is None else f"rolled back {when(one.undone)}; {what}"


def _print(one: Dream) -> None:
    number = f"dream {one.id}" if one.id else "a dry run"
    undone = f", rolled back {when(one.undone)}" if one.undone is not None else ""
    show(f"{number}: {one.mode}, by {clean(one.by, 60)}, {when(one.at)}{undone}")
    for proposal in one.proposals[:SHOWN]:
        _print_proposal(one, proposal)
    if len(one.proposals) > SHOWN:
        show(f"and {counted(len(one.proposals) - SHOWN, 'other proposal')}; --json shows them")
    for veto, pairs in one.vetoes.items():
        show(f"kept apart: {counted(pairs, 'pair')}, {VETOES.get(veto, veto)}")
    if one.nothing:
        show(f"nothing happened: {one.nothing}")
    tried = f", recall tried with {counted(one.queries, 'stored text')}" if one.queries else ""
    show(f"lessons: {one.before} before, {one.after} after{tried}")


def _print_proposal(one: Dream, proposal: Proposal) -> None:
    differs = _differences(one, proposal)
    show(f"{proposal.action}: {clean(proposal.why, WORDS)}; {clean(proposal.outcome, WORDS)}")
    text = one.texts.get(proposal.survivor, "")
    show(f"  into {proposal.survivor}: {clean(text, WORDS) or 'gone'}")
    for id in proposal.members[:SHOWN]:
        differ = f"; differs: {clean(differs[id], WORDS)}" if differs.get(id) else ""
        show(f"  {id}: {clean(one.texts.get(id, ''), WORDS) or 'gone'}{differ}")


def _differences(one: Dream, proposal: Proposal) -> dict[int, str]:
    """Return for each member how its text differs from the text that replaced it."""
    into = one.texts.get(proposal.survivor, "")
    members = (id for id in proposal.members if into and id in one.texts)
    return {id: str(difference(one.texts[id], into)) for id in members}
