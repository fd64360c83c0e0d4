"""`errata lessons`, `errata seen` and `errata recall`: what memory holds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from errata.cli.output import Db, Json, print_json, short, show, table, when

if TYPE_CHECKING:
    from errata.cli.settings import Settings
    from errata.memory.memory import Seen
    from errata.protocols import Found

HEADS = ("lesson", "kind", "state", "trust", "seen", "examples", "last seen")
WORDS = 300
MOST_BYTES = 1_000_000


def lessons(
    limit: Annotated[int, typer.Option(min=1, help="How many, the most seen first.")] = 50,
    db: Db = None,
    json: Json = False,
) -> int:
    """List what was learnt, most often seen first."""
    from errata.cli.interrupt import drive
    from errata.cli.settings import settings

    found = drive(_top(settings(db=db), limit))
    if json:
        print_json({"lessons": [dict(one) for one in found]})
    elif found:
        table(HEADS, map(_row, found), text=4)
    else:
        show("nothing was learnt in this scope yet")
    return 0


def seen(
    error_type: Annotated[str, typer.Argument(help="The kind of error, as KeyError.")],
    text: Annotated[str, typer.Argument(help="Its text; - reads it from standard input.")],
    db: Db = None,
    json: Json = False,
) -> int:
    """Say whether an error was seen before.

    Like grep, it exits 0 where it was and 1 where it was not.
    """
    from errata.cli.interrupt import drive
    from errata.cli.settings import settings
    from errata.memory.signature import signature

    given = _standard_input() if text == "-" else text
    mark = signature(error_type, given)
    found = drive(_seen(settings(db=db), error_type, given))
    if json:
        known = {"seen": found.count, "signature": mark.digest, "pattern": mark.pattern}
        print_json({**known, "lessons": [dict(one) for one in found.lessons]})
    else:
        show(f"seen: {found.count}  {mark.digest}  {short(mark.pattern, WORDS)}")
        for one in found.lessons:
            show(f"  {one['state']}, {one['trust']}: {short(one['text'], WORDS)}")
    return 0 if found else 1


def recall(
    task: Annotated[str, typer.Argument(help="The task; - reads it from standard input.")],
    limit: Annotated[int, typer.Option(min=1, help="How many examples at most.")] = 5,
    db: Db = None,
    json: Json = False,
) -> int:
    """Show which accepted answers a task brings back."""
    from errata.cli.interrupt import drive
    from errata.cli.settings import settings

    given = _standard_input() if task == "-" else task
    found = drive(_recall(settings(db=db), given, limit))
    if json:
        print_json({"examples": [_example(one) for one in found]})
    else:
        for one in found:
            _print(one)
        if not found:
            show("nothing related")
    return 0


async def _top(settings: Settings, limit: int) -> Sequence[Mapping[str, Any]]:
    from errata.cli.opening import scope_of, stored

    async with stored(settings) as store:
        return await store.reflections(scope_of(settings), limit)


async def _seen(settings: Settings, error_type: str, text: str) -> Seen:
    from errata.cli.opening import scope_of, stored
    from errata.memory.memory import Memory

    async with stored(settings) as store:
        return await Memory(store, scope_of(settings)).seen(error_type, text)


async def _recall(settings: Settings, task: str, limit: int) -> list[Found]:
    from errata.cli.opening import memory_of, stored

    async with stored(settings) as store:
        return await memory_of(settings, store).recall(task, limit)


def _standard_input() -> str:
    """Standard input as text, its first 1,000,000 bytes; what is not UTF-8 is replaced."""
    return sys.stdin.buffer.read(MOST_BYTES).decode("utf-8", "replace")


def _row(one: Mapping[str, Any]) -> tuple[Any, ...]:
    facts = (one["kind"], one["state"], one["trust"], one["seen"], one["examples"])
    return (short(str(one["text"]), 80), *facts, when(one["last_seen"]))


def _example(one: Found) -> dict[str, Any]:
    plain = asdict(one)
    return {**plain, "example": asdict(one.example)}


def _print(one: Found) -> None:
    how = "verified" if one.verified else "not verified"
    near = f"cosine {one.cosine:.2f}" if one.cosine is not None else "by its words"
    show(f"{one.kind}, {how}, {near}, seen {one.seen}")
    show(f"  task:     {short(one.example.task, WORDS)}")
    if one.example.rejected:
        show(f"  rejected: {short(one.example.rejected, WORDS)}")
    show(f"  accepted: {short(one.example.accepted, WORDS)}")
