"""Open files of traces, packed or in UTF-16, and decode their values one at a time.

A value is decoded JSON, or a `str`, the text of a file that is not JSON, or `bytes`, a
request in protobuf. A value of JSON is one line, or begins on a line and ends on a
later one; so a file of any length needs memory for one value only. What is no value is
skipped with its line and the reason.
"""

import codecs
import json
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from gzip import BadGzipFile, GzipFile
from io import BufferedReader, BytesIO, FileIO
from pathlib import Path
from typing import Any, BinaryIO

from heedful.errors import install_line

try:  # that of Python 3.14: the logs of Inspect AI are packed with Zstandard
    from backports.zstd import zipfile
except ImportError:
    import zipfile  # type: ignore[no-redef]

File = str | os.PathLike[str] | bytes | BinaryIO
Stream = BufferedReader
# Bytes that no text has: protobuf has its tags below 0x20. Logs have colours, and JSON
# text sequences (RFC 7464) begin each value with a record separator.
CONTROL_BYTES = frozenset(range(0x20)) - set(b"\b\t\n\f\r\x1b\x1e")
# What may stand around a value of JSON.
MARGIN = b"\x1e \t\r\n,"
# What damage to a packed file raises.
PACKING_ERRORS = (
    BadGzipFile,
    EOFError,
    NotImplementedError,  # a compression that Python lacks
    zipfile.BadZipFile,
    zlib.error,
)
# What Inspect AI writes beside the samples of a log repeats them.
INSPECT_SAMPLES = "samples/"

Skip = Callable[[int, str], None]
# The colours of a terminal.
_STYLE_PATTERN = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]")
_FINITE_DECODER = json.JSONDecoder(parse_constant=lambda constant: None)


def files_in(paths: Iterable[Path]) -> Iterator[tuple[Path, File]]:
    """Yield the name of each file, and what `read` reads; "-" is the standard input.

    A folder stands for all files below it but those in hidden folders.
    """
    for path in paths:
        if str(path) == "-":
            yield path, sys.stdin.buffer
        elif not path.is_dir():
            yield path, path
        for inner in sorted(path.rglob("*")):
            names = inner.relative_to(path).parts
            is_hidden = any(name.startswith(".") for name in names[:-1])
            if inner.is_file() and not is_hidden:
                yield inner, inner


def open_parts(file: File) -> Iterator[tuple[str, Stream]]:
    """Yield the files of a zip with their names, or the file itself with the name "".

    What gzip packed is unpacked. Raises OSError, BadZipFile.
    """
    opened: Any = file
    if isinstance(file, bytes):
        opened = BytesIO(file)
    elif isinstance(file, str | os.PathLike):
        opened = FileIO(file)
    stream: Stream = BufferedReader(opened)

    with stream:
        if not stream.peek(4).startswith((b"PK\x03\x04", b"PK\x05\x06")):
            yield "", _unpacked(stream)
            return

        seekable = stream if stream.seekable() else BytesIO(stream.read())
        with zipfile.ZipFile(seekable) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
            samples = [name for name in names if name.startswith(INSPECT_SAMPLES)]
            if "header.json" in names:
                names = samples
            # In logs of GitHub, "build/2_Run.txt" repeats a part of "0_build.txt".
            jobs = {name.partition("_")[2] for name in names if "/" not in name}
            for name in names:
                if f"{name.partition('/')[0]}.txt" in jobs:
                    continue
                with archive.open(name) as part:
                    yield name, _unpacked(part)


def _unpacked(stream: Any) -> Stream:
    """Return a stream of what gzip packed, and any other stream as it is."""
    packed: Stream = BufferedReader(stream)
    if packed.peek(2).startswith(b"\x1f\x8b"):
        unpacked: Any = GzipFile(fileobj=packed)
        return BufferedReader(unpacked)
    return packed


class _Lines:
    """The lines of a stream; `number` is that of the last one that was taken."""

    def __init__(self, stream: BinaryIO, limit: int) -> None:
        self.number = 0
        self.has_damage = False  # a value of many lines could not be read
        self._limit = limit
        self._stream = stream
        self._put_back: list[bytes] = []  # the last comes first

    def take(self) -> bytes:
        """Return the next line, b"" at the end; of one that is too long, its start."""
        if self._put_back:
            line = self._put_back.pop()
        else:
            line = rest = self._stream.readline(self._limit + 1)
            while len(rest) > self._limit and not rest.endswith(b"\n"):
                rest = self._stream.readline(self._limit + 1)
        if line:
            self.number += 1
        return line

    def take_bytes(self, size: int) -> list[bytes]:
        """Return the next lines, with at least `size` bytes if there are so many."""
        piece: list[bytes] = []
        while size > 0 and (line := self.take()):
            piece.append(line)
            size -= len(line)
        return piece

    def put_back(self, lines: Sequence[bytes]) -> None:
        """Let these lines come next."""
        self._put_back += reversed(lines)
        self.number -= len(lines)


