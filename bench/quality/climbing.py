"""Climbing: are the constants of loop/climb.py right? Judged without a model.

`ladder` has left what the small and the large model did alone on each task, so every
plan of a ladder can be followed: the small model's attempts, then the large one's. That
the large model would have done the same after the small one is assumed. Either each
rung makes at most two attempts, as a policy counts them, or a loop makes at most three.
Streams are short and plans need many loops, so tasks are drawn from each stream with
replacement, `DRAWS` times `LOOPS` of them.

One constant at a time has another value. `cost` is what a task costs over the cost of
all tries, `solved` the difference of the shares solved. Leaving one stream out, the
value is chosen that costs least on the other streams and solves no more than
`TOLERANCE` less there than the shipped one; its cost on the stream left out is
compared with that of the shipped value.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from bench.quality.ladder import CALLS, OUT, PRICES, SIZES, SMALL_CALLS
from bench.quality.rows import Row
from heedful.loop import climb
from heedful.loop.climb import ClimbRecord, plan_ladder
from heedful.loop.ladder import Climb, Ladder, RungAttempt

LOOPS = 240
DRAWS = 20
TOLERANCE = 0.005
NEVER = 10**9
SHIPPED = {
    "MIN_COUNTED_ATTEMPTS": climb.MIN_COUNTED_ATTEMPTS,
    "MIN_COUNTED_FIRST_ATTEMPTS": climb.MIN_COUNTED_FIRST_ATTEMPTS,
    "FADING_ATTEMPTS": climb.FADING_ATTEMPTS,
    "EXPLORED_LOOPS": climb.EXPLORED_LOOPS,
}
VALUES: Mapping[str, Sequence[int]] = {
    "MIN_COUNTED_ATTEMPTS": (5, 10, 15, 30),
    "MIN_COUNTED_FIRST_ATTEMPTS": (15, 40, 80, NEVER),
    "FADING_ATTEMPTS": (20, 50, 100, NEVER),
    "EXPLORED_LOOPS": (10, 20, 40, NEVER),
}
ARMS = (("small", "large"), ("small_ours", "large_ours"))
LADDER = Ladder(names=SIZES)
Attempts = Sequence[RungAttempt]


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How many calls a loop may make, and how many of them the large model."""

    name: str
    calls: int
    large_calls: int


LIMITS = (
    Limit(name="two_a_rung", calls=2 * SMALL_CALLS, large_calls=SMALL_CALLS),
    Limit(name="three_in_all", calls=CALLS, large_calls=CALLS),
)


@dataclass(frozen=True, kw_only=True)
class RecordedTask:
    """What each model did alone on a task; the rungs are 1 and 2."""

    small: Attempts
    large: Attempts

    def follow(self, tries: Sequence[int | None], limit: Limit) -> Attempts:
        """Return the attempts of a ladder with this plan."""
        small_limit, large_limit = tries
        small_calls = SMALL_CALLS if small_limit is None else small_limit
        attempts = list(self.small[:small_calls])
        if any(attempt.passed for attempt in attempts):
            return attempts
        if large_limit is None:
            calls_left = limit.calls - len(attempts)
            attempts += self.large[: min(calls_left, limit.large_calls)]
        return attempts


