"""A limit of attempts that the history of a memory key sets, on recorded loops.

The loops of a run of the recordings come in their order, as those of one memory key.
The limit of a loop is the number of attempts after which going on was, in the earlier
loops, worth fewer than `share` solutions an attempt; attempts that fewer than `least`
loops reached are tried. The best fixed limit and the best pair of `share` and `least`
are each chosen on all other families; what counts is what they are worth in the family
left out.

It was expected to be worth more than a fixed limit in every row. It is not, so no
preset has it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import heedful
from bench.quality import stop
from bench.quality.rows import Row, read
from heedful.loop.policies import policy
from heedful.loop.replay import ReplayResult

MAX_LIMIT = 8
FIXED_LIMITS = range(2, MAX_LIMIT + 1)
SHARES = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2)
LEAST_LOOPS = (5, 10, 20, 30)
# What an attempt costs, in solutions.
PRICES = (0.02, 0.05, 0.1, 0.2)
POLICIES = {
    limit: policy(f"default, attempts.limit={limit}")
    for limit in range(1, MAX_LIMIT + 1)
}
Loops = Sequence[heedful.RecordedLoop]


class Cost(NamedTuple):
    """What a limit solves, and in how many attempts."""

    solved: int
    attempts: int

    def worth(self, price: float) -> float:
        """Return the solutions that are left when attempts are paid with solutions."""
        return self.solved - price * self.attempts


class History:
    """How often each attempt was made and was the last one, in the loops so far."""

    def __init__(self) -> None:
        self._made: Counter[int] = Counter()
        self._passed: Counter[int] = Counter()

    def add(self, result: ReplayResult) -> None:
        """Count the attempts of a loop."""
        self._made.update(range(1, result.attempts + 1))
        if isinstance(result.verdict, heedful.Done) and result.verdict.passed:
            self._passed[result.attempts] += 1

    def limit(self, share: float, least: int) -> int:
        """Return after how many attempts going on was worth less than `share`."""
        for limit in range(1, MAX_LIMIT):
            is_known = self._made[limit + 1] >= least
            if is_known and self._rate_after(limit) < share:
                return limit
        return MAX_LIMIT

    def _rate_after(self, limit: int) -> float:
        """Return the highest rate of solutions an attempt, over any number of them."""
        passed = 0
        attempts = 0
        rates = [0.0]
        for number in range(limit + 1, MAX_LIMIT + 1):
            passed += self._passed[number]
            attempts += self._made[number]
            rates.append(passed / max(1, attempts))
        return max(rates)


def cost_of_fixed(limit: int, loops: Loops) -> Cost:
    """Return the cost of the same limit for all loops."""
    results = [heedful.replay(recorded.loop, POLICIES[limit]) for recorded in loops]
    return cost(loops, results)


def cost_of_adaptive(share: float, least: int, loops: Loops) -> Cost:
    """Return the cost of a limit that the earlier loops set."""
    history = History()
    results = []
    for recorded in loops:
        limit = history.limit(share, least)
        result = heedful.replay(recorded.loop, POLICIES[limit])
        history.add(result)
        results.append(result)
    return cost(loops, results)


def cost(loops: Loops, results: Iterable[ReplayResult]) -> Cost:
    """Return what was solved, and in how many attempts."""
    pairs = list(zip(loops, results, strict=True))
    solved = [
        recorded for recorded, result in pairs if recorded.worth(result.kept) == 1
    ]
    return Cost(len(solved), sum(result.attempts for _, result in pairs))


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield what both limits are worth in the families that they were not chosen on."""
    families: dict[str, list[heedful.RecordedLoop]] = defaultdict(list)
    sets: dict[str, list[str]] = {}
    for key, (name, candidate) in stop.SETS.items():
        judge = stop.code if key == "stop.ldb" else stop.question
        for row in read(data, name, split):
            family = row["run"]
            families[family].append(stop.record_loop(row, judge, candidate))
            sets.setdefault(key.removeprefix("stop."), []).append(family)

    fixed = []
    for limit in FIXED_LIMITS:
        costs = {name: cost_of_fixed(limit, loops) for name, loops in families.items()}
        fixed.append(costs)
    adaptive = [
        {
            family: cost_of_adaptive(share, least, loops)
            for family, loops in families.items()
        }
        for share, least in product(SHARES, LEAST_LOOPS)
    ]
    parts: dict[str, Sequence[Collection[str]]] = {
        "family": [{family} for family in families],
        **{name: [dict.fromkeys(members)] for name, members in sets.items()},
    }
    for (name, left_out), price in product(parts.items(), PRICES):
        yield Row(
            key=f"adaptive.without_{name}.price_{price}",
            ours=worth_of_choices(adaptive, left_out, price),
            baseline=worth_of_choices(fixed, left_out, price),
            anchor="the best fixed limit, chosen on the others, too",
        )


def worth_of_choices(
    choices: Sequence[Mapping[str, Cost]],
    left_out: Iterable[Collection[str]],
    price: float,
) -> float:
    """Return what the choice that is best elsewhere is worth in what was left out."""
    total = 0.0
    for families in left_out:

        def worth_elsewhere(
            choice: Mapping[str, Cost], families: Collection[str] = families
        ) -> float:
            costs = [cost for family, cost in choice.items() if family not in families]
            return sum(cost.worth(price) for cost in costs)

        best = max(choices, key=worth_elsewhere)
        total += sum(best[family].worth(price) for family in families)
    return total
