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
from functools import cache
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

import heedful
from bench.quality import recall, stop
from bench.quality.answers import say
from bench.quality.grounding import found, rated
from bench.quality.rows import Row, read
from heedful.lessons import ranking
from heedful.lessons.lesson import Match
from heedful.loop.policies import PRESETS
from heedful.memory.vectors import space_of
from heedful.models import open_embedder
from heedful.store import search

C = TypeVar("C")
FALSE = 0.10
STOPS = (
    ("stop.ldb", "run", "_logo"),
    ("stop.ldb", "bench", "_logo_bench"),
    ("stop.hotpot", "run", "_logo"),
)


def run(data: Path, split: str) -> Iterator[Row]:
    """The rows of three jobs; the baseline is the shipped choice on the same groups."""
    yield from _stops(data, split)
    yield from _grounding(data, split)
    yield from asyncio.run(_recall(data, split))


def _left_out(
    title: str, groups: Iterable[str], choose: Callable[[list[str]], C]
) -> dict[str, C]:
    """Return for each group what is chosen on all the others."""
    found = {}
    names = list(groups)
    for left in names:
        found[left] = choose([name for name in names if name != left])
        say(f"logo {title}, without {left}: {found[left]}")
    return found


def _grouped(
    rows: Iterable[Mapping[str, Any]], key: str
) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    return groups


def _stops(data: Path, split: str) -> Iterator[Row]:
    policies = [PRESETS["default"], *stop.grid(), stop.FULL]
    for key, group, end in STOPS:
        name, candidate = stop.SETS[key]
        judge = stop.code if key == "stop.ldb" else stop.question
        figures = {
            one: heedful.compare(
                [stop.recorded(dict(row), judge, candidate) for row in rows], policies
            )
            for one, rows in _grouped(read(data, name, split), group).items()
        }

        def cheapest(names: Sequence[str], figures: Any = figures) -> int:
            """Return the policy with the fewest attempts that solves as many as the
            default.
            """
            each = list(zip(*(figures[name] for name in names), strict=True))
            solved = [sum(one.solved for one in of) for of in each]
            spent = [sum(one.attempts for one in of) for of in each]
            enough = (n for n, count in enumerate(solved) if count >= solved[0])
            return min(enough, key=lambda n: spent[n])

        chosen = _left_out(key, figures, cheapest)
        about = ", ".join(sorted({policies[n].name for n in chosen.values()}))
        ours = [
            (figures[one][n], figures[one][0], figures[one][-1])
            for one, n in chosen.items()
        ]
        share, plain = (
            mean(f[n].solved / max(1, f[2].solved) for f in ours) for n in (0, 1)
        )
        yield Row(
            key=f"{key}.solved_share{end}", ours=share, baseline=plain, anchor=about
        )
        cost, plain = (mean(f[n].attempts / f[n].oracle for f in ours) for n in (0, 1))
        yield Row(key=f"{key}.attempts_over_oracle{end}", ours=cost, baseline=plain)


def _grounding(data: Path, split: str) -> Iterator[Row]:
    tasks = {
        name: [(bool(row["label"]), [one.level for one in found(row)]) for row in rows]
        for name, rows in _grouped(
            read(data, "grounding_quintd1", split), "task"
        ).items()
    }

    def balanced(names: Sequence[str], choice: tuple[str, int]) -> float:
        rows = [row for name in names for row in tasks[name]]
        (levels, least) = choice
        flags = [sum(level in levels for level in has) >= least for _, has in rows]
        return rated([wrong for wrong, _ in rows], flags)["balanced"]

    choices = list(product(("error", "error warning"), (1, 2, 3)))
    chosen = _left_out(
        "grounding",
        tasks,
        lambda names: max(choices, key=lambda one: balanced(names, one)),
    )
    ours = mean(balanced([name], choice) for name, choice in chosen.items())
    plain = mean(balanced([name], ("error warning", 1)) for name in tasks)
    yield Row(key="grounding.quintd.balanced_logo", ours=ours, baseline=plain)


async def _recall(data: Path, split: str) -> list[Row]:
    embedder = open_embedder()
    pairs: dict[str, list[tuple[bool, list[Match]]]] = defaultdict(list)
    for name, rows in _grouped(
        read(data, "mistake_retrieval_hotpot", split), "pair"
    ).items():
        memory = heedful.Memory(":memory:", heedful.Scope(project=name), embedder)
        for row in (row for row in rows if row["kind"] == "memory"):
            await memory.remember(row["id"], row["text"])
        for row in (row for row in rows if row["kind"] == "query"):
            asked = recall.question(row)
            (vector,) = await embedder.embed([asked])
            at = asked, space_of(embedder), vector, 50
            got = await memory.store.read(memory.scope, search.search, *at)
            pairs[name].append((bool(row["relevant"]), got))
        await memory.store.close()

    @cache
    def shares(
        names: tuple[str, ...], choice: tuple[float, float]
    ) -> tuple[float, float]:
        """Return the share of known questions that are recalled, and of new ones."""
        answers: dict[bool, list[float]] = {True: [], False: []}
        for known, got in (row for name in names for row in pairs[name]):
            near = (
                (one.cosine or 0.0) >= choice[0] or one.coverage >= choice[1]
                for one in got
            )
            answers[known].append(float(any(near)))
        return recall.share(answers[True]), recall.share(answers[False])

    choices = [(c / 50, w / 50) for c in range(15, 31) for w in range(10, 31)]

    def best(names: Sequence[str]) -> tuple[float, float]:
        fits = [
            one for one in choices if shares(tuple(names), one)[1] <= FALSE
        ] or choices[-1:]
        return max(fits, key=lambda one: shares(tuple(names), one)[0])

    chosen = _left_out("recall", pairs, best)
    ours = [shares((name,), choice) for name, choice in chosen.items()]
    plain = [
        shares((name,), (ranking.MIN_RELATED_COSINE, ranking.MIN_RELATED_COVERAGE))
        for name in pairs
    ]
    return [
        Row(
            key=f"recall.seen.{what}_logo",
            ours=mean(o[n] for o in ours),
            baseline=mean(p[n] for p in plain),
        )
        for n, what in enumerate(("recall", "false"))
    ]
