"""States and functions of all kinds: what a stage does is undone, kept and restored."""

from __future__ import annotations

import asyncio
import enum
import functools
from collections import Counter, OrderedDict, UserDict, defaultdict
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from pydantic import BaseModel, ConfigDict

from heedful.checks.evaluate import Context, context
from heedful.drive.portal import run_sync
from heedful.errors import (
    InvalidInput,
    ModelError,
    ModelTimeout,
    NotJournalable,
    StageFailed,
    UnknownName,
)
from heedful.lessons.lesson import Scope
from heedful.loop.record import Finding
from heedful.pipeline import Pipeline
from heedful.store.runs import report_of
from heedful.store.sqlite import shared_store
from heedful.testing import ScriptedModel
from tests.pipeline.support import failing, one, ran
from tests.store.support import rows

REPORTS = "guardrail_reports"


class Plain:
    def __init__(self) -> None:
        self.x = [1]


@dataclass
class Data:
    x: list[int] = field(default_factory=lambda: [1])


@dataclass
class Reporting:
    x: list[int] = field(default_factory=lambda: [1])
    s: Any = None
    guardrail_reports: dict[str, Any] = field(default_factory=dict)


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


class Inherited(Slots):
    __slots__ = "y"  # noqa: PLC0205 - one name, as Python allows


def get(state: Any, name: str) -> Any:
    return state[name] if isinstance(state, Mapping | UserDict) else getattr(state, name)


STATES: list[Callable[[], Any]] = [
    lambda: {"x": [1]},
    lambda: UserDict(x=[1]),
    lambda: OrderedDict(x=[1]),
    lambda: SimpleNamespace(x=[1]),
    *(Plain, Data, Reporting, Model, Extra, Slots, Inherited),
]


@pytest.mark.parametrize("store", [None, ":memory:"])
@pytest.mark.parametrize("make", STATES, ids=map(str, range(len(STATES))))
def test_every_kind_of_state(make: Callable[[], Any], store: str | None) -> None:
    """Changed in place, it is at each attempt as it was; feedback is where reports are."""
    begun: list[Any] = []
    state, check = make(), failing(1, 2)

    def s(given: Any) -> int:
        assert given is state
        told = get(given, REPORTS)
        begun.append((list(get(given, "x")), told.get("s_feedback", "").split("\n")[0]))
        get(given, "x").append(2)
        return 5

    pipeline = Pipeline("p", store=store, progress=False)
    pipeline.stage(name="s", checks=[check])(s)
    report = ran(pipeline, state)
    head = "GUARDRAIL FEEDBACK - Critical issues detected in s:"
    assert begun == [([1], ""), ([1], head), ([1], head)]
    assert check.seen == [5, 5, 5]
    assert get(state, "x") == [1, 2]
    assert get(state, "s") == 5
    assert get(state, REPORTS)["s"]["overall_status"] == "passed"
    assert report.state is state


def test_no_state_is_an_empty_one() -> None:
    assert one(lambda state: len(state)).state["s"] == 1  # what heedful tells is in it


@pytest.mark.parametrize(
    "state",
    [5, "text", [1], (1,), MappingProxyType({}), {1: 2}, {"a": 1, ("b",): 2}, frozenset()],
    ids=repr,
)
def test_states_that_are_refused(state: Any, tmp_path: Path) -> None:
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)
    pipeline.stage(name="s")(lambda state: 1)
    with pytest.raises(InvalidInput, match=r"state is .*; it must be a mutable mapping"):
        ran(pipeline, state, id="r")
    assert ran(pipeline, {}, id="r").passed  # nothing was begun


FROZEN = make_dataclass("FROZEN", [("x", int, 1)], frozen=True)


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    x: int = 1


