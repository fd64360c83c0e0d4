"""A stage with a declared output: its object is judged, passed on and restored."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model
from typing_extensions import TypedDict

import heedful
from heedful import errors
from heedful.lessons.lesson import Scope
from heedful.pipeline import Pipeline
from heedful.store.runs import report_of
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


# -- the declared type has changed when the run is resumed


def version(**fields: Any) -> type[BaseModel]:
    """Return one of the versions of a class, which change its fields."""
    kind: type[BaseModel] = create_model("Bill", **fields)
    kind.__module__ = __name__
    return kind


@dataclass
class Note:
    """A note."""

    text: str


@dataclass
class LongNote:
    """A note with a field that every note needs now."""

    text: str
    author: str


class Size(TypedDict):
    """A size."""

    width: int


class OtherSize(TypedDict, total=False):
    """A size whose field has another name."""

    length: int


BILL = version(total=(int, ...))
JSON = '{"total": 5}'


async def restored(
    store: Store, before: Any, output: Any, after: Any, model: bool = False
) -> Any:
    """Return what a stage hands on that is declared otherwise when it is resumed."""
    states: list[Any] = []

    def pipeline(declared: Any) -> Pipeline:
        pipeline = Pipeline("bills", store=store, progress=False)
        writer = ScriptedModel(output) if model else None

        @pipeline.stage(output=declared, model=writer)
        def read(state: Any) -> Any:
            return "Read the bill." if model else output

        @pipeline.stage
        def file(state: Any) -> None:
            states.append(state["read"])
            if len(states) == 1:
                raise OSError("the shelf is full")

        return pipeline

    with pytest.raises(errors.StageFailed):
        await pipeline(before).run({}, id="a")
    report = await pipeline(after).run({}, id="a")
    assert report.status == "passed"
    return states[1]


CHANGED: dict[str, tuple[Any, Any, Any]] = {
    "a renamed field of an object": (BILL, BILL(total=5), version(sum=(int, 0))),
    "a renamed field of data": (BILL, {"total": 5}, version(sum=(int, 0))),
    "a renamed field of a text": (BILL, f"It is {JSON}", version(sum=(int, 0))),
    "a new required field": (BILL, JSON, version(total=(int, ...), tax=(int, ...))),
    "a narrower choice": (Literal["a", "b"], "b", Literal["a"]),
    "int becomes str": (int, 5, str),
    "list becomes dict": (list[int], [5], dict[str, int]),
    "a dataclass": (Note, Note("hello"), LongNote),
    "a TypedDict": (Size, {"width": 5}, OtherSize),
    "a plain text becomes int": (None, "about five", int),
    "a number that was not declared": (None, {"total": 5}, version(total=(str, ...))),
    "another class": (Note, Note("hello"), BILL),
    "no longer declared": (BILL, BILL(total=5), None),
    "object becomes list": (BILL, JSON, list[int]),
}


@cases(("before", "output", "after"), CHANGED)
async def test_an_output_that_no_longer_fits_is_an_error_and_not_handed_on(
    store: Store, before: Any, output: Any, after: Any
) -> None:
    with pytest.raises(errors.OutputChanged) as caught:
        await restored(store, before, output, after)
    message = str(caught.value)
    assert message.startswith("stage 'read' of run 'a': ")
    assert "declare the type as it was" in message or "resume it with" in message
    report = await report_of(store, Scope(), "a")
    assert report.status == "failed"


@cases(
    ("before", "after"),
    {
        "a renamed field": (BILL, version(sum=(int, 0))),
        "a narrower type": (BILL, version(total=(Literal[4], ...))),
    },
)
async def test_the_answer_of_a_model_that_no_longer_fits_is_an_error_too(
    store: Store, before: Any, after: Any
) -> None:
    with pytest.raises(errors.OutputChanged, match="stage 'read' of run 'a'"):
        await restored(store, before, JSON, after, model=True)


STILL_FITS: dict[str, tuple[Any, Any, Any, Any]] = {
    "the same type": (BILL, JSON, BILL, BILL(total=5)),
    "a part that no field has": (BILL, '{"total": 5, "x": 1}', BILL, BILL(total=5)),
    "a wider choice": (Literal["a"], "a", Literal["a", "b"], "a"),
    "a text that is declared now": (None, "36", int, 36),
    "text without a declaration": (str, "hello", None, "hello"),
}


@cases(("before", "output", "after", "value"), STILL_FITS)
async def test_an_output_that_still_fits_is_restored_as_declared(
    store: Store, before: Any, output: Any, after: Any, value: Any
) -> None:
    again = await restored(store, before, output, after)
    assert again == value
    assert type(again) is type(value)


@cases("output", {"object": BILL(total=5), "text": JSON})
async def test_a_class_that_moved_to_another_module_still_fits(
    store: Store, output: Any
) -> None:
    moved = version(total=(int, ...))
    moved.__module__ = "shop.models"
    assert await restored(store, BILL, output, moved) == moved(total=5)


async def test_what_never_fitted_stays_as_it_was(store: Store) -> None:
    assert await restored_degraded(store) == "no bill"


async def restored_degraded(store: Store) -> Any:
    """Return what a stage hands on whose output did not fit, after a resume."""
    states: list[Any] = []
    pipeline = Pipeline("bills", store=store, progress=False)
    pipeline.stage(name="read", output=BILL, retries=0)(lambda state: "no bill")

    @pipeline.stage
    def file(state: Any) -> None:
        states.append(state["read"])
        if len(states) == 1:
            raise OSError("the shelf is full")

    with pytest.raises(errors.StageFailed):
        await pipeline.run({}, id="a")
    report = await pipeline.run({}, id="a")
    assert report.status == "degraded"
    return states[1]


# -- bytes, dates, decimals


class Scan(BaseModel):
    """A page with what JSON has no type for."""

    image: bytes = Field(max_length=8)
    parts: list[bytes]
    day: dt.date
    total: Decimal
    names: dict[str, bytes | str] = {}


@dataclass
class Stamp:
    """A stamp."""

    image: bytes
    at: dt.datetime


PNG = b"\x89PNG\xff\x00"
SCAN = Scan(
    image=PNG,
    parts=[b"plain", PNG],
    day=dt.date(2026, 5, 3),
    total=Decimal("1.10"),
    names={"a": PNG, "b": "text"},
)
STAMP = Stamp(PNG, dt.datetime(2026, 5, 3, 12, tzinfo=dt.UTC))
VALUES: dict[str, tuple[Any, Any]] = {
    "a pydantic class": (Scan, SCAN),
    "a dataclass": (Stamp, STAMP),
    "bytes": (bytes, PNG),
    "a list of bytes": (list[bytes], [PNG, b""]),
    "a set of bytes": (set[bytes], {PNG}),
    "a tuple with bytes": (tuple[bytes, int], (PNG, 1)),
    "bytes that are text": (bytes, b"plain"),
    "a dict of decimals": (dict[str, Decimal], {"total": Decimal("1.10")}),
    "a date": (dt.date, dt.date(2026, 5, 3)),
}


@cases(("kind", "value"), VALUES)
async def test_bytes_dates_and_decimals_come_back_as_what_they_were(
    store: Store, kind: Any, value: Any
) -> None:
    again = await restored(store, kind, value, kind)
    assert again == value
    assert type(again) is type(value)


@pytest.mark.parametrize("durable", [False, True], ids=["no store", "store"])
async def test_a_loop_returns_an_object_with_bytes(store: Store, durable: bool) -> None:
    place = store if durable else None
    for _ in range(2):  # the second one is read from the store
        result = await heedful.run(
            "Scan.",
            generate=lambda task, hint: SCAN,
            checks=[lambda scan: scan.image == PNG],
            output=Scan,
            store=place,
            id="scan" if durable else "",
        )
        assert result.candidate == SCAN


async def test_data_that_look_like_stored_bytes_are_refused(store: Store) -> None:
    kind = version(data=(dict[str, Any], ...))
    with pytest.raises(errors.NotJournalable, match="cannot be stored"):
        await restored(store, kind, kind(data={"$base64": "AAAA"}), kind)
