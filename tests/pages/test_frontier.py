"""The drawing of policies: its finding, its labels, and axes that are cut."""

from __future__ import annotations

import pytest

from heedful.pages.report import (
    Label,
    Point,
    axis,
    frontier,
    say_front,
)

ALL = Point("thorough", 1.1, 1.0)
MOST = Point("default", 1.05, 0.975)


@pytest.mark.parametrize(
    ("points", "words"),
    [
        pytest.param([], "", id="no policy"),
        pytest.param(
            [ALL, MOST],
            "thorough solves all that can be solved, with 1.10 times",
            id="what solves the most",
        ),
        pytest.param(
            [MOST],
            "default solves 97.5 % that can be solved, with 1.05 times",
            id="not all",
        ),
        pytest.param(
            [MOST._replace(exact=False)],
            "default solves 97.5 % that can be solved, with at least 1.05",
            id="records that are too short",
        ),
        pytest.param(
            [MOST, ALL._replace(judged=False)],
            "default solves 97.5 %",
            id="a policy that cannot judge is not named",
        ),
    ],
)
def test_the_finding_names_the_best_policy(points, words):
    assert say_front(points).startswith(words)


def test_a_label_covers_no_dot_and_no_mark_of_a_cut_axis():
    label = Label(100.0, 50.0, "name")
    assert label.fits((), [(90.0, 47.0), (110.0, 80.0)])
    assert not label.fits((), [(110.0, 47.0)])
    assert not Label(40.0, 168.0, "name").fits((), ())


def test_no_label_covers_another_or_leaves_the_drawing():
    points = [
        Point(f"policy {n}", 1.05 + n / 1_000, 0.97 + n / 1_000) for n in range(5)
    ]
    names = [point.name for point in points]
    labels = frontier(points, marks=names)["labels"]
    assert {label.text for label in labels} == set(names)
    for label in labels:
        others = [other for other in labels if other is not label]
        assert label.fits(others, ())


def test_policies_at_one_place_share_a_label():
    points = [Point(name, 100.0, 100.0) for name in ("recorded", "thorough")]
    other = Point("stage", 90.0, 95.0)
    names = ["recorded", "thorough", "stage"]
    chart = frontier([*points, other], marks=names)
    texts = {label.text for label in chart["labels"]}
    assert texts == {"recorded, thorough", "stage"}


def test_a_label_of_many_policies_names_the_first():
    names = [f"default, attempts.limit={n}" for n in range(4)]
    points = [Point(name, 100.0, 100.0) for name in names]
    (label,) = frontier(points, marks=names)["labels"]
    assert label.text == "default, attempts.limit=0 and 3 more"


def test_no_dot_stands_on_the_mark_of_a_cut_axis():
    assert axis("attempts", [96.0, 100.0])["low"] == 95
    assert axis("calls", [0.0, 80.0])["low"] == 0


def test_no_label_is_crossed_by_the_line_of_the_front():
    points = [
        Point("reflection", 90.2, 93.1),
        Point("default", 95.2, 97.7),
        Point("stage", 97.7, 99.4),
        Point("recorded", 100.0, 100.0),
        Point("thorough", 100.0, 100.0),
    ]
    names = [point.name for point in points]
    chart = frontier(points, marks=names)
    x, y = (chart["x"], chart["y"])
    corners = [
        (
            34 + 330 * (point.cost - x["low"]) / (x["high"] - x["low"]),
            170 - 150 * (point.solved - y["low"]) / (y["high"] - y["low"]),
        )
        for point in chart["line"]
    ]
    assert len(corners) == 4
    for label in chart["labels"]:
        assert not label.is_crossed(corners), label.text


@pytest.mark.parametrize(
    ("x", "y", "is_crossed"),
    [
        pytest.param(
            60.0,
            103.0,
            True,
            id="by the step to the right",
        ),
        pytest.param(
            180.0,
            70.0,
            True,
            id="by the step up",
        ),
        pytest.param(
            60.0,
            90.0,
            False,
            id="above the step",
        ),
        pytest.param(
            210.0,
            70.0,
            False,
            id="right of the step",
        ),
    ],
)
def test_a_line_of_steps_crosses_a_label(x, y, is_crossed):
    assert Label(x, y, "stage").is_crossed([(50, 100), (200, 50)]) == is_crossed


def test_an_axis_that_does_not_begin_at_0_says_so():
    cut_axis = axis("solved", [0.93, 1.0])
    assert cut_axis["cut"]
    assert cut_axis["label"] == "solved (begins at 0.92)"
    full_axis = axis("calls", [0, 80])
    assert not full_axis["cut"]
    assert full_axis["label"] == "calls"


def test_no_share_stands_above_1():
    chart = frontier([ALL])
    assert chart["y"]["high"] == pytest.approx(1.0)


def test_labels_that_are_near_do_not_read_as_one():
    names = ["recorded, default, thorough", "stage", "reflection"]
    places = [(100.0, 100.0), (98.0, 98.4), (96.0, 95.0)]
    points = [Point(name, *place) for name, place in zip(names, places, strict=True)]
    labels = frontier(points, marks=names)["labels"]
    for label in labels:
        assert label.is_apart([other for other in labels if other is not label])
