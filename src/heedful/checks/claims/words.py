"""Find words, numbers and dates in a text, and compare words with the names of
columns.
"""

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import isfinite
from typing import NamedTuple
from unicodedata import normalize

# "x" in 8x4 is a token of its own. A number has a minus sign only at the start of a
# word; digits are part of a word only after Latin letters.
_CLAIM_TOKEN_PATTERN = re.compile(
    r"(?P<times>(?<=\d)[x×](?=\d))"
    r"|(?P<number>(?:(?<![\w.,)\]%])[-\u2212](?=[\d.]))?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)"
    r"|(?P<word>[^\W\d_](?:[^\W\d_]|(?<=[A-Za-z\d])\d|['’](?!s\b)(?=[^\W_]))*)"
    r"|(?P<sign>'s\b|’s\b|\S)"
)
_CARDINAL_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen"
)
_CARDINAL_UNITS += " fifteen sixteen seventeen eighteen nineteen"
_CARDINAL_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_CARDINALS = {word: n for n, word in enumerate(_CARDINAL_UNITS.split())} | {
    "dozen": 12,
    "hundred": 100,
}
_CARDINALS |= {word: 10 * n for n, word in enumerate(_CARDINAL_TENS.split(), 2)}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "squared": 2, "cubed": 3}
_NUMBER_SCALES = {
    "hundred": 1e2,
    "thousand": 1e3,
    "k": 1e3,
    "million": 1e6,
    "mn": 1e6,
    "billion": 1e9,
}
_NUMBER_SCALES |= {"bn": 1e9, "trillion": 1e12}
STOP_WORDS = frozenset(
    "a an the of to in on at for and or is are was were be been do does did has have "
    "had with by"
    " from as that this it its his her their he she they i you we not but who which "
    "what when where"
    " while also into after before than then there will would can could may over "
    "under between"
    " during about up out so if no all some any more most other such only both each "
    "'s s nt".split()
)


class Token(NamedTuple):
    """A word, number or sign at the characters `start` to `end` (excluded) of a text.

    `low` is the text in lower case, with plain characters for special ones: r2 for R².
    `kind` is the name of a group in the pattern `_CLAIM_TOKEN_PATTERN`.
    """

    text: str
    low: str
    start: int
    end: int
    kind: str


