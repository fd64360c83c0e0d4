"""The figures of ladders, by rung and by week."""

from dataclasses import replace

import pytest

from heedful.loop.ladder import Climb, Overhead, RungAttempt
from heedful.loop.rungs import LadderFigures, figure_ladders, week_of

NAMES = ("small", "large")
WEEK_SECONDS = 7 * 86_400
SMALL_FAILS = RungAttempt(1, False, tokens=10, cost=0.5, seconds=2.0)
SMALL_PASSES = RungAttempt(1, True, tokens=10, cost=0.5, seconds=2.0)
LARGE_FAILS = RungAttempt(2, False, calls=2, tokens=30, cost=4.0, seconds=5.0)
LARGE_PASSES = RungAttempt(2, True, calls=2, tokens=30, cost=4.0, seconds=5.0)


def climb(*attempts: RungAttempt, names: tuple[str, ...] = NAMES, at: float = 0.0):
    return Climb("loop", attempts, names=names, at=at)


ANSWERED = climb(SMALL_PASSES)
CLIMBED = climb(SMALL_FAILS, SMALL_FAILS, LARGE_PASSES)
FAILED = climb(SMALL_FAILS, LARGE_FAILS)
BEGUN_HIGHER = climb(LARGE_PASSES)


def test_without_ladders_there_are_no_figures():
    assert figure_ladders([]) == LadderFigures()


def test_a_rung_answers_the_tasks_that_its_attempts_pass():
    figures = figure_ladders([ANSWERED, CLIMBED, FAILED, BEGUN_HIGHER])
    small, large = figures.rungs
    assert figures.tasks == 4
    assert figures.passed == 3
    assert small.rung == 1
    assert small.model == "small"
    assert small.tasks == 1
    assert small.share == 0.25
    assert large.rung == 2
    assert large.model == "large"
    assert large.tasks == 2
    assert large.share == 0.5


def test_a_rung_spends_what_its_attempts_spend():
    small, large = figure_ladders([ANSWERED, CLIMBED, FAILED]).rungs
    assert small.attempts == 4
    assert small.calls == 4
    assert small.tokens == 40
    assert large.attempts == 2
    assert large.calls == 4
    assert large.tokens == 60
    assert small.cost == 2.0
    assert large.cost == 8.0
    assert small.seconds == 8.0
    assert large.seconds == 10.0


def test_what_belongs_to_no_attempt_is_in_the_cost_of_a_task_and_of_no_rung():
    failed = Overhead(calls=2, tokens=7, cost=1.5, seconds=3.0)
    loops = [replace(ANSWERED, overhead=failed), CLIMBED]
    figures = figure_ladders(loops)
    [week] = figures.weeks
    assert figures.overhead == failed
    assert sum(rung.cost for rung in figures.rungs) == 0.5 + 5.0
    assert week.cost == (0.5 + 1.5 + 5.0) / 2
    assert "calls 2, tokens 7, cost 1.5" in str(failed)
    assert str(Overhead(seconds=3.0)) == ""


def test_a_rung_without_attempts_is_listed():
    _, large = figure_ladders([ANSWERED]).rungs
    assert large.model == "large"
    assert large.attempts == 0
    assert large.tasks == 0


def test_different_models_of_one_rung_are_listed_by_themselves():
    other = climb(SMALL_FAILS, LARGE_PASSES, names=("small", "larger"))
    figures = figure_ladders([CLIMBED, other])
    answered = [(rung.rung, rung.model, rung.tasks) for rung in figures.rungs]
    assert answered == [(1, "small", 0), (2, "large", 1), (2, "larger", 1)]


def test_weeks_have_the_cost_of_a_task_and_what_the_small_model_answered():
    later = climb(SMALL_PASSES, at=WEEK_SECONDS)
    first, second = figure_ladders([later, ANSWERED, CLIMBED, FAILED]).weeks
    assert first.week == "1970-W01"
    assert first.tasks == 3
    assert second.week == "1970-W02"
    assert second.tasks == 1
    assert first.cost == pytest.approx((0.5 + 5.0 + 4.5) / 3)
    assert first.small == pytest.approx(1 / 3)
    assert first.passed == pytest.approx(2 / 3)
    assert first.low < first.passed < first.high
    assert second.small == 1.0


def test_a_loop_that_began_higher_is_not_answered_by_the_small_model():
    [week] = figure_ladders([BEGUN_HIGHER]).weeks
    assert week.small == 0.0
    assert week.passed == 1.0


def test_an_answer_after_a_climb_counts_as_climbed():
    """A ladder that goes back to a cheaper rung has asked the large model, too."""
    [week] = figure_ladders([climb(LARGE_FAILS, SMALL_PASSES)]).weeks
    assert week.small == 0.0


@pytest.mark.parametrize(
    ("at", "week"),
    [
        pytest.param(1_735_516_799, "2024-W52", id="a Sunday's last second"),
        pytest.param(1_735_516_800, "2025-W01", id="a week that begins in December"),
        pytest.param(1_609_459_200, "2020-W53", id="a week that ends in January"),
    ],
)
def test_weeks_are_those_of_iso_8601(at, week):
    assert week_of(at) == week
