"""Unlike tasks, one rule: is a rule that a check taught told before the next task of
its function?

`unlike.json` has for each check an instruction, the rule in words, and 20 tasks with
the expected answer or ""; no two tasks of a check share a word. Each check stands on
its own decorated function; all functions share one memory and take turns. A check
counts for a model if, with its rule in the prompt, at least 80 % of the answers are
right at once: the rule in words that a person chose (`rule`), or what the check says of
the first wrong answer (`said`), which is all that memory can know. The function
`answer_anything` has all checks; each of them judges its own tasks.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from bench.quality.answers import KeptModel, Live, opened, say
from bench.quality.curve import (
    Function,
    Made,
    Task,
    Tried,
    decorated,
    figures,
    new_memory,
    stream,
)
from bench.quality.rows import Row
from heedful import Finding, Memory
from heedful.models.contract import Message

TASKS = Path(__file__).with_name("unlike.json")
QUALIFIED = 0.8
TOKENS = 40
MOST = 20  # tasks of a check
STRANGERS = 3  # keys without loops
Findings = list[Finding]

# The checks are written as people write them: messages that quote the answer and
# constant ones, with a fix, with an example as the fix, with a fix for the very answer,
# without a fix.


def severity(answer: str, expected: str) -> Findings:
    """The rating is one of four."""
    if answer in ("P0", "P1", "P2", "P3"):
        return []
    return [
        Finding(
            "severity", f"severity must be one of P0, P1, P2, P3, not {answer[:40]!r}"
        )
    ]


def date(answer: str, expected: str) -> Findings:
    """Dates are ISO dates."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d", answer):
        wrong = Finding("date", "this is not the date in the note", key="date: value")
        return [] if answer == expected else [wrong]
    return [
        Finding(
            "date",
            "the date is not in ISO format",
            fix="write it as YYYY-MM-DD, 2024-05-31",
        )
    ]


def name(answer: str, expected: str) -> Findings:
    """Names are written in lower case."""
    if answer != expected and answer.lower() == expected:
        return [
            Finding(
                "name", "names are written in lower case", fix=f"write {expected!r}"
            )
        ]
    wrong = Finding(
        "name", "the answer is not only the name of the city", key="name: value"
    )
    return [] if answer == expected else [wrong]


def unit(answer: str, expected: str) -> Findings:
    """A weight has its unit."""
    fix = "write the number, a space and kg, as in 7 kg"
    wrong = Finding("unit", f"{answer[:40]!r} is not a weight with its unit", fix=fix)
    return [] if answer == expected else [wrong]


def keys(answer: str, expected: str) -> Findings:
    """The object has the keys of the house; a code block around it does no harm."""
    found: Any = None
    with suppress(ValueError):
        found = json.loads(re.sub(r"\A```(?:json)?|```\Z", "", answer))
    if not isinstance(found, dict):
        fix = "answer with one JSON object and nothing else"
        return [Finding("keys", "the answer is not a JSON object", fix=fix)]
    got = ", ".join(sorted(found))
    wrong = Finding(
        "keys", f"the keys are {got}", fix="the keys must be item and amount"
    )
    return [] if found.keys() == {"item", "amount"} else [wrong]


def team(answer: str, expected: str) -> Findings:
    """A team is written as a mention."""
    wrong = Finding("team", "the team must be @billing, @shipping or @support")
    return [] if answer in ("@billing", "@shipping", "@support") else [wrong]


def currency(answer: str, expected: str) -> Findings:
    """A price has its currency."""
    fix = "write the number, a space and EUR, as in 20 EUR"
    wrong = Finding("currency", "the price is not in the house's format", fix=fix)
    return [] if answer == expected else [wrong]


def topic(answer: str, expected: str) -> Findings:
    """A topic is short."""
    count = len(answer.split())
    wrong = Finding("topic", f"the topic has {count} words, the limit is 2 words")
    return [] if 1 <= count <= 2 else [wrong]


def flag(answer: str, expected: str) -> Findings:
    """Yes and no are one letter."""
    wrong = Finding(
        "flag", "the answer is not a flag", fix="answer with Y or N, one letter"
    )
    return [] if answer in ("Y", "N") else [wrong]


CHECKS = (severity, date, name, unit, keys, team, currency, topic, flag)


@dataclass(frozen=True, kw_only=True)
class Family:
    """A check with the instruction of its function, its rule in words, and its
    tasks.
    """

    name: str
    instruction: str
    rule: str
    tasks: tuple[Task, ...]


def families(most: int = MOST) -> list[Family]:
    """Return the families with their tasks. Raises ValueError if tasks of a check share
    a word.
    """
    made = []
    read = json.loads(TASKS.read_text("utf-8"))
    for check in CHECKS:
        name = check.__name__
        facts = read[check.__name__]
        words = [
            w
            for text in facts["tasks"]
            for w in {*re.findall(r"[^\W\d_]+", text.lower())}
        ]
        if len(words) > len(set(words)):
            raise ValueError(f"tasks of {name} share a word")
        tasks = [
            Task(
                id=text,
                text=text,
                system=facts["instruction"],
                judge=partial(_judge, check, expected),
                group=name,
            )
            for text, expected in facts["tasks"].items()
        ]
        made.append(
            Family(
                name=name,
                instruction=facts["instruction"],
                rule=facts["rule"],
                tasks=tuple(tasks[:most]),
            )
        )
    return made


