"""Learn: does memory help on tasks that others wrote? Arms side by side on streams.

Every arm answers the same tasks under the same prompt and the same check, in one order
and its reverse, so that each task stands once in a second half. Answers are extracted
from a model's text in the same way for all. The figure that counts is `second_half`:
right at the first try in the second half of a stream, when a memory has learnt what it
can. Streams count alike. `won` and `lost` stand beside every gain.

    nothing  one attempt
    again    asked again and again at a temperature, with as many calls as `ours`; the
             check picks, so only its share of solved tasks says something
    retries  three attempts with feedback
    nearest  retries, and the three nearest accepted answers so far, as chat turns
    ours     retries, and one decorated function with a memory
    trial    retries, and the answers of `nearest` as texts of a memory that heedful did
             not make, through a heedful.Trial that withholds nothing

The arm `trial` is not in the plan: name it in `ARMS`. Further arms are entries of
`bench.quality.arms.ARMS`. With ablations of `ours`, the gain `chosen_elsewhere` is that
of the variant that the other streams choose, for each stream: run them on the same
tasks, with `LIMIT=150` and `ORDERS=1`.

An arm with memory whose prompts held nothing of earlier tasks in a second half is an
error, not a result. Every answer is kept: stop a run with Ctrl-C, and the next one goes
on. Streams in `POOLS` other than `open` are averaged apart: a person corrects every
wrong answer there, or the rule is the same for all tasks.

`EXPECTED` was written before the first run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.quality.answers import KeptModels, Live, open_kept_models, say
from bench.quality.arms import ABLATIONS, ARMS, ask_again, run_arm
from bench.quality.curve import Outcome, Task
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
)
from bench.quality.rows import Row, say_expectation, write_json
from bench.quality.streams import CORRECTED, OPEN, READERS, RULES, Stream

OUT = Path("bench/out/learn.json")
PLAIN = "nothing"
SAMPLED = "again"
BUDGET = "ours"  # the arm that says how many calls `again` has
RIVAL = "nearest"
PLANNED_ARMS = ("nothing", "retries", "nearest", "ours", "again")
COMPARED = ("nothing", "again", "retries", "nearest", "ours")
POOLS = (OPEN, CORRECTED, RULES)
ABLATION_TASKS = 150


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much of each stream a model answers.

    The arms with memory and `nothing` answer the first `tasks` of a stream, or all, in
    the number of `orders`. An arm whose answers do not depend on earlier tasks answers
    `sample` of these, evenly spread.
    """

    tasks: int | None
    orders: int
    sample: int
    arms: tuple[str, ...] = PLANNED_ARMS


SIZES = {
    "0.5b": Size(tasks=None, orders=2, sample=90),
    "1.5b": Size(
        tasks=100, orders=1, sample=60, arms=("nothing", "retries", "nearest", "ours")
    ),
}
# Gains at the first try in second halves that were expected before the first run, and
# why; `again` is compared by the share of solved tasks.
EXPECTED: Mapping[str, tuple[float, str]] = {
    "open.ours_over_nothing": (0.15, "half of GeoQuery's .38: most schemas vary"),
    "open.ours_over_retries": (0.15, "as over nothing: retries change no first answer"),
    "open.ours_over_nearest": (0.0, "+.03 on GeoQuery, below 0 where rules are noise"),
    "open.ours_over_again": (0.03, "sampling solves what a small model almost knows"),
    "geo.ours_over_nearest": (0.03, "as measured before: .45 and .41"),
    "restaurants.ours_over_nearest": (0.02, "one schema and few forms, as GeoQuery"),
    "defog.ours_over_nearest": (0.0, "27 tasks a database are few"),
    "spider.ours_over_nearest": (0.0, "examples of other schemas, with either memory"),
    "lifelong.ours_over_nearest": (0.0, "a table for each task: nothing to learn"),
    "banking77.ours_over_nearest": (-0.05, "`wrong queue` is told as a rule to all"),
    "clinc150.ours_over_nearest": (-0.05, "as banking77"),
    "corrected.ours_over_nearest": (-0.03, "yesterday's queue is told as a rule"),
    "rules.ours_over_nearest": (0.10, "a rule reaches unlike tasks, an example less"),
    "open.ours_rules_over_ours": (-0.10, "examples carry most of what is learnt"),
    "open.ours_examples_over_ours": (0.02, "rules of these checks hold particulars"),
}
# The outcomes of a model, by the stream, the arm, and the order with the task's id.
Results = dict[str, dict[str, dict[tuple[int, str], Outcome]]]


