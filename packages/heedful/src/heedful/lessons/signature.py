"""Signatures: the name of an error is its text with the particulars masked.

The occurrences of one error differ in numbers, ids, paths, hosts, times and addresses.
These particulars are masked, so all occurrences have the same pattern. An assertion
keeps its expression and its expected value; only the actual value is masked. So does a
sentence that corrects a value: "4.2, not 12". A claim keeps all its figures.

A stack trace says better than words what failed. Its name has the exceptions, the
frames of the program, and of the messages only what distinguishes errors of one
exception: codes, names in quotes, and what an assertion expects.

The text is redacted first: what masking leaves of a secret is not recognised.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from heedful.lessons.lesson import Signature
from heedful.lessons.scope import MAX_READ_CHARS, digest_of, short_digest
from heedful.lessons.stack_traces import StackTrace, read_trace
from heedful.lessons.words import compiled
from heedful.redact import TERMINAL_CODES, redact

# The types of errors whose text is a claim: another figure makes it another claim.
CLAIM_ERROR_TYPES = frozenset({"conflict", "factual_error", "unverified_claim"})


def signature(error_type: str, text: str) -> Signature:
    """Return the signature of an error, by which it is recognised when it comes again.

    The same type and text always have the same signature. In its pattern, numbers,
    times, ids and addresses become `<N>`, paths `<PATH>`, and hosts `<HOST>`. An
    assertion keeps its expression and its expected value; its actual value is masked.
    An error of a type in `CLAIM_ERROR_TYPES` keeps its figures. In JSON, neither the
    order of keys nor, if the whole text is a list, the order and number of equal items
    matters. Errors with the same stack trace may differ in words and values. Secrets
    are redacted first.

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
    visible_text = visible_text.strip()

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
    figures = set[str]()
    for match in compiled(_PARTICULAR_PATTERN).finditer(text):
        if match.lastgroup == "N3":
            figures.add(match[0])
    return figures


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
# A text in quotes, also as Ruby wrote them: "`price'".
_QUOTED_REGEX = r"(?<!\w)(?:'[^'\n]*'|\"[^\"\n]*\"|`[^`'\n]*[`'])(?!\w)"
# What distinguishes errors of one exception, in a masked message: the exception, with
# the key that is all its message; a name in quotes; a number that names an error; a
# code in capitals. A `value` after a sentence does not: "invalid literal: 'x'".
_DISTINGUISHING_PATTERN = (
    rf"(?m){_EXCEPTION_REGEX}(?:: {_QUOTED_REGEX}$)?|(?<=: )(?P<value>{_QUOTED_REGEX})$"
    rf"|{_QUOTED_REGEX}|(?<![\w.<-])\d\w*|(?<![\w<])[A-Z][A-Z\d_]{{2,}}\b"
)


def _pattern_of_trace(error_type: str, trace: StackTrace) -> str:
    """Return what identifies an error with a stack trace: words, and where it happened.

    If exceptions and functions are named, these identify the error, and of the messages
    only names, codes and expected values are taken. Else all words of the messages are.
    The frames, which are calls such as "total (cart.py)", follow after "at".
    """
    errors = _named_errors(trace)
    if errors and any(frame.function for frame in trace.frames):
        text = _read_ends("\n".join(errors))
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
        masked = compiled(_PARTICULAR_PATTERN).sub(_mask, passage)
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
        if match is None:
            continue
        start = match.start()
        end = match.end()
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
    errors = _named_errors(trace)
    if not errors:
        return "\n".join(trace.messages)
    if trace.ends_with_error:
        return errors[-1]
    return errors[0]


def _pattern_of(error_type: str, text: str) -> str:
    """Return an error's text, or JSON data, in one line with its particulars masked."""
    pattern = " ".join(_mask_text(error_type, text).split())
    # The kernel aligns its times: "[    1.5]" and "[12345.5]".
    return pattern.replace("[ <N>]", "[<N>]")


def _mask_text(error_type: str, text: str) -> str:
    """Return an error's text, which may be JSON, with its particulars masked.

    Particulars are what differs each time, such as numbers, ids and paths. Of a long
    text, only the beginning and the end are read, so it is not parsed as JSON.
    """
    if len(text) > MAX_READ_CHARS:
        return _mask_particulars(error_type, _read_ends(text))

    if text.startswith(("[", "{")):
        with suppress(ValueError, RecursionError):  # it is prose after all
            return _data_pattern(error_type, json.loads(text))
    return _mask_particulars(error_type, text)


