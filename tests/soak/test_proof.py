"""Proof at every look: the intervals hold, harm is found, what does nothing stays."""

import re
from collections import Counter, deque
from collections.abc import Callable
from math import comb, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import SOAK
from heedful.lessons.holdout import LoopExposures, MemoryVerdict, plan_holdout
from heedful.lessons.loop_lessons import is_proof_due
from heedful.lessons.proof import (
    BET_LOG_WEIGHTS,
    interval,
    payoffs,
    stakes,
)
from heedful.store import exposures

pytestmark = pytest.mark.soak

RUNS = 20 * SOAK
HORIZON = 2_000
LEVEL = 0.025
EXPLANATION = Path(__file__).parents[2] / "docs" / "explanation.md"

# Of every opportunity of one run: whether it was shown, the outcome, and the true gain
# there.
Run = tuple[np.ndarray, np.ndarray, np.ndarray]
# Success without a lesson, and what the lesson adds, at times from 0 to 1.
Rates = Callable[[np.ndarray], tuple[Any, Any]]


def at_most(runs: int, chance: float) -> int:
    """Hits among the runs that are exceeded once in a million if each has this
    chance.
    """
    left = 1.0
    hits = -1
    while left > 1e-6:
        hits += 1
        left -= comb(runs, hits) * chance**hits * (1 - chance) ** (runs - hits)
    return hits


def near(hits: int, share: float, runs: int = RUNS) -> bool:
    """Whether this many hits are likely if each run has this chance."""
    return bool(abs(hits - runs * share) <= 3 * (runs * share * (1 - share)) ** 0.5 + 1)


def read_documented(pattern: str) -> list[float]:
    """The numbers in a sentence of the explanation."""
    match = re.search(pattern, " ".join(EXPLANATION.read_text("utf-8").split()))
    assert match is not None, pattern
    return [float(number.replace(",", "")) for number in match.groups()]


def simulate(seed: int, n: int, rates: Rates, share: float) -> Run:
    chance = np.random.default_rng(seed)
    zeros = np.zeros(n)
    without, gain = (zeros + rate for rate in rates(np.arange(n) / HORIZON))
    is_shown = chance.random(n) >= share
    right = chance.random(n) < without + gain * is_shown
    return is_shown, right, gain


def wealth(
    is_shown: np.ndarray, values: np.ndarray, gain: Any, share: float
) -> np.ndarray:
    """The log wealth of a bet that the gain is larger, after each opportunity."""
    met, where = np.unique(values.astype(float), return_inverse=True)
    table = np.array(
        [[payoffs(share, kind, value) for value in met] for kind in (False, True)]
    )
    bets = np.cumsum(table[is_shown.astype(int), where], axis=0)
    n = np.arange(1, len(is_shown) + 1)[:, None]
    bets += np.array(BET_LOG_WEIGHTS) - n * np.log1p(
        np.array(stakes(share)) * (gain * np.ones(n.size))[:, None]
    )
    return np.asarray(np.logaddexp.reduce(bets, axis=1))


def wealth_of_both(run: Run, gain: Any, share: float) -> tuple[np.ndarray, np.ndarray]:
    """The wealth of bets that the gain is larger, and that it is smaller."""
    is_shown, right, _ = run
    return wealth(is_shown, right, gain, share), wealth(
        ~is_shown, right, -gain, 1 - share
    )


def ever(wealth: np.ndarray) -> bool:
    """Whether the wealth refutes the gain at any look."""
    return bool((wealth >= -log(LEVEL)).any())


def mean_so_far(values: np.ndarray) -> np.ndarray:
    return np.cumsum(values) / np.arange(1, len(values) + 1)


def constant(rate: float, gain: float = 0.0) -> Rates:
    return lambda _: (rate, gain)


