"""Find words, numbers and dates in a text; compare words with the names of columns.

Everything here is a rule about English: number words, months, word endings. A text is
read as tokens (`tokenize`), from which `quantities` and `dates` are made. `likeness`
says how well a word of a text matches a part of a column's name, such as "temperature"
and "temp", "points" and "pts", or "fourth" and "4".
"""

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, time as day_time, tzinfo
from email.utils import parsedate
from functools import lru_cache
from math import isfinite
from typing import NamedTuple
from unicodedata import normalize

# The groups are named after the kinds of tokens; the first kind that fits is used.
# - times: the "x" in "8x4".
# - ordinal: "3rd".
# - number: "12", "1,234.5", "$5" or ".5"; a minus sign is part of it only at the start
#   of a word, so that "3-4" is two numbers.
# - word: "don't", "R2" or "A-12"; digits are part of it only after Latin letters.
# - sign: the ending "'s", or any other character, such as "%".
_CLAIM_TOKEN_PATTERN = re.compile(
    r"(?P<times>(?<=\d)[x×](?=\d))"
    r"|(?P<ordinal>\d+(?:st|nd|rd|th)\b)"
    r"|(?P<number>(?:(?<![\w.,)\]%$€£¥])[-\u2212](?=[$€£¥]?[\d.]))?[$€£¥]?"
    r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)"
    r"|(?P<word>[^\W\d_](?:[^\W\d_]|(?<=[A-Za-z\d])\d|['’](?!s\b)(?=[^\W_])"
    r"|(?<=[A-Za-z])-(?=\d+\b)|(?<=[A-Za-z]-)\d)*)"
    r"|(?P<sign>'s\b|’s\b|\S)"
)
_CURRENCY_SIGNS = frozenset("$€£¥")
_CARDINAL_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen"
)
_CARDINAL_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_CARDINALS = {
    **{word: number for number, word in enumerate(_CARDINAL_UNITS.split())},
    **{word: 10 * number for number, word in enumerate(_CARDINAL_TENS.split(), 2)},
    "dozen": 12,
    "hundred": 100,
}
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "squared": 2, "cubed": 3}
NUMBER_SCALES = {
    "hundred": 1e2,
    "thousand": 1e3,
    "k": 1e3,
    **dict.fromkeys(("million", "mn", "mm", "m"), 1e6),
    **dict.fromkeys(("billion", "bn", "b"), 1e9),
    **dict.fromkeys(("trillion", "t"), 1e12),
}
_PERCENT_WORDS = ("%", "percent", "pct", "percentage")
# How far below and above a number the true one may lie after such a word, as shares
# of it: "under 5,000", "more than 5,000".
_APPROXIMATIONS = {
    **dict.fromkeys("about around roughly approximately ~".split(), (0.05, 0.05)),
    **dict.fromkeys(
        "over above least exceeding exceeds more greater higher".split(), (0, 0.25)
    ),
    **dict.fromkeys("under below most nearly almost less fewer".split(), (0.25, 0)),
}
_RISE_STEMS = frozenset(
    "ros ris risen grew grow grown growth increas climb gain surg jump soar up".split()
)
_FALL_STEMS = frozenset(
    "fell fall fallen decreas declin drop dropp shrank shrink shrunk reduc slipp plung "
    "sank lost los loss down".split()
)
STOP_WORDS = frozenset(
    """
    a an the of to in on at for and or is are was were be been do does did has have had
    with by from as that this it its his her their he she they i you we not but who
    which what when where while also into after before than then there will would can
    could may over under between during about up out so if no all some any more most
    other such only both each 's s nt
    """.split()
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

    `step` is the unit of the last digit (0.1 for 2.5). The values from `least` to
    `greatest` round to the number, or are meant by a word such as "about" before it.
    `scale` is 1e6 for "2 million". `digits` is True if the number is written in digits,
    `percent` if it is a percentage, `points` if it is a difference of percentages.
    """

    first: int
    last: int
    value: float
    step: float
    least: float
    greatest: float
    scale: float
    digits: bool
    percent: bool
    points: bool

    def fits(self, value: float) -> bool:
        """Return whether `value` rounds to this number.

        Both 38 and 0.38 fit the number "38 %".
        """
        if self.least <= value <= self.greatest:
            return True
        is_share = self.percent and abs(value) <= 1
        return is_share and self.least <= value * 100 <= self.greatest

    @property
    def is_year(self) -> bool:
        """Whether the number may be a year."""
        is_plain = self.first == self.last and self.step == 1 and not self.percent
        return self.digits and is_plain and 1900 <= self.value <= 2100


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text in order."""
    tokens = []
    for match in _CLAIM_TOKEN_PATTERN.finditer(text):
        kind = match.lastgroup or ""
        low = match[0]
        if kind == "word":
            low = normalize("NFKC", low)

        tokens.append(
            Token(
                text=match[0],
                low=low.casefold(),
                start=match.start(),
                end=match.end(),
                kind=kind,
            )
        )
    return tokens


def parse_number(text: str) -> float | None:
    """Return the number in a text that is only a number, or None.

    >>> parse_number("1,234.5"), parse_number("12 %"), parse_number("12 m")
    (1234.5, 12.0, None)
    """
    number = text.strip().removesuffix("%").rstrip()
    match = _CLAIM_TOKEN_PATTERN.fullmatch(number)
    if not match or match.lastgroup != "number":
        return None
    value = float(_plain_digits(number))
    return value if isfinite(value) else None


def figure(value: float) -> str:
    """Return a number as people write it.

    >>> figure(12088616.0), figure(0.1 + 0.2), figure(2024.0)
    ('12,088,616', '0.3', '2024')
    """
    return f"{value:,.12g}" if abs(value) >= 10_000 else f"{value:.12g}"


def _plain_digits(number: str) -> str:
    """Return a number as `float` reads it: without commas and the sign of a currency,
    "-" for a typographic minus sign.
    """
    digits = number.replace(",", "").replace("\u2212", "-")
    return digits.translate(dict.fromkeys(map(ord, _CURRENCY_SIGNS)))


def quantities(tokens: Sequence[Token]) -> Iterator[Quantity]:
    """Yield the numbers among the tokens, in order.

    They are written in digits ("1.2 million", "$9.1M", "12 %") or in words ("twelve").
    """
    # The empty texts at the end allow the loop to look ahead of the last token.
    lows = [*(token.low for token in tokens), "", "", ""]
    position = 0
    while position < len(tokens):
        first = position
        digits = tokens[first].kind == "number"
        value, step, position = _read_number(lows, first, digits=digits)
        if not digits and lows[first] not in _CARDINALS:
            continue

        scale = _read_scale(tokens, position) if position < len(tokens) else 1.0
        if scale != 1:
            position += 1

        half_step = step * scale / 2 * (1 + 1e-9)
        lead = lows[first - 2] if lows[first - 1] == "than" else lows[first - 1]
        below, above = _APPROXIMATIONS.get(lead, (0, 0))

        percent = lows[position] in _PERCENT_WORDS
        points = percent and lows[position + 1].startswith("point")
        yield Quantity(
            first=first,
            last=position - 1,
            value=value * scale,
            step=step * scale,
            least=value * scale - below * abs(value) * scale - half_step,
            greatest=value * scale + above * abs(value) * scale + half_step,
            scale=scale,
            digits=digits,
            percent=percent and not points,
            points=points or lows[position] == "pp",
        )


def _read_number(
    lows: Sequence[str], first: int, *, digits: bool
) -> tuple[float, float, int]:
    """Return the number at a position, the unit of its last digit, and its end.

    The number is 0 if there is none. `digits` is True if it is written in digits.
    """
    low = lows[first]
    end = first + 1
    if digits:
        number = _plain_digits(low)
        decimals = number.partition(".")[2]
        return float(number), 10.0 ** -len(decimals), end

    value = float(_CARDINALS.get(low, 0))
    # "twenty-one" and "twenty one" are one number.
    unit_position = end + 1 if lows[end] == "-" else end
    unit = _CARDINALS.get(lows[unit_position], 0)
    if value >= 20 and 0 < unit < 10:
        return value + unit, 1.0, unit_position + 1
    return value, 1.0, end


def _read_scale(tokens: Sequence[Token], position: int) -> float:
    """Return what the word at a position multiplies the number before it by.

    A letter does so only as a part of the number, and "m" and "mm" are lengths, but not
    of money: "9.1M", "$9.1m".
    """
    token = tokens[position]
    number = tokens[position - 1]
    is_money = not _CURRENCY_SIGNS.isdisjoint(number.low)
    if len(token.low) == 1 and token.low != "k" and token.start > number.end:
        return 1.0
    if token.text in ("m", "mm", "b", "t") and not is_money:
        return 1.0
    return NUMBER_SCALES.get(token.low, 1.0)


def direction(words: Iterable[str]) -> int:
    """Return 1 if the first word of rising or falling is one of rising, -1, or 0."""
    for word in words:
        if stem(word) in _RISE_STEMS:
            return 1
        if stem(word) in _FALL_STEMS:
            return -1
    return 0


_WEEKDAY_LIST = "monday tuesday wednesday thursday friday saturday sunday"
WEEKDAY_NUMBERS = {name: n for n, name in enumerate(_WEEKDAY_LIST.split())}
_MONTH_REGEX = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_ORDINAL_SUFFIX_REGEX = r"(?:st|nd|rd|th)?"
# A date in one of four forms: "2017-03-02"; "2/3/2017" or "02.03.17"; "2017-03"; with
# the name of the month, as "2nd of March 2017", "March 2, 2017" or "2017 March". No
# letter or digit follows it, except for a time: "2017-03-02T10:00". The "link" leads
# to a time.
_CLAIM_DATE_PATTERN = re.compile(
    rf"""
    \b(?:
        (?P<year>\d{{4}})[-/._](?P<number>\d{{1,2}})[-/._](?P<day>\d{{1,2}})
      | (?P<a>\d{{1,2}})(?P<sign>[-/._])(?P<b>\d{{1,2}})(?P=sign)(?P<y>\d{{4}}|\d\d)
      | (?P<of>\d{{4}})-(?P<numbered>\d\d)(?!-\d)
      | (?:
            (?P<d>\d{{1,2}}){_ORDINAL_SUFFIX_REGEX}\s+(?:of\s+)?
          | (?P<before>\d{{4}}),?\s+
        )?
        (?P<month>{_MONTH_REGEX})
        (?:\s+(?P<later>\d{{1,2}}){_ORDINAL_SUFFIX_REGEX}(?![\d:]))?
        (?:\s*,?\s+(?:of\s+)?(?P<after>\d{{4}}))?
    )
    (?!(?!T\d\d:)\w)(?=(?P<link>T|,?\s+(?:at\s+)?|))
    """,
    re.VERBOSE | re.IGNORECASE,
)
# "19:00", "7 pm", "7:30 a.m.", "02:00 UTC", "19:00:00-07:00". Without seconds,
# 19:00-07:00 is a span of time.
_TIME_PATTERN = re.compile(
    r"""
    (?:(?<=\dT)|(?<![\w.:,]))(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?
    (?P<seconds>:\d\d(?:\.\d+)?)?(?:\s?(?P<half>[ap])\.?m\b)?
    (?(seconds)(?P<zone>[+-]\d\d:?\d\d)?)(?P<utc>\s?(?:Z|UTC|GMT))?(?![\w:])
    """,
    re.VERBOSE | re.IGNORECASE,
)


class Date(NamedTuple):
    """A date or a time, or both, at the characters `start` to `end` (excluded).

    A missing part of a date is 0, of a time None.
    """

    start: int
    end: int
    year: int = 0
    month: int = 0
    day: int = 0
    hour: int | None = None
    minute: int | None = None
    zone: tzinfo | None = None

    def agrees(self, other: "Date") -> bool:
        """Return whether the parts that both dates have are equal.

        If this time has a zone, the other is compared in that zone.
        """
        own_parts = zip(self[2:7], (0, 0, 0, None, None), strict=True)
        others = other.in_zone(self.zone)[2:7]
        for (own_part, missing), part in zip(own_parts, others, strict=True):
            if own_part != part and missing not in (own_part, part):
                return False
        return True

    def in_zone(self, zone: tzinfo | None) -> "Date":
        """Return the same time in another zone, if both zones and the day are known."""
        if zone and self.zone and self.year and self.day:
            with suppress(OverflowError):
                day = datetime(self.year, self.month, self.day, tzinfo=self.zone)
                time = day.replace(hour=self.hour or 0, minute=self.minute or 0)
                time = time.astimezone(zone)
                return self._replace(
                    year=time.year,
                    month=time.month,
                    day=time.day,
                    hour=time.hour,
                    minute=time.minute,
                    zone=zone,
                )
        return self


def dates(text: str) -> Iterator[Date]:
    """Yield the dates and times in a text that exist, the times without a date last.

    In 02/03/2017, which is ambiguous, the month is first; in 02.03.2017 the day is
    first.
    """
    times = {time.start: time for time in _times(text)}
    for match in _CLAIM_DATE_PATTERN.finditer(text):
        # The groups that matched digits; a group that matched nothing is None.
        parts = {
            name: int(part)
            for name, part in match.groupdict().items()
            if str(part).isdigit()
        }
        year, month, day = _year_month_day(match, parts)

        # "may", or "May" that is not after a word, is a verb, unless it is the whole
        # text. Without a year, the 29th of February exists.
        is_after_word = (
            text[: match.start()].rstrip()[-1:].isalnum() or match[0] == text
        )
        is_month = match[0][0].isupper() and (match[0] != "May" or is_after_word)
        is_date = year or day or is_month
        if not is_date or not 1 <= month <= 12:
            continue
        if day > monthrange(year or 2000, month)[1]:
            continue

        date = times.pop(match.end("link"), Date(0, match.end()))
        yield date._replace(start=match.start(), year=year, month=month, day=day)

    yield from times.values()


def _times(text: str) -> Iterator[Date]:
    """Yield the times in a text that exist."""
    for match in _TIME_PATTERN.finditer(text):
        hour = int(match["hour"])
        minute = match["minute"]
        if match["half"]:
            hour = hour % 12 + (12 if match["half"] in "pP" else 0)
        elif not minute:
            continue

        zone = match["zone"] or ("Z" if match["utc"] else "")
        with suppress(ValueError):
            time = day_time.fromisoformat(f"{hour:02}:{minute or '00'}{zone}")
            yield Date(
                match.start(),
                match.end(),
                hour=hour,
                minute=time.minute if minute else None,
                zone=time.tzinfo,
            )


def _year_month_day(
    match: re.Match[str], parts: Mapping[str, int]
) -> tuple[int, int, int]:
    """Return the year, month and day of a date; a missing part is 0.

    `parts` are the groups of the match that are numbers. A year of two digits is from
    1970 to 2069.
    """
    if match["sign"]:
        year = parts["y"]
        if year < 70:
            year += 2000
        elif year < 100:
            year += 1900

        first = parts["a"]
        second = parts["b"]
        day_first = first > 12 or (match["sign"] == "." and second <= 12)
        return (year, second, first) if day_first else (year, first, second)

    if match["month"]:
        # Unlike `strptime`, this reads English months in any locale.
        moment = parsedate(f"1 {match['month'][:3]} 2000 00:00")
        month = moment[1] if moment else 0
        year = parts.get("after") or parts.get("before", 0)
        day = parts.get("d") or parts.get("later", 0)
        return year, month, day

    if match["numbered"]:
        return parts["of"], parts["numbered"], 0
    return parts["year"], parts["number"], parts["day"]


# A part of a name: "HTTP" and "Code" in "HTTPCode", "rate" and "3" in "rate3".
_NAME_PART_PATTERN = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\dA-Z_]+|[A-Z]+|\d+")


