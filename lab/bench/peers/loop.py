"""The loop that every peer runs, and the double that is its model.

An answer of at most two words is right. The double answers at once, wrongly until it
was asked as often as it is to fail. The standard library is enough: the programs of
the peers import this module.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field

from bench.peers.contract import Line, Program, Work, describe, spread

TASK = "Name two colours."
RIGHT_ANSWER = "blue green"
NUMERALS = "one two three four five six seven eight".split()
LONG_FAULT_CHARS = 2_000  # they are ASCII: as many bytes
LONG_FAULTS = 8
TOGETHER = 64


def find_fault(answer: str, chars: int = 0) -> str:
    """Return what is wrong with an answer, "" if nothing.

    With `chars` the text has exactly this length.
    """
    words = answer.split()
    if len(words) <= 2:
        return ""
    fault = f"{len(words)} words in {answer!r}: at most 2 words are allowed."
    if not chars:
        return fault

    number = 0
    while len(fault) < chars:
        number += 1
        fault += f" Line {number} of the report on {words[0]!r} says that it is long."
    return fault[:chars]


def find_long_fault(answer: str) -> str:
    """Return what is wrong with an answer, in 2 kB; "" if nothing."""
    return find_fault(answer, LONG_FAULT_CHARS)


@dataclass
class Double:
    """A model that fails so often, and counts the bytes of each request."""

    failures: int = 1
    answers: int = 0
    last_answer: str = ""
    sent: list[int] = field(default_factory=list)

    def count(self, texts: Iterable[str]) -> None:
        """Count a request whose messages have these texts."""
        self.sent.append(sum(len(text.encode()) for text in texts))

    def ask(self, texts: Iterable[str]) -> str:
        """Count a request and return the next answer."""
        self.count(texts)
        number = self.answers % (self.failures + 1)
        self.answers += 1
        self.last_answer = RIGHT_ANSWER
        if number < self.failures:
            self.last_answer = f"{NUMERALS[number]} {NUMERALS[-1 - number]} colours"
        return self.last_answer

    def report(self, prefix: str = "sent") -> Iterator[Line]:
        """Yield what was sent in all, the largest request, and how many there were."""
        yield Line(figure=f"{prefix}_bytes", value=sum(self.sent))
        yield Line(figure=f"{prefix}_largest_bytes", value=max(self.sent))
        yield Line(figure=f"{prefix}_requests", value=len(self.sent))

    def report_next_task(self, requests: int) -> Line:
        """Return how many bytes more the first request of a second task had.

        `requests` is the number of requests of the first task.
        """
        return Line(figure="next_task_bytes", value=self.sent[requests] - self.sent[0])


def check_answer(answer: object) -> None:
    """Raise RuntimeError unless the loop ended with the right answer."""
    if answer != RIGHT_ANSWER:
        raise RuntimeError(f"the loop ended with {answer!r}, not {RIGHT_ANSWER!r}")


def count_warm_cycles(times: int) -> int:
    """Return how many cycles run before so many are timed."""
    return max(1, times // 10)


def time_cycles(
    cycle: Callable[[], object], times: int, *, prefix: str = "cycle"
) -> Iterator[Line]:
    """Yield the milliseconds of the fastest and of the median cycle."""
    seconds = []
    for _ in range(count_warm_cycles(times) + times):
        began = time.perf_counter()
        cycle()
        seconds.append(time.perf_counter() - began)
    yield from spread(prefix, seconds[-times:])


def loop_programs(
    build: Callable[[Double, Callable[[str], str], int], Callable[[], object]],
) -> dict[str, Program]:
    """Return how loops of a peer are timed, and how what they send is counted.

    Two figures check docs/comparison.md: how often a loop that may ask again once asks
    for an answer that is never right, and how many bytes more are sent for the next
    task, where a library remembers something.

    `build` gets the double, a function that says what is wrong with an answer, and how
    often the loop asks again; it returns a function that runs the loop, and returns the
    answer.
    """

    def time_loop(work: Work) -> Iterator[Line]:
        """Time loops of two attempts."""
        run = build(Double(), find_fault, 1)
        yield from time_cycles(lambda: check_answer(run()), work.times)

    def count_bytes(work: Work) -> Iterator[Line]:
        """Count what is sent for eight long failures, and for the task after them."""
        double = Double(failures=LONG_FAULTS)
        run = build(double, find_long_fault, LONG_FAULTS)
        check_answer(run())
        yield from double.report()
        requests = len(double.sent)
        check_answer(run())
        yield double.report_next_task(requests)

        stubborn_double = Double(failures=LONG_FAULTS)
        try:
            build(stubborn_double, find_fault, 1)()
        except Exception as error:  # user code: a library may raise when it gives up
            yield Line(figure="given_up", text=describe(error))
        yield Line(figure="given_up_answers", value=stubborn_double.answers)

    return {"cycle": time_loop, "bytes": count_bytes}


def time_async_cycles(
    cycle: Callable[[], Awaitable[object]], times: int, *, prefix: str = "cycle"
) -> list[Line]:
    """Return the same of a coroutine function, all in one event loop."""

    async def run_cycles() -> list[float]:
        seconds = []
        for _ in range(count_warm_cycles(times) + times):
            began = time.perf_counter()
            await cycle()
            seconds.append(time.perf_counter() - began)
        return seconds[-times:]

    return list(spread(prefix, asyncio.run(run_cycles())))


async def time_batches(
    cycle: Callable[[], Awaitable[object]], batches: int
) -> list[float]:
    """Return the seconds of a cycle in each batch of `TOGETHER` at once.

    A batch before them warms up.
    """
    seconds = []
    for _ in range(batches + 1):
        began = time.perf_counter()
        await asyncio.gather(*(cycle() for _ in range(TOGETHER)))
        seconds.append((time.perf_counter() - began) / TOGETHER)
    return seconds[1:]
