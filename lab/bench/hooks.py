"""The hooks of coding agents: a process beside Python's own start, the core in one, and
HTTP.

All look up among 10,000 lessons, keep the event, and record what was shown.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median

from bench import lookups
from bench.http import connect, serve
from bench.rows import Figure
from bench.timing import milliseconds, percentile
from heedful import Memory
from heedful.episodes.episode import Event
from heedful.integrations import Host
from heedful.store.sqlite import in_file
from heedful.validation import Fields
from heedful_agents.session_hooks import reply

CALLS = 300
STARTS = 60
EVENTS = 5_000
HIGH = 10.0  # milliseconds
START = "from heedful_agents.hook_start import run; run()"
# How long each may take: the median, and the 95th percentile, in milliseconds.
MOST: Mapping[str, tuple[float | None, float | None]] = {
    "Python's own start": (None, None),
    "a silent hook before a call": (25.0, 40.0),
    "a silent hook after a call": (25.0, 40.0),
    "a hook that speaks before a call": (80.0, 120.0),
}


def figures(folder: str) -> Iterable[Figure]:
    """Time a hook process, `before` and `seen` of a run, and a hook over HTTP."""
    place = (
        Path(folder).resolve() / "hooks" / "heedful.db"
    )  # the name that the service takes
    place.parent.mkdir()
    asyncio.run(lookups.fill(str(place)))
    yield from _time_processes(place)
    before, seen = asyncio.run(_time_lookups(str(place)))
    yield Figure(
        name="before of a run, p99", value=percentile(before, 99), unit="ms", most=HIGH
    )
    yield Figure(
        name="seen of a run, p99", value=percentile(seen, 99), unit="ms", most=HIGH
    )
    yield Figure(
        name="a result among 5,000 events, p99",
        value=percentile(asyncio.run(_time_long_session(str(place))), 99),
        unit="ms",
    )
    with serve(str(place.parent)) as (url, _):
        asyncio.run(_time_posts(url, CALLS // 10))
        spent = asyncio.run(_time_posts(url, CALLS))
    yield Figure(
        name="a hook over HTTP before a call, median", value=median(spent), unit="ms"
    )
    yield Figure(
        name="a hook over HTTP before a call, p99",
        value=percentile(spent, 99),
        unit="ms",
        most=30.0,
    )


def _time_processes(place: Path) -> Iterable[Figure]:
    """Time processes of hooks in turns, beside Python's own start."""
    env = {**os.environ, "HEEDFUL_DB": str(place), "HOME": str(place.parent)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)

    def start(code: str, event: str, fields: Fields) -> float:
        """Return the milliseconds of a process that gets an event."""
        head = {"session_id": "bench", "cwd": str(place.parent), "tool_name": "Bash"}
        began = time.perf_counter()
        subprocess.run(
            (sys.executable, "-c", code, event),
            input=json.dumps({**head, **fields}),
            env=env,
            capture_output=True,
            text=True,
            check=True,
        )
        return (time.perf_counter() - began) * 1e3

    start(START, "SessionStart", {"source": "startup"})
    spent: dict[str, list[float]] = {name: [] for name in MOST}
    for number in range(STARTS):
        first_command = {"command": "git status --short"}
        silent = {"tool_use_id": f"a{number}", "tool_input": first_command}
        second_command = {"command": lookups.command(number)}
        speaking = {"tool_use_id": f"b{number}", "tool_input": second_command}
        times = (
            start("pass", "", {}),
            start(START, "PreToolUse", silent),
            start(START, "PostToolUse", {**silent, "tool_response": "ok"}),
            start(START, "PreToolUse", speaking),
        )
        for name, milliseconds_spent in zip(MOST, times, strict=True):
            spent[name].append(milliseconds_spent)
    for name, (median_most, high_most) in MOST.items():
        yield Figure(
            name=f"{name}, median",
            value=median(spent[name]),
            unit="ms",
            most=median_most,
        )
        yield Figure(
            name=f"{name}, p95",
            value=percentile(spent[name], 95),
            unit="ms",
            most=high_most,
        )


async def _time_lookups(path: str) -> tuple[list[float], list[float]]:
    run = Host(memory=Memory(in_file(path), holdout=0.0), strict=True).run("bench")
    before = list[float]()
    seen = list[float]()
    for call in range(CALLS):
        n = call * 37 % lookups.MERGED
        began = time.perf_counter()
        assert await run.before("Bash", lookups.command(n), f"t{call}")
        before.append((time.perf_counter() - began) * 1e3)
        error = lookups.error(n)
        seen.append(await milliseconds(run.seen("Bash", error, f"t{call}")))
    return before, seen


async def _time_long_session(path: str) -> list[float]:
    """Return the milliseconds to keep a result in a session of many events."""
    host = Host(memory=Memory(in_file(path)), strict=True, seconds=60.0)
    spent = list[float]()
    old_events = (
        Event("tool_call", tool="Bash", call=f"old{n}") for n in range(EVENTS)
    )
    await host.run("long").learn(*old_events)
    for n in range(CALLS):
        call = {
            "tool_name": "Bash",
            "tool_use_id": f"t{n}",
            "tool_input": {"command": f"ls {n}"},
        }
        event = {
            "session_id": "long",
            **call,
            "tool_response": {"stdout": "a line\n" * 200},
        }
        spent.append(await milliseconds(reply("PostToolUse", event, host)))
    return spent


async def _time_posts(url: str, calls: int) -> list[float]:
    """Return the milliseconds of requests on one connection that stays open."""
    spent = list[float]()
    call = {
        "hook_event_name": "PreToolUse",
        "session_id": "http",
        "tool_name": "Bash",
    }
    async with connect(url, "POST") as ask:
        for n in range(calls):
            event = {
                **call,
                "tool_use_id": f"{calls}-{n}",
                "tool_input": {"command": lookups.command(n)},
            }
            body = json.dumps(event).encode()
            began = time.perf_counter()
            assert await ask("/v1/hooks/claude-code", body) == 200
            spent.append((time.perf_counter() - began) * 1e3)
    return spent
