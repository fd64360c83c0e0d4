"""Export and import of the lessons of a scope, in a file that shows if it is complete.

Each line of the file is a record: one for each lesson, with its examples and links. The
last line has the SHA-256 of the other lines. An import checks the whole file before it
writes the first lesson, and importing a record twice changes nothing.

Lessons are named by kind and signature, because ids differ between databases. Examples
list all sources that they derive from, so that a source can be revoked after an import
too. Sightings, exposures, outcomes, rulings and the actions of agents are not exported:
a copy of the database moves them.
"""

import asyncio
import json
import os
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import chain, islice
from shutil import copyfileobj
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from heedful.errors import InvalidInput, LineError, StoreUnavailable
from heedful.faults import allowed_value
from heedful.lessons.lesson import (
    LESSON_KINDS,
    SIGNATURE_VERSION,
    Evidence,
    Example,
    Lesson,
    LessonKind,
    LessonRun,
    Scope,
    Signature,
    clip,
)
from heedful.lessons.mistake import Mistake, from_json, with_origin
from heedful.lessons.origin import Origin
from heedful.lessons.quarantine import clip_lesson
from heedful.lessons.scope import State
from heedful.store import lessons as lesson_store
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    Row,
    from_row,
    key_of,
    resumable,
    storable,
    token,
)
from heedful.store.rulings import (
    LESSON_DIGEST_PREFIX,
    name_of,
    rule,
    words_digest,
)
from heedful.store.store import Store
from heedful.validation import MAX_LONG_TEXT_CHARS, Document, Fields

File = str | os.PathLike[str] | BinaryIO
MAX_EXPORT_LINE_BYTES = 256 * 2**20
IMPORT_BATCH_LESSONS = 100  # lessons that are written in one transaction
DAMAGED_EXPORT_FIX = "copy or export the file again"


