"""Drawings: the difference of two outputs, exact where shown, and the time axis of attempts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.pages.report import (
    BEFORE,
    CUT,
    LINES,
    NARROW,
    READ,
    SIDE,
    TICKS,
    WIDE,
    axis,
    change,
    lines,
    pretty,
    readable,
    spans,
)
from heedful.store.runs import Report, StageAttempt, StageReport
from tests.pages.support import BEGAN, attempt, example

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


times = st.lists(
    st.tuples(st.sampled_from([0.0, 0.02, 3.0, 900.0, 4e7]), st.sampled_from([0.0, 0.5, 7200.0])),
    min_size=1,
    max_size=9,
)


def run(*steps: tuple[float, float]) -> Report:
    """Attempts that take so many milliseconds, after so many seconds of pause."""
    at, made = 0.0, list[StageAttempt]()
    for ms, pause in steps:
        at += pause + ms / 1000
        made.append(attempt("s", len(made) + 1, "failed", ms=ms, at=at))
    return Report("p", "r", (StageReport("s", "failed", "halted", tuple(made), 1),), BEGAN)


@given(times)
def test_bars_stand_in_order_within_the_axis_and_are_seen(steps):
    report = run(*steps)
    rows = spans(report)
    scale = axis(report, rows)
    assert scale is not None
    places = [(scale.place(begin), scale.place(end)) for begin, end in rows[0]]
    assert all(0 <= left <= right <= 1 for left, right in places)
    assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(places))
    for (ms, _), (left, right) in zip(steps, places, strict=True):
        if ms >= 0.02:
            assert right - left >= min(NARROW, 0.5 / len(steps)) / 2
    ticks = list(scale.ticks())
    assert ticks[0] == (0.0, scale.place(BEGAN))
    assert len(ticks) <= TICKS + 1
    assert all(left < right for (_, left), (_, right) in pairwise(ticks))


def test_an_axis_of_like_attempts_is_even():
    report = run((1000, 0), (2000, 0), (1000, 0))
    scale = axis(report, spans(report))
    assert scale
    assert scale.even
    assert [round(scale.place(BEGAN + at), 6) for at in (0, 1, 3, 4)] == [0, 0.25, 0.75, 1]
    assert [at for at, _ in scale.ticks()] == pytest.approx([0, 1, 2, 3, 4])


def test_a_night_between_two_attempts_leaves_them_seen():
    report = run((60_000, 0), (60_000, 40_000))
    scale = axis(report, spans(report))
    assert scale
    assert not scale.even
    (first, second) = spans(report)[0]
    assert scale.place(first[1]) - scale.place(first[0]) > 0.1
    assert scale.place(second[0]) - scale.place(first[1]) < 0.7


def test_an_attempt_that_was_not_decided_follows_the_one_before():
    two = (attempt("s", 1, "failed", ms=1000, at=1), attempt("s", 2, "passed", ms=500))
    report = Report("p", "r", (StageReport("s", "open", "open", two),), BEGAN)
    assert spans(report) == [[(BEGAN, BEGAN + 1), (BEGAN + 1, BEGAN + 1.5)]]


def test_every_attempt_has_its_place():
    assert [len(row) for row in spans(example())] == [1, 2, 1, 3, 1, 1, 1, 0]
    assert axis(Report("p", "r", ()), []) is None
