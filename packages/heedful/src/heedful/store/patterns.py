"""Error patterns and their groups: what was seen before, found by text or by line.

Rows are never merged: every pattern keeps its own lesson. Groups are computed from the
patterns of an error type, in the order in which they were learnt.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from heedful.lessons import render
from heedful.lessons.lesson import LESSON_KINDS, Scope, Signature
from heedful.lessons.mistake import from_data, to_data
from heedful.lessons.patterns import (
    MASK_PATTERN,
    MAX_SCOPE_PATTERNS,
    MIN_PATTERN_WORDS,
    Seen,
    Templates,
    is_learnable,
)
from heedful.lessons.signature import bare_digest, untitled
from heedful.store import calls
from heedful.store.connection import Db, Row, key_of, storable, token
from heedful.store.lessons import finding_digest, plain
from heedful.validation import MAX_LISTED_ITEMS, MAX_SHOWN_ROWS, Fields

# The number of error types whose templates a connection keeps.
MAX_CACHED_ERROR_TYPES = 32
# A word of two or more letters, such as `no` or `file`.
_LETTER_WORD_PATTERN = re.compile(r"[^\W\d_]{2,}")
# A title that names a type of error, as most languages write it: `KeyError`.
_ERROR_TYPE_PATTERN = re.compile(r"\w(?:error|exception)$")


class PatternCache:
    """A cache of the groups of each error type, valid until its patterns change.

    While the tally of the scope stays, it has the same trusted lessons, and so the same
    patterns: a pattern never changes. Texts of tools and documents count only after
    their release. Otherwise anybody could merge patterns by sending many texts.
    """

    def __init__(self) -> None:
        self._entries: dict[
            tuple[Scope, str], tuple[list[Row], list[Row], Templates]
        ] = {}

    def templates(self, db: Db, scope: Scope, error_type: str) -> Templates:
        """Return the groups of the oldest `MAX_SCOPE_PATTERNS` patterns of a type."""
        tally = db.select("lessons, lesson, trust", "tally", key_of(scope))
        known_tally, known_rows, templates = self._entries.pop(
            (scope, error_type), ([], [], Templates())
        )
        rows = known_rows
        if tally != known_tally:
            selection = {"error_type": error_type, "most": MAX_SCOPE_PATTERNS}
            rows = db.all("learnt_patterns", scope, **selection)
        if rows != known_rows:
            patterns = (_stored_signature(row, error_type) for row in rows)
            templates = Templates().learn(*patterns)

        # The entry is now the last one, so the first one is the least recently used.
        self._entries[scope, error_type] = tally, rows, templates
        if len(self._entries) > MAX_CACHED_ERROR_TYPES:
            del self._entries[next(iter(self._entries))]
        return templates


def seen(db: Db, scope: Scope, pattern: Signature) -> Seen:
    """Return how often `pattern` was seen, and its lessons.

    Patterns of its group count if they differ from it in particulars only. Includes the
    lessons that replaced these lessons in dreams. All reads use an index.
    """
    digest = pattern.digest
    group = None
    members = [digest]
    if is_learnable(pattern):
        error_type = storable(pattern.error_type)
        templates = db.local(PatternCache).templates(db, scope, error_type)
        stored_pattern = replace(
            pattern, pattern=storable(pattern.pattern), error_type=error_type
        )
        group = templates.seen_with(stored_pattern)
        if group is not None:
            members = list(group.members)

    # The patterns that a dream merged with any of these count, too.
    merged = db.all(
        "became_one",
        scope,
        kinds=json.dumps(LESSON_KINDS),
        members=json.dumps(members),
    )
    members += [row["signature"] for row in merged]
    count, lessons = _read_lessons(db, scope, digest, members)
    return Seen(count, lessons, group=group)


def find(
    db: Db, scope: Scope, whole: Signature, lines: Sequence[tuple[str, Signature]]
) -> Seen:
    """Return what is known about a whole text, or else about its error lines.

    `lines` are the error lines of the text, each with its signature. What failed with
    this very error comes first. Without a tool or type, the error is also found of
    every tool; with one, that of others is found only if it was never seen of this one.
    A line is found under any of its titles, such as a type or a tool, and under none; a
    line of few words is not found under another title. The rules for the next time are
    among the lessons.
    """
    matches = {}
    own_match = seen(db, scope, whole)
    if own_match:
        matches[whole.digest] = own_match
    if not own_match or not whole.error_type:
        matches |= _find_lines(db, scope, whole.error_type, lines)
    if not matches:
        return Seen(0)

    lessons = {}
    for match in matches.values():
        for lesson in match.lessons:
            lessons[lesson["id"]] = _without_failed_fix(db, scope, lesson)

    for row in db.all("rules_of", scope, members=json.dumps(list(matches))):
        _, rules = _read_lessons(db, scope, row["signature"], [row["signature"]])
        for rule_lesson in rules:
            if rule_lesson["state"] != "superseded":
                lessons[rule_lesson["id"]] = rule_lesson

    groups = [match.group for match in matches.values()]
    return Seen(
        sum(match.count for match in matches.values()),
        tuple(lessons.values()),
        group=groups[0] if len(groups) == 1 else None,
        lines=tuple(chain.from_iterable(match.lines for match in matches.values())),
    )


def find_with_findings(
    db: Db,
    scope: Scope,
    whole: Signature,
    lines: Sequence[tuple[str, Signature]],
    text: str,
) -> Seen:
    """Return what is known about an error, also under the checks that found `text`.

    A check may name its findings by a key of its own, which is then their signature.
    """
    answer = find(db, scope, whole, lines)
    finding = finding_digest(token(scope), storable(text))
    lessons = {lesson["id"]: lesson for lesson in answer.lessons}
    count = answer.count
    for row in db.all("find_finding", scope, finding=finding, limit=MAX_SHOWN_ROWS):
        if row["id"] not in lessons:
            sightings, of_check = _read_lessons(
                db, scope, row["signature"], [row["signature"]]
            )
            count += sightings
            lessons |= {lesson["id"]: lesson for lesson in of_check}
    return replace(answer, count=count, lessons=tuple(lessons.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wording:
    """The words of a line without its first titles.

    `line_index` and `line_text` are those of the line. `titles` are the titles that
    were removed, in lower case: `cp: no such file` has the words `no such file` under
    the title `cp`.
    """

    line_index: int
    line_text: str
    titles: frozenset[str]
    words: str


def _find_lines(
    db: Db, scope: Scope, error_type: str, lines: Sequence[tuple[str, Signature]]
) -> dict[str, Seen]:
    """Return what is known of the first `MAX_LISTED_ITEMS` lines, by their patterns.

    A line and a stored pattern match if they have the same words below some of their
    titles, and are the same error. `error_type` is that of the whole text, "" if it has
    none.
    """
    wordings: dict[str, _Wording] = {}
    for index, (text, signature) in enumerate(lines):
        for titles, words in untitled(signature.pattern):
            wording = _Wording(
                line_index=index, line_text=text, titles=titles, words=words
            )
            wordings.setdefault(bare_digest(words), wording)

    rows = db.all(
        "find_words", scope, digests=json.dumps(list(wordings)), limit=MAX_SHOWN_ROWS
    )
    rows.sort(key=lambda row: int(row["id"]))

    matches: dict[str, tuple[Signature, _Wording]] = {}
    for row in rows:
        wording = wordings[row["words_digest"]]
        if _is_same_error(wording, error_type, row):
            pattern = _stored_signature(row, row["error_type"])
            matches.setdefault(pattern.digest, (pattern, wording))

    by_line = sorted(matches.values(), key=lambda match: match[1].line_index)
    return {
        pattern.digest: replace(seen(db, scope, pattern), lines=(wording.line_text,))
        for pattern, wording in by_line[:MAX_LISTED_ITEMS]
    }


def _is_same_error(wording: _Wording, error_type: str, row: Row) -> bool:
    """Return True if a stored pattern with the same words is this error.

    They share a title, or one of them has none and so may be the error of any tool. Or
    the words alone identify the error and at most one of the two names a type of error.
    """
    *_, (stored_titles, _) = untitled(row["pattern"])
    titles = {error_type.lower(), *wording.titles} - {""}
    others = {row["error_type"].lower(), *stored_titles} - {""}
    if titles & others or not titles or not others:
        return True

    unmasked_words = _LETTER_WORD_PATTERN.findall(MASK_PATTERN.sub(" ", wording.words))
    if len(unmasked_words) < MIN_PATTERN_WORDS:
        return False
    return not (_names_error_type(titles) and _names_error_type(others))


def _names_error_type(titles: set[str]) -> bool:
    return any(_ERROR_TYPE_PATTERN.search(title) for title in titles)


def _read_lessons(
    db: Db, scope: Scope, signature: str, members: Sequence[str]
) -> tuple[int, tuple[Fields, ...]]:
    """Return how often the patterns `members` were seen, and their first lessons.

    The lessons of the pattern `signature` come first.
    """
    rows = db.all(
        "seen",
        scope,
        signature=signature,
        members=json.dumps(members),
        limit=MAX_SHOWN_ROWS,
    )
    lessons = [{**plain(row), "pattern": row["pattern"]} for row in rows]
    # Every row has the same total.
    totals = [int(lesson.pop("total")) for lesson in lessons]
    return max(totals, default=0), tuple(lessons)


def _stored_signature(row: Row, error_type: str) -> Signature:
    """Return the signature of a stored pattern; its exact text is not known."""
    return Signature("", row["pattern"], digest=row["signature"], error_type=error_type)


def _without_failed_fix(db: Db, scope: Scope, lesson: Fields) -> Fields:
    """Return a lesson as data, without its fix if that failed itself."""
    mistake = from_data(lesson["mistake"]) if lesson["mistake"] else None
    if mistake is None or not calls.has_failed_fix(db, scope, mistake):
        return lesson
    bare = replace(mistake, fix=None)
    return {
        **lesson,
        "text": render.text_of(lesson["kind"], bare),
        "mistake": to_data(bare),
    }
