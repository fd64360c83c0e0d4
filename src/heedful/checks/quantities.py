"""The tokens of a text and the numbers written in it: digits, words, scales, per cents. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import NamedTuple

# A version, a time and 23/24 are one token and no number. A sign counts where nothing stands before
# it; digits are part of a word after Latin letters only.
_TOKEN = re.compile(
    r"(?P<mark>\d+(?:\.\d+){2,}|\d{1,2}:\d\d(?::\d\d)?(?!\d)|\d+/\d+(?![\d.]))"
    r"|(?P<times>(?<=\d)[x×](?=\d))"
    r"|(?P<number>(?:(?<![\w.,)\]%])[-\u2212](?=[\d.]))?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)"
    r"|(?P<word>[^\W\d_](?:[^\W\d_]|(?<=[A-Za-z\d])\d|['’](?!s\b)(?=[^\W_]))*)"
    r"|(?P<sign>'s\b|’s\b|\S)"
)
_UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
_UNITS += " fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh"
_ORDINALS += " twelfth"
WORDS = {word: n for n, word in enumerate(_UNITS.split())} | {"dozen": 12, "hundred": 100}
WORDS |= {word: 10 * n for n, word in enumerate(_TENS.split(), 2)}
ORDINALS = {word: n for n, word in enumerate(_ORDINALS.split())}
_SETS = {"pair": 2, "couple": 2, "trio": 3, "dozen": 12}
_SCALES = {"hundred": 1e2, "thousand": 1e3, "k": 1e3, "million": 1e6, "mn": 1e6, "billion": 1e9}
_SCALES |= {"bn": 1e9, "trillion": 1e12}
_PERCENT = frozenset(("%", "percent", "pct", "percentage"))


class Token(NamedTuple):
    """A word, number or sign; the span is half open, `kind` the group above.

    `low` is casefolded, in a word without compatibility forms: R² is r2.
    """

    text: str
    low: str
    start: int
    end: int
    kind: str


class Quantity(NamedTuple):
    """A number in the tokens `first` to `last` (both included).

    `step` is the unit of its last digit: what is nearer than half of it rounds to it. `form` is
    digits, word, ordinal, article ("a", which may count one) or set ("a pair").
    """

    first: int
    last: int
    value: float
    step: float
    form: str
    percent: bool = False

    def fits(self, value: float, tolerance: float = 0.0) -> bool:
        """Whether `value` rounds to this, or lies within the relative `tolerance`."""
        far = abs(value - self.value)
        return far <= self.step / 2 * (1 + 1e-9) or far <= tolerance * abs(value)


def tokens(text: str) -> list[Token]:
    """The tokens of a text in order, with their places."""
    return [
        Token(found[0], _low_of(found), found.start(), found.end(), found.lastgroup or "")
        for found in _TOKEN.finditer(text)
    ]


def _low_of(found: re.Match[str]) -> str:
    plain = found[0].isascii() or found.lastgroup != "word"
    return (found[0] if plain else unicodedata.normalize("NFKC", found[0])).casefold()


def number(text: str) -> float | None:
    """The number that a whole text is ("1,234.5", "-3", "12 %"), else None."""
    plain = text.strip().removesuffix("%").rstrip()
    found = _TOKEN.fullmatch(plain)
    if not found or found.lastgroup != "number":
        return None
    value = float(_plain(plain))
    return value if isfinite(value) else None


def _plain(digits: str) -> str:
    return digits.replace(",", "").replace("\u2212", "-")


def quantities(found: Sequence[Token]) -> Iterator[Quantity]:
    """The numbers among the tokens in order; each token belongs to one at most."""
    at = 0
    while at < len(found):
        number = found[at].kind == "number" and not _in_name(found, at)
        one = _digits(found, at) if number else _words(found, at)
        if one is not None:
            yield one
        at = one.last + 1 if one is not None else at + 1


def _low(found: Sequence[Token], at: int) -> str:
    return found[at].low if at < len(found) else ""


def _in_name(found: Sequence[Token], at: int) -> bool:
    """Whether a hyphen without spaces makes the number part of a name: "COVID-19"."""
    if at < 2 or found[at - 1].low != "-" or found[at - 2].kind != "word":
        return False
    return found[at - 2].end == found[at - 1].start and found[at - 1].end == found[at].start


def _digits(found: Sequence[Token], at: int) -> Quantity:
    plain, last = _plain(found[at].text), at
    step = 10.0 ** -len(plain.partition(".")[2])
    close = at + 1 < len(found) and found[at + 1].start == found[at].end
    if close and _low(found, at + 1) in ("st", "nd", "rd", "th"):
        return Quantity(at, at + 1, float(plain), 1.0, "ordinal")
    factor = _SCALES.get(_low(found, at + 1), 1.0)
    last += factor != 1.0
    percent = _low(found, last + 1) in _PERCENT
    return Quantity(at, last, float(plain) * factor, step * factor, "digits", percent)


def _words(found: Sequence[Token], at: int) -> Quantity | None:
    low = found[at].low
    if low in ("a", "an"):
        size = _SETS.get(_low(found, at + 1))
        form = "set" if size else "article"
        return Quantity(at + bool(size), at + bool(size), size or 1, 1.0, form)
    if low in ORDINALS:
        return Quantity(at, at, ORDINALS[low], 1.0, "ordinal")
    if low not in WORDS:
        return None
    value, last = float(WORDS[low]), at
    if value >= 20:
        after = at + 1 + (_low(found, at + 1) == "-")
        if 0 < WORDS.get(_low(found, after), 0) < 10:
            value, last = value + WORDS[found[after].low], after
    factor = _SCALES.get(_low(found, last + 1), 1.0)
    last += factor != 1.0
    percent = _low(found, last + 1) in _PERCENT
    return Quantity(at, last, value * factor, factor, "word", percent)
