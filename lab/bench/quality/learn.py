"""Learn: does memory help on tasks that others wrote? Arms side by side on streams.

Every arm answers the same tasks under the same prompt and the same check, in one order
and its reverse, so that each task stands once in a second half. The figure that counts
is `second_half`: right at the first try in the second half of a stream, when a memory
has learnt what it can. Streams count alike.

    nothing  one attempt
    retries  three attempts with feedback
    nearest  retries, and the three nearest accepted answers so far, as chat turns
    ours     retries, and one decorated function with a memory
    trial    retries, and the answers of `nearest` as texts of another memory, through
             a heedful.Trial that withholds nothing

`bench.quality.learn_plan` has the plan.

A memory that told nothing in a second half is an error, not a result. Streams of a pool
are averaged, each pool apart.

`EXPECTED` was written before the first run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from bench.quality.answers import MODELS, KeptModels, Live, open_kept_models, say
from bench.quality.arms import ARMS, run_arm
from bench.quality.committed import commit
from bench.quality.curve import Outcome
from bench.quality.learn_plan import PLAIN, cut, describe, plan_of
from bench.quality.paired import (
    Gain,
    Pair,
    Summary,
    gain,
    pair,
    plain_figures,
    right_at_once,
    solved,
    summarize,
    summary_rows,
)
from bench.quality.rows import Row, say_expectation, write_json
from bench.quality.streams import READERS, Stream
from heedful.errors import ModelError

OUT = Path("bench/out/learn.json")
OURS = "ours"
RIVAL = "nearest"
# Of an order, the tasks that it has in its second half.
HALVES = ("last_tasks", "first_tasks")
COMPARED = ("nothing", "retries", "nearest", "trial", "ours")


# Gains at the first try in second halves that were expected before the first run, and
# why.
EXPECTED: Mapping[str, tuple[float, str]] = {
    "open.ours_over_nothing.second_half": (
        0.15,
        "half of GeoQuery's .38: most schemas vary",
    ),
    "open.ours_over_retries.second_half": (
        0.15,
        "as over nothing: retries change no first answer",
    ),
    "open.ours_over_nearest.second_half": (
        0.0,
        "+.03 on GeoQuery, below 0 where rules are noise",
    ),
    "geo.ours_over_nearest.second_half": (0.03, "as measured before: .45 and .41"),
    "spider.ours_over_nearest.second_half": (
        0.0,
        "examples of other schemas, with either memory",
    ),
    "lifelong.ours_over_nearest.second_half": (
        0.0,
        "a table for each task: nothing to learn",
    ),
    "banking77.ours_over_nearest.second_half": (
        -0.05,
        "`wrong queue` is told as a rule to all",
    ),
    "clinc150.ours_over_nearest.second_half": (-0.05, "as banking77"),
    "corrected.ours_over_nearest.second_half": (
        -0.03,
        "yesterday's queue is told as a rule",
    ),
    "rules.ours_over_nearest.second_half": (
        0.10,
        "a rule reaches unlike tasks, an example less",
    ),
}
# The outcomes of a model on a stream, by the arm, and the order with the task's id.
ArmOutcomes = dict[str, dict[tuple[int, str], Outcome]]
Results = dict[str, ArmOutcomes]


def run(data: Path, split: str, live: Live) -> Iterator[Row]:
    """Yield the rows of each model; write `bench/out/learn.json`.

    Figures of other models stay in the file. Raises SystemExit after all rows if a
    memory told nothing, and if runs of a model are not complete.
    """
    silent: list[str] = []
    for size in live.models:
        model, sources, results = asyncio.run(_measure(size, data, split, live))
        title = size if size in MODELS else model
        summaries = {name: _summarize(arms) for name, arms in results.items()}
        gains = compare_arms(sources, results)
        report = json.loads(OUT.read_text("utf-8")) if OUT.exists() else {}
        report[title] = {
            "model": model,
            "streams": _plain(summaries),
            "gains": _plain(gains),
        }
        write_json(OUT, report)
        silent += [f"{title} {silent_arm}" for silent_arm in silent_arms(summaries)]
        yield from _rows(title, summaries, gains)
    if silent:
        raise SystemExit(f"memory told nothing in the second half: {', '.join(silent)}")


async def _measure(
    size: str, data: Path, split: str, live: Live
) -> tuple[str, list[Stream], Results]:
    plan = plan_of(size, live)
    sources = [cut(READERS[name](data, split), live.limit) for name in plan.streams]
    async with open_kept_models(size, data, live) as models:
        for line in describe(f"learn {models.name}", plan, sources, live):
            say(line)
        jobs = [
            _StreamJob(source=source, arms=plan.arms, models=models)
            for source in sources
        ]
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job.run())
        total = len(jobs) * sum(plan.arms.values())
        stopped = sum(len(job.stopped) for job in jobs)
        spending = models.spending
        spent = (
            f"{stopped} of {total} runs lack answers, {spending.calls} new calls cost "
            f"{spending.cost:.2f} $"
        )
        if stopped:
            raise SystemExit(f"{spending.ended_by}; {spent}; the same command goes on")
        say(spent)
        if live.export:
            commit(models.answers.committed, models.name, models.answers.used)
    results = {job.source.name: job.results for job in jobs}
    return models.name, sources, results


@dataclass(frozen=True, kw_only=True)
class _StreamJob:
    """All arms on a stream, in all orders. All jobs share the models.

    `stopped` names the runs that lack an answer.
    """

    source: Stream
    arms: Mapping[str, int]
    models: KeptModels
    results: ArmOutcomes = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Run each arm in each order."""
        self.results.update((name, {}) for name in self.arms)
        async with asyncio.TaskGroup() as group:
            for order in range(max(self.arms.values())):
                for name, orders in self.arms.items():
                    if order < orders:
                        group.create_task(self._run_arm(name, order))

    async def _run_arm(self, name: str, order: int) -> None:
        try:
            outcomes = await self._answer(name, order)
        except ModelError:
            self.stopped.append(f"{self.source.name} {name}")
            return
        for outcome in outcomes:
            self.results[name][order, outcome.task.id] = outcome

    async def _answer(self, name: str, order: int) -> list[Outcome]:
        tasks = list(self.source.tasks)
        if order:
            tasks.reverse()
        title = f"learn {self.models.name} {self.source.name} {order} {name}"
        async with self.models.lease() as model:
            return await run_arm(
                title, ARMS[name], self.source, tasks=tasks, model=model
            )


