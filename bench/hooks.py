"""The hooks of coding agents: a whole process beside Python's own start, and the core within one.

Both look up among 10,000 lessons, keep the event, and record what was shown.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median, quantiles

from bench import lookups
from bench.rows import Figure
from heedful import Memory
from heedful.integrations import Host
from heedful.store.sqlite import in_file

CALLS, STARTS = 300, 60
PROCESS, HIGH = 120.0, 10.0  # ms
HOOK = (sys.executable, "-m", "heedful.integrations.hook", "PreToolUse")


def figures(folder: str) -> Iterable[Figure]:
    """Milliseconds of a hook process, and of `before` and `seen` of a run."""
    place = Path(folder).resolve() / "hooks.db"
    asyncio.run(lookups.fill(str(place)))
    call = {"tool_name": "Bash", "tool_input": {"command": lookups.command(7)}, "tool_use_id": "1"}
    event = json.dumps({"session_id": "bench", "cwd": str(place.parent), **call})
    env = {**os.environ, "HEEDFUL_DB": str(place), "HOME": str(place.parent)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    for name, command, most in (
        ("Python's own start", (sys.executable, "-c", "pass"), None),
        ("a hook process before a call", HOOK, PROCESS),
    ):
        spent = []
        for _ in range(STARTS):
            began = time.perf_counter()
            subprocess.run(
                command, input=event, env=env, capture_output=True, text=True, check=True
            )
            spent.append((time.perf_counter() - began) * 1e3)
        yield Figure(f"{name}, median", median(spent), "ms", most)
        yield Figure(f"{name}, p99", _high(spent), "ms")
    before, seen = asyncio.run(_verbs(str(place)))
    yield Figure("before of a run, p99", _high(before), "ms", HIGH)
    yield Figure("seen of a run, p99", _high(seen), "ms", HIGH)


async def _verbs(path: str) -> tuple[list[float], list[float]]:
    run = Host(memory=Memory(in_file(path), holdout=0.0), strict=True).run("bench")
    before, seen = list[float](), list[float]()
    for call in range(CALLS):
        n = call * 37 % lookups.MERGED
        began = time.perf_counter()
        assert await run.before("Bash", lookups.command(n), f"t{call}")
        before.append((time.perf_counter() - began) * 1e3)
        began = time.perf_counter()
        assert await run.seen("Bash", lookups.error(n), f"t{call}")
        seen.append((time.perf_counter() - began) * 1e3)
    return before, seen


def _high(spent: Sequence[float]) -> float:
    return quantiles(spent, n=100)[98]
