"""`heedful export`, `import`, `reembed`, `db` and `migrate`: move lessons and whole stores."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option, Typer

from heedful.cli.app import group
from heedful.cli.lessons import spaces_of, warn_of
from heedful.cli.output import Progress, answer, call, counted, following, say, show, table
from heedful.cli.settings import By, Why, ask, settings
from heedful.errors import UsageError
from heedful.memory.memory import Memory, Spaces
from heedful.memory.transfer import Imported
from heedful.store import POSTGRES, needs_psycopg, shown

HEADS = ("from", "new", "known", "quarantined")
KB = 1_000


def export(
    file: Annotated[str, Argument(help="The file; - writes to standard output.")],
    force: Annotated[bool, Option("--force", help="Overwrite the file.")] = False,
    vectors: Annotated[bool, Option(help="With vectors; without them half as large.")] = True,
) -> int:
    """Write all lessons to a file, for another machine or another person.

    The file has the lessons with their examples, sightings, sources and rulings, and the outcomes
    of showing them. Its last line shows whether it is complete.
    """
    if file == "-" and call().json:
        raise UsageError("--json and an export cannot both go to standard output; name a file")
    if file != "-" and not force and Path(file).is_file():
        raise UsageError(f"{file!r} exists; name another file, or overwrite it with --force")
    target = sys.stdout.buffer if file == "-" else file
    with Progress() as progress:
        watch = partial(progress.counted, noun="lessons")
        options: Any = {"vectors": vectors, "force": force, "progress": watch}
        done = ask(
            lambda memory: memory.export(target, **options),
            progress=progress.fetched,
            stopped="stopped; nothing was written under that name",
        )
    size = f"{counted(done.lessons, 'lesson')} exported, {done.bytes / KB:,.0f} KB"
    if file == "-":
        say(size)
        return 0
    then = following("import", file, db="another.db")
    return answer({"file": file, **asdict(done)}, size, then)


def import_(
    file: Annotated[str, Argument(help="An export; - reads standard input.")],
    trust: Annotated[
        str, Option(help="external: it waits in quarantine; operator: you vouch for it.")
    ] = "external",
    by: By = "",
    why: Why = "",
) -> int:
    """Import an export; a repeated import adds nothing twice.

    The lessons of others wait in quarantine. If you vouch for them with --trust operator, they keep
    their trust and state. A damaged file is refused before anything is written.
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
        done, spaces = ask(read, new=True, progress=progress.fetched, stopped=rest)
    if call().json:
        return answer({"file": file, **asdict(done)})
    counts = (done.new, done.known, done.quarantined)
    table(HEADS, [(f"{done.tenant}/{done.project}", *counts)])
    if done.left:
        show(f"left out, because nobody vouched for them: {counted(done.left, 'record')}")
    if done.quarantined and not by:
        show(f"its source is {done.source}; revoke it by this name")
        show(following("quarantine", "list"))
    warn_of(spaces)
    return 0


def reembed() -> int:
    """Give vectors to examples that have none.

    Recall compares examples by meaning only if they have vectors. Use this for examples of another
    embedder, or learnt without one. You can stop it at any time; it continues where it stopped.
    Recall works meanwhile.
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
        done, spaces = ask(embed, progress=progress.fetched, stopped=rest)
    words = f"{counted(done, 'example')} embedded; {spaces}"
    return answer({"embedded": done, **asdict(spaces)}, words)


# Whole stores

db: Typer = group("Copy a whole store: to another engine, or as a backup.")
DOCTOR = "Next: heedful doctor, with the URL of the service's role in HEEDFUL_DB"


@db.command("copy")
def copy_(
    source: Annotated[str, Argument(help="A file, or a postgresql:// URL of the owner.")],
    target: Annotated[str, Argument(help="The same; it must be empty.")],
) -> int:
    """Copy all loops, lessons, episodes, keys and records of every scope; all of it or nothing.

    What was written is read back and compared before it is committed. Stop the writers of the
    source first: what they write after the start is not copied.
    """
    from heedful.store.transfer import copy

    with Progress() as progress:

        def watch(name: str, rows: int) -> None:
            if rows:
                progress.say(f"{name}: {counted(rows, 'row')}")

        done = copy(source, target, watch)
    total = sum(done.values())
    if call().json:
        where = {"source": shown(source), "target": shown(target)}
        return answer({**where, "rows": total, "tables": done})
    table(("table", "rows"), [(name, rows) for name, rows in done.items() if rows])
    many = counted(total, "row")
    show(f"{shown(target)} holds the {many} of {shown(source)}, read again and compared")
    show(DOCTOR if target.startswith(POSTGRES) else following("doctor", db=target))
    return 0


def migrate(
    part: Annotated[
        Literal["pre", "post", "all"],
        Option(help="pre: before the new heedful runs; post: when no old one runs any more."),
    ] = "all",
    role: Annotated[
        str, Option(help="The service's role: created if it is missing, and given access.")
    ] = "",
) -> int:
    """Bring a PostgreSQL database to the schema it needs.

    Run it as the role that is to own the tables; the service needs another role. All of it is done
    or nothing. A SQLite file needs no migration, because opening it brings it up to date.
    """
    url = settings().db
    if not url.startswith(POSTGRES):
        raise UsageError(
            f"{url} is no postgresql:// URL; a SQLite file is migrated when it is opened"
        )
    needs_psycopg()
    from heedful.store.postgres import migrate as migrate_schema

    done = migrate_schema(url, part, role)
    waiting, applied = ([one._asdict() for one in steps] for steps in (done.waiting, done.applied))
    record = {"store": shown(url), "role": role, "applied": applied, "waiting": waiting}
    words = ", ".join(f"{one.part} {one.number}" for one in done.applied)
    words = f"{counted(len(applied), 'part')} applied{f': {words}' if words else ''}"
    then = DOCTOR
    if done.waiting:
        later = " when no older heedful runs any more" if done.waiting[0].part == "post" else ""
        then = f"Next: heedful migrate --part {done.waiting[0].part}{later}"
    return answer(
        {**record, "schema": done.schema},
        f"{shown(url)} has schema {done.schema}, {words}",
        f"role {role} may serve; name it in the URL of the service" if role else "",
        then,
    )
