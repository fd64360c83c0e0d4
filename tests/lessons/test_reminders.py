"""What reminders did is counted against what a coin withheld."""

from __future__ import annotations

import pytest

from heedful.lessons.reminders import (
    FailureCosts,
    ReminderCount,
    ReminderTally,
    figure_reminders,
)

COSTS = FailureCosts(failures=4, calls=18)


def count(
    n: int, *, told: bool = True, repeated: bool = False, share: float = 0.1
) -> ReminderCount:
    return ReminderCount(told=told, share=share, repeated=repeated, n=n)


# Of 10 that were withheld, 6 came again; of 20 that were told, 4.
COMPARED = [
    count(16),
    count(4, repeated=True),
    count(4, told=False),
    count(6, told=False, repeated=True),
]


def test_calls_are_saved_as_far_as_the_withheld_came_again_more_often() -> None:
    figures = figure_reminders(COMPARED, COSTS)
    assert figures.told_repeated == 0.2
    assert figures.withheld_repeated == 0.6
    assert figures.failure_calls == 4.5
    # Half of the 16 that were not repeated would have been: (0.6 - 0.2) / (1 - 0.2).
    assert figures.total.calls_saved == pytest.approx(36.0)
    assert figures.low < 0.4 < figures.high


@pytest.mark.parametrize(
    ("counts", "costs", "missing"),
    [
        pytest.param(
            [count(9)],
            COSTS,
            ("reminders withheld at random: 0 of 5",),
            id="nothing was withheld",
        ),
        pytest.param(
            [count(9, share=0.0), count(5, told=False)],
            COSTS,
            ("reminders told at random: 0 of 5",),
            id="nothing could be withheld",
        ),
        pytest.param(
            COMPARED,
            FailureCosts(failures=2, calls=2),
            ("failures in sessions: 2 of 3",),
            id="too few failures",
        ),
    ],
)
def test_a_figure_without_enough_data_says_what_is_missing(
    counts: list[ReminderCount], costs: FailureCosts, missing: tuple[str, ...]
) -> None:
    figures = figure_reminders(counts, costs)
    assert figures.missing == missing
    assert figures.total.calls_saved is None


def test_a_reminder_without_a_verdict_is_none_of_the_others() -> None:
    open_ones = ReminderCount(told=True, share=0.1, repeated=None, n=7)
    figures = figure_reminders([*COMPARED, open_ones], COSTS)
    assert figures.total.other == 7
    assert figures.total.right + figures.total.again == 20
    assert figures.total.shown == 27
    assert figures.told_repeated == 0.2


def test_reminders_that_change_nothing_save_nothing() -> None:
    counts = [count(9), count(9, repeated=True), count(9, told=False)]
    assert figure_reminders(counts, COSTS).total.calls_saved == 0.0


@pytest.mark.parametrize(
    ("tally", "line"),
    [
        pytest.param(ReminderTally(), "", id="nothing to say"),
        pytest.param(ReminderTally(withheld=3), "", id="all was withheld"),
        pytest.param(
            ReminderTally(
                shown=4, right=2, again=1, other=1, calls_lost=3, calls_saved=9.2
            ),
            "shown 4: 2 right, 1 again, 1 other; 3 calls lost to known mistakes; "
            "about 9 calls saved",
            id="all of it",
        ),
        pytest.param(
            ReminderTally(shown=1, again=1, calls_lost=1, calls_saved=0.2),
            "shown 1: 0 right, 1 again, 0 other; 1 call lost to known mistakes",
            id="less than a call",
        ),
        pytest.param(
            ReminderTally(shown=1, right=1),
            "shown 1: 1 right, 0 again, 0 other",
            id="no calls are known",
        ),
    ],
)
def test_a_tally_is_one_line(tally: ReminderTally, line: str) -> None:
    assert tally.words == line
