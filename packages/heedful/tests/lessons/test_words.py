"""Which words of a text memory compares, and the smallest change from one text to
another.
"""

import pytest
from hypothesis import given, strategies as st

from heedful.lessons.words import MAX_QUOTED_CHARS, coverage, difference, weights, words
from heedful.validation import MAX_LISTED_ITEMS
from tests.tables import cases


@cases(
    "text, expected",
    {
        "empty": ("", []),
        "case, digits and ends": (
            "The Parcel_7 was weighed!",
            ["parcel", "7", "weigh"],
        ),
        "endings that double": ("running stopped quickly", ["run", "stop", "quick"]),
        "one stem": ("add adding added use used", ["add", "add", "add", "use", "used"]),
        "Arabic with and without vowels": ("كِتَابٌ كتاب", ["كتاب", "كتاب"]),
        "Greek": ("ΣΊΣΥΦΟΣ", ["σισυφοσ"]),
        "accents": ("naïve cafe\u0301", ["naiv", "caf"]),
        "one character of Japanese": ("重 を", ["重", "を"]),
        "Thai": ("ไทย", ["ไท", "ทย"]),
        "a lone surrogate and a null": ("\ud800 lone \0 nul", ["lon", "nul"]),
    },
)
def test_the_words_of_a_text(text, expected):
    assert words(text) == expected


@given(st.text(max_size=200))
def test_a_word_is_one_word_again(text):
    for word in words(text):
        assert not any(c.isspace() or c in '"*:^()' for c in word)
        assert words(f'"{word}" x9')[-1] == "x9"


counts = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 50), max_size=6)


@given(counts, st.sets(st.sampled_from("abcdefg")), st.integers(50, 99))
def test_coverage_is_a_share(seen_in, expected, of):
    weighed = weights(seen_in, of)
    assert 0 <= coverage(weighed, expected) <= 1 + 1e-9
    assert coverage(weighed, expected) <= coverage(weighed, expected | {"a"}) + 1e-9
    if seen_in:
        assert coverage(weighed, set(seen_in)) == pytest.approx(1)
    assert coverage(weighed, frozenset()) == 0


# Differences


@pytest.mark.parametrize(
    ("rejected", "accepted", "expected"),
    [
        ("12 km", "12.0 km", "12 km -> 12.0 km"),
        (
            "the cat sat on a mat",
            "a dog ran on a mat",
            "the cat sat on -> a dog ran on",
        ),
        ("kg\n", "kg", "kg\\n -> kg"),
        ("", "x", "(nothing) -> x"),
        ("重量是12公斤", "重量是12公克", "12公斤 -> 12公克"),
        ("👨‍👩‍👧 ok", "👨‍👩‍👦 ok", "👨‍👩‍👧 ok -> 👨‍👩‍👦 ok"),
        (
            "one bad three four five six seven sick nine",
            "one two three four five six seven eight nine",
            "one bad three -> one two three\nseven sick nine -> seven eight nine",
        ),
    ],
)
def test_a_difference_in_words(rejected, accepted, expected):
    assert difference(rejected, accepted) == expected


def test_what_is_printed_is_bounded():
    rejected = "".join(f"{n} a b c\n" for n in range(9))
    printed = difference(rejected, rejected.replace("b", "x"))
    assert printed.splitlines()[MAX_LISTED_ITEMS:] == [
        f"and {9 - MAX_LISTED_ITEMS} more"
    ]
    long = difference("a" * 3_000, "b c" * 1_000)
    assert len(long) == 2 * MAX_QUOTED_CHARS + len(" -> ")


@given(st.text(max_size=200), st.text(max_size=200))
def test_equal_texts_differ_in_nothing_and_others_in_something(first, second):
    assert bool(difference(first, second)) == (first != second)
