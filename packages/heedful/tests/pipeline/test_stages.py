"""States and functions of all kinds: what a stage does is undone, kept and restored."""

import asyncio
import functools
import re
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import make_dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from heedful.checks.evaluate import Context
from heedful.errors import InvalidInput, NotJournalable, StageFailed
from heedful.lessons.lesson import Scope
from heedful.loop.record import Finding
from heedful.pipeline import Pipeline
from heedful.store import open_store
from heedful.store.runs import report_of
from tests.pipeline.support import check_that_fails, run_pipeline, run_stage

REPORTS = "guardrail_reports"


class Plain:
    def __init__(self) -> None:
        self.x = [1]


class Model(BaseModel):
    x: list[int] = [1]
    s: Any = None
    guardrail_reports: dict[str, Any] = {}


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    x: list[int] = [1]


class Slots:
    __slots__ = (REPORTS, "s", "x")

    def __init__(self) -> None:
        self.x = [1]


def read_field(state: Any, name: str) -> Any:
    return (
        state[name] if isinstance(state, Mapping | UserDict) else getattr(state, name)
    )


STATES: dict[str, Callable[[], Any]] = {
    "a dict": lambda: {"x": [1]},
    "a mapping of the user": lambda: UserDict(x=[1]),
    "an object": Plain,
    "a pydantic object": Model,
    "a pydantic object with extra fields": Extra,
    "an object with slots": Slots,
}


@pytest.mark.parametrize("store", [None, ":memory:"], ids=["no store", "a store"])
@pytest.mark.parametrize("make", STATES.values(), ids=STATES)
def test_every_kind_of_state(make: Callable[[], Any], store: str | None) -> None:
    """Changed in place, it is at each attempt as it was; feedback is where reports
    are.
    """
    starts: list[Any] = []
    state = make()
    check = check_that_fails(1, 2)

    def s(stage_state: Any) -> int:
        assert stage_state is state
        reports = read_field(stage_state, REPORTS)
        starts.append(
            (
                list(read_field(stage_state, "x")),
                reports.get("s_feedback", "").split("\n")[0],
            )
        )
        read_field(stage_state, "x").append(2)
        return 5

    pipeline = Pipeline("p", store=store, progress=False)
    pipeline.stage(name="s", checks=[check])(s)
    report = run_pipeline(pipeline, state)
    head = "GUARDRAIL FEEDBACK - Critical issues detected in s:"
    assert starts == [([1], ""), ([1], head), ([1], head)]
    assert check.seen == [5, 5, 5]
    assert read_field(state, "x") == [1, 2]
    assert read_field(state, "s") == 5
    assert read_field(state, REPORTS)["s"]["overall_status"] == "passed"
    assert report.state is state


@pytest.mark.parametrize(
    "state", [5, [1], MappingProxyType({}), {"a": 1, ("b",): 2}], ids=repr
)
def test_states_that_are_refused(state: Any, tmp_path: Path) -> None:
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)
    pipeline.stage(name="s")(lambda state: 1)
    with pytest.raises(
        InvalidInput, match=r"state is .*; it must be a mutable mapping"
    ):
        run_pipeline(pipeline, state, id="r")
    assert run_pipeline(pipeline, {}, id="r").passed  # nothing was begun


FROZEN = make_dataclass("FROZEN", [("x", int, 1)], frozen=True)


class Narrow:
    __slots__ = ("x",)


@pytest.mark.parametrize("make", [FROZEN, Narrow])
def test_a_state_that_cannot_hold_an_output_says_so(make: Callable[[], Any]) -> None:
    """A stage that returns nothing may run over it; feedback comes as the parameter."""
    with pytest.raises(InvalidInput, match="it must be one that lets 's' be set"):
        run_stage(lambda state: 1, state=make())
    hints: list[Any] = []

    def hear(state: Any, feedback: str | None = None) -> None:
        hints.append(feedback)

    assert run_stage(hear, check_that_fails(1), state=make()).passed
    assert len(hints) == 2
    assert hints[1].startswith("GUARDRAIL")


# -- what a stage returns


@pytest.mark.parametrize(
    "value",
    [
        False,
        {},
        [1, {"a": None}],
        {"": "é\ud800"},
        float("inf"),
        2**70,
        {"a": float("nan")},
    ],
    ids=ascii,
)
def test_what_a_stage_returns_is_its_output(value: Any, tmp_path: Path) -> None:
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)
    check = check_that_fails()
    pipeline.stage(name="s", checks=[check])(lambda state: value)
    for _ in range(2):
        output = run_pipeline(pipeline, id="r").state["s"]
        assert repr(output) == repr(value)
    assert repr(check.seen) == repr([value])


# -- functions of all kinds


def hear(state: Any, feedback: str | None = None) -> Any:
    return f"{feedback or 'none'}!"


async def hear_later(state: Any, **named: Any) -> Any:
    return hear(state, **named)


class Hearing:
    async def __call__(self, state: Any, feedback: str | None = None) -> Any:
        return hear(state, feedback)


@pytest.mark.parametrize(
    ("function", "hears"),
    [
        pytest.param(hear, True, id="a function"),
        pytest.param(hear_later, True, id="a coroutine"),
        pytest.param(Hearing(), True, id="an object"),
        pytest.param(functools.partial(hear), True, id="a partial function"),
        pytest.param(lambda state, hint: hear(state, hint), True, id="a hint"),
        pytest.param(lambda state: "none", False, id="a lambda without feedback"),
    ],
)
def test_a_function_that_takes_feedback_hears_it(function: Any, hears: bool) -> None:
    check = check_that_fails(1)
    assert run_stage(function, check).passed
    assert [hints.startswith("GUARDRAIL") for hints in check.seen] == [False, hears]


