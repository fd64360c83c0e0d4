"""Tables of what each rung of the ladders answered and spent."""

from heedful.cli.output import TextTable, columns
from heedful.loop.ladder import LadderFigures, RungFigures


def _answered(figures: RungFigures) -> str:
    """Return the tasks that a rung answered, and their share."""
    return f"{figures.tasks} ({figures.share:.0%})"


RUNG_COLUMNS = columns(
    "rung model answered attempts calls tokens cost seconds",
    answered=_answered,
    cost=lambda figures: f"{figures.cost:.6g}",
)


def rung_table(figures: LadderFigures) -> list[object]:
    """Return the table of the rungs and a line of the overhead, [] without rungs."""
    if not figures.rungs:
        return []
    table = TextTable(RUNG_COLUMNS, figures.rungs, text_columns=2)
    overhead = str(figures.overhead)
    return [table, overhead] if overhead else [table]


def ladder_tables(figures: LadderFigures) -> list[object]:
    """Return how many tasks were solved, and what each rung did; [] without loops."""
    if not figures.tasks:
        return []

    return [
        f"\nrungs: {figures.passed} of {figures.tasks} tasks solved",
        *rung_table(figures),
    ]
