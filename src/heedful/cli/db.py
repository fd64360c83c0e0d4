"""`heedful db`: a whole store, from one database into another."""

from __future__ import annotations

from typing import Annotated

import typer

from heedful.cli.app import PLAIN
from heedful.cli.output import Json, counted, following, print_json, show, table
from heedful.cli.progress import Progress
from heedful.store import POSTGRES, shown

app: typer.Typer = typer.Typer(add_completion=False, no_args_is_help=True, **PLAIN)


@app.callback()
def db() -> None:
    """Copy a whole store: from SQLite to PostgreSQL and back, or as a backup of a file."""


@app.command("copy")
def copy_(
    source: Annotated[str, typer.Argument(help="A file, or a postgresql:// URL of the owner.")],
    target: Annotated[str, typer.Argument(help="The same; it must hold nothing yet.")],
    json: Json = False,
) -> int:
    """Copy all loops, lessons, episodes, keys and records of every scope; all of it or nothing.

    What was written is read again and compared before it is committed. Stop what writes to the
    source: what comes after the beginning is not copied. The same command again does no harm.
    """
    from heedful.store.copying import copy

    with Progress() as progress:

        def told(name: str, rows: int) -> None:
            if rows:
                progress.say(f"{name}: {counted(rows, 'row')}")

        done = copy(source, target, told)
    if json:
        contents = [one._asdict() for one in done.contents]
        where = {"source": shown(source), "target": shown(target)}
        print_json({**where, "rows": done.rows, "again": done.again, "tables": contents})
        return 0
    table(("table", "rows"), [(one.table, one.rows) for one in done.contents if one.rows])
    many = counted(done.rows, "row")
    there = f"{shown(target)} holds the {many} of {shown(source)}"
    show(f"{there} already" if done.again else f"{there}, read again and compared")
    if not target.startswith(POSTGRES):
        show(following("doctor", db=target))
    else:
        show("Next: heedful doctor, with the URL of the service's role in HEEDFUL_DB")
    return 0
