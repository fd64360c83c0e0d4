"""Ladder: is the large model paid once? A small and a large model on public streams.

Every arm has the same tasks, prompts and checks, and at most `CALLS` calls a task. A
token of the large model costs `PRICES[1]` times one of the small model.

    small           0.5B alone
    small_ours      0.5B with a memory
    large           1.5B alone
    large_ours      1.5B with a memory
    ladder          0.5B, then 1.5B
    ladder_nearest  as ladder, with the three nearest accepted answers of both models
    ladder_ours     as ladder, with a memory that both share

On a ladder the small model makes at most two attempts, so one call is left. A figure of
a half or a quarter counts tasks in the order of the stream. What an attempt costs is
the price of its tokens.

`EXPECTED` was written before the first run of its arms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import mean

import numpy as np

import heedful
from bench.quality.answers import (
    KeptModel,
    KeptModels,
    Live,
    open_kept_models,
    say,
)
from bench.quality.arms import AcceptedAnswers
from bench.quality.curve import Answers, Outcome, Task, new_memory, stream
from bench.quality.paired import (
    Gain,
    Pair,
    gain,
    pair,
    plain_figures,
    resample,
    right_at_once,
    solved,
)
from bench.quality.rows import Row, say_expectation, write_json
from bench.quality.streams import READERS, Stream
from heedful import Finding
from heedful.loop.ladder import Ladder, RungAttempt
from heedful.loop.record import Loop
from heedful.models.contract import Answer, Message

OUT = Path("bench/out/ladder.json")
SIZES = ("0.5b", "1.5b")
# The first tasks of each stream, as many as two hours on two busy cores allow.
TASKS: Mapping[str, int] = {"banking77": 60, "clinc150": 60, "geo": 60, "spider": 60}
MIN_GAIN = 0.10  # where the large model solves less than this more, no ladder is tried
CALLS = 3
SMALL_CALLS = 2  # of the small model on a ladder
PRICES = (1.0, 5.0)
QUARTERS = 4
EXPECTED: Mapping[str, tuple[float, str]] = {
    "geo.large_over_small.solved": (0.20, "the 0.5B model knows no such schema"),
    "spider.large_over_small.solved": (0.15, "1.5B is trained on more SQL"),
    "banking77.large_over_small.solved": (0.15, "it reads a list of 38 queues better"),
    "clinc150.large_over_small.solved": (0.15, "as banking77"),
    "open.ladder_ours_over_large_ours.solved": (
        -0.02,
        "one call of the large model less after two of the small one",
    ),
    "open.ladder_ours_over_large_ours.cost_ratio": (
        0.60,
        "half of the tasks end on the small model, the others cost what they did",
    ),
    "open.ladder_ours_over_ladder.alone": (
        0.15,
        "examples of the large model are shown to the small one",
    ),
    "open.ladder_ours_over_ladder_nearest.alone": (
        0.10,
        "fixes reach the small model, too, on GeoQuery; on banking77 none",
    ),
}
Outcomes = dict[tuple[int, str], Outcome]
Results = dict[str, dict[str, Outcomes]]  # by stream and arm


@dataclass(frozen=True, kw_only=True)
class LadderArm:
    """Which models an arm has, by their place in `SIZES`, and whether it remembers.

    `nearest` is the number of accepted answers that are shown before an attempt.
    """

    models: tuple[int, ...]
    remembers: bool = False
    nearest: int = 0

    @property
    def policy(self) -> heedful.Policy:
        """The rules of the loops: three calls of a task, whoever makes them."""
        if len(self.models) == 1:
            return heedful.Policy((heedful.MaxAttempts(CALLS),), name="three attempts")
        limits = (SMALL_CALLS, CALLS)
        rules = (heedful.MaxAttempts(rungs=limits), heedful.Budget(calls=CALLS))
        return heedful.Policy(rules, name="three calls")


ARMS: Mapping[str, LadderArm] = {
    "small": LadderArm(models=(0,)),
    "large": LadderArm(models=(1,)),
    "ladder": LadderArm(models=(0, 1)),
    "ladder_ours": LadderArm(models=(0, 1), remembers=True),
    "large_ours": LadderArm(models=(1,), remembers=True),
    "small_ours": LadderArm(models=(0,), remembers=True),
    "ladder_nearest": LadderArm(models=(0, 1), nearest=3),
}
ALONE = ("small", "large")
COMPARED = (
    ("large", "small"),
    ("large_ours", "small_ours"),
    ("ladder_ours", "ladder"),
    ("ladder_ours", "large_ours"),
    ("ladder", "large"),
    ("ladder_ours", "ladder_nearest"),
)


@dataclass(frozen=True, kw_only=True)
class Answerer:
    """One arm on one stream.

    The store of its memory keeps what loops cost, also where nothing is recalled.
    """

    name: str
    source: Stream
    models: Sequence[KeptModel]
    memory: heedful.Memory = field(default_factory=new_memory)

    @cached_property
    def accepted(self) -> AcceptedAnswers:
        """The answers that the check has accepted so far."""
        return AcceptedAnswers(ARMS[self.name].nearest)

    async def answer(self, task: Task, answers: Answers) -> None:
        """Answer a task."""

        def judged(candidate: str, context: heedful.Context) -> list[Finding]:
            return task.judge(candidate)

        judged.pure = True  # type: ignore[attr-defined]
        arm = ARMS[self.name]
        examples = await self.accepted.turns(task.text) if arm.nearest else []
        result = await heedful.run(
            task.text,
            generate=[
                self._rung(place, task, answers, examples) for place in arm.models
            ],
            checks=[judged],
            policy=arm.policy,
            memory=self.memory if arm.remembers else None,
            memory_key=self.source.name,
            store=self.memory.store,
            id=f"{self.name} {task.id}",
        )
        answers.climb = _attempts_of(result.loop)
        if arm.nearest:
            await self.accepted.keep(task, answers.texts[-1])

    def _rung(
        self, place: int, task: Task, answers: Answers, examples: Sequence[Message]
    ) -> heedful.Rung:
        """Return a model that answers one task and adds to its answers.

        Its prompts are those of the arms of `learn`, so that answers are shared.
        """
        model = self.models[place]

        async def generate(text: str, hint: str) -> Answer:
            context = heedful.context()
            if context.attempt == 1:
                parts = context.examples or context.advice or examples
                answers.had_memory = bool(parts)
            turns = heedful.Writer(model).messages(context)
            answer = await model.complete(
                [Message("system", task.system), *examples, *turns],
                max_tokens=self.source.tokens,
                temperature=context.temperature,
                seed=context.seed,
            )
            text = task.extract(answer.text)
            answer = replace(answer, text=text, finish="stop")
            answers.add(answer)
            return answer

        return heedful.Rung(generate, SIZES[place], price=PRICES[place])


def _attempts_of(loop: Loop) -> tuple[RungAttempt, ...]:
    """Return the attempts of a loop; without a ladder all of them have rung 1."""
    if loop.ladder is None:
        loop = replace(loop, ladder=Ladder(names=SIZES))
    climb = loop.climb()
    return climb.attempts if climb else ()


def run(data: Path, split: str, live: Live) -> Iterator[Row]:
    """Yield the rows of all arms; write `bench/out/ladder.json`."""
    sources = [READERS[name](data, split) for name in live.streams or TASKS]
    names = live.arms or tuple(ARMS)
    results = asyncio.run(_measure(sources, names, data, live))
    figures = figures_of(results)
    gains = gains_of(results)
    report = {
        "models": SIZES,
        "prices": PRICES,
        "figures": figures,
        "gains": gains,
    }
    write_json(OUT, report)
    for source, arms in figures.items():
        for name, values in arms.items():
            for measure, value in values.items():
                yield Row(key=f"ladder.{source}.{name}.{measure}", ours=value)
    for key, compared in gains.items():
        for measure, number in compared.items():
            anchor = say_expectation(EXPECTED.get(key))
            yield Row(key=f"ladder.{key}.{measure}", ours=number, anchor=anchor)


async def _measure(
    sources: Sequence[Stream], names: Sequence[str], data: Path, live: Live
) -> Results:
    """Run the arms on all streams; `live.workers` of them at the same time."""
    results: Results = {source.name: {} for source in sources}
    async with AsyncExitStack() as stack:
        models = []
        for size in SIZES:
            opened = open_kept_models(size, data, live)
            models.append(await stack.enter_async_context(opened))
        async with asyncio.TaskGroup() as group:
            for source in sources:
                limit = live.limit or TASKS.get(source.name)
                job = _StreamJob(
                    source=source,
                    tasks=source.tasks[:limit],
                    models=models,
                    results=results[source.name],
                )
                group.create_task(job.run(names))
    return results


@dataclass(frozen=True, kw_only=True)
class _StreamJob:
    """All arms on one stream; `models` has those of each size."""

    source: Stream
    tasks: Sequence[Task]
    models: Sequence[KeptModels]
    results: dict[str, Outcomes]

    async def run(self, names: Sequence[str]) -> None:
        """Run the models alone, and the other arms only where the large one is better.

        If one of the two is not asked for, all arms run.
        """
        await self._run_arms([name for name in names if name in ALONE])
        if {*ALONE} <= {*self.results}:
            small, large = (self.results[name] for name in ALONE)
            compared = gain([pair(large, small)], solved, late_only=False)
            if compared and compared.gain < MIN_GAIN:
                say(f"ladder {self.source.name}: a ladder cannot help here")
                return
        await self._run_arms([name for name in names if name not in ALONE])

    async def _run_arms(self, names: Sequence[str]) -> None:
        async with asyncio.TaskGroup() as group:
            for name in names:
                self.results[name] = {}  # in this order
                group.create_task(self._run_arm(name))

    async def _run_arm(self, name: str) -> None:
        async with AsyncExitStack() as stack:
            # In the same order everywhere, so that no two arms wait for each other.
            pair_of_models = [
                await stack.enter_async_context(models_of_size.lease())
                for models_of_size in self.models
            ]
            answerer = Answerer(name=name, source=self.source, models=pair_of_models)
            title = f"ladder {self.source.name} {name}"
            for outcome in await stream(
                title, self.tasks, answerer.answer, pair_of_models[-1]
            ):
                self.results[name][0, outcome.task.id] = outcome


def alone(outcome: Outcome) -> bool:
    """Return whether the first model solved the task without a climb."""
    return outcome.solved and all(attempt.rung == 1 for attempt in outcome.climb)


def cost_of(outcome: Outcome) -> float:
    """Return the price of all tokens of a task."""
    return sum(attempt.cost for attempt in outcome.climb)


def figures_of(results: Results) -> dict[str, dict[str, dict[str, float]]]:
    """Return the figures of each arm, by stream and arm."""
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for source, arms in results.items():
        figures[source] = {
            name: _figures(list(outcomes.values())) for name, outcomes in arms.items()
        }
    return figures


def _figures(outcomes: Sequence[Outcome]) -> dict[str, float]:
    late = [outcome for outcome in outcomes if outcome.late]
    figures = {
        "tasks": float(len(outcomes)),
        "first": mean(map(right_at_once, outcomes)),
        "first_late": mean(map(right_at_once, late)),
        "solved": mean(map(solved, outcomes)),
        "solved_late": mean(map(solved, late)),
        "alone": mean(map(alone, outcomes)),
        "cost": mean(map(cost_of, outcomes)),
        "cost_late": mean(map(cost_of, late)),
        "calls": mean(outcome.calls for outcome in outcomes),
        "seconds": mean(outcome.seconds for outcome in outcomes),
    }
    for number, quarter in enumerate(quarters(outcomes), start=1):
        figures[f"alone_quarter_{number}"] = mean(map(alone, quarter))
        figures[f"cost_quarter_{number}"] = mean(map(cost_of, quarter))
    return figures


def quarters(outcomes: Sequence[Outcome]) -> list[Sequence[Outcome]]:
    """Return the outcomes in four parts of a stream."""
    count = len(outcomes)
    ends = [count * number // QUARTERS for number in range(QUARTERS + 1)]
    return [outcomes[start:end] for start, end in pairwise(ends)]


def gains_of(results: Results) -> dict[str, dict[str, float]]:
    """Return what an arm gains over another, by stream or `open`, and by measure."""
    gains: dict[str, dict[str, float]] = {}
    groups = {source: [source] for source in results}
    if len(results) > 1:
        groups["open"] = list(results)
    for group, members in groups.items():
        for name, other in COMPARED:
            pairs = [
                pair(results[member][name], results[member][other])
                for member in members
                if name in results[member] and other in results[member]
            ]
            if not pairs:
                continue
            key = f"{group}.{name}_over_{other}"
            for measure, figure in _compare(pairs).items():
                gains[f"{key}.{measure}"] = plain_figures(figure) or {}
            gains[f"{key}.cost_ratio"] = _ratio(pairs)
    return gains


def _compare(pairs: Sequence[Sequence[Pair]]) -> dict[str, Gain | None]:
    last = [both[-(len(both) // QUARTERS) :] for both in pairs]
    return {
        "first": gain(pairs, right_at_once, late_only=False),
        "second_half": gain(pairs, right_at_once, late_only=True),
        "solved": gain(pairs, solved, late_only=False),
        "solved_late": gain(pairs, solved, late_only=True),
        "alone": gain(pairs, alone, late_only=False),
        "alone_late": gain(pairs, alone, late_only=True),
        "alone_last_quarter": gain(last, alone, late_only=False),
    }


def _ratio(pairs: Sequence[Sequence[Pair]]) -> dict[str, float]:
    """Return the cost of one arm over the other's in second halves, streams alike."""
    costs = [
        np.array(
            [(cost_of(first), cost_of(other)) for first, other in both if first.late]
        )
        for both in pairs
    ]
    ratio, low, high = resample(costs)
    return {"ratio": round(ratio, 4), "low": round(low, 4), "high": round(high, 4)}
