"""The figures of ladders, by rung."""

from dataclasses import replace

from heedful.loop.ladder import Climb, Overhead, RungAttempt, figure_ladders

NAMES = ("small", "large")
SMALL_FAILS = RungAttempt(1, False, tokens=10, cost=0.5, seconds=2.0)
SMALL_PASSES = RungAttempt(1, True, tokens=10, cost=0.5, seconds=2.0)
LARGE_FAILS = RungAttempt(2, False, calls=2, tokens=30, cost=4.0, seconds=5.0)
LARGE_PASSES = RungAttempt(2, True, calls=2, tokens=30, cost=4.0, seconds=5.0)


def climb(*attempts: RungAttempt, names: tuple[str, ...] = NAMES):
    return Climb("loop", attempts, names=names)


ANSWERED = climb(SMALL_PASSES)
CLIMBED = climb(SMALL_FAILS, SMALL_FAILS, LARGE_PASSES)
FAILED = climb(SMALL_FAILS, LARGE_FAILS)
BEGUN_HIGHER = climb(LARGE_PASSES)


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


def test_what_belongs_to_no_attempt_is_in_the_overhead_and_in_no_rung():
    failed = Overhead(calls=2, tokens=7, cost=1.5, seconds=3.0)
    loops = [replace(ANSWERED, overhead=failed), CLIMBED]
    figures = figure_ladders(loops)
    assert figures.overhead == failed
    assert sum(rung.cost for rung in figures.rungs) == 0.5 + 5.0
    assert "calls 2, tokens 7, cost 1.5" in str(failed)
    assert str(Overhead(seconds=3.0)) == ""


def test_different_models_of_one_rung_are_listed_by_themselves():
    other = climb(SMALL_FAILS, LARGE_PASSES, names=("small", "larger"))
    figures = figure_ladders([CLIMBED, other])
    answered = [(rung.rung, rung.model, rung.tasks) for rung in figures.rungs]
    assert answered == [(1, "small", 0), (2, "large", 1), (2, "larger", 1)]
