"""`heedful quarantine`: read the words of tools and documents, rule on them, revoke sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from heedful.cli.app import group
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
from heedful.cli.settings import ask
from heedful.lessons.trust import QuarantinedLesson
from heedful.loop.record import clean
from heedful.store import exposures

app: typer.Typer = group("Read what waits in quarantine, rule on it, revoke sources.")

Ids = Annotated[list[int], typer.Argument(min=1, max=MOST, help="Ids of the list.")]
WORDS = 300  # characters of a text that are shown
BRIEF = 80
WAITING: Columns = {
    "lesson": lambda one: clean(one["lesson"], BRIEF),
    "source": lambda one: clean(one["source"], BRIEF),
    "id": "id",
    "trust": "trust",
    "seen": "seen",
    "since": lambda one: when(one["at"]),
}


def _subject(ruling: Mapping[str, Any]) -> str:
    example, source = (ruling["record"].get(key) for key in ("example", "source"))
    about = f"example {example} of {clean(str(source or ''), BRIEF)}"
    return about if example else str(ruling["subject"])


RULINGS: Columns = {
    "done": "action",
    "to": _subject,
    "by": "by",
    "why": "why",
    "at": lambda one: when(one["at"]),
}


@app.command("list")
def list_(
    limit: Newest = 50,
    db: Db = None,
    json: Json = False,
) -> int:
    """List the waiting entries, newest first."""
    found = ask(db, lambda memory: memory.quarantine.waiting(limit))
    rows = [asdict(one) for one in found]
    for row in rows:
        del row["provenance"]  # `show` has it
    if emit(rows, WAITING, json=json, key="waiting", text=2, empty="nothing waits in quarantine"):
        show("an entry is recalled only after it was released")
        show(following("quarantine", "show", str(found[0].id), db=db))
    return 0


@app.command("show")
def show_(
    id: Annotated[int, typer.Argument(min=1, max=MOST, help="An id of the list.")],
    db: Db = None,
    json: Json = False,
) -> int:
    """Show one entry: its words, where they come from, and the rulings on it."""
    held = ask(db, lambda memory: memory.quarantine.show(id))
    if json:
        print_json(asdict(held))
        return 0
    _print(held)
    if held.state == "quarantined":
        show(following("quarantine", "release", str(id), "--by", "NAME", db=db))
    return 0


@app.command()
def release(ids: Ids, by: By, why: Why = "", db: Db = None, json: Json = False) -> int:
    """Let entries be recalled from now on, with an operator's trust; on record."""
    ask(db, lambda memory: memory.quarantine.release(ids, by=by, why=why))
    return _rule("released", ids, by, why, db, json)


@app.command()
def reject(ids: Ids, by: By, why: Why = "", db: Db = None, json: Json = False) -> int:
    """Retire entries; the same text is not stored again. On record."""
    ask(db, lambda memory: memory.quarantine.reject(ids, by=by, why=why))
    return _rule("rejected", ids, by, why, db, json)


def _rule(what: str, ids: Sequence[int], by: str, why: str, db: str | None, json: bool) -> int:
    ruled = sorted(set(ids))
    answer(
        {what: ruled, "by": by, "why": why},
        f"{what}: {', '.join(map(str, ruled))}",
        following("quarantine", "list", db=db),
        json=json,
    )
    return 0


@app.command()
def revoke(
    source: Annotated[str, typer.Argument(help="The name of a source, as the list shows it.")],
    by: By = "",
    why: Why = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do it; otherwise only count.")] = False,
    db: Db = None,
    json: Json = False,
) -> int:
    """Remove a source and all that derives from it, including lessons learnt with it in the prompt.

    Without --yes it only shows what would be removed.
    """
    options: dict[str, Any] = {"by": by, "why": why, "dry_run": not yes}
    counts = asdict(ask(db, lambda memory: memory.quarantine.revoke(source, **options)))
    sums = ", ".join(counted(n, name.removesuffix("s")) for name, n in counts.items())
    then = ["log"]
    if not yes:
        then = ["revoke", source, "--by", by or "NAME", *(["--why", why] if why else []), "--yes"]
    answer(
        {"source": source, "by": by, "why": why, "revoked": yes, **counts},
        f"{'removed' if yes else 'would remove'}: {sums}",
        following("quarantine", *then, db=db),
        json=json,
    )
    return 0


@app.command()
def log(limit: Newest = 50, db: Db = None, json: Json = False) -> int:
    """List the rulings on lessons and sources, by whom and why."""
    found = ask(db, lambda memory: memory.store.read(memory.scope, exposures.rulings, limit))
    emit(found, RULINGS, json=json, key="rulings", text=4, empty="nothing was ruled yet")
    return 0


def _print(held: QuarantinedLesson) -> None:
    def line(name: str, text: str) -> None:
        show(f"{name:<9} {clean(text, WORDS)}")

    show(f"example {held.id}: {held.state}, {held.trust}, {held.error_type}, seen {held.seen}")
    line("pattern", held.pattern)
    line("lesson", held.lesson)
    for name in ("task", "rejected", "wrong", "accepted") if held.example is not None else ():
        if text := getattr(held.example, name):
            line(name, text)
    if held.tags:
        line("tags", ", ".join(held.tags))
    came = held.provenance
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
