"""Signatures: the name of an error is its text with the particulars masked.

The occurrences of one error differ in numbers, ids, paths, hosts, times and addresses.
These particulars are masked, so all occurrences have the same pattern. An assertion
keeps its expression and its expected value; only the actual value is masked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from heedful.lessons.lesson import Signature, digest_of, short_digest
from heedful.lessons.words import compiled

# A longer text is read at its two ends, which is where errors are named.
MAX_SIGNATURE_CHARS = 4_096
# A JSON text with more brackets is read as prose, because it may be nested too deeply.
MAX_JSON_BRACKETS = 100


def signature(error_type: str, text: str) -> Signature:
    """Return the signature of an error; the same text always has the same signature.

    Numbers, times, ids and addresses become `<N>`, paths `<PATH>`, and hosts `<HOST>`.
    An assertion keeps its expression and its expected value; its actual value is
    masked. In JSON, the order of keys, and of the items of a list, does not matter.

    >>> signature("KeyError", "'a'") == signature("KeyError", "'b'")
    False
    >>> signature("Timeout", "after 12.5 s at 10.0.0.7").pattern
    'after <N> at <N>'
    """
    pattern = " ".join(_pattern(error_type, text.strip()).split())
    exact = short_digest(f"{error_type}:{text.lower().strip()}")
    return Signature(
        exact, pattern, digest=digest_of(error_type, pattern), error_type=error_type
    )


_STRATEGY_PREFIX = "of reflection "


def strategy_signature(failure: Signature, strategy: str) -> Signature:
    """Return the signature of a strategy, which differs from that of its failure.

    The pattern has no words of the failure, because these may be trusted less.
    """
    pattern = f"{_STRATEGY_PREFIX}{failure.digest}: {digest_of('strategy', strategy)}"
    digest = digest_of("strategy", pattern)
    return Signature(digest, pattern, digest=digest, error_type="strategy")


def failure_of(digest: str, pattern: str) -> str:
    """Return the digest of the failure behind a lesson; a strategy's pattern has it."""
    if pattern.startswith(_STRATEGY_PREFIX):
        return pattern.removeprefix(_STRATEGY_PREFIX).partition(":")[0]
    return digest


def _pattern(error_type: str, text: str) -> str:
    if len(text) > MAX_SIGNATURE_CHARS:
        half = MAX_SIGNATURE_CHARS // 2
        text = f"{text[:half]}\n{text[-half:]}"
    elif (
        text[:1] in ("[", "{")
        and text.count("[") + text.count("{") <= MAX_JSON_BRACKETS
    ):
        with suppress(ValueError):
            return _data_pattern(error_type, json.loads(text))
    return _masked(error_type, text)


def _data_pattern(error_type: str, value: Any) -> str:
    """Return the pattern of JSON data, whatever the order of a list's items."""
    if isinstance(value, list) and value:
        patterns = {_masked(error_type, _plain(item)) for item in value}
        return f"[{', '.join(sorted(patterns))}]"
    return _masked(error_type, _plain(value))


def _plain(value: Any) -> str:
    """Return a text, or other JSON data as a text with its keys in order."""
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True, ensure_ascii=False).replace("\\n", "\n")


def _masked(error_type: str, text: str) -> str:
    pieces = split_assertions(error_type, text)
    mask = partial(compiled(_PARTICULAR_PATTERN).sub, _mask)
    return "".join(piece if asserted else mask(piece) for piece, asserted in pieces)