class Forbids(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: int = 1


class Narrow:
    __slots__ = ("x",)


@pytest.mark.parametrize("make", [FROZEN, Frozen, Forbids, Narrow])
def test_a_state_that_cannot_hold_an_output_says_so(make: Callable[[], Any]) -> None:
    """A stage that returns nothing may run over it; feedback comes as the parameter."""
    with pytest.raises(InvalidInput, match="it must be one that lets 's' be set"):
        one(lambda state: 1, state=make())
    said: list[Any] = []

    def told(state: Any, feedback: str | None = None) -> None:
        said.append(feedback)

    assert one(told, failing(1), state=make()).passed
    assert len(said) == 2
    assert said[1].startswith("GUARDRAIL")


# -- what a stage returns


@pytest.mark.parametrize(
    "value",
    [0, 0.0, False, [], {}, 1.5, "text", [1, {"a": None}], {"": "é\ud800"}, float("inf"), 2**70],
    ids=ascii,
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_what_a_stage_returns_is_its_output(value: Any, kind: str, tmp_path: Path) -> None:
    async def later(state: Any) -> Any:
        return value

    check = failing()
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)
    pipeline.stage(name="s", checks=[check])(later if kind == "async" else lambda state: value)
    report = ran(pipeline, id="r")
    assert check.seen == [value]
    assert type(check.seen[0]) is type(value)
    assert report.state["s"] == value
    assert ran(pipeline, id="r").state["s"] == value


def test_an_output_that_has_no_words_is_an_empty_answer() -> None:
    report = one(lambda state: " ", failing())
    assert report.stages[0].attempts[0].failed_checks_summary == ["answer: the answer is empty"]


def test_an_output_that_is_what_it_was_is_still_the_output() -> None:
    check = failing(1)
    report = one(lambda state: 5, check, state={"s": 5})
    assert check.seen == [5, 5]
    assert report.state["s"] == 5


@pytest.mark.parametrize("value", [None, "state"])
def test_without_an_output_checks_see_the_state(value: Any) -> None:
    seen: list[Any] = []

    def check(output: Any, at: Context) -> list[Finding]:
        seen.append(output["x"])
        assert output is at.data
        return []

    def s(state: Any) -> Any:
        state["x"] = 2
        return state if value == "state" else None

    assert "s" not in one(s, check, state={"x": 1}).state
    assert seen == [2]


def test_nan_survives_where_it_is_written_down(tmp_path: Path) -> None:
    """Json has no word for it, and a check of it must see it, in the first process and the next."""
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)
    check = failing()
    pipeline.stage(name="s", checks=[check])(lambda state: {"rmse": float("nan"), "n": ["NaN"]})
    for _ in range(2):
        report = ran(pipeline, id="r")
        assert report.state["s"]["rmse"] != report.state["s"]["rmse"]
        assert report.state["s"]["n"] == ["NaN"]
    assert check.seen[0]["rmse"] != check.seen[0]["rmse"]


# -- functions of all kinds


class Called:
    def __call__(self, state: Any, feedback: str | None = None) -> Any:
        return feedback or "none"


class CalledLater:
    async def __call__(self, state: Any, feedback: str | None = None) -> Any:
        return feedback or "none"


class Methods:
    def told(self, state: Any, feedback: str | None = None) -> Any:
        return feedback or "none"

    @classmethod
    def of_class(cls, state: Any, feedback: str | None = None) -> Any:
        return feedback or "none"

    @staticmethod
    def static(state: Any, feedback: str | None = None) -> Any:
        return feedback or "none"


def told(state: Any, feedback: str | None = None) -> Any:
    return feedback or "none"


async def told_later(state: Any, feedback: str | None = None) -> Any:
    await asyncio.sleep(0)
    return feedback or "none"


def more(factor: int, state: Any, *, feedback: str | None = None) -> Any:
    return feedback or "none"


