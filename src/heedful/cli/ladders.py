"""Tables of what each rung of the ladders answered and spent."""

from __future__ import annotations

from heedful.cli.output import TextTable, columns
from heedful.loop.rungs import LadderFigures, RungFigures, WeekFigures

MAX_SHOWN_WEEKS = 12


def _answered(figures: RungFigures) -> str:
    """Return the tasks that a rung answered, and their share."""
    return f"{figures.tasks} ({figures.share:.0%})"


def _solved(figures: WeekFigures) -> str:
    """Return the share of tasks that any rung answered, with its interval."""
    ends = f"{figures.low:.0%} and {figures.high:.0%}"
    return f"{figures.passed:.0%}, between {ends}"


RUNG_COLUMNS = columns(
    "rung model answered attempts calls tokens cost seconds",
    answered=_answered,
    cost=lambda figures: f"{figures.cost:.6g}",
)
WEEK_COLUMNS = columns(
    "week tasks cost_a_task rung_1_alone solved",
    cost_a_task=lambda figures: f"{figures.cost:.6g}",
    rung_1_alone=lambda figures: f"{figures.small:.0%}",
    solved=_solved,
)


def rung_table(figures: LadderFigures) -> list[object]:
    """Return the table of the rungs and a line of the overhead, [] without rungs."""
    if not figures.rungs:
        return []
    table = TextTable(RUNG_COLUMNS, figures.rungs, text_columns=2)
    overhead = str(figures.overhead)
    return [table, overhead] if overhead else [table]


def ladder_tables(figures: LadderFigures) -> list[object]:
    """Return the tables of the rungs and of the last weeks, [] without loops."""
    if not figures.tasks:
        return []

    return [
        f"\nrungs: {figures.passed} of {figures.tasks} tasks solved",
        *rung_table(figures),
        TextTable(WEEK_COLUMNS, figures.weeks[-MAX_SHOWN_WEEKS:]),
    ]
