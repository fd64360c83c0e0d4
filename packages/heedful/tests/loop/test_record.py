"""The best attempt of a loop, and which attempts improve on those before."""

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from heedful.checks.evaluate import Context
from heedful.loop.decide import Again, Done, Trigger
from heedful.loop.record import (
    Candidate,
    Evaluation,
    Finding,
    Improvement,
    Loop,
    Usage,
)
from heedful.testing import history
from tests.loop import support
from tests.loop.support import (
    DRIFT,
    QUALITY,
    evaluated,
    finding,
    loop_from,
    loop_of,
    scored,
)
from tests.tables import cases

PREVIOUS = Improvement(against="previous")
Pair = tuple[float | None, float | None]


def loop_of_scores(*scores: Pair, errors: str = "") -> Loop:
    """Attempts with a quality and a drift; None is a missing score."""
    evaluations = []
    for pair in scores:
        scores_by_name = dict(zip(("quality", "drift"), pair, strict=True))
        present = {name: s for name, s in scores_by_name.items() if s is not None}
        evaluations.append(evaluated(*errors, scores=present))
    return loop_from(evaluations, goals=(QUALITY, DRIFT))


def loop_of_errors_and_quality(*attempts: tuple[str, float]) -> Loop:
    evaluations = [
        evaluated(*errors, scores={"quality": score}) for errors, score in attempts
    ]
    return loop_from(evaluations, goals=(QUALITY,))


@cases(
    ("loop", "best"),
    {
        "the fewest errors": (history("ab", "a", "ab"), 2),
        "then the earlier": (history("a", "b"), 1),
        "an attempt without evaluation is no best": (
            loop_of(None, evaluated("a", "b", "c")),
            2,
        ),
        "warnings weigh less than errors": (
            loop_of(evaluated("a", warnings="wxyz"), evaluated("a", "b")),
            1,
        ),
        "more goals met": (loop_of_scores((0.7, 0.5), (0.7, 0.2)), 2),
        "the worst margin": (loop_of_scores((0.70, 0.9), (0.60, 0.3)), 2),
        "equal worst margins, the larger sum, first": (
            loop_of_scores((0.745, 0.5), (0.744, 0.5)),
            1,
        ),
        "errors before goals": (loop_of_errors_and_quality(("a", 1.0), ("", 0.1)), 2),
    },
)
def test_the_best_has_the_fewest_errors_the_most_goals_the_largest_worst_margin(
    loop, best
):
    assert loop.best == best


# Quality and drift before and after; better than the best, better than the previous.
ROWS = {
    "enough in thousandths": ((0.50, 0.50), (0.5496, 0.50), True, True),
    "at_most: lower is the gain": ((0.50, 0.50), (0.50, 0.45), True, True),
    "the worst margin decides against the best": (
        (0.50, 0.50),
        (0.60, 0.501),
        False,
        True,
    ),
    "a goal gains, the worst falls": ((0.50, 0.50), (0.00, 0.45), False, True),
    "a little of each is not enough": ((0.50, 0.50), (0.54, 0.46), False, False),
    "the previous: a missing score is 0": ((None, 0.50), (0.05, 0.50), True, True),
    "a score is lost, the other gains": ((0.50, 0.50), (None, 0.45), False, True),
}


@cases(("before", "after", "best", "previous"), ROWS)
def test_an_attempt_improves_where_a_goal_gains_enough(before, after, best, previous):
    loop = loop_of_scores(before, after, errors="x")
    assert loop.improved == (True, best)
    assert replace(loop, improves=PREVIOUS).improved == (True, previous)


@cases(
    ("loop", "best", "previous"),
    {
        "worse, then a little better": (scored(0.5, 0.3, 0.4), "100", "101"),
        "little by little": (scored(0.5, 0.54, 0.58), "100", "100"),
        "better, then back": (scored(0.5, 0.6, 0.5, 0.55), "1100", "1101"),
        "errors count without goals": (history("ab", "a"), "11", "11"),
        "another error is no gain": (history("a", "b"), "10", "10"),
        "up and down": (history("abc", "ab", "abc", "ab", "a"), "11001", "11011"),
        "errors before scores": (
            loop_of_errors_and_quality(("a", 0.1), ("ab", 0.7), ("", 0.0)),
            "101",
            "110",
        ),
        "attempts without evaluation": (
            loop_of(None, evaluated("a"), None, evaluated("a")),
            "0100",
            "0100",
        ),
    },
)
def test_an_attempt_improves_on_the_best_or_on_the_attempt_before(loop, best, previous):
    assert as_digits(loop.improved) == best
    against_previous = replace(loop, improves=PREVIOUS)
    assert as_digits(against_previous.improved) == previous


