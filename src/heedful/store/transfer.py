"""Export and import of the lessons of one scope, and copies of a database.

An export has one record for each lesson, with its examples and links. Lessons are named
by kind and signature, because ids differ between databases. Examples list all sources
that they derive from, so that a source can be revoked after an import too. Importing a
record twice changes nothing. Sightings, exposures, outcomes, rulings and the actions of
agents are not exported: a copy moves them, with every other row of every scope.
"""

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, cast

from heedful.errors import Conflict, InvalidInput, NotFound, RoleRefused
from heedful.faults import allowed_value
from heedful.lessons.lesson import (
    LESSON_KINDS,
    Example,
    Lesson,
    LessonKind,
    OlderState,
    Scope,
    Signature,
    State,
    clip,
    older_state,
    state_from_older,
)
from heedful.lessons.mistake import Mistake, from_json, with_origin
from heedful.lessons.origin import read_origin
from heedful.lessons.quarantine import clip_lesson
from heedful.store import POSTGRES_PREFIXES, lessons, needs_psycopg, shown
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    Row,
    from_row,
    key_of,
    resumable,
    storable,
    storable_json,
    token,
)
from heedful.store.rulings import (
    LESSON_DIGEST_PREFIX,
    name_of,
    rule,
    words_digest,
)
from heedful.store.search import short
from heedful.store.sqlite import (
    BUSY_TIMEOUT_SECONDS,
    Connection,
    connect,
    translate_error,
)


class FieldBounds:
    """Constraints on a field of a record, such as `ge=0`, that pydantic checks.

    They have the names of pydantic's core schema. pydantic itself, which is slow to
    import, is not imported until a record is decoded.
    """

    def __init__(self, **constraints: Any) -> None:
        self._constraints = constraints

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], Any]
    ) -> Any:
        return {**handler(source), **self._constraints}


