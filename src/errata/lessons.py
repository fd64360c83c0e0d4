"""What memory asks of a store: lessons, what they were shown for, and what was ruled on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from errata.memory.learn import Reflection
    from errata.memory.proof import Exposure, Outcome
    from errata.protocols import Filter, Found, Remembered, Scope


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
    ) -> Sequence[Remembered]:
        """Count each sighting, creating what is new; and write down what a loop was shown.

        With `most` above 0 the least useful lessons beyond so many are evicted, none pinned.
        """
        ...

    async def reflections(self, scope: Scope, limit: int) -> Sequence[Mapping[str, Any]]:
        """The reflections most often seen, as plain data."""
        ...

    async def seen(self, scope: Scope, signature: str) -> Sequence[Mapping[str, Any]]:
        """The reflections of that pattern digest, as plain data; empty where there is none."""
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

    async def clear(self, scope: Scope) -> int:
        """Forget the reflections of the scope; how many there were."""
        ...

    async def count(self, scope: Scope) -> int:
        """How many reflections the scope has."""
        ...
