"""Signatures: the name of an error is its text with the particulars masked.

The occurrences of one error differ in numbers, ids, paths, hosts, times and addresses.
These particulars are masked, so all occurrences have the same pattern. An assertion
keeps its expression and its expected value; only the actual value is masked. So does a
sentence that corrects a value: "4.2, not 12". A claim keeps all its figures.

A stack trace says better than words what failed. Its name has the exceptions, the
frames of the program, and of the messages only what distinguishes errors of one
exception: codes, names in quotes, and what an assertion expects.

The text is redacted first: what masking leaves of a secret is not recognised.

The table of this module has the shapes of ids, and the words by which programs say what
they expected, and that a number names an error. In a pattern of this module, a name in
capitals stands for the rows of a group, such as EXPECTED, or for a part, such as VALUE.
"""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from heedful.knowledge import KnowledgeTable
from heedful.lessons.lesson import Signature
from heedful.lessons.scope import MAX_READ_CHARS, digest_of, short_digest
from heedful.lessons.stack_traces import StackTrace, read_trace
from heedful.lessons.words import compiled, without_middle
from heedful.redact import MARK_START, TERMINAL_CODES, redact

# The types of errors whose text is a claim: another figure makes it another claim.
CLAIM_ERROR_TYPES = frozenset({"conflict", "factual_error", "unverified_claim"})
# An id in quotes may be redacted, because it looks like a secret; another one is not.
_RANDOM_TEXT_MARK = f"{MARK_START}random_token]"
_SIGNATURES = KnowledgeTable("lessons/signature")


@cache
def _with_rows(pattern: str) -> re.Pattern[str]:
    """Return a pattern, compiled, in which names have become what they stand for."""
    return re.compile(re.sub("[A-Z_]{2,}", _meaning_of, pattern))


def _meaning_of(name: re.Match[str]) -> str:
    """Return the pattern for which a name stands; other capitals stay as they are."""
    if name[0] in _SIGNATURE_PARTS:
        return _with_rows(_SIGNATURE_PARTS[name[0]]).pattern
    with suppress(KeyError):
        return _SIGNATURES.pattern(name[0].lower()).pattern
    return name[0]


def signature(error_type: str, text: str) -> Signature:
    """Return the signature of an error, by which it is recognised when it comes again.

    The same type and text always have the same signature. In its pattern, numbers,
    times, ids and addresses become `<N>`, paths `<PATH>`, and hosts `<HOST>`. An
    assertion keeps its expression and its expected value; its actual value is masked.
    An error of a type in `CLAIM_ERROR_TYPES` keeps its figures. In JSON, and in data as
    Python prints it, neither the order of keys nor, if the whole text is a list, the
    order and number of equal items matters. Errors with the same stack trace may differ
    in words and values. Secrets are redacted first.

    >>> signature("KeyError", "'a'") == signature("KeyError", "'b'")
    False
    >>> signature("Timeout", "after 12.5 s at 10.0.0.7").pattern
    'after <N> at <N>'
    """
    error_type = redact(error_type)
    text = redact(text)
    # What a terminal would show: without colours, and with straight quotation marks.
    visible_text = text
    if "[" in text or "\r" in text:  # most texts have neither, and need no search
        visible_text = compiled(_SCREEN_CODE_PATTERN).sub(
            "", text.replace("\r\n", "\n")
        )
    if not visible_text.isascii():
        visible_text = visible_text.translate(_STRAIGHT_QUOTES)
    visible_text = visible_text.strip().replace(_RANDOM_TEXT_MARK, "<N>")

    trace = None
    if error_type not in CLAIM_ERROR_TYPES:
        trace = read_trace(visible_text)
    # Of a stack trace, the pattern also says where it happened, but not each word.
    if trace is None:
        pattern = _pattern_of(error_type, visible_text)
        message = pattern
    else:
        pattern = _pattern_of_trace(error_type, trace)
        message = _pattern_of(error_type, _error_message(trace))
    return Signature(
        short_digest(f"{error_type}:{text.lower().strip()}"),
        pattern,
        digest=digest_of(error_type, pattern),
        error_type=error_type,
        message=message,
    )


