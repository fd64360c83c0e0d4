"""Schemas of pandera: files are validated batch by batch, data frames as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from heedful.checks.batches import Unread, opened, package
from heedful.checks.evaluate import Context
from heedful.checks.files import empty, located
from heedful.checks.text import shorten
from heedful.loop.record import Finding

MOST = 10
"""Rules of a schema that are listed as broken."""


def is_schema(schema: Any) -> bool:
    """Whether it is a schema, or a model class, of pandera."""
    kind = schema if isinstance(schema, type) else type(schema)
    return any(base.__module__.partition(".")[0] == "pandera" for base in kind.__mro__)


@dataclass(frozen=True, slots=True)
class Framed:
    """The data fit a schema of pandera; made by `schema`."""

    source: Any
    schema: Any = field(repr=False)
    name: ClassVar[str] = "schema"
    pure: ClassVar[bool] = False

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        schema = self.schema.to_schema() if hasattr(self.schema, "to_schema") else self.schema
        try:
            return _judged(located(self.source, candidate, context), schema)
        except Unread as why:
            return [why.finding(self.name)]


def _judged(data: Any, schema: Any) -> list[Finding]:
    """A finding a rule: how many cells break it, and the first."""
    errors = package("pandera.errors", "a schema of pandera")
    broken: dict[tuple[str, str], tuple[int, Any]] = {}
    rows = 0
    for frame, rules in _frames(data, schema):
        rows += len(frame)
        try:
            rules.validate(frame, lazy=True)
        except errors.SchemaErrors as why:
            cases = why.failure_cases
            named = cases.to_dicts() if hasattr(cases, "to_dicts") else cases.to_dict("records")
            for case in named:
                rule = str(case["column"] or ""), str(case["check"])
                count, first = broken.get(rule, (0, case["failure_case"]))
                broken[rule] = count + 1, first
    if not rows:
        return [empty()]
    found = [_found(*rule, *told, rows) for rule, told in list(broken.items())[:MOST]]
    if len(broken) > MOST:
        what = f"{len(broken) - MOST} more rules of the schema are broken"
        found.append(Finding("schema", what, level="note", key="schema: more rules"))
    return found


def _found(column: str, rule: str, count: int, first: Any, rows: int) -> Finding:
    where = f"{column}: " if column else ""
    what = f"{where}{count} times in {rows} rows not {rule}, first {shorten(str(first), 120)}"
    fix = f"make {column or 'the data'} meet {rule}"
    return Finding("schema", what, fix, severity=0.7, key=f"schema: {where}{rule}")


def _frames(data: Any, schema: Any) -> Iterator[tuple[Any, Any]]:
    """Frames of the library that the schema is for, each with the rules for it."""
    library = "polars" if "polars" in type(schema).__module__ else "pandas"
    frames = package(library, f"a schema of pandera for {library}")
    if isinstance(data, frames.DataFrame):
        yield data, schema
        return
    if isinstance(data, Path) and data.suffix.casefold() in (".csv", ".tsv"):
        schema = deepcopy(schema)  # in a file of text every cell is one
        schema.coerce = True
    source = opened(data)
    for batch in source.batches(source.columns):
        columns = zip(source.columns, batch, strict=True)
        yield frames.DataFrame({name: _typed(cells, frames) for name, cells in columns}), schema


def _typed(cells: Any, frames: Any) -> Any:
    if not hasattr(cells, "to_pylist"):
        return cells
    return cells.to_pandas() if frames.__name__ == "pandas" else frames.Series(cells)
