"""The quarantine: lessons from tools and documents wait until a person rules on them.

They never reach a prompt before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from heedful.errors import InvalidInput, NotFound
from heedful.lessons.lesson import Scope, check_id, check_sequence, check_texts
from heedful.lessons.trust import QuarantinedLesson, RevocationResult
from heedful.loop.record import check_integer
from heedful.store import quarantine
from heedful.store.store import Store

IDS = "ids of what waits in quarantine"


class Quarantine:
    """The entries of one scope that wait for a ruling; every ruling is recorded.

    Made by `Memory.quarantine`. All methods raise StoreError.
    """

    def __init__(self, store: Store, scope: Scope) -> None:
        self._store, self._scope = store, scope

    async def waiting(self, limit: int = 50, after: int | None = None) -> list[QuarantinedLesson]:
        """Return the entries that wait, the newest first. Raises InvalidInput.

        `after` is the id of an entry: only older ones are returned.
        """
        check_integer("limit", limit)
        held = await self._store.read(self._scope, quarantine.entries, None)
        older = [entry for entry in held if after is None or entry.id < after]
        return sorted(older, key=lambda entry: -entry.id)[:limit]

    async def show(self, id: int) -> QuarantinedLesson:
        """Return an entry, waiting or not, with its provenance. Raises NotFound, InvalidInput."""
        check_id(id)
        for entry in await self._store.read(self._scope, quarantine.entries, [id]):
            provenance = await self._store.read(self._scope, quarantine.provenance, entry)
            return replace(entry, provenance=provenance)
        where = f"the memory of {self._scope.tenant}/{self._scope.project}"
        raise NotFound("example", str(id), where)

    async def release(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Let these entries be recalled, with the trust of an operator: all of them, or none.

        Raises NotFound, InvalidInput without an id or an actor, and NotQuarantined if somebody
        ruled before.
        """
        check_sequence("ids", ids, int, IDS)
        await self._store.write(self._scope, quarantine.settle, ids, "release", by, why)

    async def reject(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Retire these entries; the same text does not return. All or none; raises as `release`."""
        check_sequence("ids", ids, int, IDS)
        await self._store.write(self._scope, quarantine.settle, ids, "reject", by, why)

    async def revoke(
        self, source: str, *, by: str = "", why: str = "", dry_run: bool = False
    ) -> RevocationResult:
        """Remove everything that depends on `source`, and its sightings, in one transaction.

        This includes what was derived from it and what loops learnt with it in their prompts. A
        lesson that other sources gave too stays in their words. With `dry_run` nothing is removed
        and no actor is needed. Raises NotFound if the source left nothing, InvalidInput without a
        name or an actor.
        """
        check_texts(source=source)
        if not source.strip():
            raise InvalidInput("source", source, "the name of a source")
        return await self._store.write(self._scope, quarantine.revoke, source, by, why, dry_run)