def _judge(
    check: Callable[[str, str], Findings], expected: str, answer: str
) -> Findings:
    return check(answer.strip(), expected)


def run(data: Path, split: str, live: Live) -> Iterator[Row]:
    """The rows of each model. `split` plays no part: the tasks are ours."""
    for size in live.models:
        yield from asyncio.run(_measured(size, data, live))


async def _measured(size: str, data: Path, live: Live) -> list[Row]:
    chosen = families(live.limit or MOST)
    # The functions take turns, each with its next task.
    tasks = [
        task
        for turn in zip(*(one.tasks for one in chosen), strict=True)
        for task in turn
    ]
    arms: dict[str, list[Tried]] = {}
    async with opened(size, data, live) as model:
        told = {one.name: await _told(one, one.rule, model) for one in chosen}
        hinted = {
            one.name: await _told(one, one.rule, model, hint=True) for one in chosen
        }
        said = {
            one.name: await _told(one, await _said(one, model), model) for one in chosen
        }
        sets = {
            words: [name for name, share in shares.items() if share >= QUALIFIED]
            for words, shares in (("rule", told), ("said", said))
        }
        say(f"unlike {size}, qualified: {sets}")
        memory = new_memory()
        for arm, kept in (("retries", None), ("ours", memory)):
            own = {
                one.name: decorated(one.name, one.tasks, model, kept) for one in chosen
            }
            call = partial(_call, own)
            arms[arm] = await stream(f"unlike {size} {arm}", tasks, call, model)
        crossed, asked = await _crossed(memory, chosen)
        whole = decorated("anything", tasks, model, new_memory())
        call = partial(_call, {one.name: whole for one in chosen})
        arms["all"] = await stream(f"unlike {size} all", tasks, call, model)

    def of(arm: str, groups: Sequence[str]) -> list[Tried]:
        return [one for one in arms[arm] if one.task.group in groups]

    rows = []
    for name, share in told.items():
        key = f"unlike.{size}.{name}"
        rows += [
            Row(key=f"{key}.rule", ours=share),
            Row(key=f"{key}.rule_as_hint", ours=hinted[name]),
        ]
        rows.append(Row(key=f"{key}.said", ours=said[name]))
        rows += figures(key, of("ours", [name]), of("retries", [name]))
    for words, names in sets.items():
        key = f"unlike.{size}.{words}"
        rows.append(
            Row(
                key=f"{key}.qualified",
                ours=len(names),
                baseline=None,
                anchor=", ".join(names),
            )
        )
        for arm in ("ours", "all"):
            rows += figures(f"{key}.{arm}", of(arm, names), of("retries", names))
    about = f"{asked} tasks asked under another key, and under keys without loops"
    return [
        *rows,
        Row(key=f"unlike.{size}.crossed", ours=crossed, baseline=None, anchor=about),
    ]


async def _crossed(memory: Memory, chosen: Sequence[Family]) -> tuple[int, int]:
    """Count the rules that memory tells under a key whose function has another
    check.
    """
    checks = {
        str(match.lesson_id): match.error_type
        for match in await memory.query(limit=100)
    }
    keys = {one.name: f"{__package__}.curve.answer_{one.name}" for one in chosen}
    keys |= {f"stranger {n}": f"{__package__}.stranger_{n}" for n in range(STRANGERS)}
    crossed = asked = 0
    for name, key in keys.items():
        for number, task in enumerate(task for one in chosen for task in one.tasks):
            briefing = await memory.brief(task.text, f"{name} {number}", memory_key=key)
            rules = [one for one in briefing.choices if one.leg == "cause"]
            crossed += sum(checks.get(str(one.lesson)) != name for one in rules)
            asked += 1
    return crossed, asked


async def _said(one: Family, model: KeptModel) -> str:
    """Return what the check says of the first wrong answer; "" if all are right."""
    for task in one.tasks:
        turns = [Message("system", one.instruction), Message("user", task.text)]
        for wrong in task.judge((await model.complete(turns, max_tokens=TOKENS)).text):
            return ". ".join(filter(None, (wrong.message, wrong.fix)))
    return ""


async def _call(functions: Mapping[str, Function], task: Task, made: Made) -> None:
    await functions[task.group](task.text, made)


async def _told(one: Family, rule: str, model: KeptModel, hint: bool = False) -> float:
    """Return the share of tasks right at once with the rule, in the prompt or as a
    hint.
    """

    async def ask(task: Task, made: Made) -> None:
        system = f"{one.instruction} {rule}"
        user = task.text
        if hint:
            system = one.instruction
            user = f"{rule}\n\n{task.text}"
        turns = [Message("system", system), Message("user", user)]
        made.texts.append((await model.complete(turns, max_tokens=TOKENS)).text)

    where = "as a hint" if hint else "in the prompt"
    tried = await stream(f"rule {where}, {one.name}", one.tasks, ask, model)
    return mean(each.first for each in tried)
