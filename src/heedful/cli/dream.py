"""`heedful dream`: clean memory up, see what that did and why, and take it back."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.app import PLAIN
from heedful.cli.interrupt import drive
from heedful.cli.opening import ask, memory_of, model_of, stored
from heedful.cli.output import MOST, Db, Json, counted, following, print_json, show, table, when
from heedful.cli.progress import Progress
from heedful.cli.settings import settings
from heedful.lessons.consolidate import Proposal
from heedful.loop.feedback import clean
from heedful.memory.dream import Dream

app: typer.Typer = typer.Typer(add_completion=False, **PLAIN)

Id = Annotated[int, typer.Argument(min=1, max=MOST, help="The id of a dream, as the log shows it.")]
WORDS = 200
SHOWN = 30
STOPPED = "stopped; nothing was changed"


@app.callback(invoke_without_command=True)
def dream(
    context: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done, and why.")
    ] = False,
    mode: Annotated[
        str, typer.Option(help="lite: all lessons; full: what was met in the last 24 hours.")
    ] = "lite",
    model: Annotated[
        str | None,
        typer.Option("--model", help="A model that may find what a group has in common."),
    ] = None,
    by: Annotated[str, typer.Option(help="Who answers for it.")] = "heedful",
    db: Db = None,
    json: Json = False,
) -> int:
    """Merge lessons that say the same, where recall is none the worse; undone by one command."""
    if context.invoked_subcommand is not None:
        return 0
    given: dict[str, Any] = {"mode": mode, "dry_run": dry_run, "by": by}
    sys.path.insert(0, str(Path.cwd()))  # a model may be named module:function
    with Progress() as progress:
        one = drive(_dreamt(db, model, given, progress), lambda: STOPPED)
    if json:
        print_json(document(one))
        return 0
    _print(one)
    if dry_run and one.done:
        more = [
            *(("--mode", mode) if mode != "lite" else ()),
            *(("--model", model) if model else ()),
        ]
        show(following("dream", *more, db=db or ""))
    elif one.done:
        show(following("dream", "show", str(one.id), db=db or ""))
    else:
        show(following("lessons", db=db or ""))
    return 0


async def _dreamt(
    db: str | None, model: str | None, given: Mapping[str, Any], progress: Progress
) -> Dream:
    from heedful.memory.dream import consolidate

    values = settings(db=db, model=model)
    told = partial(progress.counted, noun="texts")
    async with stored(values) as store:
        memory = memory_of(values, store, progress.fetched)
        if model is None:
            return await consolidate(memory, **given, progress=told)
        async with model_of(values, progress.fetched) as asked:
            return await consolidate(memory, **given, model=asked, progress=told)


@app.command()
def log(
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many, the newest first.")] = 20,
    db: Db = None,
    json: Json = False,
) -> int:
    """List the dreams, also those that changed nothing, and why."""
    from heedful.memory.dream import Dreams

    found = ask(db, lambda memory: Dreams(memory).log(limit))
    if json:
        print_json({"dreams": [document(one) for one in found]})
    elif found:
        table(("what", "by", "id", "mode", "before", "after", "at"), map(_row, found), text=2)
        show(following("dream", "show", str(found[0].id), db=db or ""))
    else:
        show("no dream yet")
        show(following("dream", "--dry-run", db=db or ""))
    return 0


@app.command("show")
def shown(id: Id, db: Db = None, json: Json = False) -> int:
    """Show what one dream did to which lessons, and what their texts differ in."""
    from heedful.memory.dream import Dreams

    one = ask(db, lambda memory: Dreams(memory).show(id))
    if json:
        print_json(document(one))
        return 0
    _print(one)
    if one.done and one.undone is None:
        show(following("dream", "rollback", str(id), "--by", "NAME", db=db or ""))
    else:
        show(following("dream", "log", db=db or ""))
    return 0


@app.command()
def rollback(
    id: Id,
    by: Annotated[str, typer.Option(help="Who answers for it.")],
    why: Annotated[str, typer.Option(help="The reason.")] = "",
    db: Db = None,
    json: Json = False,
) -> int:
    """Take a dream back: recall is as it was before; what came after it stays. On record."""
    from heedful.memory.dream import Dreams

    back = ask(db, lambda memory: Dreams(memory).rollback(id, by=by, why=why))
    if json:
        print_json({"dream": id, "by": by, "why": why, "lessons": back})
    else:
        show(f"dream {id} is rolled back: {counted(back, 'lesson')} back")
        show(following("dream", "log", db=db or ""))
    return 0


def document(one: Dream) -> dict[str, Any]:
    """A dream as JSON data, each merge with what the texts differ in."""
    told = {**asdict(one), "after": one.after, "nothing": one.nothing}
    told["proposals"] = [
        {**asdict(proposal), "differs": dict(_differences(one, proposal))}
        for proposal in one.proposals
    ]
    return told


def _row(one: Dream) -> tuple[Any, ...]:
    what = one.nothing or f"{counted(sum(len(p.members) for p in one.done), 'lesson')} superseded"
    if one.undone is not None:
        what = f"rolled back {when(one.undone)}; {what}"
    return (what, one.by, one.id, one.mode, one.before, one.after, when(one.at))


def _print(one: Dream) -> None:
    number = f"dream {one.id}" if one.id else "a dry run"
    undone = f", rolled back {when(one.undone)}" if one.undone is not None else ""
    show(f"{number}: {one.mode}, by {clean(one.by, 60)}, {when(one.at)}{undone}")
    for proposal in one.proposals[:SHOWN]:
        _print_proposal(one, proposal)
    if len(one.proposals) > SHOWN:
        show(f"and {counted(len(one.proposals) - SHOWN, 'other proposal')}; --json shows them")
    for why, number_of in one.vetoes.items():
        show(f"kept apart: {counted(number_of, 'pair')}, {_why(why)}")
    if one.nothing:
        show(f"nothing happened: {one.nothing}")
    tried = f", recall tried with {counted(one.queries, 'stored text')}" if one.queries else ""
    show(f"lessons: {one.before} before, {one.after} after{tried}")


def _print_proposal(one: Dream, proposal: Proposal) -> None:
    differs = dict(_differences(one, proposal))
    show(f"{proposal.action}: {clean(proposal.why, WORDS)}; {clean(proposal.outcome, WORDS)}")
    if proposal.survivor or proposal.text:
        text = proposal.text or one.texts.get(proposal.survivor, "")
        show(f"  into {proposal.survivor or 'a new lesson'}: {clean(text, WORDS) or 'gone'}")
    for id in proposal.members[:SHOWN]:
        differ = f"; differs: {clean(differs[id], WORDS)}" if differs.get(id) else ""
        show(f"  {id}: {clean(one.texts.get(id, ''), WORDS) or 'gone'}{differ}")


def _differences(one: Dream, proposal: Proposal) -> list[tuple[int, str]]:
    """Of each member, what was changed from its text to that of what took its place."""
    from heedful.lessons.words import difference

    into = proposal.text or one.texts.get(proposal.survivor, "")
    return [
        (id, str(difference(one.texts[id], into)))
        for id in proposal.members
        if into and id in one.texts
    ]


def _why(veto: str) -> str:
    from heedful.lessons.consolidate import VETOES

    return VETOES.get(veto, veto)
