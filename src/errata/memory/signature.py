"""Error text -> pattern -> signature: the name of an error, its particulars masked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

# A longer text is read at its two ends: what names an error stands there.
MOST = 8_192
MOST_VALUES = 20

# One pass, first match wins. Every branch is anchored on a character class that cannot overlap with
# what follows it, so the time is linear in the length of the text.
_PARTICULAR = re.compile(
    r"(?P<UUID>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b)"
    r"|(?P<URL>\bhttps?://[^\s'\"<>)]+)"
    r"|(?P<MAIL>\b[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+\b)"
    r"|(?P<TIME>\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\b"
    r"|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b)"
    r"|(?P<HOST>\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b)"
    r"|(?P<ADDRESS>\b0x[0-9a-fA-F]+\b)"
    r"|(?P<PATH>(?<![\w/])(?:[A-Za-z]:\\|\.{0,2}/)[\w.@+-]+(?:[\\/][\w.@+-]+)*[\\/]?)"
    r"|(?P<ID>\b(?=[0-9a-fA-F]*\d)(?=[0-9a-fA-F]*[a-fA-F])[0-9a-fA-F]{8,}\b)"
    r"|(?P<N>(?<![\w.])[+-]?\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?"
    r"(?:\s?(?:ns|us|µs|ms|s|sec|seconds|min|minutes|h|hours|d|days|[kKMGT]?i?B|bytes|%)(?!\w))?(?!\w))"
)
_ASSERT = re.compile(r"^[ \t]*(?:[E>][ \t]+)?(?:AssertionError: )?(assert\s[^\n#]*)", re.MULTILINE)
# What pytest adds: which expression had a value that the assertion shows.
_WHERE = re.compile(
    r"^[ \t]*(?:E[ \t]+)?\+[ \t]+(?:where|and)[ \t]+([^\n]{1,400}?) = ([^\n]+)\n?", re.MULTILINE
)
_LITERAL = (
    r"(?:[+-]?[\d.]+(?:e[+-]?\d+)?|'[^'\n]*'|\"[^\"\n]*\"|True|False|None|[\[({][^=\n]*[\])}])"
)
_BOTH_LITERAL = re.compile(
    rf"assert {_LITERAL}(?P<rest> (?:==|!=|<=?|>=?|is|in|not in) {_LITERAL}\s*)"
)
_COMMENT = re.compile(r"#[^\n]*")


@dataclass(frozen=True, slots=True)
class Signature:
    """The name of an error.

    `exact` is the first 16 hex digits of SHA-256 over `type:text`, lower-cased and stripped;
    `pattern` the text with its particulars masked; `digest` the first 16 hex digits of SHA-256 over
    type and pattern.
    """

    exact: str
    pattern: str
    digest: str


def signature(error_type: str, text: str) -> Signature:
    """The signature of an error; the same text gives the same one, always.

    Numbers, ids, paths, hosts, times, addresses and line numbers are masked. An assertion is kept
    with its expression and the expected value; the value that there was instead is masked, whether
    a comment reports it or pytest has put it in the place of the expression.

    >>> signature("KeyError", "'a'") == signature("KeyError", "'b'")
    False
    >>> signature("Timeout", "after 12.5 s at 10.0.0.7").pattern
    'after <N> at <HOST>'
    """
    exact = _digest(f"{error_type}:{text.lower().strip()}")
    if len(text) > MOST:
        text = text[: MOST // 2] + "\n" + text[-MOST // 2 :]
    pattern = " ".join(_masked(text).split())
    return Signature(exact, pattern, _digest(f"{error_type}\0{pattern}"))


def _masked(text: str) -> str:
    parts: list[str] = []
    end = 0
    values = _WHERE.findall(text) if "assert" in text else []
    text = _WHERE.sub("", text) if values else text
    for statement in _ASSERT.finditer(text):
        before = _mask(_COMMENT.sub("#", text[end : statement.start()]))
        parts += [before, _asserted(statement.group(1), values)]
        end = statement.end()
    rest = text[end:]
    parts.append(_mask(_COMMENT.sub("#", rest, count=1) if end else rest))
    return "".join(parts)


def _asserted(statement: str, values: Sequence[tuple[str, str]]) -> str:
    """The statement with the expressions, not the values that they had."""
    if not values and (both := _BOTH_LITERAL.fullmatch(statement)):
        return f"assert <ACTUAL>{both['rest']}"
    for value, expression in values[:MOST_VALUES]:
        shown = re.compile(rf"(?<![\w.]){re.escape(value)}(?![\w.])")
        statement = shown.sub(expression.replace("\\", r"\\"), statement, count=1)[:MOST]
    return statement


def _mask(text: str) -> str:
    return _PARTICULAR.sub(lambda found: f"<{found.lastgroup}>", text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
