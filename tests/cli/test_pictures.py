"""Pictures: every kind of name can be drawn, and the front is what no policy beats."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful.cli.pictures import Point, draw_front, front
from heedful.testing import history

EVEN = [Point(f"policy {n}", 0.5 + n / 10, 0.4 + n / 20) for n in range(12)]
CASES = {
    "none": [],
    "one": EVEN[5:6],
    "twelve": EVEN,
    "at one place": [Point(f"policy {n}", 1.0, 1.0) for n in range(6)],
    "far apart": [Point("a", 0.1, 0.0), Point("b", 90.0, 1.0)],
    "odd names": [Point("$a$ \\x {b} 中😀\x1b\n_x_" + "long " * 99, 1.2, 0.5), Point("", 1.3, 0.6)],
}


@pytest.mark.parametrize("case", CASES)
def test_any_policies_are_drawn_as_png(case):
    assert draw_front(CASES[case], "$a title$", EVEN).startswith(b"\x89PNG")


points = st.builds(
    Point, st.just(""), st.sampled_from([0.5, 1.0, 1.5, 2.0]), st.sampled_from([0.0, 0.5, 0.9, 1.0])
)


def beats(one: Point, other: Point) -> bool:
    return (one.cost, -one.solved) < (other.cost, -other.solved) and one.solved >= other.solved


@given(st.lists(points, max_size=8))
def test_the_front_is_what_no_other_beats(every: Sequence[Point]):
    best = front(every)
    expected = {one for one in every if not any(beats(other, one) for other in every)}
    assert set(best) == expected
    assert [one.cost for one in best] == sorted({one.cost for one in best})


def test_where_a_policy_lies():
    recorded = [
        heedful.RecordedLoop(history(["a"], ["a"], [])),
        heedful.RecordedLoop(history(["a"], ["a"], ["a"])),
    ]
    (one,) = heedful.compare(recorded, [heedful.policy("stage, attempts.limit=2")])
    assert Point.of(one) == Point("stage, attempts.limit=2", 4 / (3 + 1), 0 / 1)
    (empty,) = heedful.compare([], [heedful.policies.stage])
    assert Point.of(empty) == Point("stage", 1.0, 1.0)
