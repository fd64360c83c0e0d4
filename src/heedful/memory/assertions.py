"""What an assertion asserts: its expression and the expected value, not the actual one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MOST_VALUES = 20
MOST_STATEMENT = 8_192

# A text without one of these is not searched any further.
_ABOUT = ("assert", "expect", "want", "differ")
_VALUE = (
    r"(?:[+-]?\d[\w.]*|'[^'\n]{0,100}'|\"[^\"\n]{0,100}\"|`[^`\n]{0,100}`|<[^<>\n]{1,100}>"
    r"|[\[({][^\n]{0,100}[\])}]|(?i:true|false|none|null|nil|undefined|nan)\b)"
)
_GAP = r"(?: value)?[ \t]{0,9}[:=]?[ \t]{0,9}"
_OTHER = r"(?:[!=]==?|not (?:less|greater) than(?: or equal to)?|matches expected|to [a-z ]{1,40}?)"
_STATEMENT = re.compile(
    r"^[ \t]*(E[ \t]+|>[ \t]+)?(?:AssertionError: )?(assert\s"
    r"(?:'[^'\n]{0,400}'|\"[^\"\n]{0,400}\"|[^\n#])*)(?:#[^\n]*)?",
    re.MULTILINE,
)
# What pytest adds: which expression had a value that the assertion shows, and how the two differ.
_WHERE = re.compile(
    r"^[ \t]*(?:E[ \t]+)?\+[ \t]+(?:where|and)[ \t]+([^\n]{1,400}?) = ([^\n]+)\n?", re.MULTILINE
)
_DETAIL = re.compile(r"(?:\n[ \t]*E(?:[ \t][^\n]*)?(?=\n|\Z))+")
_BOTH_VALUES = re.compile(rf"assert {_VALUE}(?P<rest> (?:==|!=|<=?|>=?|is|in|not in) {_VALUE}\s*)")
_NAMED = r"(?P<before>[ \t]*(?i:actual|received|got|left)[ \t]*:[ \t]*)"
# Which of two values is the actual one, in the words of unittest, JUnit, Jest, Chai, Go and Rust.
_ACTUAL = tuple(
    re.compile(pattern, re.MULTILINE)
    for pattern in (
        rf"^{_NAMED}(?!.*\b(?:want|expected)).+(?P<after>)",
        rf"\b(?P<before>[Ee]xpected ){_VALUE}(?P<after> to [a-z ]{{1,40}}?{_VALUE})",
        rf"(?<![^\s:])(?P<before>){_VALUE}(?P<after> {_OTHER} {_VALUE})",
        rf"(?P<before>= ){_VALUE}(?P<after>[,;] (?:want|expected))",
        rf"\b(?P<before>(?i:but was|actual|received|got|was|found){_GAP}){_VALUE}(?P<after>)",
    )
)
_EXPECTED = re.compile(
    r"^[ \t]*(?i:expected|want|right)[ \t]*:[ \t]*(?P<line>\S[^\n]*?)"
    r"(?=[,;]?[ \t](?:but|got|actual|received|was)\b|$)"
    rf"|\b(?i:expected|want|wanted|desired|right){_GAP}(?!<ACTUAL>)(?P<value>{_VALUE})"
    rf"|<ACTUAL> {_OTHER} ?(?P<other>{_VALUE})",
    re.MULTILINE,
)
_MINUS = re.compile(r"^-[ \t]", re.MULTILINE)
_PLUS = re.compile(r"^\+[ \t]", re.MULTILINE)
_MINUS_IS_EXPECTED = re.compile(r"^-{1,3}[ \t]*expected\b", re.MULTILINE | re.IGNORECASE)
_HEADS = re.compile(
    r"^(?:-{1,3}[ \t]*expected\b|\+{1,3}[ \t]*(?:received|actual)\b|(?:first|second) \w+ contains )"
    r"[^\n]*\n?"
    r"|^first (?:differing|extra) element [^\n]*\n(?:[^\n]+\n){1,2}",
    re.MULTILINE | re.IGNORECASE,
)


def pieces(error_type: str, text: str) -> Iterator[tuple[str, bool]]:
    """The text in pieces, each with whether it is asserted, and so kept as it stands."""
    words = f"{error_type} {text}".lower()
    if not any(word in words for word in _ABOUT):
        yield text, False
        return
    found = list(_STATEMENT.finditer(text))
    yield from _compared(text[: found[0].start()] if found else text)
    ends = [one.start() for one in found[1:]] + [len(text)] * bool(found)
    for one, end in zip(found, ends, strict=True):
        rest = text[one.end() : end]
        values = _WHERE.findall(rest)[:MOST_VALUES]
        yield _asserted(one[2], values), True
        rest = _WHERE.sub("", rest) if values else rest
        yield from _compared(_DETAIL.sub("", rest, count=1) if one[1] else rest)


def _asserted(statement: str, values: Sequence[tuple[str, str]]) -> str:
    """The statement with the expressions, not the values that they had."""
    if not values and (both := _BOTH_VALUES.fullmatch(statement)):
        return f"assert <ACTUAL>{both['rest']}"
    for value, expression in values:
        shown = re.compile(rf"(?<![\w.]){re.escape(value)}(?![\w.])")
        statement = shown.sub(expression.replace("\\", r"\\"), statement, count=1)[:MOST_STATEMENT]
    return statement


def _compared(text: str) -> Iterator[tuple[str, bool]]:
    """In prose, a comparison: the actual value is masked, the expected one asserted."""
    if _MINUS.search(text) and _PLUS.search(text):
        text = _undiffed(text)
    for actual in _ACTUAL:
        text = actual.sub(r"\g<before><ACTUAL>\g<after>", text)
    end = 0
    for found in _EXPECTED.finditer(text):
        start, stop = found.span(found.lastgroup or 0)
        yield text[end:start], False
        yield text[start:stop], True
        end = stop
    yield text[end:], False


def _undiffed(text: str) -> str:
    """Of a difference only what was expected: in unittest what has a plus, elsewhere a minus."""
    keep, drop = "-+" if _MINUS_IS_EXPECTED.search(text) else "+-"
    text = re.sub(rf"^[?{drop}][ \t][^\n]*\n?", "", _HEADS.sub("", text), flags=re.MULTILINE)
    return re.sub(rf"^[{keep}][ \t]", "expected: ", text, flags=re.MULTILINE)