def _read_ends(text: str) -> str:
    """Return a text, a long one without its middle."""
    if len(text) <= MAX_READ_CHARS:
        return text
    half = MAX_READ_CHARS // 2
    return f"{text[:half]}\n{text[-half:]}"


def _data_pattern(error_type: str, value: Any) -> str:
    """Return JSON data as a text with its particulars masked, such as numbers and ids.

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
    particular = compiled(_PARTICULAR_PATTERN)
    mask = _mask_in_claim if error_type in CLAIM_ERROR_TYPES else _mask
    passages = split_assertions(error_type, text)
    return "".join(
        passage if is_asserted else particular.sub(mask, passage)
        for passage, is_asserted in passages
    )


# A text without one of these words has no assertion, and no corrected value.
_ASSERTION_WORD_PATTERN = r"(?i)assert|expect|want|\s(?:not|instead of|rather than)\s"
# A value: a number, a text in quotes or angle brackets, a collection, True or null.
_VALUE_REGEX = (
    r"(?:[+-]?\d[\w.]*|'[^'\n]{0,100}'|\"[^\"\n]{0,100}\"|`[^`\n]{0,100}`|<[^<>\n]{1,100}>"
    r"|[\[({][^\n]{0,100}[\])}]|(?i:true|false|none|null|nil|undefined|nan)\b)"
)
# Between a word and its value: "got: 3", "got = 3", "got 3".
_GAP_REGEX = r"[ \t]{0,9}[:=]?[ \t]{0,9}"
# Between two values: "1 != 2", "expected 1 to equal 2".
_COMPARISON_REGEX = r"(?:[!=]==?|to (?:equal|be|include))"
# Between a value and the text in which it was searched: "'x' not found in 'a b'".
_SEARCH_REGEX = r" (?:not|unexpectedly) found in "
# What a value measures, in at most two words: " %", " million euros".
_MEASURE_REGEX = r"(?:[ \t]?[^\s\d,;.:<]{1,20}){0,2}?"
# Between the right value and the wrong one: "4.2, not 12".
_CORRECTION_REGEX = r"(?:, not|,? (?:and not|but not|instead of|rather than)) "
# A line with an assertion, without its comment. In a report of pytest the first group
# is the mark: "E   assert total(3) == 4". The second group is the statement.
_ASSERT_STATEMENT_PATTERN = (
    r"(?m)^[ \t]*(E[ \t]+|>[ \t]+)?(?:AssertionError: )?(assert\s"
    r"(?:'[^'\n]{0,400}'|\"[^\"\n]{0,400}\"|[^\n#])*)(?:#[^\n]*)?"
)
# A line in which pytest says which expression has a value of an assertion: "E  +  where
# 5 = total(3)". The groups are the value and the expression.
_WHERE_LINE_PATTERN = (
    r"(?m)^[ \t]*(?:E[ \t]+)?\+[ \t]+(?:where|and)[ \t]+([^\n]{1,400}?) = ([^\n]+)\n?"
)
# The lines in which pytest says how the values differ: "E     At index 0 diff: 1 != 2".
_ASSERT_DETAIL_PATTERN = r"(?:\n[ \t]*E(?:[ \t][^\n]*)?(?=\n|\Z))+"
# An assertion that compares two values and nothing else: "assert 5 == 4".
_COMPARED_VALUES_PATTERN = (
    rf"assert {_VALUE_REGEX}(?P<rest> (?:==|!=|<=?|>=?|is) {_VALUE_REGEX}\s*)"
)
# An assertion that searches a text, which is the actual value: "assert 'x' in 'a b'".
_SEARCHED_TEXT_PATTERN = rf"(?P<search>assert {_VALUE_REGEX} (?:not )?in )(?=['\"]).*"
# An empty value is expected: "assert ['no price'] == []". Then the actual value says
# what is wrong.
_NOTHING_EXPECTED_PATTERN = (
    rf"(?:{_COMPARISON_REGEX}|(?i:expected|want):?) ?<?"
    r"(?:[\[({][\])}]|(['\"])\1)"
)
# Which of two values is the actual one, in the words of unittest, JUnit, Jest, Chai, Go
# and Rust. The text `before` and `after` it stays.
_ACTUAL_VALUE_PATTERNS = (
    # A line of its own: "Received: 5".
    (
        r"(?m)^(?P<before>[ \t]*(?i:actual|received|got|left)(?: \w+)?[ \t]*:[ \t]*)"
        r"(?!.*\bwant\b).+(?P<after>)"
    ),
    # Before the expected value: "5 != 4", "expected 5 to equal 4".
    (
        rf"(?<![^\s:])(?P<before>){_VALUE_REGEX}"
        rf"(?P<after> {_COMPARISON_REGEX} {_VALUE_REGEX})"
    ),
    # A text without what was searched in it.
    rf"(?P<before>{_VALUE_REGEX}{_SEARCH_REGEX})(?=['\"]).*(?P<after>)",
    # As in Go: "Total(3) = 5, want 4".
    rf"(?P<before>= ){_VALUE_REGEX}(?P<after>[,;] (?:want|expected))",
    # After the right one: "4.2 %, not 12 %", "4 pages instead of 5".
    (
        rf"(?<![\w.:/-])(?P<before>{_VALUE_REGEX}{_MEASURE_REGEX}{_CORRECTION_REGEX})"
        rf"{_VALUE_REGEX}(?P<after>{_MEASURE_REGEX})"
    ),
    # After a word: "but was 5".
    (
        rf"\b(?P<before>(?i:actual|received|got|was){_GAP_REGEX})(?>{_VALUE_REGEX})"
        rf"(?!{_MEASURE_REGEX}{_CORRECTION_REGEX})(?P<after>)"
    ),
)
# The expected value, once the actual one is masked: the rest of a `line` ("Expected:
# 4"), the `value` after a word ("want 4"), the `other` of two ("<ACTUAL> != 4"), or the
# `right` one before a wrong one ("4, not <ACTUAL>").
_EXPECTED_VALUE_PATTERN = (
    r"(?m)^[ \t]*(?i:expected|want|right)(?: \w+)?[ \t]*:[ \t]*(?P<line>\S[^\n]*?)"
    r"(?=[,;]?[ \t](?:but|got|actual|received|was)\b|$)"
    rf"|\b(?i:expected|want){_GAP_REGEX}(?!<ACTUAL>)(?P<value>{_VALUE_REGEX})"
    rf"|<ACTUAL> {_COMPARISON_REGEX} ?(?P<other>{_VALUE_REGEX})"
    rf"|(?<![\w.:/-])(?P<right>{_VALUE_REGEX})"
    rf"(?=(?:{_MEASURE_REGEX}{_CORRECTION_REGEX}|{_SEARCH_REGEX})<ACTUAL>)"
)


def split_assertions(error_type: str, text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text in passages, each with whether it must stay as it is.

    True stands beside what an assertion states or expects, because it identifies the
    error; the caller masks the other passages. Actual values have become `<ACTUAL>`,
    and what pytest repeats below a statement is left out.
    """
    if not compiled(_ASSERTION_WORD_PATTERN).search(f"{error_type} {text}"):
        yield text, False
        return

    statements = list(compiled(_ASSERT_STATEMENT_PATTERN).finditer(text))
    ends = [statement.start() for statement in statements] + [len(text)]
    yield from _split_values(text[: ends[0]])
    for statement, end in zip(statements, ends[1:], strict=True):
        after = text[statement.end() : end]
        values = compiled(_WHERE_LINE_PATTERN).findall(after)
        text_of_statement = _without_values(statement[2], values)
        # If nothing is expected, the actual value says what is wrong, so it is masked.
        yield text_of_statement, not _expects_nothing(text_of_statement)

        # pytest repeats the values of the statement below it; they are left out.
        if values:
            after = compiled(_WHERE_LINE_PATTERN).sub("", after)
        if statement[1]:
            after = compiled(_ASSERT_DETAIL_PATTERN).sub("", after, count=1)
        yield from _split_values(after)


