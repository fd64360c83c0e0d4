"""Error lines: the lines in what a command wrote that say what went wrong. Pure.

Nothing but the shape of a line is used. `error_line` names one failure: the last line
of a traceback, or else the line of the best shape, the first of those. `error_lines`
looks through an output of any length. `named_errors` returns the errors of one failed
call: lines that repeat the call, source lines and lines of a log name none.
`shorten_failure` is how much of a failure is kept.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice, pairwise
from typing import Any

from heedful.knowledge import KnowledgeTable
from heedful.lessons.words import compiled
from heedful.redact import mask_personal, redact
from heedful.sanitize import cut_middle
from heedful.validation import MAX_LISTED_ITEMS, MAX_SHOWN_LINE_CHARS

# The error lines of one text that are returned, and the characters of each.
MAX_ERROR_LINES = 200
MAX_ERROR_LINE_CHARS = 1_000
# In a text with at most this many lines, every line may be the error.
MAX_SHORT_TEXT_LINES = 40
# Texts in an object may contain ends of lines.
_LENIENT_DECODER = json.JSONDecoder(strict=False)

ERROR_LINES = KnowledgeTable("episodes/error_lines")
# The table of failures has the words of an exit status. This surrounds them in their
# line: "exit code: 2 (interrupted)", "Command exit status 1".
_FAILURES = KnowledgeTable("episodes/failures")
_BEFORE_EXIT_STATUS = r"(?m)^(?:\W?[\w ]{1,40} )?"
_AFTER_STATUS = r"\W{0,2}-?\d+(?:[^\w\n][^\n]{0,80})?$"
# An object stands in a line, and its first sign.
_OBJECT_PATTERN = r"(?m)^[^{\n]*\{"
MAX_READ_OBJECTS = 20
# Where an object has the reason of an error.
REASON_NAMES = ("error", "message", "reason", "detail")
# The ranks of an error line: a type, a label, a place, a reason with a name, another
# reason, a mention. Lines of the first three name an error by themselves.
NUMBER_OF_RANKS = 6
STRONG_RANKS = 3
# What follows a reason that names something.
_NAMING_PATTERN = r".*[\"'`“]\w"
# What tools write before a line: marks such as "E   " or "> ", blanks, and a time.
_MARGIN_PATTERN = (
    r"\A\s*(?:(?:E|[>|│*✗✕])\s+)*"
    r"(?:\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d[\d:.,]*(?:Z|[+-]\d\d:?\d\d)?\]?\s+)?"
)
# A word with a colon: "String: func f()" repeats what the call was given.
_ECHO_LABEL_PATTERN = r"\A\w{1,20}:\s*"
# The values of an assertion stand so near to its line.
MAX_VALUE_LINES = 6


def output(text: str) -> str:
    """Return what a tool wrote, without its exit status.

    An object in it, in JSON or as Python prints it, such as the answer of a service,
    becomes its texts with a blank in them: the first goes on with what stands before
    the object in its line, and each other one is a line. An object without such texts
    stays as it is. The headers of a response of HTTP are left out.
    """
    return _read_objects(text)[0]


def _read_objects(text: str) -> tuple[str, list[str]]:
    """Return an output, and the lines that an object in it became."""
    text = _FAILURES.pattern("status", _BEFORE_EXIT_STATUS, _AFTER_STATUS).sub("", text)
    text = ERROR_LINES.pattern("wrapping", "(?m)").sub("", text).strip() or text.strip()
    if text.startswith("HTTP/") and "\n{" in text:
        text = text[text.find("\n{") + 1 :]

    parts: list[str] = []
    object_lines: list[str] = []
    read_to = 0
    for place in islice(compiled(_OBJECT_PATTERN).finditer(text), MAX_READ_OBJECTS):
        start = place.end() - 1
        if start < read_to:
            continue
        value, length = decode(text[start:])
        sentences = _sentences_in(value)
        if sentences:
            before = text[read_to:start]
            parts += [before, "\n".join(sentences)]
            label = before.rpartition("\n")[2]
            object_lines += f"{label}{sentences[0]}".splitlines()
            read_to = start + length
    return "".join([*parts, text[read_to:]]).strip(), object_lines


def _sentences_in(value: Any) -> list[str]:
    """Return the texts with a blank in data; without one, those under an error's name.

    >>> _sentences_in({"ok": False, "error": "channel_not_found"})
    ['channel_not_found']
    """
    sentences = [text for text in _texts_in(value) if " " in text.strip()]
    if not sentences and isinstance(value, Mapping):
        texts = (value.get(name) for name in REASON_NAMES)
        sentences = [text for text in texts if text and isinstance(text, str)]
    return list(dict.fromkeys(sentences))


def decode(text: str) -> tuple[Any, int]:
    """Return the data that begin a text, and their end; (None, 0) if there are none.

    They are JSON, or what Python prints: data that fill the text or its first line.
    """
    if text[:1] not in ("{", "["):
        return None, 0
    with suppress(ValueError, RecursionError):
        return _LENIENT_DECODER.raw_decode(text)
    for data in dict.fromkeys((text, text.partition("\n")[0])):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(data), len(data)
    return None, 0


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the texts in data, in order."""
    waiting = [value]  # the last is next
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping):
            waiting += reversed([*part.values()])
        elif isinstance(part, list | tuple):
            waiting += reversed(part)


