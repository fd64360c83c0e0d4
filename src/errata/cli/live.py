"""What a person sees while a demonstration runs: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from errata.cli.batch import Row
from errata.cli.stories import Shown, Story, cut, kinds
from errata.protocols import Answer, Message, Model

WITHOUT, MEMORY = "without memory", "with memory"
LEGEND = "✓ right   ✗ wrong, told what is wrong, asked again   ■ stopped"
HEADS = {
    "corrected": "It was wrong, was told what is wrong, and put it right. The example is kept.",
    "knew": "Now it is right at once: earlier accepted answers stood before the task.",
    "stopped": "Not solved: it was stopped before it could spend more.",
}
WIDE = 88
_COLOURS = {"✓": "green", "✗": "red", "■": "yellow"}


@dataclass
class Watched:
    """A model that says when it is asked, so that a person can see it at work."""

    model: Model
    screen: Screen | None = None

    @property
    def name(self) -> str:
        """The name of the model that answers."""
        return self.model.name

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        schema: Mapping[str, Any] | None = None,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> Answer:
        """What the model answers. Raises what the model raises."""
        if self.screen is not None:
            self.screen.asked()
        return await self.model.complete(
            messages, schema=schema, max_tokens=max_tokens, temperature=temperature, seed=seed
        )

    async def close(self) -> None:
        """Release what the model holds."""
        await self.model.close()


@dataclass
class Screen:
    """Progress of both arms: a line a task, and bars below where `console` is a terminal."""

    console: Console
    total: int
    bars: Progress | None = None
    lines: dict[str, TaskID] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=dict)
    at: tuple[str, str, int] = ("", "", 0)  # the arm, the task, the calls made for it
    told: set[str] = field(default_factory=set)

    @contextmanager
    def open(self, arms: Sequence[str]) -> Iterator[Screen]:
        """Show the bars of these arms until the block ends."""
        self.rows = {arm: [] for arm in arms}
        if not self.console.is_terminal:
            yield self
            return
        columns = (
            TextColumn("{task.description:<14}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}", markup=False),
        )
        with Progress(*columns, console=self.console, transient=True) as self.bars:
            self.lines = {arm: self.bars.add_task(arm, total=self.total, state="") for arm in arms}
            yield self

    def begin(self, arm: str, task: str) -> None:
        """A loop begins."""
        self.at = (arm, task, 0)

    def asked(self) -> None:
        """The model is asked once more for the loop under way; its last answer was rejected."""
        arm, task, calls = self.at
        self.at = (arm, task, calls + 1)
        self._show(arm, f"   {task}  {'✗' * calls}…")

    def ended(self, arm: str, row: Row) -> None:
        """A loop ended."""
        self.rows.setdefault(arm, []).append(row)
        if self.bars is not None:
            self.bars.advance(self.lines[arm])
        self._show(arm, "")

    def task(self, id: str, without: Story, memory: Story) -> None:
        """Both loops of a task ended: one line, and the first story of each kind in full."""
        number = len(self.rows.get(MEMORY, ()))
        line = Text(f"{number:>{len(str(self.total))}}/{self.total} {id:<14.14} ", "dim")
        for name, one in (("without", without), ("with", memory)):
            line.append(f" {name} ", "dim")
            for mark in f"{one.marks:<5}":
                line.append(mark, _COLOURS.get(mark))
        line.append(f" {tail(memory)}")
        self.say(line)
        for kind, one, other in kinds(without, memory):
            if kind not in self.told:
                self.told.add(kind)
                self.tell(HEADS[kind], one, other)

    def tell(self, head: str, one: Story, other: Story) -> None:
        """A story of one loop in a few lines; `other` is the same task in the other arm."""
        self.say(Text(f"   ┌ {head}", "bold"))
        for line in story_lines(one, other):
            self.say(Text(f"   │ {line}"))
        self.say(Text(f"   └ loop {one.loop}", "dim"))

    def say(self, text: str | Text) -> None:
        """One line, above the bars."""
        shown = text if isinstance(text, Text) else Text(text)
        one_line = self.console.is_terminal
        self.console.print(
            shown, no_wrap=one_line, overflow="ellipsis" if one_line else "ignore", crop=one_line
        )

    def _show(self, arm: str, now: str) -> None:
        if self.bars is None or arm not in self.lines:
            return
        rows = self.rows[arm]
        right, calls = sum(row.at_once for row in rows), sum(row.calls for row in rows)
        part = f"{100 * right / len(rows):3.0f} %" if rows else "  – %"
        state = f"right at once {part}   calls {calls}{now}"
        self.bars.update(self.lines[arm], state=state)


def tail(memory: Story) -> str:
    """What the loop with memory shows, in a few words."""
    if memory.at_once:
        count = len(memory.shown)
        return f"saw {count} earlier answer{'s' * (count > 1)}" if count else ""
    return cut(f"told: {memory.told}", WIDE)


def story_lines(one: Story, other: Story) -> Iterator[str]:
    """The lines of a story, each short enough for one line of a terminal."""
    if one.shown and one.at_once:
        for shown in one.shown:
            yield f"recalled  {pair(shown)}"
    yield f"asked     {cut(one.task, WIDE)}"
    for attempt in one.tries:
        mark = "✗" if attempt.wrong else "✓"
        yield f"answered  {mark} {cut(attempt.answer, WIDE) or '(nothing)'}"
        for wrong in attempt.wrong[:1]:
            yield f"told        {cut(wrong, WIDE)}"
    if one.stopped:
        yield f"stopped   {cut(one.stopped, WIDE)}"
    if one.at_once:
        yield f"without memory the same task went {other.marks}"


def pair(shown: Shown) -> str:
    """An example on one line: the end of the earlier task, and its accepted answer."""
    return f"{cut(shown.task, WIDE // 2)} → {cut(shown.accepted, WIDE // 3)}"
