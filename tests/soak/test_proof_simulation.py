"""Proof by simulation: looked at after every opportunity, the intervals hold and harm is found."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import comb, log
from pathlib import Path

import numpy as np
import pytest

from heedful.lessons.proof import BETS, PRIOR, interval, paired_interval, payoffs, stakes
from tests.conftest import SOAK

pytestmark = pytest.mark.soak

RUNS = 20 * SOAK
HORIZON = 2_000
LEVEL = 0.025
EXPLANATION = Path(__file__).parents[2] / "docs" / "explanation.md"

# Of every opportunity of one run: whether it was shown, the outcome, and the true gain there.
Run = tuple[np.ndarray, np.ndarray, np.ndarray]
Rates = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def at_most(runs: int, chance: float) -> int:
    """How many of the runs may show what has this chance: more than that has one of 1e-6."""
    left, hits = 1.0, -1
    while left > 1e-6:
        hits += 1
        left -= comb(runs, hits) * chance**hits * (1 - chance) ** (runs - hits)
    return hits


def documented(pattern: str) -> list[float]:
    """The numbers that the page shows where it says so."""
    found = re.search(pattern, " ".join(EXPLANATION.read_text(encoding="utf-8").split()))
    assert found is not None, pattern
    return [float(number.replace(",", "")) for number in found.groups()]


def simulated(seed: int, n: int, rates: Rates, share: float) -> Run:
    chance = np.random.default_rng(seed)
    with_it, without = rates(np.arange(n))
    shown = chance.random(n) >= share
    right = chance.random(n) < np.where(shown, with_it, without)
    return shown, right, with_it - without


def wealth(shown: np.ndarray, values: np.ndarray, gain: np.ndarray, share: float) -> np.ndarray:
    """The logarithm of the wealth against a gain as small, after each opportunity."""
    met, where = np.unique(values.astype(float), return_inverse=True)
    table = np.array([[payoffs(share, kind, value) for value in met] for kind in (False, True)])
    made = np.cumsum(table[shown.astype(int), where], axis=0)
    n = np.arange(1, len(shown) + 1)[:, None]
    made += np.array(PRIOR) - n * np.log1p(np.array(stakes(share)) * gain[:, None])
    top = made.max(axis=1)
    return np.asarray(top + np.log(np.exp(made - top[:, None]).sum(axis=1)))


def both(run: Run, gain: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """The wealth against a gain as small, and against one as large."""
    shown, right, _ = run
    return wealth(shown, right, gain, share), wealth(~shown, right, -gain, 1 - share)


def mean_so_far(values: np.ndarray) -> np.ndarray:
    return np.cumsum(values) / np.arange(1, len(values) + 1)


def fixed(with_it: float, without: float) -> Rates:
    return lambda at: (np.full(len(at), with_it), np.full(len(at), without))


def same(rate: Callable[[np.ndarray], np.ndarray]) -> Rates:
    """The lesson does nothing, however the tasks change."""
    return lambda at: (rate(at), rate(at))


def gaining(rate: Callable[[np.ndarray], np.ndarray], gain: Callable[..., np.ndarray]) -> Rates:
    return lambda at: (rate(at) + gain(at) / 2, rate(at) - gain(at) / 2)


CASES: dict[str, Rates] = {
    "nothing, rare": fixed(0.1, 0.1),
    "nothing, even": fixed(0.5, 0.5),
    "nothing, common": fixed(0.95, 0.95),
    "help, from rare": fixed(0.3, 0.1),
    "help, from even": fixed(0.9, 0.5),
    "harm, from even": fixed(0.4, 0.5),
    "harm, from common": fixed(0.7, 0.9),
    "nothing, easier": same(lambda at: np.clip(at / HORIZON, 0.02, 0.98)),
    "nothing, jumping": same(lambda at: np.where(at // 50 % 2, 1.0, 0.0)),
    "help, then harm": gaining(
        lambda at: np.full(len(at), 0.5), lambda at: 0.4 * np.cos(np.pi * at / HORIZON)
    ),
    "harm, growing": gaining(lambda at: 0.9 - 0.55 * at / HORIZON, lambda at: -0.3 * at / HORIZON),
}


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("case", CASES)
def test_the_interval_covers_at_all_times_at_once(case: str, share: float) -> None:
    """The true mean gain so far is refuted at any of 2,000 looks in at most 5 % of the runs."""
    low = high = 0
    for seed in range(RUNS):
        run = simulated(seed, HORIZON, CASES[case], share)
        small, large = both(run, mean_so_far(run[2]), share)
        low += bool((small >= -log(LEVEL)).any())
        high += bool((large >= -log(LEVEL)).any())
    print(f"{case}, {share}: {low} + {high} of {RUNS}")
    assert low <= at_most(RUNS, LEVEL)
    assert high <= at_most(RUNS, LEVEL)
    (said,) = documented(r"In no kind was the interval wrong in more than ([\d.]+) %")
    assert low + high <= (RUNS * said / 100 if RUNS >= 2_000 else at_most(RUNS, said / 100))


def test_the_interval_of_calls_covers_too() -> None:
    """Calls up to 10, with a long tail, and fewer of them where the lesson is shown."""
    spread = {True: 0.75, False: 0.6}
    mean = {
        kind: sum(min(n, 10) * rate * (1 - rate) ** (n - 1) for n in range(1, 200))
        for kind, rate in spread.items()
    }
    saved, misses = (mean[False] - mean[True]) / 10, 0
    for seed in range(RUNS):
        chance = np.random.default_rng(seed)
        shown = chance.random(HORIZON) >= 0.1
        calls = chance.geometric(np.where(shown, spread[True], spread[False]))
        run = shown, 1 - np.minimum(calls, 10) / 10, np.zeros(0)
        small, large = both(run, np.full(HORIZON, saved), 0.1)
        misses += bool((np.maximum(small, large) >= -log(LEVEL)).any())
    print(f"calls: {misses} of {RUNS}")
    assert misses <= at_most(RUNS, 2 * LEVEL)


def pairs(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """What pairs gain, and were expected to: the more, the more have gained; at times they lose."""
    chance = np.random.default_rng(seed)
    gains, expected = np.zeros(n), np.zeros(n)
    for t in range(n):
        up = min(0.9, 0.05 + 0.3 * gains[:t].clip(0).sum() / 10) * (1 if seed % 3 else 0.2)
        down = 0.5 - up / 2 if seed % 2 else 0.05
        gains[t] = chance.choice([1, -1, 0], p=[up, down, 1 - up - down])
        expected[t] = up - down
    return gains, expected


def paired_wealth(gains: np.ndarray, mean: np.ndarray) -> np.ndarray:
    bets = np.array([part for _, part in BETS])
    n = np.arange(1, len(gains) + 1)[:, None]
    made = np.cumsum(np.log1p(bets * gains[:, None]), axis=0) + np.array(PRIOR)
    made -= n * np.log1p(bets * mean[:, None])
    return np.asarray(np.logaddexp.reduce(made, axis=1))


def test_the_interval_of_pairs_covers_though_each_depends_on_those_before() -> None:
    misses = 0
    for seed in range(RUNS):
        gains, expected = pairs(seed, 300)
        mean = mean_so_far(expected)
        sides = paired_wealth(gains, mean), paired_wealth(-gains, -mean)
        misses += bool((np.maximum(*sides) >= -log(LEVEL)).any())
        if seed < 3:
            for look in (1, 9, 120, 300):
                up, same, down = (int((gains[:look] == kind).sum()) for kind in (1, 0, -1))
                low, high = paired_interval(up, same, down, LEVEL)
                for gain in np.linspace(-0.99, 0.99, 25):
                    left = paired_wealth(gains, np.full(300, gain))[look - 1] < -log(LEVEL)
                    right = paired_wealth(-gains, np.full(300, -gain))[look - 1] < -log(LEVEL)
                    assert (low <= gain <= high) == (left and right)
    print(f"pairs: {misses} of {RUNS}")
    assert misses <= at_most(RUNS, 2 * LEVEL)
    (said,) = documented(r"it was wrong at some time in ([\d.]+) %")
    assert near(misses, said / 100)


def test_the_simulation_is_of_the_product() -> None:
    """At any look, the interval ends where the simulated wealth says so."""
    for seed in range(max(3, SOAK // 5)):
        run = simulated(seed, 600, CASES[list(CASES)[seed % len(CASES)]], 0.1)
        for look in (1, 7, 60, 599):
            pairs = list(zip(run[0][:look].tolist(), run[1][:look].tolist(), strict=True))
            cells = {(0.1, *pair): pairs.count(pair) for pair in set(pairs)}
            low, high = interval(cells, LEVEL, LEVEL)
            for gain in np.linspace(-0.95, 0.95, 20):
                small, large = both(run, np.full(600, gain), 0.1)
                assert (gain < low) == (small[look - 1] >= -log(LEVEL))
                assert (gain > high) == (large[look - 1] >= -log(LEVEL))


def newcombe(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """The usual 95 % interval for a number of opportunities that was fixed before."""
    z, ends = 1.959963984540054, []
    for kind in (run[0], ~run[0]):
        n = np.cumsum(kind)
        rate = np.cumsum(run[1] & kind) / np.maximum(n, 1)
        square = z * z / np.maximum(n, 1e-9)
        half = z * np.sqrt(rate * (1 - rate) / np.maximum(n, 1e-9) + (square / (2 * z)) ** 2)
        low, high = (rate + square / 2 - half, rate + square / 2 + half)
        ends.append((rate, rate - low / (1 + square), high / (1 + square) - rate))
    (a, a_down, a_up), (b, b_down, b_up) = ends
    gap = a - b
    return gap - np.sqrt(a_down**2 + b_up**2), gap + np.sqrt(a_up**2 + b_down**2)


def near(hits: int, said: float, runs: int = RUNS) -> bool:
    """Whether so many of the runs are what a chance of `said` brings about."""
    return bool(abs(hits - runs * said) <= 3 * (runs * said * (1 - said)) ** 0.5 + 1)


def test_an_interval_for_one_look_is_wrong_when_looked_at_often() -> None:
    """The bound that heedful's interval keeps is one that the usual interval breaks."""
    usual, ours, runs = 0, 0, max(RUNS, 100)
    for seed in range(runs):
        run = simulated(seed, HORIZON, fixed(0.5, 0.5), 0.1)
        low, high = newcombe(run)
        usual += bool(((low > 0) | (high < 0))[20:].any())
        small, large = both(run, np.zeros(HORIZON), 0.1)
        ours += bool((np.maximum(small, large) >= -log(LEVEL)).any())
    print(f"peeking: {usual} and {ours} of {runs}")
    (of_usual, of_ours) = documented(
        r"excludes 0 in (\d+) % of the simulated runs, the interval of heedful in (\d+) %"
    )
    assert near(usual, of_usual / 100, runs)
    assert near(ours, of_ours / 100, runs)
    assert ours <= at_most(runs, 2 * LEVEL) < usual


