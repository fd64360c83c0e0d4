"""A stage with a declared output: its object is judged, passed on and restored."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pydantic import BaseModel, Field

from heedful import errors
from heedful.pipeline import Pipeline
from heedful.store.store import Store
from heedful.testing import ScriptedModel
from tests.tables import cases


class Receipt(BaseModel):
    """A receipt, of which a field has an alias."""

    day: dt.date = Field(alias="Day")


MAY = Receipt(Day=dt.date(2026, 5, 3))
WRITTEN = 'It is {"Day": "2026-05-03"}.'


def receipts(
    store: Store | None, calls: list[str], *outputs: Any, model: Any = None
) -> Pipeline:
    """Return a pipeline whose first stage returns these outputs, one an attempt."""
    remaining = iter(outputs)
    pipeline = Pipeline("receipts", store=store)

    def check(receipt: Any) -> str:
        calls.append(type(receipt).__name__)
        return ""

    @pipeline.stage(output=Receipt, checks=[check], model=model)
    def scan(state: Any) -> Any:
        return "scan it" if model else next(remaining)

    @pipeline.stage
    def file(state: Any) -> Any:
        calls.append(type(state["scan"]).__name__)
        if state.get("broken"):
            raise OSError("the shelf is full")

    return pipeline


@cases("output", {"object": MAY, "text": WRITTEN, "data": {"Day": "2026-05-03"}})
async def test_checks_and_later_stages_get_the_object_also_of_a_resumed_run(
    store: Store, output: Any
) -> None:
    calls: list[str] = []
    pipeline = receipts(store, calls, output)
    with pytest.raises(errors.StageFailed):
        await pipeline.run({"broken": {"shelf"}}, id="a")  # no JSON: not compared
    assert calls == ["Receipt", "Receipt"]

    state: dict[str, Any] = {}
    await receipts(store, calls).run(state, id="a")
    assert state["scan"] == MAY
    assert calls == ["Receipt"] * 3


@pytest.mark.parametrize("durable", [False, True], ids=["no store", "store"])
async def test_what_does_not_fit_runs_the_stage_again(
    store: Store, durable: bool
) -> None:
    calls: list[str] = []
    state: dict[str, Any] = {}
    pipeline = receipts(store if durable else None, calls, "no receipt", WRITTEN)
    report = await pipeline.run(state)
    assert state["scan"] == MAY
    assert calls == ["Receipt", "Receipt"]
    first, second = report.stages[0].attempts
    failed = [check.check_name for check in first.checks if check.status == "failed"]
    assert failed == ["output"]
    assert second.shown_status == "passed"


async def test_a_model_of_a_stage_is_asked_for_the_type(store: Store) -> None:
    calls: list[str] = []
    model = ScriptedModel("no receipt", WRITTEN)
    state: dict[str, Any] = {}
    await receipts(store, calls, model=model).run(state, id="a")
    assert state["scan"] == MAY
    assert model.settings[0]["schema"] == Receipt.model_json_schema()

    state = {}
    await receipts(store, calls, model=model).run(state, id="a")
    assert state["scan"] == MAY
