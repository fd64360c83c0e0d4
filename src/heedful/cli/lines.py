"""Files of one JSON object a line, and errors that name the line."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.errors import LineError


@dataclass(frozen=True)
class Entry:
    """One entry of a file and the line where it begins, from 1, 0 where that is not known."""

    line: int
    value: Any


def text_of(path: Path, kind: type[LineError]) -> str:
    """The text of a file, unpacked where its name ends in .gz. Raises `kind`."""
    try:
        data = path.read_bytes()
    except OSError as error:
        what = f"it cannot be read ({error.strerror or error}); check the path"
        raise kind(str(path), 0, what) from error
    if path.suffix == ".gz":
        data = _unpacked(path, data, kind)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"byte {data[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        raise kind(str(path), line, what) from error


def _unpacked(path: Path, data: bytes, kind: type[LineError]) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        what = f"it is no whole gzip file ({error}); fetch it again, or take .gz off its name"
        raise kind(str(path), 0, what) from error


def json_lines(path: Path, text: str, kind: type[LineError]) -> list[Entry]:
    """The object of every line that is not empty. Raises `kind`."""
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, object_pairs_hook=_once, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            what = f"not one JSON object on one line: {_said(error)}"
            raise kind(str(path), number, what) from error
        entries.append(Entry(number, value))
    return entries


def _said(error: Exception) -> str:
    """What the decoder says, with a column but not with a line, which is always its own first."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} (column {error.colno})"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice!r} is given twice")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
