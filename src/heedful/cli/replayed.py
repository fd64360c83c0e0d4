"""The figures of policies over recorded loops: worked out, as a table, as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from heedful.cli.output import table
from heedful.cli.progress import Progress
from heedful.loop.decide import Policy
from heedful.loop.replay import Figures, RecordedLoop, compare
from heedful.store.history import WHOLE


def compared(
    recorded: Sequence[RecordedLoop], policies: Iterable[Policy], progress: Progress
) -> tuple[Figures, list[Figures]]:
    """What the record holds, and what each policy would have made of it."""
    every = [WHOLE, *policies]
    made, total = list[Figures](), len(every) * len(recorded)
    progress.counted("replaying", 0, total)
    for policy in every:
        made += compare(recorded, [policy])
        progress.counted("replaying", len(made) * len(recorded), total)
    # Of what it holds, a record can always tell.
    return replace(made[0], beyond=0), made[1:]


def print_figures(head: str, rows: Sequence[tuple[str, Figures]]) -> None:
    """A line for each; calls and tokens only where they say more than the attempts."""
    told = [_cells(figures) for _, figures in rows]
    silent = {
        "calls": all(cells["calls"] == cells["attempts"] for cells in told),
        "tokens": all(cells["tokens"] == "0" for cells in told),
    }
    heads = [name for name in told[0] if not silent.get(name)]
    lines = zip((name for name, _ in rows), told, strict=True)
    table((head, *heads), [(name, *(cells[each] for each in heads)) for name, cells in lines])


def _cells(figures: Figures) -> dict[str, str]:
    ratio = figures.attempts / figures.oracle if figures.oracle else 0.0
    return {
        "attempts": str(figures.attempts),
        "÷ oracle": f"{ratio:.3f}",
        "calls": str(figures.usage.calls),
        "tokens": str(figures.usage.tokens),
        "solved": str(figures.solved),
        "lost": str(figures.lost),
        "quality": f"{figures.quality:.3f}",
        "regret": str(figures.regret),
        "cannot tell": str(figures.beyond),
    }
