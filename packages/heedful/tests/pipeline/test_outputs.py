"""What the function of a stage returns: parts, answers of SDKs, and their usage."""

from types import SimpleNamespace as Shape
from typing import Any

import pytest

import heedful
from heedful.store import loops

RIGHT = heedful.checks.contains("right")


def completion(text: str) -> Shape:
    return Shape(
        choices=[Shape(message=Shape(content=text), finish_reason="stop")],
        usage=Shape(prompt_tokens=7, completion_tokens=2),
    )


def yielding(state: Any) -> Any:
    yield "ri"
    yield "ght"


async def yielding_async(state: Any) -> Any:
    yield "ri"
    yield "ght"


def with_usage(state: Any) -> Any:
    return "right", heedful.Usage(1, 9)


OUTPUTS: list[Any] = [
    pytest.param(yielding, 0, id="parts"),
    pytest.param(yielding_async, 0, id="async parts"),
    pytest.param(with_usage, 9, id="a usage"),
    pytest.param(lambda state: completion("right"), 9, id="an answer"),
]


@pytest.mark.parametrize(("work", "tokens"), OUTPUTS)
async def test_an_output_is_read_like_an_answer(work, tokens, store):
    pipeline = heedful.Pipeline("p", store=store)
    pipeline.stage(name="draft", checks=[RIGHT])(work)
    report = await pipeline.run({}, id="r")
    stage = report.stages[0]
    assert report.state["draft"] == "right"
    assert stage.status == "passed"
    stored_loop = await store.read(heedful.Scope(), loops.read, "r/draft")
    assert stored_loop.loop.usage.tokens == tokens
