"""What a proof says in one sentence."""

from collections import Counter
from dataclasses import replace
from math import ceil

import pytest

from heedful.lessons.proof import (
    Case,
    Conclusion,
    Effect,
    Forecast,
    Proof,
    TrialProof,
    forecast_verdict,
    prove_cases,
)
from heedful.lessons.proof_words import word_proof
from heedful.loop.share import points
from tests.tables import cases


def prove(
    shown: tuple[int, int], withheld: tuple[int, int], *, share: float = 0.5
) -> Proof:
    """Prove from numbers of loops that were right and wrong at the first try."""
    cases = Counter[Case]()
    for is_shown, (right, wrong) in ((True, shown), (False, withheld)):
        cases[share, is_shown, True, False, 1, None] += right
        cases[share, is_shown, False, True, 3, None] += wrong
    return prove_cases({None: +cases}, 3)


def say(proof: Proof, *, holdout: float = 0.1, ended: int = 0) -> str:
    return word_proof(proof, holdout=holdout, ended=ended).sentence


def test_the_number_stands_first_with_interval_shares_repeats_calls_and_net():
    proof = prove((63, 37), (11, 89))
    uplift = proof.pooled.uplift
    low = round(100 * uplift.low)
    high = round(100 * uplift.high)
    calls = proof.pooled.calls
    assert say(proof) == (
        f"+52 points right at the first try (+{low} to +{high}): 63 % with, 11 % "
        f"without; known errors again: 52 points fewer ({low} to {high}); 1.04 calls "
        f"fewer a loop ({calls.low:.2f} to {calls.high:.2f}); "
        "52 more right at the first try, of 100 loops"
    )


def test_a_gain_that_may_be_0_is_no_gain_and_says_what_is_missing():
    proof = prove((12, 4), (4, 8))
    missing = proof.balance.missing
    assert missing
    span = f"about {ceil(missing / 3)} to {3 * missing} more loops"
    low = points(proof.pooled.uplift.low)
    high = points(proof.pooled.uplift.high)
    assert say(proof).startswith(
        f"Not proven yet at the first try ({low} to {high} points): 75 % "
        "right with, 33 % without; "
    )
    assert "more right at the first try" not in say(proof)
    assert say(proof).endswith(f"; missing for a verdict: {span}")


@cases(
    "proof, facts, words",
    {
        "no loop has ended": (
            prove((0, 0), (0, 0)),
            {},
            "no loop with lessons has ended; 3 run",
        ),
        "the first loops have no coin": (
            prove((2, 1), (0, 0), share=0.0),
            {"ended": 3},
            (
                "the first 20 loops for which memory has something are shown all of "
                "it; 3 of them have ended"
            ),
        ),
        "the holdout is off": (
            prove((30, 1), (0, 0), share=0.0),
            {"ended": 31, "holdout": 0.0},
            (
                "the holdout is off (the setting holdout is 0), so there is nothing to "
                "compare with"
            ),
        ),
        "no loop has this model": (
            prove((0, 0), (0, 0), share=0.3),
            {"ended": 690},
            "no loop of this model with lessons has ended; 3 run",
        ),
        "every loop went without lessons": (
            prove((0, 0), (3, 1)),
            {"ended": 30},
            "no loop was shown lessons, so there is nothing to compare with",
        ),
    },
)
def test_without_both_kinds_of_loops_it_says_what_is_missing(proof, facts, words):
    assert say(proof, **facts) == f"No verdict yet: {words}"


def pairs_of(source: str, *, pairs: int = 0) -> TrialProof:
    """Return a trial whose texts made 19 of 20 loops right, against none."""
    uplift = Effect(0.95, 0.0, gain=0.95, low=0.5, high=1.0)
    return TrialProof(
        source=source,
        shown=20,
        withheld=20,
        pending=0,
        uplift=uplift,
        conclusion="helps",
        missing=0,
        pairs=pairs,
    )


@cases(
    "proof, trial, words",
    {
        "a file with a trial only": (
            prove((0, 0), (0, 0)),
            pairs_of("mem0"),
            "; 20 loops with mem0, 20 without",
        ),
        "pairs beside loops without a draw": (
            prove((9, 1), (0, 0), share=0.0),
            pairs_of("demo", pairs=20),
            "; the same 20 tasks with memory and without",
        ),
        "another memory does not speak for this one": (
            prove((9, 1), (0, 0), share=0.0),
            pairs_of("mem0"),
            "so there is nothing to compare with",
        ),
        "draws come first": (
            prove((63, 37), (11, 89)),
            pairs_of("demo", pairs=20),
            "; 52 more right at the first try, of 100 loops",
        ),
    },
)
def test_a_trial_says_whether_memory_helps_where_no_draw_does(proof, trial, words):
    assert say(replace(proof, trials=(trial,)), holdout=0.0, ended=10).endswith(words)


@cases(
    "holdout, loops, sooner",
    {
        "a larger holdout": (0.1, 90, 39),
        "the larger one already": (0.3, 39, 39),
        "nothing is withheld": (0.0, 0, 39),
    },
)
def test_a_forecast_says_how_many_loops_a_verdict_needs(holdout, loops, sooner):
    pooled = replace(prove((70, 20), (5, 5)).pooled, missing=90)
    forecast = forecast_verdict(pooled, holdout, recent=60, of_days=2)
    assert forecast is not None
    assert forecast.loops == pytest.approx(loops, abs=2)
    assert forecast.sooner == pytest.approx(sooner, abs=4)


def test_without_a_verdict_the_first_line_says_what_is_known_and_when():
    proof = prove((12, 4), (4, 8))
    forecast = Forecast(loops=90, sooner=39, recent=60, of_days=2)
    words = say(with_fewer_repeats(proof, "insufficient data", forecast))
    assert words.startswith("Not proven yet at the first try (")
    assert words.endswith(
        "; missing for a verdict: about 30 to 270 more loops, about 1 to 9 days at the "
        "latest pace (60 in 2 days); with holdout=0.3 about 13 to 117"
    )
    assert "; known errors again: 50 points fewer (20 to 70); " in words


def test_repeats_stand_first_if_they_alone_decide():
    words = say(with_fewer_repeats(prove((12, 4), (4, 8)), "helps", None))
    assert words.startswith(
        "50 points fewer repeats of known errors (20 to 70): 10 % with, 60 % without; "
        "not proven yet at the first try ("
    )


def with_fewer_repeats(
    proof: Proof, conclusion: Conclusion, forecast: Forecast | None
) -> Proof:
    """The proof with repeats of an error that are proven to be fewer."""
    fewer = Effect(0.1, 0.6, gain=0.5, low=0.2, high=0.7)
    pooled = replace(proof.pooled, recurrence=fewer, conclusion=conclusion)
    return replace(proof, pooled=pooled, forecast=forecast)
