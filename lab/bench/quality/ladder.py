"""Ladder: is the large model paid once? A small and a large model on public streams.

Every arm has the same tasks, prompts and checks, and at most `CALLS` calls a task. A
token of the large model costs `PRICES[1]` times one of the small model.

    small        0.5B alone
    small_ours   0.5B with a memory
    large        1.5B alone
    large_ours   1.5B with a memory
    ladder       0.5B, then 1.5B
    ladder_ours  0.5B, then 1.5B, with a memory that both share
    once         as ladder; 0.5B makes one attempt, so 1.5B has two
    once_ours    as ladder_ours; 0.5B makes one attempt, so 1.5B has two

Two more arms ask for more candidates, `EXTRA` in all, of 0.5B with a memory; each of
their attempts has one candidate, or one and two more at a temperature. They have their
own name for a task that is right at once: its first candidate was right.

    explore      the further candidates are for the first tasks of a stream
    even         they are spread over all tasks

On other ladders the small model makes at most two attempts, so one call is left. A
figure of a half or a quarter counts tasks in the order of the stream. What an attempt
costs is the price of its tokens. Every answer is kept: stop a run with Ctrl-C, and the
next one goes on.

`EXPECTED` was written before the first run of its arms; that of `once` after `ladder`
had run on banking77.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean

import numpy as np

import heedful
from bench.quality.answers import (
    KeptModel,
    KeptModels,
    Live,
    Progress,
    open_kept_models,
    say,
)
from bench.quality.curve import Outcome, Task, new_memory
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
from heedful.loop.record import Loop, Usage
from heedful.models.contract import Answer, Message

OUT = Path("bench/out/ladder.json")
SIZES = ("0.5b", "1.5b")
# The first tasks of each stream, as many as two hours on two busy cores allow.
TASKS: Mapping[str, int] = {"banking77": 60, "clinc150": 60, "geo": 60, "spider": 60}
EXPLORED = ("banking77", "clinc150")
MIN_GAIN = 0.10  # where the large model solves less than this more, no ladder is tried
CALLS = 3
SMALL_CALLS = 2  # of the small model on a ladder
PRICES = (1.0, 5.0)
QUARTERS = 4
EXTRA = 60  # candidates of `explore` and `even` for a stream
EXTRA_CANDIDATES = 2  # of an attempt
EXTRA_TEMPERATURE = 0.8
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
    "open.once_ours_over_large_ours.solved": (-0.02, "the large model has two calls"),
    "open.once_ours_over_large_ours.cost_ratio": (
        0.60,
        "more calls of the large model",
    ),
    "open.explore_over_even.second_half": (0.0, "a few more right answers in memory"),
}
Outcomes = dict[tuple[int, str], Outcome]
Results = dict[str, dict[str, Outcomes]]  # by stream and arm


@dataclass(frozen=True, kw_only=True)
class LadderArm:
    """Which models an arm has, by their place in `SIZES`, and whether it remembers.

    On a ladder, the first one makes at most `small_calls` attempts. `extra` returns how
    many further candidates may be asked up to a task: it takes the number of the task,
    from 1, and how many there are. With `streams`, the arm runs only there.
    """

    models: tuple[int, ...]
    remembers: bool = False
    small_calls: int = SMALL_CALLS
    extra: Callable[[int, int], float] | None = None
    streams: tuple[str, ...] = ()

    @property
    def policy(self) -> heedful.Policy:
        """The rules of the loops: three calls of a task, whoever makes them."""
        if len(self.models) == 1:
            return heedful.Policy((heedful.MaxAttempts(CALLS),), name="three attempts")
        limits = (self.small_calls, CALLS)
        rules = (heedful.MaxAttempts(rungs=limits), heedful.Budget(calls=CALLS))
        return heedful.Policy(rules, name="three calls")


def _at_the_beginning(number: int, count: int) -> float:
    """Return the whole allowance for every task: the first ones use it up."""
    return EXTRA


def _evenly(number: int, count: int) -> float:
    """Return the share of the allowance up to a task."""
    return EXTRA * number / count


ARMS: Mapping[str, LadderArm] = {
    "small": LadderArm(models=(0,)),
    "large": LadderArm(models=(1,)),
    "ladder": LadderArm(models=(0, 1)),
    "ladder_ours": LadderArm(models=(0, 1), remembers=True),
    "large_ours": LadderArm(models=(1,), remembers=True),
    "small_ours": LadderArm(models=(0,), remembers=True),
    "once": LadderArm(models=(0, 1), small_calls=1),
    "once_ours": LadderArm(models=(0, 1), remembers=True, small_calls=1),
    "explore": LadderArm(
        models=(0,), remembers=True, extra=_at_the_beginning, streams=EXPLORED
    ),
    "even": LadderArm(models=(0,), remembers=True, extra=_evenly, streams=EXPLORED),
}
ALONE = ("small", "large")
COMPARED = (
    ("large", "small"),
    ("large_ours", "small_ours"),
    ("ladder_ours", "ladder"),
    ("ladder_ours", "large_ours"),
    ("ladder", "large"),
    ("once_ours", "once"),
    ("once_ours", "large_ours"),
    ("once", "large"),
    ("explore", "even"),
)


class Answerer:
    """One arm on one stream: it answers the tasks in turn."""

    def __init__(
        self,
        name: str,
        source: Stream,
        *,
        tasks: Sequence[Task],
        models: Sequence[KeptModel],
    ) -> None:
        self._arm = ARMS[name]
        self._name = name
        self._source = source
        self._tasks = tasks
        self._models = models
        # The store of a memory keeps what loops cost, also where nothing is recalled.
        self._memory = new_memory()
        self._spent = 0

    async def answer_all(self) -> list[Outcome]:
        """Return the outcomes of all tasks."""
        title = f"ladder {self._source.name} {self._name}"
        progress = Progress(title, len(self._tasks), self._models[-1])
        outcomes = []
        for number, _ in enumerate(self._tasks, start=1):
            outcomes.append(await self._answer(number))
            progress.task(outcomes[-1].first)
        return outcomes

    async def _answer(self, number: int) -> Outcome:
        task = self._tasks[number - 1]
        generates = [
            Generate(task, self._models[place], self._source.tokens)
            for place in self._arm.models
        ]
        if self._arm.extra is not None:
            allowance = self._arm.extra(number, len(self._tasks))
            if self._spent + EXTRA_CANDIDATES <= allowance:
                generates[0].extra = EXTRA_CANDIDATES

        def judged(candidate: str, context: heedful.Context) -> list[Finding]:
            return task.judge(candidate)

        judged.pure = True  # type: ignore[attr-defined]
        memory = self._memory if self._arm.remembers else None
        result = await heedful.run(
            task.text,
            generate=[
                heedful.Rung(generate.generate, SIZES[place], price=PRICES[place])
                for place, generate in zip(self._arm.models, generates, strict=True)
            ],
            checks=[judged],
            policy=self._arm.policy,
            memory=memory,
            memory_key=self._source.name,
            store=self._memory.store,
            id=f"{self._name} {task.id}",
        )
        self._spent += sum(generate.spent for generate in generates)
        return self._outcome(number, result, generates)

    def _outcome(
        self, number: int, result: heedful.Result[str], generates: Sequence[Generate]
    ) -> Outcome:
        """Return how a task went; an attempt of the only model has rung 1."""
        usage = result.loop.usage
        first = next(generate for generate in generates if generate.texts)
        (start, *_) = first.usages
        task = self._tasks[number - 1]
        return Outcome(
            task=task,
            first=result.loop.attempts[0].rung == 1 and not task.judge(first.texts[0]),
            solved=result.passed,
            calls=usage.calls,
            late=number > len(self._tasks) // 2,
            had_memory=first.had_memory,
            first_prompt_tokens=start.prompt_tokens,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            seconds=sum(
                used.seconds for generate in generates for used in generate.usages
            ),
            climb=_attempts_of(result.loop),
        )


def _attempts_of(loop: Loop) -> tuple[RungAttempt, ...]:
    """Return the attempts of a loop; without a ladder all of them have rung 1."""
    if loop.ladder is None:
        loop = replace(loop, ladder=Ladder(names=SIZES))
    climb = loop.climb()
    return climb.attempts if climb else ()


class Generate:
    """A model answers one task; it asks for `extra` further candidates at once.

    Its prompts are those of the arms of `learn`, so that answers are shared.
    """

    def __init__(self, task: Task, model: KeptModel, tokens: int) -> None:
        self.extra = 0
        self.spent = 0
        self.texts: list[str] = []
        self.usages: list[Usage] = []
        self.had_memory = False
        self._task = task
        self._model = model
        self._tokens = tokens

    async def generate(self, task: str, hint: str) -> list[Answer]:
        """Return the candidates of an attempt."""
        context = heedful.context()
        if context.attempt == 1:
            self.had_memory = bool(context.examples or context.advice)
        answers = [await self._ask(context)]
        for place in range(1, self.extra + 1):
            warm = replace(
                context, temperature=EXTRA_TEMPERATURE, seed=context.seed + 100 * place
            )
            answers.append(await self._ask(warm))
            self.spent += 1
        return answers

    async def _ask(self, context: heedful.Context) -> Answer:
        answer = await self._model.complete(
            [
                Message("system", self._task.system),
                *heedful.Writer(self._model).messages(context),
            ],
            max_tokens=self._tokens,
            temperature=context.temperature,
            seed=context.seed,
        )
        answer = replace(answer, text=self._task.extract(answer.text))
        self.texts.append(answer.text)
        self.usages.append(answer.usage)
        return answer


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
        others = []
        for name in names:
            is_run_here = self.source.name in (ARMS[name].streams or [self.source.name])
            if name not in ALONE and is_run_here:
                others.append(name)
        await self._run_arms(others)

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
            answerer = Answerer(
                name, self.source, tasks=self.tasks, models=pair_of_models
            )
            for outcome in await answerer.answer_all():
                self.results[name][0, outcome.task.id] = outcome


def alone(outcome: Outcome) -> bool:
    """Return whether the first model solved the task without a climb."""
    return outcome.solved and all(attempt.rung == 1 for attempt in outcome.climb)


def cost_of(outcome: Outcome) -> float:
    """Return the price of all tokens of a task."""
    return sum(attempt.cost for attempt in outcome.climb)


def figures_of(results: Results) -> dict[str, dict[str, dict[str, float]]]:
    """Return the figures of each arm, by stream and arm; `open` has their means."""
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for source, arms in results.items():
        figures[source] = {
            name: _figures(list(outcomes.values())) for name, outcomes in arms.items()
        }
    if len(results) > 1:
        names = next(iter(results.values()))
        figures["open"] = {name: _mean_of(figures, name) for name in names}
    return figures


def _mean_of(
    figures: Mapping[str, Mapping[str, Mapping[str, float]]], name: str
) -> dict[str, float]:
    streams = [arms[name] for arms in figures.values() if name in arms]
    means = {}
    for measure in streams[0]:
        means[measure] = mean(stream[measure] for stream in streams)
    return means


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
