"""How memory reads texts in any script: their words, and the difference between two
texts.

The large patterns are compiled at their first use, because opening a store needs none
of them.
"""

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import cache
from math import log, sqrt
from typing import Any

from heedful.validation import MAX_LISTED_ITEMS, MAX_LONG_TEXT_CHARS

MAX_INDEXED_WORDS = 2_000  # words of a text that are returned
# Measured on 782 questions to recorded conversations: recall@5 falls by 0.03 if these
# words are kept (by 0.04 without an embedder), and by 0.02 (0.05) without stems.
# Porter's stems do no better.
INDEX_STOP_WORDS = frozenset(
    "a an the of to in on at for and or is are was were be been do does did has have "
    "had what when"
    " where who whom which why how with by from as that this it its his her their he "
    "she they i you"
    " we my your our me him them so not".split()
)
# Scripts without spaces, and Korean, whose particles are attached to words: taken in
# pairs.
DENSE_SCRIPTS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff"
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
# Vowel signs of Indian scripts: part of a word, though not letters.
VOWEL_SIGNS = "\u0900-\u0963\u0966-\u0dff"
# A part of a text: a run of characters in a dense script, a word in another script, or
# a sign.
_INDEX_PART_PATTERN = (
    rf"(?P<dense>[{DENSE_SCRIPTS}]+)"
    rf"|(?P<word>(?:[^\W_{DENSE_SCRIPTS}]|[{VOWEL_SIGNS}])+)|[^\w\s]"
)
# A word of an ASCII text; underscores separate words.
_INDEX_WORD_PATTERN = r"[^\W_]+"
# A Chinese character, which is a word of its own.
_HAN_PATTERN = "[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
# An accent that is a character of its own, and the signs of Arabic that are left out.
_ACCENT_PATTERN = "[\u0300-\u036f\u0640\u064b-\u065f\u0670]"

# Texts are about the same from so many common words on: a single one may be of the
# language, or of the domain of all of them.
MIN_SHARED_WORDS = 2


def words(text: str) -> list[str]:
    """Return the words of a text in order, in lower case, without endings like "-ing".

    Accents are removed. Common English words are removed too, unless the text has no
    other words. In scripts without spaces, each pair of neighbouring characters is a
    word, and so is each Han character. A symbol such as an emoji is a word. At most
    20,000 characters are read, and 2,000 words returned.

    >>> words("She weighed the parcels"), words("重量"), words("Café 🚀")
    (['weigh', 'parcel'], ['重', '重量', '量'], ['caf', '🚀'])
    """
    text = text[:MAX_LONG_TEXT_CHARS].lower()
    if text.isascii():
        parts = compiled(_INDEX_WORD_PATTERN).findall(text)
    else:
        decomposed = unicodedata.normalize("NFKD", text).casefold()
        bare = compiled(_ACCENT_PATTERN).sub("", decomposed)
        parts = list(_split(unicodedata.normalize("NFC", bare)))

    stems = [_stem(word) for word in parts if word not in INDEX_STOP_WORDS]
    return (stems or parts)[:MAX_INDEXED_WORDS]


def weights(seen_in: Mapping[str, int], of: int) -> dict[str, float]:
    """Return each term's weight, ln(1 + (of + 1) / (n + 1)) if n texts contain it.

    `seen_in` has the number of texts that contain each term, `of` is the number of all
    texts. Rare terms weigh more, but in a small memory a new word does not outweigh all
    others.
    """
    return {term: log(1 + (of + 1) / (count + 1)) for term, count in seen_in.items()}


def coverage(weights: Mapping[str, float], present: Collection[str]) -> float:
    """Return the share of the total weight, 0..1, of the terms in `present`."""
    covered = sum(weight for term, weight in weights.items() if term in present)
    return covered / sum(weights.values()) if covered else 0.0