def error_line(failure: str) -> str:
    """Return the line that names a failure: the best error line, or the first line."""
    lines = (output(failure) or failure).splitlines()
    best = [*_ranked(lines), *_first_line(map(without_margin, lines)), "error"]
    return best[0]


def _first_line(lines: Iterable[str]) -> list[str]:
    """Return the line that stands for a text without an error line; [] if it is empty.

    It is the first that says that an output is one of a failure, else the first.
    """
    texts = list(filter(None, lines))
    failed_lines = filter(_FAILURES.pattern("failed_line").search, texts)
    return [*failed_lines, *texts][:1]


def error_lines(lines: Iterable[str], others: bool = True) -> list[str]:
    """Return the error lines of a text, best first; of a short text, then the `others`.

    Lines that differ only in digits count once. If there are more than
    `MAX_ERROR_LINES`, the first and the last ones are returned. Takes one pass, and
    memory for `MAX_ERROR_LINES` lines of a shape.

    >>> error_lines(["Traceback (most recent call last):", "  f()", "KeyError: 'a'"])[0]
    "KeyError: 'a'"
    """
    beginning: list[str] = []

    def watched() -> Iterator[str]:
        """Yield the lines, and note those of a short text."""
        for line in lines:
            bare = without_margin(line)
            if bare and len(beginning) <= MAX_SHORT_TEXT_LINES:
                beginning.append(bare)
            yield line

    errors = _ranked(watched())[:MAX_ERROR_LINES]
    if len(beginning) > MAX_SHORT_TEXT_LINES:
        return errors
    if others:
        errors += beginning
    return list(dict.fromkeys(errors or _first_line(beginning)))


def _ranked(lines: Iterable[str]) -> list[str]:
    """Return the lines with the shape of an error, best first.

    The last line of a traceback is the first one at the margin after its frames. Of
    several tracebacks, the last one counts most.
    """
    # For each shape the lines that can be quoted whole, then the longer ones.
    ranked: list[dict[str, str]] = [{} for _ in range(2 * NUMBER_OF_RANKS)]
    tracebacks: dict[str, str] = {}
    in_traceback = False
    for raw in lines:
        line = without_margin(raw)
        if line.startswith("Traceback ("):
            in_traceback = True
        elif in_traceback and line and not raw[0].isspace():
            in_traceback = False
            if not ERROR_LINES.pattern("passed_on").search(line):
                _add_line(tracebacks, line)
        elif (rank := _rank(line)) < NUMBER_OF_RANKS:
            # A longer line is worse than one that can be quoted whole.
            is_long = len(line) > MAX_SHOWN_LINE_CHARS
            _add_line(ranked[2 * rank + is_long], line)
    return [*reversed(tracebacks.values()), *chain(*map(dict.values, ranked))]


def _rank(line: str) -> int:
    """Return the rank of an error line, 0 is best; another line has NUMBER_OF_RANKS.

    A line that only passes on that something failed has the last rank.
    """
    rank = 0
    if not ERROR_LINES.pattern("type").search(line):
        lower = line.lower()
        shapes = enumerate(_shape_patterns(), 1)
        rank = next((n for n, p in shapes if p.search(lower)), NUMBER_OF_RANKS)
    if rank < STRONG_RANKS and ERROR_LINES.pattern("passed_on").search(line):
        return NUMBER_OF_RANKS - 1
    return rank


def _shape_patterns() -> Iterator[re.Pattern[str]]:
    """Yield the patterns of the shapes of an error line, the most telling first."""
    before = r"(?<![\w-])"
    yield ERROR_LINES.pattern("label")
    yield ERROR_LINES.pattern("place")
    yield ERROR_LINES.pattern("reason", before, rf"\b{_NAMING_PATTERN}")
    yield ERROR_LINES.pattern("reason", before, r"\b")
    yield ERROR_LINES.pattern("mention")


