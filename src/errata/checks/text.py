"""Checks of a text that need nothing but the text: length, words that must or must not occur.

Each factory returns a frozen value that is its own configuration. Every one of them reports None,
other types, empty text, text above `errata.checks.reading.LONGEST`, lone surrogates and control
characters as findings of their own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from errata.checks.reading import LONGEST, flag, read, shorten, whole, written
from errata.errors import InvalidInput
from errata.loop.record import Finding
from errata.protocols import Context

Unit = Literal["words", "characters"]
NORMALISATIONS = ("nfkc", "case", "space")


@dataclass(frozen=True, slots=True)
class Length:
    """The number of words or characters lies in `at_least`..`at_most`, both included."""

    name: Unit
    at_least: int = 0
    at_most: int | None = None
    pure: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        whole("at_least", self.at_least)
        if self.at_most is not None:
            whole("at_most", self.at_most, max(1, self.at_least))
        elif not self.at_least:
            raise InvalidInput("at_least", self.at_least, "above 0 where there is no at_most")

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        text, findings = read(self.name, candidate)
        if text is None:
            return findings
        seen = len(text.split()) if self.name == "words" else len(text)
        if seen < self.at_least:
            findings.append(self._finding(seen, f">={self.at_least}"))
        if self.at_most is not None and seen > self.at_most:
            findings.append(self._finding(seen, f"<={self.at_most}"))
        return findings

    def _finding(self, seen: int, bound: str) -> Finding:
        asked = f"at {'most' if bound[0] == '<' else 'least'} {bound[2:]}"
        missing = int(bound[2:]) - seen
        fix = f"add {missing} or more" if missing > 0 else f"cut {-missing} or more"
        what = f"{seen} {self.name if seen != 1 else self.name[:-1]}, {asked} asked for"
        return Finding(self.name, what, f"use {asked} {self.name}: {fix}", key=self.name + bound)


def words(at_least: int = 0, at_most: int | None = None) -> Length:
    """So many words, counted as runs of characters between whitespace.

    Scripts written without spaces have few such words: use `characters` for them. Raises
    InvalidInput without any bound, or for bounds that no text can meet.
    """
    return Length("words", at_least, at_most)


def characters(at_least: int = 0, at_most: int | None = None) -> Length:
    """So many characters (Unicode code points), whitespace included.

    Raises InvalidInput without any bound, or for bounds that no text can meet.
    """
    return Length("characters", at_least, at_most)


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Every needle occurs in the text (`contains`), or none does (`excludes`)."""

    name: Literal["contains", "excludes"]
    needles: tuple[str, ...]
    case: bool = False
    pure: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if not self.needles:
            raise InvalidInput("needles", self.needles, "one text or more")
        for needle in self.needles:
            written("needles", needle)
        flag("case", self.case)

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        text, findings = read(self.name, candidate)
        if text is None:
            return findings
        hay = self._fold(text)
        wanted = self.name == "contains"
        for needle in dict.fromkeys(self.needles):
            folded = self._fold(needle)
            if (folded in hay) is not wanted:
                # Folding can change the length ("ß" is "ss"); then positions do not carry over.
                at = hay.find(folded) if len(hay) == len(text) else -1
                findings.append(self._finding(needle, at))
        return findings

    def _fold(self, text: str) -> str:
        return text if self.case else text.casefold()

    def _finding(self, needle: str, at: int) -> Finding:
        quoted = shorten(needle, 120)
        key = f"{self.name} {needle!r}"
        if self.name == "contains":
            return Finding(self.name, f"{quoted} is missing", f"write {quoted} in it", key=key)
        span = (at, at + len(needle)) if at >= 0 else None
        where = f" at character {at}" if span else ""
        what = f"{quoted} occurs{where}, which is not allowed"
        return Finding(self.name, what, f"leave out {quoted}", key=key, span=span)


def contains(*needles: str, case: bool = False) -> Occurrence:
    """Every needle occurs; upper and lower case count as equal unless `case`.

    One finding a missing needle. Raises InvalidInput without needles or for an empty one.
    """
    return Occurrence("contains", needles, case)


def excludes(*needles: str, case: bool = False) -> Occurrence:
    """No needle occurs; upper and lower case count as equal unless `case`.

    One finding a needle, with the place of its first occurrence. Raises InvalidInput without
    needles or for an empty one.
    """
    return Occurrence("excludes", needles, case)


@dataclass(frozen=True, slots=True)
class Equals:
    """The text equals `expected` after the named normalisations."""

    expected: str = field(repr=False)
    normalise: tuple[str, ...] = NORMALISATIONS
    show: bool = False
    name: str = field(default="equals", init=False)
    pure: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        written("expected", self.expected, empty=True)
        flag("show", self.show)
        for name in self.normalise:
            if name not in NORMALISATIONS:
                raise InvalidInput("normalise", name, f"among {', '.join(NORMALISATIONS)}")

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        if isinstance(candidate, str) and self._same(candidate):
            return []
        text, findings = read(self.name, candidate)
        if text is None:
            return findings
        what = f"{shorten(text)} is not the expected answer"
        fix = "work the answer out again; it must equal the expected one"
        if self.show:
            what += f" {shorten(self.expected)}"
            fix = f"answer with {shorten(self.expected, 400)}"
        return [*findings, Finding(self.name, what, fix, key="equals")]

    def _same(self, text: str) -> bool:
        return len(text) <= LONGEST and self._normal(text) == self._normal(self.expected)

    def _normal(self, text: str) -> str:
        if "nfkc" in self.normalise:
            text = unicodedata.normalize("NFKC", text)
        if "case" in self.normalise:
            # Folding can undo the composition: normalise once more.
            text = text.casefold()
            text = unicodedata.normalize("NFKC", text) if "nfkc" in self.normalise else text
        return re.sub(r"\s+", " ", text).strip() if "space" in self.normalise else text


def equals(
    expected: str, normalise: Collection[str] = NORMALISATIONS, show: bool = False
) -> Equals:
    """The text equals `expected` after normalising both.

    `normalise` names what does not count: `nfkc` (Unicode compatibility forms), `case` (upper and
    lower case), `space` (runs of whitespace are one space, none at the ends). With `()` every
    character counts. The finding shows `expected` only with `show`: without, a model cannot copy
    the answer from its feedback. Raises InvalidInput for another normalisation.
    """
    if isinstance(normalise, str) or not isinstance(normalise, Collection):
        raise InvalidInput("normalise", normalise, f"a list of {', '.join(NORMALISATIONS)}")
    return Equals(expected, tuple(normalise), show)


@dataclass(frozen=True, slots=True)
class NotEmpty:
    """There is text, more than whitespace."""

    name: str = field(default="not_empty", init=False)
    pure: bool = field(default=True, init=False)

    def __call__(self, candidate: Any, context: Context) -> list[Finding]:
        return read(self.name, candidate)[1]


def not_empty() -> NotEmpty:
    """There is text, more than whitespace, and it is whole (see `errata.checks.reading.read`)."""
    return NotEmpty()
