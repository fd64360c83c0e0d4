"""Consolidation: lessons that say the same are merged, and taken apart again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from heedful.http.caller import Approving, Project, Reading, Writing
from heedful.http.pages import Cursor, Limit, cursor_from, cursor_to
from heedful.http.setup import Given
from heedful.http.wire.body import LARGEST, Why
from heedful.http.wire.quarantine import Dreamt, NewDream, RolledBack, ShownDream
from heedful.memory.dreaming import Dreams, consolidate

router: APIRouter = APIRouter(prefix="/v1/dreams", tags=["dreams"])


@router.post("")
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


@router.get("")
async def log(
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


@router.post("/{id}/rollback")
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
