"""The smallest change that makes the accepted text out of the rejected one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heedful.errors import InvalidInput
from heedful.lessons.words import LINES, WIDEST, WORK, Difference, Edit, difference, split_text


@pytest.mark.parametrize(
    ("rejected", "accepted", "said"),
    [
        ("12 km", "12.0 km", "12 km -> 12.0 km"),
        ("It is 12 km long.", "It is 12.0 km long.", "is 12 km -> is 12.0 km"),
        ("the cat sat on a mat", "a dog ran on a mat", "the cat sat on -> a dog ran on"),
        ("2024-3-5", "2024-03-05", "2024-3-5 -> 2024-03-05"),
        ("12", "12 kg", "12 -> 12 kg"),
        ("12 kg!", "12 kg", "12 kg! -> 12 kg"),
        ("max_items2", "max_items", "max_items2 -> max_items"),
        ("kg\n", "kg", "kg\\n -> kg"),
        ("a\n  b", "a\n    b", "  b ->     b"),
        ("", "x", "(nothing) -> x"),
        ("x", "", "x -> (nothing)"),
        ("same", "same", ""),
        ("", "", ""),
        ("重量是12公斤", "重量是12公克", "重量是12公斤 -> 重量是12公克"),
        ("नमस्ते दुनिया", "नमस्ते भारत", "नमस्ते दुनिया -> नमस्ते भारत"),
        ("الوزن ١٢ كغ", "الوزن ١٣ كغ", "الوزن ١٢ كغ -> الوزن ١٣ كغ"),
        ("👨‍👩‍👧 ok", "👨‍👩‍👦 ok", "👨‍👩‍👧 ok -> 👨‍👩‍👦 ok"),
        (
            "one bad three four five six seven sick nine",
            "one two three four five six seven eight nine",
            "one bad three -> one two three\nseven sick nine -> seven eight nine",
        ),
    ],
)
def test_a_difference_in_words(rejected, accepted, said):
    found = difference(rejected, accepted)
    assert str(found) == said
    assert found.minimal
    assert found.applied(rejected) == accepted


def test_what_is_changed_and_what_stands_around_it():
    assert difference("It is 12 km long\nor so", "It is 12.0 km long\nor so").edits == (
        Edit(6, "12", "12.0", "is ", " km"),
    )
    (one,) = difference("first\nlast", "first\nthe last").edits
    assert (one.at, one.end, one.before, one.after) == (6, 6, "", "last")


def test_what_is_told_is_bounded():
    rejected = "".join(f"{n} a b c\n" for n in range(9))
    told = str(difference(rejected, rejected.replace("b", "x")))
    assert told.splitlines()[LINES:] == [f"and {9 - LINES} more"]
    long = str(difference("a" * 3_000, "b c" * 1_000))
    assert len(long) == 2 * WIDEST + len(" -> ")


# Few tokens of all kinds, so that texts have much in common.
PIECES = st.lists(
    st.sampled_from(
        ["a", "b", "kg", "12", "12.0", " ", "  ", "\n", ",", "_", "漢", "字", "नि", "👍🏽"]
    ),
    max_size=14,
).map("".join)


def size(found: Difference) -> int:
    return sum(len(split_text(one.removed)) + len(split_text(one.added)) for one in found.edits)


def least(a: list[str], b: list[str]) -> int:
    """How many tokens must be removed and added: the slow way."""
    row = list(range(len(b) + 1))
    for x in a:
        above, row = row, [row[0] + 1]
        for j, y in enumerate(b):
            row.append(above[j] if x == y else 1 + min(above[j + 1], row[j]))
    return row[-1]


@given(PIECES, PIECES)
@example("a b", "a a b")
@example("a,a,b", "b,a")
def test_no_smaller_edit_exists_and_applied_it_gives_the_accepted(rejected, accepted):
    found = difference(rejected, accepted)
    assert found.applied(rejected) == accepted
    assert size(found) == least(split_text(rejected), split_text(accepted))
    assert found.minimal
    assert (str(found) == "") is (rejected == accepted)


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_is_made_of_its_tokens(one, other):
    assert "".join(split_text(one)) == one
    assert difference(one, other).applied(one) == other


@given(PIECES, PIECES)
def test_what_stands_around_an_edit_is_in_both_texts(rejected, accepted):
    gone = 0
    for one in difference(rejected, accepted).edits:
        there = one.at + gone
        assert rejected[one.at - len(one.before) : one.at] == one.before
        assert accepted[there - len(one.before) : there] == one.before
        assert rejected[one.end : one.end + len(one.after)] == one.after
        assert accepted[there + len(one.added) :].startswith(one.after)
        gone += len(one.added) - len(one.removed)


def test_too_much_work_is_one_replacement_between_the_common_ends():
    many = WORK // 4_000 + 1
    rejected, accepted = f"so {'.' * many}! end", f"so {',' * 4_000}! end"
    found = difference(rejected, accepted)
    assert found == Difference((Edit(3, "." * many, "," * 4_000, "so ", "! end"),), minimal=False)
    assert found.applied(rejected) == accepted
    assert difference(rejected[:3] + rejected[4:], accepted).minimal


def test_it_is_applied_to_no_other_text():
    found = difference("12 km", "13 km")
    assert found.applied("12 miles") == "13 miles"
    with pytest.raises(InvalidInput, match="rejected is '7 km'"):
        found.applied("7 km")
