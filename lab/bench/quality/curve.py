"""Learning curves: a decorated function answers a stream of tasks, with memory or
without.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, cast

import heedful
from bench.quality.answers import KeptModel, Progress
from heedful import Finding
from heedful.loop.ladder import RungAttempt
from heedful.loop.record import Usage
from heedful.models.contract import Message

POLICY = heedful.Policy((heedful.MaxAttempts(3),), name="three attempts")
Function = Callable[..., Awaitable[str]]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A text, the system prompt of its function, and a check that knows the answer.

    `extract` returns the answer in what a model writes. Tasks of one `group` are
    answered by one function.
    """

    id: str
    text: str
    system: str
    judge: Callable[[str], list[Finding]]
    extract: Callable[[str], str] = str
    group: str = ""


@dataclass
class Answers:
    """The answers to a task, and what each of them cost.

    `had_memory` is True if the first prompt held something of earlier tasks. `climb`
    has the attempts where an arm has several models or a price.
    """

    texts: list[str] = field(default_factory=list)
    costs: list[Usage] = field(default_factory=list)
    had_memory: bool = False
    climb: tuple[RungAttempt, ...] = ()

    def add(self, answer: heedful.Answer) -> None:
        """Add an answer and its cost."""
        self.texts.append(answer.text)
        self.costs.append(answer.usage)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a task went: right at the first try, solved in the end, calls of the model.

    `late` is True in the second half of the stream. `first_prompt_tokens` are those of
    the first call, the other tokens those of all calls. `seconds` is the time of all
    calls when the model was asked, also if the answers are kept ones. `climb` is that
    of the answers.
    """

    task: Task
    first: bool
    solved: bool
    calls: int
    late: bool
    had_memory: bool
    first_prompt_tokens: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    climb: tuple[RungAttempt, ...] = ()

    @classmethod
    def of(cls, task: Task, answers: Answers, late: bool) -> Outcome:
        """Judge the answers to a task."""
        right = [not task.judge(text) for text in answers.texts]
        costs = answers.costs
        return cls(
            task=task,
            first=right[0],
            solved=any(right),
            calls=len(right),
            late=late,
            had_memory=answers.had_memory,
            first_prompt_tokens=costs[0].prompt_tokens,
            prompt_tokens=sum(cost.prompt_tokens for cost in costs),
            completion_tokens=sum(cost.completion_tokens for cost in costs),
            seconds=sum(cost.seconds for cost in costs),
            climb=answers.climb,
        )


def new_memory() -> heedful.Memory:
    """Return an empty memory that compares by meaning and withholds nothing."""
    embedder = heedful.models.open_embedder("minilm")
    return heedful.Memory(":memory:", embedder=embedder, holdout=0)


def decorate(
    name: str,
    tasks: Sequence[Task],
    model: KeptModel,
    memory: heedful.Memory | None = None,
    *,
    chat: bool = False,
    tokens: int = 40,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Function:
    """Return a decorated function called `answer_NAME` for these tasks.

    It puts hint and task into one prompt; with `chat`, worked examples are chat turns,
    as a Writer has them. The messages `examples` come before the task. `options` are
    further ones of `self_correcting`, or others than these.
    """
    tasks_by_text = {task.text: task for task in tasks}

    def judged(candidate: str, context: heedful.Context) -> list[Finding]:
        return tasks_by_text[context.task].judge(candidate)

    async def answer(
        task: str, hint: str, answers: Answers, examples: Sequence[Message] = ()
    ) -> heedful.Answer:
        system = Message("system", tasks_by_text[task].system)
        context = heedful.context()
        turns = [Message("user", "\n\n".join(part for part in (hint, task) if part))]
        if chat:
            turns = heedful.Writer(model).messages(context)
        completion = await model.complete(
            [system, *examples, *turns],
            max_tokens=tokens,
            temperature=context.temperature,
            seed=context.seed,
        )
        # The check of the data alone says what is right, also of a text that was cut.
        text = tasks_by_text[task].extract(completion.text)
        completion = replace(completion, text=text, finish="stop")
        answers.add(completion)
        prompt_parts = context.examples or context.advice
        saw_memory = hint or prompt_parts or examples
        if context.attempt == 1 and saw_memory:
            answers.had_memory = True
        return completion

    judged.pure = True  # type: ignore[attr-defined]
    # Functions that somebody wrote one by one have different names.
    answer.__name__ = answer.__qualname__ = f"answer_{name}"
    defaults = {"policy": POLICY, "memory": memory, "store": None}
    arguments = {"checks": [judged], "on_exhausted": "best", **defaults, **options}
    correct = heedful.self_correcting(**arguments)
    # What is decorated may return an Answer for a text.
    return correct(cast("Function", answer))


async def stream(
    title: str,
    tasks: Sequence[Task],
    function: Callable[[Task, Answers], Awaitable[Any]],
    model: KeptModel,
) -> list[Outcome]:
    """Call `function` with each task in turn and a record that receives the answers."""
    progress = Progress(title, len(tasks), model)
    outcomes = list[Outcome]()
    for place, task in enumerate(tasks):
        answers = Answers()
        await function(task, answers)
        outcome = Outcome.of(task, answers, late=place >= len(tasks) // 2)
        outcomes.append(outcome)
        progress.task(outcome.first)
    return outcomes
