"""Find words, numbers and dates in a text; compare words with the names of columns.

The rules for words are those of English; the words are in `claim_words.toml`.
Numbers are read as any language writes them: each is read by its own signs, and where
these allow two readings ("1,208", "1.208"), `decimal_signs` decides by the other
numbers of the same text. A text is read as tokens (`tokenize`), from which `quantities`
and `dates` are made. `likeness` says how well a word of a text matches a part of a
column's name, such as "temperature" and "temp", "points" and "pts", or "fourth" and
"4".
"""

import re
from calendar import monthrange
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date as calendar_date, datetime, time as day_time, tzinfo
from functools import cache, lru_cache
from itertools import cycle
from typing import NamedTuple
from unicodedata import lookup, normalize, numeric

from heedful.knowledge import KnowledgeTable
from heedful.lessons.words import (
    DENSE_SCRIPTS,
    INDEX_STOP_WORDS,
    words as index_words,
)

WORDS = KnowledgeTable("checks/claims/claim_words")
_ORDINAL_SUFFIX = "(?:st|nd|rd|th)"
# A number that signs divide, with at most six groups: "1,234.5", "1.234,5", "1'234.5",
# "12\u202f345,6", "12,34,567" or "5,4". What goes on after a further point or comma,
# as in "30.11.2026" and "1,2,3", is none.
_DIVIDED_NUMBER = r"""
(?<!\d[.,])(?:
    \d{1,3}(?P<group>[.,'’\u00a0\u2009\u202f])\d{3}(?:(?P=group)\d{3}){0,5}
    (?:(?!(?P=group))[.,]\d+)?(?!(?P=group)\d)
  | \d{1,2}(?:,\d\d){1,5},\d{3}(?:\.\d+)?
  | \d+[.,]\d+
)(?![.,]?\d)
"""
# A number that spaces divide: "12 345,6". Where a point is the decimal sign, numbers
# side by side are several.
_SPACED_NUMBER = r"(?<!\d[ .,])\d{1,3}(?:[ ]\d{3}){1,6}(?:[.,]\d+)?(?![ .,]?\d)"
_DIVIDED_PATTERN = re.compile(
    rf"(?<![^\W_])(?:{_SPACED_NUMBER}|{_DIVIDED_NUMBER})", re.VERBOSE
)
# The groups are named after the kinds of tokens; the first kind that fits is used.
# - times: the "x" in "8x4".
# - ordinal: "3rd".
# - number: "12", "1,234.5", "$5" or ".5"; a minus sign is part of it only at the start
#   of a word, so that "3-4" is two numbers. The pattern of each decimal sign has its
#   own numbers.
# - word: "don't", "R2" or "A-12"; digits are part of it only after Latin letters.
# - sign: the ending "'s", or any other character, such as "%".
_CLAIM_TOKEN_PATTERNS = {
    decimal: re.compile(
        rf"(?P<times>(?<=\d)[x×](?=\d))|(?P<ordinal>\d+{_ORDINAL_SUFFIX}\b)"
        r"|(?P<number>(?:(?<![\w.,)\]%$€£¥])[-\u2212](?=[$€£¥]?[\d.]))?[$€£¥]?"
        rf"(?:{divided}|\d+(?:\.\d+)?)|(?<![\w.])\.\d+)"
        r"|(?P<word>[^\W\d_](?:[^\W\d_]|(?<=[A-Za-z\d])\d|['’](?!s\b)(?=[^\W_])"
        r"|(?<=[A-Za-z])-\d(?=\d*\b))*)|(?P<sign>['’]s\b|\S)",
        re.VERBOSE,
    )
    for decimal, divided in (
        (".", _DIVIDED_NUMBER),
        (",", f"{_SPACED_NUMBER}|{_DIVIDED_NUMBER}"),
    )
}
_CURRENCY_SIGNS = frozenset("$€£¥")
# The wide comma and point of Chinese and Japanese.
_NARROW_SIGNS = str.maketrans("，．", ",.")
# For each decimal sign, what `float` has to read instead.
_PLAIN_DIGITS = {
    ".": str.maketrans("\u2212", "-", ",'’ $€£¥"),
    ",": str.maketrans("\u2212,", "-.", ".'’ $€£¥"),
}
_OTHER_SIGN = str.maketrans(".,", ",.")
# Of DIGIT NINE, CIRCLED NUMBER NINETEEN and AEGEAN NUMBER NINETY in Unicode.
_NUMBER_CHARACTERS = ("DIGIT", "CIRCLED NUMBER", "AEGEAN NUMBER")
# How far below and above a number the true one may lie after such a word, as shares
# of it: "under 5,000", "more than 5,000".
_APPROXIMATIONS = {"about": (0.05, 0.05), "above": (0, 0.25), "below": (0.25, 0)}


