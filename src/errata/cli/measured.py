"""What a demonstration measured, as one value: for the table, the report and result.json."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import which
from typing import Any

import errata
from errata.cli.arms import RUNS, Ran
from errata.cli.figures import ALL, POOLED, SECOND, Compared, comparisons, groups, in_words
from errata.cli.live import MEMORY
from errata.cli.plan import Plan
from errata.cli.stories import Story, pick
from errata.loop import policies

TOP = 10


@dataclass(frozen=True)
class Measured:
    """Everything that table, picture, report and result.json say; `commands` are to type next."""

    ran: Ran
    compared: tuple[Compared, ...]
    stories: Mapping[str, tuple[Story, Story]]
    lessons: tuple[Mapping[str, Any], ...]
    settings: Mapping[str, str]
    machine: Mapping[str, str]
    commands: tuple[tuple[str, str], ...]

    @property
    def families(self) -> int:
        """How many families there were."""
        return len(groups(self.ran.memory))

    def pooled(self, part: str) -> Compared:
        """All families over one part of the tasks."""
        pools = [one for one in self.compared if one.part == part]
        return next((one for one in pools if one.group == POOLED), pools[0])

    def plain(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "settings": dict(self.settings),
            "machine": dict(self.machine),
            "figures": [asdict(one) for one in self.compared],
            "words": {part: in_words(self.pooled(part)) for part in (ALL, SECOND)},
            "follows_gold": {name: asdict(one) for name, one in self.ran.follows.items()},
            "rows": {
                RUNS[MEMORY]: [asdict(row) for row in self.ran.memory],
                "without": [asdict(row) for row in self.ran.without],
            },
            "lessons": [dict(one) for one in self.lessons],
            "seconds": self.ran.seconds,
            "commands": [line for _, line in self.commands],
        }


def measured(
    plan: Plan, ran: Ran, lessons: Sequence[Mapping[str, Any]], db: Path, again: str
) -> Measured:
    """Draw the figures; `again` is the command that gave them."""
    return Measured(
        ran,
        tuple(comparisons(ran.without, ran.memory, ran.follows)),
        pick(ran.stories),
        tuple(lessons[:TOP]),
        _settings(plan, again),
        machine(),
        tuple(_commands(ran, db)),
    )


def machine() -> dict[str, str]:
    """What it ran on."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(os.cpu_count() or "unknown"),
        "python": platform.python_version(),
        "errata": errata.__version__,
    }


def _settings(plan: Plan, again: str) -> dict[str, str]:
    policy = policies.default
    rules = ", ".join(str(rule) for rule in policy.rules)
    return {
        "model": plan.model,
        **_weights(plan.model),
        "threads": str(plan.threads or max(1, (os.cpu_count() or 1) - 1)),
        "recall by": "meaning (all-MiniLM-L6-v2)" if plan.embedder == "minilm" else "words",
        "tasks": f"{len(plan.tasks)} of {_shown(plan.path)}, {'all' if plan.full else 'a subset'}",
        "order": "one task of each family in turn, both arms the same, one call at a time",
        "system prompt": plan.system,
        "temperature": "0, warmer after a repeated answer",
        "tokens an answer": f"at most {plan.max_tokens}",
        "policy": f"{policy.name}: {rules}",
        "memory": "empty at the start; holdout off; up to 3 earlier accepted answers as chat turns",
        "command": again,
    }


def _weights(model: str) -> dict[str, str]:
    """Which weights an embedded model is, where it is one of the fetch list."""
    from errata.errors import UnknownName
    from errata.models import weights

    if model.partition(":")[0] != "embedded":
        return {}
    try:
        found = weights.find(model)
    except UnknownName:  # a file of the user's
        return {}
    return {"weights": f"{found.about}, SHA-256 {found.sha256[:12]}…"}


def program() -> str:
    """How this user can call errata: by its name, or by the path of what runs now."""
    given = Path(sys.argv[0])
    if which("errata"):
        return "errata"
    if given.name.startswith("errata") and given.is_file():
        return shlex.quote(str(_shown(given)))
    return f"{shlex.quote(sys.executable)} -m errata.cli"


def _commands(ran: Ran, db: Path) -> list[tuple[str, str]]:
    """Three commands that work on what was stored."""
    told = pick(ran.stories)
    telling = next(
        (told[kind][0] for kind in ("corrected", "stopped", "knew") if kind in told), None
    )
    loop = telling.loop if telling else ran.memory[0].loop
    task = told["knew"][0].task if "knew" in told else ran.stories[-1][1].task
    lines = (
        ("what it has learnt", ["lessons"]),
        ("why a loop went on and why it ended", ["why", loop]),
        ("what a task brings back", ["recall", task]),
    )
    at = ["--db", str(db)]
    return [(what, f"{program()} {shlex.join([*line, *at])}") for what, line in lines]


def _shown(path: Path) -> Path:
    """The path as seen from the current folder, where it lies below it."""
    try:
        return path.resolve().relative_to(Path.cwd())
    except ValueError:
        return path
