"""Error lines: the lines in what a command wrote that say what went wrong. Pure.

Nothing but the shape of a line is used. `error_line` names one failure: the last line
of a traceback, or else the line of the best shape, the first of those. `error_lines`
looks through an output of any length. `named_errors` returns the errors of one failed
call: lines that repeat the call, source lines and lines of a log name none.
`shorten_failure` is how much of a failure is kept.
"""

import ast
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, groupby
from typing import Any

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

# A line with an exit status: "exit code: 2 (interrupted)", "Command exit status 1".
_EXIT_STATUS_PATTERN = (
    r"(?im)^(?:\W?[\w ]{1,40} )?exit ?(?:code|status)\W{0,2}-?\d+"
    r"(?:[^\w\n][^\n]{0,80})?$"
)
# The type or code of the error: "KeyError: 'a'", "error[E0425]: cannot find".
_TYPE_PATTERN = (
    r"[a-z](?:Error|Exception)\b[^:\s]{0,40}: *\S"
    r"|(?i:error)[ \[][A-Z]{1,8}\d{1,6}\]?: \S"
)
_REASON = (
    r"(?<![\w-])(?:not?|can(?:'t|not)|un(?:able|defined|known|recogni[sz]ed)|missing"
    r"|de(?:nied|clined)|re(?:fused|jected)|must|should|expected|invalid)\b"
)
# The other shapes of an error line, the most telling first, in lower case. A word comes
# before the look at what precedes it: Python finds letters fast, in a tenth of time.
_SHAPES = (
    # A word for an error with what follows it: "fatal: not a git repository"; but
    # "Error: (none)" is none, and what ends with the exit status of a command says less
    # than the command did. Or a program that a shell does not find.
    (
        r"(?:error|exception|fatal(?<=\bfatal)|panic(?<=\bpanic)|denied(?<=\bdenied)"
        r"|fail(?<=\bfail)(?:ed|ure)?): *"
        r"(?!\W?(?:none|null)\W?\Z|.*\bexit (?:code|status):? \d+\Z)\S"
        r"|failed to (?<=\Afailed to )\w|(?:command|file|:) not found|unknown command"
        r"|not recognized as|env: .*no such file|command \W[^ ]+:? no(?:t found| such)"
    ),
    # A place in a file: "main.c:12:5: expected ';'", but not "main.c:12: warning".
    (
        r"\.\w{1,6}(?::\d+(?::\d+)?|\(\d+,\d+\)): "
        r"(?!warning|note|info|:|\w*(?:error|exception|failed)$)\S"
    ),
    # What is missing or forbidden: "no key 'a'", and then "permission denied".
    _REASON + r".*[\"'`“]\w",
    _REASON,
    # Any mention of an error: "3 tests failed", "the request timed out".
    (
        r"error(?<![^\Wa-z]error)\b|exception\b|err(?<=\berr)\b|fail(?<=\bfail)\w*\b."
        r"|time(?<=\btime)[d ]{0,2}-?out"
    ),
)
# The ranks of an error line: 0 is a type, the others are the shapes. Lines of the first
# three name an error by themselves.
NUMBER_OF_RANKS = 1 + len(_SHAPES)
STRONG_RANKS = 3
# What stands around an output: Gemini CLI's labels, the tag of an error, and the lines
# of Gradle that are the same for all failures.
_WRAPPING_PATTERN = (
    r"\A(?:<untrusted_context>\s*)?(?:(?:Command|Directory): [^\n]*\n){0,2}Output: "
    r"|</?\w{0,20}error>|(?<![^\n])(?:FAILURE: Build |\d+: Task failed with "
    r"|\* What went wrong:|BUILD FAILED in )[^\n]*"
)
# What tools write before a line: marks such as "E   " or "> ", blanks, and a time.
_MARGIN_PATTERN = (
    r"\A\s*(?:(?:E|[>|│*●✗✕])\s+)*"
    r"(?:\[?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d[\d:.,]*(?:Z|[+-]\d\d:?\d\d)?\]?\s+)?"
)
# A line that names no error of its own, unless it begins with a word for one: what
# somebody else may do or know, a heading, a line of a program, or a place on the way.
_BESIDE_PATTERN = (
    r"\A(?:(?i:hint|note|help|info|warning|debug|tip): |\?\s|//|/\*|={3}|_{3}"
    r"|(?:return|raise|throw|await|panic)\b.*\(|\S+:\d+: in [\w<>.]+\Z"
    r"|(?!\w*(?:Error|Exception)\()[a-zA-Z_][\w.]*\(.*[\"'`].*\)\Z"
    r"|.*[;{}]\Z|.*\b(?:INFO|DEBUG|TRACE|VERBOSE)\b)"
)
# A line of a test, a linter or a compiler about the work itself: a test that failed, or
# what is wrong at a place in a file.
_WORK_PATTERN = (
    r"(?:---\s*)?FAIL(?:ED)?\b|assert|Assert|expect\(|expected\b.*\b(?:got|but|to)\b"
    r"|\S*\.\w{1,6}(?::\d+(?::\d+)?: |\(\d+,\d+\): )\S"
)
# A word with a colon: "String: func f()" repeats what the call was given.
_ECHO_LABEL_PATTERN = r"\A\w{1,20}:\s*"


