"""A stored loop as a story, and what a person sees of it while a demonstration runs."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size
from typing import NamedTuple

from rich import progress
from rich.console import Console
from rich.text import Text

from heedful.cli.run import TaskResult
from heedful.display import counted
from heedful.lessons.lesson import Scope
from heedful.loop.codec import policy_from
from heedful.loop.decide import Done
from heedful.loop.explain import describe_reason, explain
from heedful.sanitize import clean
from heedful.store import loops, shown
from heedful.store.store import Store

LEGEND = (
    "each task twice, without memory and with; the tasks of a family share one rule,\n"
    "which only a check knows\n"
    "✓ right   ✗ wrong, asked again with feedback   ■ stopped"
)
HEADS = {
    "corrected": (
        "It was wrong, got feedback, and corrected itself. The example is kept."
    ),
    "knew": (
        "Now the first try is right: earlier accepted answers stood before the task."
    ),
    "stopped": "Not solved: it was stopped before it could spend more.",
}
STORY_INDENT_COLUMNS = 17  # of "   │ feedback    "
COLOURS = {"✓": "green", "✗": "red", "■": "yellow"}
SHOWN = """
select json_extract(e.record, '$.task'), json_extract(e.record, '$.accepted')
from exposure x, json_each(x.examples) s join example e on e.id = s.value
where x.tenant = ? and x.project = ? and x.loop = ? and x.shown order by e.id
"""


class Try(NamedTuple):
    """One answer, and what was wrong with it; nothing if it was accepted."""

    answer: str
    wrong: tuple[str, ...]


class Shown(NamedTuple):
    """An earlier task and its accepted answer, as they stood before the task."""

    task: str
    accepted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """How one loop went; `stopped` is why it ended, "" if it passed. `db` is its
    database.
    """

    db: str
    project: str
    loop: str
    task: str
    tries: tuple[Try, ...]
    shown: tuple[Shown, ...]
    passed: bool
    stopped: str
    explanation: str

    @property
    def at_once(self) -> bool:
        """True if the first answer was accepted."""
        return self.passed and len(self.tries) == 1

    @property
    def marks(self) -> str:
        """One mark an attempt: ✗ rejected, ✓ accepted; and ■ for a stop."""
        if self.passed:
            return "✗" * (len(self.tries) - 1) + "✓"
        return "✗" * len(self.tries) + "■"


async def story(store: Store, scope: Scope, loop: str) -> Story:
    """Read the story of a loop that has ended. Raises NotFound, StoreError."""
    stored = await store.read(scope, loops.read, loop)
    done = stored.verdicts[-1]
    tries = []
    for value, attempt in zip(stored.values, stored.loop.attempts, strict=True):
        errors = attempt.evaluation.errors if attempt.evaluation else ()
        wrong = tuple(
            f"{error.message.rstrip('. ')}. {error.fix}".strip() for error in errors
        )
        tries.append(Try(str(value), wrong))
    return Story(
        db=store.url,
        project=scope.project,
        loop=loop,
        task=str(stored.head.task),
        tries=tuple(tries),
        shown=tuple(_shown(Path(store.url), scope, loop)),
        passed=isinstance(done, Done) and done.passed,
        stopped=describe_reason(done),
        explanation=str(explain(stored.loop, policy_from(stored.head.policy))),
    )


def _shown(path: Path, scope: Scope, loop: str) -> list[Shown]:
    """Read from the file which examples stood in the prompt of a loop."""
    if not path.is_file():
        return []
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
        rows = db.execute(SHOWN, (scope.tenant, scope.project, loop)).fetchall()
    return [Shown(task, accepted) for task, accepted in rows]


def kinds(without: Story, memory: Story) -> Iterator[tuple[str, Story, Story]]:
    """Say what the two stories of one task show, by kind, the telling one first.

    "corrected": fixed after feedback; "knew": right at the first try with examples and
    not without; "stopped": not solved.
    """
    if memory.passed and not memory.at_once:
        yield "corrected", memory, without
    if memory.at_once and memory.shown and not without.at_once:
        yield "knew", memory, without
    if memory.stopped:
        yield "stopped", memory, without
    elif without.stopped:
        yield "stopped", without, memory


def cut(text: str, most: int) -> str:
    """Return the first words of a text on one line without control characters."""
    line = clean(text, 4 * most)
    if len(line) <= most:
        return line

    beginning = line[:most]
    words, blank, _ = beginning.rpartition(" ")
    return f"{words if blank else beginning[:-1]}…"


class Screen:
    """Progress of both arms: a line a task, and on a terminal bars below."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.columns = get_terminal_size().columns
        self._console = Console(stderr=True, highlight=False, width=self.columns)
        self._bars = progress.Progress(
            progress.TextColumn("{task.description:<14}", markup=False),
            progress.BarColumn(bar_width=24),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[state]}", markup=False),
            console=self._console,
            transient=True,
        )
        self._bar_of_arm: dict[str, progress.TaskID] = {}

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def say(self, text: Text | str) -> None:
        """Print a line above the bars, cut at the width of the terminal."""
        self._console.print(text, markup=False, no_wrap=True, overflow="ellipsis")

    def arm(self, arm: str, rows: list[TaskResult], now: str = "") -> None:
        """Move the bar of an arm; `now` is the id of the task that runs."""
        right = sum(1 for row in rows if row.at_once)
        calls = sum(row.calls for row in rows)
        share = f"{100 * right / len(rows):3.0f} %" if rows else "  – %"
        state = f"{len(rows)}/{self.total}   first try right {share}   calls {calls}"
        if now:
            state += f"   {now}…"
        if arm not in self._bar_of_arm:
            self._bar_of_arm[arm] = self._bars.add_task(
                arm, total=self.total, state=state
            )
        self._bars.update(self._bar_of_arm[arm], completed=len(rows), state=state)

    def task(self, id: str, number: int, without: Story, memory: Story) -> None:
        """Print the line of a task when both of its loops have ended."""
        line = Text(
            f"{number:>{len(str(self.total))}}/{self.total} {id:<14.14} ", "dim"
        )
        for name, arm_story in (("without", without), ("with", memory)):
            line.append(f" {name} ", "dim")
            for mark in f"{arm_story.marks:<5}":
                line.append(mark, COLOURS.get(mark))
        words = ""
        if memory.shown:
            words = f"saw {counted(len(memory.shown), 'earlier answer')}"
        if not memory.at_once:
            words = f"feedback: {' '.join(memory.tries[0].wrong[:1])}"
        line.append(f" {cut(words, self.columns - len(line) - 1)}")
        self.say(line)

    def tell(self, head: str, telling: Story, other: Story) -> None:
        """Print the story of a loop in a few lines; `other` is the same task in the
        other arm.
        """
        self.say(Text(f"   ┌ {head}", "bold"))
        for line in _lines(telling, other, self.columns - STORY_INDENT_COLUMNS):
            self.say(f"   │ {line}")
        command = ["why", telling.loop, "--db", shown(telling.db)]
        if telling.project != Scope().project:
            command += ["--project", telling.project]
        last = f"   └ heedful {shlex.join(command)}"
        if len(last) > self.columns:  # half a command is of no use
            last = f"   └ loop {telling.loop}"
        self.say(Text(last, "dim"))


def _lines(telling: Story, other: Story, most: int) -> Iterator[str]:
    """Yield the lines of a story, which quote at most `most` characters."""
    if telling.at_once:
        for task, accepted in telling.shown:
            answer = cut(accepted, most // 3)
            yield f"recalled  {cut(task, most - len(answer) - 1)} → {answer}"
    yield f"asked     {cut(telling.task, most)}"
    for attempt in telling.tries:
        mark = "✗" if attempt.wrong else "✓"
        yield f"answered  {mark} {cut(attempt.answer, most) or '(nothing)'}"
        for wrong in attempt.wrong[:1]:
            yield f"feedback    {cut(wrong, most)}"
    if telling.stopped:
        yield f"stopped   {cut(telling.stopped, most)}"
    if telling.at_once:
        yield f"without memory the same task went {other.marks}"
