"""`heedful audit`: what was done through the service, by whom, and whether the record is whole."""

from __future__ import annotations

import json as jsonlib
from dataclasses import asdict
from typing import Annotated, Any

import typer

from heedful.cli.app import PLAIN
from heedful.cli.key import Tenant, done
from heedful.cli.output import MOST, Db, Json, counted, print_json, show, table, when
from heedful.cli.settings import settings
from heedful.lessons.lesson import Scope
from heedful.store import keys
from heedful.store.keys import Verified

app: typer.Typer = typer.Typer(add_completion=False, no_args_is_help=True, **PLAIN)
HEADS = ("what", "to", "by", "with", "n", "at")


@app.callback()
def audit() -> None:
    """Read what was done through the service, and see whether the record is whole."""


@app.command("list")
def listed(
    limit: Annotated[int, typer.Option(min=1, max=MOST, help="How many, the newest first.")] = 50,
    tenant: Tenant = None,
    db: Db = None,
    json: Json = False,
) -> int:
    """List what was done in a tenant, the newest first."""
    values = settings(db=db, tenant=tenant)

    async def newest(store: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await store.read(Scope(values.tenant), keys.audit_rows, limit)
        return found

    found = done(values, newest)
    if json:
        print_json({"audit": found})
    elif found:
        table(HEADS, [_row(one) for one in found], text=4)
    else:
        show(f"nothing was done in tenant {values.tenant} yet")
    return 0


@app.command()
def verify(
    kept: Annotated[
        str, typer.Option(metavar="HASH", help="A last hash of before: it must be there still.")
    ] = "",
    tenant: Tenant = None,
    db: Db = None,
    json: Json = False,
) -> int:
    """See whether a row was changed or removed: each is chained to the one before by its hash.

    Whoever keeps the last hash elsewhere can tell, too, that nobody wrote the whole record anew.
    """
    values = settings(db=db, tenant=tenant)

    async def verified(store: Any) -> Verified:
        found: Verified = await store.apart(Scope(values.tenant), keys.verify_audit, kept)
        return found

    found = done(values, verified)
    if json:
        print_json(asdict(found))
    elif found.broken:
        show(f"{found.what}; somebody wrote to the database besides heedful")
    else:
        show(f"{counted(found.rows, 'row')}, all as they were written; last hash {found.head}")
    return 1 if found.broken else 0


def _row(one: dict[str, Any]) -> tuple[Any, ...]:
    detail = jsonlib.dumps(one["detail"]) if one["detail"] else ""
    return (one["action"], one["subject"], one["by"], detail, one["n"], when(one["at"]))