def overlap(words: Set[str], others: Set[str]) -> float:
    """Return the cosine of two sets of words, 0..1."""
    return len(words & others) / sqrt(len(words) * len(others) or 1)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern that is compiled at its first use and kept."""
    return re.compile(pattern)


def _split(text: str) -> Iterator[str]:
    """Yield the words of a text in any script, for an index of words.

    In a dense script, that is one without spaces between words, each pair of
    neighbouring characters is a word, and so is each Chinese one. In other scripts, a
    run of letters is a word. A symbol such as an emoji is one; other signs are not.
    """
    for part in compiled(_INDEX_PART_PATTERN).finditer(text):
        run = part[0]
        if part["dense"]:
            for n, character in enumerate(run):
                # A single character has no neighbour to make a pair with.
                if len(run) == 1 or compiled(_HAN_PATTERN).match(character):
                    yield character
                if n + 1 < len(run):
                    yield run[n : n + 2]
        # The only sign that is a word is a symbol such as an emoji.
        elif part["word"] or unicodedata.category(run) == "So":
            yield run


def _stem(word: str) -> str:
    """Return a word without common English endings, so that its forms become equal.

    What is left need be no word: "queries" and "query" become "queri". A word of under
    four letters, or with other letters than those of ASCII, is returned unchanged.
    """
    if len(word) < 4 or not word.isascii():
        return word

    if word.endswith("ies"):  # "queries" becomes "query"
        word = word[:-3] + "y"
    elif word[-1] == "s" and word[-2] not in "us":  # but not "class" or "status"
        word = word[:-1]

    for ending in ("ing", "ed", "ly"):
        if word.endswith(ending) and len(word) >= len(ending) + 3:
            word = word.removesuffix(ending)
            # "stopped" becomes "stop", but "called" stays "call".
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break

    # "study" becomes "studi", as "studied" does, and "make" "mak", as "making" does.
    if len(word) > 3 and word[-1] == "y":
        return word[:-1] + "i"
    return word.removesuffix("e") if len(word) > 3 else word


# A text of this length is quoted whole: an answer that is a value, and each half of a
# line of a difference.
MAX_QUOTED_CHARS = 100
DIFFERENCE_CONTEXT_TOKENS = 2  # tokens of both texts around a part that differs
_LETTERS_REGEX = rf"(?:[^\W{DENSE_SCRIPTS}]|[{VOWEL_SIGNS}])+"
# A token of a difference: blanks, a character of a dense script, a number or a word
# with the signs around it ("(12.5", "long,"), or signs alone.
_DIFFERENCE_TOKEN_PATTERN = (
    rf"\s+|[{DENSE_SCRIPTS}]"
    rf"|[^\w\s]*+(?:\d+(?:[.,]\d+)*|{_LETTERS_REGEX})[^\w\s]*|[^\w\s]+"
)


def difference(rejected: str, accepted: str) -> str:
    """Return how two answers differ: a line `old -> new` for each part that does.

    Words and numbers, with the signs around them, and blanks are compared; in scripts
    without spaces, characters. Each line begins and ends with about one word that both
    texts have. There are at most `MAX_LISTED_ITEMS` lines, and one that says how
    many more parts differ. Equal texts have no line.

    >>> print(difference("It is 12 km long, I think", "It is 12.0 km long"))
    is 12 km long, I think -> is 12.0 km long

    Objects in JSON are compared by their fields:

    >>> print(difference('{"n": 1, "on": true}', '{"n": 2, "on": true}'))
    n: 1 -> 2
    """
    changes = _changed_fields(rejected, accepted)
    if changes:
        return _first_lines(changes)

    from difflib import SequenceMatcher  # 0.4 MB, which a memory can do without

    old = compiled(_DIFFERENCE_TOKEN_PATTERN).findall(rejected)
    new = compiled(_DIFFERENCE_TOKEN_PATTERN).findall(accepted)
    matcher = SequenceMatcher(None, old, new)
    parts = list(matcher.get_grouped_opcodes(DIFFERENCE_CONTEXT_TOKENS))

    lines = []
    for part in parts:
        # Each step of a part has its kind, its start and end in `old`, and in `new`.
        before = _one_line(old[part[0][1] : part[-1][2]])
        after = _one_line(new[part[0][3] : part[-1][4]])
        lines.append(f"{before} -> {after}")
    return _first_lines(lines)


def _first_lines(lines: Sequence[str]) -> str:
    """Return the first lines of a difference, and a line with how many more there are.

    These are at most `MAX_LISTED_ITEMS`.
    """
    more = len(lines) - MAX_LISTED_ITEMS
    ending = [f"and {more} more"] if more > 0 else []
    return "\n".join([*lines[:MAX_LISTED_ITEMS], *ending])


def _changed_fields(rejected: str, accepted: str) -> list[str]:
    """Return a line `name: old -> new` for each field that differs in two JSON objects.

    If one of the texts is no object in JSON, returns no lines.
    """
    try:
        old, new = json.loads(rejected), json.loads(accepted)
    except (ValueError, RecursionError):
        return []
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return []

    lines = []
    for name in {**old, **new}:
        before, after = (
            # A field that one object lacks shows as "(nothing)".
            _one_line([plain_text(fields[name])] if name in fields else [])
            for fields in (old, new)
        )
        if before != after:
            lines.append(f"{name}: {before} -> {after}")
    return lines


def plain_text(value: Any) -> str:
    """Return a text as it is, and other data as JSON; what JSON lacks is a text."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def without_middle(text: str, max_chars: int) -> str:
    """Return a text without its middle if it is longer than `max_chars`."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]}\n{text[-half:]}"


def count_common(texts: Sequence[str], others: Sequence[str]) -> int:
    """Count the texts (or characters) with which both sequences begin."""
    for n, (text, other) in enumerate(zip(texts, others, strict=False)):
        if text != other:
            return n
    return min(len(texts), len(others))


def _one_line(tokens: Sequence[str]) -> str:
    """Return tokens as one line, which is cut if it is too long."""
    text = "".join(tokens).replace("\n", "\\n") or "(nothing)"
    if len(text) <= MAX_QUOTED_CHARS:
        return text
    return f"{text[: MAX_QUOTED_CHARS - 1]}…"
