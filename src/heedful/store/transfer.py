"""Export and import of the lessons of one scope, and copies of a whole database.

An export has one record for each lesson, with its examples and links. Lessons are named
by kind and signature, because ids differ between databases. Examples list all sources
that they derive from, so that a source can be revoked after an import too. Importing a
record twice changes nothing. Sightings, exposures, outcomes, rulings and the actions of
agents are not exported: a copy moves them, with every other row of every scope.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, cast

from heedful.errors import Conflict, InvalidInput, NotFound, RoleRefused
from heedful.lessons.lesson import (
    Example,
    Lesson,
    Scope,
    Signature,
    State,
    Trust,
    clip,
)
from heedful.lessons.trust import clip_reflection
from heedful.redact import redact_data
from heedful.store import POSTGRES_PREFIXES, lessons, needs_psycopg, shown
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    Db,
    from_row,
    key_of,
    resumable,
    storable,
    token,
)
from heedful.store.lessons import LESSON_DIGEST_PREFIX, words_digest
from heedful.store.search import short
from heedful.store.sqlite import BUSY_TIMEOUT_SECONDS, connect, translate_error


class FieldBounds:
    """Constraints on a field, named as in pydantic's core schema; they do not need
    pydantic.
    """

    def __init__(self, **constraints: Any) -> None:
        self._constraints = constraints

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], Any]
    ) -> Any:
        return {**handler(source), **self._constraints}


Count = Annotated[int, FieldBounds(ge=0, le=2**53)]
Share = Annotated[float, FieldBounds(ge=0, le=1)]
Time = Annotated[
    float, FieldBounds(ge=0, le=253_402_300_800)
]  # before the year 10000; 0 is unknown
Mark = Annotated[str, FieldBounds(pattern="^[0-9a-f]{16}$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of an export."""

    type: Literal["heedful memory"] = "heedful memory"
    version: Literal[3]
    tenant: str
    project: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleRecord:
    """An example of a lesson; with `digest` "lesson", the text of a lesson without an
    example.

    `lesson` is the text of the lesson that came with the example. `author` is True if
    the lesson still has this text. Searches compare a query with `words`. `sources` are
    all sources of the example.
    """

    digest: Annotated[str, FieldBounds(pattern="^(lesson|[0-9a-f]{16})$")]
    author: bool
    lesson: str
    state: State
    trust: Trust
    at: Time
    example: Example
    words: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRecord:
    """A link to another lesson: a strategy's reflection, or what replaced a superseded
    lesson.
    """

    relation: Literal["became", "strategy"]
    parent: Annotated[
        str, FieldBounds(pattern="^[^/]{1,200}/[0-9a-f]{16}$")
    ]  # kind/signature


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonRecord:
    """A lesson of an export. `seen` counts its sightings, `words` is the digest of its
    words.
    """

    type: Literal["lesson"] = "lesson"
    kind: Annotated[str, FieldBounds(pattern="^[^/]{1,200}$")]
    signature: Mark
    error_type: str
    pattern: str
    words: Mark
    text: str
    tags: tuple[str, ...]
    state: State
    trust: Trust
    importance: Share
    source: str
    pinned: bool
    apart: bool
    useful: Annotated[float, FieldBounds(ge=0, le=2)]
    seen: Count
    first_seen: Time
    last_seen: Time
    last_shown: Time
    meta: Mapping[str, Any]
    examples: tuple[ExampleRecord, ...]
    links: tuple[LinkRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The last line of an export, with the SHA-256 of all lines before it."""

    type: Literal["end"] = "end"
    sha256: str


Record = Header | LessonRecord | End
# What a lesson of an export has and a new one does not.
EXPORT_ONLY_FIELDS = (
    "state",
    "apart",
    "useful",
    "seen",
    "first_seen",
    "last_seen",
    "last_shown",
)
# The fields of a lesson that are stored in other tables.
LESSON_TABLE_FIELDS = ("type", "examples", "links")


def encode(record: Record) -> bytes:
    """Return a record as a line of JSON in UTF-8; equal records give equal bytes."""
    line = json.dumps(
        asdict(record), separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return line.encode("utf-8", "replace") + b"\n"


def decode(line: bytes) -> Record:
    """Return the record in a line. Raises InvalidInput if a field is missing, unknown
    or wrong.
    """
    from pydantic import ValidationError

    try:
        return cast("Record", _adapter().validate_json(line))
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        place = ".".join(map(str, wrong["loc"])) or "line"
        allowed = wrong["msg"].removeprefix("Input should be ")
        raise InvalidInput(place, wrong["input"], allowed) from None


@cache
def _adapter() -> Any:
    from pydantic import ConfigDict, Field, TypeAdapter

    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    for kind in (Header, ExampleRecord, LinkRecord, LessonRecord, End):
        setattr(kind, "__pydantic_config__", config)  # noqa: B010 - not a field of the record
    return TypeAdapter(Annotated[Record, Field(discriminator="type")])


def export_lessons(db: Db, scope: Scope) -> Iterator[LessonRecord]:
    """Yield the lessons of a scope, sorted by kind and signature, as an export has
    them.
    """
    key = key_of(scope)
    sources = cache(
        lambda id: {row["source"] for row in db.run("rests_on", {"example": id})}
    )
    for row in db.select("*", "reflection", key, "order by kind, signature"):
        examples = [
            from_row(
                ExampleRecord,
                one,
                digest=LESSON_DIGEST_PREFIX
                if one["digest"].startswith(LESSON_DIGEST_PREFIX)
                else one["digest"],
                author=one["id"] == row["author"],
                example=Example(**_load(one["record"])),
                sources=tuple(sorted(sources(one["id"]))),
            )
            for one in db.select(
                "*", "example", {"reflection": row["id"]}, "order by digest"
            )
        ]
        child = {**key, "child": lessons.name_of(row)}
        links = db.select("*", "link", child, "order by relation, parent")
        yield from_row(
            LessonRecord,
            row,
            type="lesson",
            meta=_load(row["meta"]),
            examples=tuple(examples),
            links=tuple(from_row(LinkRecord, one) for one in links),
        )


def _load(text: str) -> dict[str, Any]:
    """Return a JSON object, with null for each number that JSON has no word for."""
    plain: dict[str, Any] = json.loads(text, parse_constant=lambda _: None)
    return plain


def untrusted_texts(record: LessonRecord, source: str) -> Iterator[Lesson]:
    """Yield the texts of a lesson for which nobody vouches, as words of `source` in
    quarantine.

    Decisions and counts are dropped, and so are retired and superseded texts.
    """
    name = Signature("", record.pattern, digest=record.signature)
    meta = record.meta if len(json.dumps(record.meta)) <= 20_000 else {}
    for one in record.examples:
        if one.state not in ("retired", "superseded"):
            reflection = Lesson(
                record.kind,
                name,
                error_type=record.error_type,
                text=clip(one.lesson),
                sighting="",
                example=None if one.digest == LESSON_DIGEST_PREFIX else one.example,
                trust="external",
                importance=record.importance,
                tags=record.tags,
                source=source,
                sources=one.sources,
                meta=meta,
            )
            yield clip_reflection(reflection)


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
    """Write lessons; return how many are new, how many were known, and how many new
    texts wait.

    The texts, trust and states of stored lessons do not change; their counts may rise.
    `by` is the person who vouches for the import, or "". `source` is the name of the
    import. With `dry_run`, nothing is written.
    """
    db.execute("savepoint importing")
    ruling = {
        **key_of(scope),
        "action": "import",
        "subject": source,
        "by": storable(by),
    }
    if by and not db.select("id", "ruling", ruling):
        lessons.rule(
            db, scope, action="import", subject=source, by=by, why=why, now=time.time()
        )
    counts = Counter[str]()
    for record in records:
        counts.update(
            _import(db, scope, record) if by else _quarantine(db, scope, record, source)
        )
    if dry_run:
        db.execute("rollback to importing")
    db.execute("release importing")
    return counts


def _quarantine(
    db: Db, scope: Scope, record: LessonRecord, source: str
) -> Counter[str]:
    """Store the new texts of a lesson for which nobody vouches."""
    key = {**key_of(scope), "kind": record.kind, "signature": record.signature}
    known = db.select("id", "reflection", key)
    there = [db.select("digest", "example", {"reflection": row["id"]}) for row in known]
    digests = {row["digest"] for rows in there for row in rows}
    texts = {
        one.example.digest if one.example else words_digest(storable(one.text)): one
        for one in untrusted_texts(record, source)
    }
    new = [one for digest, one in texts.items() if digest not in digests]
    waiting = sum(one.entry > 0 for one in lessons.upsert(db, scope, new, time.time()))
    return Counter({"known" if known else "new": int(bool(texts)), "waiting": waiting})


def _import(db: Db, scope: Scope, record: LessonRecord) -> Counter[str]:
    """Write a lesson for which an operator vouches, with what of it is not stored
    yet.
    """
    key = key_of(scope)
    now = time.time()
    named = {**key, "kind": record.kind, "signature": record.signature}
    known = db.select("id, text, author", "reflection", named)
    rows = known
    if known:
        times = {"first_seen": record.first_seen or now, "last_seen": record.last_seen}
        db.run("merge_counts", {"id": known[0]["id"], "seen": record.seen, **times})
    else:
        plain = {
            name: value
            for name, value in asdict(record).items()
            if name not in LESSON_TABLE_FIELDS
        }
        plain |= {
            n: storable(plain[n]) for n in ("error_type", "pattern", "text", "source")
        }
        plain["first_seen"] = record.first_seen or record.last_seen or now
        plain["last_seen"] = record.last_seen or now
        plain["tags"] = json.dumps([storable(tag) for tag in record.tags])
        plain["meta"] = json.dumps(redact_data(plain["meta"]))
        plain["mark"] = words_digest(plain["text"])
        rows = db.run("upsert_reflection", {**key, **plain, "now": now}).fetchall()
        db.update(
            "reflection",
            {"id": rows[0]["id"]},
            {name: plain[name] for name in EXPORT_ONLY_FIELDS},
        )
    lesson = {**named, **dict(rows[0]), "scope": token(scope), "now": now}
    written = [_write_example(db, lesson, one) for one in record.examples]
    for link in () if known else record.links:
        db.insert(
            "link",
            {**key, **asdict(link), "child": lessons.name_of(lesson)},
            CONFLICT_SKIP_SQL,
        )
    return Counter(
        {"known" if known else "new": 1, "waiting": written.count("quarantined")}
    )


def _write_example(db: Db, lesson: dict[str, Any], one: ExampleRecord) -> State | None:
    """Write an example of `lesson`; return its state, or None if the lesson has it
    already.
    """
    text = storable(one.lesson)
    digest = words_digest(text) if one.digest == LESSON_DIGEST_PREFIX else one.digest
    key = {"reflection": lesson["id"], "digest": digest}
    if db.select("id", "example", key):
        return None
    values = {**lesson, **key, "text": text, "state": one.state, "trust": one.trust}
    values |= {
        "source": next(iter(one.sources), ""),
        "sources": one.sources,
        "parents": "[]",
    }
    values |= {
        "now": one.at or lesson["now"],
        "searched": storable(one.words),
        "memory_key": "",
    }
    lessons.add_example(db, values, example=one.example, context="", place=None)
    ((id, state),) = db.select("id, state", "example", key)
    if one.author and text == lesson["text"] and not lesson["author"]:
        db.update("reflection", {"id": lesson["id"]}, {"author": id})
    return cast("State", state)


# The tables to which other tables refer are written first.
REFERENCED_TABLES = ("loop", "reflection", "example", "dream")
# Columns of SQLite that are not copied.
OMITTED_COLUMNS = ("tenant", "changed", "place")
# The tenant of a row in a file whose table has neither this column nor a foreign key.
_TENANT_EXPRESSIONS = {
    "corpus": "tenant_of(t.scope)",
    "origin": "tenant_of(t.scope)",
    "lineage": "(select tenant_of(scope) from origin where example = t.child limit 1)",
}
# Writes what PostgreSQL's triggers would write one row at a time.
_TRIGGER_UPDATES_SQL = (
    "update vector set indexed = e.indexed from example e where e.id = vector.example"
)


class StoreTable(NamedTuple):
    """A table that both engines have; the last of its `columns` is the tenant.

    `tenant` is the SQL expression for the tenant of a row `t` in SQLite. `number` is
    the column to which the database assigns numbers, or "".
    """

    name: str
    columns: tuple[str, ...]
    tenant: str
    number: str


@cache
def tables() -> tuple[StoreTable, ...]:
    """Return the tables of both engines, each after the tables to which its rows
    refer.
    """
    db = connect(":memory:", BUSY_TIMEOUT_SECONDS)
    sql = (
        "select name from sqlite_schema where type = 'table' and name not like "
        "'example_fts%'"
    )
    found = {}
    for (name,) in db.execute(f"{sql} order by name"):
        info = db.execute(
            f"select name, type, pk from pragma_table_info('{name}')"
        ).fetchall()
        owner = db.execute(
            f"select * from pragma_foreign_key_list('{name}')"
        ).fetchone()
        tenant = _TENANT_EXPRESSIONS.get(name, "t.tenant")
        if "tenant" not in [row["name"] for row in info] and owner:
            tenant = "(select tenant from {table} where {to} = t.{from})".format(
                **owner
            )
        columns = [row["name"] for row in info if row["name"] not in OMITTED_COLUMNS]
        keys = [
            row["name"]
            for row in info
            if row["pk"] == 1 and row["type"].lower() == "integer"
        ]
        number = keys[0] if keys and keys[0] in ("n", "id") else ""
        found[name] = StoreTable(
            name=name, columns=(*columns, "tenant"), tenant=tenant, number=number
        )
    db.close()
    return tuple(found[name] for name in dict.fromkeys((*REFERENCED_TABLES, *found)))


def copy(source: str, target: str) -> dict[str, int]:
    """Copy the SQLite file `source` as of one moment; return the number of rows by
    table.

    `target` is a new file, or an empty PostgreSQL database: connect as the role that
    owns the tables, because only this role sees all rows. Then the copy is one
    transaction. Raises NotFound, Conflict, InvalidInput, StoreError.
    """
    if source.startswith(POSTGRES_PREFIXES):
        raise InvalidInput(
            "source", shown(source), "a SQLite file; pg_dump copies PostgreSQL"
        )
    if not os.path.exists(source):
        raise NotFound("database", source, "this folder; check the path")
    if os.path.exists(target):
        raise Conflict(f"{target} exists; copy into a new file")
    try:
        with closing(connect(source, BUSY_TIMEOUT_SECONDS)) as db:
            if target.startswith(POSTGRES_PREFIXES):
                db.execute("begin")
                return _copy_rows(db, target)
            os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
            with closing(sqlite3.connect(target)) as copied:
                db.backup(copied)
                names = [table.name for table in tables()]
                sql = "select count(*) from "
                return {
                    name: copied.execute(sql + name).fetchone()[0] for name in names
                }
    except (sqlite3.Error, OSError) as error:
        raise translate_error(error) from error


def _copy_rows(db: Any, target: str) -> dict[str, int]:
    """Copy the rows of all tenants to an empty PostgreSQL database."""
    needs_psycopg()
    from heedful.store import postgres, postgres_session

    try:
        with closing(
            postgres_session.PostgresSession(
                postgres_session.parse_url(target).conninfo
            )
        ) as copied:
            role = postgres.describe_role(copied)
            postgres.check_schema(copied, role)
            if not role["owner"]:
                raise RoleRefused(
                    f"role {role['role']} sees only one tenant at a time, but a copy "
                    "needs all "
                    "tenants; connect as the role that owns heedful's tables"
                )
            copied.script(
                f"begin; set constraints all immediate; {postgres_session.PATIENT_TRANSACTION_SQL}"
            )
            for table in tables():
                if copied.execute(f"select 1 from {table.name} limit 1").fetchone():
                    raise Conflict(
                        f"{shown(target)} holds rows already (in {table.name}); copy "
                        "into an empty "
                        "database, or add lessons to it with heedful export and "
                        "heedful import"
                    )
            scopes = db.execute("select tenant, project from tally").fetchall()
            tenants = {token(Scope(*row)): row["tenant"] for row in scopes}
            db.create_function("tenant_of", 1, tenants.get)
            counts = {table.name: _copy_table(db, copied, table) for table in tables()}
            copied.script(_TRIGGER_UPDATES_SQL)
            for name, key in ((one.name, one.number) for one in tables() if one.number):
                # the copy counts on
                last = f"max({key})) from {name} having max({key}) > 0"
                copied.script(
                    f"select setval(pg_get_serial_sequence('{name}', '{key}'), {last}"
                )
            copied.run_boundary("commit")
            return counts
    except postgres_session.PSYCOPG_ERRORS as error:
        raise postgres_session.translate_error(error) from error


def _copy_table(db: Any, copied: Any, table: StoreTable) -> int:
    near = ("near",) if table.name == "vector" else ()
    sql = f"select {', '.join(table.columns[:-1])}, {table.tenant} from {table.name} t"

    def rows() -> Iterator[list[Any]]:
        for row in db.execute(sql):
            # PostgreSQL cannot hold the character NUL.
            cells = [
                one.replace("\0", "?") if isinstance(one, str) else one for one in row
            ]
            yield [*cells, *(short(row["data"]) for _ in near)]

    copied.script(f"alter table {table.name} disable trigger user")
    written: int = copied.load(table.name, (*table.columns, *near), rows())
    copied.script(f"alter table {table.name} enable trigger user")
    return written
