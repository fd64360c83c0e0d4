"""Whether the service lives, and whether it can work.

Keys, and what was done with them: made, listed, revoked, on record.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import ClassVar, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict

from heedful.errors import Forbidden, StoreError
from heedful.lessons.lesson import Scope
from heedful.service.auth import Administering
from heedful.service.openapi import page
from heedful.service.pagination import Cursor, Limit, cursor_from, cursor_to
from heedful.service.setup import Given
from heedful.service.wire.keys import Audit, Entry, Keys, MadeKey, NewKey, ShownKey
from heedful.store import keys as key_store
from heedful.store.keys import id_of, new_id

router: APIRouter = APIRouter(tags=["health"])


class Health(BaseModel):
    """That the process answers."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"example": {"status": "ok"}})

    status: str = "ok"


class Readiness(BaseModel):
    """What the service needs: `ok`, or the name of the error that it has."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={"example": {"status": "ready", "store": "ok", "work": "ok"}}
    )

    status: Literal["ready", "unavailable"]
    store: str
    work: str


@router.get("/healthz")
async def healthz() -> Health:
    """The process answers; nothing else is looked at."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness, "description": "It is not there."}})
async def readyz(setup: Given, response: Response) -> Readiness:
    """The store is reached and has the schema that this heedful needs, and work is handed over."""
    store, work = (
        await _state(setup.store.read(Scope(), key_store.any_key)),
        await _state(setup.work.depth()),
    )
    ready = store == work == "ok"
    response.status_code = 200 if ready else 503
    return Readiness(status="ready" if ready else "unavailable", store=store, work=work)


async def _state(asked: Awaitable[object]) -> str:
    try:
        await asked
    except StoreError as error:
        return type(error).__name__
    return "ok"


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(setup: Given) -> Response:
    """What was counted, in Prometheus' text format."""
    try:
        waiting = await setup.work.depth()
    except StoreError:
        waiting = None  # which is told, too
    text = setup.metrics.text(waiting)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> Response:
    """What there is, for people: a page of the description."""
    safe = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    return HTMLResponse(page(request.app.openapi()), headers={"Content-Security-Policy": safe})


keys_router: APIRouter = APIRouter(prefix="/v1", tags=["keys"])


@keys_router.get("/keys")
async def keys(
    caller: Administering, setup: Given, limit: Limit = 50, cursor: Cursor = None
) -> Keys:
    """The keys of the tenant, the newest first, without their secrets."""
    after = cursor_from(cursor, float, str)
    found = await setup.store.read(Scope(caller.tenant), key_store.newest, limit + 1, after)
    more = cursor_to(found[limit - 1].at, found[limit - 1].id) if len(found) > limit else None
    return Keys(items=[ShownKey.of(one) for one in found[:limit]], next=more)


@keys_router.post("/keys", status_code=201)
async def create(
    new: NewKey, caller: Administering, setup: Given, request: Request, response: Response
) -> MadeKey:
    """Make a key, which is told once. It may not do more than the caller, nor elsewhere."""
    caller.own(new.tenant)
    if caller.projects and not new.projects:
        raise Forbidden("a key that is bound to projects makes none for all of them; name projects")
    for project in new.projects:
        caller.scope(project)
    for may in new.may:
        caller.needs(may)
    request.scope["state"]["secret"] = True  # which is stored nowhere
    id = new_id()
    caller.record("key.create", new.name, id=id, projects=new.projects, may=new.may)
    made, text = await key_store.create(
        setup.store,
        caller.tenant,
        new.name,
        projects=new.projects,
        may=new.may,
        by=caller.by,
        expires=new.expires,
        id=id,
    )
    response.headers["Location"] = f"/v1/keys/{made.id}"
    answer: MadeKey = MadeKey.of(made, secret=text or None)
    return answer


@keys_router.delete("/keys/{id}")
async def revoke(id: str, caller: Administering, setup: Given, request: Request) -> ShownKey:
    """Revoke a key: from now on it is good for nothing, elsewhere after a second at most.

    A caller that is bound to projects revokes those that are bound to them alone.
    """
    caller.record("key.revoke", id_of(id))
    revoked = await setup.store.write(Scope(caller.tenant), key_store.revoke, id, caller.projects)
    answer: ShownKey = ShownKey.of(revoked)
    request.app.state.callers.forget()
    return answer


@keys_router.get("/audit")
async def audit(
    caller: Administering, setup: Given, limit: Limit = 50, cursor: Cursor = None
) -> Audit:
    """What was done in the tenant through this service, the newest first."""
    (before,) = cursor_from(cursor, int) or (0,)
    found = await setup.store.read(Scope(caller.tenant), key_store.audit_rows, limit + 1, before)
    more = cursor_to(found[limit - 1]["n"]) if len(found) > limit else None
    return Audit(items=[Entry(**one) for one in found[:limit]], next=more)