# -- fields


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        pytest.param((1, 2), "tuple of 2", id="a tuple"),
        pytest.param(
            {9: 2}, r"dict of 1 \(at \$: .* other keys\)", id="a number as key"
        ),
        pytest.param(
            [1, (1, 2)], r"list of 2 \(at \$\.1: tuple .*\)", id="a tuple inside"
        ),
        pytest.param(object(), "object", id="an object"),
    ],
)
@pytest.mark.parametrize("place", ["output", "field"])
def test_what_cannot_be_stored_is_kept_and_a_resumed_run_says_so_before_a_stage_runs(
    value: Any, kind: str, place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)

    @pipeline.stage(checks=[check_that_fails(1)])
    def s(state: Any, feedback: str | None = None) -> Any:
        calls.append("s" if feedback is None else "again")
        if place == "output":
            return value
        state["other"] = value
        return 1

    @pipeline.stage
    def after(state: Any) -> None:
        calls.append("after")
        assert state["s" if place == "output" else "other"] is value
        raise OSError("no")

    where = "its output" if place == "output" else "the state's 'other'"
    message = f"stage 's': {where} is a {kind}, which cannot be stored; .* rerun=True"
    for error in (StageFailed, NotJournalable):
        with pytest.raises(error):
            run_pipeline(pipeline, {}, id="r")
    assert re.search(message, caplog.text)
    assert calls == ["s", "again", "after"]


@pytest.mark.parametrize("store", [None, ":memory:"], ids=["no store", "a store"])
@pytest.mark.parametrize(
    ("module", "name"),
    [
        pytest.param("pandas", "DataFrame", id="pandas"),
        pytest.param("polars", "DataFrame", id="polars"),
        pytest.param("pyarrow", "table", id="arrow"),
    ],
)
def test_a_frame_in_the_state_is_kept_and_restored_by_value(
    module: str, name: str, store: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    frame: Callable[[Any], Any] = getattr(import_module(module), name)
    data = {"y": [1.0, None, 3.0]}
    seen: list[Any] = []
    pipeline = Pipeline("p", store=store, progress=False)

    @pipeline.stage(checks=[check_that_fails()])
    def reads(state: Any) -> int:
        return len(state["df"])

    @pipeline.stage(checks=[check_that_fails(1, 2)])
    def changes(state: Any) -> None:
        seen.append(state["df"].equals(frame(data)))
        if module == "pandas":
            state["df"].loc[0, "y"] = 9.0  # in place
        else:
            state["df"] = frame({"y": [9.0, None, 3.0]})

    report = run_pipeline(pipeline, {"df": frame(data)})
    assert report.status == "passed"
    assert seen == [True, True, True]
    assert report.state["df"].equals(frame({"y": [9.0, None, 3.0]}))
    assert ("the state's 'df'" in caplog.text) is (store is not None)
    assert "stage 'reads'" not in caplog.text


def test_rerun_makes_again_what_cannot_be_written_down(tmp_path: Path) -> None:
    import pandas

    calls: list[str] = []
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)

    @pipeline.stage(rerun=True, checks=[check_that_fails(1)])
    def load(state: Any, feedback: str | None = None) -> Any:
        calls.append((feedback or "none").split(" ")[0])
        state["rows"] = 2
        return pandas.DataFrame({"y": [1.0, 2.0]})

    @pipeline.stage(rerun=True)
    def scale(state: Any) -> None:
        calls.append("scale")
        state["load"]["y"] *= 2  # in place: nobody can see it

    @pipeline.stage
    def fails(state: Any) -> float:
        calls.append("fails")
        if calls.count("fails") == 1:
            raise OSError("no")
        return float(state["load"]["y"].sum())

    with pytest.raises(StageFailed):
        run_pipeline(pipeline, {}, id="r")
    assert calls == ["none", "GUARDRAIL", "scale", "fails"]
    report = run_pipeline(pipeline, {}, id="r")
    assert calls[4:] == [
        "GUARDRAIL",
        "scale",
        "fails",
    ]  # the attempt that is kept, as it was told
    assert report.state["fails"] == 6.0
    assert [len(stage.attempts) for stage in report.stages] == [2, 1, 1]
    output = report.stages[0].attempts[0].output
    assert output.startswith("load: DataFrame of 2 × 1 of attempt 1")
    assert output.endswith('\n{"rows": 2}')


def test_secrets_are_stored_nowhere(tmp_path: Path) -> None:
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    path = tmp_path / "a.db"
    pipeline = Pipeline(
        "p", store=str(path), reports=tmp_path / "reports", progress=False
    )

    def finds(output: Any, context: Context) -> list[Finding]:
        return [
            Finding(
                "finds",
                f"there is {secret} in it",
                fix=f"remove {secret}",
                evidence=secret,
            )
        ]

    @pipeline.stage(checks=[finds])
    def s(state: Any) -> Any:
        state["key"] = secret
        return {"token": secret}

    report = run_pipeline(pipeline, {}, id="r")
    assert report.state["s"] == {"token": secret}  # what the stage made is the user's
    assert secret not in str(report.plain())
    assert asyncio.run(report_of(open_store(str(path)), Scope(), "r")) == report
    assert secret not in str(report.state[REPORTS])
    written = list((tmp_path / "reports").iterdir())
    assert len(written) == 5
    for file in [*written, path, *tmp_path.glob("a.db-*")]:
        assert secret.encode() not in file.read_bytes(), file
