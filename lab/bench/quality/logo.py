"""Leave one group out: what is chosen on all other groups is scored on the one left
out.

Each figure is the mean over groups. It says how the choice of masks, rules and
thresholds holds on data that it was not made on. Stop: the policy with the fewest
attempts that solves as many of the other loops as the preset `default`. Grounding:
which findings flag a response. Recall: the thresholds with the best recall at ≤ 10 %
false. The job `signatures` has its own rows of this kind.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from statistics import mean
from typing import TypeVar

import heedful
from bench.quality import recall, stop
from bench.quality.answers import say
from bench.quality.grounding import find, rate
from bench.quality.rows import Row, read
from heedful.lessons import ranking
from heedful.lessons.lesson import Match
from heedful.loop.policies import PRESETS
from heedful.loop.replay import Figures
from heedful.models import open_embedder

C = TypeVar("C")
FALSE = 0.10
STOPS = (
    ("stop.ldb", "run", "_logo"),
    ("stop.ldb", "bench", "_logo_bench"),
    ("stop.hotpot", "run", "_logo"),
)


def run(data: Path, split: str) -> Iterator[Row]:
    """Yield the rows of three jobs; the baseline is the shipped choice."""
    yield from _stops(data, split)
    yield from _grounding(data, split)
    yield from asyncio.run(_recall(data, split))


def _leave_out(
    title: str, groups: Iterable[str], choose: Callable[[list[str]], C]
) -> dict[str, C]:
    """Return for each group what is chosen on all the others."""
    choices = {}
    names = list(groups)
    for left_out in names:
        choices[left_out] = choose([name for name in names if name != left_out])
        say(f"logo {title}, without {left_out}: {choices[left_out]}")
    return choices


def _stops(data: Path, split: str) -> Iterator[Row]:
    policies = [PRESETS["default"], *stop.grid(), stop.FULL]
    for key, group, end in STOPS:
        figures = _replay_groups(key, group, policies, data=data, split=split)
        chosen = _leave_out(key, figures, partial(_cheapest, figures))
        names = ", ".join(sorted({policies[n].name for n in chosen.values()}))

        solved: list[float] = []
        solved_by_default: list[float] = []
        cost: list[float] = []
        cost_of_default: list[float] = []
        for place, n in chosen.items():
            ours = figures[place][n]
            default = figures[place][0]
            full = max(1, figures[place][-1].solved)
            solved.append(ours.solved / full)
            solved_by_default.append(default.solved / full)
            cost.append(ours.attempts / ours.oracle)
            cost_of_default.append(default.attempts / default.oracle)
        yield Row(
            key=f"{key}.solved_share{end}",
            ours=mean(solved),
            baseline=mean(solved_by_default),
            anchor=names,
        )
        yield Row(
            key=f"{key}.attempts_over_oracle{end}",
            ours=mean(cost),
            baseline=mean(cost_of_default),
        )


def _replay_groups(
    key: str,
    group: str,
    policies: Sequence[heedful.Policy],
    *,
    data: Path,
    split: str,
) -> dict[str, tuple[Figures, ...]]:
    """Return the figures of each policy, by the value that the rows have in `group`."""
    name, candidate = stop.SETS[key]
    judge = stop.code if key == "stop.ldb" else stop.question
    figures = {}
    for place, rows in recall.group_by(read(data, name, split), group).items():
        loops = [stop.record_loop(dict(row), judge, candidate) for row in rows]
        figures[place] = heedful.compare(loops, policies)
    return figures


def _cheapest(figures: Mapping[str, Sequence[Figures]], names: Sequence[str]) -> int:
    """Return the policy with the fewest attempts that solves as many as the default."""
    solved = []
    attempts = []
    for of_policy in zip(*(figures[name] for name in names), strict=True):
        solved.append(sum(figure.solved for figure in of_policy))
        attempts.append(sum(figure.attempts for figure in of_policy))
    enough = (n for n, count in enumerate(solved) if count >= solved[0])
    return min(enough, key=lambda n: attempts[n])


def _grounding(data: Path, split: str) -> Iterator[Row]:
    tasks: dict[str, list[tuple[bool, list[str]]]] = {}
    responses = recall.group_by(read(data, "grounding_quintd1", split), "task")
    for name, rows in responses.items():
        tasks[name] = []
        for row in rows:
            levels: list[str] = [finding.level for finding in find(row)]
            tasks[name].append((bool(row["label"]), levels))

    def balanced(names: Sequence[str], choice: tuple[str, int]) -> float:
        (counted, least) = choice
        wrong = []
        flags = []
        for name in names:
            for is_wrong, levels in tasks[name]:
                wrong.append(is_wrong)
                flags.append(sum(level in counted for level in levels) >= least)
        return rate(wrong, flags)["balanced"]

    def choose(names: Sequence[str]) -> tuple[str, int]:
        choices = product(("error", "error warning"), (1, 2, 3))
        return max(choices, key=lambda choice: balanced(names, choice))

    chosen = _leave_out("grounding", tasks, choose)
    ours = mean(balanced([name], choice) for name, choice in chosen.items())
    shipped = mean(balanced([name], ("error warning", 1)) for name in tasks)
    yield Row(key="grounding.quintd.balanced_logo", ours=ours, baseline=shipped)


async def _recall(data: Path, split: str) -> list[Row]:
    pairs = await _search_pairs(data, split)

    @cache
    def shares(
        names: tuple[str, ...], choice: tuple[float, float]
    ) -> tuple[float, float]:
        """Return the share of known questions that are recalled, and of new ones."""
        answers: dict[bool, list[float]] = {True: [], False: []}
        for name in names:
            for is_known, matches in pairs[name]:
                recalled = any(
                    (match.cosine or 0.0) >= choice[0] or match.coverage >= choice[1]
                    for match in matches
                )
                answers[is_known].append(float(recalled))
        return recall.share(answers[True]), recall.share(answers[False])

    choices = [(c / 50, w / 50) for c, w in product(range(15, 31), range(10, 31))]

    def best(names: Sequence[str]) -> tuple[float, float]:
        key = tuple(names)
        fitting = [choice for choice in choices if shares(key, choice)[1] <= FALSE]
        return max(fitting or choices[-1:], key=lambda choice: shares(key, choice)[0])

    chosen = _leave_out("recall", pairs, best)
    ours = [shares((name,), choice) for name, choice in chosen.items()]
    shipped = (ranking.RELATED.cosine, ranking.RELATED.words)
    of_shipped = [shares((name,), shipped) for name in pairs]
    return [
        Row(
            key="recall.seen.recall_logo",
            ours=mean(recalled for recalled, _ in ours),
            baseline=mean(recalled for recalled, _ in of_shipped),
        ),
        Row(
            key="recall.seen.false_logo",
            ours=mean(false for _, false in ours),
            baseline=mean(false for _, false in of_shipped),
        ),
    ]


async def _search_pairs(
    data: Path, split: str
) -> dict[str, list[tuple[bool, list[Match]]]]:
    """Return for each question of a pair whether it is known, and what search finds."""
    embedder = open_embedder()
    questions = recall.group_by(read(data, "mistake_retrieval_hotpot", split), "pair")
    pairs: dict[str, list[tuple[bool, list[Match]]]] = defaultdict(list)
    async for name, row, memory in recall.ask_pairs(questions, embedder):
        matches = await recall.search_memory(memory, recall.question(row), embedder)
        pairs[name].append((bool(row["relevant"]), matches))
    return pairs
