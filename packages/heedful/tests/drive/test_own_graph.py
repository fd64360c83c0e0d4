"""Loops whose attempts the user's own graph makes, in this process."""

from pathlib import Path
from types import SimpleNamespace as Shape
from typing import Any, cast

import pytest
from pydantic import BaseModel

import heedful
from heedful import AttemptReport, errors
from heedful.loop.record import Evaluation, Finding, Usage
from tests.drive.support import WANTED, Check

TASK = "Write the total of invoice {}."
WRONG = Evaluation((Finding("currency", "no currency", fix="write EUR"),))
RIGHT = Evaluation()


def currency(answer: str) -> str:
    return "" if "EUR" in answer else "no currency: write EUR"


async def solve(number: int, memory: Any, **options: Any) -> heedful.ReportedLoop:
    task = TASK.format(number)
    loop = await heedful.open_loop(
        f"i-{number}", task, checks=[currency], memory=memory, **options
    )
    while not loop.ended:
        again = await heedful.open_loop(
            loop.loop.id, task, checks=[currency], memory=memory, **options
        )  # as another node would
        assert again.hint == loop.hint
        assert again.verdict == loop.verdict
        await loop.report(
            "12.50 EUR" if "EUR" in again.hint else "12.50",
            usage=Usage(1, 5, completion_tokens=2),
        )
    return loop


@pytest.mark.parametrize(
    ("usage", "text"),
    [
        pytest.param(Usage(), "calls not reported, tokens not reported", id="nothing"),
        pytest.param(Usage(2), "calls 2, tokens not reported", id="calls"),
    ],
)
async def test_usage_that_nobody_reported_is_not_said_to_be_0(path, usage, text):
    loop = await heedful.open_loop("l", "t", checks=[currency], store=str(path))
    await loop.report("12.50 EUR", usage=usage)
    assert loop.loop.usage_text == text


async def test_a_draft_of_the_caller_needs_no_call():
    result = await heedful.run(
        "t", generate=lambda task: "", checks=[currency], initial="1 EUR", store=None
    )
    assert result.loop.usage_text == "calls 0, tokens 0"


async def test_a_graph_is_told_what_was_wrong_and_what_memory_knows(path: Path) -> None:
    memory = heedful.Memory(str(path), holdout=0)
    first, second = [await solve(number, memory) for number in (7, 8)]
    assert first.passed is True
    assert first.candidate == "12.50 EUR"
    assert len(first.loop.attempts) == 2
    assert second.passed is True
    assert len(second.loop.attempts) == 1
    assert [turn.content for turn in second.briefing.examples] == [
        TASK.format(7),
        "12.50 EUR",
    ]
    assert first.loop.usage == Usage(2, 10, completion_tokens=4)
    assert "no currency" in str(first.explain())
    [lesson] = [row for row in await memory.top() if row["kind"] == "check"]
    assert lesson["state"] == "verified"
    assert lesson["error_type"] == "currency"
    assert (await memory.prove()).pooled.shown == 1


async def test_what_a_finished_loop_taught_is_learnt_in_one_call(path: Path) -> None:
    memory = heedful.Memory(str(path), holdout=0)
    reports = [
        AttemptReport("12", evaluation=WRONG),
        AttemptReport("12 EUR", evaluation=RIGHT),
    ]
    for _ in "ab":  # the same call again changes nothing
        loop = await heedful.learn("i-7", TASK.format(7), reports, memory=memory)
        assert loop.passed is True
        assert loop.candidate == "12 EUR"
    [lesson] = await memory.top()
    assert lesson["state"] == "verified"
    assert lesson["seen"] == 1
    assert (await solve(8, memory)).passed


async def test_reports_take_what_models_return(path: Path) -> None:
    class Total(BaseModel):
        text: str

    checks: list[Any] = [lambda total: total.text == WANTED]
    loop = await heedful.open_loop(
        "a", "t", checks=checks, store=str(path), policy="default"
    )
    assert isinstance(await loop.report(Total(text="no")), heedful.Again)
    spent = Shape(prompt_tokens=3, completion_tokens=4)
    message = Shape(parsed=Total(text=WANTED))
    await loop.report(Shape(choices=[Shape(message=message)], usage=spent))
    assert loop.candidate == {"text": WANTED}
    assert loop.loop.usage == Usage(1, 3, completion_tokens=4)
    loop = await heedful.open_loop(
        "b", "t", checks=[Check()], store=str(path), goals=[]
    )
    await loop.report(WANTED, usage=Shape(usage=spent))
    assert loop.candidate == WANTED
    assert loop.loop.usage == Usage(1, 3, completion_tokens=4)


async def test_a_wrong_report_says_why_and_writes_nothing(path: Path) -> None:
    loop = await heedful.open_loop("a", "t", store=str(path), checks=[Check()])
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"output": "x", "evaluation": 0.7}, errors.InvalidInput),
        ({"output": "x", "usage": "many"}, errors.InvalidInput),
        ({"output": None}, errors.UsageError),
        ({"output": "x", "checks": 5}, errors.InvalidInput),
        ({"output": "x", "attempt": "1"}, errors.InvalidInput),
        ({"output": "x", "evaluaton": RIGHT}, errors.UnknownName),
        ({"output": object()}, errors.NotJournalable),
        ({"output": "x", "attempt": 2}, errors.OutOfOrder),
    ]
    for fields, kind in wrong:
        with pytest.raises(kind):
            await loop.report(**fields)
    defaults: dict[str, Any] = {"id": "x", "task": "t", "store": str(path)}
    opens: list[dict[str, Any]] = [
        {"memory": 5},
        {"store": 5},
        {"id": 5},
        {"task": object()},
    ]
    for options in (*opens, {"context": object()}, {"scope": "acme"}, {"checks": len}):
        with pytest.raises(errors.InvalidInput):
            await heedful.open_loop(**defaults | options)
    with pytest.raises(errors.InvalidInput, match="attempts"):
        await heedful.learn("c", "t", cast("Any", ["12"]), store=str(path))
    with pytest.raises(errors.Conflict):
        await heedful.open_loop("a", "another task", store=str(path))
    bare = await heedful.open_loop("bare", "t", store=str(path))
    ended: Any = await bare.report("x")
    assert "give checks" in ended.stopped_by[0].detail
    await loop.report(WANTED)
    with pytest.raises(errors.LoopEnded):
        await loop.report("more")
    assert len((await heedful.open_loop("a", "t", store=str(path))).loop.attempts) == 1