MAX_WHERE_VALUES = 20
MAX_STATEMENT_CHARS = 8_192
# A text without one of these words has no assertion.
_ASSERTION_WORDS = ("assert", "expect", "want")
_VALUE_REGEX = (
    r"(?:[+-]?\d[\w.]*|'[^'\n]{0,100}'|\"[^\"\n]{0,100}\"|`[^`\n]{0,100}`|<[^<>\n]{1,100}>"
    r"|[\[({][^\n]{0,100}[\])}]|(?i:true|false|none|null|nil|undefined|nan)\b)"
)
_GAP_REGEX = r"[ \t]{0,9}[:=]?[ \t]{0,9}"
_COMPARISON_REGEX = r"(?:[!=]==?|to (?:equal|be))"
_ASSERT_STATEMENT_PATTERN = (
    r"(?m)^[ \t]*(E[ \t]+|>[ \t]+)?(?:AssertionError: )?(assert\s"
    r"(?:'[^'\n]{0,400}'|\"[^\"\n]{0,400}\"|[^\n#])*)(?:#[^\n]*)?"
)
# What pytest adds: the expressions whose values an assertion shows, and how the values
# differ.
_WHERE_LINE_PATTERN = (
    r"(?m)^[ \t]*(?:E[ \t]+)?\+[ \t]+(?:where|and)[ \t]+([^\n]{1,400}?) = ([^\n]+)\n?"
)
_ASSERT_DETAIL_PATTERN = r"(?:\n[ \t]*E(?:[ \t][^\n]*)?(?=\n|\Z))+"
_COMPARED_VALUES_PATTERN = (
    rf"assert {_VALUE_REGEX}(?P<rest> (?:==|!=|<=?|>=?|is|in|not in) {_VALUE_REGEX}\s*)"
)
# Which of two values is the actual one, in the words of unittest, JUnit, Jest, Chai, Go
# and Rust.
_ACTUAL_VALUE_PATTERNS = (
    (
        r"(?m)^(?P<before>[ \t]*(?i:actual|received|got|left)[ \t]*:[ \t]*)"
        r"(?!.*\bwant\b).+(?P<after>)"
    ),
    (
        rf"(?<![^\s:])(?P<before>){_VALUE_REGEX}"
        rf"(?P<after> {_COMPARISON_REGEX} {_VALUE_REGEX})"
    ),
    rf"(?P<before>= ){_VALUE_REGEX}(?P<after>[,;] (?:want|expected))",
    rf"\b(?P<before>(?i:actual|received|got|was){_GAP_REGEX}){_VALUE_REGEX}(?P<after>)",
)
_EXPECTED_VALUE_PATTERN = (
    r"(?m)^[ \t]*(?i:expected|want|right)[ \t]*:[ \t]*(?P<line>\S[^\n]*?)"
    r"(?=[,;]?[ \t](?:but|got|actual|received|was)\b|$)"
    rf"|\b(?i:expected|want){_GAP_REGEX}(?!<ACTUAL>)(?P<value>{_VALUE_REGEX})"
    rf"|<ACTUAL> {_COMPARISON_REGEX} ?(?P<other>{_VALUE_REGEX})"
)


def split_assertions(error_type: str, text: str) -> Iterator[tuple[str, bool]]:
    """Yield each piece of the text, and True if it is asserted: it is not masked."""
    words = f"{error_type} {text}".lower()
    if not any(word in words for word in _ASSERTION_WORDS):
        yield text, False
        return
    statements = list(compiled(_ASSERT_STATEMENT_PATTERN).finditer(text))
    ends = [statement.start() for statement in statements] + [len(text)]
    yield from _compared(text[: ends[0]])
    for statement, end in zip(statements, ends[1:], strict=True):
        after = text[statement.end() : end]
        values = compiled(_WHERE_LINE_PATTERN).findall(after)[:MAX_WHERE_VALUES]
        yield _asserted(statement[2], values), True
        if values:
            after = compiled(_WHERE_LINE_PATTERN).sub("", after)
        if statement[1]:  # pytest marked the line of the statement
            after = compiled(_ASSERT_DETAIL_PATTERN).sub("", after, count=1)
        yield from _compared(after)


def _asserted(statement: str, values: Sequence[tuple[str, str]]) -> str:
    """Return a statement with each value replaced by the expression that had it."""
    comparison = None
    if not values:
        comparison = compiled(_COMPARED_VALUES_PATTERN).fullmatch(statement)
    if comparison:
        return f"assert <ACTUAL>{comparison['rest']}"
    for value, expression in values:
        literal = re.compile(rf"(?<![\w.]){re.escape(value)}(?![\w.])")
        statement = literal.sub(expression.replace("\\", r"\\"), statement, count=1)
        statement = statement[:MAX_STATEMENT_CHARS]
    return statement


def _compared(text: str) -> Iterator[tuple[str, bool]]:
    """Mask actual values; yield each piece, and True if it is an expected value."""
    for actual in _ACTUAL_VALUE_PATTERNS:
        text = compiled(actual).sub(r"\g<before><ACTUAL>\g<after>", text)
    end = 0
    for expected in compiled(_EXPECTED_VALUE_PATTERN).finditer(text):
        start, stop = expected.span(expected.lastgroup or 0)
        yield text[end:start], False
        yield text[start:stop], True
        end = stop
    yield text[end:], False


