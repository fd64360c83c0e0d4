"""A loop that practises the task of another one, within the allowance of the practice.

The calls of an attempt are reserved before it is made, as many as an attempt of the
task has needed so far. What it used besides is added in the transaction of its entry.
"""

from __future__ import annotations

from dataclasses import dataclass

from heedful.lessons.lesson import Scope
from heedful.loop.ladder import Allowance
from heedful.loop.record import Usage
from heedful.store import ladders
from heedful.store.records import PracticeUsage
from heedful.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PracticeLoop:
    """The loop that a practice tries again, and what it may spend.

    `practises` is the id of that loop. Each attempt reserves `calls` of the allowance.
    """

    practises: str
    allowance: Allowance
    calls: int = 1

    async def reserve(self, store: Store, scope: Scope) -> None:
        """Reserve the calls of an attempt. Raises AllowanceSpent."""
        spending = await store.write(
            scope, ladders.reserve_practice, self.allowance, self.calls
        )
        if spending is None:
            return

        spent = []
        for unit in ("calls", "tokens", "cost"):
            limit = getattr(self.allowance, unit)
            used = getattr(spending, unit)
            needed = self.calls if unit == "calls" else 1e-9
            if limit is not None and used + needed > limit:
                spent.append(f"{used:.12g} of {limit:.12g} {unit}")
        raise ladders.AllowanceSpent(f"{', '.join(spent)} spent")

    def used(self, usage: Usage, reserved: bool) -> PracticeUsage:
        """Return what an attempt adds to the spending of the practice."""
        return PracticeUsage(
            allowance=self.allowance.name,
            usage=usage,
            reserved=self.calls if reserved else 0,
        )
