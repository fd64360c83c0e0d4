"""Leave one group out: what is chosen on all other groups is scored on the one left out.

Each figure is the mean over groups. It says how the choice of masks, rules and thresholds holds on
data that it was not made on. Signatures: masks are dropped, and the counts of the learned level
changed, one at a time, as long as the grouping accuracy of the other log systems rises. Stop: the
policy with the fewest attempts that solves as many of the other loops as the preset `default`.
Grounding: which findings flag a response. Recall: the thresholds with the best recall at ≤ 10 %
false.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import mean
from unittest.mock import patch

import heedful
from bench.quality import recall, stop
from bench.quality import signatures as systems_job
from bench.quality.answers import say
from bench.quality.grounding import found, rated
from bench.quality.rows import Row, read
from heedful.lessons import patterns, signature
from heedful.lessons.lesson import Match
from heedful.loop.policies import PRESETS
from heedful.loop.replay import grid
from heedful.memory.memory import space_of
from heedful.models import open_embedder
from heedful.store import search

FALSE = 0.10
LEAST = 0.001  # the gain in grouping accuracy for which a change is made
COUNTS = {"MANY": range(3, 8), "WORDS": range(1, 4)}
Config = tuple[frozenset[str], int, int]  # the masks in use, MANY, WORDS


def run(data: Path, split: str) -> Iterator[Row]:
    """The rows of the four jobs; the baseline is the shipped choice on the same groups."""
    yield from _signatures(data, split)
    yield from _stops(data, split)
    yield from _grounding(data, split)
    yield from asyncio.run(_recall(data, split))


def _signatures(data: Path, split: str) -> Iterator[Row]:
    systems: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in read(data, "loghub_2k", split):
        systems[row["set"]].append((row["content"], row["event_id"]))
    known: dict[tuple[str, Config], float] = {}

    def score(name: str, config: Config) -> float:
        if (name, config) not in known:
            with _configured(config):
                groups = systems_job.learned("log", systems[name])
            known[name, config] = systems_job.accuracy(groups, systems[name])
        return known[name, config]

    shipped: Config = (frozenset(signature._KINDS), patterns.MANY, patterns.WORDS)
    scores, gone = {}, set[str]()
    for left in systems:
        others = [name for name in systems if name != left]
        best = _climb(shipped, lambda config, names=others: mean(score(n, config) for n in names))
        scores[left] = score(left, best)
        gone |= shipped[0] - best[0]
        say(f"logo signatures {left}: {scores[left]:.3f}, without {sorted(shipped[0] - best[0])}")
    plain = mean(score(name, shipped) for name in systems)
    about = f"dropped in some: {', '.join(sorted(gone)) or 'nothing'}"
    yield Row("signatures.loghub.ga_logo", mean(scores.values()), plain, about)
    for name, value in scores.items():
        yield Row(f"signatures.loghub.{name}_logo", value, score(name, shipped))


def _climb(config: Config, score: Callable[[Config], float]) -> Config:
    """Change one part at a time, the best first, as long as the score rises."""
    value = score(config)
    while True:
        kinds, many, words = config
        near = [(kinds ^ {kind}, many, words) for kind in signature._KINDS]
        near += [(kinds, n, words) for n in COUNTS["MANY"] if abs(n - many) == 1]
        near += [(kinds, many, n) for n in COUNTS["WORDS"] if abs(n - words) == 1]
        best = max(near, key=score)
        if score(best) < value + LEAST:
            return config
        config, value = best, score(best)


def _configured(config: Config) -> ExitStack:
    """Replace the masks and counts of the library while the block runs."""
    kinds, many, words = config
    pattern = signature._PARTICULAR.pattern
    for kind, text in signature._KINDS.items():
        if kind not in kinds:
            pattern = pattern.replace(f"(?P<{kind}>{text})", f"(?P<{kind}>(?!))")
    stack = ExitStack()
    stack.enter_context(patch.object(signature, "_PARTICULAR", re.compile(pattern)))
    stack.enter_context(patch.multiple(patterns, MANY=many, WORDS=words))
    return stack


def _stops(data: Path, split: str) -> Iterator[Row]:
    policies = [PRESETS["default"], *grid()]
    for key, groups in (("stop.ldb", ("run", "bench")), ("stop.hotpot", ("run",))):
        name, candidate = stop.SETS[key]
        judge = stop.code if key == "stop.ldb" else stop.question
        rows = list(read(data, name, split))
        loops = [stop.recorded(row, judge, candidate) for row in rows]
        for group in groups:
            names = [row[group] for row in rows]
            parts = {
                one: [loop for loop, name in zip(loops, names, strict=True) if name == one]
                for one in dict.fromkeys(names)
            }
            figures = {one: heedful.compare(part, policies) for one, part in parts.items()}
            full = {one: heedful.compare(part, [stop.FULL])[0] for one, part in parts.items()}
            shares, costs, plain = [], [], []
            for left in parts:
                chosen = _cheapest([figures[one] for one in parts if one != left])
                made, default = figures[left][chosen], figures[left][0]
                shares.append(made.solved / max(1, full[left].solved))
                costs.append(made.attempts / made.oracle)
                plain.append(
                    (default.solved / max(1, full[left].solved), default.attempts / default.oracle)
                )
                say(f"logo {key} {left}: {policies[chosen].name}")
            end = "_logo" if group == "run" else f"_logo_{group}"
            about = f"{len(parts)} groups; the preset default on the same"
            yield Row(f"{key}.solved_share{end}", mean(shares), mean(p[0] for p in plain), about)
            yield Row(f"{key}.attempts_over_oracle{end}", mean(costs), mean(p[1] for p in plain))


def _cheapest(figures: Sequence[Sequence[heedful.Figures]]) -> int:
    """Return the number of the policy with the fewest attempts that solves as many as the first."""
    solved = [sum(each.solved for each in one) for one in zip(*figures, strict=True)]
    spent = [sum(each.attempts for each in one) for one in zip(*figures, strict=True)]
    return min((n for n, many in enumerate(solved) if many >= solved[0]), key=lambda n: spent[n])


def _grounding(data: Path, split: str) -> Iterator[Row]:
    tasks: dict[str, list[tuple[bool, list[str]]]] = defaultdict(list)
    for row in read(data, "grounding_quintd1", split):
        tasks[row["task"]].append((bool(row["label"]), [one.level for one in found(row)]))

    def balanced(names: Sequence[str], choice: tuple[str, int]) -> float:
        rows = [row for name in names for row in tasks[name]]
        levels, least = choice
        flags = [sum(level in levels for level in has) >= least for _, has in rows]
        return rated([wrong for wrong, _ in rows], flags)["balanced"]

    choices = list(product(("error", "error warning"), (1, 2, 3)))
    scores = []
    for left in tasks:
        others = [name for name in tasks if name != left]
        best = max(choices, key=lambda choice, names=others: balanced(names, choice))
        scores.append(balanced([left], best))
    plain = mean(balanced([name], ("error warning", 1)) for name in tasks)
    yield Row("grounding.quintd.balanced_logo", mean(scores), plain)


async def _recall(data: Path, split: str) -> list[Row]:
    embedder = open_embedder()
    pairs: dict[str, list[tuple[bool, list[Match]]]] = defaultdict(list)
    for name, rows in recall.by(read(data, "mistake_retrieval_hotpot", split), "pair").items():
        memory = heedful.Memory(":memory:", heedful.Scope(project=name), embedder)
        for row in rows:
            if row["kind"] == "memory":
                await memory.remember(row["id"], row["text"])
        for row in rows:
            if row["kind"] == "query":
                asked = recall.question(row)
                (vector,) = await embedder.embed([asked])
                at = asked, space_of(embedder), vector, 50
                got = await memory.store.read(memory.scope, search.search, *at)
                pairs[name].append((bool(row["relevant"]), got))
        await memory.store.close()
    choices = [(c / 50, w / 50) for c in range(15, 31) for w in range(10, 31)]
    scored = {choice: {name: _known(pairs[name], choice) for name in pairs} for choice in choices}

    def total(choice: tuple[float, float], names: Sequence[str]) -> tuple[float, float]:
        rows = [row for name in names for row in scored[choice][name]]
        return recall.share([k for known, k in rows if known]), recall.share(
            [k for known, k in rows if not known]
        )

    left_out: list[tuple[bool, bool]] = []
    for left in pairs:
        names = [name for name in pairs if name != left]
        fits = [one for one in choices if total(one, names)[1] <= FALSE] or choices[-1:]
        best = max(fits, key=lambda one, names=names: total(one, names)[0])
        left_out += scored[best][left]
        say(f"logo recall {left}: cosine {best[0]}, coverage {best[1]}")
    known = [float(k) for is_known, k in left_out if is_known]
    new = [float(k) for is_known, k in left_out if not is_known]
    return [
        Row("recall.seen.recall_logo", recall.share(known)),
        Row("recall.seen.false_logo", recall.share(new)),
    ]


def _known(
    rows: Sequence[tuple[bool, list[Match]]], choice: tuple[float, float]
) -> list[tuple[bool, bool]]:
    """Return for each question whether it is known, and whether these thresholds say so."""
    cosine, coverage = choice
    return [
        (is_known, any((one.cosine or 0) >= cosine or one.coverage >= coverage for one in got))
        for is_known, got in rows
    ]
