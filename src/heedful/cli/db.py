"""`heedful db` and `heedful migrate`: copy a whole store, and prepare a PostgreSQL database."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from heedful.cli.app import group
from heedful.cli.output import Json, counted, following, print_json, show, table
from heedful.cli.progress import Progress
from heedful.cli.settings import settings
from heedful.errors import UsageError
from heedful.store import POSTGRES, needs_psycopg, shown

app: typer.Typer = group("Copy a whole store: to another engine, or as a backup.")
DOCTOR = "Next: heedful doctor, with the URL of the service's role in HEEDFUL_DB"


@app.command("copy")
def copy_(
    source: Annotated[str, typer.Argument(help="A file, or a postgresql:// URL of the owner.")],
    target: Annotated[str, typer.Argument(help="The same; it must be empty.")],
    json: Json = False,
) -> int:
    """Copy all loops, lessons, episodes, keys and records of every scope; all of it or nothing.

    What was written is read back and compared before it is committed. Stop the writers of the
    source first: what they write after the beginning is not copied. The same command can be
    repeated.
    """
    from heedful.store.copying import copy

    with Progress() as progress:

        def watch(name: str, rows: int) -> None:
            if rows:
                progress.say(f"{name}: {counted(rows, 'row')}")

        done = copy(source, target, watch)
    if json:
        tables = [one._asdict() for one in done.contents]
        where = {"source": shown(source), "target": shown(target)}
        print_json({**where, "rows": done.rows, "again": done.again, "tables": tables})
        return 0
    table(("table", "rows"), [(one.table, one.rows) for one in done.contents if one.rows])
    many = counted(done.rows, "row")
    there = f"{shown(target)} holds the {many} of {shown(source)}"
    show(f"{there} already" if done.again else f"{there}, read again and compared")
    show(DOCTOR if target.startswith(POSTGRES) else following("doctor", db=target))
    return 0


def migrate(
    store: Annotated[
        str | None, typer.Option("--store", help="The database, a postgresql:// URL. [setting db]")
    ] = None,
    part: Annotated[
        Literal["pre", "post", "all"],
        typer.Option(help="pre: before the new heedful runs; post: when no old one runs any more."),
    ] = "all",
    role: Annotated[
        str, typer.Option(help="The service's role: created if it is missing, and given access.")
    ] = "",
    json: Json = False,
) -> int:
    """Bring a PostgreSQL database to the schema it needs.

    Run it as the role that is to own the tables; the service has another one. All of it is done
    or nothing. A SQLite file needs no migration: it is brought up to date when it is opened.
    """
    url = settings(db=store).db
    if not url.startswith(POSTGRES):
        raise UsageError(
            f"{url} is no postgresql:// URL; a SQLite file is migrated when it is opened"
        )
    needs_psycopg()
    from heedful.store.migrations import migrate as migrate_schema

    done = migrate_schema(url, part, role)
    if json:
        waiting = [one._asdict() for one in done.waiting]
        applied = [one._asdict() for one in done.applied]
        where = {"store": shown(url), "role": role}
        print_json({**where, "applied": applied, "waiting": waiting, "schema": done.schema})
        return 0
    if done.applied:
        table(("part", "migration"), [(one.part, one.number) for one in done.applied])
    show(f"{shown(url)} has schema {done.schema}, {counted(len(done.applied), 'part')} applied")
    if role:
        show(f"role {role} may serve; name it in the URL of the service")
    if not done.waiting:
        show(DOCTOR)
        return 0
    then = done.waiting[0].part
    when = " when no older heedful runs any more" if then == "post" else ""
    show(f"Next: heedful migrate --part {then}{when}")
    return 0
