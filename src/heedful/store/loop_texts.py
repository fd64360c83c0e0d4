"""An index of the texts of loops, by which a search finds loops in every language.

A row of `loop_text` has the text of a loop as a search compares it. A loop that has
changed since then, by its `updated`, is read and written again by the next search,
never by a report. In SQLite, an FTS5 table has the three-letter parts of each text, and
only texts with all parts of the searched text are looked at. In PostgreSQL a search
looks at all texts of the project: for 100,000 texts of 1,400 characters that takes
0.15 s. An index of their parts would take 3.4 kB and 1.5 to 12 ms a loop, and a search
in it up to 0.12 s.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Literal, NamedTuple
from unicodedata import normalize
from weakref import WeakKeyDictionary

from heedful.errors import StoreError
from heedful.lessons.scope import Scope
from heedful.store.connection import (
    MAX_ROWS,
    Db,
    bulk,
    holds,
    key_of,
    resumable,
    token,
)
from heedful.store.store import Store

# Of each task, output and list of findings, the first characters are searched, and the
# newest attempts of a loop.
MAX_PART_CHARS = 8_192
MAX_TEXT_OF_LOOP_CHARS = 64 * 1024
# JSON has up to six characters for one, such as `\u00e9`.
MAX_PART_JSON_CHARS = 6 * MAX_PART_CHARS
MAX_SEARCHED_RECORD_CHARS = 32 * 1024  # findings of larger records are not searched
# What a search does before it answers what it has found so far.
MAX_INDEXING_SECONDS = 2.0
MAX_MATCHING_SECONDS = 1.0
MAX_MATCHING_LOOPS = 2_000
# A report that waits for the writer waits for the texts of so many loops at most.
INDEX_BATCH_LOOPS = 32
# Around what was found; few before it, so that one line of a list shows it.
MAX_HIT_LEAD_CHARS = 24
MAX_HIT_TAIL_CHARS = 40
MATCH_BATCH_TEXTS = 4_000  # texts that are looked at in one statement
MAX_UNINDEXED_LOOPS = 100_000  # loops without a text that are counted
# A process looks at all loops for missing texts once in an hour, and otherwise at those
# that changed since the last search: clocks differ, and transactions take a while.
FULL_CHECK_SECONDS = 3_600.0
CLOCK_MARGIN_SECONDS = 600.0
# How many parts of a long text SQLite's index compares. All texts that have them are
# then compared with the whole text.
MAX_QUERY_PARTS = 32
PART_CHARS = 3
MIN_ID_PART_CHARS = 6  # of an id that is found by any part
# Characters that no searched text has, because `fold` replaces them. The first three of
# a text name the scope, and `_ID_MARK` stands before each character of an id, so that
# a word of a text is not found in it.
_FIRST_PRIVATE = 0xE000
_PRIVATE_CHARS = 6_000
_ID_MARK = "\uf800"
_FOLDED_BLANKS_PATTERN = re.compile(r"[\s\x00-\x1f\ue000-\uf8ff]+")
# Chinese, Japanese and Korean words may have two characters. Each one is doubled, so
# that two of them have parts of three.
_IDEOGRAPHS_PATTERN = re.compile(
    r"([\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff])"
)
# A text in JSON, or the beginning of one at its end.
_JSON_TEXT_PATTERN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)(?:"|\\?$)', re.DOTALL)
_CUT_ESCAPE_PATTERN = re.compile(r"(?<!\\)((?:\\\\)*)\\u?[0-9a-f]{0,3}$")


class LoopPart(NamedTuple):
    """The task of a loop, an answer or a finding, with its texts; none is folded."""

    kind: Literal["task", "answer", "finding"]
    texts: list[str]


class LoopParts(NamedTuple):
    """What is searched in the loop with the number `loop`: its `id` and its `parts`.

    Those are the task, and the answers and findings of the newest attempts.
    """

    loop: int
    id: str
    updated: float
    parts: list[LoopPart]

    @property
    def texts(self) -> list[str]:
        """All texts, in the order of the parts."""
        return list(chain.from_iterable(part.texts for part in self.parts))


class LoopText(NamedTuple):
    """The text of the loop with the number `loop` when it was `updated`."""

    loop: int
    updated: float
    text: str


class TextQuery(NamedTuple):
    """A searched text as it stands in texts of loops, and in their ids."""

    text: str
    id: str

    def fits(self, text: str) -> bool:
        """Return whether the text of a loop has the searched text."""
        return self.id in text or self.text in text

    @property
    def parts(self) -> str:
        """Return the query of SQLite's index, "" if the text is too short for it."""
        if len(self.text) < PART_CHARS:
            return ""
        return f"({_all_parts(self.text)}) OR ({_all_parts(self.id)})"


