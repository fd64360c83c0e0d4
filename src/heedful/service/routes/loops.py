"""Loops whose attempts are made elsewhere, and replays of recorded loops."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from heedful.drive.report import AttemptReport, cancel, open_loop, override, report
from heedful.errors import NotFound
from heedful.loop.decide import Policy, Verdict
from heedful.loop.policies import goal, policy
from heedful.loop.replay import Figures, compare
from heedful.service.auth import Approving, Project, Reading, Writing
from heedful.service.named_checks import load_checks
from heedful.service.schemas import (
    Cancellation,
    LoopExplanation,
    LoopRecord,
    LoopSummary,
    LoopVerdict,
    NewAttempt,
    NewLoop,
    NewOverride,
    ReplayAnswer,
    ReplayRequest,
    ReportVerdict,
)
from heedful.service.setup import RouteSetup
from heedful.service.wire import Cursor, Limit, Page, cursor_from
from heedful.store import loops as loop_store
from heedful.store.history import WHOLE, aimed, recorded
from heedful.store.records import StoredLoop

router: APIRouter = APIRouter(prefix="/v1", tags=["loops"])
Id = Annotated[str, Path(min_length=1, max_length=200, description="The id of a loop.")]
Number = Annotated[int, Path(ge=1, le=2**31 - 1, description="Attempts count from 1.")]
CREATED: dict[int | str, Any] = {201: {"description": "The loop is new.", "model": LoopRecord}}


# Ids may hold slashes, so a path with something behind the id is matched first.
@router.put("/loops/{id:path}/attempts/{n}")
async def attempt(
    id: Id, n: Number, body: NewAttempt, caller: Writing, setup: RouteSetup, project: Project = None
) -> ReportVerdict:
    """Report an attempt and learn whether to make another; the same report gets the same answer.

    409 for a different report of the same attempt, for a number that skips attempts, and for a loop
    that has ended.
    """
    scope = caller.scope(project, body.tenant)
    checks = [check.model_dump() for check in body.checks]
    told = AttemptReport(
        body.output,
        body.digest,
        body.evaluation,
        await asyncio.to_thread(load_checks, checks, setup, body.output) if checks else (),
        body.usage,
        request=checks,
        vouched="approve" in caller.may,
    )
    result = await report(setup.store, scope, id, n, told, setup.memory(scope))
    if result.new:
        setup.metrics.decided(result.verdict)
    return ReportVerdict.on(result)


@router.put("/loops/{id:path}", responses=CREATED)
async def begin(
    id: Id,
    body: NewLoop,
    caller: Writing,
    setup: RouteSetup,
    response: Response,
    project: Project = None,
) -> LoopRecord:
    """Begin a loop, or find it again; another task, context, goals or policy is a conflict."""
    stored, created = await open_loop(
        setup.store,
        caller.scope(project, body.tenant),
        id,
        body.task,
        goals=[goal(notation) for notation in body.goals],
        policy=policy(body.policy) if body.policy is not None else setup.policy,
        context=body.context,
    )
    response.status_code = 201 if created else 200
    response.headers["ETag"] = _etag(stored)
    return LoopRecord.whole(stored)


@router.get("/loops")
async def loops(
    caller: Reading,
    setup: RouteSetup,
    limit: Limit = 50,
    cursor: Cursor = None,
    prefix: Annotated[str, Query(max_length=200, description="How the ids begin.")] = "",
    project: Project = None,
) -> Page[LoopSummary]:
    """List the loops of a project, newest first."""
    (before,) = cursor_from(cursor, str) or ("",)
    scope = caller.scope(project)
    rows = await setup.store.read(scope, loop_store.newest, limit + 1, prefix, before)
    return Page[LoopSummary].of(list(map(LoopSummary.of, rows)), limit, "id")


@router.get("/loops/{id:path}/explain")
async def explain(
    id: Id, caller: Reading, setup: RouteSetup, project: Project = None
) -> LoopExplanation:
    """Explain why a loop went on and why it stopped, and what would have changed that."""
    stored = await setup.store.read(caller.scope(project), loop_store.read, id)
    return await asyncio.to_thread(LoopExplanation.of, stored)


@router.get("/loops/{id:path}", response_model=LoopRecord)
async def loop(
    id: Id,
    caller: Reading,
    setup: RouteSetup,
    request: Request,
    response: Response,
    project: Project = None,
) -> Any:
    """Read a whole loop; 304 if it has not changed since the entity tag in `If-None-Match`."""
    stored = await setup.store.read(caller.scope(project), loop_store.read, id)
    if request.headers.get("if-none-match") == _etag(stored):
        return Response(status_code=304, headers={"ETag": _etag(stored)})
    response.headers["ETag"] = _etag(stored)
    return LoopRecord.whole(stored)


@router.post("/loops/{id:path}/cancel")
async def end(
    id: Id, body: Cancellation, caller: Writing, setup: RouteSetup, project: Project = None
) -> LoopVerdict:
    """End a loop; a loop that has ended stays as it is."""
    scope = caller.scope(project, body.tenant)
    caller.record("loop.cancel", id, why=body.why)
    verdict = await cancel(setup.store, scope, id, caller.by, body.why, setup.memory(scope))
    return LoopVerdict.after(verdict, await setup.store.read(scope, loop_store.read, id))


@router.post("/loops/{id:path}/overrides", status_code=201)
async def lift(
    id: Id, body: NewOverride, caller: Approving, setup: RouteSetup, project: Project = None
) -> LoopVerdict:
    """Let a loop go on past one rule; a loop that only this rule has stopped reopens."""
    scope = caller.scope(project, body.tenant)
    caller.record("loop.override", id, rule=body.rule, why=body.why, decisions=body.decisions)
    options = body.model_dump(exclude={"tenant", "rule"})
    verdict: Verdict = await override(
        id, body.rule, by=caller.by, **options, store=setup.store, scope=scope
    )
    setup.metrics.decided(verdict)
    return LoopVerdict.after(verdict, await setup.store.read(scope, loop_store.read, id))


@router.post("/replay")
async def replay(
    body: ReplayRequest, caller: Reading, setup: RouteSetup, project: Project = None
) -> ReplayAnswer:
    """Compute what each policy would have cost and lost on recorded loops; nothing is written."""
    scope = caller.scope(project, body.tenant)
    policies = [policy(notation) for notation in body.policies]
    if body.loops is None:
        stored: Sequence[StoredLoop] = await setup.store.read(scope, loop_store.newest, body.limit)
    else:
        ids = body.loops[: body.limit]
        stored = [await setup.store.read(scope, loop_store.read, id) for id in ids]
    whole, *figures = await asyncio.to_thread(_figures, stored, policies)
    if not whole.loops:
        raise NotFound("loop with an attempt in project", scope.project, "the store")
    rows = [replace(row, policy=row.policy or f"policy {n}") for n, row in enumerate(figures, 1)]
    # A record can always tell what it holds itself.
    return ReplayAnswer(recorded=replace(whole, beyond=0), policies=rows)


def _figures(stored: Sequence[StoredLoop], policies: Sequence[Policy]) -> tuple[Figures, ...]:
    return compare(aimed(recorded(stored), policies), [WHOLE, *policies])


def _etag(stored: StoredLoop) -> str:
    """Return an entity tag that changes with everything that is written to the loop."""
    state = (stored.id, stored.epoch, stored.updated, len(stored.decisions))
    return f'"{hashlib.sha256(repr(state).encode()).hexdigest()[:16]}"'
