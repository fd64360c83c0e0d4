"""What goes on and on is said once in a while."""

from __future__ import annotations

import time

EVERY = 60.0  # seconds


class Seldom:
    """Whether something is to be said now: the same at most once in `EVERY` seconds."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def now(self, what: str) -> bool:
        """Whether it is, which counts as said."""
        now = time.monotonic()
        self._next = {one: then for one, then in self._next.items() if then > now}
        if what in self._next:
            return False
        self._next[what] = now + EVERY
        return True
