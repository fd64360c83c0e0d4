"""What other policies would have done with the loops of a project."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from fastapi import APIRouter

from heedful.accounts import WHOLE, aimed, recorded
from heedful.configured import policy
from heedful.errors import NotFound
from heedful.http.caller import Project, Reading
from heedful.http.setup import Given
from heedful.http.wire.replay import Replay, Replayed, Row
from heedful.loop.decide import Policy
from heedful.loop.replay import Figures, compare
from heedful.protocols import Stored

router: APIRouter = APIRouter(prefix="/v1", tags=["loops"])


@router.post("/replay")
async def replay(asked: Replay, caller: Reading, setup: Given, project: Project = None) -> Replayed:
    """Say what each policy would have cost and lost on recorded loops; nothing is written."""
    scope = caller.scope(project, asked.tenant)
    policies = [policy(one) for one in asked.policies]
    if asked.loops is None:
        found: Sequence[Stored] = await setup.store.loops(scope, asked.limit)
    else:
        found = [await setup.store.read(scope, id) for id in asked.loops[: asked.limit]]
    whole, *figures = await asyncio.to_thread(_compared, found, policies)
    if not whole.loops:
        raise NotFound("loop with an attempt in project", scope.project, "the store")
    rows = [Row.of(one, f"policy {n}") for n, one in enumerate(figures, 1)]
    # Of what it holds, a record can always tell.
    return Replayed(recorded=Row.of(replace(whole, beyond=0)), policies=rows)


def _compared(found: Sequence[Stored], policies: Sequence[Policy]) -> tuple[Figures, ...]:
    return compare(aimed(recorded(found), policies), [WHOLE, *policies])
