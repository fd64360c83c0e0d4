"""Error lines: the lines in what a command wrote that say what went wrong. Pure.

Nothing but the shape of a line is used, in two ways. `error_line` and `error_text` name
one failure: the last line of a traceback, or else the line of the best rank (a code of
an error before a word for one, a reason before a place). `error_lines` looks through an
output of any length, and returns what has the shape of an error, best shapes first.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

from heedful.sanitize import clean

# The error lines of one text that are returned, and the characters of each.
MAX_ERROR_LINES = 200
MAX_ERROR_LINE_CHARS = 1_000
# The characters of the line that names a failure.
MAX_NAMING_LINE_CHARS = 400
# In a text with at most this many lines, every line may be the error.
MAX_SHORT_TEXT_LINES = 40
# Texts in an object may contain ends of lines.
_DECODER = json.JSONDecoder(strict=False)
# A text in an object as Python prints it: "'message': 'no such table'"; each sort of
# quotes has a group of its own.
_PRINTED_TEXT_PATTERN = re.compile(
    r": (?:'((?:[^'\\\n]|\\.)+)'|\"((?:[^\"\\\n]|\\.)+)\")(?=[,}\]])"
)
# A longer line is worse than one that can be quoted whole.
MAX_QUOTED_LINE_CHARS = 200

# A line with an exit status: "exit code: 2 (interrupted)", "Command exit status 1".
_EXIT_STATUS_PATTERN = re.compile(
    r"(?m)^(?:(?i:exit ?(?:code|status))\W{0,2}-?\d+[^\n]{0,80}"
    r"|\W?[\w ]{1,40} (?i:exit ?(?:code|status)) -?\d+\W{0,2}$)"
)
# Marks of a line that names an error, as `_rank_line` uses them.
# The type or code of the error: "KeyError: 'a'", "error[E0425]: cannot find".
_ERROR_CODE_PATTERN = re.compile(
    r"[a-z](?:Error|Exception)\b[^:\s]{0,40}: *\S"
    r"|(?i:error)[ \[][A-Z]{1,8}\d{1,6}\]?: \S"
)
# A word for an error with what follows it: "fatal: not a git repository".
_ERROR_WORD_PATTERN = re.compile(
    r"\b(?:\w*error|\w*exception|fatal|panic|fail(?:ed|ure)?|denied): *\S",
    re.IGNORECASE,
)
# A word that says what is missing or forbidden: "permission denied".
_ERROR_REASON_PATTERN = re.compile(
    r"(?<!-)\b(?:not|no|can't|cannot|unable|missing|undefined|unknown"
    r"|denied|declined|refused|rejected|must|should|expected|invalid)\b",
    re.IGNORECASE,
)
# A place in a file: "main.c:12:5: expected ';'", but not "main.c:12: warning".
_ERROR_PLACE_PATTERN = re.compile(
    r"\.\w{1,6}:\d+(?::\d+)?: (?!warning|note|info|:)\S", re.IGNORECASE
)
# A line that says only with which status a command ended.
_STATUS_REPORT_PATTERN = re.compile(
    r"(?i)\b(?:exit(?:ed with)?|status) (?:code|status)[: ]{1,2}-?\d+\W*\Z"
)
# The tag around an error: the first line in it is the message.
_ERROR_TAG_PATTERN = re.compile(r"\A\s*<\w{0,20}error>|</\w{0,20}error>\s*\Z")
# The name of a program before its message: "grep: no such file".
_PROGRAM_LABEL_PATTERN = re.compile(r"\A[a-z][\w.+-]{0,20}: \S")
# Any mention of an error: "3 tests failed", "the request timed out".
_ERROR_MENTION_PATTERN = re.compile(
    r"(?i)[a-z]error\b|exception\b|\berror\b|\bfail|\btime[d ]{0,2}-?out"
)
# The shapes of an error line in what a command wrote, the most telling first.
_ERROR_LINE_PATTERNS = (
    # A word for an error near a colon: "Error in main: no such column".
    re.compile(
        r"(?i)(?:error|exception|fail(?:ed|ure)?|fatal|panic)\b[^:\n]{0,40}: *\S"
    ),
    _PROGRAM_LABEL_PATTERN,
    # A place: "src/app.ts(12,5): cannot find name", "Makefile:3: missing separator".
    re.compile(r"\A[\w./\\~@+-]{1,200}(?::\d+|\(\d+)(?:[:,]\d+)?\)?: \S"),
    # A path, a capital letter or a type: "/bin/sh: not found", "E: Unable to locate".
    re.compile(r"\A(?:/[\w./+-]{1,80}|[A-Z]|[\w.]{1,60}(?:Error|Exception)): \S"),
    # A code: "npm ERR", "HTTP/1.1 404", "status: 500".
    re.compile(r"\bERR\b|\bHTTP/[\d.]+ [45]\d\d\b|\bstatus\"?[ :=]{1,2}\"?[45]\d\d\b"),
    _ERROR_MENTION_PATTERN,
)
# What makes a line name something: a quotation, a number, or a word with a mark or a
# capital inside. The type of an error names nothing.
_NAMING_PATTERN = re.compile(r"[\"'`“«]\w|\d|\w[./:_@-]\w|[a-z][A-Z]")
_ERROR_TYPE_PREFIX_PATTERN = re.compile(r"\A\W*[\w.]*(?:Error|Exception)\b")
# A line that begins with a numbered place: "on main.tf line 12,", "> 1 | import x",
# "LINE 9: select", "l.87 The current"; but not with a date.
_NUMBERED_PLACE_PATTERN = re.compile(
    r"\A(?!\W*\d{4}-\d\d)\W*(?:(?:[\w./-]+\W+){0,4}?\d+ *[:|,)]|l\.\d+ )"
)
# What tools write before a line: marks such as "E   " or "> ", or blanks.
_LINE_MARK_PATTERN = re.compile(r"\A\s*(?:(?:E|>|\||\*|●|✗|✕)\s+)+|\A\s+")
# The time of a line in a log: "[2026-01-31T12:00:00Z] ".
_LOG_TIME_PATTERN = re.compile(
    r"\A\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?\s+"
)
# The time of day before a line, as "10:02:15  Database Error" has it.
_CLOCK_PATTERN = re.compile(r"\A\d\d:\d\d:\d\d(?:[.,]\d+)? ")
# A heading between rules: "=== short test summary ===".
_BANNER_PATTERN = re.compile(r"\s*([=_*#~!-])\1{2,}.*\1\s*\Z")
# What comes before a message: the number and time of a step ("#12 0.345 "), a letter
# in a margin ("E   "), or marks.
_MARGIN_PATTERN = re.compile(
    r"\A(?:#\d+\s|\d+\.\d+\s|[A-Z]\s{2,}|[>|│╰╭├└─×✖✗!*#^…]+\s*|\s+)+"
)
# An id of at least 24 digits in hex, perhaps in brackets.
_LONG_ID_PATTERN = re.compile(r"\(?\b[0-9a-f]{24,}\b\)?")


def output(text: str) -> str:
    """Return what a tool wrote, without its exit status.

    An object in it, in JSON or as Python prints it, such as the answer of a service,
    becomes its texts with a blank in them, a line for each. An object without such
    texts stays as it is. The headers of a response of HTTP are left out.
    """
    text = _EXIT_STATUS_PATTERN.sub("", text).strip()
    start = text.find("{")
    if text.startswith("HTTP/"):
        start = text.find("\n{") + 1
    if start < 0:
        return text

    value, end = _decode(text[start:])
    sentences = _sentences(value)
    if not sentences:
        return text
    before = "" if text.startswith("HTTP/") else text[:start]
    parts = [before.strip(), *sentences, text[start + end :].strip()]
    return "\n".join(filter(None, parts))


def _decode(text: str) -> tuple[Any, int]:
    """Return the object that begins a text, and its end; (None, 0) if there is none.

    For an object as Python prints it, which ends the text, return the list of its
    texts.
    """
    with suppress(ValueError, RecursionError):
        value, end = _DECODER.raw_decode(text)
        return value, end
    if text.startswith("{'") and text.endswith("}"):
        texts = ["".join(groups) for groups in _PRINTED_TEXT_PATTERN.findall(text)]
        return texts, len(text)
    return None, 0


def _sentences(value: Any) -> list[str]:
    """Return the texts with a blank in them, in order, each of them once."""
    sentences: dict[str, None] = {}
    waiting = [value]  # the last is next
    while waiting:
        part = waiting.pop()
        if isinstance(part, str) and " " in part.strip():
            sentences[part] = None
        elif isinstance(part, Mapping):
            waiting += reversed([*part.values()])
        elif isinstance(part, list):
            waiting += reversed(part)
    return [*sentences]


def error_line(failure: str) -> str:
    """Return the line that names a failure: the error of a traceback, if any."""
    lines, position = _find_error(failure)
    return lines[position].strip()[:MAX_NAMING_LINE_CHARS]


def error_text(failure: str) -> str:
    """Return the words that name a failure, without margins and long ids.

    If its line gives no reason, the line before it may; a line that ends with a colon
    has more, and one that names nothing may come before the place that it is about.
    """
    lines, position = _find_error(failure)
    if _ERROR_TAG_PATTERN.match(lines[0]):
        lines = [_ERROR_TAG_PATTERN.sub("", line) for line in lines]
        position = 0
    line = lines[position]
    start = position
    end = position + 1
    if line.endswith(":") or _is_heading(lines[position : end + 1]):
        end += 1
    elif not _names_something(line) and _is_place(lines[end : end + 1]):
        end += 2 if lines[end].endswith(":") else 1

    has_reason = _ERROR_CODE_PATTERN.search(line) or _ERROR_REASON_PATTERN.search(line)
    if position > 0 and not has_reason:
        line_before = lines[position - 1]
        fits = len(line_before) + len(line) < MAX_QUOTED_LINE_CHARS
        if fits and _ERROR_REASON_PATTERN.search(line_before):
            start -= 1

    text = _LONG_ID_PATTERN.sub("…", " ".join(lines[start:end]))
    text = clean(_MARGIN_PATTERN.sub("", text) or text, MAX_QUOTED_LINE_CHARS)
    if text[:1] == "[" and text[-1:] == "]":
        text = text[1:-1]
    return text.rstrip(".")


def _names_something(line: str) -> bool:
    """Return whether a line says which thing it is about.

    >>> [_names_something(line) for line in ("KeyError: 'a'", "SyntaxError: invalid")]
    [True, False]
    """
    words = _ERROR_TYPE_PREFIX_PATTERN.sub("", line)
    return _NAMING_PATTERN.search(words) is not None


def _is_place(lines: list[str]) -> bool:
    """Return whether the only line begins with a numbered place."""
    return any(map(_NUMBERED_PLACE_PATTERN.match, lines))


def _is_heading(lines: list[str]) -> bool:
    """Return whether the first line says no reason, and the next is indented more."""
    if len(lines) < 2 or _ERROR_REASON_PATTERN.search(lines[0]):
        return False
    indents = [len(line) - len(line.lstrip()) for line in lines]
    has_word = _ERROR_MENTION_PATTERN.search(lines[0])
    return has_word is not None and ":" not in lines[0] and indents[1] > indents[0]


def _find_error(failure: str) -> tuple[list[str], int]:
    """Return the lines of a failure, and the position of the one that names it.

    After the frames of a traceback, the first line at the margin names the error.
    """
    text = f"\n{output(failure) or failure}"
    _, traceback, last = text.rpartition("\nTraceback (")
    lines = [_CLOCK_PATTERN.sub("", line).rstrip() for line in last.splitlines()]
    lines = [line for line in lines if line] or ["error"]

    if traceback:
        for position, line in enumerate(lines):
            if position > 0 and not line[0].isspace():
                return lines[position:], 0
        return lines, 0

    ranks = [
        _rank_line(line, first=position == 0) for position, line in enumerate(lines)
    ]
    return lines, ranks.index(min(ranks))


def _rank_line(line: str, *, first: bool) -> int:
    """Return how well a line names an error; 0 is best.

    Best is a line with the type or code of the error, then one that begins with a word
    for an error and says what is missing or forbidden. The name of a program counts on
    the `first` line only.
    """
    has_word = _ERROR_WORD_PATTERN.search(line)
    has_reason = _ERROR_REASON_PATTERN.search(line)
    signs = (
        _ERROR_CODE_PATTERN.search(line),
        has_word and has_reason,
        has_word,
        _ERROR_PLACE_PATTERN.search(line),
        first and _PROGRAM_LABEL_PATTERN.match(line),
        has_reason and _names_something(line),
        has_reason,
        _ERROR_MENTION_PATTERN.search(line),
    )

    rank = next((rank for rank, sign in enumerate(signs) if sign), len(signs))
    if len(line) > MAX_QUOTED_LINE_CHARS or line.endswith("..."):
        rank += 2
    if _STATUS_REPORT_PATTERN.search(line):
        rank += len(signs) - 2
    return rank


def error_lines(lines: Iterable[str], others: bool = True) -> list[str]:
    """Return the error lines of a text, best first; of a short text, then the `others`.

    Lines that differ only in digits count once. If there are more than
    `MAX_ERROR_LINES`, the first and the last ones are returned. Takes one pass, and
    memory for `MAX_ERROR_LINES` lines.

    >>> error_lines(["Traceback (most recent call last):", "  f()", "KeyError: 'a'"])[0]
    "KeyError: 'a'"
    """
    # The lines of each rank: 0 is for the last lines of tracebacks, others for shapes.
    ranked: list[dict[str, str]] = [{} for _ in range(len(_ERROR_LINE_PATTERNS) + 1)]
    beginning: list[str] = []
    in_traceback = False

    for raw in lines:
        if raw.lstrip().startswith("Traceback ("):
            in_traceback = True
            continue

        line = without_margin(raw)
        if not line or _BANNER_PATTERN.match(line):
            continue
        if len(beginning) <= MAX_SHORT_TEXT_LINES:
            beginning.append(line)

        if in_traceback and not raw[0].isspace():
            in_traceback = False
            _add_line(ranked[0], line)
        else:
            rank = _shape_rank(line)
            if rank is not None:
                _add_line(ranked[rank], line)

    errors = list(chain.from_iterable(map(dict.values, ranked)))[:MAX_ERROR_LINES]
    is_short = 0 < len(beginning) <= MAX_SHORT_TEXT_LINES
    if is_short:
        errors.insert(0, without_margin(error_line("\n".join(beginning))))
        if others:
            errors += beginning

    return list(dict.fromkeys(filter(None, errors)))


def _shape_rank(line: str) -> int | None:
    """Return the rank, from 1, of the first shape that a line has; None without one."""
    for rank, shape in enumerate(_ERROR_LINE_PATTERNS, 1):
        if shape.search(line):
            return rank
    return None


def _add_line(lines: dict[str, str], line: str) -> None:
    """Add a line to those of a rank, by its text without digits.

    If there are too many, the first half stays, and the oldest of the others goes.
    """
    lines.setdefault(re.sub(r"\d+", "0", line), line)
    if len(lines) > MAX_ERROR_LINES:
        oldest_of_others = list(lines)[MAX_ERROR_LINES // 2]
        del lines[oldest_of_others]


def without_margin(line: str) -> str:
    """Return a line without the marks and the time that tools write before it."""
    line = _LINE_MARK_PATTERN.sub("", line[:MAX_ERROR_LINE_CHARS])
    return _LOG_TIME_PATTERN.sub("", line).rstrip()
