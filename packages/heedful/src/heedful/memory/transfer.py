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
    """Return the record in a line.

    Raises InvalidInput if a field is missing, unknown or wrong.
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
    """Yield the lessons of a scope as an export has them.

    They are sorted by kind and signature.
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
    """Return an example as an export has it.

    `author` is the id of the example whose text its lesson shows, None if no example
    has this text.
    """
    digest = row["digest"]
    # What follows the prefix is made of the text, and is made again by an import.
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
    """Return a lesson of an export as a lesson to store, without its examples."""
    signature = Signature(
        "",
        record.pattern,
        digest=record.signature,
        version=record.signature_version,
    )
    return Lesson(
        record.kind,
        signature,
        error_type=record.error_type,
        text=record.text,
        sighting="",
        state=record.state,
        trust=record.trust,
        released_by=record.released_by,
        released_at=record.released_at,
        importance=record.importance,
        tags=record.tags,
        source=record.source,
        pinned=record.pinned,
        evidence=record.evidence,
        is_correction=record.is_correction,
        run=record.run,
        data=record.data,
        mistake=record.mistake,
    )


def untrusted_texts(record: LessonRecord, source: str) -> Iterator[Lesson]:
    """Yield the texts of a lesson that nobody confirms, each as a lesson.

    They come from `source` and wait in quarantine. Retired and superseded texts are
    left out, and so are the decisions of operators and the counts of the lesson. It
    keeps no long data.
    """
    data = record.data
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
    """Write lessons; return how many are new, were known, and how many new texts wait.

    The texts, trust and states of stored lessons do not change; their counts may rise,
    but those of a trusted lesson only if somebody confirms the import. `by` is the
    person who confirms it, or "". `source` is the name of the import. With
    `dry_run`, nothing is written.
    """
    db.execute("savepoint importing")

    # One import comes in many batches, but needs only one ruling.
    ruling = {
        **key_of(scope),
        "action": "import",
        "subject": source,
        "by": storable(by),
    }
    if by and not db.select("id", "ruling", ruling):
        rule(
            db, scope, action="import", subject=source, by=by, why=why, now=time.time()
        )

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
    """Store the new texts of a lesson that nobody confirms, in quarantine."""
    key = {**key_of(scope), "kind": record.kind, "signature": record.signature}
    rows = db.select("id, unreviewed, seen, last_seen", "lesson", key)
    stored_digests: set[str] = set()
    for row in rows:
        examples = db.select("digest", "example", {"lesson_id": row["id"]})
        stored_digests.update(example["digest"] for example in examples)

    texts = dict[str, Lesson]()
    for lesson in untrusted_texts(record, source):
        digest = words_digest(storable(lesson.text))
        if lesson.example is not None:
            digest = lesson.example.digest
        texts[digest] = lesson

    new_lessons = [texts[digest] for digest in texts if digest not in stored_digests]
    answers = lesson_store.upsert(db, scope, new_lessons, time.time())
    for row in rows:
        if not row["unreviewed"]:
            # A stranger's file does not change how often an error was seen here.
            counters = {"seen": row["seen"], "last_seen": row["last_seen"]}
            db.update("lesson", {"id": row["id"]}, counters)
            sightings = {"lesson_id": row["id"], "source": storable(source)}
            db.delete("occurrence", sightings)

    # A lesson without any text is not counted.
    counts = Counter(waiting=len([answer for answer in answers if answer.entry > 0]))
    counts["known" if rows else "new"] = min(1, len(texts))
    return counts


def _import_trusted(db: Db, scope: Scope, record: LessonRecord) -> Counter[str]:
    """Write what is new of a lesson that an operator confirms.

    A stored lesson keeps its words, trust and state: its counts may rise, and it gets
    the examples that it lacks. The result counts the lesson as new or known.
    """
    now = time.time()
    name = {**key_of(scope), "kind": record.kind, "signature": record.signature}
    stored = db.select("id, text, author", "lesson", name)
    if stored:
        row = stored[0]
        counts = {
            "id": row["id"],
            "seen": record.seen,
            "first_seen": record.first_seen or now,
            "last_seen": record.last_seen,
        }
        db.send("merge_counts", counts)
    else:
        row = _insert_lesson(db, scope, record, now)

    lesson = {**name, **dict(row), "scope": token(scope), "now": now}
    states = [_write_example(db, lesson, example) for example in record.examples]
    return Counter(
        waiting=states.count("quarantined"), new=int(not stored), known=len(stored)
    )


def _insert_lesson(db: Db, scope: Scope, record: LessonRecord, now: float) -> Row:
    """Store a new lesson with its links, but without examples; return its row."""
    columns = lesson_store.lesson_values(
        lesson_store.scope_key(scope), _lesson_of(record), now
    )
    # Of a long output, only the digest of its error line is exported.
    columns["words"] = record.words
    row = lesson_store.insert_lesson(db, columns)

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
    """Write an example of `lesson`; return its state.

    Returns None, and writes nothing, if the lesson has this example already.
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
    written = lesson_store.add_example(
        db, values, example=record.example, context="", place=None
    )

    # The lesson shows this text: from now on it is that of the example.
    if record.author and text == lesson["text"] and not lesson["author"]:
        db.update("lesson", {"id": lesson["id"]}, {"author": written.id})

    return written.state


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
    """Write the header, the lessons, and a last line with the digest of these."""
    out.truncate(out.seek(0))  # the database may ask for a second try
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
    """Yield a new file, which only its owner may read, or `file` if it is open.

    A new file is deleted if it cannot be completed. Raises InvalidInput,
    StoreUnavailable.
    """
    name = os.fspath(file) if isinstance(file, str | os.PathLike) else ""
    try:
        if isinstance(file, str | os.PathLike):
            only_owner = partial(os.open, mode=0o600)
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