def wrapped(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return wrapper


def any_names(state: Any, **named: Any) -> Any:
    return named.get("feedback") or "none"


@pytest.mark.parametrize(
    "function",
    [
        told,
        told_later,
        Called(),
        CalledLater(),
        Methods().told,
        Methods.of_class,
        Methods.static,
        functools.partial(more, 2),
        functools.partial(told_later),
        functools.partial(Called()),
        wrapped(told),
        wrapped(told_later),
        lambda state, feedback=None: feedback or "none",
        lambda state, feedback=None: told_later(state, feedback),
        any_names,
    ],
    ids=map("told {}".format, range(15)),
)
@pytest.mark.parametrize("store", [None, ":memory:"])
def test_functions_that_are_told(function: Any, store: str | None) -> None:
    check = failing(1)
    pipeline = Pipeline("p", store=store, progress=False)
    pipeline.stage(name="s", checks=[check])(function)
    ran(pipeline)
    assert check.seen[0] == "none"
    assert check.seen[1].startswith("GUARDRAIL")


def quiet(state: Any) -> int:
    return 1


def narrowed(state: Any, feedback: str | None = None) -> int:
    raise AssertionError("its wrapper is called")


@functools.wraps(narrowed)
def narrow(state: Any) -> int:
    return 1


@pytest.mark.parametrize(
    "function", [quiet, wrapped(quiet), narrow, functools.partial(quiet)], ids="abcd"
)
def test_functions_that_are_not_told(function: Any) -> None:
    assert one(function, failing(1)).passed


@pytest.mark.parametrize(
    "function", [functools.partial(told), Called(), functools.partial(told_later)], ids="abc"
)
def test_a_function_without_a_name_is_given_one(function: Any) -> None:
    pipeline = Pipeline("p", store=None)
    with pytest.raises(InvalidInput, match="name of a stage is ''"):
        pipeline.stage(function)


# -- fields


class Colour(enum.IntEnum):
    RED = 1


@pytest.mark.parametrize("store", [None, ":memory:"])
def test_values_keep_their_types_between_attempts(store: str | None) -> None:
    """What JSON would make plain again, an attempt finds as the one before did."""
    begun: list[Any] = []

    def s(state: Any) -> None:
        begun.append([type(state[name]) for name in ("counts", "lists", "colour")])
        state["counts"]["a"] += 1
        state["lists"]["b"].append(1)
        state["colour"] = 2

    state: dict[str, Any] = {
        "counts": Counter(),
        "lists": defaultdict(list),
        "colour": Colour.RED,
    }
    pipeline = Pipeline("p", store=store, progress=False)
    pipeline.stage(name="s", checks=[failing(1, 2)])(s)
    ran(pipeline, state)
    assert begun == [[Counter, defaultdict, Colour]] * 3
    assert (state["counts"], state["lists"]) == ({"a": 1}, {"b": [1]})


@pytest.mark.parametrize("store", [None, ":memory:"])
@pytest.mark.parametrize("how", ["continue", "best"])
def test_fields_that_go_and_come_back(store: str | None, how: Any) -> None:
    begun: list[Any] = []

    def s(state: Any) -> None:
        begun.append(deepcopy({name: state[name] for name in state if name != REPORTS}))
        del state["gone"]
        state["replaced"] = len(begun)
        state["deep"]["a"][0] = len(begun)
        state[f"new{len(begun)}"] = 1

    first = {"gone": 1, "replaced": 0, "deep": {"a": [0]}, "kept": (1, 2)}
    pipeline = Pipeline("p", store=store, on_exhausted=how, progress=False)
    pipeline.stage(name="s", checks=[failing(1, 2, 3), failing(1, 3, name="b")])(s)
    state = {**first, "deep": {"a": [0]}}
    ran(pipeline, state)
    assert begun == [first] * 3
    n = 2 if how == "best" else 3
    del state[REPORTS]
    assert state == {"replaced": n, "deep": {"a": [n]}, f"new{n}": 1, "kept": (1, 2)}


@pytest.mark.parametrize(
    ("value", "kind"), [((1, 2), "tuple"), ({1: 2}, "dict"), (object(), "object"), (b"x", "bytes")]
)
@pytest.mark.parametrize("place", ["output", "field"])
def test_what_cannot_be_written_down_is_named(value: Any, kind: str, place: str) -> None:
    def s(state: Any) -> Any:
        state["half"] = 1
        if place == "output":
            return value
        state["other"] = value
        return 1

    pipeline = Pipeline("p", store=":memory:", progress=False)
    pipeline.stage(name="s")(s)
    where = "its output" if place == "output" else "what it left in the state as 'other'"
    state: dict[str, Any] = {}
    with pytest.raises(NotJournalable) as caught:
        ran(pipeline, state)
    assert str(caught.value) == (
        f"stage 's': {where} is a {kind}, which cannot be written down, so the run could not go on "
        "after a crash; save it to a file and keep the path, declare the stage with rerun=True (it "
        "runs again when the run is resumed), or use store=None"
    )
    assert "half" not in state
    check = failing(1)
    report = one(s, check)  # without a store there is nothing to write
    assert report.passed
    assert report.state["s" if place == "output" else "other"] is value


def test_rerun_makes_again_what_cannot_be_written_down(tmp_path: Path) -> None:
    calls: list[str] = []
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)

    @pipeline.stage(rerun=True, checks=[failing(1)])
    def load(state: Any, feedback: str | None = None) -> pd.DataFrame:
        calls.append((feedback or "none").split(" ")[0])
        state["rows"] = 2
        return pd.DataFrame({"y": [1.0, 2.0]})

    @pipeline.stage(rerun=True)
    def scale(state: Any) -> None:
        calls.append("scale")
        state["load"]["y"] *= 2  # in place: nobody can see it

    @pipeline.stage
    def fails(state: Any) -> float:
        calls.append("fails")
        if calls.count("fails") == 1:
            raise ValueError("no")
        return float(state["load"]["y"].sum())

    with pytest.raises(StageFailed):
        ran(pipeline, {}, id="r")
    assert calls == ["none", "GUARDRAIL", "scale", "fails"]
    report = ran(pipeline, {}, id="r")
    assert calls[4:] == ["GUARDRAIL", "scale", "fails"]  # the attempt that is kept, as it was told
    assert report.state["fails"] == 6.0
    assert [len(stage.attempts) for stage in report.stages] == [2, 1, 1]


