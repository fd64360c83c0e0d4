"""The pure core and the loop in one process."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import heedful
from bench.rows import Figure
from bench.timing import best, best_async
from heedful.checks.evaluate import Context

EVERY_RULE = heedful.Policy(
    (
        heedful.MaxAttempts(99),
        heedful.Budget(calls=10**6),
        heedful.Echo(99),
        heedful.Repeat(99),
        heedful.Fatigue(1.0),
        heedful.Plateau(99),
    )
)

# The high-water mark is the kernel's (Linux), of this program alone: getrusage counts
# the parent.
START = """
import time
began = time.perf_counter()
import heedful
from heedful.store import open_store
from heedful.store.connection import check_writes
import asyncio, sys
async def opened():
    store = open_store(sys.argv[1])
    await store.write(heedful.Scope(), check_writes)
    await store.close()
asyncio.run(opened())
seconds = time.perf_counter() - began
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(seconds, int(status["VmHWM"].split()[0]) / 1024)
"""


def make_loop(attempts: int) -> heedful.Loop:
    """Return a loop that improves slowly, with another finding at each attempt."""
    goals = (heedful.Goal("quality", 10.0), heedful.Goal("drift", 0.0, "at_most"))
    return heedful.Loop(
        "bench",
        goals,
        attempts=tuple(
            heedful.Attempt(
                n,
                heedful.Candidate.of(f"candidate number {n}"),
                evaluation=heedful.Evaluation(
                    (heedful.Finding("check", f"complaint {n}", fix="mend it"),),
                    {"quality": 0.06 * n, "drift": 1 / n},
                ),
                usage=heedful.Usage(
                    1, 100, completion_tokens=20, cost=0.0, seconds=0.1
                ),
            )
            for n in range(1, attempts + 1)
        ),
    )


def short(candidate: str, context: Context) -> list[heedful.Finding]:
    """Accept at most two words."""
    count = len(candidate.split())
    if count <= 2:
        return []
    return [
        heedful.Finding(
            "words", f"{count} words", fix="At most 2 words", key="words<=2"
        )
    ]


short.pure = True  # type: ignore[attr-defined]


async def generate(task: str, hint: str) -> str:
    """Answer wrongly at first, and correctly after feedback."""
    return "a b" if hint else "a b c"


async def cycle(number: int) -> object:
    """Run two attempts, fail and pass, with trace and decisions; store nothing."""
    return await heedful.run("task", generate=generate, checks=[short], store=None)


def decide_anew(
    loop: heedful.Loop, policy: heedful.Policy
) -> heedful.Again | heedful.Done:
    """Decide on a fresh copy of the loop."""
    return heedful.decide(replace(loop), policy)


def figures(folder: str) -> Iterable[Figure]:
    """Measure a decision, a cycle in memory, and the start."""
    policies = (("six rules", EVERY_RULE), ("default", heedful.policies.default))
    for attempts, target in ((4, 25.0), (20, 60.0)):
        for name, policy in policies:
            loop = make_loop(attempts)
            # A new value each time: nothing that one decision worked out is there for
            # the next.
            seconds = best(partial(decide_anew, loop, policy), 500)
            yield Figure(
                name=f"decide, {attempts} attempts, {name}",
                value=seconds * 1e6,
                unit="µs",
                most=target,
            )
    loops = [heedful.RecordedLoop(make_loop(attempts)) for attempts in (2, 4, 20)] * 20
    for name, policy in policies:
        seconds = best(lambda policy=policy: heedful.compare(loops, [policy]), 5)  # type: ignore[misc]
        attempts = heedful.compare(loops, [policy])[0].attempts
        yield Figure(
            name=f"replay, {name}",
            value=attempts / seconds,
            unit="attempts/s",
            least=20_000,
        )
    yield Figure(
        name="in-process cycle (fail, feedback, pass)",
        value=best_async(cycle, 500) * 1e3,
        unit="ms",
        most=0.08,
    )
    yield Figure(
        name="memory kept by a cycle",
        value=measure_kept_bytes(),
        unit="bytes",
        most=100,
    )
    runs = [measure_start(f"{folder}/start-{n}.db") for n in range(7)]
    yield Figure(
        name="import heedful + open a new store",
        value=min(r[0] for r in runs),
        unit="s",
        most=0.06,
    )
    yield Figure(
        name="resident memory after that",
        value=max(r[1] for r in runs),
        unit="MB",
        most=25,
    )


def measure_kept_bytes() -> float:
    """Return the bytes that one more cycle leaves behind, over 2,000 cycles."""
    best_async(cycle, 500, rounds=1)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    best_async(cycle, 2000, rounds=1)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return max(0.0, (after - before) / 2000)


def measure_start(path: str) -> tuple[float, float]:
    """Return the seconds and MB of a new interpreter that opens a store."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as if installed
    program = [sys.executable, "-c", START, path]
    out = subprocess.check_output(program, text=True, env=environment)
    seconds, megabytes = map(float, out.split())
    return seconds, megabytes
