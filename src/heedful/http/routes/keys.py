"""Keys, and what was done with them: made, listed, revoked, on record."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from heedful.errors import Forbidden
from heedful.http.caller import Administering
from heedful.http.pages import Cursor, Limit, cursor_from, cursor_to
from heedful.http.setup import Given
from heedful.http.wire.keys import Audit, Entry, Keys, MadeKey, NewKey, ShownKey
from heedful.store.keys import id_of, new_id

router: APIRouter = APIRouter(prefix="/v1", tags=["keys"])


@router.get("/keys")
async def keys(
    caller: Administering, setup: Given, limit: Limit = 50, cursor: Cursor = None
) -> Keys:
    """The keys of the tenant, the newest first, without their secrets."""
    after = cursor_from(cursor, float, str)
    found = await setup.store.keys.newest(caller.tenant, limit + 1, after)
    more = cursor_to(found[limit - 1].at, found[limit - 1].id) if len(found) > limit else None
    return Keys(items=[ShownKey.of(one) for one in found[:limit]], next=more)


@router.post("/keys", status_code=201)
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
    made, text = await setup.store.keys.create(
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


@router.delete("/keys/{id}")
async def revoke(id: str, caller: Administering, setup: Given, request: Request) -> ShownKey:
    """Revoke a key: from now on it is good for nothing, elsewhere after a second at most.

    A caller that is bound to projects revokes those that are bound to them alone.
    """
    caller.record("key.revoke", id_of(id))
    revoked = await setup.store.keys.revoke(caller.tenant, id, caller.projects)
    answer: ShownKey = ShownKey.of(revoked)
    request.app.state.callers.forget()
    return answer


@router.get("/audit")
async def audit(
    caller: Administering, setup: Given, limit: Limit = 50, cursor: Cursor = None
) -> Audit:
    """What was done in the tenant through this service, the newest first."""
    (before,) = cursor_from(cursor, int) or (0,)
    found = await setup.store.audit.newest(caller.tenant, limit + 1, before)
    more = cursor_to(found[limit - 1]["n"]) if len(found) > limit else None
    return Audit(items=[Entry(**one) for one in found[:limit]], next=more)
