"""Read a file of traces as episodes.

Each format has a reader, which recognises the first values of a file by their shape. A
value that a reader does not know is skipped, and named at the end. An array of runs, or
an object around one, is read run by run.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, islice
from typing import Any

from heedful import doors
from heedful.episodes.episode import Episode, Limits
from heedful.episodes.readers.aider import AiderReader
from heedful.episodes.readers.base import Reader
from heedful.episodes.readers.chat import ChatReader
from heedful.episodes.readers.ci_log import CiLogReader
from heedful.episodes.readers.heedful import EpisodeReader
from heedful.episodes.readers.junit import JUnitReader
from heedful.episodes.readers.openhands import OpenHandsReader
from heedful.episodes.readers.swe_agent import SweAgentReader
from heedful.episodes.readers.text_actions import ReactReader
from heedful.episodes.spans import SpanReader
from heedful.episodes.trace_files import (
    PACKING_ERRORS,
    File,
    Stream,
    open_parts,
    problem,
    values_of,
)
from heedful.errors import TraceFileError, UsageError, install_line

# The readers of this package. Those of others are asked after the first two, whose
# formats belong to nobody, and before the rest, which recognise less of a file.
FIRST_READERS: tuple[type[Reader], ...] = (EpisodeReader, SpanReader)
LATER_READERS: tuple[type[Reader], ...] = (
    SweAgentReader,
    OpenHandsReader,
    ReactReader,
    AiderReader,
    JUnitReader,
    CiLogReader,
    # Runs of other formats have chats in them.
    ChatReader,
)
# A file may begin with values that say nothing of its format.
MAX_SAMPLE_VALUES = 50
# What stands beside each other in one run, not in two.
SIDES = frozenset({"request", "response", "inputs", "outputs"})
CONVERT_HINT = (
    "the formats are {formats}, and lines such as {{'task': …, 'messages': […]}}"
)


@cache
def readers() -> tuple[type[Reader], ...]:
    """Return all readers, in the order in which they are asked."""
    return (*FIRST_READERS, *doors.READERS.load_all().values(), *LATER_READERS)


def formats() -> dict[str, type[Reader]]:
    """Return the names of all formats, each with its reader."""
    return {reader.source: reader for reader in readers()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Lines of a file that could not be read: `count` of them, the first is `line`.

    `line` is 0 if it is unknown.
    """

    file: str
    line: int
    reason: str
    count: int = 1

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        count = f" ({self.count} lines)" if self.count > 1 else ""
        return f"{place}: {self.reason}{count}"


def read(file: File, limits: Limits = Limits()) -> "Traces":
    """Return the episodes of `file`: a path, the file's bytes, or an open file.

    The first values show the format. The file may be packed by gzip, or be a zip of
    files. Secrets are redacted. What cannot be read is skipped, and named in `skipped`.
    Raises TraceFileError when nothing of the file can be read.
    """
    return Traces(file, limits)


