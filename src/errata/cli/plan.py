"""What a demonstration runs: which tasks in which order, with which model and settings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

import errata
from errata.cli.tasks import Task, read_tasks
from errata.errors import TaskFileError

EXAMPLE = Path("house_rules", "tasks.jsonl")
# What the model is told besides the task: nothing about any rule.
SYSTEM = "Answer with the result only, on one line."
MAX_TOKENS = 48
# 7 tasks of each of 9 families, twice: about 290 calls, 0.85 s each on one core: four minutes.
PER_FAMILY = 7
GOLD_EXAMPLES = 3


@dataclass(frozen=True)
class Plan:
    """The tasks in the order in which both arms get them, and what else shapes the answers.

    `source` is the digest of the task file and of the code of its checks; `by_meaning` says how
    recall compares. A `full` plan has all tasks of the file, and measures the gold.
    """

    model: str
    path: Path
    tasks: tuple[Task, ...]
    source: str
    full: bool = False
    by_meaning: bool = False

    @property
    def key(self) -> str:
        """Tells plans apart whose answers may differ: model, embedder, tasks, checks, settings."""
        parts = [errata.__version__, self.model, str(self.by_meaning), SYSTEM, str(MAX_TOKENS)]
        parts += [self.source, *(task.id for task in self.tasks)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:6]


def plan(
    path: Path | None, model: str, *, full: bool = False, per_family: int = PER_FAMILY
) -> Plan:
    """Read the tasks and choose. Raises TaskFileError."""
    path = path or example_tasks()
    chosen = in_turn(read_tasks(path), None if full else per_family)
    files = [path, *sorted(path.parent.glob("*.py"))]
    source = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
    return Plan(model, path, tuple(chosen), source, full)


def example_tasks() -> Path:
    """The tasks that come with errata: in the installed package, else in its checkout."""
    package = Path(errata.__file__).parent
    places = (package / "_examples" / EXAMPLE, package.parents[1] / "examples" / EXAMPLE)
    for place in places:
        if place.is_file():
            return place
    what = "the example tasks are not there; name a task file with --tasks"
    raise TaskFileError(str(places[0]), 0, what)


def families(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    """The tasks of every family, in their order."""
    found: dict[str, list[Task]] = {}
    for task in tasks:
        found.setdefault(task.family, []).append(task)
    return found


def in_turn(tasks: Sequence[Task], most: int | None) -> list[Task]:
    """The first `most` tasks of every family (None: all), one family after the other in turn."""
    every = [members[:most] for members in families(tasks).values()]
    return [task for task in chain.from_iterable(zip_longest(*every)) if task is not None]


def right_answer(task: Task) -> str:
    """The right answer, for measurement only, from the task's context or a check; "" if unknown.

    No loop reads it: prompts are made of the task's text, and checks have rules of their own.
    """
    given = task.context.get("answer") if isinstance(task.context, Mapping) else None
    answers = [given, *(getattr(check, "expected", None) for check in task.checks)]
    return next((answer for answer in answers if isinstance(answer, str)), "")


def gold(tasks: Sequence[Task]) -> Iterator[tuple[str, list[Task], list[Task]]]:
    """For each family three tasks with right answers, and the tasks to be asked with them.

    Families without right answers or with nothing left to ask are left out. Asked is the second
    half, so that the share is over the tasks for which memory is scored too.
    """
    for name, members in families(tasks).items():
        shown = [task for task in members if right_answer(task)][:GOLD_EXAMPLES]
        asked = [task for task in members[len(members) // 2 :] if task not in shown]
        if len(shown) == GOLD_EXAMPLES and asked:
            yield name, shown, asked
