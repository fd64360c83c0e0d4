"""When to climb: the record of a memory key, and the plan of a new loop."""

from dataclasses import replace

import pytest

from heedful.loop import codec
from heedful.loop.climb import (
    EXPLORED_LOOPS,
    AttemptShare,
    ClimbRecord,
    plan_ladder,
)
from heedful.loop.ladder import Climb, Ladder, RungAttempt
from heedful.loop.record import Attempt, Candidate, Loop

TWO = Ladder(names=("small", "large"))
COSTS = {1: 1.0, 2: 5.0, 3: 25.0}


def climb(*attempts: str, names: tuple[str, ...] = TWO.names) -> Climb:
    """A loop: `1-` is an attempt of rung 1 that failed, `2+` one of 2 that passed."""
    return Climb(
        "loop",
        tuple(
            RungAttempt(int(mark[0]), mark[1] == "+", cost=COSTS[int(mark[0])])
            for mark in attempts
        ),
        names=names,
    )


def record_of(climbs: list[Climb]) -> ClimbRecord:
    """The record of loops, oldest first."""
    record = ClimbRecord()
    for loop in climbs:
        record = record.after(loop)
    return record


def repriced(loops: list[Climb], **costs: float) -> list[Climb]:
    """The loops with these costs of an attempt: `small=1, large=2`."""
    priced = []
    for loop in loops:
        attempts = [
            replace(a, cost=costs[loop.names[a.rung - 1]]) for a in loop.attempts
        ]
        priced.append(replace(loop, attempts=tuple(attempts)))
    return priced


def plans(record: ClimbRecord, ladder: Ladder = TWO) -> list[Ladder]:
    return [plan_ladder(ladder, record, f"loop {number}") for number in range(400)]


def plan(record: ClimbRecord, ladder: Ladder = TWO) -> Ladder:
    """The plan of most loops."""
    tries = [planned.tries for planned in plans(record, ladder)]
    common = max(set(tries), key=tries.count)
    return next(p for p in plans(record, ladder) if p.tries == common)


@pytest.mark.parametrize(
    ("loops", "tries"),
    [
        pytest.param([], (None, None), id="nothing is known"),
        pytest.param(
            [climb("1-", "1-", "2+")] * 5, (None, None), id="too little is known"
        ),
        pytest.param(
            [climb("1-", "1-", "2+"), climb("1+")] * 50,
            (1, None),
            id="a retry never helps",
        ),
        pytest.param(
            [climb("1-", "1+"), climb("1-", "1-", "2+")] * 50,
            (None, None),
            id="a retry helps in half of the loops",
        ),
        pytest.param(
            [climb("1-", "1+"), climb("1-", "1-", "2+")] * 18,
            (None, None),
            id="a retry helps, and too little is known of the first attempts",
        ),
        pytest.param(
            [climb("1-", "1-", "2+")] * 100, (0, None), id="the small model never helps"
        ),
        pytest.param(
            [climb("1-", "1+"), climb("1-", "1-", "2-")] * 50,
            (None, 0),
            id="the large model solves nothing",
        ),
    ],
)
def test_a_plan_follows_from_what_happened(loops, tries):
    assert plan(record_of(loops)).tries == tries


def test_a_plan_depends_on_the_price_of_a_climb():
    cheap = [climb("1-", "1-", "2+"), climb("1-", "1+"), climb("1+")] * 40
    record = record_of(cheap)
    assert plan(record).tries == (None, None)

    dear = repriced(cheap, small=1, large=1)
    assert plan(record_of(dear)).tries != (None, None)


def test_a_large_model_that_solves_less_does_not_take_over_because_it_is_cheap():
    loops = [climb("1-", "2-")] * 16 + [climb("1-", "2+")] + [climb("1+")] * 3
    record = record_of(repriced(loops * 15, small=1, large=2))
    assert plan(record).tries[0] != 0


def test_without_prices_time_counts():
    def timed(loop: Climb) -> Climb:
        attempts = [replace(a, cost=0.0, seconds=a.cost) for a in loop.attempts]
        return replace(loop, attempts=tuple(attempts))

    loops = [climb("1-", "1-", "2+"), climb("1+")] * 50
    assert plan(record_of([timed(loop) for loop in loops])).tries == (1, None)


