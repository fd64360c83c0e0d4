"""A stage that raises leaves the run failed, with the error, the stage and the time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful import errors
from heedful.lessons.lesson import Scope
from heedful.pages.questions import summarize_run
from heedful.pages.run_report import html
from heedful.pipeline import Pipeline
from heedful.store import loops, open_store
from heedful.store.runs import report_of
from heedful.store.store import Store
from heedful.testing import ScriptedModel
from tests.tables import cases

pytestmark = pytest.mark.both_nightly
KEY = "sk-proj-" + "a1B2" * 10


def failing_pipeline(store: Store | None, error: BaseException | None) -> Pipeline:
    pipeline = Pipeline("p", store=store, progress=False)
    pipeline.stage(name="load")(lambda state: 1)

    @pipeline.stage
    def send(state: Any) -> int:
        if error is not None:
            raise error
        return 2

    pipeline.stage(name="report")(lambda state: 3)
    return pipeline


async def test_a_run_whose_stage_raised_is_failed_with_error_stage_and_time(
    store: Store,
) -> None:
    before = time.time()
    error = ConnectionError(f"no answer to token={KEY}")
    with pytest.raises(errors.StageFailed):
        await failing_pipeline(store, error).run({}, id="r")

    report = await report_of(store, Scope(), "r")
    assert report.status == "failed"
    actions = [stage.action for stage in report.stages]
    assert actions == ["passed", "raised", "not_run"]
    failure = report.stage("send").failure
    assert failure is not None
    assert failure.error.startswith("ConnectionError: 'no answer to token=[redacted")
    assert "test_failing.py:" in failure.error
    assert before <= failure.at <= time.time()
    stored_run = await store.read(Scope(), loops.read, "r")
    assert stored_run.shown_state == "failed"
    assert stored_run.failure.startswith("Stage send failed: ConnectionError")
    assert report.plain()["stages"][1]["failure"]["error"] == failure.error


@cases("face", {"terminal": "\n".join, "page": None})
async def test_every_face_shows_the_error_without_secrets(
    store: Store, face: Any
) -> None:
    error = ConnectionError(f"no answer to token={KEY}")
    with pytest.raises(errors.StageFailed):
        await failing_pipeline(store, error).run({}, id="r")
    report = await report_of(store, Scope(), "r")
    text = face(summarize_run(report)) if face else html(report)
    assert "Failed: send raised ConnectionError" in text
    assert KEY not in text


async def test_a_resumed_run_is_open_while_it_runs_and_then_passed(
    store: Store,
) -> None:
    with pytest.raises(errors.StageFailed):
        await failing_pipeline(store, OSError("full")).run({}, id="r")

    statuses: list[str] = []
    pipeline = Pipeline("p", store=store, progress=False)
    pipeline.stage(name="load")(lambda state: 1)

    @pipeline.stage
    async def send(state: Any) -> int:
        report = await report_of(store, Scope(), "r")
        statuses.append(report.status)
        return 2

    pipeline.stage(name="report")(lambda state: 3)
    report = await pipeline.run({}, id="r")
    assert statuses == ["open"]
    assert report.status == "passed"


@cases(
    "stage",
    {
        "no prompt": lambda state: state["missing"],
        "no answer of the model": lambda state: "Say it.",
    },
)
async def test_a_stage_whose_model_or_prompt_fails_is_named_too(
    store: Store, stage: Any
) -> None:
    pipeline = Pipeline("p", store=store, progress=False)
    model = ScriptedModel(errors.ModelUnavailable("no key"))
    pipeline.stage(name="write", model=model)(stage)
    with pytest.raises((errors.StageFailed, errors.ModelError)):
        await pipeline.run({}, id="r")
    report = await report_of(store, Scope(), "r")
    assert report.status == "failed"
    assert report.stage("write").failure is not None


PROGRAM = """
import os, signal, sys
import heedful

pipeline = heedful.Pipeline("p", store="a.db", progress=False)

@pipeline.stage
def load(state):
    return 1

@pipeline.stage
def send(state):
    if sys.argv[1] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "raises":
        raise OSError("full")
    return 2

