"""Convert what earlier systems stored into an export file, which `Memory.import_` reads.

Loop traces, rows of a table of memories, and mistakes with their corrections become lessons. A row
that cannot be used is refused; the other rows are converted.
"""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from io import TextIOWrapper
from typing import Any, BinaryIO, Literal

from heedful.compat.guardrails import PESSIMIST, bias
from heedful.compat.mistakes import MISTAKE
from heedful.errors import InvalidInput, LineError
from heedful.lessons.lesson import LONGEST, Example, Reflection, Scope, check_source
from heedful.lessons.signature import signature
from heedful.loop.record import check_share, clean
from heedful.memory.memory import Memory
from heedful.memory.transfer import open_input
from heedful.store import POSTGRES, needs_psycopg, shown
from heedful.store.lessons import SIGNED, upsert
from heedful.store.store import Db, storable
from heedful.traces.messages import seconds

Form = Literal["loop-trace", "memories", "reflexion"]
Row = Mapping[str, Any]
Reader = Callable[[BinaryIO, str], Iterator[tuple[int, Any]]]  # of a file and its name
LONGEST_ROW = 1_000_000  # bytes of a line
TIMES = ("timestamp", "created_at")
UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that is not imported; `row` is its line in a text file, else its position from 1."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a conversion read and wrote.

    `rows` counts all rows, and `empty` the traces that teach nothing. `lessons` are plain data.
    """

    rows: int
    empty: int
    refused: tuple[RefusedRow, ...]
    lessons: Sequence[Mapping[str, Any]]


async def convert(form: Form, source: str | BinaryIO, out: BinaryIO, scope: Scope) -> Conversion:
    """Write the lessons of `source` to `out`, as an export of `scope`, and rewind `out`.

    `source` is a path, an open binary file or, for memories, the URL of a PostgreSQL database.
    Raises LineError if no row can be converted; InvalidInput, StoreError.
    """
    found: list[tuple[float, Reflection]] = []
    made = await asyncio.to_thread(_convert, form, source, scope, found)
    # The same rows give the same export in any order.
    found.sort(key=lambda it: (it[0], it[1].loop, it[1].sighting, it[1].source))

    def learn(db: Db, scope: Scope) -> None:
        for at, lesson in found:
            upsert(db, scope, [lesson], at)

    memory = Memory(":memory:", scope)
    try:
        await memory.store.write(scope, learn)
        await memory.export(out)
        out.seek(0)
        return replace(made, lessons=await memory.top(len(found)))
    finally:
        await memory.store.close()


def _convert(
    form: Form, source: str | BinaryIO, scope: Scope, found: list[tuple[float, Reflection]]
) -> Conversion:
    """Add to `found` the lessons with their times; the time is 0 if it is unknown."""
    rows = empty = 0
    refused: list[RefusedRow] = []
    row: Row = {}
    for number, raw in _rows(form, source):
        rows += 1
        try:
            row = _row(raw, scope)
            time = next((row[name] for name in TIMES if row.get(name) not in (None, "")), None)
            at = seconds(time.isoformat() if isinstance(time, datetime) else time) or 0.0
            lessons = FORMS[form][1](row)
        except InvalidInput as error:
            refused.append(RefusedRow(number, str(error)))
            continue
        found += [(at, lesson) for lesson in lessons]
        empty += not lessons
    if rows == len(refused):
        name = shown(source) if isinstance(source, str) else "the input"
        first = refused[0] if refused else RefusedRow(0, "it is empty; check the file")
        fields = f"; its fields are {clean(', '.join(map(str, row)), 200)}" if row else ""
        what = f"no row can be imported ({first.reason}){fields}"
        raise LineError(name, first.row, what)
    return Conversion(rows, empty, tuple(refused), ())


def _rows(form: Form, source: str | BinaryIO) -> Iterator[tuple[int, Any]]:
    """Yield each row with its number: a line of JSON, or a value."""
    if not isinstance(source, str) or "://" not in source:
        with open_input(source) as (file, name):
            yield from FORMS[form][0](file, name)
    elif form == "memories" and source.startswith(POSTGRES):
        yield from _table_rows(source)
    else:
        allowed = "a path or, for memories, like postgresql://user@host:5432/db"
        raise InvalidInput("file", source, allowed)


def _lines(file: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in enumerate(file, 1) if line.strip())


def _trace_rows(file: BinaryIO, name: str) -> Iterator[tuple[int, Any]]:
    try:
        whole = json.load(file)
    except (ValueError, RecursionError) as error:
        raise LineError(name, 0, f"it is not JSON ({error}); check the file") from error
    yield from enumerate(whole if isinstance(whole, list) else [whole], 1)


def _csv_rows(file: BinaryIO, name: str) -> Iterator[tuple[int, Row]]:
    text = TextIOWrapper(file, "utf-8-sig", newline="")
    reader = csv.DictReader(text, restkey="")
    try:
        for row in reader:
            yield reader.line_num, row
    except (UnicodeDecodeError, csv.Error) as error:
        what = f"it is not CSV in UTF-8 ({error}); check the file"
        raise LineError(name, reader.line_num, what) from error
    finally:
        text.detach()


def _table_rows(url: str) -> Iterator[tuple[int, Row]]:
    needs_psycopg()
    from psycopg import connect, errors, rows

    from heedful.store import postgres

    try:
        with connect(postgres.parse_url(url).conninfo, row_factory=rows.dict_row) as db:
            db.read_only = True
            with db.cursor("memories") as found:
                yield from enumerate(found.execute("select * from memories"), 1)
    except (errors.UndefinedTable, errors.InsufficientPrivilege) as error:
        what = "make a table or a view with the name memories that this role may read"
        raise LineError(shown(url), 0, f"{str(error).splitlines()[0]}; {what}") from error
    except postgres.MISHAPS as error:
        raise postgres.translate_error(error) from error


def _row(raw: Any, scope: Scope) -> Row:
    """Return a row as an object that belongs to the scope. Raises InvalidInput."""
    row = _json("row", raw) if isinstance(raw, bytes) else raw
    if not isinstance(row, Mapping):
        raise InvalidInput("row", row, "an object with named fields")
    if "" in row:
        raise InvalidInput("row", row[""], "left out, because the header has fewer names")
    for name, own in (("tenant_id", scope.tenant), ("project", scope.project)):
        if (given := row.get(name) or own) != own:
            setting = f"HEEDFUL_{name.removesuffix('_id').upper()}"
            raise InvalidInput(name, given, f"{own}, or else {setting} must be {given}")
    return row


def _json(field: str, text: str | bytes) -> Any:
    """Return JSON data, with `?` for each lone surrogate."""
    if len(text) <= LONGEST_ROW:
        with suppress(ValueError, RecursionError):
            plain = json.dumps(json.loads(text), ensure_ascii=False, allow_nan=False)
            return json.loads(plain.encode("utf-8", "replace"))
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    raise InvalidInput(field, text, f"JSON in UTF-8 of at most {LONGEST_ROW:,} characters")


def _text(row: Row, name: str, needed: bool = False) -> str:
    """Return the first `LONGEST` characters of a text, without its secrets."""
    value = row.get(name)
    if not isinstance(value, str | None) or (needed and not (value or "").strip()):
        raise InvalidInput(name, value, "a text that is not empty" if needed else "a text")
    return storable(value or "")[:LONGEST]


def _names(row: Row, field: str) -> tuple[str, ...]:
    """Return a list of texts; as text it is JSON, a PostgreSQL array, or separated by commas."""
    value = row.get(field) or ()
    if isinstance(value, str) and value.lstrip().startswith("["):
        value = _json(field, value)
    elif isinstance(value, str):
        line = " ".join(value.split()).removeprefix("{").removesuffix("}")
        cells = next(csv.reader([line], skipinitialspace=True, escapechar="\\"), [])
        value = [cell.strip() for cell in cells if cell.strip()]
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise InvalidInput(field, value, "a list of texts")
    return tuple(map(storable, value))


def _data(row: Row, field: str) -> dict[str, Any]:
    value = row.get(field) or {}
    value = _json(field, value if isinstance(value, str) else json.dumps(value, default=str))
    if not isinstance(value, dict):
        raise InvalidInput(field, value, "a JSON object")
    return value


def _of_trace(row: Row) -> list[Reflection]:
    """Return a lesson for each repeated bias tag.

    heedful learns a bias tag under the same name, so that all its sightings are counted together.
    """
    loop = _text(row, "loop_id", needed=True)
    made = []
    for tag in dict.fromkeys((*_data(row, "repetition_counts"), *_names(row, "repeated_tags"))):
        found = bias({"tag": storable(tag)})
        text = f"{found.message}. {found.fix}"
        made.append(_lesson("check", PESSIMIST, text, found.key, (PESSIMIST,), loop))
    return made


def _of_memory(row: Row) -> list[Reflection]:
    """Return the lesson of a memory; the tag `sig:…` marks a correction, whose type is a tag."""
    content, tags = _text(row, "content", needed=True), _names(row, "tags")
    layer, meta = _text(row, "layer"), _data(row, "metadata")
    meta |= {"layer": layer} if layer else {}
    kind, category = "strategy" if "strategy" in tags else "reflection", meta.get("error_category")
    if any(tag.startswith(SIGNED) for tag in tags):
        kind, plain = "error", [tag for tag in tags if not tag.startswith(SIGNED)]
        category = next((tag for tag in plain if tag not in ("reflection", "self-correction")), "")
        meta = {"original_query": UNKNOWN, "reflection_context": UNKNOWN, **meta}
    lesson = _lesson(kind, str(category or ""), content, content, tags)
    source = check_source(_text(row, "source"))
    weight: Any = row.get("importance")
    with suppress(TypeError, ValueError):
        weight = 0.5 if weight in (None, "") else float(weight)
    check_share("importance", weight)
    return [replace(lesson, source=source, importance=weight, meta=meta)]


def _of_mistake(row: Row) -> list[Reflection]:
    """Return the lesson that `heedful.compat.store` would store."""
    prompt, mistake = (_text(row, name, needed=True) for name in ("prompt", "mistake"))
    example = Example(prompt, _text(row, "correction"), "", mistake)
    lesson = _lesson("error", MISTAKE, mistake, mistake, ("reflexion",))
    return [replace(lesson, example=example)]


FORMS: Mapping[Form, tuple[Reader, Callable[[Row], list[Reflection]]]] = {
    "loop-trace": (_trace_rows, _of_trace),
    "memories": (_csv_rows, _of_memory),
    "reflexion": (_lines, _of_mistake),
}


def _lesson(
    kind: str, error_type: str, text: str, name: str, tags: tuple[str, ...], loop: str = ""
) -> Reflection:
    """Return a lesson with the trust that it has if an operator vouches for the import."""
    about = (kind, signature(error_type, name), error_type, text[:LONGEST], name, loop)
    return Reflection(*about, trust="operator", tags=tags)