def run(data: Path, split: str, live: Live) -> Iterator[Row]:
    """Yield the rows of each model; write `bench/out/learn.json`.

    Raises SystemExit after all rows if an arm with memory had none.
    """
    report: dict[str, object] = {}
    silent: list[str] = []
    for size in live.models:
        model, sources, results = asyncio.run(_measure(size, data, split, live))
        summaries = {name: _summarize(arms) for name, arms in results.items()}
        gains = compare_arms(sources, results)
        report[size] = {
            "model": model,
            "streams": _plain(summaries),
            "gains": _plain(gains),
        }
        write_json(OUT, report)
        silent += [f"{size} {title}" for title in silent_arms(summaries)]
        yield from _rows(size, summaries, gains)
    if silent:
        raise SystemExit(f"memory told nothing in the second half: {', '.join(silent)}")


async def _measure(
    size: str, data: Path, split: str, live: Live
) -> tuple[str, list[Stream], Results]:
    sources = [READERS[name](data, split) for name in live.streams or READERS]
    results: Results = {}
    async with open_kept_models(size, data, live) as models:
        names = live.arms or SIZES[size].arms
        if SAMPLED in names and BUDGET not in names:
            raise SystemExit(f"the arm {SAMPLED} has the calls of {BUDGET}: run both")
        async with asyncio.TaskGroup() as group:
            for source in sources:
                results[source.name] = {name: {} for name in names}
                job = _StreamJob(
                    source=source,
                    size=size,
                    live=live,
                    models=models,
                    results=results[source.name],
                )
                group.create_task(job.run())
        return models.name, sources, results


