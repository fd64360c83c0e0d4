"""Unlike tasks, one rule: is a rule that a check taught told before the next task of its function?

`unlike.json` has 20 tasks for each check, [text, expected answer or ""]; no two tasks of a check
share a word. Each check stands on its own decorated function. All functions share one memory and
take turns. A check counts for a model if, with its rule in the prompt, at least 80 % of the answers
are right at once. The function `answer_anything` has all checks; each check judges its own tasks.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import Any

import heedful
from bench.quality.answers import KeptModel, Live, Progress, opened, say
from bench.quality.rows import Row
from heedful import Finding
from heedful.models.contract import Message

TASKS = Path(__file__).with_name("unlike.json")
QUALIFIED = 0.8
TOKENS = 40
MOST = 20  # tasks of a check
POLICY = heedful.Policy((heedful.MaxAttempts(3),), name="three attempts")
NO_FACE = "not available: no public face says under which key a rule was found"
Findings = list[Finding]


def severity(answer: str, expected: str) -> Findings:
    """A message that quotes the answer, without a fix."""
    if answer in ("P0", "P1", "P2", "P3"):
        return []
    return [Finding("severity", f"severity must be one of P0, P1, P2, P3, not {answer[:40]!r}")]


def date(answer: str, expected: str) -> Findings:
    """A constant message with a fix, and another one for a wrong value."""
    if answer == expected:
        return []
    if re.fullmatch(r"\d{4}-\d\d-\d\d", answer):
        return [Finding("date", "this is not the date in the note", key="date: value")]
    return [Finding("date", "the date is not in ISO format", "write it as YYYY-MM-DD, 2024-05-31")]


def name(answer: str, expected: str) -> Findings:
    """A fix that quotes the particular answer."""
    if answer == expected:
        return []
    if answer.lower() == expected:
        return [Finding("name", "names are written in lower case", f"write {expected!r}")]
    return [Finding("name", "the answer is not only the name of the city", key="name: value")]


def unit(answer: str, expected: str) -> Findings:
    """A message that quotes the answer, with a fix."""
    if answer == expected:
        return []
    fix = "write the number, a space and kg, as in 7 kg"
    return [Finding("unit", f"{answer[:40]!r} is not a weight with its unit", fix)]


def keys(answer: str, expected: str) -> Findings:
    """Two findings that differ: no JSON, and wrong keys."""
    found: Any = None
    with suppress(ValueError):
        found = json.loads(re.sub(r"\A```(?:json)?|```\Z", "", answer))
    if not isinstance(found, dict):
        fix = "answer with one JSON object and nothing else"
        return [Finding("keys", "the answer is not a JSON object", fix)]
    if found.keys() == {"item", "amount"}:
        return []
    got = ", ".join(sorted(found))
    return [Finding("keys", f"the keys are {got}", "the keys must be item and amount")]


def team(answer: str, expected: str) -> Findings:
    """A constant message without a fix."""
    if answer in ("@billing", "@shipping", "@support"):
        return []
    return [Finding("team", "a team is written with @, as in @sales")]


def currency(answer: str, expected: str) -> Findings:
    """A constant message with an example as the fix."""
    if answer == expected:
        return []
    fix = "write the number, a space and EUR, as in 20 EUR"
    return [Finding("currency", "the price is not in the house's format", fix)]


def topic(answer: str, expected: str) -> Findings:
    """A message with a measured number."""
    if 1 <= len(answer.split()) <= 2:
        return []
    return [Finding("topic", f"the topic has {len(answer.split())} words, the limit is 2 words")]


def flag(answer: str, expected: str) -> Findings:
    """A constant message with a fix."""
    if answer in ("Y", "N"):
        return []
    return [Finding("flag", "the answer is not a flag", "answer with Y or N, one letter")]


@dataclass(frozen=True)
class Family:
    """A check with the instruction of its function, its rule in words, and its tasks."""

    check: Callable[[str, str], Findings]
    instruction: str
    rule: str
    tasks: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the check."""
        return self.check.__name__

    def judge(self, answer: str, context: heedful.Context) -> Findings:
        """Judge an answer to one of the family's own tasks; find nothing in any other."""
        expected = self.tasks.get(context.task)
        return [] if expected is None else self.check(answer.strip(), expected)

    def right(self, task: str, answer: str) -> bool:
        """Return True if the check finds nothing."""
        return not self.judge(answer, heedful.Context(task))


FAMILIES = (
    (severity, "Rate how severe this bug is. Answer with the rating only.", "as P0, P1, P2 or P3"),
    (date, "On which day is this? Answer with the date only.", "as YYYY-MM-DD"),
    (
        name,
        "Which city is this about? Answer with its name only.",
        "in lower case letters, as in paris",
    ),
    (
        unit,
        "The note has a thing and its weight in kilograms. Answer with its weight only.",
        "with its unit, as in 7 kg",
    ),
    (
        keys,
        "Extract the product and its price as JSON. Answer with the JSON only, on one line.",
        'as a JSON object with the keys "item" and "amount"',
    ),
    (
        team,
        "Which team handles this: billing, shipping or support? Answer with the team only.",
        "with an @, as in @sales",
    ),
    (
        currency,
        "The note has a thing and its price in euros. Answer with its price only.",
        "with the currency, as in 20 EUR",
    ),
    (
        topic,
        "Name the topic of this article. Answer with the topic only.",
        "in at most two words",
    ),
    (flag, "Is this a complaint? Answer yes or no.", "as Y for yes or N for no, one letter"),
)