def lesson_signature(error_type: str, text: str, lesson: str) -> Signature:
    """Return the signature under which a person's lesson about an error is stored.

    It is that of the error. Only if the lesson repeats numbers of the error, these are
    part of the digest, too: "batch size 64" and "batch size 128" are two lessons.
    """
    error = signature(error_type, text)
    shared_figures = sorted(_figures(text) & _figures(lesson))
    # Numbers that are part of the pattern already need not be added.
    if not shared_figures or error.figures != "particulars":
        return error
    name = "\0".join([error.pattern, *shared_figures])
    return replace(error, digest=digest_of(error_type, name))


def _figures(text: str) -> set[str]:
    """Return the numbers and measures in a text."""
    matches = _with_rows(_PARTICULAR_PATTERN).finditer(text)
    return {match[0] for match in matches if match.lastgroup == "N3"}


# What a terminal does not show: its control codes, and the part of a line that it draws
# over after a carriage return.
_SCREEN_CODE_PATTERN = rf"(?xm)^[^\n]*(?:\r(?!\n)|\x1b\[1?G)|{TERMINAL_CODES}"


# Programs quote with these where the terminal can show them.
_STRAIGHT_QUOTES = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")


def strategy_signature(failure: Signature) -> Signature:
    """Return the signature of a strategy, which differs from that of its failure.

    The pattern has no words of the failure, because these may be trusted less.
    """
    return Signature.of("strategy", f"of reflection {failure.digest}")


# The frames of a trace that are part of its name, those next to the error.
MAX_NAMED_FRAMES = 50
# The name of an exception: "KeyError", "json.JSONDecodeError", "zlib.error".
_EXCEPTION_NAME_REGEX = r"(?:(?:\w+(?:[.\\]|::))+\w+|[A-Z]\w*[a-z]\w*)"
# It stands before a message, or alone. A name that ends in "Error" stands anywhere.
_EXCEPTION_REGEX = (
    rf"(?:(?:^|(?<=[:.>)] )){_EXCEPTION_NAME_REGEX}(?=: |:?$)"
    r"|(?<![\w.\\:])[\w.\\:]+(?:Error|Exception)\b|\bError(?=: ))"
)
# With the assertion in the source line before it.
_EXCEPTION_PATTERN = rf"(?m)(?:^assert\b[^\n]*\n)?{_EXCEPTION_REGEX}"
# A field of an error, as Node prints it: "code: 'ENOENT',".
_ERROR_FIELD_PATTERN = r"(?:code|status): \S+"
# A text between quotation marks.
STRING_REGEX = r"'[^'\n]{0,400}'|\"[^\"\n]{0,400}\""
# A text in quotes, also as Ruby wrote them: "`price'".
_QUOTED_REGEX = rf"(?<!\w)(?:{STRING_REGEX}|`[^`'\n]*[`'])(?!\w)"
# What distinguishes errors of one exception, in a masked message: the exception, with
# the key that is all its message; a name in quotes; a number that names an error; a
# code in capitals. A `value` after a sentence does not: "invalid literal: 'x'".
_DISTINGUISHING_PARTS = (
    rf"{_EXCEPTION_REGEX}(?:: {_QUOTED_REGEX}$)?",
    rf"(?<=: )(?P<value>{_QUOTED_REGEX})$",
    _QUOTED_REGEX,
    r"(?<![\w.<-])\d\w*",
    r"(?<![\w<])[A-Z][A-Z\d_]{2,}\b",
)
_DISTINGUISHING_PATTERN = f"(?m){'|'.join(_DISTINGUISHING_PARTS)}"


def _pattern_of_trace(error_type: str, trace: StackTrace) -> str:
    """Return what identifies an error with a stack trace: words, and where it happened.

    If exceptions and functions are named, these identify the error, and of the messages
    only names, codes and expected values are taken. Else all words of the messages are.
    The frames, which are calls such as "total (cart.py)", follow after "at".
    """
    errors = _named_errors(trace)
    if errors and any(frame.function for frame in trace.frames):
        text = without_middle("\n".join(errors), MAX_READ_CHARS)
        parts = _distinguishing_parts(error_type, text)
        words = " ".join([*parts, *_error_fields(trace)])
    else:
        words = _pattern_of(error_type, "\n".join(errors or trace.messages))

    # A recursion repeats its frames; each is named once.
    frames = list(dict.fromkeys(_named_frames(trace)))
    # Of many frames, those next to the error are taken: in Python the last ones.
    if trace.ends_with_error:
        frames = frames[-MAX_NAMED_FRAMES:]
    if not frames:
        return words
    return f"{words} at {', '.join(frames[:MAX_NAMED_FRAMES])}".strip()


