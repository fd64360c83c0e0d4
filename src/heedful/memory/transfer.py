"""Export and import of the lessons of a scope, in a file that shows if it is complete.

Each line of the file is a record of `heedful.store.transfer`. The last line has the
SHA-256 of the other lines. An import checks the whole file before it writes the first
lesson.
"""

import asyncio
import os
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from hashlib import sha256
from itertools import chain, islice
from shutil import copyfileobj
from typing import Any, BinaryIO

from heedful.errors import InvalidInput, LineError, StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.store import transfer as records
from heedful.store.connection import Db
from heedful.store.store import Store
from heedful.store.transfer import End, Header, Record

File = str | os.PathLike[str] | BinaryIO
MAX_EXPORT_LINE_BYTES = 256 * 2**20
IMPORT_BATCH_LESSONS = 100  # lessons that are written in one transaction
DAMAGED_EXPORT_FIX = "copy or export the file again"


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote; `digest` is the SHA-256 of all lines except the last."""

    lessons: int
    bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import changed.

    `source` names the import, so that it can be revoked as a whole unless an operator
    confirmed it. `tenant` and `project` are those of the export. `new` and `known`
    count lessons. `quarantined` counts the new texts that wait for a review.
    """

    source: str
    tenant: str
    _: KW_ONLY
    project: str
    new: int
    known: int
    quarantined: int


async def write_export(store: Store, scope: Scope, file: File) -> Exported:
    """Write all lessons of a scope to a new file at a path, or to an open binary file.

    Raises InvalidInput if the path exists; StoreError.
    """
    from tempfile import TemporaryFile  # 0.9 MB, which a memory can do without

    # First into a draft, so that a failed read leaves no half of a file.
    with _create(file) as output, TemporaryFile() as draft:
        exported = await store.read(scope, _write_records, draft)
        draft.seek(0)
        copyfileobj(draft, output)
        output.flush()
    return exported


async def read_export(
    store: Store, scope: Scope, file: File, *, by: str, why: str, dry_run: bool
) -> Imported:
    """Add the new lessons of an export, or only count them with `dry_run`.

    They are quarantined, unless an operator confirms them (`by` whom and `why`).
    Raises LineError for a damaged file, before anything is written; StoreError.
    """
    from tempfile import TemporaryFile

    with TemporaryFile() as copy:
        with open_input(file) as (opened, name):
            copyfileobj(opened, copy)

        # This reads the whole file, so a damaged one is refused here.
        header, end = await asyncio.to_thread(_read_ends, copy, name)
        source = f"import:{end.sha256[:16]}"
        counts = Counter[str]()
        lessons = (
            record
            for record in _read_records(copy, name)
            if isinstance(record, records.LessonRecord)
        )

        while True:
            batch = await asyncio.to_thread(list, islice(lessons, IMPORT_BATCH_LESSONS))
            if not batch:
                break
            added = await store.write(
                scope,
                records.import_lessons,
                batch,
                source=source,
                by=by,
                why=why,
                dry_run=dry_run,
            )
            counts.update(added)

    return Imported(
        source,
        header.tenant,
        project=header.project,
        new=counts["new"],
        known=counts["known"],
        quarantined=counts["waiting"],
    )


def _write_records(db: Db, scope: Scope, out: BinaryIO) -> Exported:
    """Write the header, the lessons, and a last line with the digest of these."""
    out.truncate(out.seek(0))  # the database may ask for a second try
    digest = sha256()
    lines = 0
    header: Record = records.Header(
        version=3, tenant=scope.tenant, project=scope.project
    )
    for record in chain([header], records.export_lessons(db, scope)):
        lines += 1
        line = records.encode(record)
        digest.update(line)
        out.write(line)

    out.write(records.encode(records.End(sha256=digest.hexdigest())))
    return Exported(lines - 1, out.tell(), digest.hexdigest())


def _read_ends(file: BinaryIO, name: str) -> tuple[Header, End]:
    """Read a whole export; return its first and its last record. Raises LineError."""
    lines: Iterator[Any] = _read_records(file, name)
    return next(lines), deque(lines, maxlen=1).pop()


@contextmanager
def _create(file: File) -> Iterator[BinaryIO]:
    """Yield a new file, which only its owner may read, or `file` if it is open.

    A new file is deleted if it cannot be completed. Raises InvalidInput,
    StoreUnavailable.
    """
    name = os.fspath(file) if isinstance(file, str | os.PathLike) else ""
    only_owner = partial(os.open, mode=0o600)
    try:
        if isinstance(file, str | os.PathLike):
            with open(name, "xb", opener=only_owner) as out, ExitStack() as undo:
                undo.callback(os.unlink, name)
                yield out
                undo.pop_all()  # the file is complete: keep it
        else:
            yield file
    except FileExistsError as error:
        raise InvalidInput(
            "file", name, "a name that is free: a file with it exists"
        ) from error
    except OSError as error:
        reason = error.strerror or error
        raise StoreUnavailable(
            f"{name or 'the export'} cannot be written ({reason}); check the path and "
            "the disk"
        ) from error


@contextmanager
def open_input(file: File) -> Iterator[tuple[BinaryIO, str]]:
    """Yield the file and its name. Raises LineError if it cannot be read."""
    if not isinstance(file, str | os.PathLike):
        yield file, "the input"
        return

    name = str(os.fspath(file))
    try:
        with open(name, "rb") as opened:
            yield opened, name
    except OSError as error:
        reason = error.strerror or error
        message = f"it cannot be read ({reason}); check the path"
        raise LineError(name, 0, message) from error


def _read_records(file: BinaryIO, name: str) -> Iterator[Record]:
    """Yield the records of an export. Raises LineError if it is damaged."""
    digest = sha256()  # of the lines above
    number = 0
    file.seek(0)
    read_line = partial(file.readline, MAX_EXPORT_LINE_BYTES)
    for number, line in enumerate(iter(read_line, b""), 1):
        try:
            record = records.decode(line)
        except InvalidInput as error:
            raise LineError(name, number, f"{error}; {DAMAGED_EXPORT_FIX}") from error

        wrong = ""
        is_header = isinstance(record, records.Header)
        if number == 1 and not is_header:
            wrong = "it is not an export of heedful"
        elif number > 1 and is_header:
            wrong = "it is a second header"
        elif isinstance(record, records.End):
            if record.sha256 != digest.hexdigest():
                wrong = "a line above was changed, added or lost since it was exported"
            elif file.readline(1):
                wrong = "more lines follow the last line"
        if wrong:
            raise LineError(name, number, f"{wrong}; {DAMAGED_EXPORT_FIX}")

        yield record
        if isinstance(record, records.End):
            return
        digest.update(line)

    raise LineError(
        name, number, f"the file ends before its closing line; {DAMAGED_EXPORT_FIX}"
    )
