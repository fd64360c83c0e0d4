"""The arms of `learn`: who answers the same tasks under the same prompt and check.

`bench.quality.learn` says what each of them does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import heedful
from bench.quality.answers import KeptModel
from bench.quality.curve import (
    Answers,
    Function,
    Outcome,
    Task,
    decorate,
    new_memory,
    stream,
)
from bench.quality.streams import Stream
from heedful.models.contract import Message


@dataclass(frozen=True, kw_only=True)
class Arm:
    """How an arm answers.

    `nearest` is the number of accepted answers that are shown before the first attempt,
    found by their meaning; on `trial`, they come as texts through a heedful.Trial.
    `memory` makes the memory that the decorated functions share. `options` are further
    ones of `self_correcting`.
    """

    nearest: int = 0
    trial: bool = False
    memory: Callable[[], heedful.Memory] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def remembers(self) -> bool:
        """Whether answers depend on earlier tasks."""
        return self.memory is not None or self.nearest > 0


ONCE = heedful.Policy((heedful.MaxAttempts(1),), name="one attempt")
ARMS: Mapping[str, Arm] = {
    "nothing": Arm(options={"policy": ONCE}),
    "retries": Arm(),
    "nearest": Arm(nearest=3),
    "trial": Arm(nearest=3, trial=True),
    "ours": Arm(memory=new_memory),
}


async def run_arm(
    title: str, arm: Arm, source: Stream, *, tasks: Sequence[Task], model: KeptModel
) -> list[Outcome]:
    """Answer the tasks of a stream in turn, each with what was learnt before it."""
    memory = arm.memory() if arm.memory else None
    trial = None
    if arm.trial:
        trial = heedful.Trial("accepted answers", ":memory:", holdout=0)
    functions: dict[str, Callable[[Task, Answers], Awaitable[None]]] = {}
    for group in sorted({task.group for task in tasks}):
        accepted = AcceptedAnswers(arm.nearest) if arm.nearest else None
        function = decorate(
            group or source.name,
            [task for task in tasks if task.group == group],
            model,
            memory,
            chat=True,
            tokens=source.tokens,
            options=arm.options,
        )
        functions[group] = partial(_call, function, accepted, trial)

    async def answer(task: Task, answers: Answers) -> None:
        await functions[task.group](task, answers)

    return await stream(title, tasks, answer, model)


class AcceptedAnswers:
    """A memory that heedful did not make: the accepted answers so far.

    It finds the `count` answers whose tasks are nearest to a task, the best one last.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._embedder = heedful.models.open_embedder("minilm")
        self._accepted: list[tuple[Sequence[float], str, str]] = []

    async def turns(self, text: str) -> list[Message]:
        """Return the nearest tasks and their answers as chat turns."""
        turns: list[Message] = []
        for task, answer in await self._nearest(text):
            turns += [Message("user", task), Message("assistant", answer)]
        return turns

    async def texts(self, text: str) -> list[str]:
        """Return the nearest tasks and their answers as texts."""
        pairs = await self._nearest(text)
        return [f"Task: {task}\nAccepted answer: {answer}" for task, answer in pairs]

    async def keep(self, task: Task, answer: str) -> None:
        """Keep an answer if the check of its task accepts it."""
        if not task.judge(answer):
            vector = await self._vector(task.text)
            self._accepted.append((vector, task.text, answer))

    async def _nearest(self, text: str) -> list[tuple[str, str]]:
        vector = await self._vector(text)
        ranked = sorted(
            self._accepted, key=lambda entry: float(np.dot(entry[0], vector))
        )
        return [(task, answer) for _, task, answer in ranked[-self._count :]]

    async def _vector(self, text: str) -> Sequence[float]:
        (vector,) = await self._embedder.embed([text])
        return vector


async def _call(
    function: Function,
    accepted: AcceptedAnswers | None,
    trial: heedful.Trial | None,
    task: Task,
    answers: Answers,
) -> None:
    if accepted is None:
        await function(task.text, answers)
        return
    if trial is None:
        turns = await accepted.turns(task.text)
    else:
        texts = await trial.offer(task.id, await accepted.texts(task.text))
        turns = [Message("user", text) for text in texts]
    await function(task.text, answers, turns)
    await accepted.keep(task, answers.texts[-1])
