"""What a demonstration measured: figures with 95 % intervals, and the table and words
on them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import sqrt
from shutil import get_terminal_size
from textwrap import fill
from typing import Any

from heedful.cli.printing import TextTable, show
from heedful.cli.run import TaskResult
from heedful.errors import InvalidInput
from heedful.lessons.proof import Effect, compare_pairs
from heedful.lessons.proof_words import ProofWords, say_calls, word_gain
from heedful.loop import share

from .stories import Story

WITHOUT = "without memory"
MEMORY = "with memory"
RUNS = {WITHOUT: "without", MEMORY: "with"}
ALL = "all tasks"
SECOND = "second half"
POOLED = "all families"
RESAMPLES = 4_000
COLUMNS = (
    "family",
    "arm",
    "tasks",
    "first try right",
    "second half",
    "solved",
    "calls",
    "tokens",
    "seconds",
)

# A terminal of 80 columns has room for these; the report has all.
TERMINAL_COLUMNS = ("family", "arm", "first try", "second half", "solved", "calls")

Z = 1.959963984540054  # the 97.5 % point of the normal distribution


@dataclass(frozen=True, slots=True)
class Estimate:
    """A measured value and the two ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def covers(self, value: float) -> bool:
        """Return True if the interval contains `value`; its ends belong to it."""
        return self.low <= value <= self.high


def wilson_interval(hits: int, of: int) -> Estimate:
    """Return a share with Wilson's score interval.

    Without continuity correction: method 3 of R. G. Newcombe, "Two-sided confidence
    intervals for the single proportion", Stat. Med. 17 (1998) 857-872.

    >>> wilson_interval(81, 263)
    Estimate(value=0.307..., low=0.255..., high=0.366...)
    """
    if not 0 <= hits <= of or of < 1:
        raise InvalidInput("share", f"{hits} of {of}", "hits of a number of at least 1")
    part = hits / of
    square = Z * Z / of
    middle = (part + square / 2) / (1 + square)
    half = Z * sqrt(part * (1 - part) / of + square / (4 * of)) / (1 + square)
    low = 0.0 if hits == 0 else middle - half
    return Estimate(part, low, 1.0 if hits == of else middle + half)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One arm over some tasks: shares of them, and sums; `seconds` is what the loops
    took.
    """

    tasks: int
    at_once: Estimate
    solved: Estimate
    calls: int
    tokens: int
    seconds: float

    @classmethod
    def of(cls, rows: Sequence[TaskResult]) -> Figures:
        """Sum up at least one row."""
        return cls(
            tasks=len(rows),
            at_once=wilson_interval(sum(row.at_once for row in rows), len(rows)),
            solved=wilson_interval(sum(row.passed for row in rows), len(rows)),
            calls=sum(row.calls for row in rows),
            tokens=sum(row.tokens for row in rows),
            seconds=round(sum(row.seconds for row in rows), 2),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Both arms over the same tasks.

    `gain` is how much larger the share of right first tries is with memory; `calls`
    are the model calls with memory divided by those without. `won` tasks were right at
    the first try only with memory, `lost` ones only without.
    """

    group: str
    part: str
    without: Figures
    memory: Figures
    gain: Estimate
    calls: Estimate
    won: int
    lost: int

    @classmethod
    def of(
        cls,
        group: str,
        part: str,
        without: Sequence[TaskResult],
        memory: Sequence[TaskResult],
    ) -> Compared:
        """Compare rows that stand in the same order of tasks."""
        calls_by_group: dict[str, list[tuple[float, float]]] = {}
        first_tries = []
        for with_row, without_row in zip(memory, without, strict=True):
            calls = (with_row.calls, without_row.calls)
            calls_by_group.setdefault(with_row.group, []).append(calls)
            first_tries.append((with_row.at_once, without_row.at_once))
        return cls(
            group=group,
            part=part,
            without=Figures.of(without),
            memory=Figures.of(memory),
            gain=gain(first_tries),
            calls=ratio(list(calls_by_group.values())),
            won=first_tries.count((True, False)),
            lost=first_tries.count((False, True)),
        )


def gain(pairs: Sequence[tuple[bool, bool]]) -> Estimate:
    """Return how much larger the share of the first is than that of the second."""
    results = Counter((float(first), float(second)) for first, second in pairs)
    effect = compare_pairs(results)
    return Estimate(float(effect.gain or 0.0), effect.low, effect.high)