def _named_frames(trace: StackTrace) -> Iterator[str]:
    """Yield the frames of a stack trace, each as function and file: "total (cart.py)".

    An anonymous function is named by its file alone, unless a named function is in the
    same file. Numbers and ids in the names of files are masked.
    """
    files = {frame.file for frame in trace.frames if frame.function}
    for frame in trace.frames:
        # A browser may add "?v=3" to the address of a file.
        file = _mask_file_name(frame.file.partition("?")[0])
        if frame.function:
            yield f"{frame.function} ({file})"
        elif frame.file not in files:
            yield file


def _distinguishing_parts(error_type: str, text: str) -> Iterator[str]:
    """Yield the parts of messages that distinguish errors with the same stack trace.

    These are names of exceptions, codes, names in quotes, and what assertions expect.
    """
    for passage, is_asserted in split_assertions(error_type, text):
        if is_asserted:
            yield " ".join(passage.split())
            continue
        masked = _with_rows(_PARTICULAR_PATTERN).sub(_mask, passage)
        for match in compiled(_DISTINGUISHING_PATTERN).finditer(masked):
            # A quotation at the end is a value of this run: "invalid literal: 'x'".
            if match["value"] is None:
                yield match[0]


def _named_errors(trace: StackTrace) -> list[str]:
    """Return the messages of a stack trace that name an exception, from its name on.

    If something other than a colon follows the name, as in Ruby's "no key (KeyError)",
    the message begins at the start of the line.
    """
    errors = []
    for message in trace.messages:
        match = compiled(_EXCEPTION_PATTERN).search(message)
        if match is not None:
            start, end = match.span()
            # Usually a colon or nothing follows: "KeyError: 'a'".
            if message[end : end + 1].strip(":\n"):
                start = message.rfind("\n", 0, start) + 1
            errors.append(message[start:])
    return errors


def _error_fields(trace: StackTrace) -> list[str]:
    """Return the fields below a trace that distinguish errors: "code: 'P2002'"."""
    pattern = compiled(_ERROR_FIELD_PATTERN)
    lines = "\n".join(trace.messages).split("\n")
    return [line.rstrip(",") for line in lines if pattern.fullmatch(line)]


def _error_message(trace: StackTrace) -> str:
    """Return the message of the error itself, without those of its causes.

    Python prints causes first, other languages last. If no message names an exception,
    all are returned.
    """
    errors = _named_errors(trace) or ["\n".join(trace.messages)]
    return errors[-1] if trace.ends_with_error else errors[0]


def _pattern_of(error_type: str, text: str) -> str:
    """Return an error's text, or JSON data, in one line with its particulars masked."""
    pattern = " ".join(_mask_text(error_type, text).split())
    # The kernel aligns its times: "[    1.5]" and "[12345.5]".
    return pattern.replace("[ <N>]", "[<N>]")


def _mask_text(error_type: str, text: str) -> str:
    """Return an error's text, which may be data, with its particulars masked.

    Particulars are what differs each time, such as numbers, ids and paths. Of a long
    text, only the beginning and the end are read, so it is not parsed as data.
    """
    with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return _data_pattern(error_type, _decode(text))
    return _mask_particulars(error_type, without_middle(text, MAX_READ_CHARS))


def _decode(text: str) -> Any:
    """Return data in JSON, or as Python prints it. Raises an error for other texts."""
    if len(text) > MAX_READ_CHARS or text[:1] + text[-1:] not in ("{}", "[]"):
        raise ValueError
    try:
        return json.loads(text)
    except ValueError:
        return ast.literal_eval(text)


def _data_pattern(error_type: str, value: Any) -> str:
    """Return data as a text of JSON with particulars masked, such as numbers and ids.

    Of a list, it has each different masked item once, sorted, so that neither order nor
    number of equal items matters.
    """
    if isinstance(value, list) and value:
        patterns = {_mask_particulars(error_type, _as_text(item)) for item in value}
        return f"[{', '.join(sorted(patterns))}]"
    return _mask_particulars(error_type, _as_text(value))


