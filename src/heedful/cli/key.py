"""`heedful key` and `heedful audit`: who may call the service, and what was done through it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Annotated, Any, TypeVar

from typer import Argument, Option, Typer

from heedful.cli.app import group
from heedful.cli.output import answer, columns, counted, drive, emit, when
from heedful.cli.settings import MOST, Limit, Texts, seconds, settings, stored
from heedful.lessons.lesson import Scope
from heedful.store import keys
from heedful.store.keys import Key
from heedful.store.store import Effects, Store, also

T = TypeVar("T")
app: Typer = group("Make, list and revoke the keys of the service.")
audit: Typer = group("Read what was done through the service; check the record.")
BY = "the command line"
Tenant = Annotated[str | None, Option(help="Whose. [setting tenant]")]


KEYS = columns(
    "name may projects key made last_used ends",
    projects=lambda key: key["projects"] or "all",
    made="at",
    last_used=lambda key: key["used"] or "never",
    ends=lambda key: (
        f"revoked {when(key['revoked'])}" if key["revoked"] else key["expires"] or "never"
    ),
)
AUDIT = columns("action subject by detail n at")


def _ask(
    tenant: str | None, work: Callable[[Store, Scope], Awaitable[T]], *, new: bool = False
) -> tuple[T, str]:
    """Return the result of the work on the open store, and the tenant. Raises StoreError."""
    values = settings(tenant=tenant)

    async def opened() -> T:
        async with stored(values, new=new) as store:
            with Effects():
                return await work(store, Scope(values.tenant))

    return drive(opened()), values.tenant


def _record(scope: Scope, action: str, subject: str, **detail: Any) -> None:
    """Write an audit entry in the transaction of the next change."""
    also(lambda db: keys.append(db, scope.tenant, BY, action, subject, detail))


def _document(key: Key) -> dict[str, Any]:
    return {**asdict(key), "key": key.shown}


@app.command()
def create(
    name: Annotated[str, Option(help="Who uses it.")],
    may: Annotated[Texts, Option(help="read, write, approve, admin. [read,write]")] = None,
    project: Annotated[Texts, Option(help="A project; repeatable. [all]")] = None,
    tenant: Tenant = None,
    expires: Annotated[str | None, Option(help="After how long: 12h, 90d. [never]")] = None,
) -> int:
    """Create a key. It is shown once: only a hash of its secret is stored.

    read: loops, lessons, recall. write: report attempts and episodes, remember. approve: overrides,
    and rulings on quarantine. admin: keys and the audit.
    """
    until = None if expires is None else time.time() + seconds("--expires", expires)
    rights = [one.strip() for part in may or ["read,write"] for one in part.split(",")]
    projects, id = project or [], keys.new_id()

    async def make(store: Store, scope: Scope) -> tuple[Key, str]:
        _record(scope, "key.create", name, id=id, projects=projects, may=rights)
        options: Any = {"projects": projects, "may": rights, "by": BY, "expires": until, "id": id}
        return await keys.create(store, scope.tenant, name, **options)

    (key, secret), whose = _ask(tenant, make, new=True)
    where = f"{', '.join(key.projects) or 'all projects'} of tenant {whose}"
    words = f"{key.name} may {', '.join(key.may)} in {where}; this key is not shown again"
    then = f"Next: curl -H 'Authorization: Bearer {key.shown}_…' URL/v1/loops"
    return answer({**_document(key), "secret": secret}, secret, words, then)


@app.command("list")
def list_(tenant: Tenant = None) -> int:
    """List the keys of a tenant, newest first, without their secrets."""
    found, whose = _ask(tenant, lambda store, scope: store.read(scope, keys.newest, MOST, None))
    empty = f"tenant {whose} has no key; heedful key create makes one"
    return emit(list(map(_document, found)), KEYS, key="keys", text=3, empty=empty)


@app.command()
def revoke(
    id: Annotated[str, Argument(help="A key of the list, or its id.")], tenant: Tenant = None
) -> int:
    """Revoke a key: every service refuses it from now on."""

    async def end(store: Store, scope: Scope) -> Key:
        _record(scope, "key.revoke", keys.id_of(id))
        return await store.write(scope, keys.revoke, id)

    key, _ = _ask(tenant, end)
    return answer(_document(key), f"{key.shown} ({key.name}) is revoked")


@audit.command("list")
def list_audit(limit: Limit = 50, tenant: Tenant = None) -> int:
    """List what was done in a tenant, newest first."""
    rows, whose = _ask(tenant, lambda store, scope: store.read(scope, keys.audit_rows, limit))
    empty = f"nothing was done in tenant {whose} yet"
    return emit(rows, AUDIT, key="audit", text=4, empty=empty)


@audit.command()
def verify(
    kept: Annotated[str, Option(metavar="HASH", help="A last hash from before.")] = "",
    tenant: Tenant = None,
) -> int:
    """Check whether a row was changed or removed: each row holds the hash of the row before.

    If you keep the last hash elsewhere, --kept also shows whether the whole record was rewritten.
    """
    found, _ = _ask(tenant, lambda store, scope: store.apart(scope, keys.verify_audit, kept))
    well = f"{counted(found.rows, 'row')}, all as they were written; last hash {found.head}"
    ill = f"{found.what}; something other than heedful wrote to the database"
    answer(found, ill if found.broken else well)
    return int(found.broken)
