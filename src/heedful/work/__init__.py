"""Work that need not be done at once: handed over, and done in this process or by workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from heedful.protocols import Scope

State = Literal["waiting", "running", "stalled", "failed"]


@dataclass(frozen=True, slots=True)
class Depth:
    """How many jobs of a queue are in one state, and for how many seconds the oldest of them is.

    `stalled` are those that a worker began that was not heard of since: they are run again.
    """

    queue: str
    state: State
    number: int
    oldest: float = 0.0


class Work(Protocol):
    """Where work is handed over; `heedful.work.tasks.TASKS` names the tasks and their arguments."""

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        """Hand a task over, unless the same waits already.

        `arguments` are plain data. Raises UnknownName, InvalidInput, StoreError.
        """
        ...

    async def depth(self) -> Sequence[Depth]:
        """What there is to do, by queue and state. Raises StoreError."""
        ...
