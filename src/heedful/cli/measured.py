"""What a demonstration measured: one value, and the table and the sentences about it."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import which
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import heedful
from heedful.cli.figures import (
    ALL,
    CAN_FOLLOW,
    FOLLOWED,
    MEMORY,
    POOLED,
    SECOND,
    WITHOUT,
    Compared,
    comparisons,
    in_words,
    percent,
)
from heedful.cli.lab import MAX_TOKENS, RUNS, SYSTEM, Plan, Ran
from heedful.loop import policies
from heedful.models import weights

TOP = 10
COLUMNS = (
    *("family", "tasks", "arm", "right at once", "second half", "solved", "calls"),
    *("tokens", "seconds"),
)
# Below this many columns tokens and seconds stay out of the table; they are in the report.
WIDE = 104


@dataclass(frozen=True)
class Measured:
    """Everything that table, picture, report and result.json say; `commands` are to type next."""

    ran: Ran
    compared: tuple[Compared, ...]
    lessons: tuple[Mapping[str, Any], ...]
    settings: Mapping[str, str]
    machine: Mapping[str, str]
    commands: tuple[tuple[str, str], ...]

    def pooled(self, part: str) -> Compared:
        """All families over one part of the tasks."""
        pools = [one for one in self.compared if one.part == part]
        return next((one for one in pools if one.group == POOLED), pools[0])

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        arms = {WITHOUT: self.ran.without, MEMORY: self.ran.memory}
        return {
            "settings": dict(self.settings),
            "machine": dict(self.machine),
            "figures": [asdict(one) for one in self.compared],
            "words": {part: in_words(self.pooled(part)) for part in (ALL, SECOND)},
            "follows_gold": {name: asdict(one) for name, one in self.ran.follows.items()},
            "rows": {RUNS[arm]: [asdict(row) for row in rows] for arm, rows in arms.items()},
            "lessons": [dict(one) for one in self.lessons],
            "seconds": self.ran.seconds,
            "commands": [line for _, line in self.commands],
        }


def measured(
    plan: Plan, ran: Ran, lessons: Sequence[Mapping[str, Any]], db: Path, settings: dict[str, str]
) -> Measured:
    """Draw the figures; `settings` are those that the plan does not know."""
    return Measured(
        ran,
        tuple(comparisons(ran.without, ran.memory, ran.follows)),
        tuple(lessons),
        _settings(plan) | settings,
        machine(),
        tuple(_commands(plan, ran, db)),
    )


def machine() -> dict[str, str]:
    """What it ran on."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count() or "unknown"),
        "python": platform.python_version(),
        "heedful": heedful.__version__,
    }


def _settings(plan: Plan) -> dict[str, str]:
    policy, found = policies.default, weights.needed(plan.model)
    known = {"weights": f"{found.about}, SHA-256 {found.sha256[:12]}…"} if found else {}
    return {
        "model": plan.model,
        **known,
        "recall by": "meaning (all-MiniLM-L6-v2)" if plan.by_meaning else "words",
        "tasks": f"{len(plan.tasks)} of {_near(plan.path)}, {'all' if plan.full else 'a subset'}",
        "order": "one task of each family in turn, both arms the same, one call at a time",
        "system prompt": SYSTEM,
        "temperature": "0, warmer after a repeated answer",
        "tokens an answer": f"at most {MAX_TOKENS}",
        "policy": f"{policy.name}: {', '.join(map(str, policy.rules))}",
        "memory": "empty at the start; holdout off; up to 3 earlier accepted answers as chat turns",
    }


def program() -> str:
    """How this user can call heedful: by its name, or by the path of what runs now."""
    given = Path(sys.argv[0])
    if which("heedful"):
        return "heedful"
    if given.name.startswith("heedful") and given.is_file():
        return shlex.quote(str(_near(given)))
    return f"{shlex.quote(sys.executable)} -m heedful.cli"


