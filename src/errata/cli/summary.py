"""The table that a demonstration ends with, and the sentences under it."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from errata.cli.figures import (
    ALL,
    CAN_FOLLOW,
    FOLLOWED,
    POOLED,
    SECOND,
    Compared,
    Figures,
    in_words,
    percent,
)
from errata.cli.live import MEMORY, WITHOUT
from errata.cli.measured import Measured

# Below this many columns tokens and seconds stay out of the table; they are in the report.
WIDE = 104


def print_summary(found: Measured, console: Console) -> None:
    """Print the table and what its intervals say."""
    console.print(drawn(found, console.width >= WIDE))
    for head, lines in sentences(found):
        console.print(Text(head, "bold"), highlight=False)
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False), highlight=False)


def drawn(found: Measured, wide: bool = True) -> Table:
    """A row for each arm of each family, and of all of them."""
    title = f"{found.settings['model']}: shares in % with their 95 % intervals"
    table = Table(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("family", no_wrap=True)
    table.add_column("tasks", justify="right")
    table.add_column("arm", no_wrap=True)
    heads = ["right at once", "second half", "solved", "calls"]
    for head in heads + (["tokens", "seconds"] if wide else []):
        table.add_column(head, justify="right", no_wrap=True)
    for whole, half in by_group(found):
        if whole.group in (POOLED, FOLLOWED):
            table.add_section()
        for name in (WITHOUT, MEMORY):
            table.add_row(*_cells(whole, half, name, wide), style="bold" * (name == MEMORY))
    return table


def by_group(found: Measured) -> list[tuple[Compared, Compared]]:
    """For every family and pool: all its tasks, and the second half; each pool once."""
    halves = {one.group: one for one in found.compared if one.part == SECOND}
    pairs = [(one, halves[one.group]) for one in found.compared if one.part == ALL]
    every = {one.group: one.memory.tasks for one, _ in pairs}
    same = every.get(FOLLOWED) == every.get(POOLED)
    return [pair for pair in pairs if pair[0].group != FOLLOWED or not same]


def arm(one: Compared, name: str) -> Figures:
    """The figures of one arm."""
    return one.memory if name == MEMORY else one.without


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


def _cells(whole: Compared, half: Compared, name: str, wide: bool) -> list[Text]:
    all_of, later = arm(whole, name), arm(half, name)
    first = name == WITHOUT
    cells = [
        (whole.group or "tasks") if first else "",
        str(all_of.tasks) if first else "",
        name,
        percent(all_of.at_once),
        percent(later.at_once),
        percent(all_of.solved),
        str(all_of.calls),
    ]
    cells += [str(all_of.tokens), f"{all_of.seconds:.0f}"] if wide else []
    return [Text(cell) for cell in cells]
