"""Unlike tasks, one rule: is a rule that a check taught told before the next task of its function?

`unlike.json` has for each check an instruction, the rule in words, and 20 tasks with the expected
answer or ""; no two tasks of a check share a word. Each check stands on its own decorated function;
all functions share one memory and take turns. A check counts for a model if, with its rule in the
prompt, at least 80 % of the answers are right at once. The function `answer_anything` has all
checks; each of them judges its own tasks.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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

# The checks are written as people write them: messages that quote the answer and constant ones,
# with a fix, with an example as the fix, with a fix for the very answer, without a fix.


def severity(answer: str, expected: str) -> Findings:
    """The rating is one of four."""
    if answer in ("P0", "P1", "P2", "P3"):
        return []
    return [Finding("severity", f"severity must be one of P0, P1, P2, P3, not {answer[:40]!r}")]


def date(answer: str, expected: str) -> Findings:
    """Dates are ISO dates."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", answer):
        wrong = Finding("date", "this is not the date in the note", key="date: value")
        return [] if answer == expected else [wrong]
    return [Finding("date", "the date is not in ISO format", "write it as YYYY-MM-DD, 2024-05-31")]


def name(answer: str, expected: str) -> Findings:
    """Names are written in lower case."""
    if answer != expected and answer.lower() == expected:
        return [Finding("name", "names are written in lower case", f"write {expected!r}")]
    wrong = Finding("name", "the answer is not only the name of the city", key="name: value")
    return [] if answer == expected else [wrong]


def unit(answer: str, expected: str) -> Findings:
    """A weight has its unit."""
    fix = "write the number, a space and kg, as in 7 kg"
    wrong = Finding("unit", f"{answer[:40]!r} is not a weight with its unit", fix)
    return [] if answer == expected else [wrong]


def keys(answer: str, expected: str) -> Findings:
    """The object has the keys of the house; a code block around it does no harm."""
    found: Any = None
    with suppress(ValueError):
        found = json.loads(re.sub(r"\A```(?:json)?|```\Z", "", answer))
    if not isinstance(found, dict):
        fix = "answer with one JSON object and nothing else"
        return [Finding("keys", "the answer is not a JSON object", fix)]
    got = ", ".join(sorted(found))
    wrong = Finding("keys", f"the keys are {got}", "the keys must be item and amount")
    return [] if found.keys() == {"item", "amount"} else [wrong]


def team(answer: str, expected: str) -> Findings:
    """A team is written as a mention."""
    wrong = Finding("team", "the team must be @billing, @shipping or @support")
    return [] if answer in ("@billing", "@shipping", "@support") else [wrong]


def currency(answer: str, expected: str) -> Findings:
    """A price has its currency."""
    fix = "write the number, a space and EUR, as in 20 EUR"
    wrong = Finding("currency", "the price is not in the house's format", fix)
    return [] if answer == expected else [wrong]


def topic(answer: str, expected: str) -> Findings:
    """A topic is short."""
    count = len(answer.split())
    wrong = Finding("topic", f"the topic has {count} words, the limit is 2 words")
    return [] if 1 <= count <= 2 else [wrong]


def flag(answer: str, expected: str) -> Findings:
    """Yes and no are one letter."""
    wrong = Finding("flag", "the answer is not a flag", "answer with Y or N, one letter")
    return [] if answer in ("Y", "N") else [wrong]


CHECKS = (severity, date, name, unit, keys, team, currency, topic, flag)


@dataclass(frozen=True)
class Family:
    """A check with the instruction of its function, its rule in words, and its tasks."""

    check: Callable[[str, str], Findings]
    instruction: str
    rule: str
    tasks: Mapping[str, str]

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


def families(most: int = MOST) -> list[Family]:
    """Return the families with their tasks. Raises ValueError if tasks of a check share a word."""
    made, read = [], json.loads(TASKS.read_text("utf-8"))
    for check in CHECKS:
        family = Family(check, **read[check.__name__])
        words = [
            word for task in family.tasks for word in {*re.findall(r"[^\W\d_]+", task.lower())}
        ]
        if len(words) > len(set(words)):
            raise ValueError(f"tasks of {family.name} share a word")
        tasks = dict(list(family.tasks.items())[:most])
        made.append(Family(check, family.instruction, family.rule, tasks))
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
        shares = ", ".join(f"{name} {share:.0%}" for name, share in told.items())
        say(f"unlike {size}, the rule in the prompt: {shares}; qualified: {', '.join(names)}")
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
        rows += [Row(f"{key}.rule", told[one.name])]
        rows += _figures(key, ours[one.name], plain[one.name])
    rows.append(Row(f"unlike.{size}.qualified", len(names), None, "1.5b: at least 5"))
    for title, made in (("ours", ours), ("all", both)):
        pooled = [list(chain.from_iterable(arm[name] for name in names)) for arm in (made, plain)]
        rows += _figures(f"unlike.{size}.{title}", *pooled)
    return [*rows, Row(f"unlike.{size}.crossed", None, None, NO_FACE)]


@dataclass(frozen=True)
class Tried:
    """A task: whether its first answer was right, its calls, whether it is in the second half."""

    right: bool
    calls: int
    late: bool


def _figures(key: str, ours: Sequence[Tried], plain: Sequence[Tried]) -> Iterator[Row]:
    """Compare with the same function without memory: its first answer, and its calls."""
    arms = ours, plain
    for half, late in (("first_half", False), ("second_half", True)):
        rights = ([float(one.right) for one in arm if one.late == late] for arm in arms)
        yield Row(f"{key}.{half}", *(mean(right or [0.0]) for right in rights))
    yield Row(f"{key}.calls", *(mean([float(one.calls) for one in arm] or [0.0]) for arm in arms))
    lost = sum(plain.right and not one.right for one, plain in zip(ours, plain, strict=True))
    right = sum(one.right for one in plain)
    yield Row(f"{key}.lost", lost / max(1, right), None, f"{lost} of {right} right answers")


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

    # Eight functions that somebody wrote have eight names.
    answer.__name__ = answer.__qualname__ = f"answer_{name}"
    options: dict[str, Any] = {"checks": [one.judge for one in checked], "policy": POLICY}
    options |= {"memory": memory, "store": None, "on_exhausted": "best"}
    return heedful.self_correcting(**options)(answer)


async def _stream(
    title: str,
    chosen: Sequence[Family],
    functions: Sequence[Callable[..., Any]],
    model: KeptModel,
) -> dict[str, list[Tried]]:
    """Call the functions in turn, each with its next task."""
    most = len(chosen[0].tasks)
    progress = Progress(title, most * len(chosen), model)
    tried: dict[str, list[Tried]] = {one.name: [] for one in chosen}
    for place in range(most):
        for one, function in zip(chosen, functions, strict=True):
            task, made = list(one.tasks)[place], list[str]()
            await function(task, one.instruction, made)
            right = one.right(task, made[0])
            tried[one.name].append(Tried(right, len(made), place >= most // 2))
            progress.task(right)
    return tried
