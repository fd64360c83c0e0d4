"""Loops that somebody else drives: begun, reported, looked at, explained, cancelled.

Whoever may approve lets a loop go on past a rule, and answers for it by name.
What other policies would have done with the loops of a project.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from heedful.drive.report import AttemptReport, cancel, open_loop, override, report
from heedful.errors import NotFound
from heedful.loop.decide import Policy
from heedful.loop.policies import goal, policy
from heedful.loop.record import Usage as Spent
from heedful.loop.replay import Figures, compare
from heedful.service.auth import Approving, Project, Reading, Writing
from heedful.service.named_checks import named
from heedful.service.pagination import Cursor, Limit, cursor_from, cursor_to
from heedful.service.setup import Given
from heedful.service.wire.loops import Attempt, Cancel, Decided, Judged, NewLoop, NewOverride
from heedful.service.wire.replay import Replay, Replayed, Row
from heedful.service.wire.shown import Explained, ShownLoop, Summaries, Summary
from heedful.store import loops as loop_store
from heedful.store.history import WHOLE, aimed, recorded
from heedful.store.records import StoredLoop

router: APIRouter = APIRouter(prefix="/v1", tags=["loops"])
Id = Annotated[str, Path(min_length=1, max_length=200, description="The id of a loop.")]
Number = Annotated[int, Path(ge=1, le=2**31 - 1, description="Attempts count from 1.")]
NEW: dict[int | str, Any] = {201: {"description": "The loop is new.", "model": ShownLoop}}


# Ids may hold slashes, so what stands behind one comes first.
@router.put("/loops/{id:path}/attempts/{n}")
async def attempt(
    id: Id, n: Number, told: Attempt, caller: Writing, setup: Given, project: Project = None
) -> Judged:
    """Report an attempt and learn whether to make another; the same report again says the same.

    Another report for the same attempt is a conflict, and so is one that leaves a number out, or
    that comes when the loop has ended.
    """
    scope = caller.scope(project, told.tenant)
    specs = [one.model_dump() for one in told.checks]
    given = AttemptReport(
        told.output,
        told.digest,
        told.evaluation.value() if told.evaluation is not None else None,
        await asyncio.to_thread(named, specs, setup, told.output) if specs else (),
        Spent(**vars(told.usage)),
        request=specs,
        vouched="approve" in caller.may,
    )
    reported = await report(setup.store, scope, id, n, given, setup.memory(scope))
    if reported.new:
        setup.metrics.decided(reported.verdict)
    return Judged.on(reported)


@router.put("/loops/{id:path}", responses=NEW)
async def begin(
    id: Id,
    new: NewLoop,
    caller: Writing,
    setup: Given,
    response: Response,
    project: Project = None,
) -> ShownLoop:
    """Begin a loop, or find it again; another task, context, goals or policy is a conflict."""
    scope = caller.scope(project, new.tenant)
    stored, made = await open_loop(
        setup.store,
        scope,
        id,
        new.task,
        goals=[goal(one) for one in new.goals],
        policy=policy(new.policy) if new.policy is not None else setup.policy,
        context=new.context,
    )
    response.status_code = 201 if made else 200
    return _shown(stored, response)


@router.get("/loops")
async def loops(
    caller: Reading,
    setup: Given,
    limit: Limit = 50,
    cursor: Cursor = None,
    prefix: Annotated[str, Query(max_length=200, description="How the ids begin.")] = "",
    project: Project = None,
) -> Summaries:
    """The loops of a project, the newest first."""
    (before,) = cursor_from(cursor, str) or ("",)
    found = await setup.store.read(
        caller.scope(project), loop_store.newest, limit + 1, prefix, before
    )
    more = cursor_to(found[limit - 1].id) if len(found) > limit else None
    return Summaries(items=[Summary.of(one) for one in found[:limit]], next=more)


@router.get("/loops/{id:path}/explain")
async def explain(id: Id, caller: Reading, setup: Given, project: Project = None) -> Explained:
    """Why a loop went on and why it stopped, in words, and what would have changed it."""
    stored = await setup.store.read(caller.scope(project), loop_store.read, id)
    return await asyncio.to_thread(Explained.of, stored)


@router.get("/loops/{id:path}", response_model=ShownLoop)
async def loop(
    id: Id,
    caller: Reading,
    setup: Given,
    request: Request,
    response: Response,
    project: Project = None,
) -> Any:
    """A loop, whole; 304 where it is still as `If-None-Match` says."""
    stored = await setup.store.read(caller.scope(project), loop_store.read, id)
    if request.headers.get("if-none-match") == _etag(stored):
        return Response(status_code=304, headers={"ETag": _etag(stored)})
    return _shown(stored, response)


@router.post("/loops/{id:path}/cancel")
async def end(
    id: Id, why: Cancel, caller: Writing, setup: Given, project: Project = None
) -> Decided:
    """End a loop; one that has ended stays as it is."""
    scope = caller.scope(project, why.tenant)
    caller.record("loop.cancel", id, why=why.why)
    verdict = await cancel(setup.store, scope, id, caller.by, why.why, setup.memory(scope))
    made: Decided = Decided.after(verdict, await setup.store.read(scope, loop_store.read, id))
    return made


def _shown(stored: StoredLoop, response: Response) -> ShownLoop:
    response.headers["ETag"] = _etag(stored)
    return ShownLoop.of(stored)


def _etag(stored: StoredLoop) -> str:
    """Another one after everything that is written to the loop."""
    state = (stored.id, stored.epoch, stored.updated, len(stored.decisions))
    return f'"{hashlib.sha256(repr(state).encode()).hexdigest()[:16]}"'


overrides_router: APIRouter = APIRouter(prefix="/v1", tags=["loops"])


@overrides_router.post("/loops/{id:path}/overrides", status_code=201)
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
    made: Decided = Decided.after(verdict, await setup.store.read(scope, loop_store.read, id))
    return made


replay_router: APIRouter = APIRouter(prefix="/v1", tags=["loops"])


@replay_router.post("/replay")
async def replay(asked: Replay, caller: Reading, setup: Given, project: Project = None) -> Replayed:
    """Say what each policy would have cost and lost on recorded loops; nothing is written."""
    scope = caller.scope(project, asked.tenant)
    policies = [policy(one) for one in asked.policies]
    if asked.loops is None:
        found: Sequence[StoredLoop] = await setup.store.read(scope, loop_store.newest, asked.limit)
    else:
        found = [
            await setup.store.read(scope, loop_store.read, id) for id in asked.loops[: asked.limit]
        ]
    whole, *figures = await asyncio.to_thread(_compared, found, policies)
    if not whole.loops:
        raise NotFound("loop with an attempt in project", scope.project, "the store")
    rows = [Row.of(one, f"policy {n}") for n, one in enumerate(figures, 1)]
    # Of what it holds, a record can always tell.
    return Replayed(recorded=Row.of(replace(whole, beyond=0)), policies=rows)


def _compared(found: Sequence[StoredLoop], policies: Sequence[Policy]) -> tuple[Figures, ...]:
    return compare(aimed(recorded(found), policies), [WHOLE, *policies])
