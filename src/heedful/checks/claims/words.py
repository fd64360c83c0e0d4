"""Words, numbers and dates in a text, and the words that name a column. Pure."""

from __future__ import annotations

import re
import unicodedata
from calendar import monthrange, weekday
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

# A version, a time and 23/24 are one token and no number. A minus sign counts only where nothing
# stands before it; digits are part of a word only after Latin letters.
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
_CARDINALS = {word: n for n, word in enumerate(_UNITS.split())} | {"dozen": 12, "hundred": 100}
_CARDINALS |= {word: 10 * n for n, word in enumerate(_TENS.split(), 2)}
ORDINALS = {word: n for n, word in enumerate(_ORDINALS.split())}
_SCALES = {"hundred": 1e2, "thousand": 1e3, "k": 1e3, "million": 1e6, "mn": 1e6, "billion": 1e9}
_SCALES |= {"bn": 1e9, "trillion": 1e12}
_POWERS = {"squared": 2, "cubed": 3}
PERCENT = frozenset(("%", "percent", "pct", "percentage"))
TIMES = frozenset("date year day time month timestamp period quarter week".split())
STOP = frozenset(
    "a an the of to in on at for and or is are was were be been do does did has have had with by"
    " from as that this it its his her their he she they i you we not but who which what when where"
    " while also into after before than then there will would can could may over under between"
    " during about up out so if no all some any more most other such only both each 's s nt".split()
)


# Tokens and numbers


class Token(NamedTuple):
    """A word, number or sign; the span is half open, `kind` is the name of its group in the regex.

    `low` is the casefolded text, in a word with plain characters for compatibility forms: R² is r2.
    """

    text: str
    low: str
    start: int
    end: int
    kind: str


class Quantity(NamedTuple):
    """A number in the tokens `first` to `last` (both included).

    `step` is the unit of its last digit: a value within half of it rounds to the number. `form` is
    digits, word or ordinal.
    """

    first: int
    last: int
    value: float
    step: float
    form: str
    percent: bool = False

    def fits(self, value: float, tolerance: float = 0.0) -> bool:
        """Return whether `value` rounds to this, or lies within the relative `tolerance`."""
        distance = abs(value - self.value)
        return distance <= self.step / 2 * (1 + 1e-9) or distance <= tolerance * abs(value)


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text in order."""
    return [
        Token(match[0], _low(match), match.start(), match.end(), match.lastgroup or "")
        for match in _TOKEN.finditer(text)
    ]


def _low(match: re.Match[str]) -> str:
    plain = match[0].isascii() or match.lastgroup != "word"
    return (match[0] if plain else unicodedata.normalize("NFKC", match[0])).casefold()


def parse_number(text: str) -> float | None:
    """Return the number that a whole text is ("1,234.5", "-3", "12 %"), else None."""
    plain = text.strip().removesuffix("%").rstrip()
    match = _TOKEN.fullmatch(plain)
    if not match or match.lastgroup != "number":
        return None
    value = float(_ascii(plain))
    return value if isfinite(value) else None


def _ascii(digits: str) -> str:
    return digits.replace(",", "").replace("\u2212", "-")


def quantities(tokens: Sequence[Token]) -> Iterator[Quantity]:
    """Yield the numbers among the tokens in order; no token belongs to two."""
    at = 0
    while at < len(tokens):
        digits = tokens[at].kind == "number" and not _in_name(tokens, at)
        quantity = _from_digits(tokens, at) if digits else _from_words(tokens, at)
        if quantity is not None:
            yield quantity
        at = quantity.last + 1 if quantity is not None else at + 1


def _word(tokens: Sequence[Token], at: int) -> str:
    return tokens[at].low if at < len(tokens) else ""


def _in_name(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a hyphen without spaces makes the number part of a name: "COVID-19"."""
    if at < 2 or tokens[at - 1].low != "-" or tokens[at - 2].kind != "word":
        return False
    return tokens[at - 2].end == tokens[at - 1].start and tokens[at - 1].end == tokens[at].start


