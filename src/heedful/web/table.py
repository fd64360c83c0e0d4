"""The rows of a page as CSV: for spreadsheets, and for programs that read them.

A page declares its columns once. What a spreadsheet would take for a formula has an
apostrophe before it, because tools and users wrote it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import StringIO
from typing import Any

from starlette.responses import Response

from heedful.pages.report import text

MAX_CSV_ROWS = 2_000
MAX_CSV_CELL_CHARS = 2_000
CSV_READ_ROWS = 250  # rows of one look at the data of a page
# What may stand before the sign of a formula: blanks, quotes, what is drawn as nothing.
_BLANKS_REGEX = r"(?:[^\S\t\r\n]|[\"\x00-\x08\xad\u200b-\u200f\u2060\ufeff])*"
# Where a formula may begin: at the start of a text, and after what other spreadsheets
# take for the end of a cell.
_FORMULA_PATTERN = re.compile(
    r"\A(?=[\t\r\n])|(?:\A|(?<=[;\t\r\n]))"
    rf"(?={_BLANKS_REGEX}[=+\-@\uff1d\uff0b\uff0d\uff20])"
)
Plain = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Which data of a page are rows, and what stands in each column.

    A column is the place of its value in a row, such as `uplift.gain`, or a function of
    the row. There are `most` rows.
    """

    rows: str
    columns: Mapping[str, str | Callable[[Plain], Any]]
    most: int = MAX_CSV_ROWS

    def csv(self, rows: Iterable[Plain]) -> str:
        """Return the rows as CSV, with the names of the columns first."""
        file = StringIO()
        writer = csv.writer(file)
        writer.writerow(self.columns)
        for row in rows:
            cells = [_value(row, column) for column in self.columns.values()]
            writer.writerow([_cell(value) for value in cells])
        return file.getvalue()


def time_of(name: str) -> Callable[[Plain], str]:
    """Return a column with a time, which the rows have as seconds since 1970."""

    def column(row: Plain) -> str:
        """Return the time as ISO 8601, "" if it is unknown."""
        if not row.get(name):
            return ""
        return datetime.fromtimestamp(row[name], UTC).isoformat(timespec="seconds")

    return column


def _value(row: Plain, column: str | Callable[[Plain], Any]) -> Any:
    """Return the value of a column; None if the row has no such value."""
    if not isinstance(column, str):
        return column(row)

    value: Any = row
    for name in column.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _cell(value: Any) -> str | float:
    """Return a value as a cell: a number, or a text that is no formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return value

    if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
        value = ", ".join(value)
    words = text(value)[:MAX_CSV_CELL_CHARS]
    return _FORMULA_PATTERN.sub("'", words)


def csv_response(rows: str, name: str) -> Response:
    """Return a table as a file with a name."""
    return Response(
        rows.encode("utf-8", "replace"),
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
        media_type="text/csv",
    )