def output(text: str) -> str:
    """Return what a tool wrote, without its exit status.

    An object in it, in JSON or as Python prints it, such as the answer of a service,
    becomes its texts with a blank in them, a line for each. An object without such
    texts stays as it is. The headers of a response of HTTP are left out.
    """
    text = compiled(_EXIT_STATUS_PATTERN).sub("", text).strip()
    text = compiled(_WRAPPING_PATTERN).sub("", text).strip() or text
    start = text.find("{")
    if text.startswith("HTTP/"):
        start = text.find("\n{") + 1
    if start < 0:
        return text

    value, end = decode(text[start:])
    sentences = dict.fromkeys(text for text in _texts_in(value) if " " in text.strip())
    if not sentences:
        return text
    before = "" if text.startswith("HTTP/") else text[:start]
    parts = [before.strip(), *sentences, text[start + end :].strip()]
    return "\n".join(filter(None, parts))


def decode(text: str) -> tuple[Any, int]:
    """Return the data that begin a text, and their end; (None, 0) if there are none.

    They are JSON, or a whole text as Python prints data.
    """
    if text[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            return _LENIENT_DECODER.raw_decode(text)
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(text), len(text)
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
    best = [*_ranked(lines), *filter(None, map(without_margin, lines)), "error"]
    return best[0]


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
    return list(dict.fromkeys(errors or beginning[:1]))


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
            _add_line(tracebacks, line)
        elif (rank := _rank(line)) < NUMBER_OF_RANKS:
            # A longer line is worse than one that can be quoted whole.
            is_long = len(line) > MAX_SHOWN_LINE_CHARS
            _add_line(ranked[2 * rank + is_long], line)
    return [*reversed(tracebacks.values()), *chain(*map(dict.values, ranked))]


def _rank(line: str) -> int:
    """Return the rank of an error line, 0 is best; another line has NUMBER_OF_RANKS."""
    if compiled(_TYPE_PATTERN).search(line):
        return 0
    lower = line.lower()
    shapes = enumerate(_SHAPES, 1)
    return next(
        (n for n, shape in shapes if compiled(shape).search(lower)), NUMBER_OF_RANKS
    )


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
    the best does. Secrets and personal data are redacted.
    """
    text = output(failure)  # without the exit status, which names no error
    lines = _lines_about_errors(text.splitlines(), _argument_lines(arguments))
    candidates = error_lines(lines, others=False) or [error_line(text)]

    # Lines of one message are one error; its first candidate, the best, names it.
    repeated: set[str] = set()
    for message in _messages(lines):
        repeated.update([line for line in candidates if line in message][1:])
    errors = [line for line in candidates[:MAX_LISTED_ITEMS] if line not in repeated]

    strong = [line for line in errors if _rank(line) < STRONG_RANKS]
    # A summary repeats an error after " - ".
    endings = {line.rpartition(" - ")[2] for line in strong if " - " in line}
    errors = [line for line in strong if line not in endings] or errors[:1]
    return [mask_personal(redact(line)) for line in errors]


def is_of_work(error: str) -> bool:
    """Return True if an error is one of the work: of a test, a linter or a compiler.

    No other command fixes it.

    >>> [is_of_work(error) for error in ("--- FAIL: TestCart", "sh: pip: not found")]
    [True, False]
    """
    return compiled(_WORK_PATTERN).search(error) is not None


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
        is_beside = compiled(_BESIDE_PATTERN).match(bare) or rest in repeated
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


def _messages(lines: Iterable[str]) -> Iterator[set[str]]:
    """Yield the lines of each message.

    Neighbouring lines that begin with the same two words are one message, and so are
    the lines that are indented below the line of a failure.
    """
    bare_lines = filter(None, map(without_margin, lines))
    for _, same_start in groupby(bare_lines, lambda line: line.split()[:2]):
        yield set(same_start)

    block: set[str] = set()
    is_open = False
    for line in filter(str.strip, lines):
        bare = without_margin(line)
        if not line[0].isspace():
            yield block
            block = set()
            is_open = _rank(bare) < NUMBER_OF_RANKS
        if is_open:
            block.add(bare)
    yield block


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
