"""Export and import of the lessons of one scope, and copies of a whole database.

An export is a stream of the records below. They name a lesson by kind and signature, because ids
differ between databases. Examples and sightings list all sources that they derive from, so that a
source can be revoked after an import too. Importing a record twice changes nothing. An unknown time
is 0; the store keeps the time of the import instead. Exposures and outcomes, from which the proof
is computed, and the actions of agents are not exported: a copy moves them. It holds every row of
every scope, is one transaction, and every row is read again and compared.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from itertools import groupby, zip_longest
from math import isfinite
from operator import itemgetter
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, cast

from heedful.errors import Conflict, InvalidInput, NotFound, RoleRefused, StoreError
from heedful.lessons.lesson import LONGEST, Example, Scope, State, Trust, clip, digest_of
from heedful.lessons.signature import words_of
from heedful.lessons.trust import LONGEST_TAG, TAGS, lowest_trust
from heedful.lessons.words import MOST
from heedful.redact import redact_data
from heedful.store import POSTGRES, lessons, needs_psycopg, shown
from heedful.store.lessons import LESSON, mark, words_digest
from heedful.store.sqlite import BUSY_SECONDS, connect, translate_error
from heedful.store.store import SKIP, Db, Row, from_row, key_of, short, storable, token

# The action of the ruling that records who vouches for an import. It is never exported.
IMPORT = "import"
# Longer metadata (in characters of JSON) of an unvouched lesson is dropped.
LONGEST_META = 20_000
STAYS = ("retired", "superseded")
# Type of a pydantic error -> what the field must be.
ALLOWED = {
    "json_invalid": "JSON in UTF-8, without deep nesting",
    "missing": "given",
    "unexpected_keyword_argument": "left out, because a record has no such field",
    "string_pattern_mismatch": "a valid kind, signature, digest or name",
    "union_tag_not_found": "a record with a 'type'",
    "union_tag_invalid": "a record whose 'type' is known",
}


class Must:
    """Constraints on a field, named as in pydantic's core schema; they do not need pydantic."""

    def __init__(self, **constraints: Any) -> None:
        self._constraints = constraints

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        return {**handler(source), **self._constraints}