def _add_line(lines: dict[str, str], line: str) -> None:
    """Add a line to those of a rank, by its text without digits.

    If there are too many, the first half stays, and the oldest of the others goes.
    """
    lines.setdefault(compiled(r"\d+").sub("0", line), line)
    if len(lines) > MAX_ERROR_LINES:
        oldest_of_others = list(lines)[MAX_ERROR_LINES // 2]
        del lines[oldest_of_others]


def without_margin(line: str) -> str:
    """Return a line without the marks and the time that tools write before it."""
    return compiled(_MARGIN_PATTERN).sub("", line[:MAX_ERROR_LINE_CHARS]).rstrip()


def named_errors(failure: str, arguments: Any = None) -> list[str]:
    """Return the lines that name the errors of a failed call, at least one.

    `arguments` are those of the call: a line that repeats them names no error. A line
    with a type, a word or a place of an error names one by itself; of other lines, only
    the best does. Of a chain of exceptions, the last one counts. A failed assertion has
    its values with it. Secrets and personal data are redacted.
    """
    # Without the exit status, which names no error.
    text, object_lines = _read_objects(failure)
    chain = ERROR_LINES.pattern("chain").split(text)
    lines = _lines_about_errors(chain[-1].splitlines(), _argument_lines(arguments))
    candidates = error_lines(lines, others=False) or [error_line(text)]

    bare_lines = list(filter(None, map(without_margin, lines)))
    # A test that failed before it began has no reason below its name.
    empty_tests = {
        line
        for line, below in pairwise(bare_lines)
        if below in line and ERROR_LINES.pattern("test").search(line)
    }
    telling = [line for line in candidates if line not in empty_tests] or candidates
    errors = telling[:MAX_LISTED_ITEMS]
    strong = [line for line in errors if _rank(line) < STRONG_RANKS]
    # A summary repeats an error after " - ".
    endings = {line.rpartition(" - ")[2] for line in strong if " - " in line}
    errors = [line for line in strong if line not in endings] or errors[:1]
    # What an object says below the type of an error is its reason.
    reasons = [line for line in map(without_margin, object_lines) if line in bare_lines]
    if len(errors) > 1:
        errors = [line for line in errors if line not in reasons] or errors[:1]
    names: list[str] = []
    for line in errors:
        test = _test_of(line, bare_lines)
        # A test that failed is one error.
        if not any((test or line) in name for name in names):
            names.append(_with_values(line, test, bare_lines, reasons))
    return [mask_personal(redact(line)) for line in names]


def _test_of(error: str, lines: Sequence[str]) -> str:
    """Return the name of the test that an error line is of, "" if it is of none.

    It is the line itself, or stands shortly above it.
    """
    place = lines.index(error) if error in lines else 0
    above = lines[max(0, place - MAX_VALUE_LINES) : place + 1]
    tests = filter(ERROR_LINES.pattern("test").search, above)
    return next(reversed([*tests]), "")


def _with_values(
    error: str, test: str, lines: Sequence[str], reasons: Sequence[str]
) -> str:
    """Return an error line with the `test` that failed and the values of its assertion.

    These stand in the lines next to it. The type of an error has the next of the
    `reasons` below it.
    """
    if error not in lines:
        return error
    below = list(lines[lines.index(error) + 1 :])
    following = below[:MAX_VALUE_LINES]
    values = [line for line in following if ERROR_LINES.pattern("value").search(line)]
    reason = [line for line in below if line in reasons][:1]
    if reason and _rank(error) == 0:
        parts = [error, *reason]
    elif test == error:
        parts = [error, *(values or following)[:1]]
    elif following and ERROR_LINES.pattern("heading").search(error):
        parts = following[:1]
    elif error.endswith(":"):
        parts = [error, *following[:1]]
    elif is_of_work(error):
        short_values = [line for line in values if len(line) <= MAX_SHOWN_LINE_CHARS]
        parts = [test, error, *short_values]
    else:
        parts = [test, error]
    return " ".join(parts).strip()[:MAX_ERROR_LINE_CHARS]


def is_of_work(error: str) -> bool:
    """Return True if an error is one of the work: of a test, a linter or a compiler.

    No other command fixes it.

    >>> [is_of_work(error) for error in ("--- FAIL: TestCart", "sh: pip: not found")]
    [True, False]
    """
    return ERROR_LINES.pattern("work").search(error) is not None


def _lines_about_errors(lines: list[str], repeated: frozenset[str]) -> list[str]:
    """Return the lines that may name an error; all lines if none does.

    Left out are lines of `repeated`, perhaps behind a label, and what stands beside an
    error.
    """
    kept_lines: list[str] = []
    for line in lines:
        bare = without_margin(line)
        rest = compiled(_ECHO_LABEL_PATTERN).sub("", bare)
        # In "KeyError: 'a'" the rest is the reason.
        is_error = _rank(bare[: len(bare) - len(rest)] + "…") < STRONG_RANKS
        is_beside = ERROR_LINES.pattern("beside").search(bare) or rest in repeated
        if bare not in repeated and (is_error or not is_beside):
            kept_lines.append(line)

    has_text = any(map(without_margin, kept_lines))
    return kept_lines if has_text else lines


def _argument_lines(arguments: Any) -> frozenset[str]:
    """Return the lines of all texts in the arguments of a call."""
    lines: set[str] = set()
    for text in _texts_in(arguments):
        # Arguments that were cut became JSON as text.
        unescaped = text.replace('\\"', '"').replace("\\n", "\n").replace("\\t", "")
        lines.update(map(str.strip, unescaped.split("\n")))
    return frozenset(lines - {""})


def shorten_failure(text: str, most: int) -> str:
    """Return the text of a failure in at most `most` (400 or more) characters.

    A longer text has its error lines first, in at most half of that.
    """
    if len(text) <= most:
        return text

    lines = error_lines(text.splitlines(), others=False)
    head = "\n".join(lines)[: most // 2 - 1]
    if head:
        head += "\n"
    return head + cut_middle(text, most - len(head))
