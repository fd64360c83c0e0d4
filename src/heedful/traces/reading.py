"""A file of traces -> its values, one after the other, and then its episodes."""

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
from heedful.memory.episode import Episode
from heedful.traces.chat import Chat
from heedful.traces.claude import Sessions
from heedful.traces.gather import Limits
from heedful.traces.lines import Lines
from heedful.traces.otlp import from_json, from_protobuf
from heedful.traces.spans import Traces

File = str | os.PathLike[str] | bytes
# The tag of a ResourceSpans in an ExportTraceServiceRequest, which is its only field in use.
TAG = 0x0A
# What no JSON has: protobuf has a length or a tag below 0x20 in its first bytes.
CONTROLS = frozenset(range(0x20)) - set(b"\t\n\r")
GZIP = b"\x1f\x8b"


class _Value(NamedTuple):
    line: int
    value: Any


class _Reader(Protocol):
    def add(self, value: Any) -> list[Episode]: ...
    def finish(self) -> list[Episode]: ...


class _Otlp:
    """Traces from values as the file has them: JSON documents, or bytes of ResourceSpans."""

    def __init__(self, limits: Limits) -> None:
        self._traces = Traces(limits)
        self.finish = self._traces.finish

    def add(self, value: Any) -> list[Episode]:
        spans = from_protobuf(value) if isinstance(value, bytes) else from_json(value)
        return self._traces.add(spans)


FORMATS: Mapping[str, Callable[[Limits], _Reader]] = {
    "heedful": Lines,
    "otlp": _Otlp,
    "chat": Chat,
    "claude-code": Sessions,
}


def read(file: File, format: str = "auto", limits: Limits = Limits()) -> Iterator[Episode]:
    """The episodes of a file, one after the other; the file is a path, or its bytes.

    The `format` is one of heedful (what `write` writes), otlp (OpenTelemetry GenAI or OpenInference
    spans, as OTLP JSON or protobuf), chat (OpenAI messages) and claude-code; auto tells by the
    first value. A file may be packed with gzip. Secrets are redacted.

    Raises TraceFileError with the line at the first thing that is damaged, when the episodes before
    it have been given, and UnknownName.
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
            damage = TraceFileError(name, line, _what(error))
            damage.__cause__ = error
    if reader is not None:
        yield from reader.finish()
    elif damage is None:
        damage = TraceFileError(name, 0, "it is empty; give at least one episode")
    if damage is not None:
        raise damage


def _what(error: Exception) -> str:
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case ImportError():
            return "OTLP protobuf needs pip install 'heedful[traces]'; OTLP JSON does not"
        case _:
            return str(error)


def _format(value: Any) -> str:
    """What the first value of a file shows. Raises InvalidInput."""
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
    """The values of a file, JSON or bytes of protobuf. Raises TraceFileError."""
    opened: Any = gzip.GzipFile(fileobj=file) if file.peek(2).startswith(GZIP) else file
    try:
        yield from (_protobuf if CONTROLS & {*opened.peek(4_096)} else _json)(name, opened, most)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceFileError(name, 0, f"it cannot be read to its end ({error})") from error


def _json(name: str, file: BufferedReader, most: int) -> Iterator[_Value]:
    """One value a line, or one in all."""
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
                raise TraceFileError(name, number, f"not JSON: {_said(error)}") from error
            yield _whole(name, number, line + rest, most)
            return
        first = False


def _whole(name: str, number: int, document: bytes, most: int) -> _Value:
    """The value of a file that has more than one line."""
    if len(document) > most:
        raise TraceFileError(name, 0, f"it is longer than {most} bytes, limits.bytes")
    try:
        return _Value(number, _parsed(document))
    except (ValueError, RecursionError) as error:
        line = number + getattr(error, "lineno", 1) - 1
        raise TraceFileError(name, line, f"not JSON: {_said(error)}") from error


def _parsed(line: bytes) -> Any:
    return json.loads(line.decode("utf-8-sig"), parse_constant=_no_constant)


def _said(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        if error.msg == "Extra data":
            return "another value begins here; put each on a line of its own"
        return f"{error.msg} (column {error.colno})"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _protobuf(name: str, file: BufferedReader, most: int) -> Iterator[_Value]:
    """Each ResourceSpans of a request, or of requests with their lengths in 4 bytes before them."""
    if file.peek(1)[0] == TAG:
        yield from _messages(name, file, most)
        return
    while size := file.read(4):
        if len(size) < 4:
            raise _cut(name)
        request = _taken(name, file, int.from_bytes(size, "big"), most)
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
        yield _Value(0, _taken(name, file, length, most))


def _taken(name: str, file: BinaryIO, length: int, most: int) -> bytes:
    if length > most:
        raise TraceFileError(name, 0, f"a message is longer than {most} bytes, limits.bytes")
    data = file.read(length)
    if len(data) < length:
        raise _cut(name)
    return data


def _cut(name: str) -> TraceFileError:
    return TraceFileError(name, 0, "it ends in the midst of a message; copy it again")
