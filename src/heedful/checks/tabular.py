"""Data frames as rows: pandas, polars and pyarrow, through narwhals. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heedful.checks.reading import DEEPEST
from heedful.errors import InvalidInput, PackageMissing

FRAMES = "a data frame of pandas, polars or pyarrow whose columns have names of their own"


def opened(value: Any, depth: int = DEEPEST) -> Any:
    """A value with every data frame in it, at any place of mappings, as a list of rows.

    A frame of pandas keeps an index that says something, as a column; a lazy frame is collected.
    Raises InvalidInput for a frame that cannot be read and for a path, PackageMissing.
    """
    kind = type(value)
    if isinstance(value, Mapping):
        return {name: opened(one, depth - 1) for name, one in value.items()} if depth else value
    if hasattr(kind, "columns"):
        return _rows(value)
    if hasattr(kind, "keys"):  # a Series, a row of a database
        return dict(value)
    if hasattr(kind, "__fspath__"):
        raise InvalidInput("evidence", str(value), "what the file holds, read as text or a frame")
    return value


def columns(value: Any) -> list[str]:
    """The names of the columns of a data frame or of rows; of any other iterable its items.

    Raises InvalidInput, PackageMissing.
    """
    if hasattr(type(value), "columns") and not isinstance(value, Mapping):
        nw = _narwhals()
        try:
            return [str(name) for name in nw.from_native(value).collect_schema().names()]
        except (TypeError, nw.exceptions.NarwhalsError) as error:
            raise InvalidInput("columns", type(value), f"{FRAMES} ({error})") from error
    rows = isinstance(value, list | tuple) and all(isinstance(row, Mapping) for row in value)
    return list(dict.fromkeys(str(name) for row in value for name in (row if rows else (row,))))


def _narwhals() -> Any:
    try:
        import narwhals
    except ImportError as error:
        raise PackageMissing("a data frame", "narwhals", "frames") from error
    return narwhals


def _rows(frame: Any) -> list[dict[str, Any]]:
    nw = _narwhals()
    try:
        read: Any = nw.from_native(frame)
        if isinstance(read, nw.LazyFrame):
            read = read.collect()
        index = nw.maybe_get_index(read)
        if index is not None:
            read = nw.from_native(_indexed(read.to_native(), index))
        columns = read.to_dict(as_series=False)
    except (TypeError, nw.exceptions.NarwhalsError) as error:
        raise InvalidInput("evidence", type(frame), f"{FRAMES} ({error})") from error
    names = [" ".join(map(str, n)) if isinstance(n, tuple) else str(n) for n in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _indexed(frame: Any, index: Any) -> Any:
    """A frame of pandas with its index as columns, but for one of mere positions."""
    if index.nlevels == 1 and index.name is None:
        if index.inferred_type == "integer":
            return frame
        frame = frame.rename_axis("name")
    return frame.reset_index(drop=not set(frame.index.names).isdisjoint(frame.columns))
