"""The table of failures: what failed in runs, what put it right, and how often.

`heedful reflect` and `heedful learn-sessions` end with it, the most costly first.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from heedful.cli.output import columns, shorten
from heedful.episodes.episode import Episode
from heedful.lessons.lesson import Remembered
from heedful.lessons.mistake import Mistake
from heedful.lessons.render import FailureRow
from heedful.sanitize import clean


class FailureTable:
    """The failures of the runs that a command read, by database and signature."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], FailureRow] = {}

    def add(
        self,
        db: str,
        mistake: Mistake,
        stored: Remembered | None,
        episode: Episode | None = None,
    ) -> None:
        """Add a mistake of a run, with the answer about its lesson in memory."""
        row = self._rows.setdefault((db, mistake.signature), FailureRow.of(mistake))
        row.calls += mistake.calls_lost
        row.runs += 1
        row.fixed_by = row.fixed_by or FailureRow.of(mistake).fixed_by
        times = [event.at for event in episode.events if event.at] if episode else []
        row.last_seen = max([*times, row.last_seen or 0]) or None
        if stored is not None and stored.id:
            row.runs = stored.seen
            row.lesson = stored.id
            row.state = stored.state

    def ranked(self) -> list[FailureRow]:
        """Return the failures, the most costly first."""
        return sorted(self._rows.values(), key=lambda row: (-row.runs, -row.calls))

    def documents(self) -> list[dict[str, Any]]:
        """Return the failures as JSON data."""
        return [{**asdict(row), "told": row.told} for row in self.ranked()]

    def text(self) -> list[object]:
        """Return the table, shortened to what a person reads."""
        return shorten(FAILURE_COLUMNS, self.ranked(), text_columns=2)


def _fix_cell(row: FailureRow) -> str:
    """Return what fixed a failure, as a cell of the table."""
    return clean(row.fixed_by, 160) or "nothing yet"


def _time_cell(row: FailureRow) -> float | str:
    """Return when a failure was last seen, "" if no run says."""
    return row.last_seen or ""


FAILURE_COLUMNS = columns(
    "failure fixed_by runs last_seen calls told lesson",
    failure="error",
    fixed_by=_fix_cell,
    last_seen=_time_cell,
)


def told_words(rows: Sequence[FailureRow]) -> str:
    """Return how many failures agents will be told of, and how many wait."""
    announced = sum(row.told == "will be" for row in rows)
    waiting = sum(row.told == "waits" for row in rows)
    if not announced and not waiting:
        return ""
    words = f"agents will be told of {announced}"
    return f"{words}; {waiting} wait until you release them" if waiting else words
