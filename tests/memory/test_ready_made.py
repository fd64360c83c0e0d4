"""A ready-made check teaches its arguments, and no particular of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel, Field

from heedful import checks
from heedful.drive.drive import run
from heedful.loop.record import Finding
from heedful.memory.memory import Memory
from heedful.store.store import Store

KEY = "shop.answer"


class Line(BaseModel):
    """A line of a basket."""

    name: str
    count: int = Field(le=9)


class Basket(BaseModel):
    """What a customer buys, and prices by supplier."""

    lines: list[Line]
    prices: dict[str, int]


async def tell(memory: Memory, checks: Sequence[Any], *answers: Any) -> str:
    """Return what a loop with these checks and answers is told before its first one.

    The answers are part of its task, which no other loop has.
    """
    hints: list[str] = []
    remaining = iter(answers)

    def answer(task: Any, hint: str) -> Any:
        hints.append(hint)
        return next(remaining)

    await run(
        f"task {answers}",
        generate=answer,
        checks=checks,
        memory=memory,
        memory_key=KEY,
        store=memory.store,
    )
    return hints[0]


async def learn_rule(memory: Memory, check: Any, refused: Any, accepted: Any) -> str:
    """Return the rule that a loop is told after another one was refused."""
    await tell(memory, [check], refused, accepted)
    prompt = await tell(memory, [check], accepted)
    assert "what earlier answers got wrong" in prompt
    return prompt.splitlines()[2]


@pytest.fixture
def memory(store: Store) -> Memory:
    return Memory(store, holdout=0)


@pytest.mark.parametrize(
    ("check", "refused", "accepted", "rule"),
    [
        pytest.param(
            checks.contains("parcel"),
            "It left today.",
            "The parcel left today.",
            "write 'parcel' in the answer",
            id="a needle that the accepted answer has",
        ),
        pytest.param(
            checks.contains("Ada"),
            "Yours, Bo",
            "Yours, Ada",
            "write 'Ada' in the answer",
            id="a needle that is a name",
        ),
        pytest.param(
            checks.contains("24"),
            "We answer within 2 hours.",
            "We answer within 24 hours.",
            "write '24' in the answer",
            id="a needle that is a figure",
        ),
        pytest.param(
            checks.excludes("sorry"),
            "I am sorry: no.",
            "No.",
            "leave 'sorry' out of the answer",
            id="a word that is not wanted",
        ),
        pytest.param(
            checks.words(at_most=3),
            "it is on its way",
            "on its way",
            "use at most 3 words",
            id="a limit, without how many words were over it",
        ),
        pytest.param(
            checks.words(at_least=2),
            "yes",
            "yes please",
            "use at least 2 words",
            id="a lower limit that the count equals",
        ),
        pytest.param(
            checks.characters(at_most=4),
            "maybe",
            "yes",
            "use at most 4 characters",
            id="characters",
        ),
        pytest.param(
            checks.regex("low|high"),
            "rather low",
            "low",
            "answer with text that entirely matches 'low|high'",
            id="a pattern with the answer in it",
        ),
        pytest.param(
            checks.regex("[A-Z]{2}-[0-9]+", full=False),
            "no number",
            "It is AB-77.",
            "answer with text that matches '[A-Z]{2}-[0-9]+'",
            id="a pattern that is searched for",
        ),
        pytest.param(
            checks.regex("S[1-3]", fix="say S1, S2 or S3"),
            "S4",
            "S3",
            "answer with text that entirely matches 'S[1-3]': say S1, S2 or S3",
            id="a pattern with advice",
        ),
        pytest.param(
            checks.json_schema({"properties": {"due": {"format": "date"}}}),
            '{"due": "3 May"}',
            '{"due": "2026-05-03"}',
            "at $.due: write it in the format 'date'",
            id="a format of a field",
        ),
        pytest.param(
            checks.json_schema({"properties": {"code": {"pattern": "^[A-Z]{2}$"}}}),
            '{"code": "Ab"}',
            '{"code": "AB"}',
            "at $.code: make it match '^[A-Z]{2}$'",
            id="a pattern of a field",
        ),
        pytest.param(
            checks.json_schema({"properties": {"mood": {"enum": ["calm", "cross"]}}}),
            '{"mood": "happy"}',
            '{"mood": "calm"}',
            "at $.mood: write one of ['calm', 'cross']",
            id="allowed values, one of which is the answer",
        ),
        pytest.param(
            checks.json_schema(Basket),
            '{"lines": [{"name": "pen", "count": 12}], "prices": {}}',
            '{"lines": [{"name": "pen", "count": 9}], "prices": {}}',
            "at $.lines[].count: make it at most 9",
            id="a limit in a list, by a class",
        ),
        pytest.param(
            checks.json_schema(Basket),
            '{"lines": [], "prices": {"Acme": "dear"}}',
            '{"lines": [], "prices": {"Acme": 3}}',
            "at $.prices[]: make it an integer",
            id="a type in a mapping, whose key is data",
        ),
        pytest.param(
            checks.json_schema(Basket),
            '{"lines": []}',
            '{"lines": [], "prices": {}}',
            "at $.prices: add it",
            id="a missing field",
        ),
        pytest.param(
            checks.json_schema(Basket),
            "Here you are.",
            '{"lines": [], "prices": {}}',
            "answer with the bare JSON only: no ``` fences, "
            "no words before or after it",
            id="no JSON",
        ),
    ],
)
async def test_the_argument_is_the_rule(
    memory: Memory, check: Any, refused: str, accepted: str, rule: str
) -> None:
    assert await learn_rule(memory, check, refused, accepted) == rule


async def test_a_stated_rule_stays_whatever_findings_have_in_common(
    memory: Memory,
) -> None:
    check = checks.words(at_most=2)
    for refused in ("one two three four", "one two three four five six", "a b c"):
        await tell(memory, [check], refused, "one two")
    prompt = await tell(memory, [check], "one two")
    assert prompt.splitlines()[2] == "use at most 2 words"


async def test_a_check_of_your_own_states_its_rule(memory: Memory) -> None:
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
