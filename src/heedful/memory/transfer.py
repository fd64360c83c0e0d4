"""Export and import: what a scope has learnt, in a file that tells whether it is whole."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from heedful.errors import ExportFileError, InvalidInput, StoreUnavailable
from heedful.lessons.export import (
    END,
    FORMAT,
    LONGEST_LINE,
    Effect,
    Plain,
    check_record,
    distrust,
    encode_line,
    sort_key,
)
from heedful.lessons.lesson import Scope
from heedful.store import transfer
from heedful.store.store import Store

# What is done, how much of it, and of how much: lessons of an export, bytes of an import.
Told = Callable[[str, int, int], None]
File = str | os.PathLike[str] | BinaryIO
# What is written in one transaction, for which others wait 0.1 s.
RECORDS = 1_000
BYTES = 4 * 2**20
AGAIN = "copy it or export it again"


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote; `digest` is the SHA-256 of all its lines but the last."""

    lessons: int
    lines: int
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import came to.

    `source` is its name: where nobody vouched for it, revoking that removes all that came with it.
    `tenant` and `project` are those that were exported. So many lessons were `new`, so many
    `merged` (known, and gained something) or `known`; so many new entries wait in quarantine.
    `written` counts new records by kind. Of so many records nothing was taken (`left`): what others
    decided, measured or proved needs somebody who vouches for it.
    """

    source: str
    tenant: str
    project: str
    new: int
    merged: int
    known: int
    quarantined: int
    left: int
    written: Mapping[str, int] = field(default_factory=dict)


class _Line(NamedTuple):
    size: int
    record: Plain


async def export(
    store: Store, scope: Scope, file: File, vectors: bool, force: bool, told: Told | None
) -> Exported:
    """Write an export; under its name it is there whole or not at all.

    Raises InvalidInput where there is something under that name already, and StoreError.
    """
    if isinstance(file, str | os.PathLike):
        with _whole(Path(file), force) as out:
            return await _write(store, scope, out, vectors, told)
    return await _write(store, scope, file, vectors, told)


async def _write(
    store: Store, scope: Scope, out: BinaryIO, vectors: bool, told: Told | None
) -> Exported:
    digest, counts, size, total = sha256(), Counter[str](), 0, 0

    def write(record: Plain) -> None:
        nonlocal size, total
        line = encode_line(record)
        if len(line) > LONGEST_LINE:
            raise InvalidInput("entry", record, f"at most {LONGEST_LINE} bytes long as a line")
        try:
            out.write(line)
        except OSError as error:
            raise _unwritten("the export", error) from error
        digest.update(line)
        size += len(line)
        counts[record["is"]] += 1
        total = record["lessons"] if record["is"] == FORMAT else total
        if told is not None and record["is"] == "lesson":
            told("exporting", counts["lesson"], total)

    await transfer.export(store, scope, write, vectors)
    end = encode_line({"is": END, "lines": counts.total(), "sha256": digest.hexdigest()})
    out.write(end)
    out.flush()
    return Exported(counts["lesson"], counts.total() + 1, size + len(end), digest.hexdigest())


@contextmanager
def _whole(path: Path, force: bool) -> Iterator[BinaryIO]:
    """A file beside it that gets its name when all is written; else nothing is left of it."""
    from tempfile import mkstemp  # 0.9 MB, which a memory can do without

    path = path.resolve()  # what a link leads to is replaced, not the link
    try:
        _free(path, force)
        handle, part = mkstemp(".part", ".heedful-export-", path.parent)
        try:
            with open(handle, "wb") as out:
                yield out
                os.fsync(out.fileno())
            _free(path, force)
            os.replace(part, path)
        finally:
            Path(part).unlink(missing_ok=True)
    except OSError as error:
        raise _unwritten(str(path), error) from error


def _free(path: Path, force: bool) -> None:
    if path.exists() and not path.is_file():
        raise InvalidInput("file", str(path), "the name of a file")
    if path.exists() and not force:
        raise InvalidInput("file", str(path), "a name that is free, unless force is given")


def _unwritten(name: str, error: OSError) -> StoreUnavailable:
    why = error.strerror or error
    return StoreUnavailable(f"{name} cannot be written ({why}); check the path and the disk")


def _vouched(trust: str, by: str, why: str) -> None:
    """Raises InvalidInput unless an import of that trust says who vouches for it, and why."""
    if trust not in ("external", "operator"):
        raise InvalidInput("trust", trust, "external, or operator where somebody vouches for it")
    for name, value in (("by", by), ("why", why)):
        if trust == "operator" and not value.strip():
            raise InvalidInput(name, value, "given, where somebody vouches for an import")
        if trust == "external" and value:
            raise InvalidInput(name, value, "left out, where nobody vouches for an import")


async def import_(
    store: Store, scope: Scope, file: File, trust: str, by: str, why: str, told: Told | None
) -> Imported:
    """Read all of a file, and then write it, in transactions that may be repeated.

    `by` is who vouches for it, "" where nobody does. Raises InvalidInput and ExportFileError before
    anything is written, and StoreError.
    """
    _vouched(trust, by, why)
    with _opened(file) as (source, name):
        header: Plain = {}
        end: Plain = {}
        async for batch in _batches(source, name, "checking", told):
            header, end = header or batch[0], batch[-1]
        called, tally, last = f"import:{end['sha256'][:16]}", _Tally(), header
        async for batch in _batches(source, name, "importing", told):
            now, last = time.time(), batch[-1]
            records = [one for one in batch if one["is"] not in (FORMAT, END)]
            kept = [one if by else distrust(one, called, now) for one in records]
            wanted = [one for one in kept if one is not None]
            tally.add(wanted, await store.write(scope, transfer.absorb, wanted, called, by, why))
            tally.left += len(records) - len(wanted)
        if last != end:
            raise ExportFileError(name, 0, f"it was changed while it was read; {AGAIN}")
    return tally.result(called, header)


class _Tally:
    """What became of the records so far, and of the lessons that they belong to."""

    def __init__(self) -> None:
        self.left = 0
        self._quarantined = 0
        self._written: Counter[str] = Counter()
        self._lessons: dict[str, Effect] = {}

    def add(self, records: Sequence[Plain], effects: Sequence[Effect]) -> None:
        """Count these."""
        for record, effect in zip(records, effects, strict=True):
            self._written[record["is"]] += effect == "new"
            held = record.get("state") == "quarantined" and record["is"] == "example"
            self._quarantined += held and effect == "new"
            lesson = record.get("lesson", "")
            if record["is"] == "lesson":
                self._lessons[f"{record['kind']}/{record['signature']}"] = effect
            elif effect != "known" and self._lessons.get(lesson) == "known":
                self._lessons[lesson] = "changed"

    def result(self, source: str, header: Plain) -> Imported:
        """All of it."""
        effects = Counter(self._lessons.values())
        return Imported(
            source,
            header["tenant"],
            header["project"],
            effects["new"],
            effects["changed"],
            effects["known"],
            self._quarantined,
            self.left,
            {kind: n for kind, n in self._written.items() if n},
        )


@contextmanager
def _opened(file: File) -> Iterator[tuple[BinaryIO, str]]:
    """The file, which can be read twice, and what to call it. Raises ExportFileError."""
    from shutil import copyfileobj
    from tempfile import TemporaryFile

    name = os.fspath(file) if isinstance(file, str | os.PathLike) else "the input"
    try:
        if isinstance(file, str | os.PathLike):
            with open(file, "rb") as source:
                yield source, str(name)
        elif file.seekable():
            yield file, name
        else:
            with TemporaryFile() as copy:
                copyfileobj(file, copy)
                yield copy, name
    except OSError as error:
        what = f"it cannot be read ({error.strerror or error}); check the path"
        raise ExportFileError(str(name), 0, what) from error


async def _batches(
    source: BinaryIO, name: str, what: str, told: Told | None
) -> AsyncIterator[list[Plain]]:
    """The records in the batches in which they are written, read beside the event loop."""
    size, done = source.seek(0, os.SEEK_END), 0
    source.seek(0)
    lines = _lines(source, name)
    while batch := await asyncio.to_thread(_batch, lines):
        done += sum(line.size for line in batch)
        if told is not None:
            told(what, done, size)
        yield [line.record for line in batch]


def _batch(lines: Iterator[_Line]) -> list[_Line]:
    batch: list[_Line] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += line.size
        if len(batch) == RECORDS or size >= BYTES:
            break
    return batch


def _lines(source: BinaryIO, name: str) -> Iterator[_Line]:
    """Every line of a whole export, checked. Raises ExportFileError."""
    digest, before = sha256(), tuple[Any, ...]()
    for number in count(1):
        line = source.readline(LONGEST_LINE + 1)
        if not line:
            what = "the file ends before the line that closes it"
            raise ExportFileError(name, number - 1, f"{what}; {AGAIN}")
        record = _record(line, name, number)
        if (record["is"] == FORMAT) != (number == 1):
            what = "no export of heedful" if number == 1 else "a second first line"
            raise ExportFileError(name, number, f"it is {what}; {AGAIN}")
        if record["is"] == END:
            if record["lines"] != number - 1 or record["sha256"] != digest.hexdigest():
                what = "a line above was changed, added or lost"
                raise ExportFileError(name, number, f"{what} since it was exported; {AGAIN}")
            if source.readline(1):
                raise ExportFileError(
                    name, number + 1, f"nothing may follow the last line; {AGAIN}"
                )
            yield _Line(len(line), record)
            return
        here = sort_key(record)
        if here <= before or (record["is"] == "example" and here[:3] != before[:3]):
            raise ExportFileError(name, number, f"it is out of place, or there twice; {AGAIN}")
        before = here
        digest.update(line)
        yield _Line(len(line), record)


def _record(line: bytes, name: str, number: int) -> Plain:
    try:
        if len(line) > LONGEST_LINE:
            raise ValueError(f"it is longer than {LONGEST_LINE >> 20} MB")
        return check_record(json.loads(line.decode("utf-8"), parse_constant=_no_constant))
    except InvalidInput as error:
        what = f"{error}"
    except RecursionError:
        what = "it is nested too deeply"
    except json.JSONDecodeError as error:
        what = f"it is no JSON object on one line: {error.msg} (column {error.colno})"
    except UnicodeDecodeError as error:
        what = f"byte {line[error.start]:#04x} is not UTF-8"
    except ValueError as error:
        what = str(error)
    raise ExportFileError(name, number, f"{what}; {AGAIN}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