class Quantity(NamedTuple):
    """A number in the tokens `first` to `last` (both included).

    `step` is the unit of the last digit (0.1 for 2.5): a value within half a step
    rounds to the number. `digits` is True if the number is written in digits, `percent`
    if it is a percentage.
    """

    first: int
    last: int
    value: float
    step: float
    digits: bool
    percent: bool

    def fits(self, value: float) -> bool:
        """Return True if `value` rounds to this number; both 38 and 0.38 fit the number
        "38 %".
        """
        values = (value, value * 100) if self.percent and abs(value) <= 1 else (value,)
        return any(abs(v - self.value) <= self.step / 2 * (1 + 1e-9) for v in values)


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text in order."""
    return [
        Token(
            text=match[0],
            low=low.casefold(),
            start=match.start(),
            end=match.end(),
            kind=match.lastgroup or "",
        )
        for match in _CLAIM_TOKEN_PATTERN.finditer(text)
        for low in (
            normalize("NFKC", match[0]) if match.lastgroup == "word" else match[0],
        )
    ]


def parse_number(text: str) -> float | None:
    """Return the number in a text that is only a number ("1,234.5", "-3", "12 %"), or
    None.
    """
    plain = text.strip().removesuffix("%").rstrip()
    match = _CLAIM_TOKEN_PATTERN.fullmatch(plain)
    if not match or match.lastgroup != "number":
        return None
    value = float(_ascii(plain))
    return value if isfinite(value) else None


def _ascii(digits: str) -> str:
    return digits.replace(",", "").replace("\u2212", "-")


def quantities(tokens: Sequence[Token]) -> Iterator[Quantity]:
    """Yield the numbers among the tokens in order: digits, "twelve", "1.2 million", "12
    %".
    """
    lows = [*(token.low for token in tokens), "", "", ""]
    at = 0
    while at < len(tokens):
        first = at
        low = lows[at]
        step = 1.0
        digits = tokens[at].kind == "number"
        at += 1
        if digits:
            plain = _ascii(low)
            value = float(plain)
            step = 10.0 ** -len(plain.partition(".")[2])
        elif low in _CARDINALS:
            value = float(_CARDINALS[low])
            unit = at + (lows[at] == "-")
            if value >= 20 and 0 < _CARDINALS.get(lows[unit], 0) < 10:
                value = value + _CARDINALS[lows[unit]]
                at = unit + 1
        else:
            continue
        factor = _NUMBER_SCALES.get(lows[at], 1.0)
        at += factor != 1.0
        percent = lows[at] in ("%", "percent", "pct", "percentage")
        yield Quantity(
            first=first,
            last=at - 1,
            value=value * factor,
            step=step * factor,
            digits=digits,
            percent=percent,
        )


_WEEKDAY_LIST = "monday tuesday wednesday thursday friday saturday sunday"
WEEKDAY_NUMBERS = {name: n for n, name in enumerate(_WEEKDAY_LIST.split())}
_MONTH_NAMES = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH_REGEX = rf"(?:{'|'.join(_MONTH_NAMES)})[a-z]*\.?"
_ORDINAL_SUFFIX_REGEX = r"(?:st|nd|rd|th)?"
_CLAIM_DATE_PATTERN = re.compile(
    rf"""\b(?:
      (?P<year>\d{{4}})[-/._](?P<number>\d{{1,2}})[-/._](?P<day>\d{{1,2}})
    | (?P<a>\d{{1,2}})(?P<sign>[-/._])(?P<b>\d{{1,2}})(?P=sign)(?P<y>\d{{4}}|\d\d)
    | (?:(?P<d>\d{{1,2}}){_ORDINAL_SUFFIX_REGEX}\s+(?:of\s+)?|(?P<before>\d{{4}}),?\s+)?(?P<month>{_MONTH_REGEX})
      (?:\s+(?P<later>\d{{1,2}}){_ORDINAL_SUFFIX_REGEX}(?!\d))?(?:\s*,?\s+(?:of\s+)?(?P<after>\d{{4}}))?
    )(?!(?!T\d\d:)\w)""",
    re.VERBOSE | re.IGNORECASE,
)


class Date(NamedTuple):
    """A date at the characters `start` to `end` (excluded) of a text; a missing part is
    0.
    """

    start: int
    end: int
    year: int
    month: int
    day: int

    def agrees(self, other: "Date") -> bool:
        """Return True if year, month and day are equal where both dates have them."""
        parts = zip(self[2:], other[2:], strict=True)
        return all(not one or not two or one == two for one, two in parts)


def dates(text: str) -> Iterator[Date]:
    """Yield the dates in a text that exist in the calendar.

    In 02/03/2017, which is ambiguous, the month is first; in 02.03.2017 the day is
    first.
    """
    for match in _CLAIM_DATE_PATTERN.finditer(text):
        parts = {
            name: int(part)
            for name, part in match.groupdict().items()
            if str(part).isdigit()
        }
        year, month, day = (parts.get(name, 0) for name in ("year", "number", "day"))
        if match["sign"]:
            a = parts["a"]
            b = parts["b"]
            year = parts["y"]
            month, day = (
                (b, a) if a > 12 or (match["sign"] == "." and b <= 12) else (a, b)
            )
            year += 2000 * (year < 70) + 1900 * (70 <= year < 100)
        elif match["month"]:
            month = 1 + _MONTH_NAMES.index(match["month"][:3].casefold())
            year = parts.get("after") or parts.get("before", 0)
            day = parts.get("d") or parts.get("later", 0)
        known = year or day  # "may" alone is a verb
        if known and 1 <= month <= 12 and day <= monthrange(year or 2000, month)[1]:
            yield Date(
                start=match.start(), end=match.end(), year=year, month=month, day=day
            )


_NAME_PART_PATTERN = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\dA-Z_]+|[A-Z]+|\d+")


def stem(word: str) -> str:
    """Return a word in lower case, without the commonest endings of English.

    >>> stem("Reports"), stem("scored"), stem("gas")
    ('report', 'scor', 'gas')
    """
    word = word.casefold()
    if len(word) < 4 or not word.isascii():
        return word
    ends = (end for end in ("ing", "ed", "ly", "es", "s", "e") if word.endswith(end))
    return next(
        (word.removesuffix(end) for end in ends if len(word) >= len(end) + 3), word
    )


def content_stems(words: Iterable[str]) -> list[str]:
    """Return the stems of words, without stop words."""
    return [stem(word) for word in words if word not in STOP_WORDS and len(word) > 1]


@lru_cache(maxsize=10_000)
def split_name(name: str) -> tuple[str, ...]:
    """Return the parts of a name in lower case, split at capitals, digits and signs.

    >>> split_name("RATE3_PCT"), split_name("homeScore"), split_name("temp_min")
    (('rate', '3', 'pct'), ('home', 'score'), ('temp', 'min'))
    """
    return tuple(part.casefold() for part in _NAME_PART_PATTERN.findall(name))


@lru_cache(maxsize=50_000)
def likeness(word: str, part: str) -> int:
    """Return how well a word of a text matches a part of a name, from 0 (no match) to 3
    (certain).

    >>> likeness("temperatures", "temp"), likeness("points", "pts"), likeness("fourth", "4")
    (3, 2, 3)
    """
    if part.isdecimal():
        return 3 * (part in (word, str(_CARDINALS.get(word)), str(_ORDINALS.get(word))))
    if stem(word) == stem(part):
        return 3
    if min(len(word), len(part)) < 2 or word in STOP_WORDS:
        return 0
    short, long = sorted((part, word), key=len)
    if long.startswith(short):
        return 3
    consonants = 2 < len(short) < 6 and set(short[1:]).isdisjoint("aeiou")
    return 2 * (
        consonants and len(long) > len(short) and is_abbreviation(short, long + "s")
    )


def is_abbreviation(short: str, long: str) -> bool:
    """Return True if `short` is the first letter and some later letters of `long`, in
    order.
    """
    rest = iter(long[1:])
    return short[0] == long[0] and all(letter in rest for letter in short[1:])
