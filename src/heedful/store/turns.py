"""Whose turn it is among the tasks of this process that need the same.

Who waits here needs no thread and no connection; those are for whom nothing but other processes can
keep waiting. Without it 64 writers of one scope kept a reader of another waiting for 1.3 s, and
wrote at two thirds of the rate.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Hashable, Sequence
from concurrent.futures import Future


class Turns:
    """One holder a key, the others in the order in which they came; from any event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Future[None]]] = {}

    async def take(self, keys: Sequence[Hashable]) -> None:
        """Wait for all of them, one after the other: everybody names them in the same order."""
        for number, key in enumerate(keys):
            turn = self._enter(key)
            if turn is None:
                continue
            try:
                await asyncio.wrap_future(turn)
            except asyncio.CancelledError:
                had = not turn.cancel()  # it came at the very moment
                self.give(keys[: number + had])
                raise

    def give(self, keys: Sequence[Hashable]) -> None:
        """The next one's turn, of each."""
        with self._lock:
            for key in keys:
                while waiting := self._waiting[key]:
                    turn = waiting.popleft()
                    if turn.set_running_or_notify_cancel():
                        turn.set_result(None)
                        break
                else:
                    del self._waiting[key]

    def _enter(self, key: Hashable) -> Future[None] | None:
        with self._lock:
            if key not in self._waiting:
                self._waiting[key] = deque()
                return None
            turn: Future[None] = Future()
            self._waiting[key].append(turn)
            return turn
