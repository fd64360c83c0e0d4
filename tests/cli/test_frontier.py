"""The picture of cost against quality: the front, and labels that can be read."""

import io
import sys
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heedful
from heedful.cli.frontier import Point, draw, front, picture
from heedful.cli.output import NoPictures
from heedful.testing import history

LONG = "thorough, plateau.patience=3, fatigue.limit=0.9, echo.times=2, attempts.limit=6, -repeat"
EVEN = [Point(f"policy {n}", 0.5 + n / 10, 0.4 + n / 20) for n in range(12)]
CASES = {
    "none": [],
    "one": EVEN[5:6],
    "the oracle": [Point("best", 1.0, 1.0)],
    "two": EVEN[:2],
    "six": EVEN[:6],
    "twelve": EVEN,
    "at one place": [Point(f"policy {n}", 1.2, 0.9) for n in range(12)],
    "at the oracle's": [Point(f"policy {n}", 1.0, 1.0) for n in range(6)],
    "close": [Point(f"policy {n}", 1.2 + n / 1000, 0.9 + n / 2000) for n in range(12)],
    "nothing solved": [Point("a", 0.5, 0.0), Point("b", 3.0, 0.0)],
    "far apart": [Point("a", 0.1, 0.0), Point("b", 90.0, 1.0)],
    "long names": [Point(f"{n}: {LONG * 3}", 1 + n / 9, n / 9) for n in range(9)],
    "odd names": [Point("$a$ \\x {b} 中😀\x1b\n_x_", 1.2, 0.5), Point("", 1.3, 0.6)],
}


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("case", CASES)
def test_every_label_is_inside_and_covers_no_other(case):
    figure = picture(CASES[case], "a title")
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    (axes,) = figure.axes
    (key,) = figure.legends
    numbers = [text for text in axes.texts if text.get_text()]
    boxes = [text.get_window_extent(renderer) for text in (*numbers, axes.title, key)]
    for box in boxes:
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert 0 <= box.y0 < box.y1 <= figure.bbox.y1
    assert not [1 for one, other in combinations(boxes, 2) if one.overlaps(other)]
    told = [name for text in numbers for name in text.get_text().replace("\n", " ").split(", ")]
    assert sorted(map(int, told)) == list(range(1, len(CASES[case]) + 1))
    assert max(tick for tick in axes.get_yticks()) <= 1


def test_the_key_names_each_policy():
    figure = picture([*EVEN[:2], Point(LONG, 2, 1)], "a title")
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert told[:4] == [
        *("Pareto front", "oracle: stops at the right one", "1  policy 0", "2  policy 1"),
    ]
    assert " ".join(told[4].split()) == f"3 {LONG}"


def test_it_is_a_png_whose_edges_are_blank():
    from matplotlib.image import imread

    others = [Point("", 0.3 + n / 50, (n * 7 % 13) / 13) for n in range(100)]
    data = draw(CASES["odd names"] + EVEN, "$title$", others)
    assert data.startswith(b"\x89PNG")
    pixels = imread(io.BytesIO(data))
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert edge.min() == 1.0


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NoPictures, match=r"pip install 'heedful\[report\]'"):
        draw(EVEN, "a title")


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