# The shapes of particulars; a name without its digit is the mask. The first that
# matches counts.
_PARTICULAR_SHAPES = {
    # A path or a web address: from a scheme, a drive or a slash on, or a name, a slash
    # and more.
    "PATH": (
        r"(?:(?:[a-z][a-z0-9+.-]{1,20}:/|~|\.\.?)?/|[A-Za-z]:\\"
        r"|(?<![/@+-])[\w@+-][\w.@+-]*/(?=\w[\w.@+-]*[/.][A-Za-z]))"
        r"(?>(?:[^\s'\"<>()\[\]{},;:]|:(?=\d))+)"
    ),
    "HOST1": r"(?<![+-])[\w+-][\w.+-]{0,63}@[\w-]+(?:\.[\w-]+)+\b",
    "HOST2": (
        r"(?<!-)(?:[A-Za-z0-9][\w-]*\.){2,}(?:[a-z]{2}|com|net|org|edu|gov)\b"
        r"(?!\.\w|\()"
    ),
    # Groups of hexadecimal digits, an address, and a measure, a version or a time.
    "N1": (
        r"(?=[a-fA-F:-]{0,20}\d)(?=[\d:-]{0,36}[a-fA-F])"
        r"[\da-fA-F]{2,32}(?:[:-][\da-fA-F]{2,32}){2,15}(?!\w)"
    ),
    "N2": r"0x[\da-fA-F]+(?!\w)",
    "N3": (
        r"[<>~≤≥]?[+-]?v?\d+(?:(?:[-/:.,T]| (?=\d\d:))\d+)*(?:[eE][+-]?\d+|Z)?"
        r"(?:\s?(?:[nuµm]?s|[kKMGTP]i?[Bb]?|B|%)(?!\w))?(?!\w)"
    ),
    "WORD": r"\w*\d\w*",
}
# The names of day and month before a time.
_DATE_PREFIX_REGEX = r"(?:[A-Z][a-z]{2} ){1,2} ?(?=\d\d? \d\d:)"
# A shape is tried only at the start of a date or of a word that is not all letters, so
# most of a text is passed in one step. The time is linear: each character is looked at
# from few places.
_PARTICULAR_GROUPS = [
    f"(?P<{name}>{shape})" for name, shape in _PARTICULAR_SHAPES.items()
]
_PARTICULAR_PATTERN = (
    rf"(?<![\w.])(?:{_DATE_PREFIX_REGEX})?(?=[\w<>~≤≥+./-])"
    rf"(?![A-Za-z_]++(?:[\s,;)\]}}'\"]|$))"
    rf"(?:{'|'.join(_PARTICULAR_GROUPS)})"
)
# The part of a name, between underscores, that is an id: hexadecimal, or letters and
# digits.
_ID_SEGMENT_PATTERN = (
    r"(?<![A-Za-z0-9])(?:(?=[a-fA-F]*\d)[\da-fA-F]{6,}"
    r"|(?=[A-Za-z]*\d+[A-Za-z]+\d)[A-Za-z0-9]{8,})(?![A-Za-z0-9])"
)
# The words before a number that names an error, and how far before it they begin.
_ERROR_NUMBER_PATTERN = (
    r"(?i)(?:code|exit|status|errno|signal|http/[\d.]+)[\"']?[ :=\[\"]{1,3}\Z"
)
_MAX_CODE_DISTANCE_CHARS = 24


def _mask(match: re.Match[str]) -> str:
    mask = (match.lastgroup or "").rstrip("123")
    start = match.start()
    if mask == "WORD":
        return compiled(_ID_SEGMENT_PATTERN).sub("<N>", match[0])
    before = match.string[max(0, start - _MAX_CODE_DISTANCE_CHARS) : start]
    if match[0].isdecimal() and compiled(_ERROR_NUMBER_PATTERN).search(before):
        return match[0]  # the number names the error
    return f"<{mask}>"


# What stands before the words of an error: a type, a tool, a level, a place; and how
# many of them.
_ERROR_TITLE_PATTERN = (
    r"(?:([A-Za-z][\w.$-]{0,79}(?:\[\w+\])?)|(?:<[A-Z]+>[:\d]*)+): (?=\S)"
)
MAX_ERROR_TITLES = 3


def untitled(pattern: str) -> Iterator[tuple[frozenset[str], str]]:
    """Yield a pattern's titles, in lower case, and its words; one title more each time.

    >>> [words for _, words in untitled("Bash: cp: no such file")]
    ['Bash: cp: no such file', 'cp: no such file', 'no such file']
    """
    titles = frozenset[str]()
    yield titles, pattern
    for _ in range(MAX_ERROR_TITLES):
        title = compiled(_ERROR_TITLE_PATTERN).match(pattern)
        if title is None:
            return
        titles |= {(title[1] or "").lower()} - {""}
        pattern = pattern[title.end() :]
        yield titles, pattern


def words_of(error_type: str, pattern: str, titled: bool) -> str:
    """Return the digest by which a lesson is found without its type or tool.

    That is the pattern without its error type or, if it is `titled`, without its first
    title.
    """
    title = compiled(_ERROR_TITLE_PATTERN).match(pattern)
    if title and (titled or (title[1] or "").lower() == error_type.lower()):
        pattern = pattern[title.end() :]
    return bare_digest(pattern)


def bare_digest(words: str) -> str:
    """Return the digest by which an error is found without its type and tool."""
    return digest_of("words", words)
