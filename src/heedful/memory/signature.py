"""Error text -> pattern -> signature: the name of an error, its particulars masked."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field

from heedful.memory.assertions import pieces
from heedful.memory.masks import is_own, masked

# A longer text is read at its two ends: what names an error stands there.
MOST = 4_096
DEEPEST = 64
_BRACKET = re.compile(r"[\[\]{}]")


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
    error_type: str = field(default="", compare=False)


def signature(error_type: str, text: str) -> Signature:
    """The signature of an error; the same text gives the same one, always.

    Measured numbers, ids, paths, hosts, times, addresses and line numbers are masked. An assertion
    is kept with its expression and the expected value; the value that there was instead is masked.
    In JSON neither the order of keys nor that of failed assertions counts.

    >>> signature("KeyError", "'a'") == signature("KeyError", "'b'")
    False
    >>> signature("Timeout", "after 12.5 s at 10.0.0.7").pattern
    'after <N> at <HOST>'
    """
    pattern = " ".join(_pattern(error_type, text).split())
    return Signature(
        _digest(f"{error_type}:{text.lower().strip()}"),
        pattern,
        digest_of(error_type, pattern),
        error_type,
    )


def digest_of(error_type: str, pattern: str) -> str:
    """The digest of a pattern."""
    return _digest(f"{error_type}\0{pattern}")


def _pattern(error_type: str, text: str) -> str:
    text = text.strip()
    if len(text) > MOST:
        return _masked(error_type, f"{text[: MOST // 2]}\n{text[-MOST // 2 :]}")
    if text[:1] in ("[", "{") and text[-1:] in ("]", "}") and _depth(text) <= DEEPEST:
        try:
            return _payload(error_type, json.loads(text))
        except ValueError:
            return _masked(error_type, text)
    return _masked(error_type, text)


def _masked(error_type: str, text: str) -> str:
    return "".join(
        piece if asserted else masked(piece) for piece, asserted in pieces(error_type, text)
    )


def _payload(error_type: str, value: object, name: str = "") -> str:
    match value:
        case dict():
            items = sorted(value.items())
            shown = [f"{masked(key)}: {_payload(error_type, one, key)}" for key, one in items]
            return f"{{{', '.join(shown)}}}"
        case list():
            once = {repr(one): one for one in value}.values()  # a thousand zeros are masked once
            shown = [_payload(error_type, one, name) for one in once]
            failures = all("assert " in one for one in shown)
            return f"[{', '.join(sorted(set(shown)) if failures else dict.fromkeys(shown))}]"
        case _ if is_own(name):
            return "<ID>"
        case str() if not value.isdecimal():
            return _masked(error_type, value)
    return masked(f"{name}: {value if isinstance(value, str) else json.dumps(value)}").removeprefix(
        f"{masked(name)}: "
    )


def _depth(text: str) -> int:
    depth = deepest = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
