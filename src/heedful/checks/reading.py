"""Evidence of any shape as records: JSON, rows, CSV, "name: value" lines, prose. Pure."""

from __future__ import annotations

import ast
import csv
import json
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.checks.naming import parts

Path = tuple[str, ...]
DEEPEST = 40
_PLAIN = frozenset((float, int, str, bool, type(None)))
_LINE = re.compile(r"\s*(?:[-*#•]+\s*)?([^\W\d][^:\n]{0,58}?)\s*:\s+(\S.*)")
_LABELS = frozenset(
    ("name", "key", "label", "category", "field", "property", "metric", "attribute")
)


@dataclass(slots=True, eq=False)
class Record:
    """A row: `cells` from the path of a column to its value, `key` the words that name the row."""

    table: Path
    path: str
    key: Path
    cells: dict[Path, Any]


def records(evidence: Any) -> Iterator[Record]:
    """Every row in a mapping, list, text or plain value; text that is data is read as data."""
    value = parsed(evidence) if isinstance(evidence, str) else evidence
    yield from _records(value, (), "$", 0)


def parsed(text: str) -> Any:
    """What a text holds: JSON, a Python literal, CSV, "name: value" lines, else itself."""
    stripped = text.strip()
    if stripped[:1] in ("{", "["):
        for reader in (json.loads, _literal):
            try:
                return reader(stripped)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
    lines = stripped.splitlines()
    table = _separated(lines)
    named = [line for line in lines if _LINE.fullmatch(line)] if table else _mostly_named(lines)
    if not (table or named):
        return text
    found: dict[str, Any] = defaultdict(list)
    for line in named:
        match = _LINE.fullmatch(line)
        if match:
            found[match[1]].append(match[2])
    found["text"] = [line for line in lines if not _LINE.fullmatch(line)] if not table else []
    if table and len(found) == 1:
        return table
    return {**found, "rows": table} if table else dict(found)


def _literal(text: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        return ast.literal_eval(text)


def _mostly_named(lines: Sequence[str]) -> list[str]:
    named = [line for line in lines if _LINE.fullmatch(line)]
    return named if len(named) >= 2 and len(named) * 2 >= len(lines) else []


def _separated(lines: Sequence[str]) -> list[dict[str, str]]:
    """The rows of the longest table of comma, semicolon, tab or | separated lines; [] without."""
    for sign in ",;\t|":
        wide = [n for n, line in enumerate(lines) if sign in line and not line.startswith("#")]
        if len(wide) < 3:
            continue
        body = [lines[n].strip(sign + " ") if sign == "|" else lines[n] for n in wide]
        rows = list(csv.reader(body, delimiter=sign))
        head = [name.strip() for name in rows[0]]
        even = sum(len(row) == len(head) for row in rows)
        plain = len(set(head)) == len(head) and not any(len(name) > 60 for name in head)
        if even >= 0.9 * len(rows) and plain and len(wide) >= 0.3 * len(lines):
            same = [row for row in rows[1:] if len(row) == len(head)]
            return [dict(zip(head, map(str.strip, row), strict=True)) for row in same]
    return []


def _records(value: Any, table: Path, path: str, depth: int) -> Iterator[Record]:
    if depth > DEEPEST:
        return
    value = _written_as_pairs(value)
    if isinstance(value, Mapping):
        yield from _mapping(value, table, path, depth)
    elif _rows(value):
        for n, row in enumerate(value):
            yield from _row(row, table, f"{path}[{n}]", (), depth)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for n, one in enumerate(value):
            yield from _records(one, table, f"{path}[{n}]", depth + 1)
    else:
        yield Record(table, path, (), {(): value})


def _rows(value: Any) -> bool:
    """Whether it is a list of mappings: a table."""
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and bool(value)
        and all(isinstance(row, Mapping) for row in value)
    )