def _as_text(value: Any) -> str:
    """Return a text, or other JSON data as a text with its keys in order."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False).replace("\\n", "\n")


def _mask_particulars(error_type: str, text: str) -> str:
    """Return a text with its particulars masked, but not what an assertion expects.

    Particulars are what differs each time, such as numbers, ids and paths. In a claim,
    as the `error_type` says, figures stay: with another figure it is another claim.
    """
    particular = _with_rows(_PARTICULAR_PATTERN)
    mask = _mask_in_claim if error_type in CLAIM_ERROR_TYPES else _mask
    passages = split_assertions(error_type, text)
    return "".join(
        passage if is_asserted else particular.sub(mask, passage)
        for passage, is_asserted in passages
    )


# What stands in the patterns of assertions.
_SIGNATURE_PARTS = {
    # A value: a number, a text in quotes or angle brackets, a collection, a word.
    "VALUE": (
        rf"(?:[+-]?\d[\w.]*|{STRING_REGEX}|`[^`\n]{{0,100}}`|<[^<>\n]{{1,100}}>"
        r"|[\[({][^\n]{0,100}[\])}]|CONSTANT\b)"
    ),
    # Between a word and its value: "got: 3", "got = 3", "got 3".
    "GAP": r"[ \t]{0,9}[:=]?[ \t]{0,9}",
    # Between two values: "1 != 2", "expected 1 to equal 2".
    "COMPARISON": r"(?:[!=]==?|to [a-z]+(?: [a-z]+)?)",
    # Between a value and the text in which it was searched: "'x' not found in 'a b'".
    "SEARCH": r"\w+ found in",
    # What a value measures, in at most two words: " %", " million euros".
    "MEASURE": r"(?:[ \t]?[^\s\d,;.:<]{1,20}){0,2}?",
    # Between the right value and the wrong one: "4.2 %, not 12 %".
    "CORRECTION": "MEASURE(?:, not|,? INSTEAD)",
    # Before the expected value. A call of Jest has none: "expect(received)".
    "EXPECTING": r"EXPECTED(?:ed)?(?!\()",
}
# A line with an assertion, which may have a comment. A report of pytest has a `mark`
# before it: "E   assert total(3) == 4". Its `summary` names the test before: "FAILED
# test_cart.py::test_total - assert 5 == 4".
_ASSERT_STATEMENT_PATTERN = (
    r"(?m)^[ \t]*(?P<summary>FAILED [^\n]*? - )?(?P<mark>[E>][ \t]+)?"
    rf"(?:AssertionError: )?(?P<statement>assert\s(?:{STRING_REGEX}|[^\n#])*)"
    r"(?:#[^\n]*)?"
)
# A line in which pytest says which expression has a value of an assertion: "E  +  where
# 5 = total(3)". The groups are the value and the expression.
_WHERE_LINE_PATTERN = (
    r"(?m)^[ \t]*(?:E[ \t]+)?\+[ \t]+[a-z]+[ \t]+([^\n]{1,400}?) = ([^\n]+)\n?"
)
# A text in what pytest prints of an object before one of its attributes: "a b" in
# "where 'a b' = Done(args=['ls'], stdout='a b').stdout".
_FIELD_OF_OBJECT_PATTERN = rf"(?<==)(?:{STRING_REGEX})(?=[^\n]*\)\.\w)"
# The lines in which pytest says how the values differ: "E     At index 0 diff: 1 != 2".
_ASSERT_DETAIL_PATTERN = r"(?m)(?:\n[ \t]*E(?:[ \t][^\n]*)?$)+"
# An assertion that compares two values and nothing else: "assert 5 == 4".
_COMPARED_VALUES_PATTERN = r"assert VALUE(?P<rest> (?:[!=<>]=?|is) VALUE\s*)"
# An assertion that searches a text, which is the actual value: "assert 'x' in 'a b'".
_SEARCHED_TEXT_PATTERN = r"(?P<search>assert VALUE (?:not )?in )(?=['\"]).*"
# An empty value is expected: "assert ['no price'] == []". Then the actual value says
# what is wrong.
_NOTHING_EXPECTED_PATTERN = r"(?:COMPARISON|EXPECTING:?) ?<?(?:[\[({][\])}]|(['\"])\1)"
# Which of two values is the actual one, in the words of unittest, JUnit, Jest, Chai, Go
# and Rust. The text `before` and `after` it stays.
_ACTUAL_VALUE_PATTERNS = (
    # A line of its own: "Received: 5".
    (
        r"(?m)^(?P<before>[ \t]*RECEIVED(?: \w+)?[ \t]*:[ \t]*)"
        r"(?!.*\bwant\b).+(?P<after>)"
    ),
    # Before the expected value: "5 != 4".
    r"(?<![^\s:])(?P<before>)VALUE(?P<after> [!=]==? VALUE)",
    # The same in words: "expected 5 to equal 4".
    r"\b(?P<before>EXPECTING )VALUE(?P<after> COMPARISON VALUE)",
    # A text without what was searched in it.
    r"(?P<before>VALUE SEARCH )(?=['\"]).*(?P<after>)",
    # As in Go: "Total(3) = 5, want 4".
    r"(?P<before>= )VALUE(?P<after>[,;] EXPECTING)",
    # After the right one: "4.2 %, not 12 %", "4 pages instead of 5".
    r"(?<![\w.:/-])(?P<before>(?:VALUE)CORRECTION )VALUE(?P<after>MEASURE)",
    # After a word: "but was 5".
    r"\b(?P<before>(?:RECEIVED)GAP)(?>VALUE)(?!CORRECTION )(?P<after>)",
)
# The expected value, once the actual one is masked. Only the named group counts.
_EXPECTED_VALUES = (
    # The rest of a line: "Expected: 4", " right: 4".
    (
        r"^[ \t]*(?:EXPECTING|right)(?: \w+)?[ \t]*:[ \t]*"
        r"(?P<line>\S[^\n]*?)(?=[,;]?[ \t]RECEIVED\b|$)"
    ),
    # The value after a word: "want 4".
    r"\b(?:EXPECTING)GAP(?!<ACTUAL>)(?P<value>VALUE)",
    # The other one of two: "<ACTUAL> != 4".
    r"<ACTUAL> COMPARISON ?(?P<other>VALUE)",
    # The one before a wrong one, or what was searched: "4, not <ACTUAL>".
    r"(?<![\w.:/-])(?P<right>VALUE)(?=(?:CORRECTION| SEARCH) <ACTUAL>)",
)
_EXPECTED_VALUE_PATTERN = f"(?m){'|'.join(_EXPECTED_VALUES)}"


def split_assertions(error_type: str, text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text in passages, each with whether it must stay as it is.

    True stands beside what an assertion states or expects, because it identifies the
    error; the caller masks the other passages. Actual values have become `<ACTUAL>`,
    and what pytest repeats below a statement is left out.
    """
    if not _may_assert(f"{error_type} {text}".lower()):
        yield text, False
        return

    statements = list(compiled(_ASSERT_STATEMENT_PATTERN).finditer(text))
    # The end of a summary that is missing is -1.
    starts = [max(match.start(), match.end("summary")) for match in statements]
    ends = [*starts, len(text)]
    yield from _split_values(text[: ends[0]])
    for statement, end in zip(statements, ends[1:], strict=True):
        after = text[statement.end() : end]
        values = compiled(_WHERE_LINE_PATTERN).findall(after)
        text_of_statement = _without_values(statement["statement"], values)
        # If nothing is expected, the actual value says what is wrong, so it is masked.
        yield text_of_statement, not _expects_nothing(text_of_statement)

        # pytest repeats the values of the statement below it; they are left out.
        after = compiled(_WHERE_LINE_PATTERN).sub("", after)
        if statement["mark"]:
            after = compiled(_ASSERT_DETAIL_PATTERN).sub("", after, count=1)
        yield from _split_values(after)


