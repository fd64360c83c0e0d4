"""The smallest change that makes the accepted text out of the rejected one."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heedful.lessons.words import LINES, WIDEST, WORK, Difference, Edit, changes, difference


@pytest.mark.parametrize(
    ("rejected", "accepted", "said"),
    [
        ("12 km", "12.0 km", "12 km -> 12.0 km"),
        ("It is 12 km long.", "It is 12.0 km long.", "is 12 km -> is 12.0 km"),
        ("the cat sat on a mat", "a dog ran on a mat", "the cat sat on -> a dog ran on"),
        ("12 kg!", "12 kg", "12 kg! -> 12 kg"),
        ("kg\n", "kg", "kg\\n -> kg"),
        ("a\n  b", "a\n    b", "  b ->     b"),
        ("", "x", "(nothing) -> x"),
        ("same", "same", ""),
        ("重量是12公斤", "重量是12公克", "重量是12公斤 -> 重量是12公克"),
        ("नमस्ते दुनिया", "नमस्ते भारत", "नमस्ते दुनिया -> नमस्ते भारत"),
        ("👨‍👩‍👧 ok", "👨‍👩‍👦 ok", "👨‍👩‍👧 ok -> 👨‍👩‍👦 ok"),
        (
            "one bad three four five six seven sick nine",
            "one two three four five six seven eight nine",
            "one bad three -> one two three\nseven sick nine -> seven eight nine",
        ),
    ],
)
def test_a_difference_in_words(rejected, accepted, said):
    assert str(difference(rejected, accepted)) == said


def test_what_is_printed_is_bounded():
    rejected = "".join(f"{n} a b c\n" for n in range(9))
    printed = str(difference(rejected, rejected.replace("b", "x")))
    assert printed.splitlines()[LINES:] == [f"and {9 - LINES} more"]
    long = str(difference("a" * 3_000, "b c" * 1_000))
    assert len(long) == 2 * WIDEST + len(" -> ")


def least(a: list[str], b: list[str]) -> int:
    """How many tokens must be removed and added: the slow way."""
    row = list(range(len(b) + 1))
    for x in a:
        above, row = row, [row[0] + 1]
        for j, y in enumerate(b):
            row.append(above[j] if x == y else 1 + min(above[j + 1], row[j]))
    return row[-1]


TOKENS = st.lists(st.sampled_from("abc,"), max_size=14)


@given(TOKENS, TOKENS)
@example(list("ab"), list("aab"))
@example(list("a,a,b"), list("b,a"))
def test_no_smaller_change_exists(rejected, accepted):
    places = changes(rejected, accepted)
    made, end = [], 0
    for i, k, j, m in places:
        made += [*rejected[end:i], *accepted[j:m]]
        end = k
    assert [*made, *rejected[end:]] == accepted
    assert sum(k - i + m - j for i, k, j, m in places) == least(rejected, accepted)


@given(st.text(max_size=200), st.text(max_size=200))
def test_the_edits_make_the_other_text_and_stand_in_both(one, other):
    made, end = "", 0
    for edit in difference(one, other).edits:
        assert one[edit.at : edit.end] == edit.removed
        assert one[: edit.at].endswith(edit.before)
        assert one[edit.end :].startswith(edit.after)
        made += one[end : edit.at] + edit.added
        end = edit.end
    assert made + one[end:] == other


def test_too_much_work_is_one_replacement_between_the_common_ends():
    many = WORK // 4_000 + 1
    rejected, accepted = f"so {'.' * many}! end", f"so {',' * 4_000}! end"
    edit = Edit(3, "." * many, "," * 4_000, "so ", "! end")
    assert difference(rejected, accepted) == Difference((edit,))