class Token(NamedTuple):
    """A word, number or sign at the characters `start` to `end` (excluded) of a text.

    `low` is the text in lower case, with plain characters for special ones: r2 for R²,
    and 1234.5 for "$1.234,5".
    `kind` is the name of a group in the patterns `_CLAIM_TOKEN_PATTERNS`.
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
    `digits` is True if the number is written in digits, `percent` if it is a
    percentage, `points` if it is a difference of percentages.
    """

    first: int
    last: int
    value: float
    step: float
    least: float
    greatest: float
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


def tokenize(text: str, decimal: str = ".") -> list[Token]:
    """Return the tokens of a text in order.

    `decimal` is the decimal sign of the text, "." or ",".
    """
    tokens = []
    # The point of an abbreviation before a number ends nothing.
    abbreviations = WORDS.pattern("abbreviation", r"(?<!\d\s)", r"(?=\s?\d)")
    narrow_text = abbreviations.sub(_without_point, text.translate(_NARROW_SIGNS))
    for match in _CLAIM_TOKEN_PATTERNS[decimal].finditer(narrow_text):
        kind = match.lastgroup or ""
        low = normalize("NFKC", match[0]).casefold()
        if kind == "number":
            low = _plain_number(low, decimal)
        start, end = match.span()
        token = Token(text=text[start:end], low=low, start=start, end=end, kind=kind)
        tokens.append(token)
    return tokens


def _without_point(abbreviation: re.Match[str]) -> str:
    """Return an abbreviation with a space in place of its point."""
    return abbreviation[0].replace(".", " ")


def _plain_number(number: str, decimal: str) -> str:
    """Return a number as `float` reads it; `decimal` is the sign where two can be."""
    return number.translate(_PLAIN_DIGITS[_own_decimal_sign(number) or decimal])


@lru_cache(maxsize=10_000)
def parse_number(text: str, decimal: str = ".") -> float | None:
    """Return the number in a text that is only a number, or None.

    `decimal` is the decimal sign of a number that can be read in two ways.

    >>> parse_number("1.234,5"), parse_number("12 %"), parse_number("12 m")
    (1234.5, 12.0, None)
    >>> parse_number("1,208"), parse_number("1,208", ",")
    (1208.0, 1.208)
    """
    number = normalize("NFKC", text).strip().removesuffix("%").rstrip()
    match = _CLAIM_TOKEN_PATTERNS[","].fullmatch(number)
    if not match or match.lastgroup != "number":
        return None
    return float(_plain_number(number, decimal))


def decimal_signs(texts: Iterable[str]) -> Sequence[str]:
    """Return the decimal sign of texts that belong together: a point or a comma.

    The numbers that can be read in one way only decide, each with one vote. If these
    leave it open, English words mean a point; without them, both signs are returned.

    >>> decimal_signs(["1.208 und 4,5 %"]), decimal_signs(["1,208"])
    ((',',), ('.', ','))
    """
    texts = list(texts)
    signs: list[str] = []
    for text in texts:
        numbers = _DIVIDED_PATTERN.finditer(text.translate(_NARROW_SIGNS))
        signs += (_own_decimal_sign(normalize("NFKC", match[0])) for match in numbers)
    points = signs.count(".")
    commas = signs.count(",")
    if commas > points:
        return (",",)
    is_open = points == commas and "" in signs
    return (".", ",") if is_open and not any(map(is_english, texts)) else (".",)


def is_english(text: str) -> bool:
    """Return whether a text has a word that only English has."""
    return bool(WORDS.pattern("english", r"\b", r"\b").search(text))


def _own_decimal_sign(number: str) -> str:
    """Return the only possible decimal sign of a number as it is written, or ""."""
    signs = [character for character in number if character in ".,"]
    if not signs:
        return ""

    last = signs[-1]
    if signs.count(last) < len(signs):
        return last
    if len(signs) > 1:
        return last.translate(_OTHER_SIGN)

    integer, _, decimals = number.lstrip("-\u2212$€£¥").partition(last)
    may_be_group = len(decimals) == 3 and 0 < len(integer) < 4 and integer[0] != "0"
    return "" if may_be_group else last


def figure(value: float, decimal: str = ".") -> str:
    """Return a number as people write it, with a decimal sign.

    >>> figure(12088616.0), figure(0.1 + 0.2, ","), figure(2024.0)
    ('12,088,616', '0,3', '2024')
    """
    written = f"{value:,.12g}" if abs(value) >= 10_000 else f"{value:.12g}"
    return written if decimal == "." else written.translate(_OTHER_SIGN)


def meaning(group: str, word: str) -> str:
    """Return what a word of a group of `WORDS` means, "" if the group lacks it."""
    for row in WORDS.rows(group):
        if word in row.words:
            return row.meaning
    return ""


