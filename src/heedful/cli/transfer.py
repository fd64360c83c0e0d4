"""`heedful export`, `import`, `db copy` and `migrate`: lessons in files, and whole
databases.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option, Typer

from heedful.cli import output, settings
from heedful.cli.app import group
from heedful.cli.output import TextTable, answer, counted, following
from heedful.cli.settings import By, DryRun, Why
from heedful.errors import UsageError
from heedful.memory.transfer import Imported
from heedful.store import POSTGRES_PREFIXES, needs_psycopg, shown
from heedful.store.store import Store


def export(file: Annotated[Path, Argument(help="The new file to write.")]) -> int:
    """Write all lessons to a file, for another machine or another person.

    The file contains the lessons with their examples and sources. Its last line shows
    whether the file is complete. `heedful db copy` copies sightings, rulings and the
    proof, too.
    """
    done = settings.ask(lambda memory: memory.export(str(file)))
    words = f"{counted(done.lessons, 'lesson')} exported, {done.bytes / 1_000:,.0f} KB"
    then = following("import", file, db="another.db")
    return answer({"file": str(file), **asdict(done)}, words, then)


def import_(
    file: Annotated[str, Argument(help="The file to read.")],
    trust: Annotated[
        str, Option(help="external, or operator if you vouch for it.")
    ] = "external",
    by: By = "",
    why: Why = "",
    dry_run: DryRun = False,
) -> int:
    """Import a file of `heedful export`. A second import adds nothing.

    Imported lessons wait in quarantine. If you vouch for them with --trust operator,
    they keep their trust and state. A damaged file is refused before anything is
    written.
    """

    async def read(store: Store) -> Imported:
        options: Any = {"trust": trust, "by": by, "why": why, "dry_run": dry_run}
        return await settings.memory_of(values, store).import_(file, **options)

    values = settings.settings()
    if dry_run and not settings.exists(values.db):
        values = values.model_copy(update={"db": ":memory:"})
    rest = "stopped; the same command imports the rest, and nothing twice"
    done = settings.ask_store(values, read, new=True, stopped=rest)
    row = (f"{done.tenant}/{done.project}", done.new, done.known, done.quarantined)
    texts = {"repeated": output.repeated(), "waiting": following("quarantine", "list")}
    texts["table"] = str(TextTable(("from", "new", "known", "quarantined"), [row]))
    page = output.page("import", done=done, dry_run=dry_run, by=by, **texts)
    return answer({"file": shown(file), "dry_run": dry_run, **asdict(done)}, page)


db: Typer = group()
Part = Literal["pre", "post", "all"]
DOCTOR_HINT = "Next: heedful doctor, with the URL of the service's role in HEEDFUL_DB"


@db.command("copy")
def copy_(
    source: Annotated[str, Argument(help="A SQLite file, which may be in use.")],
    target: Annotated[
        str, Argument(help="A new file, or a postgresql:// URL of the owner.")
    ],
) -> int:
    """Copy a SQLite file with the data of every tenant, as a backup or to PostgreSQL.

    What is written after the start is not copied. A PostgreSQL database must be empty.
    """
    from heedful.store.transfer import copy

    done = copy(source, target)
    total = sum(done.values())
    old = shown(source)
    new = shown(target)
    return answer(
        {"source": old, "target": new, "rows": total, "tables": done},
        TextTable(
            ("table", "rows"), [(name, rows) for name, rows in done.items() if rows]
        ),
        f"{new} has the {counted(total, 'row')} of {old}",
        DOCTOR_HINT
        if target.startswith(POSTGRES_PREFIXES)
        else following("doctor", db=target),
    )


def migrate(
    part: Annotated[
        Part, Option(help="pre: before an update; post: after it.")
    ] = "all",
    role: Annotated[
        str, Option(help="Create this role for the service if it is missing.")
    ] = "",
) -> int:
    """Update the schema of a PostgreSQL database, in one transaction.

    Run it with the role that owns, or will own, the tables. The service needs another
    role. A SQLite file needs no migration: heedful updates the file when opening it.
    """
    url = settings.settings().db
    if not url.startswith(POSTGRES_PREFIXES):
        why = "a SQLite file is migrated when it is opened"
        raise UsageError(f"{url} is no postgresql:// URL; {why}")
    needs_psycopg()
    from heedful.store import postgres_migrations

    done = postgres_migrations.migrate(url, part, role)
    applied, waiting = (
        [one._asdict() for one in steps] for steps in (done.applied, done.waiting)
    )
    record = {"store": shown(url), "role": role, "applied": applied, "waiting": waiting}
    words = (
        f"{shown(url)} has schema {done.schema}, {counted(len(applied), 'part')} "
        "applied"
    )
    served = f"role {role} may serve; name it in the URL of the service" if role else ""
    then = DOCTOR_HINT
    if done.waiting:
        later = (
            " when no older heedful runs any more"
            if done.waiting[0].part == "post"
            else ""
        )
        then = f"Next: heedful migrate --part {done.waiting[0].part}{later}"
    return answer({**record, "schema": done.schema}, words, served, then)
