"""What a service asks of a store while the spans of a trace come in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from heedful.lessons import Filed
    from heedful.memory.learn import Trust
    from heedful.protocols import Scope
    from heedful.traces.pieces import Piece


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
