"""How many calls it takes to fix a failure, as sessions of the project show."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.lessons.reminders import FixedFailures
from heedful.memory.memory import Memory
from heedful.store import reminders


async def record_fixes(memory: Memory, source: str, fixes: Sequence[int]) -> None:
    """Record the calls from each failure of a run to what fixed it.

    `source` names the run; a longer record of the same run replaces the numbers. Raises
    StoreError.
    """
    if fixes:
        fixed = FixedFailures.of(fixes)
        await memory.store.write(memory.scope, reminders.count_fixed, source, fixed)
