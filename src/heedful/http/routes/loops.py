"""Loops that somebody else drives: begun, reported, looked at, explained, cancelled."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from heedful.configured import goal, policy
from heedful.http.caller import Project, Reading, Writing
from heedful.http.checks import named
from heedful.http.pages import Cursor, Limit, cursor_from, cursor_to
from heedful.http.setup import Given
from heedful.http.wire.loops import Attempt, Cancel, Decided, Judged, NewLoop
from heedful.http.wire.shown import Explained, ShownLoop, Summaries, Summary
from heedful.protocols import Stored
from heedful.protocols import Usage as Spent
from heedful.reporting import Told, cancel, open_loop, report

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
    given = Told(
        told.output,
        told.digest,
        told.evaluation.value() if told.evaluation is not None else None,
        await asyncio.to_thread(named, specs, setup, told.output) if specs else (),
        Spent(**vars(told.usage)),
        said=specs,
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
    found = await setup.store.loops(caller.scope(project), limit + 1, prefix, before)
    more = cursor_to(found[limit - 1].id) if len(found) > limit else None
    return Summaries(items=[Summary.of(one) for one in found[:limit]], next=more)


@router.get("/loops/{id:path}/explain")
async def explain(id: Id, caller: Reading, setup: Given, project: Project = None) -> Explained:
    """Why a loop went on and why it stopped, in words, and what would have changed it."""
    stored = await setup.store.read(caller.scope(project), id)
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
    stored = await setup.store.read(caller.scope(project), id)
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
    made: Decided = Decided.after(verdict, await setup.store.read(scope, id))
    return made


def _shown(stored: Stored, response: Response) -> ShownLoop:
    response.headers["ETag"] = _etag(stored)
    return ShownLoop.of(stored)


def _etag(stored: Stored) -> str:
    """Another one after everything that is written to the loop."""
    state = (stored.id, stored.epoch, stored.updated, len(stored.decisions))
    return f'"{hashlib.sha256(repr(state).encode()).hexdigest()[:16]}"'
