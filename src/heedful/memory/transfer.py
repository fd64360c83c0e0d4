"""Export and import: what a scope has learnt, in a file that shows whether it is complete.

Each line of the file is a record of `heedful.lessons.export`. The last line has the number and the
SHA-256 of the others. An import checks the whole file before it writes the first record.
"""

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
from shutil import copyfileobj
from typing import Any, BinaryIO

from heedful.errors import ExportFileError, InvalidInput, StoreUnavailable
from heedful.lessons.export import (
    END,
    FORMAT,
    LONGEST_LINE,
    Effect,
    Plain,
    check_record,
    encode_line,
    sort_key,
    unvouched,
)
from heedful.lessons.lesson import Scope
from heedful.store import transfer
from heedful.store.store import Store

# Called with what is done, how much of it, and of how much: lessons of an export, bytes of a file.
TransferProgress = Callable[[str, int, int], None]
File = str | os.PathLike[str] | BinaryIO
# What is written in one transaction, for which others wait 0.1 s.
RECORDS = 1_000
BYTES = 4 * 2**20
AGAIN = "copy it or export it again"


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote; `digest` is the SHA-256 of all its lines except the last."""

    lessons: int
    lines: int
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import changed.

    `source` names it: revoking that removes everything that came with an import nobody vouched for.
    `tenant` and `project` are those of the export. `new`, `merged` (known, and changed) and `known`
    count lessons, `quarantined` the new entries that wait for a ruling. `written` counts new
    records by kind. `left` counts records that were left out, because decisions, measurements and
    proofs of others need somebody who vouches for them.
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


async def export_to(
    store: Store,
    scope: Scope,
    file: File,
    vectors: bool,
    force: bool,
    progress: TransferProgress | None,
) -> Exported:
    """Write an export; under its name there is a complete file or none.

    Raises InvalidInput if the name is taken, and StoreError.
    """
    if isinstance(file, str | os.PathLike):
        with _replacing(Path(file), force) as out:
            return await _write(store, scope, out, vectors, progress)
    return await _write(store, scope, file, vectors, progress)


async def _write(
    store: Store, scope: Scope, out: BinaryIO, vectors: bool, progress: TransferProgress | None
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
            raise _unwritable("the export", error) from error
        digest.update(line)
        size += len(line)
        counts[record["is"]] += 1
        total = record["lessons"] if record["is"] == FORMAT else total
        if progress is not None and record["is"] == "lesson":
            progress("exporting", counts["lesson"], total)

    await transfer.read_records(store, scope, write, vectors)
    end = encode_line({"is": END, "lines": counts.total(), "sha256": digest.hexdigest()})
    out.write(end)
    out.flush()
    return Exported(counts["lesson"], counts.total() + 1, size + len(end), digest.hexdigest())


@contextmanager
def _replacing(path: Path, force: bool) -> Iterator[BinaryIO]:
    """Yield a temporary file that takes the name when it is complete."""

    def check_free() -> None:
        if path.exists() and not path.is_file():
            raise InvalidInput("file", str(path), "the name of a file")
        if path.exists() and not force:
            raise InvalidInput("file", str(path), "a name that is free, unless force is given")

    from tempfile import mkstemp  # 0.9 MB, which a memory can do without

    path = path.resolve()  # the target of a link is replaced, not the link
    try:
        check_free()
        handle, part = mkstemp(".part", ".heedful-export-", path.parent)
        try:
            with open(handle, "wb") as out:
                yield out
                os.fsync(out.fileno())
            check_free()
            os.replace(part, path)
        finally:
            Path(part).unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(str(path), error) from error


def _unwritable(name: str, error: OSError) -> StoreUnavailable:
    why = error.strerror or error
    return StoreUnavailable(f"{name} cannot be written ({why}); check the path and the disk")


async def import_from(
    store: Store,
    scope: Scope,
    file: File,
    trust: str,
    by: str,
    why: str,
    progress: TransferProgress | None,
) -> Imported:
    """Check the whole file, then write it in transactions that may be repeated.

    `by` vouches for it, "" if nobody does. Raises InvalidInput and ExportFileError before anything
    is written, and StoreError.
    """
    if trust not in ("external", "operator"):
        raise InvalidInput("trust", trust, "external, or operator if somebody vouches for it")
    for name, value in (("by", by), ("why", why)):
        if trust == "operator" and not value.strip():
            raise InvalidInput(name, value, "given if somebody vouches for an import")
        if trust == "external" and value:
            raise InvalidInput(name, value, "left out if nobody vouches for an import")
    with _open(file) as (source, name):
        header: Plain = {}
        end: Plain = {}
        async for batch in _batches(source, name, "checking", progress):
            header, end = header or batch[0], batch[-1]
        import_name, tally, last = f"import:{end['sha256'][:16]}", _Tally(), header
        async for batch in _batches(source, name, "importing", progress):
            now, last = time.time(), batch[-1]
            records = [record for record in batch if record["is"] not in (FORMAT, END)]
            kept = [one if by else unvouched(one, import_name, now) for one in records]
            wanted = [record for record in kept if record is not None]
            effects = await store.write(scope, transfer.write_records, wanted, import_name, by, why)
            tally.add(wanted, effects)
            tally.left += len(records) - len(wanted)
        if last != end:
            raise ExportFileError(name, 0, f"it was changed while it was read; {AGAIN}")
    return tally.result(import_name, header)


class _Tally:
    """Counts what became of records, and of the lessons that they belong to."""

    def __init__(self) -> None:
        self.left = 0
        self._quarantined = 0
        self._written: Counter[str] = Counter()
        self._lessons: dict[str, Effect] = {}

    def add(self, records: Sequence[Plain], effects: Sequence[Effect]) -> None:
        for record, effect in zip(records, effects, strict=True):
            kind = record["is"]
            self._written[kind] += effect == "new"
            held = record.get("state") == "quarantined" and kind == "example"
            self._quarantined += held and effect == "new"
            lesson = record.get("lesson", "")
            if kind == "lesson":
                self._lessons[f"{record['kind']}/{record['signature']}"] = effect
            elif effect != "known" and self._lessons.get(lesson) == "known":
                self._lessons[lesson] = "changed"

    def result(self, source: str, header: Plain) -> Imported:
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
def _open(file: File) -> Iterator[tuple[BinaryIO, str]]:
    """Yield the file, which can be read twice, and its name. Raises ExportFileError."""
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
    source: BinaryIO, name: str, what: str, progress: TransferProgress | None
) -> AsyncIterator[list[Plain]]:
    """Yield the records in the batches in which they are written, read in another thread."""
    size, done = source.seek(0, os.SEEK_END), 0
    source.seek(0)
    lines = _lines(source, name)

    def read() -> tuple[list[Plain], int]:
        batch: list[Plain] = []
        length = 0
        for line, record in lines:
            batch.append(record)
            length += line
            if len(batch) == RECORDS or length >= BYTES:
                break
        return batch, length

    while (part := await asyncio.to_thread(read))[0]:
        done += part[1]
        if progress is not None:
            progress(what, done, size)
        yield part[0]


def _lines(source: BinaryIO, name: str) -> Iterator[tuple[int, Plain]]:
    """Yield the length and the record of each line, checked. Raises ExportFileError."""
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
                what = f"nothing may follow the last line; {AGAIN}"
                raise ExportFileError(name, number + 1, what)
            yield len(line), record
            return
        here = sort_key(record)
        if here <= before or (record["is"] == "example" and here[:3] != before[:3]):
            raise ExportFileError(name, number, f"it is out of place, or a duplicate; {AGAIN}")
        before = here
        digest.update(line)
        yield len(line), record


def _record(line: bytes, name: str, number: int) -> Plain:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    try:
        if len(line) > LONGEST_LINE:
            raise ValueError(f"it is longer than {LONGEST_LINE >> 20} MB")
        return check_record(json.loads(line.decode("utf-8"), parse_constant=refuse))
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
