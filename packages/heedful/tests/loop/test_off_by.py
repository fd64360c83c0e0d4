"""How far measures are off: what is nearer is better, and counts as progress."""

from math import inf, nan

import pytest

from heedful.errors import InvalidInput
from heedful.loop.record import Evaluation, Finding, Loop
from tests.loop import support
from tests.loop.support import finding, loop_from
from tests.tables import cases


def measured(*distances: float | None, key: str = "size", **fields) -> Loop:
    """A loop whose attempts have one error each, off by these distances."""
    return loop_from(
        [Evaluation((finding(key, off_by=value, **fields),)) for value in distances]
    )


def said(*messages: str) -> Loop:
    """A loop whose attempts have one error each, which says nothing but a text."""
    return loop_from([Evaluation((Finding("own", text),)) for text in messages])


def both(size: float, other: str, off_by: float, severity: float = 0.5) -> Evaluation:
    """An evaluation with two measured errors, the second under the key `other`."""
    second = finding(other, off_by=off_by, severity=severity)
    return Evaluation((finding("size", off_by=size), second))


@cases(
    ("loop", "best"),
    {
        "the nearest": (measured(3.5, 1.05, 0.3, 0.025, 0.2), 4),
        "before the severity": (
            loop_from(
                [
                    Evaluation((finding("size", off_by=0.1, severity=0.2),)),
                    Evaluation((finding("size", off_by=0.05, severity=0.9),)),
                ]
            ),
            2,
        ),
        "after the number of errors": (
            loop_from(
                [
                    Evaluation((finding("size", off_by=9.0),)),
                    Evaluation((finding("size", off_by=0.1), finding("name"))),
                ]
            ),
            1,
        ),
        "after the goals": (
            loop_from(
                [
                    Evaluation((finding("size", off_by=9.0),), {"quality": 0.7}),
                    Evaluation((finding("size", off_by=0.1),), {"quality": 0.6}),
                ],
                goals=(support.QUALITY,),
            ),
            1,
        ),
        "not between findings of different keys": (
            loop_from(
                [
                    Evaluation((finding("size", off_by=9.0, severity=0.3),)),
                    Evaluation((finding("weight", off_by=0.1, severity=0.4),)),
                ]
            ),
            1,
        ),
        "the keys that both have decide": (
            loop_from([both(0.4, "weight", 9.0), both(0.3, "price", 99.0)]),
            2,
        ),
        "in a text, the figure that stays is the limit": (
            said("900 letters, at most 200", "410 letters, at most 200"),
            2,
        ),
        "in a text, a part of a whole says not which is better": (
            said("19 of 20 rows are empty", "3 of 20 rows are empty"),
            1,
        ),
        "not between different limits": (
            said("9 letters, at most 4", "8 letters, at most 5"),
            1,
        ),
    },
)
def test_the_best_attempt_is_nearest_to_its_limit(loop, best):
    assert loop.best == best


@cases(
    ("distances", "improved"),
    {
        "near the limit": ((0.3, 0.025, 0.015), (True, True, True)),
        "little by little": ((0.3, 0.29, 0.28), (True, False, False)),
        "only against the best": ((0.2, 0.3, 0.25), (True, False, False)),
    },
)
def test_an_attempt_improves_if_it_is_nearer_by_a_share_of_the_distance(
    distances, improved
):
    assert measured(*distances).improved == improved


@pytest.mark.parametrize("value", [-0.1, nan, inf, -inf, True, "far", 1e13])
def test_a_distance_is_a_finite_number_of_at_least_0(value):
    with pytest.raises(InvalidInput, match="off_by"):
        Finding("size", "too large", off_by=value)


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        pytest.param("at 10:15:02", "at 11:40:59", True, id="clock time"),
        pytest.param("12,088 rows", "9,086 rows", False, id="figure with separator"),
        pytest.param("/tmp/w/a.py fails", "/tmp/w/b.py fails", False, id="file"),
    ],
)
def test_the_key_of_an_error_has_no_particulars(first, second, is_same):
    keys = {Finding("tests", message).key for message in (first, second)}
    assert (len(keys) == 1) is is_same
