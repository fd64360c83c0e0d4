"""A ready-made check teaches its arguments, and no particular of a task. What loops of
one function got wrong under a check is told to every function that the check guards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel, Field

import heedful
from heedful import checks
from heedful.checks.evaluate import check_id
from heedful.drive.report import open_loop
from heedful.lessons.scope import Scope, short_digest
from heedful.loop.record import Finding
from heedful.memory.memory import Memory
from tests.memory.loops import run_loop
from tests.tables import cases

KEY = "shop.answer"
OTHER_KEY = "desk.reply"


class Line(BaseModel):
    """A line of a basket."""

    name: str
    count: int = Field(le=9)


class Basket(BaseModel):
    """What a customer buys, and prices by supplier."""

    lines: list[Line]
    prices: dict[str, int]


async def tell(
    memory: Memory, checks: Sequence[Any], *answers: Any, key: str = KEY
) -> str:
    """Return what a loop with these checks and answers is told before its first one.

    Its task has no word in common with those of loops with other answers.
    """
    hints: list[str] = []
    remaining = iter(answers)

    def answer(task: Any, hint: str) -> Any:
        hints.append(hint)
        return next(remaining)

    await run_loop(memory, short_digest(str(answers)), answer, checks, memory_key=key)
    return hints[0]


async def learn_rule(memory: Memory, check: Any, refused: Any, accepted: Any) -> str:
    """Return the rule that a loop is told after another one was refused."""
    await tell(memory, [check], refused, accepted)
    prompt = await tell(memory, [check], accepted)
    assert "what earlier answers got wrong" in prompt
    return prompt.splitlines()[2]


@cases(
    "check, refused, accepted, rule",
    {
        "a needle that the accepted answer has": (
            checks.contains("parcel"),
            "It left today.",
            "The parcel left today.",
            "write 'parcel' in the answer",
        ),
        "a word that is not wanted": (
            checks.excludes("sorry"),
            "I am sorry: no.",
            "No.",
            "leave 'sorry' out of the answer",
        ),
        "a limit, without how many words were over it": (
            checks.words(at_most=3),
            "it is on its way",
            "on its way",
            "use at most 3 words",
        ),
        "a pattern with the answer in it": (
            checks.regex("low|high"),
            "rather low",
            "low",
            "answer with text that entirely matches 'low|high'",
        ),
        "bounds of a column": (
            checks.ranges(price=(0, 90)),
            '{"price": [8, 900]}',
            '{"price": [8, 9]}',
            "keep price from 0 to 90",
        ),
        "evidence, whose figures are those of one task": (
            checks.grounding([{"name": "Lamp", "price": 30}]),
            "Lamp has a price of 99.",
            "Lamp has a price of 30.",
            "write no number that the evidence does not have",
        ),
        "a format of a field": (
            checks.json_schema({"properties": {"due": {"format": "date"}}}),
            '{"due": "3 May"}',
            '{"due": "2026-05-03"}',
            "at $.due: write it in the format 'date'",
        ),
        "a missing field": (
            checks.json_schema(Basket),
            '{"lines": []}',
            '{"lines": [], "prices": {}}',
            "at $.prices: add it",
        ),
        "no JSON": (
            checks.json_schema(Basket),
            "Here you are.",
            '{"lines": [], "prices": {}}',
            (
                "answer with the bare JSON only: no ``` fences, "
                "no words before or after it"
            ),
        ),
    },
)
async def test_the_argument_is_the_rule(memory, check, refused, accepted, rule):
    assert await learn_rule(memory, check, refused, accepted) == rule


async def test_a_key_of_a_mapping_is_data(memory):
    answer = '{"lines": [], "prices": {"Acme": %s}}'
    check = checks.json_schema(Basket)
    rule = await learn_rule(memory, check, answer % '"dear"', answer % 3)
    assert "Acme" not in rule


async def test_a_check_of_your_own_states_its_rule(memory):
    def priced(answer: str) -> list[Finding]:
        if answer.endswith("EUR"):
            return []
        return [
            Finding(
                "priced",
                f"{answer!r} has no currency",
                fix=f"write {answer} EUR",
                rule="end with the currency, EUR",
            )
        ]

    rule = await learn_rule(memory, priced, "12.50", "12.50 EUR")
    assert rule == "end with the currency, EUR"


def polite(answer: str) -> list[Finding]:
    """End with a greeting."""
    if answer.endswith("Kind regards"):
        return []
    return [Finding("polite", f"{answer!r} ends without a greeting", fix="greet")]


class Desk:
    """A check with a state of its own."""

    def __init__(self, sign: str) -> None:
        self.sign = sign

    def __call__(self, answer: str) -> list[Finding]:
        return self.judge(answer)

    def judge(self, answer: str) -> list[Finding]:
        if answer.startswith(self.sign):
            return []
        return [Finding("desk", "the sign is missing", fix=f"begin with {self.sign}")]


def beginning_with(sign: str) -> Callable[[str], list[Finding]]:
    def begins(answer: str) -> list[Finding]:
        return Desk(sign)(answer)

    return begins


def parcel_schema() -> dict[str, Any]:
    return {"type": "object", "required": ["weight"]}


@pytest.mark.both
@cases(
    "first, second, refused, accepted, rule",
    {
        "a ready-made check that is made twice": (
            checks.contains("parcel"),
            checks.contains("parcel"),
            "It left.",
            "The parcel left.",
            "write 'parcel' in the answer",
        ),
        "two equal schemas": (
            checks.json_schema(parcel_schema()),
            checks.json_schema(parcel_schema()),
            "{}",
            '{"weight": 3}',
            "add it",
        ),
        "a function of a module": (
            polite,
            polite,
            "Yours",
            "Yours. Kind regards",
            "ends without a greeting. greet",
        ),
    },
)
async def test_one_check_has_one_rule_for_two_functions(
    memory, first, second, refused, accepted, rule
):
    await tell(memory, [first], refused, accepted)
    prompt = await tell(memory, [second], accepted, key=OTHER_KEY)
    assert rule in prompt
    assert "accepted:" not in prompt
    assert short_digest(str((refused, accepted))) not in prompt


@cases(
    "first, second",
    {
        "other arguments": (checks.contains("A: "), checks.contains("A:")),
        "lambdas": (
            lambda answer: answer.startswith("A: "),
            lambda answer: answer.startswith("A: "),
        ),
        "closures": (beginning_with("A: "), beginning_with("A: ")),
    },
)
async def test_what_may_differ_is_not_one_check(memory, first, second):
    await tell(memory, [first], "kg", "A: kg")
    assert "got wrong" in await tell(memory, [first], "A: kg")
    assert await tell(memory, [second], "A: kg", key=OTHER_KEY) == ""


async def test_a_rule_that_both_functions_broke_is_their_own(memory):
    for key in (KEY, OTHER_KEY):
        await tell(memory, [polite], "Yours", f"{key}. Kind regards", key=key)
    briefing = await memory.brief(
        "another task", "", memory_key=OTHER_KEY, check_ids=[check_id(polite)]
    )
    [choice] = briefing.choices
    assert choice.why == "broken in 1 loop"
    assert f"accepted: {OTHER_KEY}" in briefing.prompt


async def test_a_rule_stays_in_its_project(store):
    shop = Memory(store, Scope("acme", "shop"), holdout=0)
    desk = Memory(store, Scope("acme", "desk"), holdout=0)
    await tell(shop, [polite], "Yours", "Yours. Kind regards")
    assert await tell(desk, [polite], "Kind regards", key=OTHER_KEY) == ""


async def test_a_reported_loop_and_a_stage_are_told_it_too(memory):
    await tell(memory, [polite], "Yours", "Yours. Kind regards")
    reported = await open_loop(
        "letter", "a letter", checks=[polite], memory=memory, memory_key=OTHER_KEY
    )
    assert reported.briefing is not None
    assert "ends without a greeting" in reported.briefing.prompt

    hints = []
    pipeline = heedful.Pipeline("letters", memory=memory, store=memory.store)

    @pipeline.stage(checks=[polite])
    def write(state: Any, feedback: str = "") -> str:
        hints.append(feedback)
        return "Kind regards"

    await pipeline.run({"to": "Ada"})
    assert "ends without a greeting" in hints[0]


async def test_a_function_that_refuses_its_own_answer_teaches_without_a_check(
    memory, caplog
):
    hints = []

    @heedful.self_correcting(memory=memory, store=memory.store)
    async def total(task: str, hint: str) -> int:
        hints.append(hint)
        if "digits" not in hint:
            raise ValueError("write the total in digits")
        return 12

    assert await total("a basket") == 12
    assert caplog.records == []
    assert await total("a trip") == 12
    assert "write the total in digits" in hints[2]