@dataclass(frozen=True, kw_only=True)
class _StreamJob:
    """All arms on one stream, in all orders. Jobs of all streams share the models."""

    source: Stream
    size: str
    live: Live
    models: KeptModels
    results: dict[str, dict[tuple[int, str], Outcome]]

    async def run(self) -> None:
        """Run each arm in each order."""
        async with asyncio.TaskGroup() as group:
            for order in range(self.live.orders or SIZES[self.size].orders):
                budget: asyncio.Task[list[Outcome]] | None = None
                # The arm that others wait for comes first.
                for name in sorted(self.results, key=lambda name: name != BUDGET):
                    arm = group.create_task(self._run_arm(name, order, budget))
                    if name == BUDGET:
                        budget = arm

    async def _run_arm(
        self, name: str, order: int, budget: asyncio.Task[list[Outcome]] | None
    ) -> list[Outcome]:
        if name in ABLATIONS and order:
            return []
        tasks = self._ordered(name, order)
        late_ids = frozenset(task.id for task in tasks[len(tasks) // 2 :])
        title = f"learn {self.size} {self.source.name} {order} {name}"
        if not ARMS[name].remembers and name != PLAIN:
            tasks = self._sample(tasks)
        if name == SAMPLED and budget is not None:
            outcomes = await budget
            calls_by_id = {outcome.task.id: outcome.calls for outcome in outcomes}
            calls = sum(calls_by_id[task.id] for task in tasks)
            async with self.models.lease() as model:
                outcomes = await ask_again(
                    title,
                    self.source,
                    tasks=tasks,
                    late_ids=late_ids,
                    calls=calls,
                    model=model,
                )
        else:
            async with self.models.lease() as model:
                outcomes = await run_arm(
                    title,
                    ARMS[name],
                    self.source,
                    tasks=tasks,
                    late_ids=late_ids,
                    model=model,
                )
        for outcome in outcomes:
            self.results[name][order, outcome.task.id] = outcome
        return outcomes

    def _ordered(self, name: str, order: int) -> list[Task]:
        limit = self.live.limit or SIZES[self.size].tasks or len(self.source.tasks)
        if name in ABLATIONS:
            limit = min(limit, ABLATION_TASKS)
        tasks = list(self.source.tasks[:limit])
        if order:
            tasks.reverse()
        return tasks

    def _sample(self, tasks: Sequence[Task]) -> list[Task]:
        count = min(len(tasks), SIZES[self.size].sample)
        return [tasks[place * len(tasks) // count] for place in range(count)]


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
    for pool in POOLS:
        members = [source.name for source in sources if source.pool == pool]
        if len(members) > 1:
            groups[pool] = members

    names = list(next(iter(results.values())))
    gains: dict[str, dict[str, Gain | None]] = {}
    for group, members in groups.items():
        gains[group] = {}
        for name in names:
            for other in COMPARED:
                if not _is_compared(name, other, names):
                    continue
                pairs = [
                    pair(results[member][name], results[member][other])
                    for member in members
                ]
                key = f"{name}_over_{other}"
                gains[group] |= _gains_of(key, pairs)
        chosen = _choose_elsewhere(members, names, results)
        if chosen:
            gains[group] |= _gains_of(f"chosen_elsewhere_over_{RIVAL}", chosen)
    return gains


def _choose_elsewhere(
    members: Sequence[str], names: Sequence[str], results: Results
) -> list[list[Pair]]:
    """Return for each stream the pairs of the variant of ours that others choose.

    The variant has the largest gain over the nearest answers in the second halves of
    all other streams. Without several variants and streams there is nothing to choose.
    """
    variants = [name for name in names if name == BUDGET or name in ABLATIONS]
    if len(variants) < 2 or len(members) < 2 or RIVAL not in names:
        return []
    pairs = {}
    means: dict[tuple[str, str], float] = {}
    for member in members:
        for name in variants:
            compared = pair(results[member][name], results[member][RIVAL])
            pairs[member, name] = compared
            figure = gain([compared], right_at_once, late_only=True)
            means[member, name] = figure.gain if figure else 0.0

    chosen = []
    for left_out in members:
        totals = dict.fromkeys(variants, 0.0)
        for (member, name), points in means.items():
            if member != left_out:
                totals[name] += points
        best = max(variants, key=totals.__getitem__)
        say(f"chosen without {left_out}: {best}")
        chosen.append(pairs[left_out, best])
    return chosen


def _is_compared(name: str, other: str, names: Sequence[str]) -> bool:
    if other not in names or other == name or not ARMS[name].remembers:
        return False
    return name not in COMPARED or COMPARED.index(other) < COMPARED.index(name)


def _gains_of(
    key: str, pairs: Sequence[Sequence[Pair]]
) -> Iterator[tuple[str, Gain | None]]:
    if not key.endswith(SAMPLED):
        yield f"{key}.second_half", gain(pairs, right_at_once, late_only=True)
        yield f"{key}.first", gain(pairs, right_at_once, late_only=False)
    yield f"{key}.solved", gain(pairs, solved, late_only=False)


def _expectation(group: str, key: str) -> str:
    """Return what was expected of a gain before the first run, "" if nothing was."""
    comparison, _, measure = key.partition(".")
    counted = "solved" if comparison.endswith(SAMPLED) else "second_half"
    if measure != counted:
        return ""
    return say_expectation(EXPECTED.get(f"{group}.{comparison}"))


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
            baseline = plain_figures(arms[PLAIN]) if PLAIN in arms else None
            for measure, value in (plain_figures(summary) or {}).items():
                other = None if baseline is None else baseline[measure]
                key = f"learn.{source}.{size}.{name}.{measure}"
                yield Row(key=key, ours=value, baseline=other)
    for group, figures in gains.items():
        for key, figure in figures.items():
            anchor = _expectation(group, key)
            for measure, value in (plain_figures(figure) or {}).items():
                name = f"learn.{group}.{size}.{key}.{measure}"
                yield Row(key=name, ours=value, anchor=anchor)
