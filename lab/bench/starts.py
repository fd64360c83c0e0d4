"""What a command costs before it has done anything: the CPU time of its process.

A figure is the ratio to `python -c pass` in the same run, because the seconds depend on
the machine. Bytecode is cached, as it is after an installation.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import heedful
from bench.rows import Figure

ROUNDS = 15
PYTHON = "python -c pass"
HEEDFUL = (sys.executable, "-m", "heedful")
COMMANDS: Mapping[str, Sequence[str]] = {
    PYTHON: (sys.executable, "-c", "pass"),
    "heedful --version": (*HEEDFUL, "--version"),
    "heedful --help": (*HEEDFUL, "--help"),
    "heedful loops": (*HEEDFUL, "loops"),
    "heedful why last": (*HEEDFUL, "why", "last"),
    "heedful lessons": (*HEEDFUL, "lessons"),
    "heedful recall": (*HEEDFUL, "recall", "weigh it"),
    "a hook before a call": (
        sys.executable,
        "-m",
        "heedful_agents.hook",
        "PreToolUse",
    ),
}
# The most that a start may cost, in starts of Python.
TARGETS = {
    "heedful --version": 8,
    "heedful --help": 10,
    "heedful loops": 26,
    "heedful why last": 31,
    "heedful lessons": 31,
    "heedful recall": 40,
    "a hook before a call": 16,
}


def figures(folder: str) -> Iterable[Figure]:
    """Measure each command in turns with the others; report its cheapest start."""
    place = Path(folder).resolve()
    write_loop(str(place / "heedful.db"))
    event = {
        "session_id": "bench",
        "cwd": str(place),
        "tool_name": "Bash",
        "tool_input": {"command": "ls -la"},
        "tool_use_id": "1",
    }

    cheapest = dict.fromkeys(COMMANDS, float("inf"))
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            seconds = measure_cpu(command, place, json.dumps(event))
            cheapest[name] = min(cheapest[name], seconds)

    seconds_of_python = cheapest.pop(PYTHON)
    yield Figure(name=f"CPU of {PYTHON}", value=seconds_of_python * 1e3, unit="ms")
    for name, seconds in cheapest.items():
        yield Figure(
            name=f"CPU of {name}",
            value=seconds / seconds_of_python,
            unit=f"× {PYTHON}",
            most=TARGETS.get(name),
        )


def write_loop(path: str) -> None:
    """Store a loop that passes at its second attempt, with its lesson."""

    async def answer(task: str, hint: str) -> str:
        return "20 kg" if hint else "20"

    def has_unit(candidate: str, context: object) -> Iterable[heedful.Finding]:
        if not candidate.endswith("kg"):
            yield heedful.Finding("unit", "there is no unit", fix="write the unit, kg")

    run = heedful.run(
        "weigh it", generate=answer, checks=[has_unit], store=path, memory=path
    )
    heedful.run_sync(run)


def measure_cpu(command: Sequence[str], folder: Path, text: str) -> float:
    """Return the user and system seconds of a process that reads `text`."""
    environment = {**os.environ, "HOME": str(folder)}
    # Recall by words alone. Other commands are measured without any setting, because
    # what checks a setting is slow to import.
    if "recall" in command:
        environment["HEEDFUL_EMBEDDER"] = "none"
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    user = after.ru_utime - before.ru_utime
    return user + after.ru_stime - before.ru_stime
