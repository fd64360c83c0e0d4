"""What other ways to climb would have cost and solved, by hand."""

from dataclasses import replace

import pytest

from heedful.errors import InvalidInput
from heedful.loop.ladder import Climb, Closing, Ladder, RungAttempt
from heedful.loop.ways import (
    ALL_TRIES,
    LAST_RUNG,
    ONE_TRY,
    PLANNED,
    RecordedClimb,
    compare_ways,
    parse_prices,
)
from heedful.testing import history

PRICES = (1.0, 5.0)


def climb(attempts, tries=(), *, number=0, key="", closed=()):
    """Return a loop of attempts such as "1- 1- 2+", each of 10 tokens."""
    rung_attempts = [
        RungAttempt(int(text[0]), text[1] == "+", tokens=10)
        for text in attempts.split()
    ]
    ladder = Ladder(
        names=("small", "large"), tries=tries, closings=tuple(map(Closing, closed))
    )
    loop = Climb(f"loop {number}", tuple(rung_attempts), names=ladder.names)
    recorded = RecordedClimb(climb=loop, ladder=ladder, key=key)
    return recorded.priced(PRICES)


def figures(recorded, way):
    (row,) = compare_ways(recorded, [way])
    return row


@pytest.mark.parametrize(
    ("way", "cost", "solved", "alone", "beyond"),
    [
        pytest.param(ALL_TRIES, 10 + 20 + 70, 3, 2, 0, id="all tries"),
        # The second loop does not show what the large model would have done.
        pytest.param(ONE_TRY, 10 + 60, 2, 1, 1, id="one try"),
        pytest.param(LAST_RUNG, 50, 1, 0, 2, id="the last rung at once"),
    ],
)
def test_the_figures_by_hand(way, cost, solved, alone, beyond):
    recorded = [climb("1+"), climb("1- 1+"), climb("1- 1- 2+")]
    row = figures(recorded, way)
    assert row.cost == cost
    assert row.solved == solved
    assert row.alone == alone
    assert row.beyond == beyond
    assert row.loops + row.beyond == len(recorded)


def test_what_the_same_loops_did_cost_and_solve_stands_beside_a_way():
    row = figures([climb("1+"), climb("1- 1- 2-")], LAST_RUNG)
    assert row.loops == 1
    assert row.cost == 50
    assert row.recorded_cost == 70
    assert row.solved == row.recorded_solved == 0


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(climb("1- 2+", (1, None)), id="the plan left the second try out"),
        pytest.param(climb("2+", (0, None)), id="the loop began on the large model"),
        pytest.param(climb("1- 1- 2+", closed=(1,)), id="the small model was closed"),
        pytest.param(climb("1- 1-", (None, 0)), id="the plan left the large model out"),
    ],
)
def test_a_loop_whose_tries_were_cut_short_does_not_show_all_of_them(recorded):
    assert figures([recorded], ALL_TRIES).beyond == 1


def test_a_rung_that_the_rules_ended_early_shows_all_its_tries():
    assert figures([climb("1- 2+", (3, None))], ALL_TRIES).beyond == 0


def test_the_plan_is_that_of_the_loops_before():
    # The second try never passes and the climb always does.
    recorded = [climb("1- 1- 2+", number=number) for number in range(60)]
    row = figures(recorded, PLANNED)
    assert row.beyond == 0
    assert row.solved == 60
    assert row.attempts < figures(recorded, ALL_TRIES).attempts


def test_another_key_has_a_plan_of_its_own():
    recorded = [
        climb("1- 1- 2+", number=number, key=f"key {number}") for number in range(60)
    ]
    assert figures(recorded, PLANNED).attempts == 180


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("5", id="one rung"),
        pytest.param("1,large", id="a word"),
        pytest.param("1,-5", id="below 0"),
        pytest.param("1,nan", id="no number"),
    ],
)
def test_wrong_prices_are_named(text):
    with pytest.raises(InvalidInput, match="prices"):
        parse_prices(text)


def test_a_ladder_with_more_rungs_than_prices_is_an_error():
    ladder = Ladder(names=("small", "", "large"))
    recorded = RecordedClimb(climb=Climb("a", ()), ladder=ladder)
    with pytest.raises(InvalidInput, match=r"rung 3 \(large\)"):
        recorded.priced(PRICES)


def test_a_ladder_with_fewer_rungs_gets_the_others():
    recorded = climb("1- 2+").priced((1.0, 5.0, 9.0))
    assert figures([recorded], ALL_TRIES).cost == 60


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"ladder": None}, id="without a ladder"),
        pytest.param({"attempts": ()}, id="without attempts"),
        pytest.param({"cancelled": "ann"}, id="cancelled"),
    ],
)
def test_loops_that_show_no_way_to_climb(changes):
    loop = replace(history(["a"], []), ladder=Ladder(names=("small", "large")))
    assert RecordedClimb.of(loop) is not None
    assert RecordedClimb.of(replace(loop, **changes)) is None