class Traces(Iterator[Episode]):
    """The episodes of a file, one at a time; `skipped` is what could not be read.

    `is_recognised` is true as soon as a reader recognised the file, or one in it.
    """

    def __init__(self, file: File, limits: Limits) -> None:
        self.is_recognised: bool = False
        self.skipped: list[Skipped] = []
        self._limits = limits
        self._name = "the traces"
        if isinstance(file, str | os.PathLike):
            self._name = os.fspath(file)
        self._episodes = self._read(file)

    def __next__(self) -> Episode:
        return next(self._episodes)

    def _read(self, file: File) -> Iterator[Episode]:
        """Yield the episodes of the files in a file. Raises TraceFileError."""
        refusals: list[TraceFileError] = []
        is_read = False
        try:
            for part, stream in open_parts(file):
                name = f"{self._name}/{part}" if part else self._name
                hint = "" if part else CONVERT_HINT.format(formats=", ".join(formats()))
                skipped_before = len(self.skipped)
                try:
                    yield from self._read_part(name, stream, hint)
                    is_read = True
                except TraceFileError as error:
                    refusals.append(error)
                    del self.skipped[skipped_before:]
        except PACKING_ERRORS as error:
            refusals.append(TraceFileError(self._name, 0, _not_unpacked(error)))
        except OSError as error:
            reason = f"it cannot be read ({error.strerror or error}); check the path"
            refusals.append(TraceFileError(self._name, 0, reason))

        if not is_read:
            empty = TraceFileError(self._name, 0, "it holds no file")
            raise refusals[0] if refusals else empty
        for refusal in refusals:
            self._skip(refusal.path, refusal.line, refusal.what)

    def _read_part(self, name: str, stream: Stream, hint: str) -> Iterator[Episode]:
        """Yield the episodes of one file.

        Raises TraceFileError if no reader reads it, with the hint what to do.
        """
        skipped_before = len(self.skipped)
        values = self._values(name, stream)
        sample: list[tuple[int, Any]] = []
        for line, value in islice(values, MAX_SAMPLE_VALUES):
            sample.append((line, value))
            reader_type = _reader_of(value)
            if reader_type is not None:
                break
        else:
            skipped = self.skipped[skipped_before:]
            raise _unknown_format(name, sample, skipped, hint)

        self.is_recognised = True
        reader = reader_type(self._limits)
        is_read = False
        for line, value in chain(sample, values):
            try:
                yield from reader.add(value)
                is_read = True
            except (UsageError, RecursionError, ImportError) as error:
                self._skip(name, line, problem(error))
        try:
            yield from reader.finish()
        except UsageError as error:
            raise TraceFileError(name, 0, problem(error)) from error
        if not is_read:
            first = self.skipped[skipped_before]
            raise TraceFileError(name, first.line, first.reason)

    def _values(self, name: str, stream: Stream) -> Iterator[tuple[int, Any]]:
        """Yield the values of a file, those of an array of runs one by one."""
        skip = partial(self._skip, name)
        try:
            for line, value in values_of(stream, self._limits.bytes, skip, _reader_of):
                for run in _runs_in(value):
                    yield line, run
        except (OSError, *PACKING_ERRORS) as error:
            self._skip(name, 0, _not_unpacked(error))

    def _skip(self, name: str, line: int, reason: str) -> None:
        """Keep what was not read; lines that follow each other are one record."""
        last = self.skipped[-1] if self.skipped else None
        if last and line and (last.file, last.line + last.count) == (name, line):
            self.skipped[-1] = replace(last, count=last.count + 1)
            return
        skipped = Skipped(file=name, line=line, reason=reason)
        if skipped != last:  # a value that goes on is tried as a line, too
            self.skipped.append(skipped)


def _reader_of(value: Any) -> type[Reader] | None:
    """Return the first reader that recognises a file by this value."""
    return next((reader for reader in readers() if reader.begins(value)), None)


def _runs_in(value: Any) -> Sequence[Any]:
    """Return the runs of an array, or of an object around one; or the value alone."""
    parts = [*value.values()] if isinstance(value, Mapping) else [value]
    inner = [part for part in parts if isinstance(part, Mapping)]
    is_around = len(parts) > 1 and inner == parts and SIDES.isdisjoint(value)
    if is_around and all(map(_reader_of, parts)):
        return parts
    if _reader_of(value):
        return [value]

    for runs in chain(parts, *(part.values() for part in inner)):
        if isinstance(runs, list) and any(map(_reader_of, runs[:MAX_SAMPLE_VALUES])):
            return runs
    return [value]


def _unknown_format(
    name: str, sample: Sequence[tuple[int, Any]], skipped: Sequence[Skipped], hint: str
) -> TraceFileError:
    """Return the refusal of a file that no reader recognises."""
    if sample:
        line, value = sample[0]
        reason = f"no known format has {_look_of(value)}"
    elif skipped:
        line = skipped[0].line
        reason = skipped[0].reason
    else:
        return TraceFileError(name, 0, "it is empty; give at least one episode")
    return TraceFileError(name, line, f"{reason}; {hint}".removesuffix("; "))


def _look_of(value: Any) -> str:
    """Return what a value looks like."""
    if not isinstance(value, Mapping | list):
        return f"{value!r:.60}"
    if isinstance(value, list):
        return f"a list of {len(value)}: {', '.join(map(_look_of, value[:1]))}"
    return f"an object with the keys {', '.join([*value][:12])}"


def _not_unpacked(error: Exception) -> str:
    """Return what to say of a packed file that is damaged, or that needs a package."""
    action = "pack it again, or unpack it"
    if isinstance(error, NotImplementedError):
        action = f"Zstandard needs a package: {install_line('traces')}"
    return f"the rest cannot be unpacked: {error}; {action}"