def _commands(plan: Plan, ran: Ran, db: Path) -> list[tuple[str, str]]:
    """Three commands that work on what was stored."""
    told = ran.stories
    loops = [told[kind][0].loop for kind in ("corrected", "stopped", "knew") if kind in told]
    loop = loops[0] if loops else ran.memory[0].loop
    task = told["knew"][0].task if "knew" in told else plan.tasks[-1].task
    lines = (
        ("what it has learnt", ["lessons"]),
        ("why a loop went on and why it ended", ["why", loop]),
        ("what a task brings back", ["recall", task]),
    )
    return [(what, f"{program()} {shlex.join([*line, '--db', str(db)])}") for what, line in lines]


def _near(path: Path) -> Path:
    """The path as seen from the current folder, where it lies below it."""
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path


def print_summary(found: Measured, console: Console) -> None:
    """Print the table and what its intervals say."""
    heads = COLUMNS if console.width >= WIDE else COLUMNS[:-2]
    title = f"{found.settings['model']}: shares in % with their 95 % intervals"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        words = head in ("family", "arm")
        table.add_column(head, justify="left" if words else "right", no_wrap=head != "tasks")
    for whole, half in by_group(found):
        if whole.group in (POOLED, FOLLOWED):
            table.add_section()
        for arm in (WITHOUT, MEMORY):
            row = [Text(cell) for cell in cells(whole, half, arm)]
            table.add_row(*row[: len(heads)], style="bold" * (arm == MEMORY))
    console.print(table)
    for head, lines in sentences(found):
        console.print(Text(head, "bold"), highlight=False)
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False), highlight=False)


def by_group(found: Measured) -> list[tuple[Compared, Compared]]:
    """For every family and pool: all its tasks, and the second half; each pool once."""
    halves = {one.group: one for one in found.compared if one.part == SECOND}
    pairs = [(one, halves[one.group]) for one in found.compared if one.part == ALL]
    every = {one.group: one.memory.tasks for one, _ in pairs}
    same = every.get(FOLLOWED) == every.get(POOLED)
    return [pair for pair in pairs if pair[0].group != FOLLOWED or not same]


def cells(whole: Compared, half: Compared, arm: str, number: str = "d") -> tuple[str, ...]:
    """One arm's row under all heads; `number` is the format of tokens."""
    every, later = (one.memory if arm == MEMORY else one.without for one in (whole, half))
    first = (whole.group or "tasks", str(every.tasks)) if arm == WITHOUT else ("", "")
    shares = (percent(every.at_once), percent(later.at_once), percent(every.solved))
    counts = (str(every.calls), f"{every.tokens:{number}}", f"{every.seconds:.0f}")
    return (*first, arm, *shares, *counts)


def sentences(found: Measured) -> Iterator[tuple[str, list[str]]]:
    """What the intervals say, in words: what about, and the sentences."""
    for part in (SECOND, ALL):
        one = found.pooled(part)
        yield f"{POOLED}, {part} ({one.memory.tasks} tasks)", in_words(one)
    if found.ran.follows:
        yield from _following(found)
    named = [(one.group or "tasks", one) for one, _ in by_group(found)]
    worse = [name for name, one in named if one.gain.value <= 0 and name not in (POOLED, FOLLOWED)]
    if worse:
        yield "families without a gain at once", [", ".join(worse)]


def _following(found: Measured) -> Iterator[tuple[str, list[str]]]:
    shares = [f"{name or 'tasks'} {percent(one)}" for name, one in found.ran.follows.items()]
    yield "right at once after three right examples", [", ".join(shares)]
    least = f"{100 * CAN_FOLLOW:.0f} %"
    halves = [one for one in found.compared if (one.group, one.part) == (FOLLOWED, SECOND)]
    for one in halves:
        yield f"families with at least {least} there, second half", in_words(one)
    if not halves:
        yield f"no family reaches {least} there", ["this model cannot follow examples"]
