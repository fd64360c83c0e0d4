"""The time that a text takes, compared with that of a longer one of the same kind."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time


def assert_linear(
    read: Callable[[str], object], piece: str, length: int, runs: int = 5
) -> None:
    """Check that eight times the length takes far less than 64 times as long.

    64 times would be quadratic. Here it is 12 to 16 times: a longer text leaves the
    processor's cache.
    """

    def best_seconds(length: int) -> float:
        text = piece * (length // len(piece))
        times = []
        for number in range(runs):
            start = process_time()
            read(f"{number} {text}")
            times.append(process_time() - start)
        return min(times)

    best_seconds(length)  # compiles the patterns
    assert best_seconds(8 * length) < 40 * best_seconds(length) + 0.01
