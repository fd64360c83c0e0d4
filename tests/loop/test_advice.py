"""Advice on policies: what loses no correct answer and costs less, or what lacks."""

from __future__ import annotations

import pytest

from heedful.loop.advice import MIN_SOLVED_LOOPS, advise, trade_of
from heedful.loop.record import NO_USAGE, Usage
from heedful.loop.replay import LoopScore


def scores(
    count: int,
    *,
    attempts: int = 2,
    quality: float = 1.0,
    cost: float = 0.0,
    exact: bool = True,
    unscored: bool = False,
) -> list[LoopScore]:
    """Return the scores of loops that all went alike."""
    usage = Usage(cost=cost) if cost else NO_USAGE
    score = LoopScore(
        attempts=attempts,
        usage=usage,
        exact=exact,
        quality=quality,
        oracle=1,
        solvable=True,
        unscored=unscored,
    )
    return count * [score]


RECORDED = scores(30, attempts=4)


@pytest.mark.parametrize(
    ("policies", "sentence"),
    [
        pytest.param(
            {"short": scores(30, attempts=3)},
            "short loses no correct answer and takes 25 % fewer attempts than recorded",
            id="a policy without loss is advised",
        ),
        pytest.param(
            {"short": scores(30, attempts=3), "shorter": scores(30, attempts=2)},
            "shorter loses no correct answer and takes 50 % fewer attempts than "
            "recorded",
            id="of two the cheaper one is advised",
        ),
        pytest.param(
            {"hasty": scores(29, attempts=1) + scores(1, attempts=1, quality=0.5)},
            "None of these policies costs less without losing correct answers: hasty "
            "takes 75 % fewer attempts than recorded and loses 1 of 30",
            id="a loss is named",
        ),
        pytest.param(
            {"same": RECORDED},
            "None of these policies costs less than what was recorded",
            id="what saves nothing is not advised",
        ),
        pytest.param(
            {"long": scores(28, attempts=3) + scores(2, attempts=4, exact=False)},
            "The record cannot tell whether long loses correct answers: it is too "
            "short for 2 of 30 loops, and 2 more recorded under long would tell; "
            "on the others it loses none and takes 25 % fewer attempts than recorded",
            id="a policy that is not sure is not advised",
        ),
        pytest.param(
            {
                "long": scores(28, attempts=1) + scores(2, attempts=4, exact=False),
                "short": scores(30, attempts=3),
            },
            "short loses no correct answer and takes 25 % fewer attempts than recorded",
            id="of two the one that is sure is advised",
        ),
        pytest.param(
            {"blind": scores(30, attempts=1, unscored=True)},
            "The record cannot tell what these policies would have cost or lost",
            id="a policy that cannot judge the loops is not advised",
        ),
        pytest.param(
            {"blind": scores(30, attempts=1, unscored=True), "same": RECORDED},
            "None of the policies of which the record can tell costs less than what "
            "was recorded",
            id="a policy that cannot judge the loops is in no comparison",
        ),
    ],
)
def test_the_cheapest_policy_without_loss_is_advised(policies, sentence):
    assert advise(RECORDED, policies).sentence == sentence


def test_what_saves_next_to_nothing_is_not_said_to_save_nothing():
    recorded = scores(100, attempts=4)
    near = scores(99, attempts=4) + scores(1, attempts=3)
    assert trade_of("near", recorded, near).change == "under 0.5 % fewer"
    assert trade_of("same", recorded, recorded).change == "as many"
    sentence = "None of these policies costs even 0.5 % less than what was recorded"
    assert advise(recorded, {"near": near}).sentence == sentence


def test_money_is_compared_where_the_loops_have_a_cost():
    recorded = scores(30, attempts=2, cost=0.5)
    advice = advise(recorded, {"cheap": scores(30, attempts=2, cost=0.4)})
    assert advice.policy == "cheap"
    assert advice.sentence.endswith("costs 20 % less than recorded")


def test_attempts_are_compared_if_the_cost_of_a_loop_is_not_known():
    recorded = scores(29, attempts=4) + scores(1, attempts=4, cost=0.5)
    short = scores(29, attempts=3) + scores(1, attempts=3, cost=0.1)
    # Of the loop with a cost, the record cannot tell how this policy would have ended.
    blind = scores(29, attempts=3) + scores(1, attempts=4, cost=0.5, exact=False)
    for name, policy in (("short", short), ("blind", blind)):
        trade = trade_of(name, recorded, policy)
        assert not trade.is_money
        assert trade.saving == "takes 25 % fewer attempts than recorded"


def test_few_correct_answers_allow_no_advice():
    few = scores(MIN_SOLVED_LOOPS - 1, attempts=4)
    advice = advise(few, {"short": scores(MIN_SOLVED_LOOPS - 1, attempts=1)})
    assert advice.policy == ""
    assert advice.trade is None
    assert "needs 20 loops with a correct answer, and 19 of 19" in advice.sentence


def test_a_policy_may_still_lose_what_the_record_is_too_small_to_show():
    small = advise(RECORDED, {"short": scores(30, attempts=3)})
    many = advise(scores(900, attempts=4), {"short": scores(900, attempts=3)})
    assert small.risk is not None
    assert many.risk is not None
    assert small.risk > many.risk > 0


def test_a_loop_that_the_record_lost_is_no_loss():
    recorded = scores(5, quality=0.0)
    trade = trade_of("stage", recorded, scores(5, attempts=1, quality=0.0))
    assert trade.lost == 0
    assert trade.solved == 0
    assert trade.saved == 0.5
