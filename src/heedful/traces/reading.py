"""Read a file of traces: decode its values one at a time, and turn them into episodes."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from io import BufferedReader, BytesIO, FileIO
from itertools import count
from typing import Any

from heedful.errors import InvalidInput, TraceFileError, UnknownName, UsageError
from heedful.traces.episode import Episode, Limits
from heedful.traces.messages import ChatReader, EpisodeReader, SessionReader
from heedful.traces.spans import SpanReader

File = str | os.PathLike[str] | bytes
# Bytes that JSON never has: protobuf has a length or a tag below 0x20 at its beginning.
CONTROLS = frozenset(range(0x20)) - set(b"\t\n\r")
# A key in the first object of a file -> the format; the first key that is present counts.
MARKS = {
    **dict.fromkeys(("role", "messages"), "chat"),
    "events": "heedful",
    "resourceSpans": "otlp",
    "type": "claude-code",
}
# The line where a value begins (0 if unknown), and the value.
Values = Iterator[tuple[int, Any]]


FORMATS: Mapping[str, Callable[[Limits], EpisodeReader]] = {
    reader.source: reader for reader in (EpisodeReader, SpanReader, ChatReader, SessionReader)
}


def read(file: File, format: str = "auto", limits: Limits = Limits()) -> Iterator[Episode]:
    """Yield the episodes of `file`: a path, or the file's bytes. The file may be gzipped.

    The `format` is heedful (what `write` writes), otlp (OpenTelemetry GenAI or OpenInference spans,
    as OTLP JSON or protobuf), chat (OpenAI messages) or claude-code; auto decides by the first
    value. Secrets are redacted. Raises UnknownName for an unknown format. If the file is damaged,
    yields the episodes before the damage, then raises TraceFileError with the line number.
    """
    if format != "auto" and format not in FORMATS:
        raise UnknownName("trace format", format, ["auto", *FORMATS])
    return _episodes(file, format, limits)


def _episodes(file: File, format: str, limits: Limits) -> Iterator[Episode]:
    name = "the traces" if isinstance(file, bytes) else os.fspath(file)
    reader, damage, line = None, None, 0
    with ExitStack() as stack:
        try:
            raw = BytesIO(file) if isinstance(file, bytes) else FileIO(file)
            opened: Any = BufferedReader(stack.enter_context(raw))
            for entry in _values(name, opened, limits.bytes):
                line, value = entry
                if reader is None:
                    reader = FORMATS[_format(value) if format == "auto" else format](limits)
                yield from reader.add(value)
        except TraceFileError as error:
            damage = error
        except OSError as error:
            what = f"it cannot be read ({error.strerror or error}); check the path"
            raise TraceFileError(name, 0, what) from error
        except (UsageError, RecursionError, ImportError) as error:
            damage = TraceFileError(name, line, _problem(error))
            damage.__cause__ = error
    if reader is not None:
        yield from reader.finish()
    elif damage is None:
        damage = TraceFileError(name, 0, "it is empty; give at least one episode")
    if damage is not None:
        raise damage


def _problem(error: Exception) -> str:
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case ImportError():
            return "OTLP protobuf needs pip install 'heedful[traces]'; OTLP JSON does not"
        case json.JSONDecodeError(msg="Extra data"):
            return "another value begins here; write one value per line"
        case json.JSONDecodeError():
            return f"{error.msg} (column {error.colno})"
        case _:
            return str(error)


def _format(value: Any) -> str:
    if isinstance(value, bytes):
        return "otlp"
    first = value[0] if isinstance(value, list) and value else value
    for mark, format in MARKS.items() if isinstance(first, dict) else ():
        if mark in first:
            return format
    known = "events, resourceSpans, messages or a role, or the type of a session entry"
    raise InvalidInput("the first value", value, f"of a known format: an object with {known}")


def _values(name: str, file: BufferedReader, most: int) -> Values:
    """Yield the values of a file: decoded JSON, or bytes of protobuf. Raises TraceFileError."""
    opened: Any = gzip.GzipFile(fileobj=file) if file.peek(2).startswith(b"\x1f\x8b") else file
    try:
        yield from (_protobuf if CONTROLS & {*opened.peek(4_096)} else _json)(name, opened, most)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceFileError(name, 0, f"it cannot be read completely ({error})") from error


def _json(name: str, file: BufferedReader, most: int) -> Values:
    """Yield one value per line; if the first line is not JSON, the whole file is one value."""
    first = True
    for number in count(1):
        line = _within(most, name, number, file.readline(most + 1))
        if not line:
            return
        if not line.strip():
            continue
        try:
            value = _parsed(name, number, line)
        except TraceFileError:
            rest = file.read(most - len(line) + 1) if first else b""
            if not rest.strip():
                raise
            yield number, _parsed(name, number, _within(most, name, 0, line + rest))
            return
        yield number, value
        first = False


def _within(most: int, name: str, number: int, data: bytes) -> bytes:
    if len(data) > most:
        raise TraceFileError(name, number, f"it is longer than {most} bytes, limits.bytes")
    return data


def _parsed(name: str, number: int, text: bytes) -> Any:
    """Decode JSON text that begins on line `number`. Raises TraceFileError."""
    try:
        whole = text.decode("utf-8-sig").rstrip("\r\n")
        return json.loads(whole, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        line = number + getattr(error, "lineno", 1) - 1
        raise TraceFileError(name, line, f"not JSON: {_problem(error)}") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _protobuf(name: str, file: BufferedReader, most: int) -> Values:
    """Yield the bytes of one request, or of many requests with length prefixes."""
    if file.peek(1)[0] == 0x0A:  # the tag of a ResourceSpans, the only field of a request in use
        yield 0, _within(most, name, 0, file.read(most + 1))
    while size := file.read(4):
        length = int.from_bytes(size, "big")
        if length > most:
            raise TraceFileError(name, 0, f"a message is longer than {most} bytes, limits.bytes")
        data = file.read(length)
        if len(size) < 4 or len(data) < length:
            raise TraceFileError(name, 0, "it ends in the middle of a message; copy it again")
        yield 0, data
