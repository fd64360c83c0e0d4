"""`heedful key`: who may call the service, for which tenant and projects, and what they may."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

import typer

from heedful.cli.app import PLAIN
from heedful.cli.interrupt import drive
from heedful.cli.opening import stored
from heedful.cli.output import Db, Json, print_json, show, table, when
from heedful.cli.override import seconds
from heedful.cli.settings import Settings, settings
from heedful.lessons.lesson import Scope
from heedful.store import keys
from heedful.store.idempotency import Beside, also, beside
from heedful.store.keys import Key, append, id_of, new_id

T = TypeVar("T")
app: typer.Typer = typer.Typer(add_completion=False, no_args_is_help=True, **PLAIN)
BY = "the command line"
PAGE = 1_000
HEADS = ("name", "may", "projects", "key", "made", "last used", "ends")
Tenant = Annotated[str | None, typer.Option(help="Whose. [setting tenant]")]


@app.callback()
def key() -> None:
    """Make, list and revoke the keys of the service."""


@app.command()
def create(
    name: Annotated[str, typer.Option(help="Who is to have it.")],
    may: Annotated[
        list[str] | None, typer.Option(help="Any of read, write, approve, admin. [read,write]")
    ] = None,
    project: Annotated[
        list[str] | None, typer.Option(help="A project it is bound to; may be repeated. [all]")
    ] = None,
    tenant: Tenant = None,
    expires: Annotated[str | None, typer.Option(help="After how long: 12h, 90d. [never]")] = None,
    db: Db = None,
    json: Json = False,
) -> int:
    """Make a key. It is shown once: of its secret only a hash is kept.

    read: loops, lessons, recall. write: report attempts and episodes, remember. approve: overrides,
    and what becomes of quarantine. admin: keys and the audit.
    """
    values = settings(db=db, tenant=tenant)
    until = None if expires is None else time.time() + seconds("--expires", expires)
    held = [one.strip() for part in may or ["read,write"] for one in part.split(",")]

    async def make(store: Any) -> tuple[Key, str]:
        bound, id = project or [], new_id()
        record(values.tenant, "key.create", name, id=id, projects=bound, may=held)
        made: tuple[Key, str] = await keys.create(
            store, values.tenant, name, projects=bound, may=held, by=BY, expires=until, id=id
        )
        return made

    made, text = done(values, make, new=True)
    if json:
        print_json({**_document(made), "secret": text})
        return 0
    show(text)
    show(f"{made.name} may {', '.join(made.may)} in {_where(made)}; this key is not shown again")
    show(f"Next: curl -H 'Authorization: Bearer {made.shown}_…' URL/v1/loops")
    return 0


@app.command("list")
def listed(tenant: Tenant = None, db: Db = None, json: Json = False) -> int:
    """List the keys of a tenant, the newest first, without their secrets."""
    values = settings(db=db, tenant=tenant)

    async def all_of_them(store: Any) -> list[Key]:
        found: list[Key] = []
        while True:
            after = (found[-1].at, found[-1].id) if found else None
            page = await store.read(Scope(values.tenant), keys.newest, PAGE, after)
            found += page
            if len(page) < PAGE:
                return found

    found = done(values, all_of_them)
    if json:
        print_json({"keys": [_document(one) for one in found]})
    elif found:
        table(HEADS, [_row(one) for one in found], text=3)
    else:
        show(f"tenant {values.tenant} has no key; heedful key create makes one")
    return 0


@app.command()
def revoke(
    id: Annotated[str, typer.Argument(help="A key of the list, or its id.")],
    tenant: Tenant = None,
    db: Db = None,
    json: Json = False,
) -> int:
    """Revoke a key: every service refuses it from now on."""
    values = settings(db=db, tenant=tenant)

    async def end(store: Any) -> Key:
        record(values.tenant, "key.revoke", id_of(id))
        revoked: Key = await store.write(Scope(values.tenant), keys.revoke, id)
        return revoked

    one = done(values, end)
    if json:
        print_json(_document(one))
    else:
        show(f"{one.shown} ({one.name}) is revoked")
    return 0


def done(values: Settings, work: Callable[[Any], Awaitable[T]], *, new: bool = False) -> T:
    """What is asked of the store, which may be `new`, with what goes beside it.

    Raises NotFound, StoreError.
    """

    async def asked() -> T:
        async with stored(values, new=new) as store:
            with beside(Beside()):
                return await work(store)

    return drive(asked())


def record(tenant: str, action: str, subject: str, **detail: Any) -> None:
    """Have this written to the audit, in the transaction of what is done next."""
    also(lambda db: append(db, tenant, BY, action, subject, detail))


def _document(one: Key) -> dict[str, Any]:
    return {**asdict(one), "key": one.shown}


def _where(one: Key) -> str:
    projects = ", ".join(one.projects) or "all projects"
    return f"{projects} of tenant {one.tenant}"


def _row(one: Key) -> tuple[str, ...]:
    ends = f"{when(one.expires)}" if one.expires else "never"
    return (
        one.name,
        ", ".join(one.may),
        ", ".join(one.projects) or "all",
        one.shown,
        when(one.at),
        when(one.used) if one.used else "never",
        f"revoked {when(one.revoked)}" if one.revoked else ends,
    )
