"""Text-to-SQL: the statement in an answer, and what a reviewer says of a wrong one.

A reviewer runs the statement and says what a person would see in its rows. The right
statement and its rows are never shown.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from heedful import Finding

Rows = Sequence[Sequence[Any]]
_BLOCK = re.compile(r"```(?:sql\w*)?\s*(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
# Where a statement begins: at the start of a line, or after a label such as `SQLite:`.
_STATEMENT_START = re.compile(
    r"(?:^|:)[ \t]*"
    r"(?=select\b|values\b|with\s+(?:recursive\s+)?\w+\s*(?:\(|as\b)"
    r"|insert\s+(?:or\s+\w+\s+)?into\b|replace\s+into\b|delete\s+from\b"
    r"|update\s+\S+\s+set\b)",
    re.MULTILINE | re.IGNORECASE,
)
# A blank line, and then prose.
_EXPLANATION = re.compile(r"\n\s*\n(?=\W*[A-Z][a-z])")
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
MAX_REVIEWED_ROWS = 5_000


def statement(answer: str) -> str:
    """Return the first statement in an answer, without what a model writes around it.

    Code fences, labels such as `SQLite:` and explanations before and after it are left
    out. An answer without a statement is returned as it is.
    """
    block = _BLOCK.search(answer)
    text = block[1] if block else answer
    start = _STATEMENT_START.search(text)
    if start is None:
        return text.strip()

    text = text[start.end() :]
    for end, character in enumerate(text, start=1):
        if character == ";" and sqlite3.complete_statement(text[:end]):
            return text[:end].strip()
    return _EXPLANATION.split(text, maxsplit=1)[0].strip()


@dataclass(frozen=True, kw_only=True)
class Reviewer:
    """Says what is wrong with a statement by its rows on a database.

    `limit` stops a statement that runs too long.
    """

    db: sqlite3.Connection
    right_rows: Callable[[], Rows]
    ordered: bool
    limit: Callable[[sqlite3.Connection], None]

    def review(self, sql: str) -> tuple[str, str]:
        """Return what a reviewer sees in a wrong answer, and the fix if it is plain."""
        self.limit(self.db)
        rows = self.db.execute(sql).fetchmany(MAX_REVIEWED_ROWS)
        if not rows:
            return self._review_no_rows(sql)

        width = len(rows[0])
        right_rows = self.right_rows()
        if right_rows and width != len(right_rows[0]):
            fix = "select every column that is asked for"
            asked_for = len(right_rows[0])
            if width > asked_for:
                fix = f"select only what is asked for: {asked_for} of {width} columns"
            return "the number of columns is wrong", fix

        distinct = set(map(tuple, rows))
        wanted = set(map(tuple, right_rows))
        if distinct == wanted and len(rows) > len(right_rows):
            return "rows are repeated", "use SELECT DISTINCT"
        if distinct == wanted and self.ordered:
            return "the order of the rows is wrong", "sort as the question says"
        return "the rows are not those that are asked for", ""

    def _review_no_rows(self, sql: str) -> tuple[str, str]:
        names = [name for name in _QUOTED.findall(sql) if name != name.lower()]
        if names and self._has_rows(_QUOTED.sub(lambda text: text[0].lower(), sql)):
            fix = f"write {names[0].lower()}, not {names[0]}"
            return "no rows: names are written in lower case", fix
        return "the statement returns no rows", "compare with values that the table has"

    def _has_rows(self, sql: str) -> bool:
        self.limit(self.db)
        try:
            return self.db.execute(sql).fetchone() is not None
        except sqlite3.Error:  # the limit of steps
            return False


def findings(
    check: Callable[[str], tuple[bool, str]], reviewer: Reviewer, answer: str
) -> list[Finding]:
    """Return what is wrong with an answer that `check` refuses."""
    try:
        right, reason = check(answer)
    except (ValueError, sqlite3.Error) as error:
        right = False
        reason = f"SQLite says: {error}"

    if right:
        return []
    if reason.startswith("SQLite says"):
        return [Finding("sql", reason)]
    if reason == "table compared":
        return [Finding("sql", "the table does not hold what it should afterwards")]
    if "when the tables hold other rows" in reason:
        return [Finding("sql", "the rows are wrong when the tables hold other rows")]
    message, fix = reviewer.review(answer)
    return [Finding("sql", message, fix=fix)]
