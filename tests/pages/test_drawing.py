"""The difference of two outputs, exact where shown, and the bars of the timeline."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.pages import html
from heedful.pages.report import BEHIND, CUT, LINES, READ, SIDE, WIDE, compare, split_lines
from tests.pages.support import example

ROOM = 10**9


@pytest.mark.parametrize(
    ("was", "now", "shown"),
    [
        ("a\nb\nc", "a\nX\nc", [" a", "-b", "+X", " c"]),
        ("", "a", ["+a"]),
        ("a", "", ["-a"]),
        ("1\n2\n3\n4\n5\n6", "1\n2\n3\n4\nX\n6", ["@line 4", " 4", "-5", "+X", " 6"]),
        ("a\nb\nc\nd", "X\nb\nc\nY", ["-a", "+X", " b", " c", "-d", "+Y"]),
        ('{"b": 1, "a": 2}', '{"a": 3, "b": 1}', [" {", '-  "a": 2,', '+  "a": 3,', '   "b": 1']),
        ('{"a": 1', '{"a": 2', ['-{"a": 1', '+{"a": 2']),
        ("[" * 5_000, "{" + "1" * 5_000, None),
    ],
)
def test_what_differs_is_shown_and_marked(was, now, shown):
    lines, _ = compare(was, now, ROOM)
    for line in lines:
        assert all(
            text in (was if line.sign == "-" else now) for text, marked in line.pieces if marked
        )
    assert shown is None or [f"{line.sign}{line.visible()}" for line in lines] == shown


def test_the_words_that_differ_are_marked():
    lines, _ = compare("sales rose twice", "sales fell twice", ROOM)
    assert [text for line in lines for text, marked in line.pieces if marked] == ["rose", "fell"]


LONG = "".join(f"line {n}\n" for n in range(60_000))
KEY = "AKIA" + "IOSFODNN7EXAMPLE"


@pytest.mark.parametrize(
    ("was", "now", "note"),
    [
        ("a", "a", "the same output as before"),
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', "the same as before, except for secrets"),
        (KEY, KEY[:-1] + "F", "the same as before, except for secrets"),
        ("a\nb", "a", "1 line removed, 0 added"),
        ("a", "\n".join("b" * 40), "1 line removed, 40 added; 32 of them not shown"),
        (LONG, f"{LONG}X", f"the same in the first {READ - BEHIND:,} characters"),
    ],
)
def test_a_note_says_how_much_changed(was, now, note):
    assert compare(was, now, ROOM)[1].startswith(note)


def test_no_half_of_a_secret_is_seen_where_a_long_output_is_cut():
    was, now = (f"{word} {'x ' * (READ // 2 - 10)}{KEY} {'y ' * READ}" for word in "ab")
    for line in (*compare(was, now, ROOM)[0], *compare("z", was, ROOM)[0]):
        assert "AKIA" not in line.visible()


@given(st.text(alphabet="ab,.;! 。\n", max_size=30), st.integers(1, 80))
def test_parts_of_lines_are_the_lines_again(piece, times):
    text = piece * times
    lines = split_lines(text)
    assert "".join(lines) == text.replace("\n", "")
    assert all(len(line) <= max(CUT, WIDE) for line in lines)


def test_outputs_that_differ_everywhere_are_bounded():
    was, now = ("\n".join(f"{name} {n}" for n in range(9_000)) for name in "xy")
    lines, note = compare(was, now, ROOM)
    assert note.startswith("9,000 lines removed, 9,000 added; ")
    assert len(lines) == 2 * (SIDE + 1)
    spread, note = compare("\n".join("ab" * 500), "\n".join("aX" * 500), ROOM)
    assert note.startswith("500 lines removed")
    assert sum(line.sign in "-+" for line in spread) <= LINES + 2 * SIDE


def test_bars_follow_one_another_as_wide_as_attempts_took():
    bars = re.findall(r"left:min\(([\d.]+)%,100% - 4px\);width:([\d.]+)%", html(example()))
    times = [one.execution_time_ms for stage in example().stages for one in stage.attempts]
    assert [float(width) for _, width in bars] == pytest.approx(
        [100 * ms / sum(times) for ms in times], abs=0.01
    )
    begins = [sum(times[:n]) / sum(times) * 100 for n in range(len(times))]
    assert [float(left) for left, _ in bars] == pytest.approx(begins, abs=0.01)
