"""The difference of two outputs: exact where it is shown, counted where it is not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.pages.drawing import (
    BEFORE,
    CUT,
    LINES,
    READ,
    SIDE,
    WIDE,
    change,
    lines,
    pretty,
    readable,
)

texts = st.lists(st.sampled_from(["a", "b b", "", "c. d! e", "{", "é"]), max_size=12).map("\n".join)


def drawn(was: str, now: str) -> list[str]:
    return [f"{one.sign}{one.text}" for one in change(was, now).lines]


@pytest.mark.parametrize(
    ("was", "now", "shown"),
    [
        ("a\nb\nc", "a\nX\nc", [" a", "-b", "+X", " c"]),
        ("", "a", ["+a"]),
        ("a", "", ["-a"]),
        ("1\n2\n3\n4\n5\n6", "1\n2\n3\n4\nX\n6", ["@line 4", " 4", "-5", "+X", " 6"]),
        ("a\nb\nc\nd", "X\nb\nc\nY", ["-a", "+X", " b", " c", "-d", "+Y"]),
        ("a\nb\nc", "X\nb\nY", ["-a", "+X", " b", "-c", "+Y"]),
        ('{"b": 1, "a": 2}', '{"a": 3, "b": 1}', [" {", '-  "a": 2,', '+  "a": 3,', '   "b": 1']),
        ('{"a": 1', '{"a": 2', ['-{"a": 1', '+{"a": 2']),
    ],
)
def test_what_is_shown(was, now, shown):
    assert drawn(was, now) == shown


def test_the_words_that_differ_are_marked():
    removed, added = change("sales rose in every quarter", "sales fell in every quarter").lines
    assert [removed.text[slice(*mark)] for mark in removed.marks] == ["rose"]
    assert [added.text[slice(*mark)] for mark in added.marks] == ["fell"]


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("a", "a", "the same output as before"),
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', "the same data as before, written differently"),
        ("a\nb", "a", "1 line removed, 0 added"),
        ("a", "\n".join("b" * 40), "1 line removed, 40 added; 32 of them not shown"),
    ],
)
def test_what_is_said(was, now, said):
    found = change(was, now)
    assert found.summary(found.lines) == said


TOKEN = "AKIA" + "IOSFODNN7EXAMPLE"
LONG = "".join(f"line {n}\n" for n in range(60_000))


def test_of_long_outputs_the_place_is_found_where_they_differ():
    at = len(LONG) - 20
    found = change(LONG, f"{LONG[:at]}X{LONG[at + 1 :]}")
    assert [one.sign for one in found.lines] == ["@", " ", "-", "+", " "]
    assert found.lines[0].text == "…"  # what lines are before it was not counted
    begin, end = (f"{one:,}" for one in (at - BEFORE + 1, len(LONG)))
    assert found.summary(found.lines) == (f"1 line removed, 1 added in characters {begin} to {end}")
    assert change(LONG, LONG).summary(()) == "the same output as before"
    assert drawn("a", LONG)[:2] == ["-a", "+line 0"]
    assert change("a", LONG).part == f" in characters 1 to {READ:,}"


@pytest.mark.parametrize("at", [READ - 10, READ - BEFORE // 2, 3 * READ])
def test_no_half_of_a_secret_is_seen_where_a_long_output_is_cut(at):
    was, now = (f"{'x ' * (at // 2)}{key} {'y ' * READ}" for key in (TOKEN, TOKEN[:-1] + "F"))
    found = change(was, now)
    assert found.summary(()).startswith("nothing differs but secrets in characters ")
    for output, other in ((was, "z"), (was, f"{was}z"), (was, now)):
        for one in (*change(output, other).lines, *change(other, output).lines):
            assert "AKIA" not in one.text
        assert "AKIA" not in "".join(readable(output)[0])


def test_what_was_not_read_of_an_output_is_counted():
    read, rest = readable(LONG)
    assert len("\n".join(read)) + rest == len(LONG)
    assert readable("a\nb") == (["a", "b"], 0)


@given(texts, texts)
def test_the_counts_are_those_of_the_texts(was, now):
    found = change(was, now)
    kept = len(lines(was)) - found.removed
    assert kept == len(lines(now)) - found.added
    assert found.same == (was == now)
    shown = [one for one in found.lines if one.sign in "-+"]
    assert len(shown) <= found.removed + found.added
    for one in shown:
        assert one.text in lines(was if one.sign == "-" else now)


@given(st.text(alphabet="ab,.;! 。\n", max_size=30), st.integers(1, 80))
def test_parts_of_lines_are_the_lines_again(piece, times):
    text = piece * times
    found = lines(text)
    assert "".join(found) == text.replace("\n", "")
    assert all(len(one) <= max(CUT, WIDE) for one in found)


def test_a_change_at_the_end_of_a_long_line_is_found():
    before = "".join(f"Sentence {n} says that. " for n in range(9_000))
    found = change(f"{before}It was 12.", f"{before}It was 13.")
    assert [one.text for one in found.lines if one.sign in "-+"] == ["It was 12.", "It was 13."]


def test_outputs_that_differ_everywhere_are_bounded():
    was, now = ("\n".join(f"{name} {n}" for n in range(9_000)) for name in "xy")
    found = change(was, now)
    assert (found.removed, found.added) == (9_000, 9_000)
    assert len(found.lines) == 2 * (SIDE + 1)
    spread = change("\n".join("ab" * 500), "\n".join("aX" * 500))
    assert spread.removed == 500
    assert sum(one.sign in "-+" for one in spread.lines) <= LINES + 2 * SIDE


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": 1e', "[1, 2", "a", "", "{" + "1" * 5_000])
def test_what_is_no_json_stays_as_it_is(text):
    assert pretty(text) is None


def test_json_is_indented_with_sorted_keys():
    assert pretty(' {"b": [1], "a": "é"}') == '{\n  "a": "é",\n  "b": [\n    1\n  ]\n}'
    assert json.loads(pretty('{"b": 1, "a": null}') or "") == {"a": None, "b": 1}
