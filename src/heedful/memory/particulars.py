"""What two texts that say the same have alike: numbers, negations, names, word for word. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Literal

from heedful.memory.assertions import pieces
from heedful.near import weighty

Difference = Literal["", "digits", "negation", "names", "wording"]

# Numbers in words, and what negates beside the negations that every text is read for.
_NUMBERS = frozenset(
    "two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty sixty"
    " hundred thousand million billion half twice triple thrice third fourth".split()
)
_NEGATES = frozenset("avoid unless except hardly seldom rarely".split())
# Words of which one in the place of the other turns a sentence round.
_PAIRS = tuple(
    tuple(pair.split("/"))
    for pair in (
        "before/after above/below less/more fewer/more least/most max/min maximum/minimum"
        " maximise/minimise maximize/minimize increase/decrease increment/decrement"
        " ascending/descending odd/even left/right true/false yes/no include/exclude"
        " included/excluded inclusive/exclusive enable/disable enabled/disabled allow/deny"
        " allow/forbid allowed/denied allowed/forbidden greater/smaller greater/less"
        " larger/smaller higher/lower upper/lower uppercase/lowercase add/remove"
        " positive/negative earlier/later older/younger inside/outside all/any all/none"
        " all/some first/last start/end open/close always/sometimes always/never with/without"
    ).split()
)
_TURNING = frozenset(word for pair in _PAIRS for word in pair)
# What is read of so many texts is kept, since each is compared with many others.
KEPT = 8_192
_WORD = re.compile(r"[^\W_]+(?:['’]t\b)?")
# Capitalised, but at the beginning of most sentences; a name is whatever else is.
_BEGIN = frozenset(
    "a an the i i'm i've i'd i'll in on at to if my it its this that these those then there"
    " when where while instead however moving upon additionally finally therefore by for as we"
    " you he she they his her their our your and but or so also next first since because after"
    " before with from what who which why how once given all any each no not never do don't"
    " always is was be of".split()
)
_QUOTED = re.compile(r"[\"“`]([^\"”`\n]{1,100})[\"”`]|(?<!\w)'([^'\n]{1,100})'(?!\w)")
_NAME = re.compile(
    r"((?:\w+[_./\\:])+\w+|\w+(?=\()|\b[b-z]\b(?!['’]))"  # identifiers, paths, calls, variables
    r"|\b([A-Z][\w'’-]*)"
)
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-/](?=[^\W\d_])")  # of a word, no operator
# So many words that stand for so many others are other words, not another turn of phrase. Where
# words are not spaced, two characters are three words.
_SPAN = 2
_DENSE = 6


_ASSERTS = re.compile(r"\bassert\b|AssertionError")


@lru_cache(KEPT)
def assertive(error_type: str, text: str) -> bool:
    """Whether a text has an assertion in it: what that expects is its name, never merged."""
    said = f"{error_type} {text}"
    return bool(_ASSERTS.search(said)) or any(one for _, one in pieces(error_type, text))


@lru_cache(KEPT)
def weights_of(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Its digits and operators, numbers in words behind them; and its negations; each in order."""
    digits: list[str] = []
    negations: list[str] = []
    for token in weighty(_HYPHEN.sub(" ", text)):
        negates = token[0].isalpha() and not any(c.isdigit() for c in token)
        (negations if negates else digits).append(token.lower())
    said = _said(text)
    digits += [word for word in said if word in _NUMBERS]
    negations += [word for word in said if word in _NEGATES]
    return tuple(digits), tuple(negations)


def turned(one: str, other: str) -> bool:
    """Whether a word of one text stands in the other as its opposite."""
    a, b = _turns(one), _turns(other)
    return any((a[x] > b[x] and b[y] > a[y]) or (b[x] > a[x] and a[y] > b[y]) for x, y in _PAIRS)


@lru_cache(KEPT)
def _turns(text: str) -> Counter[str]:
    return Counter(word for word in _said(text) if word in _TURNING)


def names_of(text: str) -> frozenset[str]:
    """Whom and what a text is about: quoted texts, identifiers, capitalised words."""
    return frozenset(quoted(text)) | frozenset(_names(text))


@lru_cache(KEPT)
def quoted(text: str) -> tuple[str, ...]:
    """What it quotes, in the order in which that first comes."""
    said = ("".join(match).strip(" .,;:!?").lower() for match in _QUOTED.findall(text))
    return tuple(dict.fromkeys(filter(None, said)))


@lru_cache(KEPT)
def _names(text: str) -> tuple[str, ...]:
    """Identifiers and capitalised words, in the order in which they first come."""
    found = []
    for identifier, name in _NAME.findall(_QUOTED.sub(" ", text)):
        name = name.lower().removesuffix("'s").removesuffix("’s")
        found += [identifier.lower()] if identifier else [name] * (name not in _BEGIN)
    return tuple(dict.fromkeys(found))


def difference(one: str, other: str) -> Difference:
    """The first of these in which two texts differ; "" where they may say the same.

    "wording": at one place up to two words stand in for up to two others, and what they mean nobody
    can tell. More words are a turn of phrase, and words left out are brevity.

    >>> difference("Retry 3 times", "Retry 5 times"), difference("Use metres", "Use feet")
    ('digits', 'wording')
    >>> difference("Always quote the id of the order.", "Always quote the order id of it.")
    ''
    """
    (digits, negations), (others, other_negations) = weights_of(one), weights_of(other)
    if digits != others:
        return "digits"
    if negations != other_negations or turned(one, other):
        return "negation"
    if not _same_names(one, other):
        return "names"
    return "wording" if _replaced(one, other) else ""


def opposed(one: str, other: str, least: float = 0.9) -> bool:
    """Whether texts are the same but for negations and opposites, or give other numbers.

    They name the same, and the Dice similarity of all other words is at least `least`. A number
    that only one of them gives is no contradiction.
    """
    a, b = _rest(one), _rest(other)
    if 2 * (a & b).total() < least * (a.total() + b.total()) or names_of(one) != names_of(other):
        return False
    (digits, negations), (others, other_negations) = weights_of(one), weights_of(other)
    if digits != others:
        return len(digits) == len(others)
    return negations != other_negations or turned(one, other)


@lru_cache(KEPT)
def _rest(text: str) -> Counter[str]:
    digits, negations = weights_of(text)
    weighed = {*digits, *negations}
    return Counter(w for w in _said(text) if w not in weighed and w not in _TURNING)


def _same_names(one: str, other: str) -> bool:
    """Whether both quote the same, and have the same names in the same order.

    A name of one may be written as any word in the other.
    """
    names, others = _names(one), _names(other)
    both = set(names) & set(others)
    return (
        quoted(one) == quoted(other)
        and [name for name in names if name in both] == [name for name in others if name in both]
        and _stand(names, other)
        and _stand(others, one)
    )


def names_only(text: str, others: Sequence[str]) -> bool:
    """Whether all that a text names and quotes stands in each of the others."""
    names = (*_names(text), *quoted(text))
    return all(_stand(names, other) for other in others)


def _stand(names: Sequence[str], text: str) -> bool:
    there = f" {' '.join(_said(text))} "
    return all(f" {' '.join(_said(name))} " in there for name in names)


def _said(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _replaced(one: str, other: str) -> bool:
    from heedful.memory.words import words

    a, b = words(one), words(other)
    most = _SPAN if one.isascii() and other.isascii() else _DENSE
    matched = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return any(
        tag == "replace" and i2 - i1 <= most and j2 - j1 <= most for tag, i1, i2, j1, j2 in matched
    )
