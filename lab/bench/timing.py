"""How figures are measured: the best of several rounds, because other work only adds
time; or the spread of single calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import quantiles

ROUNDS = 7


def best(work: Callable[[], object], times: int, rounds: int = ROUNDS) -> float:
    """Return the seconds of a call: the fastest of `rounds` rounds of `times` calls."""
    fastest = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(times):
            work()
        fastest = min(fastest, (time.perf_counter() - began) / times)
    return fastest


async def milliseconds(work: Awaitable[object]) -> float:
    """Return the milliseconds of one call."""
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1e3


def percentile(values: Sequence[float], place: int) -> float:
    """Return the value below which so many of a hundred are."""
    return quantiles(values, n=100)[place - 1]


def best_async(
    work: Callable[[int], Awaitable[object]], times: int, rounds: int = ROUNDS
) -> float:
    """Return the same of a coroutine function, which gets the number of the call."""

    async def round_(first: int) -> float:
        began = time.perf_counter()
        for number in range(first, first + times):
            await work(number)
        return (time.perf_counter() - began) / times

    async def all_rounds() -> float:
        return min([await round_(n * times) for n in range(rounds)])

    return asyncio.run(all_rounds())
