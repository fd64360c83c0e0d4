"""The store over SQL: its rooms, each call one transaction, whatever the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heedful.errors import StoreError
from heedful.lessons.export import Effect
from heedful.lessons.learn import Reflection
from heedful.lessons.lesson import ANY, Change, Filter, Found, Remembered, Scope, Wanted
from heedful.lessons.patterns import Seen
from heedful.lessons.proof import Cases, Comparison, Exposure, Outcome, Past
from heedful.lessons.signature import Signature
from heedful.lessons.trust import Action, Held, Provenance, Quota, Removed
from heedful.store import episodes, lessons, loops, quarantine, search
from heedful.store import episodes as pending
from heedful.store import exposures as shown
from heedful.store import lessons as size
from heedful.store import patterns as grouping
from heedful.store import patterns as listing
from heedful.store import search as places
from heedful.store.contract import Dreams, Episodes, Pending
from heedful.store.database import MEMORY, Access, Db
from heedful.store.idempotency import Attended, SqlAnswers
from heedful.store.keys import SqlAudit, SqlKeys
from heedful.store.records import Entry, Head, Known, Stored


def of_loop(id: str) -> str:
    """What a transaction that changes a loop holds until its end."""
    return f"loop {id}"


class SqlStore:
    """A Store over SQL. A method is one transaction and may be called from any event loop."""

    def __init__(self, url: str, access: Access) -> None:
        self.url = url
        self._access: Access = Attended(access)

    async def begin(self, scope: Scope, id: str, head: Head) -> tuple[Stored, bool]:
        """The loop, created where it is new, and whether it is. Raises Conflict."""
        return await self._access.write(
            scope, lambda db: loops.begin(db, scope, id, head, time.time()), (of_loop(id),)
        )

    async def known(self, scope: Scope, id: str, window: int) -> Known:
        """The loop for whoever decides it without driving it. Raises NotFound."""
        given = (id, window, time.time(), self.url)
        return await self._access.read(scope, lambda db: loops.known(db, scope, *given))

    async def claim(self, scope: Scope, id: str, head: Head, owner: str) -> Stored:
        """Take the loop over, creating it where it is new. Raises LeaseLost, Conflict."""
        return await self._access.write(
            scope, lambda db: loops.claim(db, scope, id, head, owner, time.time()), (of_loop(id),)
        )

    async def beat(self, scope: Scope, id: str, epoch: int) -> None:
        """Renew the lease. Raises LeaseLost."""
        await self._access.write(
            scope, lambda db: loops.beat(db, scope, id, epoch, time.time()), (of_loop(id),)
        )

    async def commit(self, scope: Scope, entry: Entry, owner: str) -> None:
        """Write all of `entry` or nothing. Raises LeaseLost, Conflict."""
        teaches = entry.reflections or entry.exposures or entry.outcome is not None
        await self._access.write(
            scope,
            lambda db: loops.commit(db, scope, entry, owner, time.time()),
            (of_loop(entry.id), *(MEMORY if teaches else ())),
        )

    async def read(self, scope: Scope, id: str) -> Stored:
        """The loop as it stands. Raises NotFound."""
        return await self._access.read(scope, lambda db: loops.read(db, scope, id, self.url))

    async def loops(
        self, scope: Scope, limit: int, prefix: str = "", before: str = ""
    ) -> Sequence[Stored]:
        """The newest loops whose id begins with `prefix`, newest first; or those `before` one."""
        given = (limit, prefix, before)
        return await self._access.read(scope, lambda db: loops.newest(db, scope, *given))

    async def echoes(self, scope: Scope, id: str, window: int) -> Mapping[str, int]:
        """In how many attempts of the `window` newest other loops each finding key was seen."""
        return await self._access.read(scope, lambda db: loops.echoes(db, scope, id, window))

    async def remember(
        self,
        scope: Scope,
        reflections: Sequence[Reflection],
        *,
        exposures: Sequence[Exposure] = (),
        outcome: Outcome | None = None,
        most: int = 0,
        quota: Quota | None = None,
    ) -> Sequence[Remembered]:
        """Count each sighting, creating what is new; and write down what a loop was shown."""

        def work(db: Db) -> list[Remembered]:
            now = time.time()
            shown.expose(db, scope, exposures, outcome, now)
            new = shown.untaught(db, scope, reflections)
            answers = lessons.remember(db, scope, new, now, quota)
            return size.evict(db, scope, answers, most)

        return await self._access.write(scope, work)

    async def reflections(self, scope: Scope, limit: int) -> Sequence[Mapping[str, Any]]:
        """The reflections most often seen, as plain data."""
        return await self._access.read(scope, lambda db: lessons.top(db, scope, limit))

    async def listed(self, scope: Scope, wanted: Wanted, limit: int) -> Sequence[Mapping[str, Any]]:
        """Lessons as plain data, the newest first, without words that are held back."""
        return await self._access.read(scope, lambda db: listing.listed(db, scope, wanted, limit))

    async def amend(
        self, scope: Scope, id: int, edition: str, change: Change, by: str, why: str
    ) -> Mapping[str, Any]:
        """Change a lesson that is still of that edition, on record. Raises NotFound, Changed."""
        given = (id, edition, change, by, why, time.time())
        return await self._access.write(scope, lambda db: listing.amend(db, scope, *given))

    async def seen(self, scope: Scope, signature: Signature) -> Seen:
        """The lessons of a pattern, and of those it is grouped with."""
        return await self._access.read(scope, lambda db: grouping.seen(db, scope, signature))

    async def patterns(self, scope: Scope, error_type: str = "") -> Sequence[Mapping[str, Any]]:
        """Patterns that are grouped, and those kept apart, the most seen first."""
        return await self._access.read(scope, lambda db: grouping.patterns(db, scope, error_type))

    async def set_apart(
        self, scope: Scope, digests: Sequence[str], apart: bool, by: str, why: str
    ) -> None:
        """Keep patterns apart from all others, or no longer; on record. Raises NotFound."""
        now = time.time()
        await self._access.write(
            scope, lambda db: grouping.set_apart(db, scope, digests, apart, by, why, now)
        )

    async def pin(self, scope: Scope, id: int, pinned: bool, by: str, why: str) -> None:
        """Keep a lesson from eviction and pruning, or no longer; on record. Raises NotFound."""
        await self._access.write(
            scope, lambda db: size.pin(db, scope, id, pinned, by, why, time.time())
        )

    async def prune(
        self, scope: Scope, unused_for: float, keep: int, by: str, dry_run: bool
    ) -> Sequence[Mapping[str, Any]]:
        """Remove lessons not used for so many seconds, then the least useful beyond `keep`."""
        now = time.time()
        if dry_run:
            return await self._access.read(
                scope, lambda db: size.prunable(db, scope, unused_for, keep, now)
            )
        return await self._access.write(
            scope, lambda db: size.prune(db, scope, unused_for, keep, by, now)
        )

    async def search(
        self,
        scope: Scope,
        text: str,
        space: str,
        vector: Sequence[float] | None,
        limit: int,
        only: Filter | None = None,
    ) -> Sequence[Found]:
        """Examples near `text`: at most `limit` by full text and `limit` by vector."""
        given = (scope, text, space, vector, limit, only or ANY)
        return await self._access.read(scope, lambda db: search.search(db, *given))

    async def held(self, scope: Scope, ids: Sequence[int] | None) -> Sequence[Held]:
        """Examples by their ids, the newest first; with None all that wait in quarantine."""
        return await self._access.read(scope, lambda db: quarantine.held(db, scope, ids))

    async def provenance(self, scope: Scope, one: Held) -> Provenance:
        """Where an example comes from, and what was ruled on it."""
        return await self._access.read(scope, lambda db: quarantine.provenance(db, scope, one))

    async def settle(
        self, scope: Scope, ids: Sequence[int], action: Action, by: str, why: str
    ) -> None:
        """Release or reject what waits in quarantine, all of it or nothing; on record."""
        now = time.time()
        await self._access.write(
            scope, lambda db: quarantine.settle(db, scope, ids, action, by, why, now)
        )

    async def revoke(self, scope: Scope, source: str, by: str, why: str, dry_run: bool) -> Removed:
        """Remove all that rests on a source; on record. `dry_run` only counts."""
        given = (source, by, why, time.time(), dry_run)
        return await self._access.write(scope, lambda db: quarantine.revoke(db, scope, *given))

    async def past(self, scope: Scope, loop: str) -> Past:
        """What the loop was shown, and how many loops of the scope have come to an outcome."""
        return await self._access.read(scope, lambda db: shown.past(db, scope, loop))

    async def evidence(self, scope: Scope, most_calls: int) -> tuple[Cases, int]:
        """What the opportunities of the scope came to, and how many loops are under way."""
        return await self._access.read(
            scope, lambda db: shown.evidence(db, scope, most_calls, time.time())
        )

    async def conclude(
        self, scope: Scope, useful: Mapping[str, float], hurting: Sequence[Comparison]
    ) -> Sequence[str]:
        """Retire what is proven to hurt, on record, and set by what lessons are ranked."""
        return await self._access.write(
            scope, lambda db: shown.conclude(db, scope, useful, hurting, time.time())
        )

    async def restore(self, scope: Scope, id: int, by: str, why: str) -> None:
        """Bring back a lesson that a proof retired; on record. Raises NotFound."""
        await self._access.write(
            scope, lambda db: shown.restore(db, scope, id, by, why, time.time())
        )

    async def rulings(self, scope: Scope, limit: int) -> Sequence[Mapping[str, Any]]:
        """What was done to which lessons, by whom and why, newest first."""
        return await self._access.read(scope, lambda db: shown.rulings(db, scope, limit))

    async def export(
        self, scope: Scope, write: Callable[[Mapping[str, Any]], None], vectors: bool
    ) -> None:
        """Hand the records of an export to `write` but for the last, on a connection of its own."""
        from heedful.store import transfer as outgoing  # which a loop can do without

        going = True

        def told(record: Mapping[str, Any]) -> None:
            if not going:
                raise StoreError("nobody waits for the export any more")
            write(record)

        try:
            await self._access.apart(scope, lambda db: outgoing.export(db, scope, told, vectors))
        finally:
            going = False

    async def absorb(
        self, scope: Scope, records: Sequence[Mapping[str, Any]], source: str, by: str, why: str
    ) -> Sequence[Effect]:
        """Write records of an export, in its order, unless they are known; what became of each."""
        from heedful.store import transfer as incoming

        given = (records, source, by, why, time.time())
        return await self._access.write(scope, lambda db: incoming.absorb(db, scope, *given))

    async def spaces(self, scope: Scope) -> Mapping[str, int]:
        """Space -> how many examples that may be recalled lie in it; "" those without a vector."""
        return await self._access.read(scope, lambda db: places.spaces(db, scope))

    async def unplaced(
        self, scope: Scope, space: str, after: int, limit: int
    ) -> Sequence[tuple[int, str]]:
        """The examples above the id `after` without a vector in that space: id and task."""
        return await self._access.read(
            scope, lambda db: places.unplaced(db, scope, space, after, limit)
        )

    async def place(
        self, scope: Scope, space: str, found: Sequence[tuple[int, str, Sequence[float]]]
    ) -> int:
        """Write vectors by id and task, each where its example still has that task; how many."""
        return await self._access.write(scope, lambda db: places.place(db, scope, space, found))

    @property
    def dreams(self) -> Dreams:
        """Consolidations: what they see and do, and how they are undone."""
        from heedful.store.dreams import SqlDreams

        return SqlDreams(self._access)

    @property
    def audit(self) -> SqlAudit:
        """What was done through a service, and by whom."""
        from heedful.store.keys import SqlAudit

        return SqlAudit(self._access)

    @property
    def answers(self) -> SqlAnswers:
        """What calls that may come again were answered."""
        from heedful.store.idempotency import SqlAnswers

        return SqlAnswers(self._access)

    @property
    def keys(self) -> SqlKeys:
        """Who may call a service, and for what."""
        from heedful.store.keys import SqlKeys

        return SqlKeys(self._access)

    @property
    def episodes(self) -> Episodes:
        """The episodes that were read, and what became of them."""
        return episodes.SqlEpisodes(self._access)

    async def scopes(self, waiting: bool = False) -> Sequence[Scope]:
        """The scopes that have lessons, or where traces or episodes wait."""
        name = "scopes_waiting" if waiting else "scopes"
        rows = await self._access.read(Scope(), lambda db: db.named(name).fetchall())
        return [Scope(*row) for row in rows]

    @property
    def pending(self) -> Pending:
        """The traces that have not ended."""
        return pending.SqlPending(self._access)

    async def clear(self, scope: Scope) -> int:
        """Forget the reflections of the scope, and what they came to; how many there were."""

        def work(db: Db) -> int:
            shown.clear(db, scope)
            episodes.clear(db, scope)
            pending.clear_pending(db, scope)
            return lessons.clear(db, scope)

        return await self._access.write(scope, work)

    async def count(self, scope: Scope) -> int:
        """How many reflections the scope has."""
        return await self._access.read(scope, lambda db: lessons.count(db, scope))

    async def close(self) -> None:
        """Finish what is under way and let go of the database; used again, it opens again."""
        await self._access.close()
