"""`heedful export`, `import`, `db`: lessons in files, and databases.

A file of `export` has the lessons of one project, and any other memory can import it. A
copy of a database has everything, of every tenant.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from heedful.cli.app import group
from heedful.cli.databases import ask_store, db_exists
from heedful.cli.printing import (
    TextTable,
    answer,
    following,
    page,
    repeated,
)
from heedful.cli.resources import ask, memory_of
from heedful.cli.settings import By, DryRun, Why, settings
from heedful.display import counted
from heedful.errors import UsageError
from heedful.lessons.origin import read_origin
from heedful.memory.transfer import Imported
from heedful.store import POSTGRES_PREFIXES, needs_psycopg, shown
from heedful.store.store import Store


def export(file: Annotated[Path, Argument(help="The new file to write.")]) -> int:
    """Write all lessons to a file, for another machine or another person.

    The file contains the lessons with their examples and sources. Its last line shows
    whether the file is complete. `heedful db copy` copies sightings, reviews and the
    proof, too.
    """
    done = ask(lambda memory: memory.export(str(file)))
    words = f"{counted(done.lessons, 'lesson')} exported, {done.bytes / 1_000:,.0f} KB"
    then = following("import", file, db="another.db")
    return answer({"file": str(file), **asdict(done)}, words, then)


def import_(
    file: Annotated[str, Argument(help="The file to read.")],
    origin: Annotated[
        str, Option(help="outside, or user if you confirm it.")
    ] = "outside",
    by: By = "",
    why: Why = "",
    dry_run: DryRun = False,
) -> int:
    """Import a file of `heedful export`. A second import adds nothing.

    Imported lessons wait in quarantine. If you confirm them with --origin user,
    they keep their own origin and state. A damaged file is refused before anything is
    written.
    """
    author = read_origin(origin)
    values = settings()
    if dry_run and not db_exists(values.db):
        values = replace(values, db=":memory:")

    async def read(store: Store) -> Imported:
        return await memory_of(values, store).import_(
            file, origin=author, by=by, why=why, dry_run=dry_run
        )

    stopped = "stopped; the same command imports the rest, and nothing twice"
    done = ask_store(values, read, new=True, stopped=stopped)

    row = (f"{done.tenant}/{done.project}", done.new, done.known, done.quarantined)
    text = page(
        "import",
        done=done,
        dry_run=dry_run,
        by=by,
        repeated=repeated(),
        waiting=following("quarantine", "list"),
        table=str(TextTable(("from", "new", "known", "quarantined"), [row])),
    )
    return answer({"file": shown(file), "dry_run": dry_run, **asdict(done)}, text)


db: Typer = group()
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
    from heedful.store.copying import copy

    rows_by_table = copy(source, target)
    total = sum(rows_by_table.values())
    filled_tables = [(name, rows) for name, rows in rows_by_table.items() if rows]
    is_server = target.startswith(POSTGRES_PREFIXES)
    then = DOCTOR_HINT if is_server else following("doctor", db=target)

    document = {
        "source": shown(source),
        "target": shown(target),
        "rows": total,
        "tables": rows_by_table,
    }
    return answer(
        document,
        TextTable(("table", "rows"), filled_tables),
        f"{shown(target)} has the {counted(total, 'row')} of {shown(source)}",
        then,
    )


@db.command()
def migrate(
    role: Annotated[
        str, Option(help="Create this role for the service if it is missing.")
    ] = "",
) -> int:
    """Create the tables of heedful in a PostgreSQL database, in one transaction.

    Run it with the role that owns, or will own, the tables. The service needs another
    role. A SQLite file needs no migration. A second call changes nothing.
    """
    url = settings().db
    if not url.startswith(POSTGRES_PREFIXES):
        raise UsageError(
            f"{url} is not a postgresql:// URL; a SQLite file needs no migration"
        )

    needs_psycopg()
    from heedful.store import postgres_schema

    is_new = postgres_schema.migrate(url, role)
    since = "now" if is_new else "already"
    lines = [f"{shown(url)} has the schema of this heedful {since}"]
    if role:
        lines.append(f"role {role} may serve; name it in the URL of the service")
    document = {"store": shown(url), "role": role, "created": is_new}
    return answer(document, lines, DOCTOR_HINT)