CASES: dict[str, Rates] = {
    "nothing, rare": constant(0.1),
    "nothing, even": constant(0.5),
    "nothing, common": constant(0.95),
    "help, from rare": constant(0.1, 0.2),
    "help, from even": constant(0.5, 0.4),
    "harm, from even": constant(0.5, -0.1),
    "harm, from common": constant(0.9, -0.2),
    "nothing, easier": lambda t: (np.clip(t, 0.02, 0.98), 0.0),
    "nothing, jumping": lambda t: (np.where(t * HORIZON // 50 % 2, 1.0, 0.0), 0.0),
    "help, then harm": lambda t: (
        0.5 - 0.2 * np.cos(np.pi * t),
        0.4 * np.cos(np.pi * t),
    ),
    "harm, growing": lambda t: (0.9 - 0.4 * t, -0.3 * t),
}


# Those that `make test` tries at the usual share; `make soak` tries all.
TELLING_CASES = ("nothing, even", "help, then harm")
COVERED = [
    pytest.param(
        case,
        share,
        id=f"{case}, {share:.0%} without it",
        marks=() if case in TELLING_CASES and share == 0.1 else pytest.mark.nightly,
    )
    for case in CASES
    for share in (0.1, 0.5)
]


# An interval is wrong if it excludes the true effect at any look: at most so often.
WRONG_SHARE = 0.035


@pytest.mark.parametrize(("case", "share"), COVERED)
def test_the_interval_covers_at_all_times_at_once(case: str, share: float) -> None:
    """The true mean gain so far is refuted at any of 2,000 looks in at most 5 % of the
    runs.
    """
    low = high = 0
    for seed in range(RUNS):
        run = simulate(seed, HORIZON, CASES[case], share)
        small, large = wealth_of_both(run, mean_so_far(run[2]), share)
        low += ever(small)
        high += ever(large)
    assert max(low, high) <= at_most(RUNS, LEVEL)
    many = RUNS * WRONG_SHARE if RUNS >= 2_000 else at_most(RUNS, WRONG_SHARE)
    assert low + high <= many


@pytest.mark.nightly
def test_what_does_nothing_is_refuted_as_seldom_as_documented() -> None:
    runs = max(RUNS, 100)
    simulations = (
        simulate(seed, HORIZON, constant(0.5), share=0.1) for seed in range(runs)
    )
    misses = sum(
        ever(np.maximum(*wealth_of_both(run, 0.0, share=0.1))) for run in simulations
    )
    (percent,) = read_documented(r"claimed an effect in \d+ %, heedful's in (\d+) %")
    assert near(misses, percent / 100, runs)


# Many lessons: retired at any look by the rule of proof, while all are looked at again
# and again.


# Points that a lesson costs, and the opportunities until half of such lessons are
# retired: one lesson and one of 100, if 10 % of the loops do without it; if 50 % do.
MEDIANS = {
    10: (2_714, 5_601, 930, 1_979),
    20: (669, 1_432, 231, 523),
    40: (163, 350, 65, 130),
}


@pytest.mark.nightly
@pytest.mark.parametrize("points", MEDIANS, ids="a harm of {} points".format)
def test_half_of_the_lessons_that_hurt_are_retired_in_time(points: int) -> None:
    medians = iter(MEDIANS[points])
    for share, horizon in ((0.1, 9_000), (0.5, 3_000)):
        runs = [
            simulate(n, horizon, constant(0.7, -points / 100), share)
            for n in range(RUNS)
        ]
        wealths = [
            wealth(~is_shown, right, gain=0.0, share=1 - share)
            for is_shown, right, _ in runs
        ]
        for many in (1, 100):
            median = next(medians)
            over = [
                bool((run_wealth >= log(many / LEVEL))[: int(median)].any())
                for run_wealth in wealths
            ]
            assert near(sum(over), 0.5)


def test_the_width_is_the_documented_one() -> None:
    sizes = (100, 300, 1_000, 3_000, 10_000)
    widths = read_documented(r"\| ± points" + 5 * r" \| (\d+)" + r" \|")
    for n, points in zip(sizes, widths, strict=True):
        counts = {True: n * 9 // 20, False: n // 20}
        cells = {
            (0.1, kind, value): counts[kind] for kind in counts for value in (0.0, 1.0)
        }
        assert round(100 * interval(cells, LEVEL, LEVEL)[1]) == points


# Memory cost so many points for so many loops; in nine of ten scopes lessons were shown
# again after at most so many more.
HARM_POINTS = 50
HARMFUL_LOOPS = 1_000
MAX_LOOPS_UNTIL_SHOWN = 1_000


def count_loops_of_harm(seed: int, cost: float, loops: int, longest: int) -> int:
    """Count the loops until memory that stopped hurting is shown again.

    It stops `loops` after the proof. At most `longest` more are counted.
    """
    chance = np.random.default_rng(seed)
    verdict: MemoryVerdict = ""
    cells = deque[tuple[float, bool, float]]()
    proven = None
    for ended in range(20_000):
        has_stopped = proven is not None and ended >= proven + loops
        holdout = plan_holdout(0.1, LoopExposures(ended=ended, verdict=verdict))
        is_shown = bool(chance.random() >= holdout.share)
        gain = 0.0 if has_stopped or not is_shown else -cost
        if holdout.share and chance.random() < holdout.pooled_share:
            cells.append((holdout.share, is_shown, chance.random() < 0.9 + gain))
        if not is_proof_due(ended + 1):
            continue

        newest = Counter([*cells][-exposures.MAX_RECENT_LOOPS :])
        counts = Counter(cells)
        hurts = all(interval(c, LEVEL, LEVEL)[1] < 0 for c in (counts, newest) if c)
        verdict = "hurts" if cells and hurts else ""
        if verdict and proven is None:
            proven = ended + 1
        if proven is not None and has_stopped:
            waited = ended + 1 - proven - loops
            if not verdict or waited > longest:
                return waited
    raise AssertionError(f"seed {seed}: 20,000 loops prove no harm")


@pytest.mark.nightly
def test_memory_that_stops_hurting_is_soon_shown_again() -> None:
    waits = [
        count_loops_of_harm(
            seed, HARM_POINTS / 100, HARMFUL_LOOPS, MAX_LOOPS_UNTIL_SHOWN
        )
        for seed in range(RUNS)
    ]
    assert sum(wait > MAX_LOOPS_UNTIL_SHOWN for wait in waits) <= at_most(RUNS, 0.1)


# The driver: the same rule retires and ranks lessons in real loops.