def _summarize(
    arms: Mapping[str, Mapping[tuple[int, str], Outcome]],
) -> dict[str, Summary]:
    plain = arms.get(PLAIN, {})
    return {name: summarize(outcomes, plain) for name, outcomes in arms.items()}


def silent_arms(summaries: Mapping[str, Mapping[str, Summary]]) -> Iterator[str]:
    """Yield the streams and arms whose memory held nothing in the second half."""
    for source, arms in summaries.items():
        for name, summary in arms.items():
            if ARMS[name].remembers and not summary.told_late:
                yield f"{source} {name}"


def compare_arms(
    sources: Sequence[Stream], results: Results
) -> dict[str, dict[str, Gain | None]]:
    """Return the gains of each stream and of each pool, by what is compared."""
    groups = {source.name: [source.name] for source in sources}
    for pool in dict.fromkeys(source.pool for source in sources):
        members = [source.name for source in sources if source.pool == pool]
        if len(members) > 1:
            groups[pool] = members

    gains: dict[str, dict[str, Gain | None]] = {}
    for group, members in groups.items():
        gains[group] = {}
        arms = [results[member] for member in members]
        for other, name in combinations(COMPARED, 2):
            if ARMS[name].remembers and all({name, other} <= {*runs} for runs in arms):
                key = f"{name}_over_{other}"
                pairs = [pair(runs[name], runs[other]) for runs in arms]
                gains[group] |= _gains_of(key, pairs)
                for order, half in enumerate(HALVES):
                    pairs = [
                        pair(_in_order(runs[name], order), runs[other]) for runs in arms
                    ]
                    figure = gain(pairs, right_at_once, late_only=True)
                    gains[group][f"{key}.{half}"] = figure
    return gains


def _in_order(
    outcomes: Mapping[tuple[int, str], Outcome], order: int
) -> dict[tuple[int, str], Outcome]:
    return {key: outcome for key, outcome in outcomes.items() if key[0] == order}


def _gains_of(
    key: str, pairs: Sequence[Sequence[Pair]]
) -> Iterator[tuple[str, Gain | None]]:
    yield f"{key}.second_half", gain(pairs, right_at_once, late_only=True)
    yield f"{key}.first", gain(pairs, right_at_once, late_only=False)
    yield f"{key}.solved", gain(pairs, solved, late_only=False)


def _plain(
    groups: Mapping[str, Mapping[str, Summary | Gain | None]],
) -> dict[str, dict[str, object]]:
    """Return JSON data of records, by their groups and names."""
    plain: dict[str, dict[str, object]] = {}
    for group, records in groups.items():
        plain[group] = {key: plain_figures(record) for key, record in records.items()}
    return plain


def _rows(
    size: str,
    summaries: Mapping[str, Mapping[str, Summary]],
    gains: Mapping[str, Mapping[str, Gain | None]],
) -> Iterator[Row]:
    for source, arms in summaries.items():
        for name, summary in arms.items():
            key = f"learn.{source}.{size}.{name}"
            yield from summary_rows(key, summary, arms.get(PLAIN))
    for group, figures in gains.items():
        for key, figure in figures.items():
            anchor = say_expectation(EXPECTED.get(f"{group}.{key}"))
            for measure, value in (plain_figures(figure) or {}).items():
                name = f"learn.{group}.{size}.{key}.{measure}"
                yield Row(key=name, ours=value, anchor=anchor)
