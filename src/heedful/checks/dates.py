"""Dates and weekdays in a text, in several orders. Pure."""

from __future__ import annotations

import re
from calendar import monthrange, weekday
from collections.abc import Iterator
from typing import NamedTuple

MONTHS = "january february march april may june july august september october november december"
DAYS = "monday tuesday wednesday thursday friday saturday sunday"
WEEKDAYS = {name: n for n, name in enumerate(DAYS.split())}
_MONTHS = {name[:3]: n for n, name in enumerate(MONTHS.split(), 1)}
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"""\b(?:
      (?P<iso>\d{{4}})[-/._](?P<iso_m>\d{{1,2}})[-/._](?P<iso_d>\d{{1,2}})
    | (?P<a>\d{{1,2}})(?P<sep>[-/._])(?P<b>\d{{1,2}})(?P=sep)(?P<y>\d{{4}}|\d\d)
    | (?P<first>{_DAY}(?:\s+and\s+{_DAY})?)\s+(?:of\s+)?(?P<m1>{_MONTH})(?:,?\s+(?P<y1>\d{{4}}))?
    | (?:(?P<y2>\d{{4}}),?\s+)?(?P<m2>{_MONTH})\s+(?P<second>{_DAY}(?:\s+and\s+{_DAY}\b)?)
      (?:\s*,?\s+(?P<y3>\d{{4}}))?
    | (?P<m4>{_MONTH})\s+(?:of\s+)?(?P<y4>\d{{4}}) | (?P<y5>\d{{4}}),\s+(?P<m5>{_MONTH})
    )(?!(?!T\d\d:)\w)""",
    re.VERBOSE | re.IGNORECASE,
)


class Date(NamedTuple):
    """A date at `start` to `end` of a text; what is not said is 0."""

    start: int
    end: int
    year: int
    month: int
    day: int

    def agrees(self, other: Date) -> bool:
        """Whether nothing that both say differs."""
        return all(
            not one or not two or one == two for one, two in zip(self[2:], other[2:], strict=True)
        )

    @property
    def weekday(self) -> int | None:
        """0 for Monday to 6; None for a date that is not whole."""
        return weekday(self.year, self.month, self.day) if self.year and self.day else None


def dates(text: str) -> Iterator[Date]:
    """The dates of a text, those that no calendar has left out.

    In all-digit dates of ambiguous order the month comes first, with points the day.
    """
    for found in _DATE.finditer(text):
        for year, month, day in _numbers(found.groupdict()):
            if 1 <= month <= 12 and (not day or day <= monthrange(year or 2000, month)[1]):
                yield Date(found.start(), found.end(), year, month, day)


def _numbers(part: dict[str, str | None]) -> Iterator[tuple[int, int, int]]:
    def whole(*names: str) -> int:
        said = next((part[name] for name in names if part[name]), None)
        return int(re.sub(r"\D+", "", said)) if said else 0

    if part["iso"]:
        yield whole("iso"), whole("iso_m"), whole("iso_d")
    elif part["sep"]:
        a, b, year = whole("a"), whole("b"), whole("y")
        month, day = (b, a) if a > 12 or (part["sep"] == "." and b <= 12) else (a, b)
        yield year + 2000 * (year < 70) + 1900 * (70 <= year < 100), month, day
    else:
        name = part["m1"] or part["m2"] or part["m4"] or part["m5"] or ""
        days = re.findall(r"\d+", part["first"] or part["second"] or "0")
        for day in days:
            yield whole("y1", "y2", "y3", "y4", "y5"), _MONTHS[name[:3].casefold()], int(day)
