"""Unlike tasks, one rule: does a rule that a check taught reach the prompt of the next
task of its function?

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
from itertools import chain
from pathlib import Path
from statistics import mean

from bench.quality.answers import KeptModel, Live, open_kept_model, say
from bench.quality.curve import (
    Answers,
    Function,
    Outcome,
    Task,
    decorate,
    new_memory,
    stream,
)
from bench.quality.paired import summarize, summary_rows
from bench.quality.rows import Row
from heedful import Finding
from heedful.models.contract import Message

TASKS = Path(__file__).with_name("unlike.json")
QUALIFIED = 0.8
TOKENS = 40
MOST = 20  # tasks of a check
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
    data = None
    with suppress(ValueError):
        data = json.loads(re.sub(r"\A```(?:json)?|```\Z", "", answer))
    if not isinstance(data, dict):
        fix = "answer with one JSON object and nothing else"
        return [Finding("keys", "the answer is not a JSON object", fix=fix)]
    got = ", ".join(sorted(data))
    wrong = Finding(
        "keys", f"the keys are {got}", fix="the keys must be item and amount"
    )
    return [] if data.keys() == {"item", "amount"} else [wrong]


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


def families(limit: int = MOST) -> list[Family]:
    """Return the families. Raises ValueError if tasks of a check share a word."""
    result = []
    read = json.loads(TASKS.read_text("utf-8"))
    for check in CHECKS:
        name = check.__name__
        facts = read[name]
        words: list[str] = []
        for text in facts["tasks"]:
            words += set(re.findall(r"[^\W\d_]+", text.lower()))
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
        result.append(
            Family(
                name=name,
                instruction=facts["instruction"],
                rule=facts["rule"],
                tasks=tuple(tasks[:limit]),
            )
        )
    return result


def _judge(
    check: Callable[[str, str], Findings], expected: str, answer: str
) -> Findings:
    return check(answer.strip(), expected)


def run(data: Path, split: str, live: Live) -> Iterator[Row]:
    """Yield the rows of each model. `split` plays no part: the tasks are ours."""
    for size in live.models:
        yield from asyncio.run(_measure(size, data, live))


async def _measure(size: str, data: Path, live: Live) -> list[Row]:
    chosen = families(live.limit or MOST)
    # The functions take turns, each with its next task.
    turns = zip(*(family.tasks for family in chosen), strict=True)
    tasks = list(chain.from_iterable(turns))
    arms: dict[str, list[Outcome]] = {}
    async with open_kept_model(size, data, live) as model:
        shares = await _measure_rules(chosen, model)
        sets = {
            "rule": _qualified(shares["rule"]),
            "said": _qualified(shares["said"]),
        }
        say(f"unlike {size}, qualified: {sets}")

        for arm, arm_memory in (("retries", None), ("ours", new_memory())):
            functions = {
                family.name: decorate(family.name, family.tasks, model, arm_memory)
                for family in chosen
            }
            call = partial(_call, functions)
            arms[arm] = await stream(f"unlike {size} {arm}", tasks, call, model)
        for_all = decorate("anything", tasks, model, new_memory())
        call = partial(_call, {family.name: for_all for family in chosen})
        arms["all"] = await stream(f"unlike {size} all", tasks, call, model)

    rows: list[Row] = []
    for family in chosen:
        rows += _family_rows(f"unlike.{size}.{family.name}", family.name, shares, arms)
    for words, names in sets.items():
        rows += _set_rows(f"unlike.{size}.{words}", names, arms)
    return rows


async def _measure_rules(
    chosen: Sequence[Family], model: KeptModel
) -> dict[str, dict[str, float]]:
    """Return the shares of tasks right at the first try, by the words and the family.

    The words are the `rule`, or what the check `said` of the first wrong answer.
    """
    shares: dict[str, dict[str, float]] = {"rule": {}, "said": {}}
    for family in chosen:
        shares["rule"][family.name] = await _measure_rule(family, family.rule, model)
    for family in chosen:
        complaint = await _first_complaint(family, model)
        shares["said"][family.name] = await _measure_rule(family, complaint, model)
    return shares


def _qualified(shares: Mapping[str, float]) -> list[str]:
    return [name for name, share in shares.items() if share >= QUALIFIED]


def _of_groups(outcomes: Sequence[Outcome], groups: Sequence[str]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.task.group in groups]


def _family_rows(
    key: str,
    name: str,
    shares: Mapping[str, Mapping[str, float]],
    arms: Mapping[str, Sequence[Outcome]],
) -> Iterator[Row]:
    """Yield the rows of one check."""
    yield Row(key=f"{key}.rule", ours=shares["rule"][name])
    yield Row(key=f"{key}.said", ours=shares["said"][name])
    without_memory = _of_groups(arms["retries"], [name])
    yield from _compare(key, _of_groups(arms["ours"], [name]), without_memory)


def _set_rows(
    key: str, names: Sequence[str], arms: Mapping[str, Sequence[Outcome]]
) -> Iterator[Row]:
    """Yield the rows of the checks that qualified with one choice of words."""
    yield Row(key=f"{key}.qualified", ours=len(names), anchor=", ".join(names))
    without_memory = _of_groups(arms["retries"], names)
    for arm in ("ours", "all"):
        outcomes = _of_groups(arms[arm], names)
        yield from _compare(f"{key}.{arm}", outcomes, without_memory)


def _compare(
    key: str, outcomes: Sequence[Outcome], without_memory: Sequence[Outcome]
) -> Iterator[Row]:
    ours = {(0, outcome.task.id): outcome for outcome in outcomes}
    retries = {(0, outcome.task.id): outcome for outcome in without_memory}
    yield from summary_rows(key, summarize(ours, retries), summarize(retries, retries))


async def _first_complaint(family: Family, model: KeptModel) -> str:
    """Return what the check says of the first wrong answer; "" if all are right."""
    for task in family.tasks:
        turns = [Message("system", family.instruction), Message("user", task.text)]
        for wrong in task.judge((await model.complete(turns, max_tokens=TOKENS)).text):
            return ". ".join(filter(None, (wrong.message, wrong.fix)))
    return ""


async def _call(
    functions: Mapping[str, Function], task: Task, answers: Answers
) -> None:
    await functions[task.group](task.text, answers)


async def _measure_rule(family: Family, rule: str, model: KeptModel) -> float:
    """Return the share right at the first try with the rule in the prompt."""

    async def ask(task: Task, answers: Answers) -> None:
        system = f"{family.instruction} {rule}"
        turns = [Message("system", system), Message("user", task.text)]
        answers.add(await model.complete(turns, max_tokens=TOKENS))

    outcomes = await stream(f"rule, {family.name}", family.tasks, ask, model)
    return mean(outcome.first for outcome in outcomes)
