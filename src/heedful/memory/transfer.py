"""Export and import: the lessons of a scope, in a file that shows whether it is complete.

Each line of the file is a record of `heedful.store.transfer`. The last line has the number and the
SHA-256 of the other lines. An import checks the whole file before it writes the first record.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO, Literal, cast

from heedful.errors import ExportFileError, InvalidInput, StoreError, StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.store import transfer as records
from heedful.store.store import Db, Store
from heedful.store.transfer import End, ExampleRecord, Header, LessonRecord, Record

# Called with the step, how much is done, and how much there is: lessons exported, or bytes read.
TransferProgress = Callable[[str, int, int], None]
File = str | os.PathLike[str] | BinaryIO
LONGEST_LINE = 64 * 2**20
# What is written in one transaction, for which others wait 0.1 s.
RECORDS = 1_000
BYTES = 4 * 2**20
AGAIN = "copy or export the file again"


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote; `digest` is the SHA-256 of all lines except the last."""

    lessons: int
    lines: int
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import changed.

    `source` names the import, so that it can be revoked as a whole unless an operator vouched for
    it. `tenant` and `project` are those of the export. `new` and `known` count lessons.
    `quarantined` counts the imported entries that wait for a ruling. `left` counts records that
    were left out: rulings need an operator who vouches for them. `written` counts new records by
    type.
    """

    source: str
    tenant: str
    project: str
    new: int
    known: int
    quarantined: int
    left: int
    written: Mapping[str, int] = field(default_factory=dict)


class Transfers:
    """The methods of Memory that write and read files."""

    store: Store
    scope: Scope

    async def export(
        self, file: File, *, force: bool = False, progress: TransferProgress | None = None
    ) -> Exported:
        """Write all lessons, as of one moment, to a path or an open binary file.

        A path is written completely or not at all; an existing file is replaced only with `force`.
        The file has no vectors; `reembed` computes them. It has no exposures, outcomes and actions
        either: `heedful db copy` moves them, and with them the proof. Raises InvalidInput,
        StoreError.
        """
        if isinstance(file, str | os.PathLike):
            with _replace(Path(file), force) as out:
                return await self.export(out, progress=progress)
        digest, counts, size, running = sha256(), Counter[str](), 0, True

        def work(db: Db, scope: Scope) -> None:
            nonlocal size
            total = 0
            for record in records.export_records(db, scope):
                if not running:  # the caller was cancelled, and the file may be closed
                    raise StoreError("the export was cancelled")
                line = records.encode(record)
                if len(line) > LONGEST_LINE:
                    raise InvalidInput(
                        "entry", record, f"at most {LONGEST_LINE} bytes long as a line"
                    )
                with _writing("the export"):
                    file.write(line)
                digest.update(line)
                size += len(line)
                counts[record.type] += 1
                total = record.lessons if isinstance(record, Header) else total
                if progress is not None and isinstance(record, LessonRecord):
                    progress("exporting", counts["lesson"], total)

        try:
            await self.store.apart(self.scope, work)
        finally:
            running = False
        end = records.encode(End(lines=counts.total(), sha256=digest.hexdigest()))
        with _writing("the export"):
            file.write(end)
            file.flush()
        return Exported(counts["lesson"], counts.total() + 1, size + len(end), digest.hexdigest())

    async def import_(
        self,
        file: File,
        *,
        trust: Literal["external", "operator"] = "external",
        by: str = "",
        why: str = "",
        dry_run: bool = False,
        progress: TransferProgress | None = None,
    ) -> Imported:
        """Add the new records of an export; refuse a damaged file before anything is written.

        Imported lessons are quarantined, unless an operator vouches for them (`by` whom and `why`).
        Then they keep their trust and state, and the import is recorded. With `dry_run`, nothing is
        written, and only the lessons are counted. Raises ExportFileError, InvalidInput, StoreError.
        """
        if trust not in ("external", "operator"):
            raise InvalidInput("trust", trust, "external, or operator if you vouch for the file")
        for name, value in (("by", by), ("why", why)):
            if bool(value.strip()) != (trust == "operator"):
                allowed = "a text if trust is operator, and else empty"
                raise InvalidInput(name, value, allowed)
        with open_input(file) as (opened, name):
            ends: list[Record] = []
            async for batch in _batches(opened, name, "checking", progress):
                ends = [*ends[:1], *batch[:1], batch[-1]]
            header, end = cast("Header", ends[0]), cast("End", ends[-1])
            source, left, waiting = f"import:{end.sha256[:16]}", 0, 0
            counts: Counter[tuple[str, bool]] = Counter()
            async for batch in _batches(opened, name, "importing", progress):
                if isinstance(batch[-1], End) and batch[-1] != end:
                    raise ExportFileError(name, 0, f"the file changed while it was read; {AGAIN}")
                now = time.time()
                found = [record for record in batch if not isinstance(record, Header | End)]
                kept = found if by else [records.unvouched(record, source, now) for record in found]
                wanted = [record for record in kept if record is not None]
                left += len(kept) - len(wanted)
                work = records.rehearse_import if dry_run else records.import_records
                new, held = await self.store.write(self.scope, work, wanted, source, by, why)
                waiting += held
                counts.update((one.type, is_new) for one, is_new in zip(wanted, new, strict=True))
        return Imported(
            source,
            header.tenant,
            header.project,
            counts["lesson", True],
            counts["lesson", False],
            waiting,
            left,
            {kind: n for (kind, is_new), n in counts.items() if is_new},
        )


@contextmanager
def _writing(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"{name} cannot be written ({error.strerror or error})"
        raise StoreUnavailable(f"{what}; check the path and the disk") from error


@contextmanager
def _replace(path: Path, force: bool) -> Iterator[BinaryIO]:
    """Yield a temporary file that replaces the file at `path` when it is complete.

    Raises InvalidInput if the file exists, unless `force` is True.
    """
    from tempfile import mkstemp  # 0.9 MB, which a memory can do without

    path = path.resolve()  # the target of a link is replaced, not the link
    if path.exists() and not path.is_file():
        raise InvalidInput("file", str(path), "the name of a file")
    if path.exists() and not force:
        raise InvalidInput("file", str(path), "a name that is free, unless force is given")
    with _writing(str(path)):
        handle, part = mkstemp(".part", ".heedful-export-", path.parent)
        try:
            with open(handle, "wb") as out:
                yield out
                os.fsync(out.fileno())
            os.replace(part, path)
        finally:
            Path(part).unlink(missing_ok=True)


@contextmanager
def open_input(file: File) -> Iterator[tuple[BinaryIO, str]]:
    """Yield the file, in a form that can be read twice, and its name. Raises ExportFileError."""
    from tempfile import TemporaryFile

    name = str(os.fspath(file)) if isinstance(file, str | os.PathLike) else "the input"
    try:
        if isinstance(file, str | os.PathLike):
            with open(file, "rb") as source:
                yield source, name
        elif file.seekable():
            yield file, name
        else:
            with TemporaryFile() as copy:
                copyfileobj(file, copy)
                copy.seek(0)
                yield copy, name
    except OSError as error:
        what = f"it cannot be read ({error.strerror or error}); check the path"
        raise ExportFileError(name, 0, what) from error


async def _batches(
    source: BinaryIO, name: str, what: str, progress: TransferProgress | None
) -> AsyncIterator[list[Record]]:
    """Yield the records in batches, read in another thread; `what` is a word for `progress`."""
    size = source.seek(0, os.SEEK_END)
    source.seek(0)
    lines = _records(source, name)

    def read() -> list[Record]:
        batch: list[Record] = []
        begin = source.tell()
        for record in lines:
            batch.append(record)
            full = max(len(batch) / RECORDS, (source.tell() - begin) / BYTES)
            # A lesson is not written without its examples, unless there are very many.
            if full >= (2 if isinstance(record, LessonRecord | ExampleRecord) else 1):
                break
        return batch

    while batch := await asyncio.to_thread(read):
        if progress is not None:
            progress(what, source.tell(), size)
        yield batch


def _records(source: BinaryIO, name: str) -> Iterator[Record]:
    digest = sha256()
    for number in count(1):
        line = source.readline(LONGEST_LINE + 1)
        if not line:
            what = "the file ends before its closing line"
            raise ExportFileError(name, number - 1, f"{what}; {AGAIN}")
        if len(line) > LONGEST_LINE:
            what = f"it is longer than {LONGEST_LINE >> 20} MB; {AGAIN}"
            raise ExportFileError(name, number, what)
        try:
            record = records.decode(line)
        except InvalidInput as error:
            raise ExportFileError(name, number, f"{error}; {AGAIN}") from error
        if isinstance(record, Header) != (number == 1):
            what = "not an export of heedful" if number == 1 else "a second header"
            raise ExportFileError(name, number, f"it is {what}; {AGAIN}")
        yield record
        if isinstance(record, End):
            if (record.lines, record.sha256) != (number - 1, digest.hexdigest()):
                what = "a line above was changed, added or lost"
                raise ExportFileError(name, number, f"{what} since it was exported; {AGAIN}")
            if source.readline(1):
                what = f"nothing may follow the last line; {AGAIN}"
                raise ExportFileError(name, number + 1, what)
            return
        digest.update(line)
