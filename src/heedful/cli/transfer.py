"""`heedful export` and `heedful import`: what was learnt, as a file."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.interrupt import drive
from heedful.cli.opening import memory_of, stored
from heedful.cli.output import Db, Json, counted, following, print_json, say, show, table
from heedful.cli.progress import Progress
from heedful.cli.reembed import warn
from heedful.cli.settings import settings
from heedful.errors import UsageError
from heedful.memory.spaces import Spaces
from heedful.memory.transfer import Exported, Imported

LOST = "stopped; nothing was written under that name"
REST = "stopped; the same command takes in the rest, and nothing twice"
HEADS = ("from", "new", "merged", "known", "quarantined")
KB = 1_000


def export(
    file: Annotated[str, typer.Argument(help="The file; - writes to standard output.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    vectors: Annotated[bool, typer.Option(help="With vectors, or half as large.")] = True,
    db: Db = None,
    json: Json = False,
) -> int:
    """Write all that was learnt to a file, for another machine or another person.

    Lessons with their examples, sightings, sources and rulings, and what came of showing them. The
    last line tells whether the file is whole.
    """
    if file == "-" and json:
        raise UsageError("--json and an export cannot both go to standard output; name a file")
    if file != "-" and not force and Path(file).is_file():
        raise UsageError(f"{file!r} is there already; name another, or overwrite it by --force")

    async def written(progress: Progress) -> Exported:
        def told(what: str, done: int, total: int) -> None:
            progress.counted(what, done, total, "lessons")

        values = settings(db=db)
        async with stored(values) as store:
            target = sys.stdout.buffer if file == "-" else file
            memory = memory_of(values, store)
            return await memory.export(target, vectors=vectors, force=force, progress=told)

    with Progress() as progress:
        done = drive(written(progress), lambda: LOST)
    size = f"{counted(done.lessons, 'lesson')} exported, {done.bytes / KB:,.0f} KB"
    if json:
        print_json({"file": file, **asdict(done)})
    elif file == "-":
        say(size)
    else:
        show(size)
        show(following("import", file, db="another.db"))
    return 0


def import_(
    file: Annotated[str, typer.Argument(help="An export; - reads standard input.")],
    trust: Annotated[
        str, typer.Option(help="external: it waits in quarantine; operator: you vouch for it.")
    ] = "external",
    by: Annotated[str, typer.Option(help="Who vouches for it.")] = "",
    why: Annotated[str, typer.Option(help="The reason.")] = "",
    db: Db = None,
    json: Json = False,
) -> int:
    """Take in what was exported, each thing once, however often.

    What others have learnt waits in quarantine. Your own memory is as it was where it comes from,
    if you vouch for it. A damaged file is refused before anything is written.
    """

    async def taken(progress: Progress) -> tuple[Imported, Spaces | None]:
        def told(what: str, done: int, total: int) -> None:
            progress.counted(what, done // KB, total // KB, "KB")

        values = settings(db=db)
        async with stored(values, new=True) as store:
            memory = memory_of(values, store)
            source = sys.stdin.buffer if file == "-" else file
            given: Any = {"trust": trust, "by": by, "why": why}
            done = await memory.import_(source, progress=told, **given)
            return done, await memory.spaces() if memory.embedder is not None else None

    with Progress() as progress:
        done, spaces = drive(taken(progress), lambda: REST)
    if json:
        print_json({"file": file, **asdict(done)})
        return 0
    counts = (done.new, done.merged, done.known, done.quarantined)
    table(HEADS, [(f"{done.tenant}/{done.project}", *counts)])
    if done.left:
        show(f"left out, since nobody vouched for them: {counted(done.left, 'record')}")
    if done.quarantined and not by:
        show(f"it is called {done.source}, by which it can be revoked")
        show(following("quarantine", "list", db=db or ""))
    if spaces is not None:
        warn(spaces, db or "")
    return 0
