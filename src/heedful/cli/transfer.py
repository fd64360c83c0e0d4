"""`heedful export`, `import` and `reembed`: move what was learnt, and give it vectors."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from heedful.cli.lessons import spaces_of, warn_of
from heedful.cli.output import By, Db, Json, Why, counted, following, print_json, say, show, table
from heedful.cli.progress import Progress
from heedful.cli.settings import ask
from heedful.errors import UsageError
from heedful.memory.memory import Memory, Spaces
from heedful.memory.transfer import Imported

HEADS = ("from", "new", "merged", "known", "quarantined")
KB = 1_000


def export(
    file: Annotated[str, typer.Argument(help="The file; - writes to standard output.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    vectors: Annotated[bool, typer.Option(help="With vectors; without them half as large.")] = True,
    db: Db = None,
    json: Json = False,
) -> int:
    """Write all that was learnt to a file.

    For another machine or another person: lessons with their examples, sightings, sources and
    rulings, and what came of showing them. The last line of the file shows whether it is complete.
    """
    if file == "-" and json:
        raise UsageError("--json and an export cannot both go to standard output; name a file")
    if file != "-" and not force and Path(file).is_file():
        raise UsageError(f"{file!r} exists; name another file, or overwrite it with --force")

    target = sys.stdout.buffer if file == "-" else file
    with Progress() as progress:
        watch = partial(progress.counted, noun="lessons")
        options: Any = {"vectors": vectors, "force": force, "progress": watch}
        done = ask(
            db,
            lambda memory: memory.export(target, **options),
            progress=progress.fetched,
            stopped="stopped; nothing was written under that name",
        )
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
    by: By = "",
    why: Why = "",
    db: Db = None,
    json: Json = False,
) -> int:
    """Import an export; a repeated import adds nothing twice.

    What others have learnt waits in quarantine. If you vouch for it with --trust operator, it is
    as it was in the memory that it comes from. A damaged file is refused before anything is
    written.
    """

    def watch(what: str, done: int, total: int) -> None:
        progress.counted(what, done // KB, total // KB, "KB")

    async def read(memory: Memory) -> tuple[Imported, Spaces | None]:
        source = sys.stdin.buffer if file == "-" else file
        options: Any = {"trust": trust, "by": by, "why": why}
        done = await memory.import_(source, progress=watch, **options)
        return done, await spaces_of(memory)

    rest = "stopped; the same command imports the rest, and nothing twice"
    with Progress() as progress:
        done, spaces = ask(db, read, new=True, progress=progress.fetched, stopped=rest)
    if json:
        print_json({"file": file, **asdict(done)})
        return 0
    counts = (done.new, done.merged, done.known, done.quarantined)
    table(HEADS, [(f"{done.tenant}/{done.project}", *counts)])
    if done.left:
        show(f"left out, since nobody vouched for them: {counted(done.left, 'record')}")
    if done.quarantined and not by:
        show(f"its source is {done.source}; revoke it by this name")
        show(following("quarantine", "list", db=db))
    warn_of(spaces, db)
    return 0


def reembed(db: Db = None, json: Json = False) -> int:
    """Give vectors to examples that have none.

    Recall compares them by meaning only then. For examples of another embedder, or learnt without
    one. It can be stopped at any time and continues where it stopped; recall works meanwhile.
    """

    async def embed(memory: Memory) -> tuple[int, Spaces]:
        if memory.embedder is None:
            raise UsageError(
                "recall compares words here, which needs no vectors; for meanings install "
                "heedful[embedded] and run it with HEEDFUL_EMBEDDER=minilm"
            )
        watch = partial(progress.counted, "embedding", noun="examples")
        return await memory.reembed(watch), await memory.spaces()

    rest = "stopped; heedful reembed continues where it stopped"
    with Progress() as progress:
        done, spaces = ask(db, embed, progress=progress.fetched, stopped=rest)
    if json:
        print_json({"embedded": done, **asdict(spaces)})
    else:
        show(f"{counted(done, 'example')} embedded; {spaces}")
    return 0