def test_without_any_cost_nothing_is_left_out():
    free = [RungAttempt(rung, rung == 2) for rung in (1, 1, 2)]
    assert plan(
        record_of([Climb("loop", tuple(free), names=TWO.names)] * 100)
    ).tries == (None, None)


def test_one_loop_in_20_tries_all_rungs_so_that_the_plan_can_change():
    ladders = plans(record_of([climb("1-", "1-", "2+")] * 100))
    free = [ladder for ladder in ladders if ladder.tries == (None, None)]
    expected = len(ladders) / EXPLORED_LOOPS
    assert expected / 2 < len(free) < expected * 2
    assert all("one loop in 20" in ladder.why for ladder in free)


def test_the_same_loop_gets_the_same_plan():
    record = record_of([climb("1-", "1-", "2+")] * 100)
    assert plans(record) == plans(record)


def test_a_plan_says_why():
    planned = plan(record_of([climb("1-", "1-", "2+"), climb("1+")] * 50))
    assert "attempt 2 of rung 1 (small) passes in 0% of the loops" in planned.why
    assert "costs 20% of a climb, which passes in 100%" in planned.why


def test_old_loops_fade():
    before = [climb("1-", "1-", "2+")] * 100
    after = [climb("1-", "1+")] * 100
    assert plan(record_of([*before, *after])).tries == (None, None)


def test_climbing_rests_until_its_interval_says_otherwise():
    useless = [climb("1-", "1+"), climb("1-", "1-", "2-")] * 50
    assert record_of(useless).rungs[1].rests
    some = record_of([*useless, *[climb("1-", "1-", "2+")] * 2])
    assert some.rungs[1].rests
    many = record_of([*useless, *[climb("1-", "1-", "2+")] * 10])
    assert not many.rungs[1].rests


def test_climbing_goes_on_if_it_solves_half_of_what_the_retries_leave():
    loops = [climb("1-", "1+")] * 3 + [climb("1-", "1-", "2+"), climb("1-", "1-", "2-")]
    assert plan(record_of(loops * 40)).tries[1] is None


@pytest.mark.parametrize(
    ("names", "tries"),
    [
        pytest.param(("small", "large"), (0, None), id="the same models"),
        pytest.param(("new", "large"), (None, None), id="another small model"),
        pytest.param(("small", "new"), (None, None), id="another large model"),
        pytest.param(
            ("new", "small", "large"), (None, None, None), id="a smaller one before"
        ),
    ],
)
def test_another_model_begins_without_a_record(names, tries):
    record = record_of([climb("1-", "1-", "2+")] * 100)
    assert plan(record, Ladder(names=names)).tries == tries


def test_a_draft_of_the_caller_is_no_attempt_of_a_rung():
    attempt = Attempt(1, Candidate.of("draft"), draft=True)
    second = Attempt(2, Candidate.of("answer"))
    loop = Loop("loop", attempts=(attempt, second), ladder=TWO).climb()
    assert loop is not None
    assert len(loop.attempts) == 1


def test_a_rung_in_the_middle_that_solves_nothing_is_left_out():
    three = Ladder(names=("small", "middle", "large"))
    loops = [
        climb("1+", names=three.names),
        climb("1-", "2-", "3+", names=three.names),
    ]
    assert plan(record_of(loops * 120), three).tries[1:] == (0, None)


def test_only_the_rung_that_solves_nothing_rests():
    three = Ladder(names=("small", "middle", "large"))
    loops = [climb("1-", "1+", names=three.names)] * 5
    loops += [climb("1-", "1-", "2+", names=three.names)]
    loops += [climb("1-", "1-", "2-", "3-", names=three.names)] * 4
    assert plan(record_of(loops * 30), three).tries == (None, None, 0)


def test_the_record_is_stored_without_loss():
    record = record_of([climb("1-", "1-", "2+"), climb("1+")] * 20)
    assert codec.from_document(ClimbRecord, codec.to_document(record)) == record


@pytest.mark.parametrize("passed", [True, False])
def test_the_interval_of_a_share_holds_its_mean(passed):
    share = AttemptShare()
    assert share.ends() == (0, 1)
    for _ in range(30):
        share = share.after(passed, cost=0.0, seconds=0.0)
    low, high = share.ends()
    assert low <= share.mean <= high