Count = Annotated[int, Field(ge=0, le=2**53)]
Share = Annotated[float, Field(ge=0, le=1)]
# Seconds since 1970, before the year 10000; 0 is unknown.
Time = Annotated[float, Field(ge=0, le=253_402_300_800)]
# The digest of a signature or of words, such as `0f3a9c51d2e87b64`.
Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
# The kind and signature of a lesson, such as `error/0f3a9c51d2e87b64`.
LessonName = Annotated[
    str, Field(pattern=f"^({'|'.join(LESSON_KINDS)})/[0-9a-f]{{16}}$")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of an export."""

    type: Literal["heedful memory"] = "heedful memory"
    version: Literal[3]
    tenant: str
    project: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleRecord:
    """An example of a lesson, or the text of a lesson without an example.

    Such a text has the `digest` "lesson". `lesson` is the text of the lesson that came
    with the example. `author` is True if the lesson still has this text. Searches
    compare a query with `words`. `sources` are all sources of the example.
    """

    digest: Annotated[str, Field(pattern="^(lesson|[0-9a-f]{16})$")]
    author: bool
    lesson: str
    mistake: Mistake | None = None
    state: State
    trust: Origin
    at: Time
    example: Example
    words: str
    sources: tuple[str, ...]
    released_by: str = ""
    released_at: Time = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRecord:
    """A link to another lesson, whose name `kind/signature` is `parent`.

    A strategy belongs to the lesson about a failure, a superseded lesson became another
    one, and a reflection of a dream cites others.
    """

    relation: Literal["became", "cites", "strategy"]
    parent: LessonName


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonRecord:
    """A lesson of an export.

    `seen` counts its sightings, and `words` is the digest of its words.
    """

    type: Literal["lesson"] = "lesson"
    kind: LessonKind
    signature: Digest
    error_type: str
    pattern: str
    signature_version: Count = SIGNATURE_VERSION
    words: Digest
    text: str
    tags: tuple[str, ...]
    state: State
    trust: Origin
    importance: Share
    source: str
    pinned: bool
    useful: Annotated[float, Field(ge=0, le=2)]
    seen: Count
    first_seen: Time
    last_seen: Time
    last_shown: Time
    evidence: Evidence
    is_correction: bool
    run: LessonRun | None
    data: Fields
    mistake: Mistake | None = None
    examples: tuple[ExampleRecord, ...]
    links: tuple[LinkRecord, ...]
    released_by: str = ""
    released_at: Time = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The last line of an export, with the SHA-256 of all lines before it."""

    type: Literal["end"] = "end"
    sha256: str


Record = Header | LessonRecord | End
_CONFIG = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_RECORD_TYPES: tuple[type, ...] = (Header, ExampleRecord, LinkRecord, LessonRecord, End)
for _record_type in _RECORD_TYPES:
    # It is not a field of the record.
    setattr(_record_type, "__pydantic_config__", _CONFIG)  # noqa: B010
# Their field `type` says which record it is.
RECORDS: TypeAdapter[Record] = TypeAdapter(
    Annotated[Record, Field(discriminator="type")]
)


def encode(record: Record) -> bytes:
    """Return a record as a line of JSON in UTF-8; equal records give equal bytes."""
    line = json.dumps(
        asdict(record), separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return line.encode("utf-8", "replace") + b"\n"


def decode(line: bytes) -> Record:
    """Return the record in a line of an export: its header, a lesson, or its end.

    Raises InvalidInput, which names the first field that is missing, unknown or wrong.
    """
    try:
        return RECORDS.validate_json(line)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"])) or "line"
        value = problem["input"]
        if isinstance(value, bytes):  # the whole line
            value = value.decode("utf-8", "replace").rstrip()
        raise InvalidInput(place, value, allowed_value(problem)) from None


def export_lessons(db: Db, scope: Scope) -> Iterator[LessonRecord]:
    """Read all lessons of a scope; yield each as the record that an export has of it.

    A record holds the lesson with its examples and its links to other lessons. The
    records are sorted by kind and signature.
    """
    key = key_of(scope)
    for row in db.select("*", "lesson", key, "order by kind, signature"):
        of_lesson = {"lesson_id": row["id"]}
        examples = db.select("*", "example", of_lesson, "order by digest")
        links = db.select(
            "*", "link", {**key, "child": name_of(row)}, "order by relation, parent"
        )

        yield from_row(
            LessonRecord,
            row,
            type="lesson",
            run=LessonRun.read(row["run"]),
            data=_load_json(row["data"]),
            mistake=from_json(row["mistake"]),
            examples=tuple(
                _example_record(db, example, row["author"]) for example in examples
            ),
            links=tuple(from_row(LinkRecord, link) for link in links),
        )


def _example_record(db: Db, row: Row, author: int | None) -> ExampleRecord:
    """Return an example of a lesson as the record that an export has of it.

    `author` is the id of the example whose text the lesson shows, None if no example
    has this text. The record lists all sources of the example, also those of the texts
    from which it derives.
    """
    digest = row["digest"]
    # A text without an example has a digest of the text behind this prefix. An import
    # makes it again.
    if digest.startswith(LESSON_DIGEST_PREFIX):
        digest = LESSON_DIGEST_PREFIX

    origins = db.run("rests_on", {"parents": json.dumps([row["id"]])})
    sources = {origin["source"] for origin in origins}
    return from_row(
        ExampleRecord,
        row,
        digest=digest,
        author=row["id"] == author,
        example=Example(**_load_json(row["record"])),
        mistake=from_json(row["mistake"]),
        sources=tuple(sorted(sources)),
    )


def _load_json(text: str) -> Document:
    """Return a stored JSON object, with None for NaN and the infinities.

    Python writes these into JSON, but a strict reader of the export refuses them.
    """
    record: Document = json.loads(text, parse_constant=lambda _: None)
    return record


def _lesson_of(record: LessonRecord) -> Lesson:
    """Return the record of an export as a lesson to store, without its examples.

    It keeps the state, the trust and the decisions that it had in the other memory.
    """
    # An export has no message, only the pattern that was made of it.
    signature = Signature(
        "",
        record.pattern,
        digest=record.signature,
        version=record.signature_version,
    )
    # Both records have the other fields under the same names.
    shared = {
        name: getattr(record, name)
        for name in Lesson.__slots__
        if name in LessonRecord.__slots__
    }
    return Lesson(**{**shared, "signature": signature, "sighting": ""})


def untrusted_texts(record: LessonRecord, source: str) -> Iterator[Lesson]:
    """Yield the texts of an imported lesson that nobody confirms, each as a lesson.

    They get the lowest trust and the name of the import as their `source`, so they wait
    in quarantine for a review. Retired and superseded texts are left out. What another
    memory decided or counted about the lesson is not believed.
    """
    data = record.data
    # A stranger's file should not fill the store.
    if len(json.dumps(dict(data))) > MAX_LONG_TEXT_CHARS:
        data = {}
    unconfirmed = replace(
        _lesson_of(record),
        state="unverified",
        trust="outside",
        released_by="",
        released_at=0.0,
        source=source,
        pinned=False,
        data=data,
    )
    for text in record.examples:
        if text.state in ("retired", "superseded"):
            continue
        lesson = replace(
            unconfirmed,
            text=clip(text.lesson),
            example=text.example if text.digest != LESSON_DIGEST_PREFIX else None,
            sources=text.sources,
            mistake=text.mistake and with_origin(text.mistake, "local"),
        )
        yield clip_lesson(lesson)


@resumable(result=Mapping[str, int])
def import_lessons(
    db: Db,
    scope: Scope,
    records: Sequence[LessonRecord],
    source: str,
    by: str,
    why: str,
    dry_run: bool = False,
) -> Mapping[str, int]:
    """Store the lessons of a batch of `records`; return the counts of the import.

    They are "new" and "known", the lessons that were not stored and that were, and
    "waiting", the new texts in quarantine. `source` is the name of the import. `by` is
    the person who confirms it, and `why`; without one, all new texts wait for a review,
    and nothing else changes of lessons that somebody trusts. With `dry_run`, the same
    is counted, but nothing stays written.
    """
    # What a dry run has written is undone back to here.
    db.execute("savepoint importing")

    # An import comes in many batches, but needs one ruling only, the record of who
    # confirmed it.
    ruling = {
        **key_of(scope),
        "action": "import",
        "subject": source,
        "by": storable(by),
    }
    if by and not db.select("id", "ruling", ruling):
        rule(db, scope, action="import", subject=source, by=by, why=why)

    counts = Counter[str]()
    for record in records:
        if by:
            counts.update(_import_trusted(db, scope, record))
        else:
            counts.update(_import_untrusted(db, scope, record, source))

    if dry_run:
        db.undo("importing")
    return counts


def _import_untrusted(
    db: Db, scope: Scope, record: LessonRecord, source: str
) -> Counter[str]:
    """Store the new texts of a lesson in quarantine, as nobody confirms the import.

    Returns the counts of this lesson: 1 for "new" or "known", and under "waiting" how
    many texts were stored. `source` is the name of the import.
    """
    key = {**key_of(scope), "kind": record.kind, "signature": record.signature}
    rows = db.select("id, unreviewed, seen, last_seen", "lesson", key)
    stored_digests: set[str] = set()
    for row in rows:
        examples = db.select("digest", "example", {"lesson_id": row["id"]})
        stored_digests.update(example["digest"] for example in examples)

    lessons_by_digest = dict[str, Lesson]()
    for lesson in untrusted_texts(record, source):
        digest = words_digest(storable(lesson.text))
        if lesson.example is not None:
            digest = lesson.example.digest
        lessons_by_digest[digest] = lesson

    new_lessons = [
        lessons_by_digest[digest]
        for digest in lessons_by_digest
        if digest not in stored_digests
    ]
    results = lesson_store.upsert(db, scope, new_lessons, time.time())
    for row in rows:
        if not row["unreviewed"]:
            # `upsert` has counted a sighting for each text, but a stranger's file does
            # not change how often an error was seen here: take these back.
            counters = {"seen": row["seen"], "last_seen": row["last_seen"]}
            db.update("lesson", {"id": row["id"]}, counters)
            sightings = {"lesson_id": row["id"], "source": storable(source)}
            db.delete("occurrence", sightings)

    # A lesson without any text is not counted.
    counts = Counter(waiting=len([result for result in results if result.entry > 0]))
    counts["known" if rows else "new"] = min(1, len(lessons_by_digest))
    return counts


def _import_trusted(db: Db, scope: Scope, record: LessonRecord) -> Counter[str]:
    """Store what is new of a lesson, whose import a person confirms.

    A lesson that is stored already keeps its words, trust and state: its counts may
    rise, and it gets the examples that it lacks. Returns the counts of this lesson: 1
    for "new" or "known", and under "waiting" how many examples went into quarantine.
    """
    now = time.time()
    key = {**key_of(scope), "kind": record.kind, "signature": record.signature}
    stored_rows = db.select("id, text, author", "lesson", key)
    if stored_rows:
        row = stored_rows[0]
        counters = {
            "id": row["id"],
            "seen": record.seen,
            "first_seen": record.first_seen or now,
            "last_seen": record.last_seen,
        }
        db.send("merge_counts", counters)
    else:
        row = _insert_lesson(db, scope, record, now)

    lesson = {**key, **dict(row), "scope": token(scope), "now": now}
    states = [_write_example(db, lesson, example) for example in record.examples]
    return Counter(
        waiting=states.count("quarantined"),
        new=int(not stored_rows),
        known=len(stored_rows),
    )


def _insert_lesson(db: Db, scope: Scope, record: LessonRecord, now: float) -> Row:
    """Store a new lesson with its links and counts; return its row.

    Its examples are left to the caller, as they need the id of this row.
    """
    columns = lesson_store.lesson_values(
        lesson_store.scope_key(scope), _lesson_of(record), now
    )
    # Sightings are not exported, only the digest of the words that they have in common.
    columns["words"] = record.words
    row = lesson_store.insert_lesson(db, columns)

    # A new row counts one sighting, now, and is retired if a lesson of this name was.
    # What the export says stands for both.
    changes = {
        "state": columns["state"],
        "useful": record.useful,
        "seen": record.seen,
        "first_seen": record.first_seen or record.last_seen or now,
        "last_seen": record.last_seen or now,
        "last_shown": record.last_shown,
    }
    db.update("lesson", {"id": row["id"]}, changes)
    for link in record.links:
        link_row = {**key_of(scope), **asdict(link), "child": name_of(columns)}
        db.insert("link", link_row, CONFLICT_SKIP_SQL)
    return row


def _write_example(db: Db, lesson: Document, record: ExampleRecord) -> State | None:
    """Store an example of an export; return the state in which it was stored.

    `lesson` has the columns of the stored lesson to which it belongs. If the lesson has
    this example already, nothing is written, and the result is None.
    """
    text = storable(record.lesson)
    digest = record.digest
    if digest == LESSON_DIGEST_PREFIX:
        digest = words_digest(text)

    key = {"lesson_id": lesson["id"], "digest": digest}
    if db.select("id", "example", key):
        return None

    values = {
        **lesson,
        **key,
        "text": text,
        "mistake": lesson_store.mistake_json(record.mistake),
        "state": record.state,
        "trust": record.trust,
        "released_by": storable(record.released_by),
        "released_at": record.released_at,
        "source": next(iter(record.sources), ""),
        "sources": record.sources,
        "parents": "[]",
        "now": record.at or lesson["now"],
        "searched": storable(record.words),
        "memory_key": "",
    }
    stored = lesson_store.add_example(
        db, values, example=record.example, context="", place=None
    )

    # The lesson shows this text: from now on it is that of the example.
    if record.author and text == lesson["text"] and not lesson["author"]:
        db.update("lesson", {"id": lesson["id"]}, {"author": stored.id})

    return stored.state


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
    """Write all lessons of a scope to `file`; return how many, and their digest.

    `file` is the path of a new file, or an open binary file. Raises InvalidInput if
    there is a file at this path, and StoreError.
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
    """Import the lessons of an exported file; return what the import changed.

    New texts wait in quarantine unless a person confirms the import: `by` is the
    person, and `why` the reason. With `dry_run`, it is only counted. Raises LineError
    for a damaged file, before anything is written, and StoreError.
    """
    from tempfile import TemporaryFile

    # The file is read twice, first to check it. It may be a pipe, or change meanwhile:
    # so read a copy.
    with TemporaryFile() as copy:
        with open_input(file) as (opened, name):
            copyfileobj(opened, copy)

        # This reads and checks the whole file, so a damaged one is refused here.
        header, end = await asyncio.to_thread(_read_ends, copy, name)
        source = f"import:{end.sha256[:16]}"
        counts = Counter[str]()
        lessons = (
            record
            for record in _read_records(copy, name)
            if isinstance(record, LessonRecord)
        )

        while True:
            batch = await asyncio.to_thread(list, islice(lessons, IMPORT_BATCH_LESSONS))
            if not batch:
                break
            added = await store.write(
                scope,
                import_lessons,
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
    """Write an export to `out`: a header, all lessons, and a last line with a digest.

    The digest is that of all lines before. Returns how much was written.
    """
    # The database may ask for a second try: drop what the first one has written.
    out.truncate(out.seek(0))
    digest = sha256()
    lines = 0
    header: Record = Header(version=3, tenant=scope.tenant, project=scope.project)
    for record in chain([header], export_lessons(db, scope)):
        lines += 1
        line = encode(record)
        digest.update(line)
        out.write(line)

    out.write(encode(End(sha256=digest.hexdigest())))
    return Exported(lines - 1, out.tell(), digest.hexdigest())


def _read_ends(file: BinaryIO, name: str) -> tuple[Header, End]:
    """Read a whole export; return its first and its last record. Raises LineError."""
    lines: Iterator[Any] = _read_records(file, name)
    return next(lines), deque(lines, maxlen=1).pop()


@contextmanager
def _create(file: File) -> Iterator[BinaryIO]:
    """Yield a file to write to: a new one at the path `file`, or `file` if it is open.

    Only its owner may read a new file. It is deleted if the caller's block fails.
    Raises InvalidInput if there is a file at this path, and StoreUnavailable if it
    cannot be written.
    """
    path = os.fspath(file) if isinstance(file, str | os.PathLike) else ""
    try:
        if isinstance(file, str | os.PathLike):
            only_owner = partial(os.open, mode=0o600)
            with open(path, "xb", opener=only_owner) as new_file, ExitStack() as undo:
                undo.callback(os.unlink, path)
                yield new_file
                undo.pop_all()  # the file is complete: keep it
        else:
            yield file
    except FileExistsError as error:
        raise InvalidInput(
            "file", path, "a name that is free: a file with it exists"
        ) from error
    except OSError as error:
        reason = error.strerror or error
        raise StoreUnavailable(
            f"{path or 'the export'} cannot be written ({reason}); check the path and "
            "the disk"
        ) from error


@contextmanager
def open_input(file: File) -> Iterator[tuple[BinaryIO, str]]:
    """Yield the open file and its name for messages; `file` is a path or open already.

    What this opens is closed after the caller's block. Raises LineError if it cannot be
    read.
    """
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
    """Yield the records of an export from its beginning, in the order of their lines.

    The first is its header, and the last its end, which has the SHA-256 of all lines
    before. `name` is that of the file, for messages. Raises LineError, with the number
    of the line, if the file was changed, cut or is none of heedful: perhaps only after
    some records.
    """
    digest = sha256()  # of the lines above
    number = 0
    file.seek(0)
    read_line = partial(file.readline, MAX_EXPORT_LINE_BYTES)
    for number, line in enumerate(iter(read_line, b""), 1):
        try:
            record = decode(line)
        except InvalidInput as error:
            raise LineError(name, number, f"{error}; {DAMAGED_EXPORT_FIX}") from error

        wrong = ""
        if isinstance(record, Header) is not (number == 1):
            wrong = "it is not an export of heedful: one header is its first line"
        elif isinstance(record, End):
            if record.sha256 != digest.hexdigest():
                wrong = "a line above was changed, added or lost since it was exported"
            elif file.readline(1):
                wrong = "more lines follow the last line"
        if wrong:
            raise LineError(name, number, f"{wrong}; {DAMAGED_EXPORT_FIX}")

        yield record
        if isinstance(record, End):
            return
        digest.update(line)

    raise LineError(
        name, number, f"the file ends before its closing line; {DAMAGED_EXPORT_FIX}"
    )