def _may_assert(text: str) -> bool:
    """Return True if a text, in lower case, may assert something or correct a value."""
    if "assert" in text or " not " in text:
        return True
    words = _SIGNATURES.words("expected") | _SIGNATURES.words("instead")
    return any(word in text for word in words)


def _without_values(statement: str, values: Sequence[tuple[str, str]]) -> str:
    """Return an assertion without the actual values, which differ each time.

    `values` are pairs of a value and the expression that gave it, as pytest prints
    them: the expression takes the place of the value. Without pairs, the actual value
    is masked: "assert 5 == 4" becomes "assert <ACTUAL> == 4". It stays if an empty
    value was expected, because then it alone says what is wrong.
    """
    if not values and not _expects_nothing(statement):
        statement = _with_rows(_SEARCHED_TEXT_PATTERN).sub(
            r"\g<search><ACTUAL>", statement
        )
        comparison = _with_rows(_COMPARED_VALUES_PATTERN).fullmatch(statement)
        return f"assert <ACTUAL>{comparison['rest']}" if comparison else statement

    for value, expression in values:
        value_pattern = re.compile(rf"(?<![\w.]){re.escape(value)}(?![\w.])")
        # In a replacement, a backslash would begin the number of a group.
        replacement = expression.replace("\\", r"\\")
        statement = value_pattern.sub(replacement, statement, count=1)
    return compiled(_FIELD_OF_OBJECT_PATTERN).sub("<ACTUAL>", statement)


