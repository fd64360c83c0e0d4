"""What every check of a text asks first: is there a text at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from errata.errors import InvalidInput
from errata.loop.record import Finding
from errata.protocols import Context

LONGEST = 1_000_000
"""Texts of more characters are not looked into: they are a finding of their own."""


@dataclass(frozen=True, slots=True)
class TextCheck:
    """A check that hands `judge` a text; a candidate that is none is a finding (see `read`)."""

    name: str
    judge: Callable[[str], Iterable[Finding]] = field(repr=False)
    pure: ClassVar[bool] = True

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        text = read(self.name, candidate)
        return [text] if isinstance(text, Finding) else list(self.judge(text))


def read(check: str, candidate: Any) -> str | Finding:
    """The text of a candidate, or what is wrong with it: none, no text, empty, above `LONGEST`."""
    fix = "answer with text"
    if candidate is None:
        kind, what = "no answer", "there is no answer (None)"
    elif not isinstance(candidate, str):
        kind, what = "not text", f"the answer is a {type(candidate).__name__}, not text"
    elif len(candidate) > LONGEST:
        what = f"the answer has {len(candidate):,} characters, more than the {LONGEST:,} looked at"
        kind, fix = "too long", f"answer in far fewer than {LONGEST:,} characters"
    elif not candidate or candidate.isspace():
        kind, what = "empty", "the answer is empty or holds nothing but whitespace"
    else:
        return candidate
    return Finding(check, what, fix, severity=0.9, key=f"{check}: {kind}")


def shorten(value: object, most: int = 80) -> str:
    """`repr` of a text, or of what JSON can hold, in at most `most` characters.

    >>> shorten("a" * 100, 12)
    "'aaaaaaaaa…'"
    """
    text = repr(value[:most] if isinstance(value, str) else value)
    return text if len(text) <= most else f"{text[: most - 2]}…{text[-1]}"


def require(fine: bool, field: str, value: object, allowed: str) -> None:
    """Raises InvalidInput unless `fine`: `allowed` says what the value of an argument must be."""
    if not fine:
        raise InvalidInput(field, value, allowed)