def test_a_rerun_that_raises_says_which_stage(tmp_path: Path) -> None:
    pipeline, calls = Pipeline("p", store=str(tmp_path / "a.db"), progress=False), []

    @pipeline.stage(rerun=True)
    def load(state: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("gone")
        return object()

    ran(pipeline, {}, id="r")
    with pytest.raises(StageFailed, match=r"stage 'load' raised ValueError: 'gone'.*id='r'"):
        ran(pipeline, {}, id="r")


def test_secrets_are_stored_nowhere(tmp_path: Path) -> None:
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    path = tmp_path / "a.db"
    pipeline = Pipeline("p", store=str(path), reports=tmp_path / "reports", progress=False)

    def finds(output: Any, at: Context) -> list[Finding]:
        return [Finding("finds", f"there is {secret} in it", f"remove {secret}", evidence=secret)]

    @pipeline.stage(checks=[finds])
    def s(state: Any) -> Any:
        state["key"] = secret
        return {"token": secret}

    report = ran(pipeline, {}, id="r")
    assert report.state["s"] == {"token": secret}  # what the stage made is the user's
    assert secret not in str(report.plain())
    assert asyncio.run(report_of(shared_store(str(path)), Scope(), "r")) == report
    assert secret not in str(report.state[REPORTS])
    written = list((tmp_path / "reports").iterdir())
    assert len(written) == 6
    for file in [*written, path, *tmp_path.glob("a.db-*")]:
        assert secret.encode() not in file.read_bytes(), file


def test_a_huge_output(tmp_path: Path) -> None:
    """5 MB, stored, restored and reported."""
    huge = ["x" * 99] * 50_000
    check = failing()
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)
    pipeline.stage(name="s", checks=[check])(lambda state: huge)
    for _ in range(2):
        assert ran(pipeline, id="r").state["s"] == huge
    assert check.seen == [huge]


def test_a_state_of_another_kind_is_to_blame_and_no_check(tmp_path: Path) -> None:
    calls: list[int] = []

    def check(output: Any, at: Context) -> list[Finding]:
        calls.append(output)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return []

    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)
    pipeline.stage(name="s", checks=[check])(lambda state: 1)
    with pytest.raises(KeyboardInterrupt):
        ran(pipeline, {}, id="r")
    with pytest.raises(StageFailed, match="one that lets 's' be set"):
        ran(pipeline, Frozen(), id="r")
    assert ran(pipeline, {}, id="r").passed
    assert calls == [1, 1]


# -- stages that a model writes


def prompted(*lines: Any, store: Any = None, **options: Any) -> tuple[Pipeline, ScriptedModel]:
    model = ScriptedModel(*lines)
    pipeline = Pipeline("p", store=store, progress=False)

    @pipeline.stage(model=model, **options)
    def insights(state: Any) -> str:
        return f"Say what is seen in {state['x']}."

    return pipeline, model