def values_of(
    stream: Stream, limit: int, skip: Skip, is_text: Callable[[str], object]
) -> Iterator[tuple[int, Any]]:
    """Yield the values of a file, each with the line where it begins (0 if unknown).

    `is_text` says whether the text of a file that is not JSON is of a known format. A
    value has at most `limit` bytes.
    """
    if stream.peek(2).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = stream.read(limit + 1).decode("utf-16", "replace")
        stream = BufferedReader(BytesIO(text.encode()))
    if CONTROL_BYTES.isdisjoint(stream.peek(4_096)):
        yield from _text_values(_Lines(stream, limit), limit, skip, is_text)
        return

    # One byte more than the limit shows that the file is too long.
    data = stream.read(limit + 1)
    if len(data) > limit:
        skip(0, too_long(limit))
    else:
        yield 0, data


def _text_values(
    lines: _Lines, limit: int, skip: Skip, is_text: Callable[[str], object]
) -> Iterator[tuple[int, Any]]:
    """Yield the values of JSON in a file, or its text if its format is known."""
    is_first = True
    while line := lines.take():
        number = lines.number
        if not line.strip(MARGIN):
            continue
        try:
            value = _value(lines, line, limit)
        except (ValueError, RecursionError) as error:
            if is_first:
                rest = lines.take_bytes(limit)
                text = b"".join([line, *rest]).decode("utf-8-sig", "replace")
                text = _STYLE_PATTERN.sub("", text)
                if is_text(text):
                    yield number, text
                    return
                lines.put_back(rest)
            place = number + getattr(error, "lineno", 1) - 1
            skip(place, f"not JSON: {problem(error)}")
            elements = _whole_elements(getattr(error, "doc", ""))
            yield from ((number, element) for element in elements)
            if elements and place > number:  # their lines come again
                return
        else:
            yield number, value
        is_first = False


def _value(lines: _Lines, line: bytes, limit: int) -> Any:
    """Return the object or list of JSON that begins on a line, and may end on another.

    What follows it on a line comes next. Raises ValueError, RecursionError; then the
    lines below the first one come next.
    """
    below: list[bytes] = []
    text = _text(line)
    # What is indented below a damaged value is a part of it.
    is_part = lines.has_damage and line[:1].isspace()
    if len(line) <= limit and (text[0] not in "{[" or is_part):
        raise ValueError(f"it begins with {text[:60]!r}")
    size = len(line)
    while size <= limit:
        try:
            value, end = _FINITE_DECODER.raw_decode(text)
        except json.JSONDecodeError as error:
            # As much again is read, so that a long value takes linear time.
            more = [] if lines.has_damage else lines.take_bytes(size)
            if error.pos < len(text.rstrip(MARGIN.decode())) or not more:
                lines.put_back([*below, *more])
                lines.has_damage = lines.has_damage or bool(below)
                raise
            below += more
            size += sum(map(len, more))
            # What stands around the end of a piece may be inside of a value.
            text = _text(b"".join([line, *below, b"|"])).removesuffix("|")
            continue
        rest = text[end:].encode().splitlines(keepends=True)
        lines.put_back(rest)
        return value
    lines.put_back(below)
    lines.has_damage = lines.has_damage or bool(below)
    raise ValueError(too_long(limit))


def _whole_elements(text: str) -> list[object]:
    """Return the objects and lists of a list of JSON before its damage."""
    elements: list[object] = []
    position = 1
    with suppress(ValueError, RecursionError, IndexError):
        while text.startswith("["):
            while text[position] in " \t\r\n,":
                position += 1
            element, position = _FINITE_DECODER.raw_decode(text, position)
            if not isinstance(element, dict | list):
                break
            elements.append(element)
    return elements


def _text(data: bytes) -> str:
    """Return the text of JSON without what may stand around it."""
    try:
        return data.strip(MARGIN).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise ValueError(
            f"byte {byte:#x} is not UTF-8; convert the file: iconv -f latin1 -t utf-8"
        ) from error


def too_long(limit: int) -> str:
    """Return what to say of a value that has more bytes than the limit."""
    return f"it is longer than {limit} bytes, limits.bytes"


def problem(error: Exception) -> str:
    """Return what is wrong with data that cannot be decoded."""
    match error:
        case RecursionError():
            return "it is nested too deeply"
        case ImportError():
            return (
                "OTLP protobuf needs a package, which OTLP JSON does not: "
                f"{install_line('traces')}"
            )
        case json.JSONDecodeError():
            return f"{error.msg} (column {error.colno})"
        case _:
            return str(error)