# Many lessons: retired at any look by the rule of proof, while all are looked at again and again.


def retired(rates: list[tuple[float, float]], n: int, seed: int, apart: int = 0) -> np.ndarray:
    """Which lessons are retired at any of `n` looks; they begin so many looks apart."""
    made = np.full((len(rates), n), -np.inf)
    for lesson, pair in enumerate(rates):
        left = n - lesson * apart
        shown, right, _ = simulated(seed * 1_000 + lesson, left, fixed(*pair), 0.1)
        made[lesson, n - left :] = wealth(~shown, right, np.zeros(left), 0.9)
    of = np.isfinite(made).sum(axis=0)
    asked = np.log(of / (LEVEL * np.arange(1, len(rates) + 1)[:, None]))
    met = -np.sort(-made, axis=0) >= asked
    count = (met * np.arange(1, len(rates) + 1)[:, None]).max(axis=0)
    least = np.log(of / (LEVEL * np.maximum(count, 1)))
    return np.asarray(((made >= least) & (count > 0)).any(axis=1))


@pytest.mark.parametrize(("looks", "apart"), [(500, 0), (1_000, 25)])
def test_lessons_that_do_nothing_are_not_retired(looks: int, apart: int) -> None:
    """Of 20 such lessons, at once or one after another, any is ever retired in 2.5 % of the runs.

    The more there are the more is asked of each; what was retired before stays retired.
    """
    rates = [((n + 0.5) / 20,) * 2 for n in range(20)]
    families = sum(bool(retired(rates, looks, seed, apart).any()) for seed in range(RUNS))
    print(f"families with a false retirement: {families} of {RUNS}")
    assert families <= at_most(RUNS, LEVEL)


