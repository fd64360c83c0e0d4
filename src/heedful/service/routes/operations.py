"""The health of the service, its API keys, and its audit log."""

from __future__ import annotations

from collections.abc import Awaitable

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from heedful.errors import Forbidden, StoreError
from heedful.lessons.lesson import Scope
from heedful.service.auth import Administering
from heedful.service.openapi import page
from heedful.service.schemas import (
    AuditEntry,
    Health,
    KeyRow,
    NewKey,
    NewKeyAnswer,
    Readiness,
    SecretKey,
)
from heedful.service.setup import RouteSetup
from heedful.service.wire import Cursor, Limit, Page, cursor_from
from heedful.store import keys as key_store
from heedful.store.keys import id_of, new_id

router: APIRouter = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> Health:
    """Return 200 if the process answers; nothing else is checked."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness, "description": "It is not there."}})
async def readyz(setup: RouteSetup, response: Response) -> Readiness:
    """Return 200 if the store is reachable, has the right schema, and the job queue answers."""
    store, work = (
        await _state(setup.store.read(Scope(), key_store.any_key)),
        await _state(setup.work.depth()),
    )
    ready = store == work == "ok"
    response.status_code = 200 if ready else 503
    return Readiness("ready" if ready else "unavailable", store, work)


async def _state(call: Awaitable[object]) -> str:
    try:
        await call
    except StoreError as error:
        return type(error).__name__
    return "ok"


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(setup: RouteSetup) -> Response:
    """Return the metrics in Prometheus' text format."""
    try:
        waiting = await setup.work.depth()
    except StoreError:
        waiting = None  # the secret is sent too
    text = setup.metrics.text(waiting)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> Response:
    """Return the description of the service as a page for people."""
    safe = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    return HTMLResponse(page(request.app.openapi()), headers={"Content-Security-Policy": safe})


keys_router: APIRouter = APIRouter(prefix="/v1", tags=["keys"])


@keys_router.get("/keys")
async def keys(
    caller: Administering, setup: RouteSetup, limit: Limit = 50, cursor: Cursor = None
) -> Page[KeyRow]:
    """List the keys of the tenant, newest first, without their secrets."""
    after = cursor_from(cursor, float, str)
    rows = await setup.store.read(Scope(caller.tenant), key_store.newest, limit + 1, after)
    return Page[KeyRow].of(rows, limit, "at", "id")


@keys_router.post("/keys", status_code=201)
async def create(
    body: NewKey, caller: Administering, setup: RouteSetup, request: Request, response: Response
) -> NewKeyAnswer:
    """Create a key, whose secret is shown once. It cannot have more rights than the caller."""
    caller.own(body.tenant)
    if caller.projects and not body.projects:
        raise Forbidden("a key limited to projects makes none for all projects; name some")
    for project in body.projects:
        caller.scope(project)
    for may in body.may:
        caller.needs(may)
    request.scope["state"]["secret"] = True  # which is stored nowhere
    id = new_id()
    caller.record("key.create", body.name, id=id, projects=body.projects, may=body.may)
    key, secret = await key_store.create(
        setup.store,
        caller.tenant,
        body.name,
        projects=body.projects,
        may=body.may,
        by=caller.by,
        expires=body.expires,
        id=id,
    )
    response.headers["Location"] = f"/v1/keys/{key.id}"
    return SecretKey.of(key, secret)


@keys_router.delete("/keys/{id}")
async def revoke(id: str, caller: Administering, setup: RouteSetup, request: Request) -> KeyRow:
    """Revoke a key at once; other processes may accept it for one more second.

    A caller limited to projects can revoke only keys that are limited to these projects.
    """
    caller.record("key.revoke", id_of(id))
    revoked = await setup.store.write(Scope(caller.tenant), key_store.revoke, id, caller.projects)
    request.app.state.callers.forget()
    return revoked


@keys_router.get("/audit")
async def audit(
    caller: Administering, setup: RouteSetup, limit: Limit = 50, cursor: Cursor = None
) -> Page[AuditEntry]:
    """List what was done in the tenant through this service, newest first."""
    (before,) = cursor_from(cursor, int) or (0,)
    rows = await setup.store.read(Scope(caller.tenant), key_store.audit_rows, limit + 1, before)
    return Page[AuditEntry].of(rows, limit, "n")
