"""What is known of other people's texts: tables of rows, each with its source.

A table is a TOML file beside the module that asks it. Its rows stand in groups, and the
name of a group says what its rows mean. So stands in `episodes/failures.toml`:

    [[failed_build]]
    id = "make"
    pattern = '^make(?:\\[\\d+\\])?: \\*\\*\\* .+ Error \\d+$'
    source = "GNU make manual, 5.5"

A row has a `pattern` of one line in the syntax of `re`, or `words`, which are searched
for as they are, in upper or lower case. It may have a meaning, a tool and a language.
No row has logic: what follows from a match is decided by the module that asks. The
witnesses of a row stand with the tests: each of its alternatives has a text that
nothing else in the group recognises.

A user adds rows of his own in a folder of his home: see `use_rows_of`. A table is read,
and a pattern is compiled, when it is first asked.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from heedful.errors import InvalidInput
from heedful.validation import MAX_READ_BYTES

# The folder of a user's own rows, in his folder of heedful.
ROWS_FOLDER = "tables"
ROW_KEYS = ("id", "pattern", "words", "meaning", "tool", "language", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A fact of a table: a `pattern` of one line, or `words` that stand for themselves.

    `meaning` is what else the module that asks has to know, "" if its group says all.
    `tool` and `language` say whose texts the row recognises, `source` where it is from.
    """

    id: str
    pattern: str = ""
    words: Sequence[str] = ()
    meaning: str = ""
    tool: str = ""
    language: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if bool(self.pattern) == bool(self.words) or "\n" in self.pattern:
            raise TypeError("either a pattern of one line or words")

    @property
    def regex(self) -> str:
        """The pattern, or one that finds any of the words, the longest first."""
        if self.pattern:
            return self.pattern
        longest_first = sorted(self.words, key=len, reverse=True)
        return f"(?i:{'|'.join(map(re.escape, longest_first))})"


class KnowledgeTable(NamedTuple):
    """The table of a room and a module, such as "episodes/failures".

    Each question raises InvalidInput for a table that cannot be read, and KeyError for
    a group that it does not have.
    """

    name: str

    def rows(self, group: str) -> tuple[Row, ...]:
        """Return the rows of a group; those of the user come last."""
        return _groups(self.name)[group]

    def words(self, group: str) -> frozenset[str]:
        """Return the words of all rows of a group."""
        return _words(self, group)

    def pattern(self, group: str, before: str = "", after: str = "") -> re.Pattern[str]:
        """Return a pattern that finds any row of a group.

        `before` and `after` are patterns of what has to surround each row.
        """
        return _pattern(self, group, before, after)

    def find(self, group: str, text: str) -> Row | None:
        """Return the first row of a group whose pattern stands in a text, else None."""
        rows = self.rows(group)
        return next((row for row in rows if re.search(row.regex, text)), None)


# The folder with the rows of the user. Only the command line, a hook and the service
# know it: a library reads no folder that nobody named.
_OWN_FOLDERS: list[Path] = []


def use_rows_of(folder: Path) -> None:
    """Add the rows of a user to all tables, from now on.

    The rows of the table "episodes/failures" are read from `failures.toml` in the
    folder, which need not exist. It has the groups of that table.
    """
    _OWN_FOLDERS[:] = [folder] if folder.is_dir() else []
    for answers in (_groups, _words, _pattern):
        answers.cache_clear()


@cache
def _groups(table: str) -> Mapping[str, tuple[Row, ...]]:
    """Return the rows of a table, given by its name, by groups. Raises InvalidInput."""
    file = Path(__file__).parent / f"{table}.toml"
    groups = read_rows(file.read_text(encoding="utf-8"), file.name)
    for folder in _OWN_FOLDERS:
        own_file = folder / file.name
        for group, rows in _own_rows(own_file).items():
            if group not in groups:
                allowed = f"one of {', '.join(groups)}"
                raise InvalidInput(f"group in {own_file}", group, allowed)
            groups[group] += rows
    return groups


def _own_rows(file: Path) -> Mapping[str, tuple[Row, ...]]:
    """Return the rows of a user's file; none if it does not exist."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_READ_BYTES)
    except FileNotFoundError:
        return {}
    groups = read_rows(content.decode("utf-8", "replace"), str(file))
    for row in chain.from_iterable(groups.values()):
        try:
            re.compile(row.regex)
        except re.error as error:
            name = f"{row.id} in {file}"
            raise InvalidInput(name, row.regex, f"a pattern: {error}") from error
    return groups


def read_rows(text: str, name: str) -> dict[str, tuple[Row, ...]]:
    """Return the rows of a table by their groups.

    `name` is that of its file. Raises InvalidInput for what is no table of rows, and
    for a row that has another key, no id, or neither or both of pattern and words.
    """
    import tomllib  # a process that asks no table does without it

    try:
        document = tomllib.loads(text)
    except ValueError as error:
        raise InvalidInput(name, str(error), "TOML") from error
    return {
        group: tuple(_rows_of(entries, f"{group} in {name}"))
        for group, entries in document.items()
    }


def _rows_of(entries: Any, place: str) -> Iterator[Row]:
    """Yield the rows of a group. Raises InvalidInput."""
    for entry in entries:
        try:
            yield Row(**entry)
        except TypeError as error:
            allowed = f"a row with {', '.join(ROW_KEYS)}: {error}"
            raise InvalidInput(place, entry, allowed) from error


@cache
def _words(table: KnowledgeTable, group: str) -> frozenset[str]:
    """Return the words of a group."""
    return frozenset(chain.from_iterable(row.words for row in table.rows(group)))


@cache
def _pattern(
    table: KnowledgeTable, group: str, before: str, after: str
) -> re.Pattern[str]:
    """Return the pattern of a group between two others."""
    rows = "|".join(row.regex for row in table.rows(group))
    return re.compile(f"{before}(?:{rows}){after}")