def stem(word: str) -> str:
    """Return a word in lower case, without the commonest endings of English.

    >>> stem("Reports"), stem("scored"), stem("gas")
    ('report', 'scor', 'gas')
    """
    word = word.casefold()
    if len(word) < 4 or not word.isascii():
        return word

    for ending in ("ing", "ed", "ly", "es", "s", "e"):
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            return word.removesuffix(ending)
    return word


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
    """Return how well a word of a text matches a part of a name.

    0 means no match, 3 a certain one.

    >>> likeness("temperatures", "temp"), likeness("points", "pts")
    (3, 2)
    >>> likeness("fourth", "4"), likeness("points", "rebounds")
    (3, 0)
    """
    if part.isdecimal():
        numbers = (word, str(_CARDINALS.get(word)), str(_ORDINALS.get(word)))
        return 3 if part in numbers else 0

    if stem(word) == stem(part):
        return 3
    if min(len(word), len(part)) < 2 or word in STOP_WORDS:
        return 0

    short, long = sorted((part, word), key=len)
    if long.startswith(short):
        return 3

    # An abbreviation such as "pts" has no vowel after its first letter.
    has_vowel_inside = not set(short[1:]).isdisjoint("aeiou")
    if not 2 < len(short) < 6 or len(long) == len(short) or has_vowel_inside:
        return 0
    return 2 if is_abbreviation(short, f"{long}s") else 0


def likeness_in(words: Iterable[str], part: str) -> int:
    """Return the `likeness` to a part of a name of the word that is most like it."""
    return max((likeness(word, part) for word in words), default=0)


def is_abbreviation(short: str, long: str) -> bool:
    """Return whether `short` is the first letter and some later letters of `long`."""
    if short[0] != long[0]:
        return False

    # Each search in the iterator goes on where the one before has stopped.
    later_letters = iter(long[1:])
    return all(letter in later_letters for letter in short[1:])
