"""What a service asks of a store while the spans of a trace come in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from heedful.lessons.consolidate import Lesson, Proposal
from heedful.lessons.export import Effect
from heedful.lessons.learn import Reflection, Trust
from heedful.lessons.lesson import Change, Filter, Found, Remembered, Scope, Wanted
from heedful.lessons.patterns import Seen
from heedful.lessons.proof import Cases, Comparison, Exposure, Outcome, Past
from heedful.lessons.signature import Signature
from heedful.lessons.trust import Action, Held, Provenance, Quota, Removed
from heedful.store.records import Entry, Filed, FiledState, Head, Known, Stored

if TYPE_CHECKING:
    from heedful.traces.spans import Piece


class Dreams(Protocol):
    """What a consolidation asks of a store. Every method is one transaction."""

    async def material(
        self, scope: Scope, space: str
    ) -> Sequence[tuple[Lesson, Sequence[float] | None]]:
        """What may be recalled, by name, each with the place of its words where it has one."""
        ...

    async def asked(self, scope: Scope, ids: Sequence[int]) -> Mapping[int, Sequence[str]]:
        """The newest texts that each of the lessons was found by, without its own."""
        ...

    async def supersede(
        self,
        scope: Scope,
        report: Mapping[str, Any],
        proposals: Sequence[Proposal],
        expected: Mapping[int, Lesson],
        made: Mapping[int, Reflection],
        by: str,
    ) -> tuple[int, Sequence[Proposal]]:
        """Keep the report and do what is "proposed"; the id of the dream, and what became of each.

        `expected` are the lessons as they were looked at: of a proposal with one that changed since
        nothing is done. `made` are the new lessons of proposals, by their place.
        """
        ...

    async def log(
        self, scope: Scope, limit: int, id: int | None = None, before: int | None = None
    ) -> Sequence[Mapping[str, Any]]:
        """Dreams as plain data, the newest first, each with the `texts` of its lessons."""
        ...

    async def undo(self, scope: Scope, id: int, by: str, why: str) -> int:
        """Take a dream back, on record; how many lessons are back.

        Raises NotFound, RollbackRefused, InvalidInput without an actor.
        """
        ...


class Episodes(Protocol):
    """Where episodes are kept until they are reflected on. Every method is one transaction."""

    async def admit(self, scope: Scope, one: Filed) -> FiledState | None:
        """Keep an episode unless it is there, and take it: None; else the state it is in."""
        ...

    async def put(self, scope: Scope, one: Filed) -> FiledState:
        """Keep an episode unless it is there, for any worker to take; the state it is in."""
        ...

    async def take(self, scope: Scope, before: float, digest: str = "") -> Filed | None:
        """The oldest that waits or failed, and was not tried since `before`; None without.

        With a `digest` that episode alone. It is the caller's for `LEASE` seconds from the last
        `beat` on.
        """
        ...

    async def beat(self, scope: Scope, digest: str) -> None:
        """Whoever took the episode is still at work on it."""
        ...

    async def left(self, scope: Scope, limit: int) -> Sequence[str]:
        """The digests of those that wait and that nobody is at work on, the oldest first."""
        ...

    async def state(self, scope: Scope, digest: str) -> FiledState | None:
        """The state of an episode; None where none of that digest is kept."""
        ...

    async def reflected(
        self,
        scope: Scope,
        digest: str,
        reflections: Sequence[Reflection],
        *,
        most: int = 0,
        quota: Quota | None = None,
    ) -> Sequence[Remembered]:
        """Write what an episode taught, once: a reflection, and what is linked with it.

        Raises Conflict where another worker has done it, InvalidInput, QuotaExceeded.
        """
        ...

    async def failed(self, scope: Scope, digest: str, error: str) -> None:
        """Put on record that reflecting failed, so that it is tried again; "" gives it back."""
        ...

    async def newest(self, scope: Scope, limit: int, state: str = "") -> Sequence[Filed]:
        """Those in that state, or all, the newest first."""
        ...

    async def before(
        self, scope: Scope, limit: int, state: str = "", at: float = inf, digest: str = ""
    ) -> Sequence[Filed]:
        """As `newest` without their records: those that come after the one of `at` and `digest`."""
        ...

    async def counts(self, scope: Scope) -> Mapping[FiledState, int]:
        """How many are in each state."""
        ...

    async def examples(self, scope: Scope, digests: Collection[str]) -> Collection[str]:
        """Those of the digests that examples of the scope have."""
        ...


class Lessons(Protocol):
    """Where lessons are kept. Every method is one transaction; all raise StoreError."""

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
        """Count each sighting, creating what is new; and write down what a loop was shown.

        The first exposures of a loop stay, and so does its first outcome. All that a loop teaches
        comes in one call: what comes later of the same loop is left out.
        With `most` above 0 the least useful lessons beyond so many are evicted, none pinned; for a
        new one that is not kept itself the answer is `Remembered(0, False, 0)`.
        No source that is not trusted gets beyond its `quota`. What a loop learnt from what is gone
        by now is left out. Raises InvalidInput, QuotaExceeded.
        """
        ...

    async def reflections(self, scope: Scope, limit: int) -> Sequence[Mapping[str, Any]]:
        """The reflections most often seen, as plain data."""
        ...

    async def listed(self, scope: Scope, wanted: Wanted, limit: int) -> Sequence[Mapping[str, Any]]:
        """Lessons as plain data, the newest first, without words that are held back.

        Each with its `edition`, which changes with all that an editor sees but for counters.
        """
        ...

    async def amend(
        self, scope: Scope, id: int, edition: str, change: Change, by: str, why: str
    ) -> Mapping[str, Any]:
        """Change a lesson that is still of that edition, on record; the lesson as it is then.

        Raises NotFound, Changed, InvalidInput without an actor.
        """
        ...

    async def seen(self, scope: Scope, signature: Signature) -> Seen:
        """The lessons of a pattern, and of those it is grouped with."""
        ...

    async def patterns(self, scope: Scope, error_type: str = "") -> Sequence[Mapping[str, Any]]:
        """Patterns that are grouped, and those kept apart, as plain data, the most seen first."""
        ...

    async def set_apart(
        self, scope: Scope, digests: Sequence[str], apart: bool, by: str, why: str
    ) -> None:
        """Keep patterns apart from all others, or no longer; on record. Raises NotFound."""
        ...

    async def pin(self, scope: Scope, id: int, pinned: bool, by: str, why: str) -> None:
        """Keep a lesson from eviction and pruning, or no longer; on record. Raises NotFound."""
        ...

    async def prune(
        self, scope: Scope, unused_for: float, keep: int, by: str, dry_run: bool
    ) -> Sequence[Mapping[str, Any]]:
        """Remove lessons not used for so many seconds, then the least useful beyond `keep`.

        0 and -1 ask for nothing. None that is pinned or proved helpful; on record. Answers what is
        removed, as plain data with `why`, and with `dry_run` what would be.
        """
        ...

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
        ...

    async def held(self, scope: Scope, ids: Sequence[int] | None) -> Sequence[Held]:
        """Examples by their ids, the newest first; with None all that wait in quarantine."""
        ...

    async def provenance(self, scope: Scope, one: Held) -> Provenance:
        """Where an example comes from, and what was ruled on it."""
        ...

    async def settle(
        self, scope: Scope, ids: Sequence[int], action: Action, by: str, why: str
    ) -> None:
        """Release or reject what waits in quarantine, all of it or nothing; on record.

        Raises InvalidInput without an id or an actor, NotFound, NotQuarantined.
        """
        ...

    async def revoke(self, scope: Scope, source: str, by: str, why: str, dry_run: bool) -> Removed:
        """Remove all that rests on a source; on record. `dry_run` only counts. Raises NotFound."""
        ...

    async def past(self, scope: Scope, loop: str) -> Past:
        """What the loop was shown, and how many loops of the scope have come to an outcome."""
        ...

    async def evidence(self, scope: Scope, most_calls: int) -> tuple[Cases, int]:
        """What the opportunities of the scope came to, and how many loops are under way.

        A loop without outcome a day after counts as given up: not right at once, each error come
        again, `most_calls` calls. Of a lesson that was restored, only what came after counts.
        """
        ...

    async def conclude(
        self, scope: Scope, useful: Mapping[str, float], hurting: Sequence[Comparison]
    ) -> Sequence[str]:
        """Retire what is proven to hurt, on record; the names of those that were not before.

        What is pinned stays. `useful` are the factors by which lessons are ranked from now on, by
        name (`kind/signature`); 1 for all others, and at least 1 for what is pinned.
        """
        ...

    async def restore(self, scope: Scope, id: int, by: str, why: str) -> None:
        """Bring back a lesson that a proof retired; on record. Raises NotFound."""
        ...

    async def rulings(self, scope: Scope, limit: int) -> Sequence[Mapping[str, Any]]:
        """What was done to which lessons, by whom and why, as plain data, newest first."""
        ...

    async def export(
        self, scope: Scope, write: Callable[[Mapping[str, Any]], None], vectors: bool
    ) -> None:
        """Hand the records of an export to `write` but for the last, as of one moment.

        They are those of `heedful.lessons.export`; `write` may be called in another thread.
        """
        ...

    async def absorb(
        self, scope: Scope, records: Sequence[Mapping[str, Any]], source: str, by: str, why: str
    ) -> Sequence[Effect]:
        """Write records of an export, in its order, unless they are known; what became of each.

        The import is called `source`, and whoever vouches for it is `by`, "" where nobody does.
        """
        ...

    async def spaces(self, scope: Scope) -> Mapping[str, int]:
        """Space -> how many examples that may be recalled lie in it; "" those without a vector."""
        ...

    async def unplaced(
        self, scope: Scope, space: str, after: int, limit: int
    ) -> Sequence[tuple[int, str]]:
        """The examples above the id `after` without a vector in that space: id and task."""
        ...

    async def place(
        self, scope: Scope, space: str, found: Sequence[tuple[int, str, Sequence[float]]]
    ) -> int:
        """Write vectors by id and task, each where its example still has that task; how many."""
        ...

    @property
    def dreams(self) -> Dreams:
        """Consolidations: what they see and do, and how they are undone."""
        ...

    @property
    def episodes(self) -> Episodes:
        """The episodes that were read, and what became of them."""
        ...

    async def scopes(self, waiting: bool = False) -> Sequence[Scope]:
        """The scopes that have lessons, or where traces or episodes wait.

        Whoever asks sees no more of them than their names.
        """
        ...

    @property
    def pending(self) -> Pending:
        """The traces that have not ended."""
        ...

    async def clear(self, scope: Scope) -> int:
        """Forget the reflections of the scope; how many there were."""
        ...

    async def count(self, scope: Scope) -> int:
        """How many reflections the scope has."""
        ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """What may wait: `spans` and `bytes` of a trace, and `traces` and `whole` bytes of a scope."""

    spans: int = 10_000
    bytes: int = 32 * 2**20
    traces: int = 10_000
    whole: int = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A trace that waits in a store: how many `spans` it has, and from whom what it was to do is.

    `last` is when the last of them came, in seconds since 1970.
    """

    id: str
    spans: int
    trust: Trust
    last: float


