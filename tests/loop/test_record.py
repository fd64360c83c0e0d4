"""The best attempt of a loop, and which attempts improve on those before."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.loop.record import Evaluation, Finding, Improvement, Loop
from heedful.loop.stop import Plateau
from heedful.testing import history
from tests.loop import support
from tests.loop.support import DRIFT, QUALITY, evaluated, finding, loop_of, scored

PREVIOUS = Improvement(against="previous")
Pair = tuple[float | None, float | None]


def pairs(*scores: Pair, errors: str = "") -> Loop:
    """Attempts with a quality and a drift; None is a missing score."""
    evaluations = []
    for pair in scores:
        scores_by_name = zip(("quality", "drift"), pair, strict=True)
        evaluations.append(
            evaluated(
                *errors, scores={name: s for name, s in scores_by_name if s is not None}
            )
        )
    return loop_of(*evaluations, goals=(QUALITY, DRIFT))


def errors_and_quality(*attempts: tuple[str, float]) -> Loop:
    evaluations = [
        evaluated(*errors, scores={"quality": score}) for errors, score in attempts
    ]
    return loop_of(*evaluations, goals=(QUALITY,))


@pytest.mark.parametrize(
    ("loop", "best"),
    [
        (history("ab", "a", "ab"), 2),  # the fewest errors
        (history("a", "b"), 1),  # then the earlier
        (loop_of(None, evaluated("a", "b", "c")), 2),
        (loop_of(evaluated("a", warnings="wxyz"), evaluated("a", "b")), 1),
        (pairs((0.7, 0.5), (0.7, 0.2)), 2),  # more goals met
        (pairs((0.8, 0.9), (0.74, 0.26)), 1),  # one met beats none met by little
        (pairs((0.70, 0.9), (0.60, 0.3)), 2),  # worst margins −0.65 and −0.15
        (pairs((0.745, 0.5), (0.744, 0.5)), 1),  # equal worst margin: the larger sum
        (pairs((0.744, 0.5), (0.745, 0.5)), 2),
        (pairs((0.5, 0.3), (0.5004, 0.3)), 1),  # the same thousandth
        (errors_and_quality(("a", 1.0), ("", 0.1)), 2),  # errors come before goals
        (pairs((None, 0.5), (-1e12, 0.5)), 2),  # unscored is worse than any score
    ],
)
def test_the_best_has_the_fewest_errors_the_most_goals_the_largest_worst_margin(
    loop, best
):
    assert loop.best == best


ROWS: list[
    tuple[Pair, Pair, bool, bool]
] = [  # before, after, better than the best, the previous
    ((0.50, 0.50), (0.55, 0.50), True, True),
    ((0.50, 0.50), (0.5496, 0.50), True, True),  # 550 thousandths
    ((0.50, 0.50), (0.50, 0.45), True, True),  # at_most: lower is the gain
    (
        (0.50, 0.50),
        (0.60, 0.501),
        False,
        True,
    ),  # the worst margin decides against the best
    ((0.50, 0.70), (0.40, 0.65), True, True),
    ((0.50, 0.50), (0.00, 0.45), False, True),
    ((0.50, 0.50), (0.54, 0.46), False, False),  # a little of each is not enough
    (
        (0.50, 0.76),
        (0.54, 0.75),
        False,
        False,
    ),  # nor is a larger sum if the worst moves less
    ((None, 0.50), (0.05, 0.50), True, True),  # the previous: a missing score is 0 or 1
    ((None, 0.50), (0.049, 0.50), True, False),
    ((0.50, None), (0.50, 0.95), True, True),
    ((None, None), (0.0, 1.0), True, False),
    ((0.50, 0.50), (None, 0.45), False, True),
    (
        (0.50, 0.50),
        (None, 0.50),
        False,
        False,
    ),  # a score that is missing now gains nothing
    ((0.50, 0.50), (0.50, None), False, False),
]


@pytest.mark.parametrize(("before", "after", "best", "previous"), ROWS)
def test_an_attempt_improves_where_a_goal_gains_enough(before, after, best, previous):
    loop = pairs(before, after, errors="x")
    assert loop.improved == (True, best)
    assert replace(loop, improves=PREVIOUS).improved == (True, previous)


@pytest.mark.parametrize(
    ("loop", "best", "previous"),
    [
        (scored(0.5, 0.3, 0.4), "100", "101"),
        (scored(0.5, 0.54, 0.58), "100", "100"),  # the best moves to 0.54
        (scored(0.5, 0.6, 0.5, 0.55), "1100", "1101"),
        (history("ab", "a"), "11", "11"),  # without goals errors count
        (history("a", "b"), "10", "10"),
        (history("a", "abc", "ab"), "100", "101"),
        (history("abc", "ab", "abc", "ab", "a"), "11001", "11011"),
        (errors_and_quality(("a", 0.1), ("ab", 0.7), ("", 0.0)), "101", "110"),
        (errors_and_quality(("a", 0.5), ("", 0.5), ("ab", 0.55)), "110", "101"),
        (loop_of(None, evaluated("a"), None, evaluated("a")), "0100", "0100"),
        (replace(scored(0.5, 0.54, 0.59), goals=()), "100", "100"),
    ],
)
def test_an_attempt_improves_on_the_best_or_on_the_attempt_before(loop, best, previous):
    assert "".join(str(int(improved)) for improved in loop.improved) == best
    against = replace(loop, improves=PREVIOUS).improved
    assert "".join(str(int(improved)) for improved in against) == previous


def test_an_attempt_without_evaluation_is_no_yardstick():
    evaluations = [
        Evaluation(scores={"quality": q}) if q else None for q in (0.5, 0, 0.54, 0.59)
    ]
    loop = loop_of(*evaluations, goals=(QUALITY,), improves=PREVIOUS)
    assert loop.improved == (True, False, False, True)
    both = Evaluation(scores={"quality": 0.2, "drift": 0.9})
    evaluations = [
        Evaluation(scores={"quality": 0.1}),
        Evaluation(scores={"drift": 0.5}),
        both,
    ]
    assert loop_of(*evaluations, goals=(QUALITY, DRIFT)).improved == (True, True, True)


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


# Tenths of the severities of each attempt's errors, then of its warnings; the best
# attempt, and which attempts improve.
SEVERE = [
    ("9 2", 2, "11"),
    ("9 7 8 6", 4, "1101"),
    ("22 9", 2, "11"),  # one error fewer, although it is more severe
    ("2 99 1", 3, "101"),
    ("99 91", 1, "10"),  # the most severe error counts
    ("9/4 9/55 8/9", 3, "101"),  # errors come before warnings
    ("/9 /2 /22 /", 4, "1101"),
]


def severe(attempts: str) -> Loop:
    """The loop that a row of `SEVERE` writes."""
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
    return loop_of(*evaluations)


@pytest.mark.parametrize(("attempts", "best", "improved"), SEVERE)
@pytest.mark.parametrize("improves", [Improvement(0.1), PREVIOUS])
def test_of_equally_many_errors_the_milder_are_better(
    attempts, best, improved, improves
):
    loop = replace(severe(attempts), improves=improves)
    assert loop.best == best
    assert "".join(str(int(is_better)) for is_better in loop.improved) == improved


@pytest.mark.parametrize(
    ("after", "improved"), [(0.851, False), (0.8504, True), (0.849, True)]
)
def test_a_severity_that_falls_by_less_than_the_least_gain_is_best_and_no_improvement(
    after, improved
):
    evaluations = [
        Evaluation((Finding("c", "m", severity=severity),)) for severity in (0.9, after)
    ]
    assert loop_of(*evaluations).best == 2
    assert loop_of(*evaluations).improved == (True, improved)


gains = st.sampled_from([0.001, 0.05, 0.1, 5.0])


@given(support.loops(), gains)
def test_an_attempt_improves_only_if_it_becomes_the_best(loop, gain):
    leading = tuple(loop.upto(n).best == n for n in range(1, len(loop.attempts) + 1))
    improved = replace(loop, improves=Improvement(gain)).improved
    assert all(leads for better, leads in zip(improved, leading, strict=True) if better)
    # Each attempt that becomes the best improves if a thousandth is enough.
    assert replace(loop, improves=Improvement(0.001)).improved == leading


@given(support.loops(), support.improvements, st.builds(Plateau, st.integers(1, 3)))
def test_the_words_of_a_finding_play_no_part(loop, improvement, plateau):
    loop = replace(loop, improves=improvement)
    anew = []
    for attempt in loop.attempts:
        evaluation = attempt.evaluation
        if evaluation is not None:
            word = f"attempt {attempt.number}, finding"
            numbered = enumerate(evaluation.findings)
            findings = (
                replace(f, message=f"{word} {n}", key=f"{word} {n}")
                for n, f in numbered
            )
            evaluation = replace(evaluation, findings=tuple(findings))
        anew.append(replace(attempt, evaluation=evaluation))
    reworded = replace(loop, attempts=tuple(anew))
    assert reworded.best == loop.best
    assert reworded.improved == loop.improved
    assert plateau(reworded) == plateau(loop)


@given(support.evaluations, support.evaluations, support.goals, gains)
def test_one_error_fewer_always_wins(one, other, goals, gain):
    few, many = sorted((one, other), key=lambda evaluation: len(evaluation.errors))
    if len(few.errors) < len(many.errors):
        better = Improvement(gain)
        for order in ((few, many), (many, few)):
            loop = loop_of(*order, goals=goals, improves=better)
            assert loop.attempts[(loop.best or 0) - 1].evaluation is few
            assert loop.improved[1] is (order[1] is few)


@given(support.loops())
def test_a_repeat_is_counted_where_a_candidate_was_seen_before(loop):
    seen = [a.candidate.digest for a in loop.attempts]
    again = [
        a.repeats is not None or a.candidate.digest in seen[: a.number - 1]
        for a in loop.attempts
    ]
    assert [of is not None for of in loop.repeats()] == again
