"""`results`: the file that a stage was to write is there, new, readable, and holds rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from os.path import isfile
from pathlib import Path
from typing import Any, ClassVar

from heedful.checks.batches import SUFFIXES, Source, Unread, opened
from heedful.checks.evaluate import Context
from heedful.checks.text import require, shorten
from heedful.loop.record import Finding

NAME = "missing_results"
TICK = 0.05
"""Seconds by which a file system's clock may be behind: its ticks are coarser than the time."""

When = float | str | PathLike[str] | None


def located(source: Any, candidate: Any, context: Context) -> Any:
    """The data that a check looks at: a path as a Path, what a callable answers, the candidate."""
    if source is None:
        return candidate
    if callable(source):
        source = source(candidate, context.data)
    return Path(source) if isinstance(source, str | PathLike) else source


def stale(path: Path, newer_than: When, context: Context) -> Finding | None:
    """What is wrong with the age of a file; `newer_than` None: it is older than the loop."""
    if not isfile(path):
        return None
    if isinstance(newer_than, str | PathLike):
        other = Path(newer_than)
        if not isfile(other):
            what, fix = f"{other} is not there, which {path} was to be newer than", f"write {other}"
            return Finding(NAME, what, fix, severity=0.8, key=f"{NAME}: nothing to be newer than")
        since, named = other.stat().st_mtime, str(other)
    else:
        since = context.began if newer_than is None else newer_than
        named = "its stage, which began then" if newer_than is None else "allowed"
    written = path.stat().st_mtime
    if written >= since - TICK:
        return None
    when, then = (
        datetime.fromtimestamp(t, UTC).isoformat(" ", "milliseconds") for t in (written, since)
    )
    what = f"results file {path} is stale: written {when}, older than {named} ({then})"
    return Finding(NAME, what, "write the results anew, to this path", key=f"{NAME}: stale")


@dataclass(frozen=True, slots=True)
class Results:
    """The results file is there and holds what is asked; made by `results`."""

    path: str | PathLike[str] | Callable[[Any, Any], Any]
    at_least_rows: int
    newer_than: When
    columns: tuple[str, ...]
    name: ClassVar[str] = "results"
    names: ClassVar[tuple[str, ...]] = (NAME,)
    pure: ClassVar[bool] = False

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        path = located(self.path, candidate, context)
        if not isinstance(path, Path):
            what = f"there is no path to a results file, but {shorten(path)}"
            return [Finding(NAME, what, "save the results and say where", key=f"{NAME}: no path")]
        old = stale(path, self.newer_than, context)
        try:
            return ([old] if old else []) + self._within(path)
        except Unread as why:
            return ([old] if old else []) + [why.finding(NAME)]

    def _within(self, path: Path) -> list[Finding]:
        known = path.suffix.casefold() in SUFFIXES
        if isfile(path) and path.stat().st_size and not known and not self._table:
            return []
        source = opened(path)
        lacking = [name for name in self.columns if name not in source.columns]
        if lacking:
            there = ", ".join(source.columns[:20])
            what = f"results file {path} lacks {', '.join(lacking)}; it has {there}"
            fix = f"save the columns {', '.join(self.columns)}"
            return [Finding(NAME, what, fix, severity=0.9, key=f"{NAME}: columns")]
        rows = counted(source, self.columns)
        if rows >= self.at_least_rows:
            return []
        what = f"results file {path} has {rows} rows, at least {self.at_least_rows} asked for"
        return [Finding(NAME, what, "save all rows", severity=0.9, key=f"{NAME}: rows")]

    @property
    def _table(self) -> bool:
        return bool(self.columns) or self.at_least_rows > 1


def counted(source: Source, columns: Sequence[str] = ()) -> int:
    """The rows of a source, found by reading these columns, or the first. Raises Unread."""
    names = list(columns) or list(source.columns[:1])
    return sum(len(batch[0]) for batch in source.batches(names)) if names else 0


def empty() -> Finding:
    """What to say of data without a row."""
    fix = "write the results"
    return Finding(NAME, "the results have no rows", fix, severity=0.9, key=f"{NAME}: empty")


def results(
    path: str | PathLike[str] | Callable[[Any, Any], Any],
    at_least_rows: int = 1,
    newer_than: When = None,
    columns: Sequence[str] = (),
) -> Results:
    """The results file is there, not empty, not stale, readable, and has these columns and rows.

    `path` may be a callable `(candidate, state)` that says it. A file is stale that is older than
    `newer_than`: seconds since 1970, another file, or (None) the begin of the loop or stage. CSV,
    Parquet and JSON are read to the end of `columns` (none: the first one) in bounded memory; of
    other formats only presence, size and age are looked at. Raises InvalidInput.
    """
    fine = isinstance(path, str | PathLike) or callable(path)
    require(fine, "path", path, "a path or a callable (candidate, state) -> path")
    least = type(at_least_rows) is int and at_least_rows >= 0
    require(least, "at_least_rows", at_least_rows, "a whole number of at least 0")
    return Results(path, at_least_rows, when(newer_than), named("columns", columns))


def when(newer_than: When) -> When:
    """What a file is to be newer than. Raises InvalidInput."""
    fine = newer_than is None or isinstance(newer_than, str | PathLike)
    if isinstance(newer_than, int | float) and not isinstance(newer_than, bool):
        fine = 0 <= newer_than < 2.5e11  # the year 9892: what dates can say
    require(fine, "newer_than", newer_than, "seconds since 1970, a path or None")
    return newer_than


def named(field: str, columns: Any) -> tuple[str, ...]:
    """Names of columns as a tuple; one text is one name. Raises InvalidInput."""
    columns = (columns,) if isinstance(columns, str) else columns
    fine = isinstance(columns, Sequence | Mapping) and all(
        isinstance(name, str) and name for name in columns
    )
    require(fine, field, columns, "names of columns")
    return tuple(dict.fromkeys(columns))
