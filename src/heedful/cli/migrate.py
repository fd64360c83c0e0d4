"""`heedful migrate`: the schema of a PostgreSQL database, brought to what this heedful needs."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from heedful.cli.output import Json, counted, print_json, show, table
from heedful.cli.settings import settings
from heedful.errors import UsageError
from heedful.store import POSTGRES, needs_psycopg, shown


def migrate(
    store: Annotated[
        str | None, typer.Option("--store", help="The database, a postgresql:// URL. [setting db]")
    ] = None,
    part: Annotated[
        Literal["pre", "post", "all"],
        typer.Option(help="pre before the new heedful runs, post when no old one does any more."),
    ] = "all",
    role: Annotated[
        str, typer.Option(help="The service's role: created where there is none, and let in.")
    ] = "",
    json: Json = False,
) -> int:
    """Bring a PostgreSQL database to the schema that this heedful needs.

    Run it as the role that is to own the tables; the service has another one. All of it is done
    or nothing. A SQLite file needs no migration: it is brought up to date when it is opened.
    """
    url = settings(db=store).db
    if not url.startswith(POSTGRES):
        raise UsageError(
            f"{url} is no postgresql:// URL; a SQLite file is migrated when it is opened"
        )
    needs_psycopg()
    from heedful.store.migrations import migrate as migrated

    done = migrated(url, part, role)
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
    show(f"Next: {_next(done.waiting[0].part if done.waiting else '')}")
    return 0


def _next(part: str) -> str:
    if not part:
        return "heedful doctor, with the URL of the service's role in HEEDFUL_DB"
    when = " when no older heedful runs any more" if part == "post" else ""
    return f"heedful migrate --part {part}{when}"