def _without_values(statement: str, values: Sequence[tuple[str, str]]) -> str:
    """Return an assertion without the actual values, which differ each time.

    `values` are pairs of a value and the expression that gave it, as pytest prints
    them: the expression takes the place of the value. Without pairs, the actual value
    is masked: "assert 5 == 4" becomes "assert <ACTUAL> == 4". It stays if an empty
    value was expected, because then it alone says what is wrong.
    """
    if not values and not _expects_nothing(statement):
        statement = compiled(_SEARCHED_TEXT_PATTERN).sub(
            r"\g<search><ACTUAL>", statement
        )
        comparison = compiled(_COMPARED_VALUES_PATTERN).fullmatch(statement)
        return f"assert <ACTUAL>{comparison['rest']}" if comparison else statement

    for value, expression in values:
        value_pattern = re.compile(rf"(?<![\w.]){re.escape(value)}(?![\w.])")
        # In a replacement, a backslash would begin the number of a group.
        replacement = expression.replace("\\", r"\\")
        statement = value_pattern.sub(replacement, statement, count=1)
    return statement


def _expects_nothing(statement: str) -> bool:
    """Return True if an assertion compares a value with an empty one."""
    comparison = compiled(_COMPARED_VALUES_PATTERN).fullmatch(statement)
    if comparison is None:
        return False
    return compiled(_NOTHING_EXPECTED_PATTERN).search(comparison["rest"]) is not None


