"""The quarantine of one scope: what tools and documents said, until a person rules on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from heedful.errors import InvalidInput, NotFound
from heedful.memory.arguments import integer, numbered, several, texts
from heedful.memory.places import Progress
from heedful.memory.trust import Held, Removed
from heedful.protocols import Scope, Store

BATCH = 100  # entries that are screened in one go: about 0.1 s
IDS = "ids of what waits in quarantine"


class Quarantine:
    """What waits for a ruling, and the sources of all that was learnt. Every ruling is on record.

    Bound to a scope: `Memory.quarantine`. All raise StoreError.
    """

    def __init__(self, store: Store, scope: Scope) -> None:
        self._store, self._scope = store, scope

    async def waiting(
        self,
        limit: int = 50,
        progress: Progress | None = None,
        after: tuple[float, int] | None = None,
    ) -> list[Held]:
        """What waits, the worst by the screen first, then the newest. Raises InvalidInput.

        The score is an order to read in; it keeps nothing out and lets nothing in. All that waits
        is screened, beside the event loop; `progress` is told how many of how many were. `after`:
        what comes after the entry of that score and id.
        """
        integer("limit", limit)
        held = await self._store.held(self._scope, None)
        found: list[Held] = []
        for n in range(0, len(held), BATCH):
            found += await asyncio.to_thread(screened, held[n : n + BATCH])
            if progress is not None:
                progress(len(found), len(held))
        if after is not None:
            found = [one for one in found if (one.score, one.id) < after]
        return sorted(found, key=lambda one: (-one.score, -one.id))[:limit]

    async def show(self, id: int) -> Held:
        """An example, waiting or not, and where it comes from. Raises NotFound, InvalidInput."""
        numbered(id)
        for one in await self._store.held(self._scope, [id]):
            provenance = await self._store.provenance(self._scope, one)
            return replace(_screened(one), provenance=provenance)
        where = f"the memory of {self._scope.tenant}/{self._scope.project}"
        raise NotFound("example", str(id), where)

    async def release(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Let these be recalled, with the trust of the operator `by`: all of them, or none.

        Raises NotFound, InvalidInput without an id or an actor, and NotQuarantined where somebody
        ruled before.
        """
        several("ids", ids, int, IDS)
        await self._store.settle(self._scope, ids, "release", by, why)

    async def reject(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Retire these: the same text comes back no more. All or none; raises as `release`."""
        several("ids", ids, int, IDS)
        await self._store.settle(self._scope, ids, "reject", by, why)

    async def revoke(
        self, source: str, *, by: str = "", why: str = "", dry_run: bool = False
    ) -> Removed:
        """Remove all that rests on `source`, and what it saw, in one transaction.

        Also what was derived from it, and what loops learnt with it in their prompts. A lesson that
        others have said, too, stays in their words. With `dry_run` nothing is removed, and nobody
        need answer for it. Raises NotFound where the source left nothing, InvalidInput without a
        name or an actor.
        """
        texts(source=source)
        if not source.strip():
            raise InvalidInput("source", source, "the name of a source")
        return await self._store.revoke(self._scope, source, by, why, dry_run)


def screened(held: Sequence[Held]) -> list[Held]:
    """The same with their scores, 0.3 ms each for 600 characters."""
    return [_screened(one) for one in held]


def _screened(one: Held) -> Held:
    from heedful.memory.screen import screen  # whose many words only this needs

    # Each by itself, since of a long text the screen reads the ends, and all, lest one is split.
    told = dict.fromkeys((*one.texts, "\n".join(one.texts)))
    said = max(map(screen, told), key=lambda screening: screening.score)
    return replace(one, score=said.score, why=said.why)
