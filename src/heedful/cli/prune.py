"""`heedful pin` and `heedful prune`: what memory keeps, and what it need not keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from heedful.cli.opening import ask
from heedful.cli.output import (
    MOST,
    Db,
    Json,
    counted,
    following,
    print_json,
    show,
    table,
    when,
)
from heedful.cli.override import seconds
from heedful.errors import UsageError
from heedful.loop.feedback import clean

WORDS = 200
SHOWN = 50
HEADS = ("lesson", "state", "why", "id", "seen", "last of use")


def pin(
    lesson: Annotated[int, typer.Argument(min=1, max=MOST, help="The id of a lesson.")],
    by: Annotated[str, typer.Option(help="Who answers for it.")],
    why: Annotated[str, typer.Option(help="The reason.")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Take the pin back.")] = False,
    db: Db = None,
    json: Json = False,
) -> int:
    """Pin a lesson: it is never evicted, pruned or retired. `heedful lessons` shows ids."""
    given = {"by": by, "why": why}
    ask(db, lambda memory: (memory.unpin if undo else memory.pin)(lesson, **given))
    if json:
        print_json({"lesson": lesson, "pinned": not undo, **given})
    else:
        show(f"lesson {lesson} is {'no longer pinned' if undo else 'pinned'}")
        show(following("lessons", db=db or ""))
    return 0


def prune(
    by: Annotated[str, typer.Option(help="Who answers for it.")],
    unused_for: Annotated[
        str | None, typer.Option(help="Remove what was neither seen nor shown for so long: 180d.")
    ] = None,
    keep: Annotated[
        int | None, typer.Option(min=0, max=MOST, help="Remove all but so many, the most useful.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be removed, and why.")
    ] = False,
    db: Db = None,
    json: Json = False,
) -> int:
    """Remove lessons that are of no use, never pinned ones or those that proved helpful."""
    if unused_for is None and keep is None:
        raise UsageError("nothing says what to remove: give --unused-for 180d, --keep 1000 or both")
    options: dict[str, Any] = {"keep": keep, "by": by, "dry_run": dry_run}
    if unused_for is not None:
        options["unused_for"] = seconds("--unused-for", unused_for)
    found = ask(db, lambda memory: memory.prune(**options))
    if json:
        print_json({"dry_run": dry_run, "removed": found})
        return 0
    _print(found)
    many = counted(len(found), "lesson")
    show(f"{many} would be removed" if dry_run else f"{many} removed")
    if dry_run and found:
        asked = {"--unused-for": unused_for, "--keep": keep}
        given = [word for name, value in asked.items() if value is not None
                 for word in (name, str(value))]  # fmt: skip
        show(following("prune", *given, "--by", by, db=db or ""))
    else:
        show(following("lessons", db=db or ""))
    return 0


def _print(found: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (
            *(clean(one["text"], WORDS), one["state"], one["why"], one["id"], one["seen"]),
            when(max(one["last_seen"], one["last_shown"])),
        )
        for one in found[:SHOWN]
    ]
    if rows:
        table(HEADS, rows, text=3)
    if len(found) > SHOWN:
        show(f"and {counted(len(found) - SHOWN, 'other')}; --json shows them")
