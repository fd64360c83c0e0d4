"""Quarantine: the lessons that wait until a person decides about them.

Lessons from tools and documents wait here, and no prompt contains them. A person
releases or rejects a lesson, states a source by its name, or revokes a source with all
that derives from it. Each decision is recorded with its author and reason.
"""

from collections.abc import Collection, Sequence, Set
from dataclasses import replace

from heedful.errors import NotFound
from heedful.lessons.lesson import Scope
from heedful.lessons.origin import check_name
from heedful.lessons.quarantine import QuarantinedLesson, RevocationResult
from heedful.store import (
    exposures as exposure_store,
    keys as key_store,
    quarantine as quarantine_store,
)
from heedful.store.connection import MAX_ROWS
from heedful.store.store import Store
from heedful.validation import (
    check_actor,
    check_integer,
    check_sequence,
    check_texts,
    require,
)

_IDS_FORM = "ids of what waits in quarantine"


class Quarantine:
    """The quarantine of one scope: lessons that wait for a review.

    Every decision is recorded. `Memory.quarantine` returns one; `stated` are the names
    of sources that its memory states. All methods raise StoreError.
    """

    def __init__(
        self, store: Store, scope: Scope, stated: Set[str] = frozenset()
    ) -> None:
        self._store = store
        self._scope = scope
        self._stated = frozenset(stated)

    async def waiting(
        self, limit: int = 50, after: int | None = None
    ) -> list[QuarantinedLesson]:
        """Return the newest lessons in quarantine, with ids below `after`.

        Raises InvalidInput.
        """
        check_integer("limit", limit)
        before = MAX_ROWS if after is None else after
        return await self._store.read(
            self._scope, quarantine_store.quarantined, limit=limit, before=before
        )

    async def restore(self, id: int, *, by: str, why: str = "") -> None:
        """Bring back a lesson that a proof retired; only later evidence counts for it.

        The decision is recorded. Raises NotFound, InvalidInput without an actor.
        """
        check_integer("id", id, least=0)
        await self._store.write(self._scope, exposure_store.restore, id, by=by, why=why)

    async def show(self, id: int) -> QuarantinedLesson:
        """Return a lesson that is or was in quarantine.

        Raises NotFound, InvalidInput.
        """
        check_integer("id", id, least=0)
        entries = await self._store.read(
            self._scope, quarantine_store.quarantined, [id]
        )
        if not entries:
            where = f"the memory of {self._scope.tenant}/{self._scope.project}"
            raise NotFound("example", str(id), where)

        entry = entries[0]
        provenance = await self._store.read(
            self._scope, quarantine_store.provenance, entry
        )
        return replace(entry, provenance=provenance)

    async def release(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Release lessons from quarantine; they get the trust `user`.

        If one lesson cannot be released, none is. Raises NotFound, InvalidInput without
        an id or an actor, and NotQuarantined after an earlier decision.
        """
        check_sequence("ids", ids, int, _IDS_FORM)
        await self._store.write(
            self._scope, quarantine_store.settle, ids, action="release", by=by, why=why
        )

    async def reject(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Retire lessons in quarantine; refuse their texts in future.

        Raises as `release` does.
        """
        check_sequence("ids", ids, int, _IDS_FORM)
        await self._store.write(
            self._scope, quarantine_store.settle, ids, action="reject", by=by, why=why
        )

    async def undo(self, ids: Sequence[int], *, by: str, why: str = "") -> None:
        """Take back what was decided about lessons; they wait in quarantine again.

        The words of a rejected lesson may be stored again. Prompts that were shown a
        released lesson keep it. If one decision cannot be taken back, none is. Raises
        NotFound for a lesson that nobody decided about, InvalidInput.
        """
        check_sequence("ids", ids, int, _IDS_FORM)
        await self._store.write(self._scope, quarantine_store.undo, ids, by=by, why=why)

    async def state(
        self, *names: str, by: str, why: str = "", remove: bool = False
    ) -> Sequence[int]:
        """State sources by their names: what they say is told at once from now on.

        A name is that of a program or a tool that fetches, of an MCP server, `key:ID`
        or `reviewer:LOGIN`. What waits only because of stated sources is released;
        returns the ids. With `remove`, the names are stated no more. Raises
        InvalidInput.
        """
        for name in names:
            check_name(name)
        require(names, "names", names, "at least one name of a source")
        check_actor(by, why)
        return await self._store.write(
            self._scope,
            quarantine_store.state_names,
            names,
            by=by,
            why=why,
            own=self._stated,
            is_stated=not remove,
        )

    async def stated(self) -> frozenset[str]:
        """Return the names of sources that people stated, those of this memory too."""
        names = await self._store.read(self._scope, quarantine_store.stated_names)
        return self._stated | names

    async def believed(self) -> frozenset[str]:
        """Return the stated names, and the keys of a service that an operator made."""
        return await self._store.read(
            self._scope, quarantine_store.believed_names, self._stated
        )

    async def has_strict(self, keys: Collection[str]) -> bool:
        """Return True if one of these keys of a service was created as from outside.

        Then strict rules hold for what it sends.
        """
        if not keys:
            return False
        stated = await self._store.read(self._scope, key_store.stated_keys)
        return not stated.issuperset(keys)

    async def revoke(
        self, source: str, *, by: str = "", why: str = "", dry_run: bool = False
    ) -> RevocationResult:
        """Remove everything that depends on `source`, and its sightings.

        One transaction also removes what was derived from the source, and what loops
        learnt with its text in their prompts. A lesson that also came from other
        sources stays, in the words of these sources. With `dry_run` nothing is removed,
        and no actor is needed. Raises NotFound for an unknown source, InvalidInput
        without a name or an actor.
        """
        check_texts(source=source)
        require(source.strip(), "source", source, "the name of a source")
        return await self._store.write(
            self._scope,
            quarantine_store.revoke,
            source,
            by=by,
            why=why,
            dry_run=dry_run,
        )
