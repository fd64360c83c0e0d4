"""What a person sees while a demonstration runs: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from heedful.cli.batch import Row
from heedful.cli.figures import MEMORY, WITHOUT
from heedful.cli.progress import Progress
from heedful.cli.stories import Story, cut

LEGEND = "✓ right   ✗ wrong, told what is wrong, asked again   ■ stopped"
HEADS = {
    "corrected": "It was wrong, was told what is wrong, and put it right. The example is kept.",
    "knew": "Now it is right at once: earlier accepted answers stood before the task.",
    "stopped": "Not solved: it was stopped before it could spend more.",
}
WIDE = 88
_COLOURS = {"✓": "green", "✗": "red", "■": "yellow"}


class Screen(Progress):
    """Progress of both arms: a line a task, and bars below where `console` is a terminal."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        super().__init__(console)
        self.total = total
        self.rows: dict[str, list[Row]] = {WITHOUT: [], MEMORY: []}

    def begin(self, arm: str, task: str) -> None:
        """A loop begins."""
        self._show(arm, f"   {task}…")

    def ended(self, arm: str, row: Row) -> None:
        """A loop ended."""
        self.rows[arm].append(row)
        self._show(arm, "")

    def task(self, id: str, without: Story, memory: Story) -> None:
        """Both loops of a task ended: one line."""
        number = len(self.rows[MEMORY])
        line = Text(f"{number:>{len(str(self.total))}}/{self.total} {id:<14.14} ", "dim")
        for name, one in (("without", without), ("with", memory)):
            line.append(f" {name} ", "dim")
            for mark in f"{one.marks:<5}":
                line.append(mark, _COLOURS.get(mark))
        line.append(f" {tail(memory)}")
        self.say(line)

    def tell(self, head: str, one: Story, other: Story) -> None:
        """A story of one loop in a few lines; `other` is the same task in the other arm."""
        self.say(Text(f"   ┌ {head}", "bold"))
        for line in story_lines(one, other):
            self.say(f"   │ {line}")
        self.say(Text(f"   └ loop {one.loop}", "dim"))

    def _show(self, arm: str, now: str) -> None:
        rows = self.rows[arm]
        right, calls = sum(row.at_once for row in rows), sum(row.calls for row in rows)
        part = f"{100 * right / len(rows):3.0f} %" if rows else "  – %"
        state = f"{len(rows)}/{self.total}   right at once {part}   calls {calls}{now}"
        self.bar(arm, len(rows), self.total, state)


def tail(memory: Story) -> str:
    """What the loop with memory shows, in a few words."""
    if memory.at_once:
        count = len(memory.shown)
        return f"saw {count} earlier answer{'s' * (count > 1)}" if count else ""
    return cut(f"told: {' '.join(memory.tries[0].wrong[:1])}", WIDE)


def story_lines(one: Story, other: Story) -> Iterator[str]:
    """The lines of a story, each short enough for one line of a terminal."""
    if one.at_once:
        for task, accepted in one.shown:
            yield f"recalled  {cut(task, WIDE // 2)} → {cut(accepted, WIDE // 3)}"
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
