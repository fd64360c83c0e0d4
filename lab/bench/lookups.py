"""Asking whether an error is known, and how an action failed before, among 10,000
lessons.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from statistics import median

from bench.recall import letters
from bench.rows import Figure
from bench.timing import milliseconds, percentile
from heedful import Memory
from heedful.lessons.call_marks import Mark, Step, failed_marks, marks_of
from heedful.lessons.lesson import Lesson, Scope
from heedful.lessons.signature import signature
from heedful.store import calls, lessons
from heedful.store.connection import Db
from heedful.store.sqlite import in_file

LESSONS = 10_000
BATCH = 500
CALLS = 1_000
# The lessons from here on are of one error type, and differ only in names: heedful
# merges them.
MERGED = 8_000
SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
KEYS = 100_000


def figures(folder: str) -> Iterable[Figure]:
    """Time `seen` for one error and for raw output by its size, and `before`."""
    path = f"{folder}/lookups.db"
    asyncio.run(fill(path))
    memory = Memory(in_file(path))

    async def untyped(n: int) -> None:
        assert await memory.seen("", error(n))

    async def typed(n: int) -> None:
        assert await memory.seen(kind(n), error(n))

    async def merged(n: int) -> None:
        assert await memory.seen("", error(MERGED + n % (LESSONS - MERGED)))

    async def unknown(n: int) -> None:
        text = f"error: cannot open the {letters(n)} of this parcel"
        assert not await memory.seen("", text)

    async def before(n: int) -> None:
        assert await memory.before("Bash", command(n))

    for name, ask in (
        ("seen, one error without its type", untyped),
        ("seen, one error with its type", typed),
        ("seen, an unknown error", unknown),
        ("before, a command", before),
    ):
        spent = asyncio.run(_time_calls(ask, CALLS))
        yield Figure(name=f"{name}, median", value=median(spent), unit="ms", most=5.0)
        yield Figure(
            name=f"{name}, p99", value=percentile(spent, 99), unit="ms", most=10.0
        )
    spent = asyncio.run(_time_calls(merged, CALLS))
    yield Figure(
        name="seen, one of 2,000 merged patterns, median",
        value=median(spent),
        unit="ms",
    )
    for size in SIZES:
        raw = output(size)

        async def seen_in_output(n: int, raw: str = raw) -> None:
            assert await memory.seen(raw + error(n))

        calls = 3 if size > 100_000 else 30
        spent = asyncio.run(_time_calls(seen_in_output, calls))
        yield Figure(
            name=f"seen, raw output of {size // 1000} kB, median",
            value=median(spent),
            unit="ms",
        )
    asyncio.run(memory.store.close())
    yield from _size_of_keys(f"{folder}/keys.db")


def _size_of_keys(path: str) -> Iterable[Figure]:
    """Measure the file of a memory that knows what 100,000 calls took for granted."""
    asyncio.run(_fill_keys(path))
    size = os.path.getsize(path) / 1e6
    yield Figure(name="before, 100,000 keys", value=size, unit="MB", most=50.0)


async def _fill_keys(path: str) -> None:
    """Store keys of sessions, of which one in twenty has failed, as in recordings."""
    store = in_file(path)
    for begin in range(0, KEYS, BATCH):
        steps = []
        for number in range(begin, begin + BATCH):
            key = Mark("path", f"src/{letters(number)}/{letters(number)}.py")
            failed = {key: "File does not exist."} if number % 20 == 0 else {}
            steps.append(
                Step((key,), tuple(failed.values()), failed=tuple(failed.items()))
            )
        await store.write(Scope(), calls.record_run, f"s{begin}", steps)
    await store.close()


def error(n: int) -> str:
    """Return the error of lesson `n`."""
    return f"error: cannot resolve module {letters(n)}-kit from parcel {letters(n * 7)}"


def kind(n: int) -> str:
    """Return the type of `error(n)`."""
    return "merged" if n >= MERGED else f"build {letters(n % 200)}"


def command(n: int) -> str:
    """Return the command that failed with `error(n)`."""
    return f"build --module {letters(n)}-kit --port {n}"


def output(size: int) -> str:
    """Return about `size` characters that a command may write, without the error."""
    lines = (
        f"step {n}: compiled {letters(n)} in {n % 90} ms\n" for n in range(size // 36)
    )
    return "".join(lines)


async def _time_calls(ask: Callable[[int], Awaitable[None]], calls: int) -> list[float]:
    """Return the milliseconds of each call, of lessons in a mixed order."""
    return [await milliseconds(ask(call * 37 % MERGED)) for call in range(calls)]


async def fill(path: str) -> None:
    """Store a lesson for each error, with the action that failed."""
    store = in_file(path)

    def write(db: Db, scope: Scope, numbers: range) -> None:
        new_lessons = [
            Lesson(
                "error",
                signature(kind(n), error(n)),
                error_type=kind(n),
                text=error(n),
                sighting=error(n),
            )
            for n in numbers
        ]
        answers = lessons.upsert(db, scope, new_lessons, time.time())
        for n, answer in zip(numbers, answers, strict=True):
            arguments = {"command": command(n)}
            marks = marks_of("Bash", arguments)
            failed = failed_marks("Bash", arguments, [error(n)])
            step = Step(
                marks, (error(n),), failed=tuple(failed.items()), lesson=answer.id
            )
            for run in ("a", "b"):  # a command is told of after two runs
                calls.record_run(db, scope, f"episode:{n}{run}", [step])

    for begin in range(0, LESSONS, BATCH):
        await store.write(Scope(), write, range(begin, begin + BATCH))
    await store.close()
