"""What every check of a text asks first: is there a text at all, and is it whole."""

from __future__ import annotations

import re
import reprlib
from typing import Any

from errata.errors import InvalidInput
from errata.loop.record import Finding

LONGEST = 1_000_000
"""Texts of more characters are not looked into: they are a finding of their own."""

_CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def shorten(value: object, most: int = 80) -> str:
    """`repr` of a value in at most `most` characters, without control characters or surrogates.

    >>> shorten("a" * 100, 12)
    "'aaaaaaaaa…'"
    """
    if isinstance(value, str):
        text = repr(value[:most])
        return text if len(text) <= most and len(value) <= most else f"{text[: most - 2]}…{text[0]}"
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = most
    text = repr(short.repr(value))[1:-1].replace("\\'", "'")
    return text if len(text) <= most else text[: most - 1] + "…"


def read(check: str, candidate: Any) -> tuple[str | None, list[Finding]]:
    """The text of a candidate, None where there is nothing to look into, and what is wrong so far.

    None, another type, an empty text and one above `LONGEST` end the reading; lone surrogates and
    control characters (other than tab, line feed, form feed and carriage return) are findings too,
    but the text is still looked into.
    """
    ended = _unreadable(check, candidate)
    if ended is not None:
        return None, [ended]
    text = str(candidate)
    return text, _broken(check, text)


def _unreadable(check: str, candidate: Any) -> Finding | None:
    if candidate is None:
        what, key, fix = "there is no answer (None)", "no answer", "answer with text"
    elif not isinstance(candidate, str):
        what = f"the answer is of type {type(candidate).__name__}, not text"
        key, fix = "not text", "answer with text"
    elif len(candidate) > LONGEST:
        what = f"the answer has {len(candidate):,} characters, more than the {LONGEST:,} looked at"
        key, fix = "too long", f"answer in far fewer than {LONGEST:,} characters"
    elif not candidate or candidate.isspace():
        what = "the answer holds nothing but whitespace" if candidate else "the answer is empty"
        key, fix = "empty", "answer with text"
    else:
        return None
    return Finding(check, what, fix, severity=0.9, key=f"{check}: {key}")


def _broken(check: str, text: str) -> list[Finding]:
    found = []
    kinds = (
        (_SURROGATES, "lone surrogates", "leave out what is not a whole Unicode character"),
        (
            _CONTROLS,
            "control characters",
            "leave out control characters other than tab and newline",
        ),
    )
    for pattern, kind, fix in kinds:
        first = pattern.search(text)
        if first:
            what = f"the answer holds {kind}, the first at character {first.start()}: "
            what += f"U+{ord(first[0]):04X}"
            found.append(Finding(check, what, fix, key=f"{check}: {kind}", span=first.span()))
    return found


def whole(field: str, value: Any, least: int = 0) -> int:
    """`value` where it is an integer of at least `least`; raises InvalidInput."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput(field, value, f"a whole number of at least {least}")
    return value


def positive(field: str, value: Any) -> float:
    """`value` where it is a finite number above 0; raises InvalidInput."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InvalidInput(field, value, "a number above 0")
    if not 0 < value < float("inf"):
        raise InvalidInput(field, value, "a finite number above 0")
    return float(value)


def written(field: str, value: Any, empty: bool = False) -> str:
    """`value` where it is text, not empty unless `empty`; raises InvalidInput."""
    if not isinstance(value, str) or not (value or empty):
        raise InvalidInput(field, value, "text" if empty else "text that is not empty")
    return value


def flag(field: str, value: Any) -> bool:
    """`value` where it is True or False; raises InvalidInput."""
    if not isinstance(value, bool):
        raise InvalidInput(field, value, "true or false")
    return value
