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
from heedful.lessons.session_names import fits_other_names, without_names
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
        """Return the groups of similar error texts of one type.

        They are learnt from the oldest `MAX_SCOPE_PATTERNS` patterns of the type that
        are stored, or come from the cache while these have not changed.
        """
        # Counts of the scope's lessons, which change with any lesson: cheap to read.
        tally = db.select("lessons, lesson, trust", "tally", key_of(scope))
        cached_tally, cached_rows, templates = self._entries.pop(
            (scope, error_type), ([], [], Templates())
        )
        rows = cached_rows
        if tally != cached_tally:
            selection = {"error_type": error_type, "most": MAX_SCOPE_PATTERNS}
            rows = db.all("learnt_patterns", scope, **selection)
        # The lessons that changed may be of another error type.
        if rows != cached_rows:
            patterns = (_stored_signature(row, error_type) for row in rows)
            templates = Templates().learn(*patterns)

        # The entry is now the last one, so the first one is the least recently used.
        self._entries[scope, error_type] = tally, rows, templates
        if len(self._entries) > MAX_CACHED_ERROR_TYPES:
            del self._entries[next(iter(self._entries))]
        return templates


def seen(db: Db, scope: Scope, pattern: Signature) -> Seen:
    """Return how often the error with the signature `pattern` was seen, and lessons.

    Stored patterns that differ from it only in particulars, such as names, form a group
    and count together. So do patterns whose lessons were merged with theirs in a dream,
    a pass that sums up old lessons. All reads use an index.
    """
    digest = pattern.digest
    group = None
    members = [digest]  # the digests of all patterns that count
    if is_learnable(pattern):
        error_type = storable(pattern.error_type)
        templates = db.local(PatternCache).templates(db, scope, error_type)
        stored_pattern = replace(
            pattern, pattern=storable(pattern.pattern), error_type=error_type
        )
        group = templates.seen_with(stored_pattern)
        if group is not None:
            members = list(group.members)

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
    """Return what is known about the error of a text.

    `whole` is the signature of the whole text; its `error_type` is the tool or the type
    of the error, or "". `lines` are the error lines of the text, each with its
    signature. The lines are searched if the whole text was never seen, or if it names
    no type, for then the same error may be stored under several. See `_find_lines` for
    how lines match. Without a fix, errors that differ only in names count, too. The
    lessons include the strategies: what to do the next time.
    """
    matches = {}
    match_of_whole = seen(db, scope, whole)
    if match_of_whole:
        matches[whole.digest] = match_of_whole
    if not match_of_whole or not whole.error_type:
        matches |= _find_lines(db, scope, whole.error_type, lines)
    stored_lessons = chain.from_iterable(match.lessons for match in matches.values())
    if not any("fix" in (lesson["mistake"] or ()) for lesson in stored_lessons):
        matches |= _find_other_names(db, scope, lines)

    lessons = {}
    for match in matches.values():
        for lesson in match.lessons:
            lessons[lesson["id"]] = _without_failed_fix(db, scope, lesson)

    # A lesson about what happened may have a second one, its strategy: what to do.
    for row in db.all("rules_of", scope, members=json.dumps(list(matches))):
        _, strategies = _read_lessons(db, scope, row["signature"], [row["signature"]])
        for strategy in strategies:
            if strategy["state"] != "superseded":
                lessons[strategy["id"]] = strategy

    groups = [match.group for match in matches.values()]
    return Seen(
        sum(match.count for match in matches.values()),
        tuple(lessons.values()),
        group=groups[0] if len(groups) == 1 else None,
        lines=tuple(chain.from_iterable(match.lines for match in matches.values())),
    )


def _find_other_names(
    db: Db, scope: Scope, lines: Sequence[tuple[str, Signature]]
) -> dict[str, Seen]:
    """Return what is known about errors that differ from some lines only in names.

    They are of the same tool or type of error, and have a fix that helps with other
    names. The keys are the digests of their patterns.
    """
    matches: dict[str, Seen] = {}
    for text, line in lines:
        words = without_names(line.pattern)
        selection = {
            "error_type": storable(line.error_type),
            "most": MAX_SCOPE_PATTERNS,
        }
        rows = db.all("learnt_patterns", scope, **selection) if words else []
        for row in rows:
            if without_names(row["pattern"]) != words:
                continue
            name = row["signature"]
            count, lessons = _read_lessons(db, scope, name, [name])
            fitting = tuple(filter(_fits_other_names, lessons))
            if fitting:
                matches[name] = Seen(count, fitting, lines=(text,))
    return matches