class Pending(Protocol):
    """Where the spans of traces wait for the rest of them. Every method is one transaction."""

    async def put(
        self, scope: Scope, pieces: Sequence[Piece], trust: Trust, bounds: Bounds
    ) -> Mapping[str, int]:
        """Keep spans, each once; why how many of them are not kept.

        What a trace is trusted is the least that any of its spans came with.
        """
        ...

    async def ended(
        self, scope: Scope, settled: float, missing: float, elsewhere: float
    ) -> Sequence[Unfinished]:
        """Traces whose root has ended and to which nothing came since the time `settled`.

        Nor since `missing` to one in which the parent of a span is missing, nor since `elsewhere`
        to one that has its root in another process; the oldest first, 100 at most.
        """
        ...

    async def pieces(self, scope: Scope, trace: str) -> Sequence[Piece]:
        """The spans of a trace, as they came."""
        ...

    async def finish(self, scope: Scope, one: Unfinished, made: Filed | None) -> bool:
        """Keep the episode that was made of a trace, and let go of its spans.

        False where more spans came meanwhile, or another process was first: nothing was done.
        """
        ...

    async def give_up(self, scope: Scope, before: float, known: float) -> int:
        """Let go of traces without a root to which nothing came since `before`; how many.

        Of traces that are finished nothing is known any more where they are older than `known`.
        """
        ...

    async def counts(self, scope: Scope) -> tuple[int, int, float]:
        """How many traces wait, of how many bytes, and when the first of them last got a span."""
        ...