heedful.run_sync(pipeline.run({}, id="r"))
"""


@cases(
    ("ways", "status"),
    {
        "killed in a stage": (["dies"], "open"),
        "killed after it failed": (["raises", "dies"], "open"),
        "failed after it was killed": (["dies", "raises"], "failed"),
        "done after both": (["raises", "dies", "works"], "passed"),
    },
)
def test_a_killed_process_leaves_the_run_open(
    tmp_path: Path, ways: list[str], status: str
) -> None:
    for way in ways:
        command = [sys.executable, "-c", PROGRAM, way]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    store = open_store(str(tmp_path / "a.db"))
    report = asyncio.run(report_of(store, Scope(), "r"))
    assert report.status == status
    assert report.stage("load").status == "unchecked"


# -- transient errors


class Flaky:
    """A function that raises this error before it answers."""

    def __init__(self, failures: int, error: type[Exception] = ConnectionError) -> None:
        self.failures = failures
        self.error = error
        self.states: list[dict[str, Any]] = []

    def __call__(self, state: Any) -> str:
        self.states.append({"seen": state.get("begun")})
        state["begun"] = True
        if len(self.states) <= self.failures:
            raise self.error("gone")
        return "sent"


def flaky_pipeline(store: Store | None, flaky: Flaky, **options: Any) -> Pipeline:
    pipeline = Pipeline("p", store=store, progress=False)
    options = {"retry_on": [ConnectionError], "wait": [0, 0], **options}
    pipeline.stage(name="send", **options)(flaky)
    return pipeline


@pytest.mark.parametrize("durable", [False, True], ids=["no store", "store"])
async def test_a_transient_error_repeats_the_call_within_the_attempt(
    store: Store, durable: bool
) -> None:
    flaky = Flaky(2)
    report = await flaky_pipeline(store if durable else None, flaky).run({}, id="r")
    assert [attempt.attempt for attempt in report.stages[0].attempts] == [1]
    assert report.state["send"] == "sent"
    assert flaky.states == [{"seen": None}] * 3  # each call begins with the same state
    if durable:
        stored_loop = await store.read(Scope(), loops.read, "r/send")
        assert stored_loop.loop.usage.calls == 3


async def test_an_error_that_lasts_names_the_number_of_calls(store: Store) -> None:
    flaky = Flaky(9)
    with pytest.raises(errors.StageFailed, match="at the last of 3 calls") as caught:
        await flaky_pipeline(store, flaky).run({}, id="r")
    assert caught.value.calls == 3
    assert isinstance(caught.value.__cause__, ConnectionError)
    report = await report_of(store, Scope(), "r")
    failure = report.stages[0].failure
    assert failure is not None
    assert "at the last of 3 calls" in failure.error


@cases(
    ("options", "error", "calls"),
    {
        "another error": ({}, OSError, 1),
        "no error is listed": ({"retry_on": []}, ConnectionError, 1),
        "no wait": ({"wait": []}, ConnectionError, 1),
        "a budget is spent": ({"policy": "budget.calls=2"}, ConnectionError, 2),
    },
)
async def test_no_further_call_is_made_for(
    store: Store, options: dict[str, Any], error: type[Exception], calls: int
) -> None:
    flaky = Flaky(9, error)
    with pytest.raises(errors.StageFailed):
        await flaky_pipeline(store, flaky, **options).run({}, id="r")
    assert len(flaky.states) == calls


@cases("is_model", {"function": False, "model": True})
async def test_a_loop_repeats_calls_too(store: Store, is_model: bool) -> None:
    model = ScriptedModel(errors.ModelUnavailable("restarts"), "done")
    calls: list[str] = []

    def generate(task: str, hint: str) -> str:
        calls.append(hint)
        if len(calls) == 1:
            raise ConnectionError("restarts")
        return "done"

    result = await heedful.run(
        "Do it.",
        generate=model if is_model else generate,
        checks=[heedful.checks.contains("done")],
        retry_on=[ConnectionError, errors.ModelUnavailable],
        wait=[0],
        store=store,
    )
    assert result.passed
    assert result.attempts == 1
    assert result.usage.calls == 2


@cases(
    "options",
    {
        "one class": {"retry_on": ConnectionError},
        "no class": {"retry_on": ["ConnectionError"]},
        "one number": {"wait": 5},
        "a negative number": {"wait": [-1]},
    },
)
def test_options_of_retries_are_checked(options: dict[str, Any]) -> None:
    pipeline = Pipeline("p", store=None)
    with pytest.raises(errors.InvalidInput):
        pipeline.stage(name="a", **options)(lambda state: 1)
