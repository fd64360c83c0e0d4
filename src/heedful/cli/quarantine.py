"""`heedful quarantine`: read what tools and documents said, rule on it, and revoke sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from heedful.cli.app import PLAIN
from heedful.cli.opening import ask
from heedful.cli.output import MOST, Db, Json, counted, following, print_json, show, table, when
from heedful.lessons.trust import QuarantinedLesson
from heedful.loop.feedback import clean
from heedful.store import exposures

app: typer.Typer = typer.Typer(add_completion=False, no_args_is_help=True, **PLAIN)

Ids = Annotated[list[int], typer.Argument(min=1, max=MOST, help="Ids of the list.")]
By = Annotated[str, typer.Option(help="Who answers for it.")]
Why = Annotated[str, typer.Option(help="The reason.")]
WORDS = 300
BRIEF = 80
HEADS = ("lesson", "source", "id", "trust", "seen", "since")


@app.callback()
def quarantine() -> None:
    """Read what tools and documents said, and rule on it; revoke a source."""


@app.command("list")
def listed(
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many, the newest first.")] = 50,
    db: Db = None,
    json: Json = False,
) -> int:
    """List the entries that wait, the newest first."""
    found = ask(db, lambda memory: memory.quarantine.waiting(limit))
    if json:
        print_json({"waiting": [_document(one) for one in found]})
    elif found:
        table(HEADS, [_row(one) for one in found], text=2)
        show("nothing of it is recalled before it is released")
        show(following("quarantine", "show", str(found[0].id), db=db or ""))
    else:
        show("nothing waits in quarantine")
    return 0


@app.command("show")
def shown(
    id: Annotated[int, typer.Argument(min=1, max=MOST, help="An id of the list.")],
    db: Db = None,
    json: Json = False,
) -> int:
    """Show one entry: its words, where they come from, and what was ruled on it."""
    one = ask(db, lambda memory: memory.quarantine.show(id))
    if json:
        print_json(_document(one, whole=True))
        return 0
    _print(one)
    if one.state == "quarantined":
        show(following("quarantine", "release", str(id), "--by", "NAME", db=db or ""))
    return 0


@app.command()
def release(ids: Ids, by: By, why: Why = "", db: Db = None, json: Json = False) -> int:
    """Let entries be recalled from now on, with an operator's trust; on record."""
    ask(db, lambda memory: memory.quarantine.release(ids, by=by, why=why))
    return _ruled("released", ids, by, why, db, json)


@app.command()
def reject(ids: Ids, by: By, why: Why = "", db: Db = None, json: Json = False) -> int:
    """Retire entries; the same text does not come back. On record."""
    ask(db, lambda memory: memory.quarantine.reject(ids, by=by, why=why))
    return _ruled("rejected", ids, by, why, db, json)


@app.command()
def revoke(
    source: Annotated[str, typer.Argument(help="The name of a source, as the list shows it.")],
    by: By = "",
    why: Why = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do it; else it is only counted.")] = False,
    db: Db = None,
    json: Json = False,
) -> int:
    """Remove a source and all that rests on it, also what was learnt with it in a prompt.

    Without --yes it says what would be removed.
    """
    options: dict[str, Any] = {"by": by, "why": why, "dry_run": not yes}
    removed = ask(db, lambda memory: memory.quarantine.revoke(source, **options))
    counts = asdict(removed)
    if json:
        print_json({"source": source, "by": by, "why": why, "revoked": yes, **counts})
        return 0
    told = ", ".join(counted(n, name.removesuffix("s")) for name, n in counts.items())
    show(f"{'removed' if yes else 'would remove'}: {told}")
    if yes:
        show(following("quarantine", "log", db=db or ""))
    else:
        how = ("--by", by or "NAME", *(("--why", why) if why else ()), "--yes")
        show(following("quarantine", "revoke", source, *how, db=db or ""))
    return 0


@app.command()
def log(
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many, the newest first.")] = 50,
    db: Db = None,
    json: Json = False,
) -> int:
    """List what was ruled on lessons and sources, by whom and why."""
    found = ask(db, lambda memory: memory.store.read(memory.scope, exposures.rulings, limit))
    if json:
        print_json({"rulings": found})
    elif found:
        table(("done", "to", "by", "why", "at"), [_ruling(one) for one in found], text=4)
    else:
        show("nothing was ruled yet")
    return 0


def _ruled(what: str, ids: Sequence[int], by: str, why: str, db: str | None, json: bool) -> int:
    if json:
        print_json({what: sorted(set(ids)), "by": by, "why": why})
    else:
        show(f"{what}: {', '.join(map(str, sorted(set(ids))))}")
        show(following("quarantine", "list", db=db or ""))
    return 0


def _row(one: QuarantinedLesson) -> tuple[Any, ...]:
    lesson, source = clean(one.lesson, BRIEF), clean(one.source, BRIEF)
    return (lesson, source, one.id, one.trust, one.seen, when(one.at))


def _ruling(one: Mapping[str, Any]) -> tuple[Any, ...]:
    about = one["subject"]
    if example := one["record"].get("example"):
        about = f"example {example} of {clean(str(one['record'].get('source', '')), BRIEF)}"
    return (one["action"], about, one["by"], one["why"], when(one["at"]))


def _print(one: QuarantinedLesson) -> None:
    def said(name: str, text: str) -> None:
        show(f"{name:<9} {clean(text, WORDS)}")

    show(f"example {one.id}: {one.state}, {one.trust}, {one.error_type}, seen {one.seen}")
    said("pattern", one.pattern)
    said("lesson", one.lesson)
    if one.example is not None:
        for name in ("task", "rejected", "wrong", "accepted"):
            if text := getattr(one.example, name):
                said(name, text)
    if one.tags:
        said("tags", ", ".join(one.tags))
    _print_provenance(one)


def _print_provenance(one: QuarantinedLesson) -> None:
    came = one.provenance
    show(f"rests on  {', '.join(clean(source, WORDS) for source in came.sources) or 'no source'}")
    for name, ids in (("from", came.parents), ("into", came.children)):
        if ids:
            show(f"{name:<9} example {', '.join(map(str, ids))}")
    for seen in came.sightings:
        where = clean(seen.source or seen.loop or "no source", BRIEF)
        show(f"seen      {when(seen.at)}, {seen.trust}, {where}: {clean(seen.text, BRIEF)}")
    for ruled in came.rulings:
        why = clean(ruled["why"], WORDS) or "no reason given"
        show(f"{ruled['action']:<9} {when(ruled['at'])}, {clean(ruled['by'], 60)}: {why}")


def _document(one: QuarantinedLesson, *, whole: bool = False) -> dict[str, Any]:
    plain = asdict(one)
    if not whole:
        del plain["provenance"]
    return plain