def _from_digits(tokens: Sequence[Token], at: int) -> Quantity:
    plain = _ascii(tokens[at].text)
    step = 10.0 ** -len(plain.partition(".")[2])
    close = at + 1 < len(tokens) and tokens[at + 1].start == tokens[at].end
    if close and _word(tokens, at + 1) in ("st", "nd", "rd", "th"):
        return Quantity(at, at + 1, float(plain), 1.0, "ordinal")
    return _scaled(tokens, at, at, float(plain), step, "digits")


def _from_words(tokens: Sequence[Token], at: int) -> Quantity | None:
    low = tokens[at].low
    if low in ORDINALS:
        return Quantity(at, at, ORDINALS[low], 1.0, "ordinal")
    if low not in _CARDINALS:
        return None
    value, last = float(_CARDINALS[low]), at
    if value >= 20:
        after = at + 1 + (_word(tokens, at + 1) == "-")
        if 0 < _CARDINALS.get(_word(tokens, after), 0) < 10:
            value, last = value + _CARDINALS[tokens[after].low], after
    return _scaled(tokens, at, last, value, 1.0, "word")


def _scaled(
    tokens: Sequence[Token], first: int, last: int, value: float, step: float, form: str
) -> Quantity:
    """Return a number with the scale or per cent that follows: "1.2 million", "3k", "12 %"."""
    factor = _SCALES.get(_word(tokens, last + 1), 1.0)
    last += factor != 1.0
    percent = _word(tokens, last + 1) in PERCENT
    return Quantity(first, last, value * factor, step * factor, form, percent)


# Dates


MONTHS = "january february march april may june july august september october november december"
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday"
WEEKDAYS = {name: n for n, name in enumerate(_WEEKDAYS.split())}
_MONTHS = {name[:3]: n for n, name in enumerate(MONTHS.split(), 1)}
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"""\b(?:
      (?P<iso>\d{{4}})[-/._](?P<iso_m>\d{{1,2}})[-/._](?P<iso_d>\d{{1,2}})
    | (?P<a>\d{{1,2}})(?P<sep>[-/._])(?P<b>\d{{1,2}})(?P=sep)(?P<y>\d{{4}}|\d\d)
    | (?P<first>{_DAY}(?:\s+and\s+{_DAY})?)\s+(?:of\s+)?(?P<m1>{_MONTH})(?:,?\s+(?P<y1>\d{{4}}))?
    | (?:(?P<y2>\d{{4}}),?\s+)?(?P<m2>{_MONTH})\s+(?P<second>{_DAY}(?:\s+and\s+{_DAY}\b)?)
      (?:\s*,?\s+(?P<y3>\d{{4}}))?
    | (?P<m4>{_MONTH})\s+(?:of\s+)?(?P<y4>\d{{4}}) | (?P<y5>\d{{4}}),\s+(?P<m5>{_MONTH})
    )(?!(?!T\d\d:)\w)""",
    re.VERBOSE | re.IGNORECASE,
)


class Date(NamedTuple):
    """A date at `start` to `end` of a text; a part that the text leaves out is 0."""

    start: int
    end: int
    year: int
    month: int
    day: int

    def agrees(self, other: Date) -> bool:
        """Return whether no part that both have differs."""
        parts = zip(self[2:], other[2:], strict=True)
        return all(not one or not two or one == two for one, two in parts)

    @property
    def weekday(self) -> int | None:
        """0 for Monday to 6; None for a date without a year or a day."""
        return weekday(self.year, self.month, self.day) if self.year and self.day else None


def dates(text: str) -> Iterator[Date]:
    """Yield the dates of a text that a calendar has.

    In all-digit dates of ambiguous order the month comes first, with points the day.
    """
    for match in _DATE.finditer(text):
        for year, month, day in _calendar_numbers(match.groupdict()):
            if 1 <= month <= 12 and (not day or day <= monthrange(year or 2000, month)[1]):
                yield Date(match.start(), match.end(), year, month, day)


