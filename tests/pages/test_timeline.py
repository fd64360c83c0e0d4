"""The axis of time: growing, within its ends, with room for what is short."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.pages.drawing import NARROW, TICKS, axis, spans
from heedful.reports import AttemptReport, Report, StageReport
from tests.pages.support import BEGAN, attempt, example

times = st.lists(
    st.tuples(st.sampled_from([0.0, 0.02, 3.0, 900.0, 4e7]), st.sampled_from([0.0, 0.5, 7200.0])),
    min_size=1,
    max_size=9,
)


def run(*steps: tuple[float, float]) -> Report:
    """Attempts that take so many milliseconds, after so many seconds of pause."""
    at, made = 0.0, list[AttemptReport]()
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


def test_without_an_attempt_there_is_no_axis():
    assert axis(Report("p", "r", ()), []) is None


def test_every_attempt_of_the_example_has_its_place():
    rows = spans(example())
    assert [len(row) for row in rows] == [1, 2, 1, 3, 1, 1, 1, 0]
