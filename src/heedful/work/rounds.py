"""What is handed over without anybody asking: what was left undone, and what every night is for."""

from __future__ import annotations

from heedful.collecting import gather
from heedful.protocols import Scope
from heedful.work import Work
from heedful.work.tasks import Tools

# Seconds between two looks for what was left undone, and between two nights.
SWEEP = 60.0
NIGHT = 86_400.0
# Episodes of a scope that one look hands over, the oldest; a later one takes the others.
MOST = 1_000


async def sweep(work: Work, tools: Tools) -> None:
    """Hand over the episodes that wait, in whatever scope: who kept them may have been killed.

    And those that are made now of traces which have ended, where whoever got them was killed.
    Neither what somebody is at work on nor what failed, which is tried again by its job as often as
    that is of use. Raises StoreError.
    """
    for scope in await tools.store.scopes(waiting=True):
        await gather(tools.store, scope)
        for digest in await tools.store.episodes.left(scope, MOST) if tools.enabled else ():
            await work.defer("reflect", scope, digest=digest)


async def night(work: Work, tools: Tools) -> None:
    """Hand over, for every scope, what keeps a memory in order. Raises StoreError."""
    for scope in await tools.store.scopes():
        await upkeep(work, tools, scope)


async def upkeep(work: Work, tools: Tools, scope: Scope) -> None:
    """Hand over what keeps the memory of a scope in order, as far as the settings ask for it."""
    await work.defer("prove", scope)
    if tools.embedder is not None:
        await work.defer("embed", scope)
    if tools.enabled and tools.mode == "full":
        await work.defer("dream", scope)
    if tools.unused_for is not None or tools.keep is not None:
        await work.defer("prune", scope)
