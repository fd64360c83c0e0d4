"""Practice: do calls at night teach more than further retries at once?

A small model answers the first half of a stream, with a memory and at most
`DAY_ATTEMPTS` attempts for a task. Then come the tasks of the second half, which count:
is the first answer right?

    practice   between the halves, what is not solved is practised once
    retries    what is not solved gets further attempts at once, in all as many calls
               as the practice made
    neither    nothing more

`EXPECTED` and `HOURS` were written before the first run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import heedful
from bench.quality.answers import KeptModel, Live, Progress, open_kept_models
from bench.quality.curve import Answers, Outcome, Task, new_memory
from bench.quality.ladder import Generate
from bench.quality.paired import gain, pair, plain_figures, right_at_once
from bench.quality.rows import Row
from bench.quality.streams import READERS, Stream
from heedful import Finding

OUT = Path("bench/out/practice.json")
STREAMS = ("geo", "spider", "banking77", "clinc150")
TASKS = 150  # the first of each stream
DAY_ATTEMPTS = 2
RETRY_ATTEMPTS = 4  # while calls of the practice are left
# Core hours on quiet cores: 900 calls of a stream at 0.6 s, half of them shared.
HOURS = 0.4
EXPECTED: Mapping[str, tuple[float, str]] = {
    "open.practice_over_retries": (
        0.01,
        "a practice has the examples of the whole first half; a retry has the feedback",
    ),
    "open.practice_over_neither": (0.02, "a few more accepted answers to show"),
}
COMPARED = (
    ("practice", "retries"),
    ("practice", "neither"),
    ("retries", "neither"),
)
ARMS = ("practice", "retries", "neither")


@dataclass(kw_only=True)
class Night:
    """What was done for the tasks of the first half that were not solved."""

    unsolved: int = 0
    calls: int = 0
    solved: int = 0


@dataclass(kw_only=True)
class ArmResult:
    """The outcomes of an arm on a stream, and what came between the halves."""

    outcomes: list[Outcome] = field(default_factory=list)
    night: Night = field(default_factory=Night)

    def by_task(self) -> dict[tuple[int, str], Outcome]:
        """Return the outcomes by order and task; there is one order."""
        return {(0, outcome.task.id): outcome for outcome in self.outcomes}


class Pupil:
    """A function with a memory that answers a stream; it can be practised."""

    def __init__(self, source: Stream, tasks: Sequence[Task], model: KeptModel) -> None:
        self.memory = new_memory()
        self._key = source.name
        self._tokens = source.tokens
        self._model = model
        self._tasks = {task.text: task for task in tasks}
        self._answers: dict[str, Answers] = {}
        self.function = self._decorate(DAY_ATTEMPTS)
        self._patient = self._decorate(RETRY_ATTEMPTS)

    async def answer(self, task: Task, *, retries: bool = False) -> Answers:
        """Answer a task, with further retries or without."""
        self._answers[task.text] = Answers()
        function = self._patient if retries else self.function
        await function(task.text)
        return self._answers[task.text]

    def _decorate(self, attempts: int) -> Any:
        """Return the function with at most so many attempts."""

        def judged(candidate: str, context: heedful.Context) -> list[Finding]:
            return self._tasks[context.task].judge(candidate)

        judged.pure = True  # type: ignore[attr-defined]

        async def answer(task: str, hint: str) -> heedful.Answer:
            generate = Generate(self._tasks[task], self._model, self._tokens)
            [reply] = await generate.generate(task, hint)
            answers = self._answers[task]
            answers.add(reply)
            answers.had_memory = answers.had_memory or generate.had_memory
            return reply

        correct = heedful.self_correcting(
            checks=[judged],
            policy=heedful.Policy((heedful.MaxAttempts(attempts),), name="attempts"),
            memory=self.memory,
            store=self.memory.store,
            memory_key=self._key,
            practice=True,
            on_exhausted="best",
        )
        return correct(answer)


def is_solved(task: Task, answers: Answers) -> bool:
    """Return whether any of the answers is right."""
    return any(not task.judge(text) for text in answers.texts)


async def run_arm(
    name: str, source: Stream, tasks: Sequence[Task], *, model: KeptModel, calls: int
) -> ArmResult:
    """Answer the tasks in turn; `retries` may make so many `calls` more."""
    pupil = Pupil(source, tasks, model)
    result = ArmResult()
    half = len(tasks) // 2
    progress = Progress(f"practice {source.name} {name}", len(tasks), model)
    for number, task in enumerate(tasks):
        is_late = number >= half
        if number == half and name == "practice":
            result.night = await _practise(pupil, tasks[:half])

        left = 0 if is_late or name != "retries" else calls - result.night.calls
        answers = await pupil.answer(task, retries=left > 0)
        if left > 0 and len(answers.texts) > DAY_ATTEMPTS:
            result.night.unsolved += 1
            result.night.calls += len(answers.texts) - DAY_ATTEMPTS
            result.night.solved += is_solved(task, answers)
        outcome = Outcome.of(task, answers, late=is_late)
        result.outcomes.append(outcome)
        progress.task(outcome.first)
    return result


async def _practise(pupil: Pupil, tasks: Sequence[Task]) -> Night:
    """Practise what is not solved of these tasks, each once."""
    practice = await pupil.memory.practice(
        pupil.function, calls=DAY_ATTEMPTS * len(tasks)
    )
    return Night(unsolved=practice.tried, calls=practice.calls, solved=practice.passed)


def run(data: Path, split: str, live: Live) -> Iterator[Row]:
    """Yield the rows of all arms; write a table and `bench/out/practice.json`."""
    sources = [READERS[name](data, split) for name in live.streams or STREAMS]
    results = asyncio.run(_measure(sources, data, live))
    report: dict[str, Any] = {"nights": {}, "gains": {}, "first_late": {}}
    for source, arms in results.items():
        for name, result in arms.items():
            late = [outcome.first for outcome in result.outcomes if outcome.late]
            key = f"{source}.{name}"
            report["first_late"][key] = sum(late) / len(late)
            report["nights"][key] = vars(result.night)
            yield Row(key=f"practice.{key}.second_half", ours=sum(late) / len(late))
            yield Row(key=f"practice.{key}.calls", ours=result.night.calls)
            yield Row(key=f"practice.{key}.solved", ours=result.night.solved)
    report["gains"] = gains_of(results)
    _print(report["gains"])
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(report, indent=1) + "\n")
    for key, figures in report["gains"].items():
        for measure, figure in figures.items():
            yield Row(key=f"practice.{key}.{measure}", ours=figure)


async def _measure(
    sources: Sequence[Stream], data: Path, live: Live
) -> dict[str, dict[str, ArmResult]]:
    """Run the arms on all streams; `live.workers` streams at the same time."""
    results: dict[str, dict[str, ArmResult]] = {source.name: {} for source in sources}
    async with AsyncExitStack() as stack:
        opened = open_kept_models(live.models[0], data, live)
        models = await stack.enter_async_context(opened)

        async def measure(source: Stream) -> None:
            async with models.lease() as model:
                tasks = source.tasks[: live.limit or TASKS]
                calls = 0
                for name in ARMS:
                    result = await run_arm(
                        name, source, tasks, model=model, calls=calls
                    )
                    results[source.name][name] = result
                    calls = calls or result.night.calls

        async with asyncio.TaskGroup() as group:
            for source in sources:
                group.create_task(measure(source))
    return results


def gains_of(
    results: Mapping[str, Mapping[str, ArmResult]],
) -> dict[str, dict[str, float]]:
    """Return what an arm gains over another at the first try in second halves."""
    groups = {source: [source] for source in results}
    if len(results) > 1:
        groups["open"] = list(results)
    gains = {}
    for group, members in groups.items():
        for name, other in COMPARED:
            pairs = [
                pair(results[member][name].by_task(), results[member][other].by_task())
                for member in members
            ]
            compared = gain(pairs, right_at_once, late_only=True)
            gains[f"{group}.{name}_over_{other}"] = plain_figures(compared) or {}
    return gains


def _print(gains: Mapping[str, Mapping[str, float]]) -> None:
    table = Table("gain", "points", "95 %", "won", "lost", "expected")
    for key, value in gains.items():
        interval = f"{value['low']:+.3f} to {value['high']:+.3f}"
        expected, reason = EXPECTED.get(key, (None, ""))
        wanted = "" if expected is None else f"{expected:+.2f} {reason}"
        won = f"{value['won']:.0f}"
        lost = f"{value['lost']:.0f}"
        table.add_row(key, f"{value['gain']:+.3f}", interval, won, lost, wanted)
    Console(width=160).print(table)