def ratio(strata: Sequence[Sequence[tuple[float, float]]], seed: int = 0) -> Estimate:
    """Return the sum of the first over the sum of the second, with a bootstrap
    interval.

    Pairs are drawn with replacement within each stratum. The same seed gives the same
    interval.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    resampled = np.zeros((RESAMPLES, 2))  # the two sums of each resample
    total = np.zeros(2)
    for stratum in strata:
        pairs = np.asarray(stratum, dtype=float).reshape(-1, 2)
        if len(pairs):
            draws = random.integers(len(pairs), size=(RESAMPLES, len(pairs)))
            resampled += pairs[draws].sum(axis=1)
            total += pairs.sum(axis=0)
    if not total[1]:
        raise InvalidInput("sum of the second", 0, "above 0, to be divided by")
    ratios = resampled[:, 0] / np.maximum(resampled[:, 1], 1e-9)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Estimate(float(total[0] / total[1]), float(low), float(high))


def second_half(rows: Sequence[TaskResult]) -> list[TaskResult]:
    """Return the later half of each family's tasks, the middle one included."""
    chosen: set[str] = set()
    for group in {row.group for row in rows}:
        ids = [row.id for row in rows if row.group == group]
        chosen |= set(ids[len(ids) // 2 :])
    return [row for row in rows if row.id in chosen]


def comparisons(
    without: Sequence[TaskResult], memory: Sequence[TaskResult]
) -> list[Compared]:
    """Compare each family and all of them, over all tasks and over the second half."""
    names = list(dict.fromkeys(row.group for row in without))
    pools = [(name, [name]) for name in names]
    if len(names) > 1:
        pools.append((POOLED, names))
    compared = []
    for title, members in pools:
        without_rows = [row for row in without if row.group in members]
        memory_rows = [row for row in memory if row.group in members]
        compared.append(
            Compared.of(title, ALL, without=without_rows, memory=memory_rows)
        )
        compared.append(
            Compared.of(
                title,
                SECOND,
                without=second_half(without_rows),
                memory=second_half(memory_rows),
            )
        )
    return compared


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What was run: the rows of both arms in task order, and the stories to tell.

    `stories` are by kind, each of one task: the telling story and that of the other
    arm. `seconds` is the time of this command alone, without what earlier ones did.
    """

    without: tuple[TaskResult, ...]
    memory: tuple[TaskResult, ...]
    stories: dict[str, tuple[Story, Story]]
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What table, picture, report and result.json say; `commands` are to type next."""

    ran: Ran
    compared: tuple[Compared, ...]
    lessons: tuple[Mapping[str, Any], ...]
    settings: Mapping[str, str]
    machine: Mapping[str, str]
    commands: tuple[tuple[str, str], ...]

    def pooled(self, part: str) -> Compared:
        """Return all families over one part of the tasks."""
        pools = [compared for compared in self.compared if compared.part == part]
        for compared in pools:
            if compared.group == POOLED:
                return compared
        return pools[0]

    def plain(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return {
            "settings": dict(self.settings),
            "machine": dict(self.machine),
            "figures": [asdict(compared) for compared in self.compared],
            "words": {part: in_words(self.pooled(part)) for part in (ALL, SECOND)},
            "rows": {
                RUNS[WITHOUT]: list(map(asdict, self.ran.without)),
                RUNS[MEMORY]: list(map(asdict, self.ran.memory)),
            },
            "lessons": [dict(lesson) for lesson in self.lessons],
            "seconds": self.ran.seconds,
            "commands": [line for _, line in self.commands],
        }


def print_summary(measured: Measured, *, families: bool) -> None:
    """Print the table, with a row for each of the `families` or of all together, and
    what its intervals say.
    """
    tasks = len(measured.ran.memory)
    show(f"{measured.settings['model']}, {tasks} tasks: shares with 95 % intervals")
    show("second half: the later half of the tasks of each family")
    groups = by_group(measured)
    if not families:
        groups = groups[-1:]
    rows = [_terminal_row(row) for row in both_arms(groups)]
    show(TextTable(TERMINAL_COLUMNS, rows, text_columns=2))

    for head, lines in sentences(measured):
        show(head)
        for line in lines:
            show(folded(line, indent="  "))


def _terminal_row(row: tuple[str, ...]) -> tuple[str, ...]:
    """Return the cells of a row that a terminal shows."""
    cells = dict(zip(COLUMNS, row, strict=True))
    return (
        cells["family"],
        RUNS[cells["arm"]],
        cells["first try right"],
        cells["second half"],
        cells["solved"],
        cells["calls"],
    )


def folded(line: str, indent: str = "") -> str:
    """Return a line with an indent, folded between words at the terminal's width."""
    return fill(
        line,
        get_terminal_size().columns,
        initial_indent=indent,
        subsequent_indent=2 * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def by_group(measured: Measured) -> list[tuple[Compared, Compared]]:
    """Return for each family and pool all its tasks and the second half."""
    all_tasks = [group for group in measured.compared if group.part == ALL]
    halves = {group.group: group for group in measured.compared if group.part == SECOND}
    return [(group, halves[group.group]) for group in all_tasks]


def both_arms(
    groups: Iterable[tuple[Compared, Compared]], number: str = "d"
) -> list[tuple[str, ...]]:
    """Return the rows of both arms for the columns; `number` is the format of
    tokens.
    """
    rows = []
    for all_tasks, half in groups:
        without = _cells(all_tasks.without, half.without, number)
        memory = _cells(all_tasks.memory, half.memory, number)
        name = all_tasks.group or "tasks"
        rows.append((name, WITHOUT, str(all_tasks.without.tasks), *without))
        rows.append(("", MEMORY, "", *memory))
    return rows


def _cells(all_tasks: Figures, half: Figures, number: str) -> tuple[str, ...]:
    return (
        percent(all_tasks.at_once),
        percent(half.at_once),
        percent(all_tasks.solved),
        str(all_tasks.calls),
        f"{all_tasks.tokens:{number}}",
        f"{all_tasks.seconds:.0f}",
    )


def sentences(measured: Measured) -> Iterator[tuple[str, list[str]]]:
    """Say in words what the intervals mean: a head and its sentences."""
    for part in (SECOND, ALL):
        pooled = measured.pooled(part)
        yield f"{POOLED}, {part} ({pooled.memory.tasks} tasks)", in_words(pooled)
    worse = [
        group.group or "tasks"
        for group, _ in by_group(measured)
        if group.gain.value <= 0 and group.group != POOLED
    ]
    if worse:
        yield "families without a gain at the first try", [", ".join(worse)]


def word_compared(compared: Compared) -> ProofWords:
    """Say what memory changed in the same words as `heedful proof`."""
    tasks = compared.memory.tasks
    uplift = Effect(
        compared.memory.at_once.value,
        compared.without.at_once.value,
        gain=compared.gain.value,
        low=compared.gain.low,
        high=compared.gain.high,
    )
    # Each task is a loop; the interval of the ratio is taken to calls of a loop.
    calls = compared.without.calls / tasks
    fewer_calls = Effect(
        compared.memory.calls / tasks,
        calls,
        gain=calls - compared.memory.calls / tasks,
        low=calls * (1 - compared.calls.high),
        high=calls * (1 - compared.calls.low),
    )
    pairs = f"won {compared.won:,}, lost {compared.lost:,}"
    facts = (say_calls(fewer_calls), pairs)
    return replace(word_gain(uplift), facts=facts)


def in_words(compared: Compared) -> list[str]:
    """Say what the intervals mean; an interval that covers no difference says so."""
    gain_verdict = _verdict(
        compared.gain,
        none=0,
        above="more first tries are right with memory",
        below="FEWER first tries are right with memory",
    )
    calls = compared.calls
    calls_verdict = _verdict(
        calls, none=1, above="MORE calls with memory", below="fewer calls with memory"
    )
    if calls.low == calls.high == 1:
        calls_verdict = "the same in every task"
    ratio_words = f"{calls.value:.2f} times those without"
    interval = f"{calls.low:.2f}–{calls.high:.2f}"
    return [
        f"uplift: {points(compared.gain)} right at the first try; {gain_verdict}",
        f"model calls: {ratio_words} ({interval}); {calls_verdict}",
    ]


def percent(estimate: Estimate) -> str:
    """Format a share with its interval, such as `50 % (22–78)`."""
    ends = f"{100 * estimate.low:.0f}–{100 * estimate.high:.0f}"
    return f"{100 * estimate.value:.0f} % ({ends})"


def points(estimate: Estimate) -> str:
    """Format a difference of shares, such as `−12 points (−40 to +15)`."""
    ends = f"{share.points(estimate.low)} to {share.points(estimate.high)}"
    return f"{share.points(estimate.value)} points ({ends})"


def _verdict(estimate: Estimate, none: int, above: str, below: str) -> str:
    if estimate.covers(none):
        return f"insufficient data: the interval covers {none}"
    return above if estimate.value > none else below