def test_of_the_retired_few_did_no_harm() -> None:
    """5 of 20 lessons do harm: of those retired at any look, at most 2.5 % do not, on average."""
    rates = [(0.2, 0.7)] * 5 + [(0.6, 0.6)] * 15
    false, found = [], 0
    for seed in range(RUNS):
        out = retired(rates, 500, seed)
        found += int(out[:5].sum())
        false.append(float(out[5:].sum() / max(1, out.sum())))
    mean, error = float(np.mean(false)), float(np.std(false)) / RUNS**0.5
    print(f"false: {mean:.4f} ± {error:.4f}; found {found / RUNS / 5:.3f}")
    assert mean - 3 * error <= LEVEL
    assert found / RUNS / 5 >= 0.9


# How long harm lasts.

ROW = r"\| −{points} points \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|"


@pytest.mark.parametrize("points", [10, 20, 40])
def test_the_time_to_retire_is_the_documented_one(points: int) -> None:
    said = iter(documented(ROW.format(points=points)))
    rates = fixed(0.7 - points / 100, 0.7)
    for share, horizon in ((0.1, 9_000), (0.5, 3_000)):
        runs = [simulated(seed, horizon, rates, share) for seed in range(RUNS)]
        made = [wealth(~shown, right, np.zeros(horizon), 1 - share) for shown, right, _ in runs]
        for lessons in (1, 100):
            over = [one >= log(lessons / LEVEL) for one in made]
            times = [int(one.argmax()) + 1 if one.any() else horizon + 1 for one in over]
            print(f"{points} points, {share}, {lessons}: {int(np.median(times))}")
            median = next(said)
            assert near(sum(time <= median for time in times), 0.5)


def test_the_width_is_the_documented_one() -> None:
    sizes = (100, 300, 1_000, 3_000, 10_000)
    said = documented(r"\| ± points" + 5 * r" \| (\d+)" + r" \|")
    for n, points in zip(sizes, said, strict=True):
        counts = {True: n * 9 // 20, False: n // 20}
        cells = {(0.1, kind, value): counts[kind] for kind in counts for value in (0.0, 1.0)}
        assert round(100 * interval(cells, LEVEL, LEVEL)[1]) == points