@pytest.mark.parametrize("store", [None, ":memory:"])
def test_feedback_reaches_the_model(store: str | None) -> None:
    check = failing(1, 2)
    pipeline, model = prompted("one", "two", "three", store=store, checks=[check])
    report = ran(pipeline, {"x": [1, 2]})
    assert check.seen == ["one", "two", "three"]
    assert report.state["insights"] == "three"
    first, second, _ = (prompt[-1].content for prompt in model.prompts)
    assert first == "Say what is seen in [1, 2]."
    assert second.startswith("GUARDRAIL FEEDBACK - Critical issues detected in insights:\n- looks")
    assert second.endswith("regenerate the output.\n\nSay what is seen in [1, 2].")
    assert report.usage.calls == 3


def test_a_model_that_fails_leaves_the_run_to_be_resumed(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    for lines, raised in ((["one", ModelError("gone")], ModelError), (["two"], None)):
        pipeline, model = prompted(*lines, store=path, checks=[failing(1)])
        if raised:
            with pytest.raises(raised, match="gone"):
                ran(pipeline, {"x": 1}, id="r")
        else:
            report = ran(pipeline, {"x": 1}, id="r")
            assert len(model.prompts) == 1
            assert "GUARDRAIL" in model.prompts[0][-1].content
            assert report.state["insights"] == "two"
            assert [len(s.attempts) for s in report.stages] == [2]
    stored = rows(path, "select value from attempt order by loop, number")
    assert [value for (value,) in stored if "p" not in value] == ['"one"', '"two"']


def test_the_best_text_of_a_model_is_kept() -> None:
    pipeline, _ = prompted(
        "one",
        "two",
        "three",
        checks=[failing(1, 2, 3), failing(1, 3, name="b")],
        on_exhausted="best",
    )
    assert ran(pipeline, {"x": 1}).state["insights"] == "two"


@pytest.mark.parametrize("prompt", [None, 5, b"x"])
def test_a_prompt_is_text(prompt: Any) -> None:
    with pytest.raises(InvalidInput, match=r"the prompt of stage 's' is .*it must be text"):
        one(lambda state: prompt, model=ScriptedModel("x"))


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_prompts_come_from_functions_of_both_colours(kind: str) -> None:
    async def later(state: Any) -> str:
        return "prompt"

    model = ScriptedModel("text")
    function: Any = later if kind == "async" else lambda state: "prompt"
    assert one(function, model=model).state["s"] == "text"
    assert model.prompts[0][-1].content == "prompt"


def test_a_model_that_times_out_by_itself_is_not_the_stage() -> None:
    with pytest.raises(ModelTimeout, match="slow"):
        one(lambda state: "x", model=ScriptedModel(ModelTimeout("slow today")))


def test_a_model_that_takes_longer_than_the_stage_may() -> None:
    pipeline = Pipeline("p", store=None, progress=False)
    model = ScriptedModel("x", seconds=60)
    pipeline.stage(name="s", model=model, timeout=0.05)(lambda state: "prompt")
    with pytest.raises(StageFailed, match=r"'attempt 1 had no result in 0\.05 s'; fix it$"):
        ran(pipeline)


def test_names_of_models() -> None:
    with pytest.raises(UnknownName, match="nobody-knows-this"):
        one(lambda state: "x", model="nobody-knows-this")


@pytest.mark.parametrize("left", [None, 5, []])
def test_a_stage_that_takes_the_reports_away_is_told_all_the_same(left: Any) -> None:
    said: list[Any] = []

    def s(state: Any, feedback: str | None = None) -> int:
        said.append(feedback)
        del state[REPORTS]
        if left is not None:
            state[REPORTS] = left
        return 1

    report = one(s, failing(1))
    assert said[1].startswith("GUARDRAIL")
    assert report.state[REPORTS]["s"]["attempt"] == 2
    assert report.state[REPORTS]["s_feedback"] == said[1]


def test_pipelines_within_pipelines(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    inner, outer = (Pipeline(name, store=path, progress=False) for name in ("inner", "outer"))
    inner.stage(name="s", checks=[failing(1)])(lambda state: state["n"] + 1)

    @outer.stage
    async def later(state: Any) -> Any:
        return (await inner.run({"n": 1})).state["s"]

    @outer.stage(checks=[failing(1)])
    def now(state: Any, feedback: str | None = None) -> Any:
        assert (feedback is None) == (context().attempt == 1)
        return run_sync(inner.run({"n": 10})).state["s"]

    report = ran(outer)
    assert (report.state["later"], report.state["now"]) == (2, 11)