class LoopMatches(NamedTuple):
    """The numbers of the newest loops that a search found.

    There may be more below the number `oldest`, which is 0 if all loops were looked at,
    except for the `unindexed` ones.
    """

    loops: tuple[int, ...]
    oldest: int
    unindexed: int


class IndexingResult(NamedTuple):
    """How many loops still have no text, and which of the others fit the query."""

    unindexed: int
    matches: frozenset[int]


class _Checks:
    """When the texts of a scope were complete: at all loops, and at changed ones.

    `unfinished` is true after a search that did not write all missing texts.
    """

    def __init__(self) -> None:
        self.all_at: float = 0.0
        self.changed_at: float = 0.0
        self.unfinished: bool = False

    def since(self, now: float) -> float:
        """Return from which time on loops may have changed."""
        if not 0 <= now - self.all_at < FULL_CHECK_SECONDS:
            return 0.0
        return self.changed_at - CLOCK_MARGIN_SECONDS


_checks = WeakKeyDictionary[Store, dict[Scope, _Checks]]()


def fold(text: str) -> str:
    """Return a text as a search compares it, without cases and kinds of blanks."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    text = normalize("NFKC", normalize("NFKC", text).casefold())
    return _IDEOGRAPHS_PATTERN.sub(r"\1\1", _FOLDED_BLANKS_PATTERN.sub(" ", text))


def find_folded(text: str, sought: str) -> tuple[int, int] | None:
    """Return the begin and end of the first place that a search for a text finds.

    >>> find_folded("The Straße is closed", "STRASSE")
    (4, 10)
    """
    query = fold(sought).strip()
    place = fold(text).find(query)
    if not query or place < 0:
        return None

    def folded_size(end: int) -> int:
        """Return how many characters the folded text has up to a place."""
        return len(fold(text[:end]))

    ends = range(len(text) + 1)
    begin = bisect_right(ends, place, key=folded_size) - 1
    return begin, bisect_right(ends, place + len(query), key=folded_size) - 1


def snippet(text: str, begin: int, end: int) -> str:
    """Return what stands in a text at a place, with some words around it.

    >>> snippet("The outage was caused by a cosmic ray", 15, 21)
    'The outage was caused by a cosmic ray'
    >>> snippet("The outage was caused by a cosmic ray", 27, 37)
    '… outage was caused by a cosmic ray'
    """
    start = max(0, begin - MAX_HIT_LEAD_CHARS)
    stop = end + MAX_HIT_TAIL_CHARS
    words = text[start:stop]
    # A word at the edge may be only a part of one.
    before = "… " if start and " " in words[:MAX_HIT_LEAD_CHARS] else ""
    if before:
        words = words.partition(" ")[2]
    after = " …" if stop < len(text) else ""
    if after and " " in words[-MAX_HIT_TAIL_CHARS // 2 :]:
        words = words.rpartition(" ")[0]
    return f"{before}{words.strip()}{after}"


def query_of(scope: Scope, text: str) -> TextQuery:
    """Return the query for a text that somebody searches."""
    folded = fold(text).strip()
    id = _marked_id(folded)
    # A short text is in many ids by chance: only those that begin with it are meant.
    if len(folded) < MIN_ID_PART_CHARS:
        id = _mark(scope) + id
    return TextQuery(folded, id=id)


def _mark(scope: Scope) -> str:
    """Return three characters with which all texts of a scope begin."""
    number = int(token(scope)[1:], 16)
    mark = ""
    for _ in range(PART_CHARS):
        number, digit = divmod(number, _PRIVATE_CHARS)
        mark += chr(_FIRST_PRIVATE + digit)
    return mark


def _marked_id(id: str) -> str:
    return "".join(_ID_MARK + character for character in id)


def _all_parts(text: str) -> str:
    """Return the query of FTS5 for the texts with all parts of a text.

    Each part is quoted, so that nothing in it is syntax.
    """
    starts = range(len(text) - PART_CHARS + 1)
    step = len(starts) // MAX_QUERY_PARTS + 1
    parts = dict.fromkeys(text[start : start + PART_CHARS] for start in starts[::step])
    return " AND ".join('"' + part.replace('"', '""') + '"' for part in parts)


def _plain_text(data: str) -> str:
    """Return JSON, or its beginning, with the texts in it as they are read."""
    text = _JSON_TEXT_PATTERN.sub(_decode, data)
    return text[:MAX_PART_CHARS]


def _decode(match: re.Match[str]) -> str:
    body = _CUT_ESCAPE_PATTERN.sub(r"\1", match[1])
    with suppress(ValueError):
        return str(json.loads(f'"{body}"'))
    return body


def _findings(data: str | None) -> Iterator[LoopPart]:
    """Yield what findings say, from their JSON."""
    for finding in json.loads(data or "[]"):
        names = ("check", "key", "message", "fix", "evidence")
        values = [finding[name] for name in names if finding.get(name)]
        texts = [json.dumps(value)[:MAX_PART_JSON_CHARS] for value in values]
        yield LoopPart("finding", list(map(_plain_text, texts)))


@bulk
def loops_without_text(db: Db, scope: Scope, since: float = 0.0) -> list[int]:
    """Return the loops whose text is missing or old, last changed first.

    Only loops that changed `since` a time are returned.
    """
    rows = db.all("loops_without_text", scope, since=since, limit=MAX_UNINDEXED_LOOPS)
    return [row["n"] for row in rows]


def read_parts(db: Db, scope: Scope, loops: Sequence[int]) -> list[LoopParts]:
    """Return what is searched in loops."""
    values: dict[str, Any] = {
        "loops": json.dumps(loops),
        "chars": MAX_PART_JSON_CHARS,
    }
    parts_of = {
        row["n"]: LoopParts(
            row["n"],
            id=row["id"],
            updated=row["updated"],
            parts=[LoopPart("task", [_plain_text(row["task"])])],
        )
        for row in db.all("tasks_of_loops", scope, **values)
    }
    outputs = db.all(
        "outputs_of_loops",
        scope,
        **values,
        record_chars=MAX_SEARCHED_RECORD_CHARS,
        attempts=20,
    )
    for row in outputs:
        parts = parts_of[row["n"]].parts
        parts.append(LoopPart("answer", [_plain_text(row["value"])]))
        parts += _findings(row["findings"])
    return list(parts_of.values())


@bulk
def read_texts(db: Db, scope: Scope, loops: Sequence[int]) -> list[LoopText]:
    """Return the present texts of loops."""
    mark = _mark(scope)
    return [
        LoopText(
            loop=parts.loop,
            updated=parts.updated,
            text=f"{mark}{_marked_id(fold(parts.id))} "
            + " ".join(map(fold, parts.texts))[:MAX_TEXT_OF_LOOP_CHARS],
        )
        for parts in read_parts(db, scope, loops)
    ]


# Two writers would store the text of one loop twice.
@holds("texts of loops")
@resumable(result=None)
def store_texts(db: Db, scope: Scope, texts: Sequence[LoopText]) -> None:
    """Store the texts of loops in place of older ones."""
    loops = json.dumps([text.loop for text in texts])
    db.run("delete_texts", {**key_of(scope), "loops": loops})
    present = {row["n"] for row in db.all("loops_there", scope, loops=loops)}
    for text in texts:
        if text.loop in present:
            db.insert("loop_text", {**key_of(scope), **text._asdict()})


@bulk
def matching(
    db: Db, scope: Scope, query: TextQuery, before: int, seconds: float
) -> LoopMatches:
    """Return the newest loops before a number whose stored texts fit the query.

    Stops after about `seconds`, or `MAX_MATCHING_LOOPS` matches.
    """
    values: dict[str, Any] = {**query._asdict(), "limit": MATCH_BATCH_TEXTS}
    statement = "texts_that_match"
    if db.dialect == "sqlite" and query.parts:
        statement = "indexed_texts_that_match"
        values["parts"] = query.parts

    deadline = time.monotonic() + seconds
    loops = list[int]()
    oldest = before
    while True:
        (row,) = db.all(statement, scope, before=oldest, **values)
        loops += sorted(map(int, filter(None, row["matches"].split(","))), reverse=True)
        if row["looked_at"] < MATCH_BATCH_TEXTS:
            return LoopMatches(tuple(loops), oldest=0, unindexed=0)
        oldest = row["oldest"]
        if len(loops) >= MAX_MATCHING_LOOPS or time.monotonic() > deadline:
            return LoopMatches(tuple(loops), oldest=oldest, unindexed=0)


async def continue_indexing(store: Store) -> None:
    """Write missing texts of the scopes in which this process searched before.

    Raises StoreError.
    """
    for scope, checks in list(_checks.get(store, {}).items()):
        if checks.unfinished:
            await index_texts(store, scope)


async def index_texts(
    store: Store, scope: Scope, query: TextQuery | None = None
) -> IndexingResult:
    """Write the texts of loops that changed, the last first; say which fit a query.

    This ends after `MAX_INDEXING_SECONDS`; the next call continues. If the database
    cannot be written, the texts are only compared.
    """
    now = time.time()
    checks = _checks.setdefault(store, {}).setdefault(scope, _Checks())
    since = checks.since(now)
    loops = await store.read(scope, loops_without_text, since)

    deadline = time.monotonic() + MAX_INDEXING_SECONDS
    matches = set[int]()
    written = True
    done = 0
    while done < len(loops) and time.monotonic() < deadline:
        batch = loops[done : done + INDEX_BATCH_LOOPS]
        texts = await store.read(scope, read_texts, batch)
        if query is not None:
            matches.update(text.loop for text in texts if query.fits(text.text))
        if written:
            try:
                await store.write(scope, store_texts, texts)
            except StoreError:
                written = False
        done += len(batch)

    complete = done >= len(loops) and len(loops) < MAX_UNINDEXED_LOOPS
    checks.unfinished = written and not complete
    if written and complete:
        checks.changed_at = now
        if not since:
            checks.all_at = now
    return IndexingResult(max(0, len(loops) - done), frozenset(matches))


async def search_loops(
    store: Store, scope: Scope, text: str, before: int = 0
) -> LoopMatches:
    """Return the newest loops with a text, older than the number `before` if given."""
    query = query_of(scope, text)
    indexing = await index_texts(store, scope, query)
    end = before or MAX_ROWS
    result = await store.read(
        scope, matching, query, before=end, seconds=MAX_MATCHING_SECONDS
    )
    fitting = {loop for loop in indexing.matches if result.oldest <= loop < end}
    loops = sorted(fitting.union(result.loops), reverse=True)
    return LoopMatches(tuple(loops), oldest=result.oldest, unindexed=indexing.unindexed)