def _expects_nothing(statement: str) -> bool:
    """Return True if an assertion compares a value with an empty one."""
    comparison = _with_rows(_COMPARED_VALUES_PATTERN).fullmatch(statement)
    rest = comparison["rest"] if comparison else ""
    return bool(_with_rows(_NOTHING_EXPECTED_PATTERN).search(rest))


def _split_values(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text in passages, each with True if it is an expected value.

    Actual values are replaced by `<ACTUAL>`. If an empty value is expected, the text is
    one passage without a change: then the actual value says what is wrong.
    """
    if _with_rows(_NOTHING_EXPECTED_PATTERN).search(text):
        yield text, False
        return

    for actual in _ACTUAL_VALUE_PATTERNS:
        text = _with_rows(actual).sub(r"\g<before><ACTUAL>\g<after>", text)

    end = 0
    for expected in _with_rows(_EXPECTED_VALUE_PATTERN).finditer(text):
        # Only the named group that matched is the value; words before it are not.
        start, stop = expected.span(expected.lastgroup or 0)
        yield text[end:start], False
        yield text[start:stop], True
        end = stop
    yield text[end:], False


# The shapes of particulars, tried in this order. The mask of a shape is its name
# without the digit: an id, "N1", becomes "<N>".
_PARTICULAR_SHAPES = {
    # A path or a web address. It begins with a scheme, a drive or a slash ("/srv/app",
    # "C:\app", "https://a.test/x"), or with a name and a slash ("src/app.py").
    "PATH": (
        r"(?:(?:[a-z][a-z0-9+.-]{1,20}:/|[~.]\.?)?/|[A-Za-z]:\\"
        r"|(?<![/@+-])[\w@+-][\w.@+-]*/(?=\w[\w.@+-]*[/.][A-Za-z]))"
        r"(?>(?:[^\s'\"<>()\[\]{},;:]|:(?=\d))+)"
    ),
    # A mail address: "ann@mail.test". "name@1.2" is a package with its version.
    "HOST1": r"(?<![+-])[\w+-][\w.+-]{0,63}@(?!v?\d)[\w-]+(?:\.[\w-]+)+\b",
    # The name of a computer: "db.example.com".
    "HOST2": (
        r"(?<!-)(?:[A-Za-z0-9][\w-]*\.){2,}(?:[a-z]{2}|HOST_ENDING)\b(?!\.\w|\()"
    ),
    # A date with the name of a month: "02 Jan 2026 15:04:05", "10/Oct/2026:13:55:36".
    # "03-Feb-2026" would be a group of hexadecimal digits, too.
    "N8": (r"\d\d?[-/ ][A-Z][a-z]{2}[-/ ]\d{4}(?:[ :]\d\d:\d\d(?::\d\d)?)?(?!\w)"),
    "N1": "ID",
    # How long something took: "10m0s", "1 min 3 s".
    "N4": r"(?:\d+\s?[hm](?:in)?\s?)+\d+(?:\.\d+)?\s?[ms](?:in)?s?(?!\w)",
    # A number, a measure, a version or a time: "-3", "12.5 s", "v1.2", "2026-01-31
    # 10:15Z", "3:04 PM".
    "N3": (
        r"[<>~≤≥]?[+-]?v?\d+(?:(?:[-/:.,T]| (?=\d\d:))\d+)*(?:[eE][+-]?\d+)?Z?"
        r"(?:\s?(?:[nuµm]?s(?:ec)?|[AaPp][Mm]|[kKMGTPB%]i?[Bb]?)(?!\w))?(?!\w)"
    ),
    # The value of a field, in quotes or a truth: "user='ann'", "cached=True". Those of
    # some fields say what happened.
    "FIELD": (
        r"(?=\w[\w.-]*=['\"TFtf])(?!\w*TELLING_FIELD=)"
        r"\w[\w.-]*=(?:['\"][^'\"\s]{1,100}['\"]|(?i:true|false)\b)"
    ),
    # A word with a digit. It is not masked itself: `_mask` masks the ids in it.
    "WORD": r"\w*\d\w*",
}
# The names of day and month before a time or a date: "Mon Jan " in "Mon Jan 31 10:15",
# "Monday, " in "Monday, 02-Jan-2026".
_DATE_PREFIX_REGEX = (
    r"(?:[A-Z][a-z]{2}(?:[a-z]{0,3}day)?,? ){1,2} ?"
    r"(?=\d\d?[ -][A-Z\d]\w[:a-z][ -]?\d\d)"
)
# A shape is tried only at the start of a date or of a word that is not all letters (a
# hash may be), so most of a text is passed in one step. The time is linear: each
# character is looked at from few places.
_PARTICULAR_GROUPS = "|".join(
    f"(?P<{name}>{shape})" for name, shape in _PARTICULAR_SHAPES.items()
)
_PARTICULAR_PATTERN = (
    rf"(?<![\w.])(?:{_DATE_PREFIX_REGEX})?(?=[\w<>~≤≥+./-])"
    rf"(?:(?![A-Za-z_]++(?:[\s,;)\]}}'\"]|$))|(?=[a-f]{{7,40}}(?!\w)))"
    rf"(?:{_PARTICULAR_GROUPS})"
)
# The part of a name, between underscores, that is an id: "3fa9c1" in "job_3fa9c1".
_ID_SEGMENT_PATTERN = r"(?<![A-Za-z0-9])ID_PART(?![A-Za-z0-9])"
# The words right before a number that names an error: "exit status " before 127. After
# some of them, a number before a word counts things: "error: 5 items match".
_ERROR_NUMBER_PATTERN = (
    r"(?i)(?:ERROR_NUMBER|(?P<counting>ERROR_OR_COUNT))[\"']?[ :=\[\"(]{1,3}\Z"
)
# So many characters before a number are searched for these words.
_MAX_CODE_DISTANCE_CHARS = 24


def particulars(text: str) -> Iterator[tuple[int, int]]:
    """Yield where a text has a number, a time, an address, a path or a host."""
    for match in _with_rows(_PARTICULAR_PATTERN).finditer(text):
        if match.lastgroup not in ("WORD", "FIELD"):
            yield match.span()


def _mask(match: re.Match[str]) -> str:
    """Return the mask for a particular, that is for what differs each time.

    The group that matched says what it is, such as "PATH" or "N3", a number. Of a word
    only the ids in it are masked, and of a field only its value. A number that names an
    error stays, as in "exit status 127".
    """
    if match.lastgroup == "WORD":
        return _with_rows(_ID_SEGMENT_PATTERN).sub("<N>", match[0])
    if match.lastgroup == "FIELD":
        name = match[0].partition("=")[0]
        return f"{name}=<VALUE>"

    start = match.start()
    before = match.string[max(0, start - _MAX_CODE_DISTANCE_CHARS) : start]
    number_match = _with_rows(_ERROR_NUMBER_PATTERN).search(before)
    is_number = match[0].isdecimal() or match[0].startswith("0x")
    if number_match is not None and is_number:
        # In "error: 5 items match", the number counts things and names no error.
        is_count = compiled(r" [a-z]").match(match.string, match.end())
        if not (number_match["counting"] and is_count):
            return match[0]

    # The digit of a group only distinguishes the shapes with one mask.
    mask = (match.lastgroup or "").rstrip("12345678")
    return _mask_path(match) if mask == "PATH" else f"<{mask}>"


# The number of a line behind a path.
_LINE_PATTERN = r"[\"']?,? line \d|\(\d"


def _mask_path(match: re.Match[str]) -> str:
    """Return the mask for the path that was matched.

    The name of the file stays, as in `<PATH>/cart.py`. But a web address, and a path
    with the number of a line, is only a place, and is masked whole.
    """
    path = match[0]
    after = match.string[match.end() : match.end() + 10]
    # A line stands in the path, or the scheme of an address.
    is_place = compiled(r":[\d/]").search(path)
    if is_place or compiled(_LINE_PATTERN).match(after):
        return "<PATH>"
    return f"<PATH>/{_mask_file_name(path)}"


def _mask_file_name(path: str) -> str:
    """Return the last name of a path, with its ids and numbers masked."""
    name = path.rstrip("/\\.").replace("\\", "/").rpartition("/")[2]
    name = _with_rows(_ID_SEGMENT_PATTERN).sub("<N>", name)
    return compiled(r"\d+").sub("<N>", name)


# A figure that measures neither time nor bytes, which vary with each run.
_CLAIMED_FIGURE_PATTERN = (
    r"[<>~≤≥]?[+-]?\d+(?:,\d{3})*(?:[.,]\d+)?(?:[eE][+-]?\d+)?\s?%?"
)


def _mask_in_claim(match: re.Match[str]) -> str:
    """Return a figure of a claim as it is, and the mask of any other particular."""
    is_number = match.lastgroup == "N3"
    if is_number and compiled(_CLAIMED_FIGURE_PATTERN).fullmatch(match[0]):
        return match[0]
    return _mask(match)


# What comes before the words of an error: a type ("KeyError: "), a tool, a level, or a
# masked place ("<PATH>:<N>: "). The group has its name, unless it is a place.
_ERROR_TITLE_PATTERN = (
    r"(?:([A-Za-z][\w.$-]{0,79}(?:\[\w+\])?)|(?:<[A-Z]+>[:\d]*)+): (?=\S)"
)
MAX_ERROR_TITLES = 3  # titles of one error that are read


def untitled(pattern: str) -> Iterator[tuple[frozenset[str], str]]:
    """Yield a pattern as it is, then without its first title, without its first two …

    A title is a tool, a type of error or a place before the words of an error. Each
    result is a pair: the set of titles left out, in lower case, and what remains.

    >>> [words for _, words in untitled("Bash: cp: no such file")]
    ['Bash: cp: no such file', 'cp: no such file', 'no such file']
    """
    titles = frozenset[str]()
    yield titles, pattern
    for _ in range(MAX_ERROR_TITLES):
        title = compiled(_ERROR_TITLE_PATTERN).match(pattern)
        if title is None:
            return

        if title[1]:  # a masked place, such as "<PATH>:<N>", names nothing
            titles |= {title[1].lower()}
        pattern = pattern[title.end() :]
        yield titles, pattern


def untitled_digest(error_type: str, pattern: str, titled: bool) -> str:
    """Return the digest by which an error is found whatever its type or tool.

    It is the digest of the pattern's words. A title before them, as "cp: " in "cp: no
    such file", is left out first if it is the error type, or if the caller knows that
    the pattern is `titled`, that is begins with a title.
    """
    title = compiled(_ERROR_TITLE_PATTERN).match(pattern)
    is_type = title is not None and (title[1] or "").lower() == error_type.lower()
    if title is not None and (titled or is_type):
        pattern = pattern[title.end() :]
    return bare_digest(pattern)


def bare_digest(words: str) -> str:
    """Return the digest of the words of an error, without a type or a tool.

    Final dots and the case of words outside quotes make no difference.
    """
    # Every second part is a quotation, whose case may be the error: "KeyError: 'a'".
    parts = compiled(f"({_QUOTED_REGEX})").split(words)
    parts[::2] = [unquoted.casefold() for unquoted in parts[::2]]
    return digest_of("words", "".join(parts).rstrip("."))
