"""In which loops a coin withholds memory as a whole, and in which one lesson."""

from collections import Counter
from typing import Any

import pytest

from heedful.lessons.holdout import LoopExposures, plan_holdout
from heedful.lessons.telling import LessonCandidate, Situation, tell
from tests.tables import cases

LOOPS = 1_000
LESSONS = 3


def lesson(number: int) -> LessonCandidate:
    return LessonCandidate(
        name=f"check/{number:016x}",
        leg="likeness",
        lesson=number,
        example=number,
        is_checked=True,
    )


def count_whole(share: float, **past: Any) -> Counter[int]:
    """Count loops by how many of their three lessons are withheld."""
    holdout = plan_holdout(share, LoopExposures(**past))
    lessons = [lesson(number) for number in range(1, LESSONS + 1)]
    counts = Counter[int]()
    for number in range(LOOPS):
        situation = Situation(
            moment="first attempt",
            reader=f"loop {number}",
            seed="seed",
            holdout=holdout,
        )
        counts[len(tell(situation, lessons).withheld)] += 1
    return counts


@pytest.mark.parametrize("ended", [20, 2_000])
def test_without_a_verdict_memory_is_withheld_as_a_whole_in_a_tenth_of_loops(ended):
    counts = count_whole(0.1, ended=ended)

    assert set(counts) == {0, LESSONS}
    assert 80 <= counts[LESSONS] <= 120


@cases(
    "past",
    {
        "memory helps": {"ended": 40, "verdict": "helps"},
        "it makes no difference": {"ended": 40, "verdict": "no difference shown"},
    },
)
def test_later_most_loops_have_a_coin_for_each_lesson(past):
    counts = count_whole(0.1, **past)

    assert 10 <= counts[LESSONS] <= 40
    assert counts[1] > 150


@cases(
    "asked, past, share",
    {
        "no verdict": (0.3, {"ended": 200}, 0.3),
        "memory helps": (0.3, {"ended": 40, "verdict": "helps"}, 0.1),
        "less was asked for": (0.05, {"ended": 40, "verdict": "helps"}, 0.05),
    },
)
def test_a_large_holdout_ends_with_the_verdict(asked, past, share):
    assert plan_holdout(asked, LoopExposures(**past)).share == share


def test_memory_that_hurts_is_shown_to_one_loop_in_40():
    counts = count_whole(0.1, ended=40, verdict="hurts")

    assert set(counts) == {0, LESSONS}
    assert 10 <= counts[0] <= 40


@cases(
    "share, past",
    {
        "the first 20 loops": (0.1, {"ended": 19}),
        "after a clear": (0.1, {"ended": 19, "verdict": "hurts"}),
        "no holdout": (0.0, {"ended": 40}),
        "no holdout, it hurts": (0.0, {"ended": 40, "verdict": "hurts"}),
    },
)
def test_nothing_is_withheld(share, past):
    assert count_whole(share, **past) == {0: LOOPS}
