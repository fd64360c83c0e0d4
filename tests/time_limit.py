"""A limit of time for what runs in the process of the tests: a fault may be endless."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

SECONDS = 60.0  # far more than anything takes that ends


@contextmanager
def time_limit(seconds: float = SECONDS) -> Iterator[None]:
    """Let the test fail when the block has lasted so long.

    What ends the block may hang, too, so it fails again after each further second. Only
    the main thread can have such a limit, and one at a time.
    """

    def end(signal_number: int, frame: FrameType | None) -> None:
        pytest.fail(f"it has not ended after {seconds:g} seconds")

    handler = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