def _fits_other_names(lesson: Fields) -> bool:
    """Return True if the fix of a stored lesson helps with other names."""
    return bool(lesson["mistake"]) and fits_other_names(from_data(lesson["mistake"]))


def find_with_findings(
    db: Db,
    scope: Scope,
    whole: Signature,
    lines: Sequence[tuple[str, Signature]],
    text: str,
) -> Seen:
    """Return what is known about an error, and about findings of checks with its text.

    `whole` and `lines` are as in `find`. A check may name its findings by a key instead
    of their words. The signature is then made from the key, so `find` misses such
    lessons, and they are looked up by the exact `text` of the finding.
    """
    known = find(db, scope, whole, lines)
    text_digest = finding_digest(token(scope), storable(text))
    lessons = {lesson["id"]: lesson for lesson in known.lessons}
    count = known.count
    for row in db.all("find_finding", scope, finding=text_digest, limit=MAX_SHOWN_ROWS):
        if row["id"] not in lessons:
            sightings, lessons_of_check = _read_lessons(
                db, scope, row["signature"], [row["signature"]]
            )
            count += sightings
            lessons |= {lesson["id"]: lesson for lesson in lessons_of_check}
    return replace(known, count=count, lessons=tuple(lessons.values()))


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
    """Return what is known about error lines, by the digest of the stored pattern.

    A title is what stands before the words of an error, as `cp: ` in `cp: no such
    file`. A line and a stored pattern match if they are equal once some of their titles
    are left out, and are the same error (see `_is_same_error`). `error_type` is the
    type of the whole text, "" if it has none. At most `MAX_LISTED_ITEMS` patterns are
    returned, in the order of the lines.
    """
    # Each line with none, one, two … of its titles left out, by the digest of the rest.
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
    # The database returns them in any order; that of the ids makes answers repeatable.
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
    """Return True if the stored pattern in `row`, with the same words, is this error.

    A title names a tool or a type of error, as `cp` in `cp: no such file`. The two are
    the same error if they share a title, or if one has none and so may be the error of
    any tool. With different titles they are, if the words are enough to identify the
    error, and at most one of the two names a type of error.
    """
    *_, (stored_titles, _) = untitled(row["pattern"])  # the last has all titles
    titles = {error_type.lower(), *wording.titles} - {""}
    others = {row["error_type"].lower(), *stored_titles} - {""}
    if titles & others or not titles or not others:
        return True

    # Masks, such as <N> for a number, identify nothing.
    unmasked_words = _LETTER_WORD_PATTERN.findall(MASK_PATTERN.sub(" ", wording.words))
    if len(unmasked_words) < MIN_PATTERN_WORDS:
        return False
    return not (_names_error_type(titles) and _names_error_type(others))


def _names_error_type(titles: set[str]) -> bool:
    return any(_ERROR_TYPE_PATTERN.search(title) for title in titles)


def _read_lessons(
    db: Db, scope: Scope, signature: str, members: Sequence[str]
) -> tuple[int, tuple[Fields, ...]]:
    """Return how often some error patterns were seen, and at most 50 of their lessons.

    `members` are the digests of the patterns. The lessons of the one with the digest
    `signature` come first, and lessons that others have replaced last.
    """
    rows = db.all(
        "seen",
        scope,
        signature=signature,
        members=json.dumps(members),
        limit=MAX_SHOWN_ROWS,
    )
    lessons = [{**plain(row), "pattern": row["pattern"]} for row in rows]
    # Every row has the sightings of all patterns as its `total`; no lesson has that.
    totals = [int(lesson.pop("total")) for lesson in lessons]
    return max(totals, default=0), tuple(lessons)


def _stored_signature(row: Row, error_type: str) -> Signature:
    """Return the signature of a stored pattern; its exact text is not known."""
    return Signature("", row["pattern"], digest=row["signature"], error_type=error_type)


def _without_failed_fix(db: Db, scope: Scope, lesson: Fields) -> Fields:
    """Return a lesson as data, without its fix if the call of that fix fails by now.

    The text of the lesson is rendered again, because it contained the fix.
    """
    mistake = from_data(lesson["mistake"]) if lesson["mistake"] else None
    if mistake is None or not calls.has_failed_fix(db, scope, mistake):
        return lesson
    without_fix = replace(mistake, fix=None)
    return {
        **lesson,
        "text": render.text_of(lesson["kind"], without_fix),
        "mistake": to_data(without_fix),
    }
