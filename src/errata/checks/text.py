"""Checks of a text that need nothing but the text: length, words that must or must not occur.

Every one of them reports None, other types, empty text and text above
`errata.checks.reading.LONGEST` characters as findings of their own.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence

from errata.checks.reading import TextCheck, require, shorten
from errata.loop.record import Finding


def words(at_least: int = 0, at_most: int | None = None) -> TextCheck:
    """So many words, counted as runs of characters between whitespace; bounds included.

    Scripts written without spaces have few such words: use `characters` for them. Raises
    InvalidInput without any bound, or for bounds that no text can meet.
    """
    return _length("words", lambda text: len(text.split()), at_least, at_most)


def characters(at_least: int = 0, at_most: int | None = None) -> TextCheck:
    """So many characters (Unicode code points), whitespace included; bounds included.

    Raises InvalidInput without any bound, or for bounds that no text can meet.
    """
    return _length("characters", len, at_least, at_most)


def _length(
    unit: str, count: Callable[[str], int], at_least: int, at_most: int | None
) -> TextCheck:
    least = type(at_least) is int and at_least >= 0
    require(least, "at_least", at_least, "a whole number of at least 0")
    most = at_most is None or (type(at_most) is int and at_most >= max(1, at_least))
    require(most, "at_most", at_most, f"a whole number of at least {max(1, at_least)}")
    bounded = bool(at_least) or at_most is not None
    require(bounded, "at_least", at_least, "above 0 where there is no at_most")

    def finding(seen: int, asked: str, key: str, fix: str) -> Finding:
        what = f"{seen} {unit if seen != 1 else unit[:-1]}, {asked} asked for"
        return Finding(unit, what, f"use {asked} {unit}: {fix} or more", key=unit + key)

    def judge(text: str) -> Iterator[Finding]:
        seen = count(text)
        if seen < at_least:
            yield finding(seen, f"at least {at_least}", f">={at_least}", f"add {at_least - seen}")
        if at_most is not None and seen > at_most:
            yield finding(seen, f"at most {at_most}", f"<={at_most}", f"cut {seen - at_most}")

    return TextCheck(unit, judge)


def contains(*needles: str, case: bool = False) -> TextCheck:
    """Every needle occurs; upper and lower case count as equal unless `case`.

    One finding a missing needle. Raises InvalidInput without needles or for an empty one.
    """
    return _occurrence("contains", needles, case)


def excludes(*needles: str, case: bool = False) -> TextCheck:
    """No needle occurs; upper and lower case count as equal unless `case`.

    One finding a needle, with the place of its first occurrence. Raises InvalidInput without
    needles or for an empty one.
    """
    return _occurrence("excludes", needles, case)


def _occurrence(name: str, needles: Sequence[str], case: bool) -> TextCheck:
    fold = _folding(case)
    require(bool(needles), "needles", needles, "one text or more: it is required")
    for needle in needles:
        given = isinstance(needle, str) and needle != ""
        require(given, "needles", needle, "text that is not empty")

    def judge(text: str) -> Iterator[Finding]:
        hay = fold(text)
        for needle in dict.fromkeys(needles):
            at, quoted, key = hay.find(fold(needle)), shorten(needle, 120), f"{name} {needle!r}"
            if name == "contains" and at < 0:
                yield Finding(name, f"{quoted} is missing", f"write {quoted} in it", key=key)
            if name == "excludes" and at >= 0:
                # Folding can change the length ("ß" is "ss"); then positions do not carry over.
                span = (at, at + len(needle)) if len(hay) == len(text) else None
                what = (
                    f"{quoted} occurs{f' at character {at}' if span else ''}, which is not allowed"
                )
                yield Finding(name, what, f"leave out {quoted}", key=key, span=span)

    return TextCheck(name, judge)


def _folding(case: bool) -> Callable[[str], str]:
    require(isinstance(case, bool), "case", case, "true or false")
    return str if case else str.casefold


def equals(expected: str, case: bool = False) -> TextCheck:
    """The text equals `expected`; upper and lower case count as equal unless `case`.

    Runs of whitespace count as one space and not at all at the ends, compatibility forms of Unicode
    (full-width digits, ligatures) as what they stand for. The finding does not show `expected`: a
    model is to work the answer out, not to copy it from its feedback. Raises InvalidInput where
    `expected` is no text or an empty one.
    """
    fold = _folding(case)
    given = isinstance(expected, str) and expected.strip() != ""
    require(given, "expected", expected, "text that is not empty")

    def normal(text: str) -> str:
        # Folding can undo the composition: normalise once more.
        folded = fold(unicodedata.normalize("NFKC", text))
        return " ".join(unicodedata.normalize("NFKC", folded).split())

    wanted = normal(expected)

    def judge(text: str) -> Iterator[Finding]:
        if normal(text) != wanted:
            what = f"{shorten(text)} is not the expected answer"
            fix = "work the answer out again; it must equal the expected one"
            yield Finding("equals", what, fix, key="equals")

    return TextCheck("equals", judge)


def not_empty() -> TextCheck:
    """There is text, more than whitespace."""
    return TextCheck("not_empty", lambda text: ())