@runtime_checkable
class Store(Lessons, Protocol):
    """Where loops and lessons are kept. Every method is one transaction; all raise StoreError."""

    @property
    def url(self) -> str:
        """The name under which a user opened it."""
        ...

    async def begin(self, scope: Scope, id: str, head: Head) -> tuple[Stored, bool]:
        """The loop, created where it is new, and whether it is; nobody drives it.

        Raises Conflict where it has another task, context, goals or policy.
        """
        ...

    async def known(self, scope: Scope, id: str, window: int) -> Known:
        """The loop for whoever decides it without driving it; echoes as of `echoes`.

        Raises NotFound.
        """
        ...

    async def claim(self, scope: Scope, id: str, head: Head, owner: str) -> Stored:
        """Take the loop over, creating it where it is new. Raises LeaseLost, Conflict."""
        ...

    async def beat(self, scope: Scope, id: str, epoch: int) -> None:
        """Renew the lease. Raises LeaseLost."""
        ...

    async def commit(self, scope: Scope, entry: Entry, owner: str) -> None:
        """Write all of `entry` or nothing. Raises LeaseLost, Conflict.

        With the `owner` "" nobody drives the loop: nothing is written where it is not as it was
        `seen`, and its epoch moves on, so that of all who have read the same state one writes.
        """
        ...

    async def read(self, scope: Scope, id: str) -> Stored:
        """The loop as it stands. Raises NotFound."""
        ...

    async def loops(
        self, scope: Scope, limit: int, prefix: str = "", before: str = ""
    ) -> Sequence[Stored]:
        """The newest loops whose id begins with `prefix`, newest first; or those `before` a loop.

        It is named by its id; where there is none, nothing comes before it.
        """
        ...

    async def echoes(self, scope: Scope, id: str, window: int) -> Mapping[str, int]:
        """In how many attempts of the `window` newest other loops each finding key was seen."""
        ...

    async def close(self) -> None:
        """Release what the store holds; calling it twice is harmless."""
        ...