def _split_values(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text in passages, each with True if it is an expected value.

    Actual values are replaced by `<ACTUAL>`. If an empty value is expected, the text is
    one passage without a change: then the actual value says what is wrong.
    """
    if compiled(_NOTHING_EXPECTED_PATTERN).search(text):
        yield text, False
        return

    for actual in _ACTUAL_VALUE_PATTERNS:
        text = compiled(actual).sub(r"\g<before><ACTUAL>\g<after>", text)

    end = 0
    for expected in compiled(_EXPECTED_VALUE_PATTERN).finditer(text):
        # Only the named group that matched is the value; words before it are not.
        start, stop = expected.span(expected.lastgroup or 0)
        yield text[end:start], False
        yield text[start:stop], True
        end = stop
    yield text[end:], False


# The shapes of particulars, tried in this order. The mask of a shape is its name
# without the digit: an address in memory, "N2", becomes "<N>".
_PARTICULAR_SHAPES = {
    # A path or a web address. It begins with a scheme, a drive or a slash ("/srv/app",
    # "C:\app", "https://a.test/x"), or with a name and a slash ("src/app.py").
    "PATH": (
        r"(?:(?:[a-z][a-z0-9+.-]{1,20}:/|~|\.\.?)?/|[A-Za-z]:\\"
        r"|(?<![/@+-])[\w@+-][\w.@+-]*/(?=\w[\w.@+-]*[/.][A-Za-z]))"
        r"(?>(?:[^\s'\"<>()\[\]{},;:]|:(?=\d))+)"
    ),
    # A mail address: "ann@mail.test". "name@1.2" is a package with its version.
    "HOST1": r"(?<![+-])[\w+-][\w.+-]{0,63}@(?!v?\d)[\w-]+(?:\.[\w-]+)+\b",
    # The name of a computer: "db.example.com".
    "HOST2": (
        r"(?<!-)(?:[A-Za-z0-9][\w-]*\.)(?:(?:[A-Za-z0-9][\w-]*\.)+(?:[a-z]{2}|com|net"
        r"|org|edu|gov|local)|internal)\b(?!\.\w|\()"
    ),
    # A date with the name of a month: "02-Jan-26 15:04:05", "10/Oct/2026:13:55:36".
    # "03-Feb-26" would be a group of hexadecimal digits, too.
    "N8": (
        r"\d\d?(?:[-/][A-Z][a-z]{2}[-/]\d\d(?:\d\d)?| [A-Z][a-z]{2} \d{4})"
        r"(?:[ :]\d\d:\d\d(?::\d\d)?)?(?!\w)"
    ),
    # Groups of hexadecimal digits with hyphens or colons, as in a UUID: "0a-1b-2c".
    "N1": (
        r"(?=[a-fA-F:-]{0,20}\d)(?=[\d:-]{0,36}[a-fA-F])"
        r"[\da-fA-F]{2,32}(?:[:-][\da-fA-F]{2,32}){2,15}(?!\w)"
    ),
    # An address in memory: "0x7f3a".
    "N2": r"0x[\da-fA-F]+(?!\w)",
    # How long something took: "10m0s", "1 min 3 s".
    "N4": r"(?:\d+\s?(?:h|min|m)\s?)+\d+(?:\.\d+)?\s?(?:min|m?s|m)(?!\w)",
    # What Kubernetes adds to the name of a pod: "6f499d645b-vvmnl".
    "N5": (
        r"(?<=-)(?:(?=[a-z]*\d)[a-z\d]{8,10}-[a-z\d]{5}"
        r"|(?=[a-z]*\d)(?=\d*[a-z])[bcdf-hj-np-tv-xz24-9]{5})(?!\w)"
    ),
    # A Nano ID, which has 21 characters: "V1StGXR8_Z5jdHi6B-myT".
    "N6": (
        r"(?<!-)(?=[\w-]{21}(?![\w-]))(?=[\w-]*[a-z])(?=[\w-]*[A-Z])"
        r"[\w-]*\d[A-Za-z_-]+\d[\w-]*"
    ),
    # The hash of a commit without a digit: "deadbee".
    "N7": r"[a-f]{7,40}(?!\w)",
    # A number, a measure, a version or a time: "-3", "12.5 s", "v1.2", "2026-01-31
    # 10:15Z", "3:04 PM".
    "N3": (
        r"[<>~≤≥]?[+-]?v?\d+(?:(?:[-/:.,T]| (?=\d\d:))\d+)*(?:[eE][+-]?\d+|Z)?"
        r"(?:\s?(?:[nuµm]?s|sec|[AaPp][Mm]|[kKMGTP]i?[Bb]?|B|%)(?!\w))?(?!\w)"
    ),
    # The value of a field, in quotes or a truth: "user='ann'", "cached=True". Those of
    # some fields say what happened.
    "VALUE": (
        r"(?=\w[\w.-]*=['\"TFtf])(?!(?i:\w*(?:stat\w*|code|reason|error|msg|message))=)"
        r"\w[\w.-]*=(?:'[^'\s]{1,100}'|\"[^\"\s]{1,100}\"|(?i:true|false)\b)"
    ),
    # A word with a digit. It is not masked itself: `_mask` masks the ids in it.
    "WORD": r"\w*\d\w*",
}
# The names of day and month before a time or a date: "Mon Jan " in "Mon Jan 31 10:15",
# "Monday, " in "Monday, 02-Jan-26".
_DATE_PREFIX_REGEX = (
    r"(?:[A-Z][a-z]{2}(?:[a-z]{0,3}day)?,? ){1,2} ?"
    r"(?=\d\d? \d\d:|\d\d?[ -][A-Z][a-z]{2}[ -]\d\d)"
)
# A shape is tried only at the start of a date or of a word that is not all letters (a
# hash may be), so
# most of a text is passed in one step. The time is linear: each character is looked at
# from few places.
_PARTICULAR_GROUPS = [
    f"(?P<{name}>{shape})" for name, shape in _PARTICULAR_SHAPES.items()
]
_PARTICULAR_PATTERN = (
    rf"(?<![\w.])(?:{_DATE_PREFIX_REGEX})?(?=[\w<>~≤≥+./-])"
    rf"(?:(?![A-Za-z_]++(?:[\s,;)\]}}'\"]|$))|(?=[a-f]{{7,40}}(?!\w)))"
    rf"(?:{'|'.join(_PARTICULAR_GROUPS)})"
)
# The part of a name, between underscores, that is an id: "3fa9c1" (hexadecimal) in
# "job_3fa9c1", "x7k2m9q1" (letters and digits) in "run_x7k2m9q1", a long hexadecimal
# number after letters, as those of OpenStack's Swift, and what a compiler counts in
# "fn__12".
_ID_SEGMENT_PATTERN = (
    r"(?<![A-Za-z0-9])(?:(?=[a-fA-F]*\d)[\da-fA-F]{6,}"
    r"|[a-z]{1,3}(?=[a-f]*\d)[\da-f]{16,}|(?<=__)\d+"
    r"|(?=[A-Za-z]*\d+[A-Za-z]+\d)[A-Za-z0-9]{8,})(?![A-Za-z0-9])"
)
# What is masked in the name of a file: an id, and any number.
_NAME_ID_PATTERN = rf"{_ID_SEGMENT_PATTERN}|\d+"
# The words right before a number that names an error: "exit status " before 127. After
# "error:" and "returned", a number before a word counts things: "error: 5 items match".
_ERROR_NUMBER_PATTERN = (
    r"(?i)(?:code|exit(?: value)?|\brc|status|errno|hresult|signal|daemon:|curl:"
    r"|http(?:/[\d.]+)?|error(?= \Z)|(?P<counting>error|returned))"
    r"[\"']?[ :=\[\"(]{1,3}\Z"
)
_COUNTED_PATTERN = r" [a-z]"
# So many characters before a number are searched for these words.
_MAX_CODE_DISTANCE_CHARS = 24


def particulars(text: str) -> Iterator[tuple[int, int]]:
    """Yield where a text has a number, a time, an address, a path or a host."""
    for match in compiled(_PARTICULAR_PATTERN).finditer(text):
        if match.lastgroup not in ("WORD", "VALUE"):
            yield match.span()


# A date, a time of day, seconds since 1970, or how long something took: "0.12s".
_CLOCK_REGEX = (
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.,]*)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?|1[5-9]\d{8}(?:\d{3})?(?:\.\d+)?(?![\d.])"
    r"|\d+\.\d+ ?m?s\b"
)
_CHANGING_PATTERN = (
    rf"(?<![\w.])(?:{_CLOCK_REGEX}|{_PARTICULAR_SHAPES['N1']}"
    # A number alone may count what is done.
    rf"|{_PARTICULAR_SHAPES['N2']})|(?!\d+(?![A-Za-z0-9])){_ID_SEGMENT_PATTERN}"
)


def mask_moments(text: str) -> str:
    """Return a text with its times and ids masked; other figures stay.

    >>> mask_moments("10:15:02 job 3fa9c1d2: 40 % done")
    '<N> job <N>: 40 % done'
    """
    return compiled(_CHANGING_PATTERN).sub("<N>", text)


def _mask(match: re.Match[str]) -> str:
    """Return the mask for a particular, that is for what differs each time.

    The group that matched says what it is, such as "PATH" or "N3", a number. Of a word
    only the ids in it are masked, and of a field only its value. A number that names an
    error stays, as in "exit status 127".
    """
    if match.lastgroup == "WORD":
        return compiled(_ID_SEGMENT_PATTERN).sub("<N>", match[0])
    if match.lastgroup == "VALUE":
        name = match[0].partition("=")[0]
        return f"{name}=<VALUE>"

    start = match.start()
    before = match.string[max(0, start - _MAX_CODE_DISTANCE_CHARS) : start]
    number_match = compiled(_ERROR_NUMBER_PATTERN).search(before)
    is_number = match[0].isdecimal() or match.lastgroup == "N2"
    if number_match is not None and is_number:
        # In "error: 5 items match", the number counts things and names no error.
        is_count = compiled(_COUNTED_PATTERN).match(match.string, match.end())
        if not (number_match["counting"] and is_count):
            return match[0]

    # The digit of a group only distinguishes the shapes with one mask.
    mask = (match.lastgroup or "").rstrip("12345678")
    return _mask_path(match) if mask == "PATH" else f"<{mask}>"


# In a path: the number of a line, or the scheme of an address.
_LINE_PLACE_PATTERN = r":\d|://"
_LINE_PATTERN = r"[\"']?,? line \d|\(\d"


def _mask_path(match: re.Match[str]) -> str:
    """Return the mask for the path that was matched.

    The name of the file stays, as in `<PATH>/cart.py`. But a web address, and a path
    with the number of a line, is only a place, and is masked whole.
    """
    path = match[0]
    after = match.string[match.end() : match.end() + 10]
    is_place = compiled(_LINE_PLACE_PATTERN).search(path)
    if is_place or compiled(_LINE_PATTERN).match(after):
        return "<PATH>"
    return f"<PATH>/{_mask_file_name(path)}"


def _mask_file_name(path: str) -> str:
    """Return the last name of a path, with its ids and numbers masked."""
    name = path.rstrip("/\\.").replace("\\", "/").rpartition("/")[2]
    return compiled(_NAME_ID_PATTERN).sub("<N>", name)


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


# A text in quotes, whose case may be the error: "KeyError: 'a'".
_SAID_PATTERN = r"((?<!\w)(?:'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`)(?!\w))"


def bare_digest(words: str) -> str:
    """Return the digest of the words of an error, without a type or a tool.

    Final dots and the case of words outside quotes make no difference.
    """
    # Every second part is a quotation, whose case may be the error.
    parts = compiled(_SAID_PATTERN).split(words)
    parts[::2] = [unquoted.casefold() for unquoted in parts[::2]]
    return digest_of("words", "".join(parts).rstrip("."))