def families(most: int = MOST) -> list[Family]:
    """Return the families with their tasks. Raises ValueError if tasks of a check share a word."""
    read: dict[str, list[list[str]]] = json.loads(TASKS.read_text("utf-8"))
    made = []
    for check, instruction, rule in FAMILIES:
        tasks = dict(read[check.__name__])
        words = [word for task in tasks for word in set(re.findall(r"[^\W\d_]+", task.lower()))]
        shared = {word for word in words if words.count(word) > 1}
        if shared:
            raise ValueError(f"{check.__name__}: tasks share {shared}")
        tasks = dict(list(tasks.items())[:most])
        made.append(Family(check, instruction, f"Write the answer {rule}.", tasks))
    return made


def run(data: Path, split: str, live: Live) -> Iterator[Row]:
    """The rows of each model. `split` plays no part: the tasks are ours."""
    for size in live.models:
        yield from asyncio.run(_measured(size, data, live))


async def _measured(size: str, data: Path, live: Live) -> list[Row]:
    chosen = families(live.limit or MOST)
    async with opened(size, data, live) as model:
        told = {one.name: await _told(one, model) for one in chosen}
        names = [name for name, share in told.items() if share >= QUALIFIED]
        say(f"unlike {size}: rule in the prompt: {_shares(told)}; qualified: {', '.join(names)}")
        without = [decorated([one], one.name, model, None) for one in chosen]
        plain = await _stream(f"unlike {size} retries", chosen, without, model)
        memory = _memory()
        functions = [decorated([one], one.name, model, memory) for one in chosen]
        ours = await _stream(f"unlike {size} ours", chosen, functions, model)
        everything = decorated(chosen, "anything", model, _memory())
        both = await _stream(f"unlike {size} all", chosen, [everything] * len(chosen), model)
    rows = []
    for one in chosen:
        key = f"unlike.{size}.{one.name}"
        rows.append(Row(f"{key}.rule", told[one.name]))
        rows += _figures(key, ours[one.name], plain[one.name])
    rows.append(Row(f"unlike.{size}.qualified", len(names), None, "1.5b: at least 5"))
    for title_, made in (("ours", ours), ("all", both)):
        pooled = [list(chain.from_iterable(arm[name] for name in names)) for arm in (made, plain)]
        if names:
            rows += _figures(f"unlike.{size}.{title_}", *pooled)
    rows.append(Row(f"unlike.{size}.crossed", None, None, NO_FACE))
    return rows


@dataclass(frozen=True)
class Tried:
    """A task: whether its first answer was right, its calls, whether it is in the second half."""

    right: bool
    calls: int
    late: bool


def _figures(key: str, ours: Sequence[Tried], plain: Sequence[Tried]) -> Iterator[Row]:
    """Compare with the same function without memory, whose first answer is that of one attempt."""
    arms = ours, plain
    for name, late in (("first_half", False), ("second_half", True)):
        yield Row(f"{key}.{name}", *(_mean(t.right for t in arm if t.late == late) for arm in arms))
    yield Row(f"{key}.calls", *(_mean(t.calls for t in arm) for arm in arms))
    lost = sum(b.right and not a.right for a, b in zip(ours, plain, strict=True))
    yield Row(f"{key}.lost", lost / max(1, sum(t.right for t in plain)))


def _mean(values: Any) -> float:
    return mean(map(float, values or [0]))


def _shares(told: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in told.items())


def _memory() -> heedful.Memory:
    embedder = heedful.models.open_embedder("minilm")
    return heedful.Memory(":memory:", embedder=embedder, holdout=0)


async def _told(one: Family, model: KeptModel) -> float:
    """Return the share of tasks that are right at once with the rule in the prompt."""
    progress, right = Progress(f"rule {one.name}", len(one.tasks), model), 0
    for task in one.tasks:
        turns = [Message("system", f"{one.instruction} {one.rule}"), Message("user", task)]
        answer = await model.complete(turns, max_tokens=TOKENS)
        right += one.right(task, answer.text)
        progress.task(one.right(task, answer.text))
    return right / len(one.tasks)


def decorated(
    checked: Sequence[Family], name: str, model: KeptModel, memory: heedful.Memory | None
) -> Callable[..., Any]:
    """Return a decorated function called `answer_NAME`; it puts hint and task into one prompt."""

    async def answer(task: str, hint: str, instruction: str, made: list[str]) -> heedful.Answer:
        said = "\n\n".join(part for part in (hint, task) if part)
        turns, at = [Message("system", instruction), Message("user", said)], heedful.context()
        settings: Any = {"temperature": at.temperature, "seed": at.seed}
        got = await model.complete(turns, max_tokens=TOKENS, **settings)
        made.append(got.text)
        return got

    answer.__name__ = answer.__qualname__ = f"answer_{name}"
    checks = [_named(one) for one in checked]
    options: dict[str, Any] = {"checks": checks, "policy": POLICY, "memory": memory, "store": None}
    return heedful.self_correcting(on_exhausted="best", **options)(answer)


def _named(one: Family) -> Callable[..., Findings]:
    check = partial(one.judge)
    check.__name__ = one.name  # type: ignore[attr-defined]
    check.pure = True  # type: ignore[attr-defined]
    return check


async def _stream(
    title_: str,
    chosen: Sequence[Family],
    functions: Sequence[Callable[..., Any]],
    model: KeptModel,
) -> dict[str, list[Tried]]:
    """Call the functions in turn, each with its next task."""
    most = max(len(one.tasks) for one in chosen)
    progress = Progress(title_, sum(len(one.tasks) for one in chosen), model)
    tried: dict[str, list[Tried]] = {one.name: [] for one in chosen}
    for place in range(most):
        for one, function in zip(chosen, functions, strict=True):
            task, made = list(one.tasks)[place], list[str]()
            await function(task, one.instruction, made)
            right = one.right(task, made[0])
            tried[one.name].append(Tried(right, len(made), place >= most // 2))
            progress.task(right)
    return tried
