"""Whoever may approve lets a loop go on past a rule, and answers for it by name."""

from __future__ import annotations

from fastapi import APIRouter

from heedful.http.caller import Approving, Project
from heedful.http.routes.loops import Id
from heedful.http.setup import Given
from heedful.http.wire.loops import Decided, NewOverride
from heedful.overrides import override

router: APIRouter = APIRouter(prefix="/v1", tags=["loops"])


@router.post("/loops/{id:path}/overrides", status_code=201)
async def lift(
    id: Id, new: NewOverride, caller: Approving, setup: Given, project: Project = None
) -> Decided:
    """Let a loop go on past one rule; one that was stopped by it alone reopens."""
    scope = caller.scope(project, new.tenant)
    caller.record("loop.override", id, rule=new.rule, why=new.why, decisions=new.decisions)
    verdict = await override(
        id,
        new.rule,
        by=caller.by,
        why=new.why,
        decisions=new.decisions,
        until=new.until,
        store=setup.store,
        scope=scope,
    )
    setup.metrics.decided(verdict)
    made: Decided = Decided.after(verdict, await setup.store.read(scope, id))
    return made
