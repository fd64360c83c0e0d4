"""Candidates that are objects, and token counts in the shapes of the common SDKs."""

from types import SimpleNamespace as Shape
from typing import Any

import pytest
from pydantic import BaseModel

import heedful
from heedful import errors
from heedful.loop.record import Usage
from heedful.store import loops
from heedful.store.store import Store
from tests.tables import cases


class Person(BaseModel):
    name: str
    age: int = 0


def grown(person: Person) -> str:
    return "" if person.age > 17 else "too young"


async def aged(task: str, hint: str) -> Person:
    return Person(name=task, age=36 if hint else 3)


async def test_an_answer_may_be_a_pydantic_object_which_is_stored_as_json(
    store: Store,
) -> None:
    schema = {"type": "object", "properties": {"age": {"minimum": 18}}}
    checks = [
        grown,
        heedful.checks.json_schema(schema),
        heedful.checks.json_schema(Person),
    ]
    correct = heedful.self_correcting(checks=checks, store=store, id="a")
    written = correct(aged)
    assert await written("Ada") == Person(name="Ada", age=36)
    journal_copy = await store.read(heedful.Scope(), loops.read, "a")
    assert journal_copy.values == (
        {"name": "Ada", "age": 3},
        {"name": "Ada", "age": 36},
    )
    assert await written("Ada") == Person(name="Ada", age=36)  # read from the store


OPENAI = Shape(
    choices=[Shape(message=Shape(content="hi", parsed=None))],
    usage=Shape(prompt_tokens=7, completion_tokens=2, total_tokens=9),
)
PARSED = Shape(
    choices=[Shape(message=Shape(content="{}", parsed=Person(name="Ada")))],
    usage=Shape(prompt_tokens=7, completion_tokens=2, cost=0.5),
)
RESPONSES = Shape(output_text="hi", usage=Shape(input_tokens=7, output_tokens=2))
ANTHROPIC = Shape(
    content=[Shape(type="thinking", thinking="…"), Shape(type="text", text="hi")],
    usage=Shape(input_tokens=3, cache_read_input_tokens=4, output_tokens=2),
)
PYDANTIC_AI = Shape(
    output=Person(name="Ada"),
    usage=Shape(requests=3, input_tokens=7, output_tokens=2, cost=None),
    response=Shape(model_name="large"),
)
AGNO = Shape(
    content="hi", model="large", metrics=Shape(input_tokens=7, output_tokens=2)
)
JSON = {
    "choices": [{"message": {"content": "hi"}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2},
}
SEVEN = Usage(1, 7, completion_tokens=2)
# What a function returns, and the candidate and the usage that are read from it.
SHAPES = {
    "OpenAI": (OPENAI, "hi", SEVEN),
    "OpenAI, parsed": (
        PARSED,
        Person(name="Ada"),
        Usage(1, 7, completion_tokens=2, cost=0.5),
    ),
    "OpenAI responses": (RESPONSES, "hi", SEVEN),
    "Anthropic": (ANTHROPIC, "hi", SEVEN),
    "pydantic-ai counts its requests": (
        PYDANTIC_AI,
        Person(name="Ada"),
        Usage(3, 7, completion_tokens=2),
    ),
    "Agno": (AGNO, "hi", SEVEN),
    "a text with a run of Agno": (("hi", AGNO), "hi", SEVEN),
    "JSON data is a candidate": (JSON, JSON, Usage(1)),
    "a text with usage": (("hi", OPENAI.usage), "hi", SEVEN),
    "a list of answers": ([OPENAI, "ho"], "hi", Usage(2, 7, completion_tokens=2)),
    "two texts": (("hi", "ho"), "hi", Usage(2)),
}


@cases(("returned", "candidate", "usage"), SHAPES)
async def test_usage_is_read_from_the_answers_of_the_common_sdks(
    returned: Any, candidate: Any, usage: Usage, store: Store
) -> None:
    result = await heedful.run("t", generate=lambda task: returned, store=store)
    assert result.candidate == candidate
    assert result.usage.lasting(0) == usage


async def test_the_second_part_of_a_pair_without_usage_is_named():
    class RunOutput:
        content = "hi"

    generate = lambda task: ("hi", RunOutput())  # noqa: E731
    with pytest.raises(errors.InvalidInput) as raised:
        await heedful.run("t", generate=generate, store=None)

    assert "RunOutput" in str(raised.value)
    assert "heedful.Usage" in str(raised.value)
    assert "a list" in str(raised.value)
