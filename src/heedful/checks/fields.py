"""`finite`, `ranges`, `schema`: the cells of each column by itself, read batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from math import isfinite, nan
from typing import Any, ClassVar

from heedful.checks.batches import Unread, lacking, opened
from heedful.checks.cells import Numeric, listed, missing, numeric
from heedful.checks.evaluate import Context
from heedful.checks.files import located, named
from heedful.checks.framed import Framed, is_schema
from heedful.checks.moments import Moments
from heedful.checks.predicted import bad_cells, exactly
from heedful.checks.text import require
from heedful.errors import InvalidInput
from heedful.loop.record import Finding, Level

Bounds = tuple[float | None, float | None]


@dataclass(frozen=True, slots=True)
class Field:
    """What the cells of a column are to be: of a `kind`, within `bounds`, all there.

    `required`: the column has to be there; `nullable`: cells of it need not.
    """

    kind: str = "numbers"
    bounds: Bounds = (None, None)
    required: bool = True
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """What was read of one column: cells `below` and `above` its bounds, and `wrong` ones that are
    not of its kind, with the first as `example`."""

    name: str
    field: Field
    moments: Moments = Moments()
    wrong: int = 0
    example: Any = None
    below: int = 0
    above: int = 0

    def after(self, cells: Any) -> Column:
        """The same with one more batch."""
        read = KINDS[self.field.kind](cells)
        low, high = self.field.bounds
        return replace(
            self,
            moments=self.moments + Moments.of(read.values),
            wrong=self.wrong + read.wrong,
            example=self.example if self.wrong else read.example,
            below=self.below + (0 if low is None else int((read.values < low).sum())),
            above=self.above + (0 if high is None else int((read.values > high).sum())),
        )

    def findings(self, check: str) -> Iterator[Finding]:
        """What is wrong with it: cells of another kind, missing, none at all, out of bounds."""
        name, column, kind = self.name, self.moments, self.field.kind
        absent: Level | None = None if self.field.nullable else "error"
        own = check if check == "schema" else "finite"
        yield from bad_cells(name, column, self.wrong, self.example, absent, kind, own)
        if not column.n and not (self.field.nullable and column.rows):
            what = f"{name} has no {kind} in {column.rows} rows"
            yield _bad(check, what, f"write {kind} in {name}", f"{name} empty")
        low, high = self.field.bounds
        fix = f"keep {name} {_within(low, high)}: correct the rows or how they are made"
        if low is not None and self.below:
            what = f"{name} has {self.below} of {column.rows} values below {exactly(low)}"
            yield _bad(check, f"{what}{_most('lowest', column.low)}", fix, f"{name} below")
        if high is not None and self.above:
            what = f"{name} has {self.above} of {column.rows} values above {exactly(high)}"
            yield _bad(check, f"{what}{_most('highest', column.high)}", fix, f"{name} above")


def _within(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"within {exactly(low)} to {exactly(high)}"
    return f"at least {exactly(low)}" if low is not None else f"at most {exactly(high or 0)}"


def _most(which: str, value: float) -> str:
    return f"; the {which} is {exactly(value)}" if isfinite(value) else ""


def _bad(check: str, what: str, fix: str, kind: str) -> Finding:
    return Finding(check, what, fix, severity=0.7, key=f"{check}: {kind}")


# Kinds of cells: 0 stands for one that fits and is no number


def _whole(cells: Any) -> Numeric:
    import numpy as np

    read = numeric(cells)
    fraction = np.isfinite(read.values) & (np.floor(read.values) != read.values)
    if not fraction.any():
        return read
    example = read.example if read.wrong else float(read.values[fraction][0])
    values = np.where(fraction, nan, read.values)
    return Numeric(values, read.wrong + int(fraction.sum()), example)


def _each(fits: Callable[[Any], bool]) -> Callable[[Any], Numeric]:
    def read(cells: Any) -> Numeric:
        import numpy as np

        there = [None if missing(cell) else cell for cell in listed(cells)]
        wrong = [cell for cell in there if cell is not None and not fits(cell)]
        values = [0.0 if cell is not None and fits(cell) else nan for cell in there]
        return Numeric(np.array(values, float), len(wrong), wrong[0] if wrong else None)

    return read


def _date(cell: Any) -> bool:
    if not isinstance(cell, str):
        return isinstance(cell, date) or hasattr(cell, "to_pydatetime")
    try:
        datetime.fromisoformat(cell.strip())
    except ValueError:
        return False
    return True


def _truth(cell: Any) -> bool:
    return str(cell).strip().casefold() in ("true", "false")


KINDS: Mapping[str, Callable[[Any], Numeric]] = {
    "numbers": numeric,
    "whole numbers": _whole,
    "texts": _each(lambda cell: isinstance(cell, str)),
    "truth values": _each(_truth),
    "dates": _each(_date),
}
TYPES = {
    "number": "numbers",
    "integer": "whole numbers",
    "text": "texts",
    "boolean": "truth values",
    "date": "dates",
}


# The checks


@dataclass(frozen=True, slots=True)
class Columns:
    """The cells of columns are as their `fields` say; made by `finite`, `ranges` and `schema`."""

    name: str
    source: Any
    fields: Mapping[str, Field]
    pure: ClassVar[bool] = False

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        try:
            return self._judged(located(self.source, candidate, context))
        except Unread as why:
            return [why.finding(self.name)]

    def _judged(self, data: Any) -> list[Finding]:
        source = opened(data)
        fields = self.fields or dict.fromkeys(source.columns, Field())
        absent = set(fields).difference(source.columns) if source.named else set[str]()
        read = [Column(name, field) for name, field in fields.items() if name not in absent]
        for batch in source.batches([c.name for c in read]):
            read = [c.after(cells) for c, cells in zip(read, batch, strict=True)]
        # Where no column is named, one of text is none that should hold numbers.
        text = [c for c in read if not self.fields and c.wrong and not c.moments.n]
        if not self.fields and len(text) == len(read):
            fix = "write a column of numbers"
            return [_bad(self.name, "there is no column of numbers", fix, "no numbers")]
        found = [
            Unread("missing column", *lacking(name, source.columns)).finding(self.name)
            for name, field in fields.items()
            if name in absent and field.required
        ]
        return found + [f for c in read if c not in text for f in c.findings(self.name)]


def finite(source: Any = None, columns: Sequence[str] = ()) -> Columns:
    """Every cell of these columns (none: of all that hold numbers) is a finite number."""
    return Columns("finite", source, dict.fromkeys(named("columns", columns), Field()))


def ranges(
    source: Any = None, columns: Mapping[str, Sequence[float | None]] | None = None, **more: Any
) -> Columns:
    """Every value of a column is within `(low, high)`, bounds included; None is an open end.

    `ranges("results.parquet", share=(0, 1), price=(0, None))`; names that are no Python names, or
    `source` and `columns`, go into the mapping. Cells without a number are findings. Raises
    InvalidInput.
    """
    fine = isinstance(columns, Mapping | None) and (columns or more)
    require(bool(fine), "columns", columns, "one column or more with its (low, high)")
    given = {**(columns or {}), **more}
    fields = {name: Field(bounds=_bounds(name, pair)) for name, pair in given.items()}
    return Columns("ranges", source, fields)


def schema(source: Any = None, schema: Any = None) -> Columns | Framed:
    """The columns are there and their cells are as a schema says.

    `schema` is a schema or model of pandera for polars or pandas (the extra `heedful[schemas]`), or
    a mapping of columns to a type (number, integer, text, boolean, date), a `(low, high)`, or a
    mapping of `type`, `range`, `required` (true) and `nullable` (false). Types mean the same in
    every source: "7" is an integer. pandera sees files a batch at a time, so what it says of a
    column as a whole (unique) it says of a batch. Raises InvalidInput, PackageMissing.
    """
    if is_schema(schema):
        return Framed(source, schema)
    fine = isinstance(schema, Mapping) and schema
    require(bool(fine), "schema", schema, "a mapping of columns, or a schema of pandera")
    return Columns("schema", source, {str(n): _field(str(n), said) for n, said in schema.items()})


def _field(name: str, asked: Any) -> Field:
    if isinstance(asked, str):
        asked = {"type": asked}
    elif isinstance(asked, list | tuple):
        asked = {"range": asked}
    known = {"type", "range", "required", "nullable"}
    if not isinstance(asked, Mapping) or not known.issuperset(asked):
        raise InvalidInput(f"schema of {name}", asked, "a type, (low, high), or a mapping of both")
    kind = asked.get("type", "number")
    require(kind in TYPES, f"type of {name}", kind, f"one of {', '.join(TYPES)}")
    for flag in ("required", "nullable"):
        require(
            isinstance(asked.get(flag, True), bool), f"{flag} of {name}", asked, "true or false"
        )
    bounds: Bounds = (None, None)
    if "range" in asked:
        require(kind in ("number", "integer"), f"range of {name}", asked, "that of a number")
        bounds = _bounds(name, asked["range"])
    return Field(TYPES[kind], bounds, asked.get("required", True), asked.get("nullable", False))


def _bounds(name: str, pair: Any) -> Bounds:
    fine = isinstance(pair, list | tuple) and len(pair) == 2 and any(b is not None for b in pair)
    fine = fine and all(b is None or (isinstance(b, int | float) and b == b) for b in pair)
    if fine and None not in pair:
        fine = pair[0] <= pair[1]
    require(fine, f"range of {name}", pair, "(low, high) with low <= high; None is an open end")
    return pair[0], pair[1]
