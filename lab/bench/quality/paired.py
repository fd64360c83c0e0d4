"""Arms compared task by task: what is won, what is lost, and how sure that is.

A task is a pair: the same task under two arms, in the same order of the stream. It is
won if only the first arm is right at the first try, lost if only the second is. Pairs
of one task in several orders are drawn together, and streams count alike, however many
tasks they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean

import numpy as np

from bench.quality.curve import Outcome
from bench.quality.rows import Row

RESAMPLED = 10_000
COVERAGE = (0.025, 0.975)
# The outcomes of an arm on a stream, by the number of the order and the task's id.
Outcomes = Mapping[tuple[int, str], Outcome]
Pair = tuple[Outcome, Outcome]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What an arm did on a stream.

    `first`, `second_half`, `solved` and `told` are shares, `calls`, `seconds` and the
    tokens are means of a task. `told` are the tasks whose first prompt held something
    of earlier ones, `told_late` those of the second half.
    `won` and `lost` count first answers against the arm without anything, on
    `compared` tasks.
    """

    tasks: int
    first: float
    second_half: float
    solved: float
    calls: float
    told: float
    told_late: float
    first_prompt_tokens: float
    prompt_tokens: float
    completion_tokens: float
    seconds: float
    compared: int
    won: int
    lost: int


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A difference of two shares with its 95 % interval, over `tasks` different tasks.

    `won` and `lost` count pairs.
    """

    gain: float
    low: float
    high: float
    tasks: int
    won: int
    lost: int


def summarize(outcomes: Outcomes, plain: Outcomes) -> Summary:
    """Return the figures of an arm; `plain` are those of the arm without anything."""
    values = list(outcomes.values())
    late = [outcome for outcome in values if outcome.late]
    pairs = pair(outcomes, plain)
    won, lost = count_changes(pairs, right_at_once)
    return Summary(
        tasks=len(values),
        first=_mean(outcome.first for outcome in values),
        second_half=_mean(outcome.first for outcome in late),
        solved=_mean(outcome.solved for outcome in values),
        calls=_mean(outcome.calls for outcome in values),
        told=_mean(outcome.had_memory for outcome in values),
        told_late=_mean(outcome.had_memory for outcome in late),
        first_prompt_tokens=_mean(outcome.first_prompt_tokens for outcome in values),
        prompt_tokens=_mean(outcome.prompt_tokens for outcome in values),
        completion_tokens=_mean(outcome.completion_tokens for outcome in values),
        seconds=_mean(outcome.seconds for outcome in values),
        compared=len(pairs),
        won=won,
        lost=lost,
    )


def pair(outcomes: Outcomes, others: Outcomes) -> list[Pair]:
    """Return the tasks that both arms have answered."""
    return [
        (outcome, others[key]) for key, outcome in outcomes.items() if key in others
    ]


def right_at_once(outcome: Outcome) -> bool:
    """Return whether the first answer was right."""
    return outcome.first


def solved(outcome: Outcome) -> bool:
    """Return whether any answer was right."""
    return outcome.solved


def count_changes(
    pairs: Iterable[Pair], measure: Callable[[Outcome], bool]
) -> tuple[int, int]:
    """Return how many pairs only the first arm has right, and how many the second."""
    marks = [(measure(outcome), measure(other)) for outcome, other in pairs]
    return marks.count((True, False)), marks.count((False, True))


def gain(
    streams: Iterable[Sequence[Pair]],
    measure: Callable[[Outcome], bool],
    *,
    late_only: bool,
) -> Gain | None:
    """Return the mean over streams of the gain of the first arm; None without pairs."""
    counted: list[Pair] = []
    sums: list[np.ndarray] = []
    for pairs in streams:
        pairs = [both for both in pairs if both[0].late or not late_only]
        if pairs:
            sums.append(_sum_by_task(pairs, measure))
            counted += pairs
    if not sums:
        return None

    points, low, high = resample(sums)
    won, lost = count_changes(counted, measure)
    return Gain(
        gain=points,
        low=low,
        high=high,
        tasks=sum(map(len, sums)),
        won=won,
        lost=lost,
    )


def resample(streams: Iterable[np.ndarray]) -> tuple[float, float, float]:
    """Return the mean over streams of the first sum over the second, and its interval.

    A row of a stream has what a task adds to both sums.
    """
    rng = np.random.default_rng(0)
    points = []
    draws = []
    for rows in streams:
        chosen = rng.integers(len(rows), size=(RESAMPLED, len(rows)))
        totals = rows[chosen].sum(axis=1)
        points.append(float(rows[:, 0].sum() / rows[:, 1].sum()))
        draws.append(totals[:, 0] / totals[:, 1])
    low, high = np.quantile(np.mean(draws, axis=0), COVERAGE)
    return mean(points), float(low), float(high)


def _sum_by_task(
    pairs: Iterable[Pair], measure: Callable[[Outcome], bool]
) -> np.ndarray:
    """Return a row for each task: the sum of its differences, and their number."""
    sums: dict[str, list[int]] = {}
    for outcome, other in pairs:
        total = sums.setdefault(outcome.task.id, [0, 0])
        total[0] += measure(outcome) - measure(other)
        total[1] += 1
    return np.array(list(sums.values()), dtype=float)


def _mean(values: Iterable[float]) -> float:
    return mean([float(value) for value in values] or [0.0])


def plain_figures(record: Summary | Gain | None) -> dict[str, float] | None:
    """Return JSON data of a record, rounded to four digits."""
    if record is None:
        return None
    return {name: round(value, 4) for name, value in asdict(record).items()}


def summary_rows(key: str, summary: Summary, plain: Summary | None) -> Iterator[Row]:
    """Yield the figures of an arm beside those of the arm without anything."""
    baseline = plain_figures(plain) or {}
    for measure, value in (plain_figures(summary) or {}).items():
        yield Row(key=f"{key}.{measure}", ours=value, baseline=baseline.get(measure))