Count = Annotated[int, Must(ge=0, le=2**53)]
Share = Annotated[float, Must(ge=0, le=1)]
Time = Annotated[float, Must(ge=0, le=253_402_300_800)]  # before the year 10000
Mark = Annotated[str, Must(pattern="^[0-9a-f]{16}$")]
Name = Annotated[str, Must(pattern="^[^/]{1,200}/[0-9a-f]{16}$")]  # kind/signature of a lesson


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of an export."""

    type: Literal["heedful memory"] = "heedful memory"
    version: Literal[2]
    tenant: str
    project: str
    lessons: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonRecord:
    """A lesson of an export. `seen` counts its sightings."""

    type: Literal["lesson"] = "lesson"
    kind: Annotated[str, Must(pattern="^[^/]{1,200}$")]
    signature: Mark
    error_type: str
    pattern: str
    text: str
    tags: tuple[str, ...]
    state: State
    trust: Trust
    importance: Share
    source: str
    pinned: bool
    apart: bool
    useful: Annotated[float, Must(ge=0, le=2)]
    seen: Count
    first_seen: Time
    last_seen: Time
    last_shown: Time
    meta: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the lesson: `kind/signature`."""
        return f"{self.kind}/{self.signature}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleRecord:
    """An example of a lesson; with `digest` "lesson", the text of a lesson without an example.

    `text` is the text of the lesson that came with the example. `author` is True if the lesson
    still has this text. Searches compare a query with `words`. `sources` are all sources of the
    example.
    """

    type: Literal["example"] = "example"
    lesson: Name
    digest: Annotated[str, Must(pattern="^(lesson|[0-9a-f]{16})$")]
    author: bool
    text: str
    state: State
    trust: Trust
    at: Time
    example: Example
    words: str | None
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SightingRecord:
    """A group of `times` sightings of a lesson with the same time, loop and text."""

    type: Literal["sighting"] = "sighting"
    lesson: Name
    at: Time
    loop: str
    text: str
    source: str
    trust: Trust
    sources: tuple[str, ...]
    times: Annotated[int, Must(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RulingRecord:
    """A decision of a person or a proof."""

    type: Literal["ruling"] = "ruling"
    at: Time
    action: str
    subject: str
    by: str
    why: str
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRecord:
    """A link from a strategy to its reflection, or from a lesson to the lesson that replaced it."""

    type: Literal["link"] = "link"
    child: Name
    relation: Literal["became", "strategy"]
    parent: Name
    at: Time


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The last line of an export: the number of lines before it, and their SHA-256."""

    type: Literal["end"] = "end"
    lines: Count
    sha256: str


Record = Header | LessonRecord | ExampleRecord | SightingRecord | RulingRecord | LinkRecord | End
R = TypeVar("R", bound=Record)


EXPORTED = (RulingRecord, LinkRecord)


def encode(record: Record) -> bytes:
    """Return a record as a line of ASCII JSON; equal records give equal bytes."""
    line = json.dumps(asdict(record), separators=(",", ":"), allow_nan=False)
    return line.encode("ascii") + b"\n"


def decode(line: bytes) -> Record:
    """Return the record in a line. Raises InvalidInput if a field is missing, unknown or wrong."""
    from pydantic import ValidationError

    try:
        record = cast("Record", _adapter().validate_json(line))
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        place, said = ".".join(map(str, wrong["loc"])) or "line", wrong["msg"]
        value = None if wrong["type"] == "missing" else wrong["input"]
        allowed = ALLOWED.get(wrong["type"], said.removeprefix("Input should be "))
        raise InvalidInput(place, value, allowed) from None
    match record:
        case LessonRecord():
            kind, pattern, right = record.error_type, record.pattern, record.signature
            # A store may have redacted or cut the pattern, whose digest then differs.
            if not (
                "[redacted: " in kind + pattern or "?" in kind + pattern or len(kind) >= LONGEST
            ):
                right = digest_of(kind, pattern)
            if record.signature != right:
                raise InvalidInput(
                    "signature", record.signature, f"the signature of its pattern, {right}"
                )
        case RulingRecord(action="import"):
            raise InvalidInput("action", record.action, "any action except import")
        case _:
            pass
    return record


@cache
def _adapter() -> Any:
    from pydantic import ConfigDict, Field, TypeAdapter

    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    for kind in Record.__args__:
        setattr(kind, "__pydantic_config__", config)  # noqa: B010 - not a field of the record
    return TypeAdapter(Annotated[Record, Field(discriminator="type")])


def export_records(db: Db, scope: Scope) -> Iterator[Record]:
    """Yield the records of a scope in the order of an export, except `End`.

    The examples and sightings of a lesson follow it. Other records are sorted by their lines.
    """
    key = key_of(scope)
    sources = cache(lambda id: _sources(db, id))
    yield Header(version=2, **key, lessons=lessons.count(db, scope))
    for row in db.run("export_lessons", key):
        lesson = _record(LessonRecord, row)
        yield lesson
        author = {"reflection": row["id"], "author": row["author"]}
        examples = []
        for one in db.run("export_examples", author).fetchall():
            named = {"lesson": lesson.name, "sources": tuple(sorted(sources(one["id"])))}
            examples.append(_record(ExampleRecord, one, **named))
        yield from sorted(examples, key=lambda one: (one.digest, one.text))
        yield from _sightings(db, lesson.name, row["id"], sources)
    for kind in EXPORTED:
        rows = db.run(f"export_{fields(kind)[0].default}s", key)
        by_line = {encode(record): record for record in (_record(kind, row) for row in rows)}
        yield from (by_line[line] for line in sorted(by_line))


def _record(kind: type[R], row: Row, **values: Any) -> R:
    """Return a record of class `kind`; its fields are columns of `row` or in `values`."""
    cells = dict(row)
    values |= {name: read(cells[name]) for name, read in READERS.items() if name in cells}
    return from_row(kind, row, type=fields(kind)[0].default, **values)


def _sightings(
    db: Db, lesson: str, id: int, sources: Callable[[int], set[str]]
) -> Iterator[SightingRecord]:
    columns, order = "at, loop, text, source, trust, parents", "order by at, loop, text"
    rows = db.select(columns, "occurrence", {"reflection": id}, order)
    for _, group in groupby(rows, key=itemgetter("at", "loop", "text")):
        alike = list(group)
        parents = {parent for row in alike for parent in json.loads(row["parents"])}
        own = {row["source"] for row in alike}
        origins = tuple(sorted(own.union(*map(sources, parents)) - {""}))
        values = {"lesson": lesson, "source": min(own), "sources": origins, "times": len(alike)}
        trust = lowest_trust(row["trust"] for row in alike)
        yield _record(SightingRecord, alike[0], trust=trust, **values)


def _sources(db: Db, example: int) -> set[str]:
    """Return all sources from which an example derives."""
    return {row["source"] for row in db.run("rests_on", {"example": example})}


def _clean(value: Any) -> Any:
    """Return JSON data without NaN and infinity, and with `?` for each lone surrogate."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            plain = {_clean(name): _clean(inner) for name, inner in value.items()}
            return {k: v for k, v in plain.items() if v is not None or value.get(k) is None}
        case list():
            return [_clean(inner) for inner in value]
        case float() if not isfinite(value):
            return None
    return value


def _load(text: str) -> dict[str, Any]:
    plain: dict[str, Any] = _clean(json.loads(text))
    return plain


def _without_id(record: str) -> dict[str, Any]:
    """Return the `record` of a ruling without the example's id, which differs in each store."""
    return {name: value for name, value in _load(record).items() if name != "example"}


# Column of an export -> the function that turns a cell into the field of the same name.
READERS: Mapping[str, Callable[[str], Any]] = {
    "example": lambda text: Example(**_load(text)),
    "meta": _load,
    "record": _without_id,
}


def unvouched(record: Record, source: str, now: float) -> Record | None:
    """Return the part of a record to import if nobody vouches for it, or None if nothing remains.

    Texts are shortened and quarantined, with the trust "external" and `source` as a further source.
    Decisions are dropped. So are search words, because the person who
    releases a text does not see them. Times after `now` become `now`.
    """
    if isinstance(record, LinkRecord) and record.relation == "strategy":
        return replace(record, at=min(record.at, now))
    if not isinstance(record, LessonRecord | ExampleRecord | SightingRecord):
        return None
    kept: dict[str, Any] = {"text": clip(record.text), "trust": "external"}
    if not isinstance(record, SightingRecord):
        kept["state"] = record.state if record.state in STAYS else "quarantined"
    if isinstance(record, LessonRecord):
        short = len(json.dumps(record.meta)) <= LONGEST_META
        times = {n: min(getattr(record, n), now) for n in ("first_seen", "last_seen")}
        tags = tuple(clip(tag)[:LONGEST_TAG] for tag in record.tags[:TAGS])
        kept |= {"tags": tags, "meta": record.meta if short else {}, "source": source, **times}
        kept |= {"pinned": False, "apart": False, "useful": 1.0, "seen": 1, "last_shown": 0.0}
        return replace(record, **kept)
    kept["sources"] = (*record.sources, source)
    if isinstance(record, ExampleRecord):
        parts: dict[str, Any] = asdict(record.example)
        parts = {k: clip(v) if isinstance(v, str) else v for k, v in parts.items()}
        kept |= {"example": Example(**parts), "at": min(record.at, now), "words": None}
    return replace(record, **kept)


def import_records(
    db: Db, scope: Scope, records: Sequence[Record], source: str, by: str, why: str
) -> tuple[list[bool], int]:
    """Write records in the order of an export; return for each record whether it is new.

    Also returns how many examples of the import are in quarantine. The texts, trust and states of
    stored records do not change; new sightings are counted. `by` is the person who vouches for the
    import, or "". `source` is the name of the import.
    """
    writer = _Import(db, scope, source, by, why)
    return [writer.write(record) for record in records], writer.waiting


def rehearse_import(
    db: Db, scope: Scope, records: Sequence[Record], source: str, by: str, why: str
) -> tuple[list[bool], int]:
    """Return what `import_records` would return, and write nothing."""
    db.execute("savepoint rehearsal")
    found = import_records(db, scope, records, source, by, why)
    db.execute("rollback to rehearsal")
    db.execute("release rehearsal")
    return found


class _Import:
    """The state of one import into a scope, within one transaction."""

    def __init__(self, db: Db, scope: Scope, source: str, by: str, why: str) -> None:
        self._db, self._scope = db, scope
        self._key = {**key_of(scope), "scope": token(scope)}
        self._source, self._by, self._now = source, by, time.time()
        self._origins: dict[frozenset[str], int] = {}
        self.waiting = 0  # the examples of this import that are in quarantine
        if by:
            self._ruling(RulingRecord(at=self._now, action=IMPORT, subject=source, by=by, why=why))

    def write(self, record: Record) -> bool:
        """Write a record by the method with the name of its type; return whether it is new."""
        return bool(getattr(self, f"_{record.type}")(record))

    def _link(self, record: LinkRecord) -> bool:
        # Without a person who vouches, only links between imported lessons are written.
        source = "" if self._by else self._source
        values = {**self._key, **asdict(record), "source": source}
        return bool(self._db.run("import_link", values).rowcount)

    def _find(self, lesson: str) -> Row | None:
        kind, _, signature = lesson.partition("/")
        key = {**key_of(self._scope), "kind": kind, "signature": signature}
        return next(iter(self._db.select("id, text", "reflection", key)), None)

    def _lesson(self, record: LessonRecord) -> bool:
        known = row = self._find(record.name)
        values = {**self._key, **asdict(record), "new": known is None}
        values |= {n: storable(values[n]) for n in ("error_type", "pattern", "text", "source")}
        titled = record.kind == "reflection"
        values["words"] = words_of(record.error_type, values["pattern"], titled)
        values["first_seen"] = record.first_seen or record.last_seen or self._now
        values["last_seen"] = last = record.last_seen or (0.0 if known else self._now)
        values["tags"] = json.dumps([storable(tag) for tag in record.tags])
        values["meta"] = json.dumps(redact_data(_clean(dict(record.meta))))
        if row is None:
            row = self._db.first("upsert_reflection", {**values, "now": last or self._now})
        assert row is not None
        self._db.run("merge_lesson", {**values, "reflection": row["id"]})
        return known is None

    def _example(self, record: ExampleRecord) -> bool:
        lesson, text = self._find(record.lesson), storable(record.text)
        if lesson is None:
            return False
        digest = words_digest(text) if record.digest == LESSON else record.digest
        key = {"reflection": lesson["id"], "digest": digest}
        known = next(iter(self._db.select("id, state", "example", key)), None)
        example, said = redact_data(_clean(asdict(record.example))), mark(digest, text)
        task, given = storable(example["task"]), record.words
        own = lessons.searched_words(task, "", text) if given is None else storable(given)
        terms = own.split(" ")[:MOST]
        values = {**self._key, **asdict(record), **key, "lesson": text, "task": task}
        values |= {
            "record": json.dumps(example),
            "words": " ".join(terms),
            "now": record.at or self._now,
        }
        if known is not None:
            id, state = known["id"], known["state"]
        else:
            held = record.state == "quarantined"
            if held and lessons.was_rejected(self._db, self._key, record.lesson, said):
                values["state"] = "retired"
            id, state = self._db.run("insert_example", values).fetchall()[0]["id"], values["state"]
        if known is None or self._by:
            sources = {storable(source) for source in record.sources} - _sources(self._db, id)
            self._origin_of(id, sources or ([""] if known is None else []))
        if record.author and text == lesson["text"]:
            self._db.run("make_author", {"example": id, "reflection": lesson["id"]})
        if record.state == state == "quarantined":
            self.waiting += known is None or self._source in _sources(self._db, id)
        return known is None

    def _sighting(self, record: SightingRecord) -> bool:
        if (lesson := self._find(record.lesson)) is None:
            return False
        loop, text, source = map(storable, (record.loop, record.text, record.source))
        same = {"reflection": lesson["id"], "loop": loop, "text": text}
        same |= {"at": record.at} if record.at else {}  # 0 is an unknown time
        known = int(self._db.select("count(*) as n", "occurrence", same)[0]["n"])
        if known < record.times:
            others = frozenset(map(storable, record.sources)) - {source}
            values = {**same, "source": source, "trust": record.trust}
            values["now"] = record.at or self._now
            if others and others not in self._origins:  # these are sources of a deleted example
                self._origins[others] = id = self._db.run("next_gone").fetchall()[0]["id"]
                self._origin_of(id, others)
            values["parents"] = json.dumps([self._origins[others]] if others else [])
            for _ in range(record.times - known):
                lessons.insert_sighting(self._db, values, text)
            self._db.run("count_imported", same)
        return known == 0

    def _origin_of(self, id: int, sources: Iterable[str]) -> None:
        for source in sources:
            origin = {"example": id, "source": source, "scope": self._key["scope"]}
            self._db.insert("origin", origin, SKIP)

    def _ruling(self, record: RulingRecord) -> bool:
        """Insert a ruling; return False if it is stored already."""
        texts = ("action", "subject", "by", "why")
        values: dict[str, Any] = {name: storable(getattr(record, name)) for name in texts}
        values |= {**key_of(self._scope), "at": record.at}
        plain = redact_data(_clean(dict(record.record)))
        known = self._db.run("find_rulings", values).fetchall()
        new = plain not in [_without_id(row["record"]) for row in known]
        if new:
            self._db.insert("ruling", {**values, "record": json.dumps(plain)})
        return new


CopyProgress = Callable[[str, int], None]  # is called with the name and the rows of a table
# Exposures are written first, because a trigger changes `last_shown` of lessons; then the tables to
# which other tables refer.
FIRST = ("exposure", "loop", "reflection", "example", "dream")
# Tables that are not copied: triggers or `_number` fill them.
LEFT_OUT = ("corpus", "sqlite_sequence")
# The tenant of a row in a file whose table has neither this column nor a foreign key.
_TENANTS = {
    "origin": "tenant_of(t.scope)",
    "lineage": "(select tenant_of(scope) from origin where example = t.child limit 1)",
}
# Writes the rows that PostgreSQL's triggers would write one at a time.
_AFTER = """
insert into corpus (scope, tenant, texts, length)
select scope, tenant, count(*) filter (where indexed),
  coalesce(sum(length(words)) filter (where indexed), 0)
from example group by scope, tenant;
update vector set indexed = e.indexed from example e where e.id = vector.example
"""


class Table(NamedTuple):
    """A table that both engines have. `key` orders its rows; the last of `columns` is the tenant.

    `numbered` is True if the database assigns the numbers in the key. `tenant` is the SQL
    expression for the tenant of a row `t` in SQLite.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    numbered: bool
    tenant: str


@cache
def tables() -> tuple[Table, ...]:
    """Return the tables of both engines, each after the tables to which its rows refer."""
    db = connect(":memory:", BUSY_SECONDS)
    sql = "select name from sqlite_schema where type = 'table' and name not like 'example_fts%'"
    found = {}
    for (name,) in db.execute(f"{sql} and name not in {LEFT_OUT} order by name"):
        info = db.execute(f"select name, type, pk from pragma_table_info('{name}')").fetchall()
        owner = db.execute(f"select * from pragma_foreign_key_list('{name}')").fetchone()
        tenant = _TENANTS.get(name, "t.tenant")
        if "tenant" not in [row["name"] for row in info] and owner:
            tenant = "(select tenant from {table} where {to} = t.{from})".format(**owner)
        columns = [row["name"] for row in info if row["name"] not in ("tenant", "changed")]
        keys = sorted((row["pk"], row["name"], row["type"].lower()) for row in info if row["pk"])
        key = tuple(name for _, name, _ in keys)
        numbered = key in {("n",), ("id",)} and keys[0][2] == "integer"
        found[name] = Table(name, (*columns, "tenant"), key, numbered, tenant)
    db.close()
    return tuple(found[name] for name in dict.fromkeys((*FIRST, *found)))


def copy(
    source: str, target: str, progress: CopyProgress = lambda table, rows: None
) -> dict[str, int]:
    """Copy the database `source` into the empty `target`; return the number of rows by table.

    The copy is one transaction. Before the commit, all rows are read again and compared. With
    PostgreSQL, connect as the role that owns the tables, because only this role sees all rows.
    Queued jobs are not copied: workers create them again. Raises NotFound, Conflict, InvalidInput,
    StoreError.
    """
    if source == target or os.path.realpath(source) == os.path.realpath(target):
        raise InvalidInput("target", shown(target), "another database than the source")
    counts = dict.fromkeys((table.name for table in tables()), 0)
    with _open(source, writes=False) as origin, _open(target, writes=True) as copied:
        for table in tables():
            if any(_read_rows(copied, table)):
                raise Conflict(
                    f"{shown(target)} holds rows already (in {table.name}); copy into an empty "
                    "database, or add lessons to it with heedful export and heedful import"
                )
        for table in tables():
            _write_rows(copied, table, _read_rows(origin, table))
            progress(table.name, 0)
        _number(origin, copied)
        for table in tables():
            rows = zip_longest(_read_rows(origin, table), _read_rows(copied, table))
            for row, written in rows:
                if row != written:
                    raise StoreError(
                        f"the copy of table {table.name} in {shown(target)} differs from the table "
                        f"in {shown(source)}; nothing was written"
                    )
                counts[table.name] += 1
            progress(table.name, counts[table.name])
    return counts


def _read_rows(db: Any, table: Table) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of all tenants in a table, in the order of its key."""
    key = ", ".join(f"t.{name}" for name in table.key)
    cells = ", ".join(f"t.{name}" for name in table.columns[:-1])
    tenant = table.tenant if db.dialect == "sqlite" else "t.tenant"
    if "tenant_of" in tenant:
        scopes = db.execute("select tenant, project from tally")
        tenants = {token(Scope(*row)): row["tenant"] for row in scopes}
        db.create_function("tenant_of", 1, tenants.get)
    sql = f"select {cells}, {tenant} from {table.name} t order by {key}"
    for row in db.execute(sql) if db.dialect == "sqlite" else db.stream(sql):
        # PostgreSQL cannot hold the character NUL.
        yield tuple(cell.replace("\0", "?") if isinstance(cell, str) else cell for cell in row)


def _write_rows(db: Any, table: Table, rows: Iterator[tuple[Any, ...]]) -> None:
    if db.dialect == "sqlite":
        # Triggers write the search index. They also write counts, which the copied counts replace.
        columns = table.columns if table.tenant == "t.tenant" else table.columns[:-1]
        marks = ", ".join("?" * len(columns))
        sql = f"insert or replace into {table.name} ({', '.join(columns)}) values ({marks})"
        db.executemany(sql, (row[: len(columns)] for row in rows))
        return
    columns, written = table.columns, iter(rows)
    if table.name == "vector":
        data = columns.index("data")
        columns, written = (*columns, "near"), ((*row, short(row[data])) for row in rows)
    db.script(f"alter table {table.name} disable trigger user")
    db.load(table.name, columns, written)
    db.script(f"alter table {table.name} enable trigger user")


def _number(origin: Any, copied: Any) -> None:
    """Write what triggers would have written to the copy; let it continue the source's row ids."""
    sql = "select seq from sqlite_sequence where name = 'example'"
    if origin.dialect == "postgres":
        # After a restart of the server this is above any number in use.
        sql = "select coalesce(pg_sequence_last_value(pg_get_serial_sequence('example', 'id')), 0)"
    highest = int(origin.execute(sql).fetchone()[0])
    if copied.dialect == "sqlite":
        sql = "update sqlite_sequence set seq = max(seq, ?) where name = 'example'"
        copied.execute(sql, (highest,))
        return
    copied.script(_AFTER)
    for name, _, (key, *_), numbered, _ in tables():
        if numbered:
            sequence = f"pg_get_serial_sequence('{name}', '{key}')"
            last = f"greatest(max({key}), {highest if name == 'example' else 0})"
            rows = f"(select {last} as n from {name}) as last"
            copied.script(f"select setval({sequence}, n) from {rows} where n > 0")


@contextmanager
def _open(url: str, *, writes: bool) -> Iterator[Any]:
    """Yield a connection to a database in a transaction, and commit at the end."""
    if not url.startswith(POSTGRES):
        if not writes and not os.path.exists(url):
            raise NotFound("database", url, "this folder; check the path")
        try:
            with closing(connect(url, BUSY_SECONDS)) as db:
                db.execute("begin immediate" if writes else "begin")
                yield db
                db.execute("commit")
        except sqlite3.Error as error:
            raise translate_error(error) from error
        return
    needs_psycopg()
    from heedful.store import postgres

    try:
        with closing(postgres.Session(postgres.parse_url(url).conninfo)) as session:
            role = postgres.who(session)
            postgres.of_schema(session, role)
            if not role["owner"]:
                raise RoleRefused(
                    f"role {role['role']} sees only one tenant at a time, but a copy needs all "
                    "tenants; connect as the role that owns heedful's tables"
                )
            kind = "" if writes else " read only"
            session.script(f"begin isolation level repeatable read{kind}; {postgres.PATIENT}")
            yield session
            session.end("commit")
    except postgres.MISHAPS as error:
        raise postgres.translate_error(error) from error
