"""What a column is called, against the words of a text: stems, initials, abbreviations. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from heedful.checks.quantities import ORDINALS, WORDS

_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\dA-Z_]+|[A-Z]+|\d+")
_DENSE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
# Words that one measure goes by where its letters do not tell: "scoring" is counted in points.
_ALIKE = ("percent pct percentage", "score point pts", "home host hosts")
_POWERS = {"squared": 2, "cubed": 3}
TIMES = frozenset("date year day time month timestamp period quarter week".split())
STOP = frozenset(
    "a an the of to in on at for and or is are was were be been do does did has have had with by"
    " from as that this it its his her their he she they i you we not but who which what when where"
    " while also into after before than then there will would can could may over under between"
    " during about up out so if no all some any more most other such only both each 's s nt".split()
)


def stem(word: str) -> str:
    """A word without the commonest English endings, casefolded; any other as it is.

    >>> stem("Rebounds"), stem("cities"), stem("scored"), stem("gas")
    ('rebound', 'city', 'scor', 'gas')
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


@lru_cache(maxsize=10_000)
def parts(name: str) -> tuple[str, ...]:
    """The parts of a name in lower case, taken apart at capitals, digits and signs.

    >>> parts("FG3_PCT"), parts("homeScore"), parts("temp_min")
    (('fg', '3', 'pct'), ('home', 'score'), ('temp', 'min'))
    """
    return tuple(part.casefold() for part in _PART.findall(name))


_SAME = {stem(word): n for n, line in enumerate(_ALIKE) for word in line.split()}


@lru_cache(maxsize=50_000)
def names(word: str, part: str) -> int:
    """How surely a word of a text stands for a part of a name: 0 not at all, 3 for sure.

    >>> names("rebounds", "reb"), names("points", "pts"), names("fourth", "4"), names("steals", "q")
    (3, 2, 3, 0)
    """
    if part.isdecimal():
        written = (str(table.get(word, "")) for table in (WORDS, ORDINALS, _POWERS))
        return 3 * (part == word or part in written)
    one, other = stem(word), stem(part)
    if one == other:
        return 3
    if min(len(word), len(part)) < 2 or word in STOP:
        return 0
    if _SAME.get(one, -1) == _SAME.get(other, -2):
        return 2
    short, long = sorted((part, word), key=len)
    if long.startswith(short) and (short == part or len(short) > 3):
        return 3 if len(short) > 2 else 2
    if one in _SAME:  # its abbreviations are known
        return 0
    return max(_abbreviates(short, long), _abbreviates(short, long + "s"))


def _abbreviates(short: str, long: str) -> int:
    """2 where `short` is the first letter and later consonants of `long`, 1 any letters."""
    if not (len(short) <= 5 and len(long) >= len(short) + 2 and short[0] == long[0]):
        return 0
    rest = iter(long[1:])
    if not all(letter in rest for letter in short[1:]):
        return 0
    return 1 if set(short[1:]) & set("aeiou") or len(short) < 3 else 2


def initials(words: Sequence[str], part: str) -> bool:
    """Whether neighbouring words begin with the letters of `part`, at least two: "free throw", ft.

    Words before a number come the nearest first: three letters or more count backwards, too.

    >>> initials(["the", "free", "throw", "line"], "ft"), initials(["field"], "fg")
    (True, False)
    """
    letters = "".join(word[0] for word in words if word not in STOP)
    return len(part) > 1 and (part in letters or (len(part) > 2 and part[::-1] in letters))


def content(words: Iterable[str]) -> list[str]:
    """The stems of those words that carry meaning; where words are not spaced, pairs of letters.

    >>> content(["the", "points", "東京都"])
    ['point', '東京', '京都']
    """
    found: list[str] = []
    for word in words:
        if _DENSE.match(word):
            found += (word[at : at + 2] for at in range(max(1, len(word) - 1)))
        elif word not in STOP and len(word) > 1:
            found.append(stem(word))
    return found
