"""A search for loops by their texts, in every language.

It reads the newest loops, compares their tasks, answers and findings, and ends after
`MAX_SEARCH_SECONDS`; the next search goes on with older loops.
"""

import json
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal, NamedTuple
from unicodedata import normalize

from heedful.lessons.scope import Scope
from heedful.store.connection import MAX_ROWS, Db, bulk
from heedful_server.web import counts

# Of each task, output and list of findings, the first characters are searched, and the
# newest attempts of a loop.
MAX_PART_CHARS = 8_192
MAX_SEARCH_SECONDS = 1.0
SEARCH_BATCH_LOOPS = 50  # that are read at once


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
    parts: list[LoopPart]

    @property
    def texts(self) -> list[str]:
        """All texts, in the order of the parts."""
        return list(chain.from_iterable(part.texts for part in self.parts))

    def has(self, query: str) -> bool:
        """Return whether a folded text is in one of the texts, or in the id.

        A short text is in many ids by chance: only its begin and its end are meant.
        """
        id = fold(self.id)
        is_in_id = id.startswith(query) or id.endswith(query)
        return is_in_id or any(query in fold(text) for text in self.texts)


class LoopMatches(NamedTuple):
    """The numbers of the newest loops that a search found.

    There may be more below the number `oldest`, which is 0 if all loops were looked at.
    """

    loops: tuple[int, ...]
    oldest: int


def fold(text: str) -> str:
    """Return a text as a search compares it, without cases and kinds of blanks."""
    text = normalize("NFKC", normalize("NFKC", text).casefold())
    return " ".join(text.split())


def find_folded(text: str, sought: str) -> tuple[int, int] | None:
    """Return the begin and end of the first place that a search for a text finds.

    >>> find_folded("The Straße is closed", "STRASSE")
    (4, 10)
    """
    query = fold(sought)
    place = fold(text).find(query)
    if not query or place < 0:
        return None

    def folded_size(end: int) -> int:
        """Return how many characters the folded text has up to a place."""
        return len(fold(text[:end]))

    ends = range(len(text) + 1)
    begin = bisect_right(ends, place, key=folded_size) - 1
    return begin, bisect_left(ends, place + len(query), key=folded_size)


def _plain_text(data: str) -> str:
    """Return JSON, or its beginning, with the texts in it as they are read."""
    data = data.replace(r"\"", "\0").replace('"', "").replace("\0", '"')
    text = data.encode().decode("unicode_escape", "ignore")
    # JSON has two escapes for a character beyond U+FFFF.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text[:MAX_PART_CHARS]


def _findings(data: str | None) -> Iterator[LoopPart]:
    """Yield what findings say, from their JSON."""
    for finding in json.loads(data or "[]"):
        texts = [
            text
            for name, text in finding.items()
            if isinstance(text, str) and name != "level"
        ]
        yield LoopPart("finding", [text[:MAX_PART_CHARS] for text in texts])


def read_parts(db: Db, scope: Scope, loops: Sequence[int]) -> list[LoopParts]:
    """Return what is searched in loops."""
    values = {
        "numbers": json.dumps(loops),
        # JSON has up to six characters for one, such as `\u00e9`.
        "chars": 6 * MAX_PART_CHARS,
    }
    parts_of = {
        row["n"]: LoopParts(
            row["n"],
            id=row["id"],
            parts=[LoopPart("task", [_plain_text(row["task"])])],
        )
        for row in counts.rows(db, scope, "summaries", **values)
    }
    for row in counts.rows(db, scope, "outputs_of_loops", **values, attempts=20):
        parts = parts_of[row["n"]].parts
        parts.append(LoopPart("answer", [_plain_text(row["value"])]))
        parts += _findings(row["findings"])
    return list(parts_of.values())


@bulk
def search_loops(db: Db, scope: Scope, text: str, before: int) -> LoopMatches:
    """Return the newest loops with a text that are older than the number `before`.

    With 0, all loops are searched.
    """
    query = fold(text)
    deadline = time.monotonic() + MAX_SEARCH_SECONDS
    oldest = before or MAX_ROWS
    matches = list[int]()
    while time.monotonic() < deadline:
        rows = counts.rows(
            db,
            scope,
            "newest_loop_numbers",
            before=oldest,
            limit=SEARCH_BATCH_LOOPS,
        )
        loops = [row["n"] for row in rows]
        matches += [
            loop.loop for loop in read_parts(db, scope, loops) if loop.has(query)
        ]
        if len(loops) < SEARCH_BATCH_LOOPS:
            return LoopMatches(tuple(matches), oldest=0)
        oldest = loops[-1]
    return LoopMatches(tuple(matches), oldest=oldest)
