"""A file of traces -> its values, one at a time -> its episodes."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from io import BufferedReader, BytesIO
from itertools import count
from typing import Any, BinaryIO, NamedTuple, Protocol

from heedful.errors import InvalidInput, TraceFileError, UnknownName, UsageError
from heedful.traces.episode import Episode, Limits
from heedful.traces.messages import ChatReader, EpisodeReader, SessionReader
from heedful.traces.spans import SpanReader

File = str | os.PathLike[str] | bytes
# The tag of a ResourceSpans in an ExportTraceServiceRequest, which is its only field in use.
TAG = 0x0A
# Bytes that JSON never has: protobuf has a length or a tag below 0x20 at its beginning.
CONTROLS = frozenset(range(0x20)) - set(b"\t\n\r")
GZIP = b"\x1f\x8b"


class _Value(NamedTuple):
    line: int
    value: Any


class _Reader(Protocol):
    def add(self, value: Any) -> list[Episode]: ...
    def finish(self) -> list[Episode]: ...


FORMATS: Mapping[str, Callable[[Limits], _Reader]] = {
    "heedful": EpisodeReader,
    "otlp": SpanReader,
    "chat": ChatReader,
    "claude-code": SessionReader,
}


def read(file: File, format: str = "auto", limits: Limits = Limits()) -> Iterator[Episode]:
    """Yield the episodes of a file, a path or its bytes.

    The `format` is heedful (what `write` writes), otlp (OpenTelemetry GenAI or OpenInference spans,
    as OTLP JSON or protobuf), chat (OpenAI messages) or claude-code; auto decides by the first
    value. The file may be gzipped. Secrets are redacted.

    Raises TraceFileError with the line of the first damage, after the episodes before it, and
    UnknownName.
    """
    if format != "auto" and format not in FORMATS:
        raise UnknownName("trace format", format, ["auto", *FORMATS])
    return _episodes(file, format, limits)


def _episodes(file: File, format: str, limits: Limits) -> Iterator[Episode]:
    name = "the traces" if isinstance(file, bytes) else os.fspath(file)
    reader, damage, line = None, None, 0
    with ExitStack() as stack:
        try:
            for entry in _values(name, _opened(name, file, stack), limits.bytes):
                line = entry.line
                kind = format if reader or format != "auto" else _format(entry.value)
                reader = reader or FORMATS[kind](limits)
                yield from reader.add(entry.value)
        except TraceFileError as error:
            damage = error
        except (UsageError, RecursionError, ImportError) as error:
            damage = TraceFileError(name, line, _reason(error))
            damage.__cause__ = error
    if reader is not None:
        yield from reader.finish()
    elif damage is None:
        damage = TraceFileError(name, 0, "it is empty; give at least one episode")
    if damage is not None:
        raise damage


def _reason(error: Exception) -> str:
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case ImportError():
            return "OTLP protobuf needs pip install 'heedful[traces]'; OTLP JSON does not"
        case _:
            return str(error)


def _format(value: Any) -> str:
    """Return the format that the first value of a file shows. Raises InvalidInput."""
    first = value[0] if isinstance(value, list) and value else value
    if isinstance(value, bytes):
        return "otlp"
    if isinstance(first, dict):
        if "role" in first or "messages" in value:
            return "chat"
        if "events" in first:
            return "heedful"
        if "resourceSpans" in first:
            return "otlp"
        if "type" in first:
            return "claude-code"
    known = "events, resourceSpans, messages or a role, or the type of a session entry"
    raise InvalidInput("the first value", value, f"of a known format: an object with {known}")


def _opened(name: str, file: File, stack: ExitStack) -> BufferedReader:
    if isinstance(file, bytes):
        return BufferedReader(BytesIO(file))
    try:
        return stack.enter_context(open(file, "rb"))
    except OSError as error:
        what = f"it cannot be read ({error.strerror or error}); check the path"
        raise TraceFileError(name, 0, what) from error


def _values(name: str, file: BufferedReader, most: int) -> Iterator[_Value]:
    """Yield the values of a file, JSON or bytes of protobuf. Raises TraceFileError."""
    opened: Any = gzip.GzipFile(fileobj=file) if file.peek(2).startswith(GZIP) else file
    try:
        yield from (_protobuf if CONTROLS & {*opened.peek(4_096)} else _json)(name, opened, most)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceFileError(name, 0, f"it cannot be read to its end ({error})") from error


def _json(name: str, file: BufferedReader, most: int) -> Iterator[_Value]:
    """Yield one value a line, or one in all."""
    first = True
    for number in count(1):
        line = file.readline(most + 1)
        if not line:
            return
        if len(line) > most:
            raise TraceFileError(name, number, f"it is longer than {most} bytes, limits.bytes")
        if not line.strip():
            continue
        try:
            yield _Value(number, _parsed(line))
        except (ValueError, RecursionError) as error:
            rest = file.read(most - len(line) + 1) if first else b""
            if not rest.strip():
                raise TraceFileError(name, number, f"not JSON: {_json_problem(error)}") from error
            yield _whole(name, number, line + rest, most)
            return
        first = False


def _whole(name: str, number: int, document: bytes, most: int) -> _Value:
    """Return the value of a file that is one document of several lines."""
    if len(document) > most:
        raise TraceFileError(name, 0, f"it is longer than {most} bytes, limits.bytes")
    try:
        return _Value(number, _parsed(document))
    except (ValueError, RecursionError) as error:
        line = number + getattr(error, "lineno", 1) - 1
        raise TraceFileError(name, line, f"not JSON: {_json_problem(error)}") from error


def _parsed(line: bytes) -> Any:
    return json.loads(line.decode("utf-8-sig"), parse_constant=_refuse_constant)


def _json_problem(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        if error.msg == "Extra data":
            return "another value begins here; put each on a line of its own"
        return f"{error.msg} (column {error.colno})"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _protobuf(name: str, file: BufferedReader, most: int) -> Iterator[_Value]:
    """Yield each ResourceSpans of a request, or of requests that follow their length in 4 bytes."""
    if file.peek(1)[0] == TAG:
        yield from _messages(name, file, most)
        return
    while size := file.read(4):
        if len(size) < 4:
            raise _cut(name)
        request = _take(name, file, int.from_bytes(size, "big"), most)
        yield from _messages(name, BytesIO(request), most)


def _messages(name: str, file: BinaryIO, most: int) -> Iterator[_Value]:
    while tag := file.read(1):
        if tag[0] != TAG:
            what = f"byte {tag[0]:#04x} begins no OTLP spans, and JSON has none such"
            raise TraceFileError(name, 0, what)
        length, shift, byte = 0, 0, 0x80
        while byte & 0x80:
            read = file.read(1)
            if not read or shift > 63:
                raise _cut(name)
            byte = read[0]
            length |= (byte & 0x7F) << shift
            shift += 7
        yield _Value(0, _take(name, file, length, most))


def _take(name: str, file: BinaryIO, length: int, most: int) -> bytes:
    if length > most:
        raise TraceFileError(name, 0, f"a message is longer than {most} bytes, limits.bytes")
    data = file.read(length)
    if len(data) < length:
        raise _cut(name)
    return data


def _cut(name: str) -> TraceFileError:
    return TraceFileError(name, 0, "it ends in the midst of a message; copy it again")