@dataclass(frozen=True, kw_only=True)
class Totals:
    """What the loops of a stream cost and how many tasks they solved, as means."""

    cost: float
    solved: float


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield what other constants cost and solve; print the table."""
    if not OUT.exists():
        raise SystemExit(f"{OUT} is absent: the job ladder writes it")
    streams = read_tasks(json.loads(OUT.read_text("utf-8")))
    if len(streams) < 2:
        raise SystemExit(
            f"{OUT} has {len(streams)} streams with all arms, fewer than 2"
        )
    for limit in LIMITS:
        yield from _judge(streams, limit)


def _judge(
    streams: Mapping[str, Sequence[RecordedTask]], limit: Limit
) -> Iterator[Row]:
    every_try = {
        name: _follow_all(tasks, None, limit) for name, tasks in streams.items()
    }
    table = Table("constant", "value", "cost", "solved", "without", title=limit.name)
    for constant, values in VALUES.items():
        shipped = SHIPPED[constant]
        totals = {}
        for value in values:
            with patch.object(climb, constant, value):
                totals[value] = {
                    name: _follow_all(tasks, ClimbRecord(), limit)
                    for name, tasks in streams.items()
                }
        chosen = choose_elsewhere(totals, shipped)
        for value in values:
            cost, solved = _over(totals[value], every_try)
            left_out = [name for name, best in chosen.items() if best == value]
            title = "never" if value == NEVER else f"{value}"
            mark = " (shipped)" if value == shipped else ""
            cells = [constant, f"{title}{mark}", f"{cost:.3f}", f"{solved:+.3f}"]
            table.add_row(*cells, ", ".join(left_out))
            key = f"climbing.{limit.name}.{constant}.{title}"
            yield Row(key=f"{key}.cost", ours=cost)
            yield Row(key=f"{key}.solved", ours=solved)
        elsewhere = [
            totals[best][name].cost / totals[shipped][name].cost
            for name, best in chosen.items()
        ]
        key = f"climbing.{limit.name}.{constant}.elsewhere"
        yield Row(key=key, ours=mean(elsewhere))
    Console(width=120).print(table)


def read_tasks(report: Mapping[str, object]) -> dict[str, list[RecordedTask]]:
    """Return the tasks of each stream, without memory and with it, by a name."""
    recorded: dict[tuple[str, str], dict[str, Attempts]] = defaultdict(dict)
    for stream, arm, task, _, attempts in report["tasks"]:  # type: ignore[attr-defined]
        rung = 2 if arm.startswith("large") else 1
        recorded[stream, arm][task] = [
            RungAttempt(
                rung,
                bool(passed),
                tokens=tokens,
                cost=tokens * PRICES[rung - 1],
            )
            for _, passed, tokens in attempts
        ]
    streams = {}
    for stream in dict.fromkeys(stream for stream, _ in recorded):
        for small, large in ARMS:
            pairs = [
                RecordedTask(small=attempts, large=recorded[stream, large][task])
                for task, attempts in recorded[stream, small].items()
                if task in recorded[stream, large]
            ]
            if pairs:
                suffix = " with memory" if small.endswith("ours") else ""
                streams[f"{stream}{suffix}"] = pairs
    return streams


def _follow_all(
    tasks: Sequence[RecordedTask], start: ClimbRecord | None, limit: Limit
) -> Totals:
    """Return the means over draws of loops; without a record, of all tries."""
    costs = []
    solved = []
    for draw in range(DRAWS):
        rng = random.Random(draw)
        record = start
        for number in range(LOOPS):
            task = rng.choice(tasks)
            name = f"{draw} {number}"
            ladder = LADDER if record is None else plan_ladder(LADDER, record, name)
            attempts = task.follow(ladder.tries, limit)
            if record is not None:
                climb_of_loop = Climb(name, tuple(attempts), names=SIZES)
                record = record.after(climb_of_loop)
            costs.append(sum(attempt.cost for attempt in attempts))
            solved.append(any(attempt.passed for attempt in attempts))
    return Totals(cost=mean(costs), solved=mean(solved))


def _over(
    totals: Mapping[str, Totals], others: Mapping[str, Totals]
) -> tuple[float, float]:
    """Return the ratio of costs and the difference of solved, streams alike."""
    ratios = [totals[name].cost / others[name].cost for name in totals]
    differences = [totals[name].solved - others[name].solved for name in totals]
    return mean(ratios), mean(differences)


def choose_elsewhere(
    totals: Mapping[int, Mapping[str, Totals]], shipped: int
) -> dict[str, int]:
    """Return for each stream the value that the others choose.

    With and without memory, a stream is left out together.
    """
    chosen = {}
    for left_out in totals[shipped]:
        stream = left_out.split()[0]
        others = [name for name in totals[shipped] if name.split()[0] != stream]
        best = shipped
        least = 1.0
        for value, figures in totals.items():
            cost, solved = _over(
                {name: figures[name] for name in others},
                {name: totals[shipped][name] for name in others},
            )
            if solved >= -TOLERANCE and cost < least:
                best = value
                least = cost
        chosen[left_out] = best
    return chosen
