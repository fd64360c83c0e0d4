"""What a run of a pipeline has cost: all that its stages did under its id."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from heedful import errors
from heedful.lessons.lesson import Scope
from heedful.loop.record import Usage
from heedful.loop.runs import Report
from heedful.pipeline import Pipeline
from heedful.store.runs import report_of
from heedful.store.store import Store
from tests.tables import cases

Work = Callable[[Any], Any]


def outline(state: Any) -> tuple[str, Usage]:
    return "a plan", Usage(1, 3, completion_tokens=1)


def write(state: Any) -> tuple[str, Usage]:
    return "a line", Usage(1, 8, completion_tokens=2)


def send(state: Any) -> str:
    return "sent"


def outage(state: Any) -> str:
    raise OSError("the line is dead")


async def run_stages(store: Store | None, stages: list[tuple[str, Work]]) -> Report:
    pipeline = Pipeline("p", store=store, progress=False)
    for name, work in stages:
        pipeline.stage(name=name)(work)
    return await pipeline.run({}, id="r")


def bill(report: Report) -> tuple[int, int]:
    return report.usage.calls, report.usage.tokens


OUTLINE = ("outline", outline)
WRITE = ("write", write)
SEND = ("send", send)
CHANGES = {
    "nothing is done again": ((WRITE, SEND), (3, 10)),
    "a new stage before": ((OUTLINE, WRITE, SEND), (5, 24)),
    "a stage is gone": ((SEND,), (3, 10)),
}


@cases(("after", "expected"), CHANGES)
async def test_the_bill_of_a_resumed_run_has_all_that_was_paid(
    store: Store, after: Any, expected: tuple[int, int]
) -> None:
    with pytest.raises(errors.StageFailed):
        await run_stages(store, [WRITE, ("send", outage)])
    report = await run_stages(store, after)
    assert bill(report) == expected
    assert await report_of(store, Scope(), "r") == report
    assert bill(await run_stages(store, after)) == expected


@cases("is_stored", {"no store": False, "a store": True})
async def test_a_stage_has_the_calls_that_failed_in_its_usage(
    store: Store, is_stored: bool
) -> None:
    failures = [ConnectionError("busy"), ConnectionError("still busy")]

    def flaky(state: Any) -> Any:
        if failures:
            raise failures.pop()
        return write(state)

    pipeline = Pipeline("p", store=store if is_stored else None, progress=False)
    pipeline.stage(name="write", retry_on=[ConnectionError], wait=[0, 0])(flaky)
    report = await pipeline.run({}, id="r")
    assert report.stage("write").usage.calls == 3
    assert report.plain()["stages"][0]["usage"]["calls"] == 3
    assert bill(report) == (3, 10)