def _row(row: Mapping[Any, Any], table: Path, path: str, key: Path, depth: int) -> Iterator[Record]:
    """One record with all that is nested in it, but for tables inside, which follow it."""
    cells: dict[Path, Any] = {}
    inner: list[tuple[Path, Any]] = []
    _flatten(row, (), cells, inner, depth)
    if cells:
        yield Record(table, path, key, cells)
    for name, value in inner:
        place = f"{path}.{'.'.join(name)}"
        yield from _records(value, (*table, *name), place, depth + 1)


def _flatten(
    value: Mapping[Any, Any], above: Path, cells: dict[Path, Any], inner: list[Any], depth: int
) -> None:
    for name, one in value.items():
        here = (*above, str(name))
        if type(one) in _PLAIN:
            cells[here] = one
            continue
        if isinstance(one, list | tuple):
            one = _written_as_pairs(one)
            if _rows(one) and len(one) == 1:
                one = one[0]
        if not isinstance(one, Mapping | list | tuple):
            cells[here] = written(one) if hasattr(one, "isoformat") else one
        elif isinstance(one, Mapping) and len(here) < DEEPEST - depth:
            _flatten(one, here, cells, inner, depth)
        elif isinstance(one, Mapping) or _rows(one):
            inner.append((here, one))
        else:
            cells[here] = one


def written(day: Any) -> str:
    """A date as text, with its time where it has one other than midnight."""
    return str(day.isoformat()).removesuffix("T00:00:00")


def _written_as_pairs(value: Any) -> Any:
    """A list of {label, content} as the mapping that it writes down; anything else as it is."""
    if not _rows(value) or any(len(row) != 2 for row in value):
        return value
    label, content = value[0]
    holds = content in ("value", "values") or isinstance(value[0][content], Mapping | list)
    if str(label).casefold() not in _LABELS or not holds:
        return value
    found: dict[str, Any] = {}
    last = ""
    for row in value:
        if set(row) != {label, content}:
            return value
        last = str(row[label]).strip() or last
        inside = _written_as_pairs(row[content])
        if last in found and not isinstance(found[last], Mapping):
            found[last] = [found[last], inside] if isinstance(inside, str) else found[last]
        else:
            found[last] = inside
    return found


def _mapping(value: Mapping[Any, Any], table: Path, path: str, depth: int) -> Iterator[Record]:
    """The records of a mapping; rows that are written as its keys ("home", "away") are rows."""
    sideways = _sideways(value)
    taken = {name for names in sideways.values() for name in names.values()}
    for prefix, names in sideways.items():
        row = {rest: value[name] for rest, name in names.items()}
        yield from _row(row, (*table, "*"), f"{path}.{prefix}…", (prefix,), depth)
    rest = {name: one for name, one in value.items() if name not in taken}
    for group in _same_shape(rest):
        for name in group:
            row, key = rest.pop(name), (str(name),)
            yield from _row(row, (*table, *sorted(map(str, row))[:3]), f"{path}.{name}", key, depth)
    if rest:
        yield from _row(rest, table, path, (), depth)


def _sideways(value: Mapping[Any, Any]) -> dict[str, dict[str, str]]:
    """Row -> column -> key, where keys cross rows and columns: home_name, away_name, home_city …"""
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for name in value:
        found = parts(str(name))
        if len(found) > 1:
            rows[found[0]][" ".join(found[1:])] = name
    for prefix, names in rows.items():
        like = [other for other, theirs in rows.items() if len(set(theirs) & set(names)) >= 2]
        if len(like) > 1 and prefix in like:
            return {other: rows[other] for other in like}
    return {}


def _same_shape(value: Mapping[Any, Any]) -> Iterable[list[Any]]:
    """Groups of keys whose values are mappings with mostly the same keys: rows with names."""
    waiting = {name: set(one) for name, one in value.items() if isinstance(one, Mapping) and one}
    groups = []
    while waiting:
        _, shape = next(iter(waiting.items()))
        alike = [
            name for name, keys in waiting.items() if 2 * len(keys & shape) >= len(keys | shape)
        ]
        for name in alike:
            del waiting[name]
        if len(alike) > 1:
            groups.append(alike)
    return groups
