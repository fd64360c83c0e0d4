"""Learning curves: a decorated function answers a stream of tasks, with memory or
without.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import heedful
from bench.quality.answers import KeptModel, Progress
from bench.quality.rows import Row
from heedful import Finding
from heedful.models.contract import Message

POLICY = heedful.Policy((heedful.MaxAttempts(3),), name="three attempts")
Function = Callable[..., Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A text, the system prompt of its function, and a check that knows the answer."""

    id: str
    text: str
    system: str
    judge: Callable[[str], list[Finding]]
    group: str = ""


@dataclass
class Made:
    """The answers to a task; `told` is True if the first prompt held something of
    earlier tasks.
    """

    texts: list[str] = field(default_factory=list)
    told: bool = False


@dataclass(frozen=True, kw_only=True)
class Tried:
    """How a task went: right at once, solved in the end, calls of the model.

    `late` is True in the second half of the stream.
    """

    task: Task
    first: bool
    solved: bool
    calls: int
    late: bool
    told: bool


def new_memory() -> heedful.Memory:
    """Return an empty memory that compares by meaning and withholds nothing."""
    embedder = heedful.models.open_embedder("minilm")
    return heedful.Memory(":memory:", embedder=embedder, holdout=0)


def decorated(
    name: str,
    tasks: Sequence[Task],
    model: KeptModel,
    memory: heedful.Memory | None = None,
    *,
    chat: bool = False,
    tokens: int = 40,
) -> Function:
    """Return a decorated function called `answer_NAME` for these tasks.

    It puts hint and task into one prompt; with `chat`, it shows worked examples as chat
    turns, as a Writer does. It adds each answer to `made`. The messages `shown` come
    before the task.
    """
    known = {task.text: task for task in tasks}

    def judged(candidate: str, at: heedful.Context) -> list[Finding]:
        return known[at.task].judge(candidate)

    async def answer(
        task: str, hint: str, made: Made, shown: Sequence[Message] = ()
    ) -> heedful.Answer:
        system = Message("system", known[task].system)
        at = heedful.context()
        turns = [Message("user", "\n\n".join(part for part in (hint, task) if part))]
        if chat:
            turns = heedful.Writer(model).messages(at)
        settings: Any = {"temperature": at.temperature, "seed": at.seed}
        got = await model.complete(
            [system, *shown, *turns], max_tokens=tokens, **settings
        )
        made.texts.append(got.text)
        made.told |= bool(
            at.attempt == 1 and (hint or at.examples or at.advice or shown)
        )
        return got

    judged.pure = True  # type: ignore[attr-defined]
    # Functions that somebody wrote one by one have different names.
    answer.__name__ = answer.__qualname__ = f"answer_{name}"
    options: dict[str, Any] = {"checks": [judged], "policy": POLICY, "memory": memory}
    options |= {"store": None, "on_exhausted": "best"}
    corrected: Any = heedful.self_correcting(**options)
    function: Function = corrected(answer)
    return function


async def stream(
    title: str,
    tasks: Sequence[Task],
    function: Callable[[Task, Made], Awaitable[Any]],
    model: KeptModel,
) -> list[Tried]:
    """Call `function` with each task in turn and a record that receives the answers."""
    progress = Progress(title, len(tasks), model)
    tried = list[Tried]()
    for place, task in enumerate(tasks):
        made = Made()
        await function(task, made)
        right = [not task.judge(text) for text in made.texts]
        late = place >= len(tasks) // 2
        tried.append(
            Tried(
                task=task,
                first=right[0],
                solved=any(right),
                calls=len(right),
                late=late,
                told=made.told,
            )
        )
        progress.task(right[0])
    return tried


def figures(key: str, made: Sequence[Tried], plain: Sequence[Tried]) -> Iterator[Row]:
    """Compare an arm with the same tasks without memory."""

    def both(name: str, read: Callable[[Tried], float], late: bool = False) -> Row:
        arms = [
            [read(one) for one in arm if one.late or not late] for arm in (made, plain)
        ]
        return Row(
            key=f"{key}.{name}",
            ours=mean(arms[0] or [0.0]),
            baseline=mean(arms[1] or [0.0]),
        )

    yield both("first", lambda one: one.first)
    yield both("second_half", lambda one: one.first, late=True)
    yield both("solved", lambda one: one.solved)
    yield both("calls", lambda one: one.calls)
    yield both("told", lambda one: one.told)
    right = sum(one.first for one in plain)
    lost = sum(
        two.first and not one.first for one, two in zip(made, plain, strict=True)
    )
    about = f"{lost} of {right} answers that are right at once without memory"
    yield Row(key=f"{key}.lost", ours=lost / max(1, right), baseline=None, anchor=about)