def test_an_attempt_without_evaluation_is_no_yardstick():
    evaluations = [
        Evaluation(scores={"quality": q}) if q else None for q in (0.5, 0, 0.54, 0.59)
    ]
    loop = loop_from(evaluations, goals=(QUALITY,), improves=PREVIOUS)
    assert loop.improved == (True, False, False, True)
    both = Evaluation(scores={"quality": 0.2, "drift": 0.9})
    evaluations = [
        Evaluation(scores={"quality": 0.1}),
        Evaluation(scores={"drift": 0.5}),
        both,
    ]
    loop = loop_from(evaluations, goals=(QUALITY, DRIFT))
    assert loop.improved == (True, True, True)


@given(support.loops(), support.improvements, st.integers(0, 6))
def test_the_beginning_of_a_loop_does_not_depend_on_its_end(loop, improvement, end):
    loop = replace(loop, improves=improvement)
    prefix = replace(loop, attempts=loop.attempts[:end])
    assert loop.improved[:end] == prefix.improved == loop.upto(end).improved
    assert loop.upto(end) == prefix
    assert loop.upto(end).best == prefix.best
    for attempt in loop.attempts[end:]:
        prefix = prefix.then(attempt)
    assert prefix == loop


# Of each attempt, the severities of its errors in tenths, a digit an error, and behind
# / those of its warnings; the best attempt, and which attempts improve (1).
SEVERE = {
    "milder": ("9 2", 2, "11"),
    "one error fewer, though more severe": ("22 9", 2, "11"),
    "the most severe counts": ("99 91", 1, "10"),
    "errors before warnings": ("9/4 9/55 8/9", 3, "101"),
    "warnings alone": ("/9 /2 /22 /", 4, "1101"),
}


def loop_of_severities(attempts: str) -> Loop:
    """Expand the attempts of a row of `SEVERE`."""
    evaluations: list[Evaluation] = []
    for attempt in attempts.split():
        errors, _, warnings = attempt.partition("/")
        findings = [
            finding(f"{len(evaluations)} {n}", severity=int(n) / 10) for n in errors
        ]
        findings += [
            finding(n, level="warning", severity=int(n) / 10) for n in warnings
        ]
        evaluations.append(Evaluation(tuple(findings)))
    return loop_from(evaluations)


def as_digits(flags: tuple[bool, ...]) -> str:
    return "".join("1" if flag else "0" for flag in flags)


@cases(("attempts", "best", "improved"), SEVERE)
@cases(
    "improves",
    {
        "against the best": Improvement(0.1),
        "against the one before": PREVIOUS,
    },
)
def test_of_equally_many_errors_the_milder_are_better(
    attempts, best, improved, improves
):
    loop = replace(loop_of_severities(attempts), improves=improves)
    assert loop.best == best
    assert as_digits(loop.improved) == improved


def test_the_fall_of_a_severity_is_measured_in_thousandths():
    loop = loop_from(
        [Evaluation((Finding("c", "m", severity=fall),)) for fall in (0.9, 0.8504)]
    )
    assert loop.best == 2
    assert loop.improved == (True, True)


gains = st.sampled_from([0.001, 0.05, 0.1, 5.0])


@given(support.loops(), gains)
def test_an_attempt_improves_only_if_it_becomes_the_best(loop, gain):
    leading = tuple(loop.upto(n).best == n for n in range(1, len(loop.attempts) + 1))
    improved = replace(loop, improves=Improvement(gain)).improved
    assert all(leads for better, leads in zip(improved, leading, strict=True) if better)
    # Each attempt that becomes the best improves if a thousandth is enough.
    assert replace(loop, improves=Improvement(0.001)).improved == leading


RECORDS = (
    pytest.param(Usage(1, cost=0.5), id="usage"),
    pytest.param(Finding("words", "3 words", key="words<=2"), id="finding"),
    pytest.param(Candidate.of("a b"), id="candidate"),
    pytest.param(Trigger("words", "3 words"), id="trigger"),
    pytest.param(Again(feedback="shorter"), id="verdict to go on"),
    pytest.param(Done(1, passed=True), id="verdict that ends"),
    pytest.param(Context("task", hint="shorter"), id="context"),
)


@pytest.mark.parametrize("record", [*RECORDS, pytest.param(history("a"), id="loop")])
def test_the_records_of_an_attempt_are_pickled(record: Any) -> None:
    assert pickle.loads(pickle.dumps(record)) == record


@pytest.mark.parametrize("record", [*RECORDS, pytest.param(history("a"), id="loop")])
def test_the_records_of_an_attempt_are_copied(record: Any) -> None:
    assert copy.deepcopy(record) == record
    assert replace(record) == record


@pytest.mark.parametrize("record", RECORDS)
def test_equal_records_of_an_attempt_are_one_in_a_set(record: Any) -> None:
    assert {record, copy.copy(record)} == {record}