Count = Annotated[int, FieldBounds(ge=0, le=2**53)]
Share = Annotated[float, FieldBounds(ge=0, le=1)]
# Seconds since 1970, before the year 10000; 0 is unknown.
Time = Annotated[float, FieldBounds(ge=0, le=253_402_300_800)]
# The digest of a signature or of words, such as `0f3a9c51d2e87b64`.
Digest = Annotated[str, FieldBounds(pattern="^[0-9a-f]{16}$")]
# The kind and signature of a lesson, such as `error/0f3a9c51d2e87b64`.
LessonName = Annotated[
    str, FieldBounds(pattern=f"^({'|'.join(LESSON_KINDS)})/[0-9a-f]{{16}}$")
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

    digest: Annotated[str, FieldBounds(pattern="^(lesson|[0-9a-f]{16})$")]
    author: bool
    lesson: str
    mistake: Mistake | None = None
    state: OlderState
    trust: str
    at: Time
    example: Example
    words: str
    sources: tuple[str, ...]


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
    words: Digest
    text: str
    tags: tuple[str, ...]
    state: OlderState
    trust: str
    importance: Share
    source: str
    pinned: bool
    useful: Annotated[float, FieldBounds(ge=0, le=2)]
    seen: Count
    first_seen: Time
    last_seen: Time
    last_shown: Time
    meta: Mapping[str, Any]
    mistake: Mistake | None = None
    examples: tuple[ExampleRecord, ...]
    links: tuple[LinkRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The last line of an export, with the SHA-256 of all lines before it."""

    type: Literal["end"] = "end"
    sha256: str


Record = Header | LessonRecord | End


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
    from pydantic import ValidationError

    try:
        record = cast("Record", _record_adapter().validate_json(line))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"])) or "line"
        value = problem["input"]
        if isinstance(value, bytes):  # the whole line
            value = value.decode("utf-8", "replace").rstrip()
        raise InvalidInput(place, value, allowed_value(problem)) from None
    return _with_origins(record) if isinstance(record, LessonRecord) else record


def _with_origins(record: LessonRecord) -> LessonRecord:
    """Return a record whose words of earlier versions are origins."""
    examples = tuple(
        replace(example, trust=read_origin(example.trust, "lesson.examples.trust"))
        for example in record.examples
    )
    origin = read_origin(record.trust, "lesson.trust")
    return replace(record, trust=origin, examples=examples)


@cache
def _record_adapter() -> Any:
    """Return pydantic's adapter for records; their field `type` says which they are."""
    from pydantic import ConfigDict, Field, TypeAdapter

    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    for kind in (Header, ExampleRecord, LinkRecord, LessonRecord, End):
        setattr(kind, "__pydantic_config__", config)  # noqa: B010 - not a field of the record
    return TypeAdapter(Annotated[Record, Field(discriminator="type")])


def export_lessons(db: Db, scope: Scope) -> Iterator[LessonRecord]:
    """Yield the lessons of a scope as an export has them.

    They are sorted by kind and signature.
    """
    key = key_of(scope)
    for row in db.select("*", "lesson", key, "order by kind, signature"):
        of_lesson = {"lesson_id": row["id"]}
        examples = db.select("*", "example", of_lesson, "order by digest")
        child = {**key, "child": name_of(row)}
        links = db.select("*", "link", child, "order by relation, parent")

        yield from_row(
            LessonRecord,
            row,
            type="lesson",
            state=older_state(row["state"]),
            meta=_load_json(row["meta"]),
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

    origins = db.run("rests_on", {"example": row["id"]})
    sources = {origin["source"] for origin in origins}
    return from_row(
        ExampleRecord,
        row,
        digest=digest,
        author=row["id"] == author,
        state=older_state(row["state"]),
        example=Example(**_load_json(row["record"])),
        mistake=from_json(row["mistake"]),
        sources=tuple(sorted(sources)),
    )


def _load_json(text: str) -> dict[str, Any]:
    """Return a stored JSON object, with None for NaN and the infinities.

    Python writes these into JSON, but a strict reader of the export refuses them.
    """
    record: dict[str, Any] = json.loads(text, parse_constant=lambda _: None)
    return record


# A lesson that nobody confirms loses its `meta` if it has more characters.
MAX_UNTRUSTED_META_CHARS = 20_000


def untrusted_texts(record: LessonRecord, source: str) -> Iterator[Lesson]:
    """Yield the texts of a lesson that nobody confirms, each as a lesson.

    They come from `source` and wait in quarantine. Retired and superseded texts are
    left out, and so are the decisions of operators and the counts of the lesson.
    """
    signature = Signature("", record.pattern, digest=record.signature)
    meta = dict(record.meta)
    if len(json.dumps(meta)) > MAX_UNTRUSTED_META_CHARS:
        meta = {}

    for text in record.examples:
        if text.state in ("retired", "superseded"):
            continue

        example = None
        if text.digest != LESSON_DIGEST_PREFIX:
            example = text.example
        lesson = Lesson(
            record.kind,
            signature,
            error_type=record.error_type,
            text=clip(text.lesson),
            sighting="",
            example=example,
            trust="outside",
            importance=record.importance,
            tags=record.tags,
            source=source,
            sources=text.sources,
            meta=meta,
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
    rows = db.select("id, trust, seen, last_seen", "lesson", key)
    stored_digests = set[str]()
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
    answers = lessons.upsert(db, scope, new_lessons, time.time())
    for row in rows:
        if row["trust"] != "outside":
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
    """Write what is new of a lesson that an operator confirms."""
    key = key_of(scope)
    now = time.time()
    name = {**key, "kind": record.kind, "signature": record.signature}
    rows = db.select("id, text, author", "lesson", name)

    is_new = not rows
    if is_new:
        columns = _lesson_columns(record, now)
        rows = db.run(
            "upsert_lesson", {**key, **columns, "now": now, "renews": 0, "raises": 0}
        ).fetchall()
        changes = {column: columns[column] for column in EXPORT_ONLY_FIELDS}
        db.update("lesson", {"id": rows[0]["id"]}, changes)
    else:
        values = {
            "id": rows[0]["id"],
            "seen": record.seen,
            "first_seen": record.first_seen or now,
            "last_seen": record.last_seen,
        }
        db.send("merge_counts", values)

    lesson = {**name, **dict(rows[0]), "scope": token(scope), "now": now}
    states = [_write_example(db, lesson, example) for example in record.examples]

    for link in record.links if is_new else ():
        row = {**key, **asdict(link), "child": name_of(lesson)}
        db.insert("link", row, CONFLICT_SKIP_SQL)
    return Counter(
        waiting=states.count("quarantined"), new=int(is_new), known=int(not is_new)
    )


# The fields of an exported lesson that a new lesson lacks.
EXPORT_ONLY_FIELDS = (
    "state",
    "useful",
    "seen",
    "first_seen",
    "last_seen",
    "last_shown",
)


def _lesson_columns(record: LessonRecord, now: float) -> dict[str, Any]:
    """Return the columns of a new lesson; `now` stands for a time that is unknown."""
    columns = asdict(record)
    for field in ("type", "examples", "links"):  # not columns of this table
        del columns[field]

    for field in ("error_type", "pattern", "text", "source"):
        columns[field] = storable(columns[field])

    columns["state"] = state_from_older(record.state)
    columns["first_seen"] = record.first_seen or record.last_seen or now
    columns["last_seen"] = record.last_seen or now
    columns["tags"] = json.dumps([storable(tag) for tag in record.tags])
    columns["meta"] = storable_json(columns["meta"])
    columns["mistake"] = lessons.mistake_json(record.mistake)
    columns["mark"] = words_digest(columns["text"])

    return columns


def _write_example(
    db: Db, lesson: dict[str, Any], record: ExampleRecord
) -> State | None:
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
        "mistake": lessons.mistake_json(record.mistake),
        "state": state_from_older(record.state),
        "trust": record.trust,
        "source": next(iter(record.sources), ""),
        "sources": record.sources,
        "parents": "[]",
        "now": record.at or lesson["now"],
        "searched": storable(record.words),
        "memory_key": "",
    }
    written = lessons.add_example(
        db, values, example=record.example, context="", place=None
    )

    # The lesson shows this text: from now on it is that of the example.
    if record.author and text == lesson["text"] and not lesson["author"]:
        db.update("lesson", {"id": lesson["id"]}, {"author": written.id})

    return written.state


# The tables to which other tables refer are written first.
REFERENCED_TABLES = ("loop", "lesson", "example", "dream")
# Columns of SQLite that are not copied. The tenant is, but by an expression of its own.
OMITTED_COLUMNS = ("tenant", "changed", "place")
# SQL for the tenant of a row `t` whose table in SQLite has neither the column `tenant`
# nor a foreign key. `tenant_of` is a function that `_copy_rows` defines.
_TENANT_EXPRESSIONS = {
    "corpus": "tenant_of(t.scope)",
    "origin": "tenant_of(t.scope)",
    "lineage": "(select tenant_of(scope) from origin where example = t.child limit 1)",
}
# No trigger runs during the copy; this writes at once what they would have written.
_TRIGGER_UPDATES_SQL = (
    "update vector set indexed = e.indexed from example e where e.id = vector.example"
)

_NUMBERED_COLUMNS_SQL = """
select table_name::text, column_name::text from information_schema.columns
where table_schema = current_schema() and is_identity = 'YES'
  and table_name not like 'procrastinate%'
"""


class StoreTable(NamedTuple):
    """A table that both engines have; the last of its `columns` is the tenant.

    `tenant` is the SQL expression for the tenant of a row `t` in SQLite.
    """

    name: str
    columns: tuple[str, ...]
    tenant: str


@cache
def tables() -> tuple[StoreTable, ...]:
    """Return the tables of both engines, each after the tables that it refers to."""
    with closing(connect(":memory:", BUSY_TIMEOUT_SECONDS)) as db:
        names = db.execute(
            "select name from sqlite_schema where type = 'table' "
            "and name not like '%_fts%' order by name"
        ).fetchall()
        by_name = {row["name"]: _describe_table(db, row["name"]) for row in names}

    ordered_names = dict.fromkeys((*REFERENCED_TABLES, *by_name))
    return tuple(by_name[name] for name in ordered_names)


def _describe_table(db: Db, name: str) -> StoreTable:
    """Return the columns of a table, and how to read the tenant of its rows."""
    columns = db.execute(f"select name from pragma_table_info('{name}')").fetchall()
    names = [column["name"] for column in columns]

    tenant = _TENANT_EXPRESSIONS.get(name, "t.tenant")
    sql = f"select * from pragma_foreign_key_list('{name}')"
    key = db.execute(sql).fetchone()
    if "tenant" not in names and key is not None:
        referenced_row = f"{key['to']} = t.{key['from']}"
        tenant = f"(select tenant from {key['table']} where {referenced_row})"

    copied_names = [column for column in names if column not in OMITTED_COLUMNS]
    return StoreTable(name, columns=(*copied_names, "tenant"), tenant=tenant)


def copy(source: str, target: str) -> dict[str, int]:
    """Copy the SQLite file `source` as of one moment; return the rows by table.

    `target` is a new file, or an empty PostgreSQL database: connect as the role that
    owns the tables, because only this role sees all rows. Then the copy is one
    transaction. Raises NotFound, Conflict, InvalidInput, StoreError.
    """
    if source.startswith(POSTGRES_PREFIXES):
        allowed = "a SQLite file; pg_dump copies PostgreSQL"
        raise InvalidInput("source", shown(source), allowed)
    if not os.path.exists(source):
        raise NotFound("database", source, "this folder; check the path")
    if os.path.exists(target):
        raise Conflict(f"{target} exists; copy into a new file")

    try:
        with closing(connect(source, BUSY_TIMEOUT_SECONDS)) as db:
            if target.startswith(POSTGRES_PREFIXES):
                db.execute("begin")
                return _copy_rows(db, target)
            return _copy_file(db, target)
    except (sqlite3.Error, OSError) as error:
        raise translate_error(error, source) from error


def _copy_file(db: Connection, target: str) -> dict[str, int]:
    """Copy a whole file into a new one that only its owner may read."""
    os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(target)) as new_db:
        db.backup(new_db)
        counts = {}
        for table in tables():
            sql = f"select count(*) from {table.name}"
            counts[table.name] = new_db.execute(sql).fetchone()[0]
        return counts


def _copy_rows(db: Connection, target: str) -> dict[str, int]:
    """Copy the rows of all tenants to an empty PostgreSQL database."""
    needs_psycopg()
    from heedful.store import postgres_session

    tenants = {}
    for row in db.execute("select tenant, project from tally").fetchall():
        scope = Scope(row["tenant"], row["project"])
        tenants[token(scope)] = scope.tenant
    db.create_function("tenant_of", 1, tenants.get)

    try:
        address = postgres_session.parse_url(target)
        session = postgres_session.PostgresSession(address)
        with closing(session) as new_db:
            _begin_copy(new_db, target)
            counts = {table.name: _copy_table(db, new_db, table) for table in tables()}

            new_db.script(_TRIGGER_UPDATES_SQL)
            _set_next_numbers(new_db)
            new_db.commit()
            return counts
    except postgres_session.PSYCOPG_ERRORS as error:
        raise postgres_session.translate_error(error) from error


def _begin_copy(new_db: Any, target: str) -> None:
    """Begin a transaction in an empty database, as the role that owns the tables.

    Raises RoleRefused, Conflict, StoreError.
    """
    from heedful.store import postgres, postgres_session

    # Another role does not see the rows of all tenants.
    role = postgres.describe_role(new_db)
    postgres.check_schema(new_db, role)
    if not role["owner"]:
        raise RoleRefused(
            f"role {role['role']} sees only one tenant at a time, but a copy needs "
            "all tenants; connect as the role that owns heedful's tables"
        )
    new_db.script(
        "begin; set constraints all immediate; "
        f"{postgres_session.PATIENT_TRANSACTION_SQL}"
    )

    for table in tables():
        if new_db.execute(f"select 1 from {table.name} limit 1").fetchone():
            raise Conflict(
                f"{shown(target)} holds rows already (in {table.name}); copy into an "
                "empty database, or add lessons to it with heedful export and heedful "
                "import"
            )


def _copy_table(db: Connection, new_db: Any, table: StoreTable) -> int:
    """Copy the rows of a table to PostgreSQL; return their number."""
    columns = table.columns
    # The column `near` of a vector exists only in PostgreSQL.
    if table.name == "vector":
        columns = (*columns, "near")

    new_db.script(f"alter table {table.name} disable trigger user")
    written: int = new_db.load(table.name, columns, _read_rows(db, table))
    new_db.script(f"alter table {table.name} enable trigger user")
    return written


def _read_rows(db: Connection, table: StoreTable) -> Iterator[list[Any]]:
    """Yield the rows of a table of SQLite, with the values that PostgreSQL gets."""
    columns = ", ".join(table.columns[:-1])
    for row in db.execute(f"select {columns}, {table.tenant} from {table.name} t"):
        # PostgreSQL cannot hold the character NUL.
        cells = [
            cell.replace("\0", "?") if isinstance(cell, str) else cell for cell in row
        ]
        if table.name == "vector":
            cells.append(short(row["data"]))
        yield cells


def _set_next_numbers(new_db: Any) -> None:
    """Let PostgreSQL number new rows from the last number of the copied rows on."""
    for table, column in new_db.execute(_NUMBERED_COLUMNS_SQL).fetchall():
        last = f"max({column})"
        sequence = f"pg_get_serial_sequence('{table}', '{column}')"
        new_db.script(
            f"select setval({sequence}, {last}) from {table} having {last} > 0"
        )
