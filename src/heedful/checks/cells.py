"""Cells of any column -> floats, and the names that keys go by.

A cell means the same wherever it comes from: text that reads as a number is that number (all of CSV
is text), an empty cell, None and NaN are missing, and truth values are no numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from math import inf, nan
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heedful.checks.moments import Floats

MISSING = frozenset({"", "null", "none", "na", "n/a", "nan", "<na>", "nat"})
"""Texts that say that a cell is missing, in any case."""


@dataclass(frozen=True, slots=True)
class Numeric:
    """The cells of a column as floats, NaN where missing; `wrong` are no numbers, `example` is the
    first of these."""

    values: Floats
    wrong: int = 0
    example: Any = None


def numeric(cells: Any) -> Numeric:
    """The cells of a pyarrow array, a numpy array or a sequence as floats."""
    import numpy as np

    if hasattr(cells, "to_pylist"):
        return _of_arrow(cells)
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "fiu":
        return Numeric(cells.astype(np.float64))
    return _of_list(listed(cells))


def _of_arrow(cells: Any) -> Numeric:
    import pyarrow as pa
    from pyarrow import compute as pc

    kind = cells.type
    if pa.types.is_dictionary(kind):
        cells = cells.dictionary_decode() if hasattr(cells, "dictionary_decode") else cells
        kind = cells.type
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)
    if plain or pa.types.is_decimal(kind):
        return Numeric(_floats(pc.cast(cells, pa.float64(), safe=False)))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        try:
            return Numeric(_floats(pc.cast(cells, pa.float64())))
        except pa.ArrowInvalid:  # one cell at least is none that Arrow can read
            return _of_list(listed(cells))
    return _of_list(listed(cells))


def listed(cells: Any) -> list[Any]:
    """The cells of a pyarrow array, a numpy array or a sequence as plain objects."""
    if not hasattr(cells, "to_pylist"):
        return list(cells.tolist() if hasattr(cells, "tolist") else cells)
    import pyarrow as pa

    kind = cells.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":  # Python's own times have microseconds
        cells = cells.cast(pa.timestamp("us", kind.tz), safe=False)
    return list(cells.to_pylist())


def _floats(cells: Any) -> Floats:
    import numpy as np

    values: Floats = np.asarray(cells.to_numpy(zero_copy_only=False), dtype=np.float64)
    return values


def _of_list(cells: Sequence[Any]) -> Numeric:
    import numpy as np

    values = np.empty(len(cells))
    wrong, example = 0, None
    for at, cell in enumerate(cells):
        value = number(cell)
        if value is None:
            wrong, example = wrong + 1, example if wrong else cell
            value = nan
        values[at] = value
    return Numeric(values, wrong, example)


def number(cell: Any) -> float | None:
    """The number that a cell is, NaN where it is missing; None where it is none.

    >>> number(" 1e3 "), number(True), number("1_000")
    (1000.0, None, None)
    """
    if type(cell) is float:
        return cell
    if missing(cell):
        return nan
    truth = isinstance(cell, bool) or type(cell).__name__ in ("bool", "bool_")
    if truth or not (isinstance(cell, str) or hasattr(cell, "__float__")):
        return None
    if isinstance(cell, str) and ("_" in cell or not cell.isascii()):
        return None
    try:
        return float(cell)
    except OverflowError:  # a whole number beyond all floats
        return inf if cell > 0 else -inf
    except (ValueError, TypeError):
        return None


def missing(cell: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, NaT, an empty text or a word for it."""
    if cell is None:
        return True
    if isinstance(cell, str):
        return len(cell) < 9 and cell.strip().casefold() in MISSING
    if isinstance(cell, Decimal):
        return cell.is_nan()
    unequal = cell != cell
    return type(cell).__name__ in ("NAType", "NaTType") or unequal is True or str(unequal) == "True"


def keyed(cell: Any) -> str:
    """The text that a cell goes by as a key: 7, 7.0, "7" and "7.0" are one key, "007" is another.

    A date and the same date at midnight are one, too, and so are Z and +00:00 behind a time; a
    missing cell is "". "NA" may be a key.
    """
    if type(cell) is int:
        return str(cell)
    if not isinstance(cell, str) and missing(cell):
        return ""
    if isinstance(cell, datetime):
        text = cell.isoformat(" ")
    elif isinstance(cell, date | time):
        text = cell.isoformat()
    else:
        text = str(cell).strip()
    if text[:10].count("-") == 2 and len(text) > 10:
        text = text.replace("T", " ", 1)
        return re.sub(r"[zZ]\Z", "+00:00", text).removesuffix(" 00:00:00")
    whole, point, rest = text.partition(".")
    return whole if point and not rest.strip("0") and whole.lstrip("-").isdecimal() else text