def _calendar_numbers(part: dict[str, str | None]) -> Iterator[tuple[int, int, int]]:
    def whole(*names: str) -> int:
        digits = next((part[name] for name in names if part[name]), None)
        return int(re.sub(r"\D+", "", digits)) if digits else 0

    if part["iso"]:
        yield whole("iso"), whole("iso_m"), whole("iso_d")
    elif part["sep"]:
        a, b, year = whole("a"), whole("b"), whole("y")
        month, day = (b, a) if a > 12 or (part["sep"] == "." and b <= 12) else (a, b)
        yield year + 2000 * (year < 70) + 1900 * (70 <= year < 100), month, day
    else:
        name = part["m1"] or part["m2"] or part["m4"] or part["m5"] or ""
        for day in re.findall(r"\d+", part["first"] or part["second"] or "0"):
            yield whole("y1", "y2", "y3", "y4", "y5"), _MONTHS[name[:3].casefold()], int(day)


# Names of columns


_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\dA-Z_]+|[A-Z]+|\d+")
# Scripts that put no spaces between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese, Korean.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)


def stem(word: str) -> str:
    """Return an English word without its commonest endings, casefolded; any other as it is.

    >>> stem("Reports"), stem("cities"), stem("scored"), stem("gas")
    ('report', 'city', 'scor', 'gas')
    """
    word = word.casefold()
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith("sses"):
        return word[:-2]
    if word[-1] == "s" and word[-2] not in "us":
        word = word[:-1]
    for ending in ("ing", "ed", "ly"):
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            word = word.removesuffix(ending)
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if len(word) > 4 and word[-1] == "e" else word


def content_stems(words: Iterable[str]) -> list[str]:
    """Return the stems of the words that carry meaning; pairs of letters in unspaced scripts.

    >>> content_stems(["the", "points", "東京都"])
    ['point', '東京', '京都']
    """
    stems: list[str] = []
    for word in words:
        if _UNSPACED.match(word):
            stems += (word[at : at + 2] for at in range(max(1, len(word) - 1)))
        elif word not in STOP and len(word) > 1:
            stems.append(stem(word))
    return stems


@lru_cache(maxsize=10_000)
def split_name(name: str) -> tuple[str, ...]:
    """Split a name at capitals, digits and signs, into lower case.

    >>> split_name("RATE3_PCT"), split_name("homeScore"), split_name("temp_min")
    (('rate', '3', 'pct'), ('home', 'score'), ('temp', 'min'))
    """
    return tuple(part.casefold() for part in _PART.findall(name))


@lru_cache(maxsize=50_000)
def likeness(word: str, part: str) -> int:
    """Return how surely a word of a text stands for a part of a name: 0 not at all, 3 for sure.

    >>> likeness("temperatures", "temp"), likeness("points", "pts"), likeness("fourth", "4")
    (3, 2, 3)
    """
    if part.isdecimal():
        numbers = (str(table.get(word, "")) for table in (_CARDINALS, ORDINALS, _POWERS))
        return 3 * (part == word or part in numbers)
    if stem(word) == stem(part):
        return 3
    if min(len(word), len(part)) < 2 or word in STOP:
        return 0
    if word in PERCENT or part in PERCENT:
        return 2 * (word in PERCENT and part in PERCENT)
    short, long = sorted((part, word), key=len)
    if long.startswith(short) and (short == part or len(short) > 3):
        return 3 if len(short) > 2 else 2
    return max(_abbreviates(short, long), _abbreviates(short, long + "s"))


def _abbreviates(short: str, long: str) -> int:
    """Return 2 if `short` is the first letter and later consonants of `long`, 1 for any letters."""
    if not (len(short) <= 5 and len(long) >= len(short) + 2 and short[0] == long[0]):
        return 0
    rest = iter(long[1:])
    if not all(letter in rest for letter in short[1:]):
        return 0
    return 1 if set(short[1:]) & set("aeiou") or len(short) < 3 else 2
