"""Text of tools and documents until a person rules on it, and the consolidation of lessons."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path

from heedful.lessons.trust import QuarantinedLesson
from heedful.memory.dream import Dreams, consolidate
from heedful.service.auth import Approving, Project, Reading, Writing
from heedful.service.schemas import (
    DreamRecord,
    NewDream,
    QuarantineRow,
    Revocation,
    RevocationAnswer,
    RollbackAnswer,
    Ruling,
    RulingReceipt,
    Rulings,
)
from heedful.service.setup import RouteSetup
from heedful.service.wire import LARGEST_ID, Cursor, Limit, Page, Reason, cursor_from
from heedful.store import exposures

router: APIRouter = APIRouter(prefix="/v1/quarantine", tags=["quarantine"])
Id = Annotated[int, Path(ge=1, le=LARGEST_ID)]


@router.get("")
async def waiting(
    caller: Reading,
    setup: RouteSetup,
    project: Project = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[QuarantineRow]:
    """List the waiting entries, newest first."""
    (after,) = cursor_from(cursor, int) or (None,)
    quarantine = setup.memory(caller.scope(project)).quarantine
    rows = await quarantine.waiting(limit + 1, after=after)
    return Page[QuarantineRow].of(rows, limit, "id")


@router.get("/log")
async def log(
    caller: Reading, setup: RouteSetup, project: Project = None, limit: Limit = 50
) -> Rulings:
    """List the rulings on lessons and sources, by whom and why, newest first."""
    rows = await setup.store.read(caller.scope(project), exposures.rulings, limit)
    return Rulings(items=[Ruling(**row) for row in rows])


@router.post("/revoke")
async def revoke(
    body: Revocation, caller: Approving, setup: RouteSetup, project: Project = None
) -> RevocationAnswer:
    """Remove a source and all that derives from it, also lessons learnt with it in a prompt."""
    scope = caller.scope(project, body.tenant)
    if not body.dry_run:
        caller.record("quarantine.revoke", body.source, project=scope.project, why=body.why)
    removed = await setup.memory(scope).quarantine.revoke(
        body.source, by=caller.by, why=body.why, dry_run=body.dry_run
    )
    return RevocationAnswer(source=body.source, revoked=not body.dry_run, **asdict(removed))


@router.get("/{id}")
async def show(
    id: Id, caller: Reading, setup: RouteSetup, project: Project = None
) -> QuarantinedLesson:
    """Show one entry: its words, where they come from, and the rulings on it."""
    return await setup.memory(caller.scope(project)).quarantine.show(id)


@router.post("/{id}/release")
async def release(
    id: Id, body: Reason, caller: Approving, setup: RouteSetup, project: Project = None
) -> RulingReceipt:
    """Let an entry be recalled from now on, with an operator's trust; on record."""
    scope = caller.scope(project, body.tenant)
    caller.record("quarantine.release", str(id), project=scope.project, why=body.why)
    await setup.memory(scope).quarantine.release([id], by=caller.by, why=body.why)
    return RulingReceipt(id, "candidate", caller.by, body.why)


@router.post("/{id}/reject")
async def reject(
    id: Id, body: Reason, caller: Approving, setup: RouteSetup, project: Project = None
) -> RulingReceipt:
    """Retire an entry; the same text does not come back. On record."""
    scope = caller.scope(project, body.tenant)
    caller.record("quarantine.reject", str(id), project=scope.project, why=body.why)
    await setup.memory(scope).quarantine.reject([id], by=caller.by, why=body.why)
    return RulingReceipt(id, "retired", caller.by, body.why)


dreams_router: APIRouter = APIRouter(prefix="/v1/dreams", tags=["dreams"])


@dreams_router.post("")
async def dream(
    body: NewDream, caller: Writing, setup: RouteSetup, project: Project = None
) -> DreamRecord:
    """Merge lessons that say the same, unless recall gets worse; one call undoes it."""
    scope = caller.scope(project, body.tenant)
    if not body.dry_run:
        caller.record("dream", scope.project, mode=body.mode)
    return await consolidate(
        setup.memory(scope),
        mode=body.mode,
        dry_run=body.dry_run,
        by=caller.by,
    )


@dreams_router.get("", name="log")
async def dreams_log(
    caller: Reading,
    setup: RouteSetup,
    project: Project = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[DreamRecord]:
    """List the dreams, newest first, also those that changed nothing, and why."""
    (before,) = cursor_from(cursor, int) or (None,)
    dreams = await Dreams(setup.memory(caller.scope(project))).log(limit + 1, before)
    return Page[DreamRecord].of(dreams, limit, "id")


@dreams_router.post("/{id}/rollback")
async def rollback(
    id: Id, body: Reason, caller: Approving, setup: RouteSetup, project: Project = None
) -> RollbackAnswer:
    """Undo a dream: recall is as it was before; later changes stay. On record."""
    scope = caller.scope(project, body.tenant)
    caller.record("dream.rollback", str(id), project=scope.project, why=body.why)
    back = await Dreams(setup.memory(scope)).rollback(id, by=caller.by, why=body.why)
    return RollbackAnswer(id, back)
