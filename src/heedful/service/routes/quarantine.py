"""What tools and documents said, until a person rules on it.

Consolidation: lessons that say the same are merged, and taken apart again.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path

from heedful.memory.dream import Dreams, consolidate
from heedful.service.auth import Approving, Project, Reading, Writing
from heedful.service.pagination import Cursor, Limit, cursor_from, cursor_to
from heedful.service.setup import Given
from heedful.service.wire.body import LARGEST, Why
from heedful.service.wire.quarantine import (
    Dreamt,
    NewDream,
    Revocation,
    Revoked,
    RolledBack,
    Ruled,
    Rulings,
    ShownDream,
    ShownHeld,
    ShownRuling,
    ShownWhole,
    Waiting,
)
from heedful.store import exposures

router: APIRouter = APIRouter(prefix="/v1/quarantine", tags=["quarantine"])
Of = Annotated[int, Path(ge=1, le=LARGEST)]


@router.get("")
async def waiting(
    caller: Reading,
    setup: Given,
    project: Project = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Waiting:
    """The entries that wait, the newest first."""
    place: Any = cursor_from(cursor, int)
    quarantine = setup.memory(caller.scope(project)).quarantine
    found = await quarantine.waiting(limit + 1, after=place[0] if place else None)
    more = cursor_to(found[limit - 1].id) if len(found) > limit else None
    return Waiting(items=[ShownHeld.of(one) for one in found[:limit]], next=more)


@router.get("/log")
async def log(caller: Reading, setup: Given, project: Project = None, limit: Limit = 50) -> Rulings:
    """What was ruled on lessons and sources, by whom and why, the newest first."""
    found = await setup.store.read(caller.scope(project), exposures.rulings, limit)
    return Rulings(items=[ShownRuling(**one) for one in found])


@router.post("/revoke")
async def revoke(
    given: Revocation, caller: Approving, setup: Given, project: Project = None
) -> Revoked:
    """Remove a source and all that rests on it, also what was learnt with it in a prompt."""
    scope = caller.scope(project, given.tenant)
    if not given.dry_run:
        caller.record("quarantine.revoke", given.source, project=scope.project, why=given.why)
    removed = await setup.memory(scope).quarantine.revoke(
        given.source, by=caller.by, why=given.why, dry_run=given.dry_run
    )
    return Revoked.of(given.source, not given.dry_run, removed)


@router.get("/{id}")
async def show(id: Of, caller: Reading, setup: Given, project: Project = None) -> ShownWhole:
    """One entry: its words, where they come from, and what was ruled on it."""
    return ShownWhole.of(await setup.memory(caller.scope(project)).quarantine.show(id))


@router.post("/{id}/release")
async def release(
    id: Of, given: Why, caller: Approving, setup: Given, project: Project = None
) -> Ruled:
    """Let an entry be recalled from now on, with an operator's trust; on record."""
    scope = caller.scope(project, given.tenant)
    caller.record("quarantine.release", str(id), project=scope.project, why=given.why)
    await setup.memory(scope).quarantine.release([id], by=caller.by, why=given.why)
    return Ruled(id=id, state="candidate", by=caller.by, why=given.why)


@router.post("/{id}/reject")
async def reject(
    id: Of, given: Why, caller: Approving, setup: Given, project: Project = None
) -> Ruled:
    """Retire an entry; the same text does not come back. On record."""
    scope = caller.scope(project, given.tenant)
    caller.record("quarantine.reject", str(id), project=scope.project, why=given.why)
    await setup.memory(scope).quarantine.reject([id], by=caller.by, why=given.why)
    return Ruled(id=id, state="retired", by=caller.by, why=given.why)


dreams_router: APIRouter = APIRouter(prefix="/v1/dreams", tags=["dreams"])


@dreams_router.post("")
async def dream(
    given: NewDream, caller: Writing, setup: Given, project: Project = None
) -> ShownDream:
    """Merge lessons that say the same, where recall is none the worse; undone by one call."""
    scope = caller.scope(project, given.tenant)
    if not given.dry_run:
        caller.record("dream", scope.project, mode=given.mode)
    one = await consolidate(
        setup.memory(scope),
        mode=given.mode,
        dry_run=given.dry_run,
        model=setup.model,
        by=caller.by,
    )
    return ShownDream.of(one)


@dreams_router.get("")
async def dreams_log(
    caller: Reading,
    setup: Given,
    project: Project = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Dreamt:
    """The dreams, the newest first, also those that changed nothing, and why."""
    (before,) = cursor_from(cursor, int) or (None,)
    found = await Dreams(setup.memory(caller.scope(project))).log(limit + 1, before)
    more = cursor_to(found[limit - 1].id) if len(found) > limit else None
    return Dreamt(items=[ShownDream.of(one) for one in found[:limit]], next=more)


@dreams_router.post("/{id}/rollback")
async def rollback(
    id: Annotated[int, Path(ge=1, le=LARGEST)],
    given: Why,
    caller: Approving,
    setup: Given,
    project: Project = None,
) -> RolledBack:
    """Take a dream back: recall is as it was before; what came after it stays. On record."""
    scope = caller.scope(project, given.tenant)
    caller.record("dream.rollback", str(id), project=scope.project, why=given.why)
    back = await Dreams(setup.memory(scope)).rollback(id, by=caller.by, why=given.why)
    return RolledBack(id=id, lessons=back)