def scale_of(word: str) -> str:
    """Return what a word multiplies the number before it by, or ""."""
    return meaning("scale", word) or meaning("foreign_scale", word)


@lru_cache(maxsize=10_000)
def cardinal(word: str) -> float:
    """Return the number from 0 to 90 that a word stands for, or else -1.

    The names of characters in Unicode have these words.

    >>> cardinal("nine"), cardinal("twelve"), cardinal("ninety"), cardinal("points")
    (9.0, 12.0, 90.0, -1.0)
    """
    for kind in _NUMBER_CHARACTERS:
        with suppress(KeyError, UnicodeError):
            return numeric(lookup(f"{kind} {word}"))
    return -1.0


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
        if not digits and value < 0:
            continue

        scale = _read_scale(tokens, position) if position < len(tokens) else 1.0
        if scale != 1:
            position += 1

        value *= scale
        step *= scale
        half_step = step / 2 * (1 + 1e-9)
        is_than = lows[first - 1] in WORDS.words("than")
        lead = lows[first - 2] if is_than else lows[first - 1]
        below, above = _APPROXIMATIONS.get(meaning("bound", lead), (0, 0))

        percent = lows[position].startswith(("%", "percent", "prozent"))
        points = percent and lows[position + 1].startswith("point")
        yield Quantity(
            first=first,
            last=position - 1,
            value=value,
            step=step,
            least=value - below * abs(value) - half_step,
            greatest=value + above * abs(value) + half_step,
            digits=digits,
            percent=percent and not points,
            points=points or lows[position] == "pp",
        )


def _read_number(
    lows: Sequence[str], first: int, *, digits: bool
) -> tuple[float, float, int]:
    """Return the number at a position, the unit of its last digit, and its end.

    The number is -1 if there is none. `digits` is True if it is written in digits.
    """
    end = first + 1
    if digits:
        decimals = lows[first].partition(".")[2]
        return float(lows[first]), 10.0 ** -len(decimals), end

    if lows[first] == "a" and scale_of(lows[end]):
        return 1.0, 1.0, end  # "a dozen" is one dozen
    value = cardinal(lows[first])
    # "twenty-one" and "twenty one" are one number.
    unit_position = end + 1 if lows[end] == "-" else end
    unit = cardinal(lows[unit_position])
    if value >= 20 and 0 < unit < 10:
        return value + unit, 1.0, unit_position + 1
    return value, 1.0, end


def _read_scale(tokens: Sequence[Token], position: int) -> float:
    """Return what the word at a position multiplies the number before it by.

    A letter does so only as a part of the number. Small letters, and "mm", are units,
    but not of money: "9.1M", "$9.1m".
    """
    token = tokens[position]
    number = tokens[position - 1]
    scale = scale_of(token.low)
    if token.start == number.end:
        scale = scale or meaning("scale_letter", token.low)
    is_money = not _CURRENCY_SIGNS.isdisjoint(number.text)
    is_unit = token.text == "mm" or token.text in WORDS.words("scale_letter")
    return float(scale or 1) if is_money or not is_unit else 1.0


def direction(words: Iterable[str]) -> int:
    """Return 1 if the first word of rising or falling is one of rising, -1, or 0."""
    for word in words:
        if WORDS.pattern("rise", r"\A").search(word):
            return 1
        if WORDS.pattern("fall", r"\A").search(word):
            return -1
    return 0


# The months in English, German, French and Spanish. The first two are also written as
# their first three letters. A word of another language may mean more: "Mars", "Mayo".
_ENGLISH_MONTHS = (
    "january february march april may june july august september october november"
    " december jan feb mar apr may jun jul aug sep oct nov dec"
).split()
_OTHER_MONTHS = (
    "januar februar märz april mai juni juli august september oktober november"
    " dezember jan feb mär apr mai jun jul aug sep okt nov dez janvier février mars"
    " avril mai juin juillet août septembre octobre novembre décembre enero febrero"
    " marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"
).split()
_MONTHS = dict(
    zip((*_OTHER_MONTHS, *_ENGLISH_MONTHS), cycle(range(1, 13)), strict=False)
)
# A date in one of five forms: "Q4 2017" or "week 9/2017"; "2017-03-02"; "2/3/2017" or
# "02.03.17"; "2017-03"; with the name of the month, as "2nd of March 2017", "2. März
# 2017", "March 2, 2017" or "2017 March". No letter or digit follows it, except for a
# time: "2017-03-02T10:00". The "link" leads to a time. "Sept" has one letter more than
# other short names.
_CLAIM_DATE_PATTERN = re.compile(
    rf"""
    \b(?:
        (?:Q[1-4]|H[12]|FY|(?:KW|week)\s?\d{{1,2}}/)\s?(?P<fiscal>\d{{4}})
      | (?P<year>\d{{4}})[-/._](?P<number>\d{{1,2}})[-/._](?P<day>\d{{1,2}})
      | (?P<a>\d{{1,2}})(?P<sign>[-/._])(?P<b>\d{{1,2}})(?P=sign)(?P<y>\d{{4}}|\d\d)
      | (?P<of>\d{{4}})-(?P<numbered>\d\d)(?!-\d)
      | (?:
            (?P<d>\d{{1,2}})(?:{_ORDINAL_SUFFIX}|\.(?=\s\w+\.?\s\d{{4}}))?\s+
            (?:(?:of|de)\s+)?
          | (?P<before>\d{{4}}),?\s+
        )?
        (?P<month>{"|".join(sorted(_MONTHS, key=len, reverse=True))})t?\b\.?
        (?:\s+(?P<later>\d{{1,2}}){_ORDINAL_SUFFIX}?(?![\d:]))?
        (?:\s*,?\s+(?:(?:of|de)\s+)?(?P<after>\d{{4}}))?
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

    @property
    def weekday(self) -> str:
        """The first three letters of the weekday in lower case, "" without a day."""
        if not self.year or not self.day:
            return ""
        day = calendar_date(self.year, self.month, self.day)
        return day.ctime()[:3].casefold()

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
                time = datetime(
                    self.year,
                    self.month,
                    self.day,
                    hour=self.hour or 0,
                    minute=self.minute or 0,
                    tzinfo=self.zone,
                ).astimezone(zone)
                return Date(self.start, self.end, *time.timetuple()[:5], zone)
        return self


_WEEKDAYS = {Date(0, 0, 2000, month=1, day=day).weekday for day in range(1, 8)}


def is_weekday(word: str) -> bool:
    """Return whether a word in lower case is the name of a weekday."""
    return word[:3] in _WEEKDAYS and word.endswith("day")


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
        is_name = match[0][0].isupper() and (match[0] != "May" or is_after_word)
        is_month = is_name and str(match["month"]).casefold() in _ENGLISH_MONTHS
        is_date = year or day or is_month
        has_month = 1 <= month <= 12
        if not is_date or not (has_month or match["fiscal"]):
            continue
        if has_month and day > monthrange(year or 2000, month)[1]:
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
    if match["fiscal"]:
        return parts["fiscal"], 0, 0

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
        month = _MONTHS[match["month"].casefold()]
        year = parts.get("after") or parts.get("before", 0)
        day = parts.get("d") or parts.get("later", 0)
        return year, month, day

    if match["numbered"]:
        return parts["of"], parts["numbered"], 0
    return parts["year"], parts["number"], parts["day"]


# A part of a name: "HTTP" and "Code" in "HTTPCode", "rate" and "3" in "rate3".
_NAME_PART_PATTERN = re.compile(r"[A-Z]+(?![^\W\dA-Z_])|[A-Z]?[^\W\dA-Z_]+|\d+")
_DENSE_PATTERN = re.compile(f"[{DENSE_SCRIPTS}]")
# The commonest endings of English, after three letters or more.
_ENDING_PATTERN = re.compile(r"(?<=\w{3})(?:ing|ed|ly|es?|s)\Z")


@lru_cache(maxsize=10_000)
def stem(word: str) -> str:
    """Return a word in lower case, without the commonest endings of English.

    >>> stem("Reports"), stem("scored"), stem("gas")
    ('report', 'scor', 'gas')
    """
    word = word.casefold()
    return _ENDING_PATTERN.sub("", word) if word.isascii() else word


def stems(group: str) -> frozenset[str]:
    """Return the stems of the words of a group of `WORDS`."""
    return _stems_of(WORDS.words(group))


@cache
def _stems_of(words: frozenset[str]) -> frozenset[str]:
    """Return the stems of words."""
    return frozenset(map(stem, words))


def is_stop_word(word: str) -> bool:
    """Return whether a word in lower case is one of the commonest words of English."""
    return word in INDEX_STOP_WORDS or word in WORDS.words("stop")


def content_stems(words: Iterable[str]) -> list[str]:
    """Return the stems of words, without stop words.

    A run of a script without spaces is taken in pairs of characters, as memory does.
    """
    found_stems: list[str] = []
    for word in words:
        if _DENSE_PATTERN.search(word):
            pairs = index_words(word)  # and words in other scripts beside them
            found_stems += (pair for pair in pairs if _DENSE_PATTERN.search(pair))
        elif len(word) > 1 and not is_stop_word(word):
            found_stems.append(stem(word))
    return found_stems


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
        numbers = (word, f"{cardinal(word):g}", meaning("ordinal", word))
        return 3 if part in numbers else 0

    if stem(word) == stem(part):
        return 3
    if min(len(word), len(part)) < 2 or is_stop_word(word):
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
