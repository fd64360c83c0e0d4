"""What a run of a pipeline does, attempt by attempt, and what it says of it."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from heedful import policies
from heedful.checks.evaluate import Context
from heedful.errors import Conflict, InvalidInput, LeaseLost, StageFailed
from heedful.lessons.lesson import Scope
from heedful.loop.record import Evaluation, Goal
from heedful.pipeline import Guardrails, Pipeline
from heedful.pipeline.pipeline import MAX_STAGE_NAME_BYTES
from heedful.store.runs import report_of
from tests.pipeline.support import (
    check_that_fails,
    check_that_raises,
    run_pipeline,
    run_stage,
)
from tests.tables import cases


def stage_that_hears(hints: list[Any]) -> Any:
    def stage(state: Any, feedback: str | None = None) -> int:
        hints.append(feedback)
        return len(hints)

    return stage


# -- attempts, and what is said between them


@cases("store", {"no store": None, "a store": ":memory:"})
@cases(
    ("how", "status", "action", "kept_attempt", "seen"),
    {
        "continue with the last": ("continue", "degraded", "continued", 3, [["s"]]),
        "go on with the best": ("best", "degraded", "best", 2, [["s"]]),
        "halt": ("halt", "halted", "halted", 3, []),
    },
)
def test_exhaustion_after_exactly_3_attempts(
    store: str | None,
    how: Any,
    status: str,
    action: str,
    kept_attempt: int,
    seen: list[Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    hints: list[Any] = []
    later: list[Any] = []
    pipeline = Pipeline("p", store=store, on_exhausted=how, progress=False)
    checks = [check_that_fails(1, 2, 3), check_that_fails(1, 3, name="other")]
    pipeline.stage(name="s", checks=checks)(stage_that_hears(hints))

    @pipeline.stage
    def after(state: Any) -> None:
        later.append((state["s"], state["guardrail_reports"]["degraded"]))

    report = run_pipeline(pipeline)
    assert len(hints) == 3
    assert report.status == status
    assert report.passed is False
    assert report.stages[0].action == action
    assert report.stages[0].kept == kept_attempt
    assert report.state["s"] == kept_attempt
    assert later == [(kept_attempt, names) for names in seen]
    assert report.stages[1].status == ("unchecked" if seen else "not_run")
    assert all(attempt.requires_retry for attempt in report.stages[0].attempts)
    log = "Max retries reached for s, continuing despite failures"
    assert (log in caplog.text) is (how == "continue")


# -- checks that raise


def test_a_check_that_raises_is_asked_again_then_the_stage_is_not_validated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hints: list[int] = []
    check = check_that_raises(1)
    settings = Guardrails(max_check_attempts=3)
    pipeline = Pipeline(
        "p", store=None, on_unvalidated="halt", settings=settings, progress=False
    )
    pipeline.stage(name="s", checks=[check_that_fails(), check])(
        stage_that_hears(hints)
    )
    report = run_pipeline(pipeline)
    assert len(hints) == 1  # the output is not to blame
    assert check.asked == [1] * 3
    assert report.status == "halted"
    assert report.stages[0].action == "halted"
    (attempt,) = report.stages[0].attempts
    assert attempt.overall_status == "not_validated"
    assert not attempt.requires_retry
    assert [c.status for c in attempt.checks] == ["passed", "not_validated"]
    assert "RuntimeError" in attempt.checks[1].message
    assert "fix the check" in attempt.checks[1].suggestion
    assert "stage s is not validated" in caplog.text
    assert "Max retries" not in caplog.text


def test_an_evaluator_that_raises_leaves_its_goals_unjudged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def score(output: Any, context: Context) -> Evaluation:
        raise RuntimeError("no score today")

    report = run_stage(lambda state: 1, evaluate=score, goals=[Goal("quality", 0.5)])
    (stage,) = report.stages
    assert stage.status == "not_validated"
    assert stage.action == "continued"
    assert stage.kept == 1
    read_statuses = {c.check_name: c.status for c in stage.attempts[0].checks}
    assert read_statuses == dict.fromkeys(("score", "quality"), "not_validated")
    assert "Max retries" not in caplog.text


# -- stages that fail


def test_a_stage_that_raises_can_be_resumed_where_it_is_stored(tmp_path: Path) -> None:
    calls: list[int] = []
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)
    pipeline.stage(name="first")(lambda state: calls.append(1))

    @pipeline.stage(checks=[check_that_fails(1)])
    def second(state: Any) -> int:
        calls.append(2)
        if len(calls) == 3:
            raise OSError("secret token ghp_0123456789abcdefghijABCDEFGHIJ012345")
        return len(calls)

    again = r" \(test_pipeline.py:\d+\); fix it; finished stages are stored, run again "
    again += "with id='r'$"
    with pytest.raises(
        StageFailed, match=rf"^stage 'second' raised OSError: .*{again}"
    ) as caught:
        run_pipeline(pipeline, {}, id="r")
    assert "ghp_" not in str(caught.value)
    assert caught.value.stage == "second"
    assert caught.value.run == "r"
    report = run_pipeline(pipeline, {}, id="r")
    assert calls == [1, 2, 2, 2]
    assert report.status == "passed"
    assert report.state["second"] == 4


async def test_one_run_at_a_time_has_an_id_and_a_cancelled_one_resumes(
    tmp_path: Path,
) -> None:
    running = asyncio.Event()
    calls = []
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)

    @pipeline.stage
    async def s(state: Any) -> int:
        state["half"] = True
        calls.append(1)
        running.set()
        if len(calls) == 1:
            await asyncio.Event().wait()
        return 1

    state: dict[str, Any] = {}
    run = asyncio.create_task(pipeline.run(state, id="r"))
    await running.wait()
    with pytest.raises(
        LeaseLost, match=r"'r' is being driven by another task of this process; wait"
    ):
        await pipeline.run({}, id="r")  # two runs at once under one id
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert "half" not in state
    assert (await pipeline.run(state, id="r")).passed
    assert len(calls) == 2


async def test_a_thread_that_was_given_up_puts_nothing_into_the_state() -> None:
    pipeline = Pipeline("p", store=":memory:", progress=False)
    calls: list[int] = []
    go = threading.Event()

    @pipeline.stage(timeout=1)
    def s(state: Any) -> str:
        calls.append(1)
        if len(calls) > 1:
            return "second"
        go.wait()
        return "first"

    state: dict[str, Any] = {}
    with pytest.raises(StageFailed, match="'attempt 1 had no result in 1 s'"):
        await pipeline.run(state, id="r")
    assert (await pipeline.run(state, id="r")).passed
    go.set()
    await asyncio.get_running_loop().shutdown_default_executor()  # when it has ended
    assert state["s"] == "second"


# -- durable runs


def test_the_same_id_again_runs_nothing_and_reports_the_same(tmp_path: Path) -> None:
    calls: list[str] = []
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)

    @pipeline.stage(checks=[check_that_fails(1)])
    def first(state: Any) -> None:
        calls.append("first")
        state["log"].append(len(calls))
        state.pop("gone", None)

    @pipeline.stage(checks=[check_that_fails(1, 2, 3)], on_exhausted="best")
    def second(state: Any) -> list[int]:
        calls.append("second")
        return [*state["log"], len(calls)]

    state: dict[str, Any] = {"log": [], "gone": 1}
    report = run_pipeline(pipeline, state, id="r")
    done = list(calls)
    # The state as it was given, and as the run left it.
    for again in ({"log": [], "gone": 1}, state):
        other = run_pipeline(pipeline, again, id="r")
        assert other == report
        assert other.plain() == report.plain()
        assert again["log"] == [2]
        assert again["second"] == [2, 3]
        assert again["guardrail_reports"] == state["guardrail_reports"]
        assert "gone" not in again
    assert calls == done
    store = cast("Any", pipeline.store)
    stored_report = asyncio.run(report_of(store, Scope(), "r"))
    assert stored_report == report


def test_the_run_of_another_pipeline_is_a_conflict(tmp_path: Path) -> None:
    store = str(tmp_path / "a.db")
    pipeline = Pipeline("p", store=store, progress=False)
    pipeline.stage(name="s")(lambda state: 1)
    run_pipeline(pipeline, {}, id="r")
    other = Pipeline("q", store=store, progress=False)
    other.stage(name="s")(lambda state: 1)
    with pytest.raises(Conflict, match=r"'r' is about another task.*give another id"):
        run_pipeline(other, {}, id="r")


@cases("failures", {"an ended run": [], "an interrupted run": [OSError()]})
def test_the_same_id_with_another_initial_state_is_a_conflict(
    failures: list[OSError], tmp_path: Path
) -> None:
    pipeline = Pipeline("p", store=str(tmp_path / "a.db"), progress=False)

    @pipeline.stage
    def load(state: Any) -> Any:
        state["n"] += 1
        return state["x"]

    @pipeline.stage
    def show(state: Any) -> None:
        if failures:
            raise failures.pop()

    def run(**fields: Any) -> Any:
        state = {"x": 1, "csv": Path("a"), "n": 0, **fields}
        return run_pipeline(pipeline, state, id="r").state

    with suppress(StageFailed):
        run(lock=object())
    for other in ({"x": 2}, {"csv": Path("b")}, {"y": 1}):
        with pytest.raises(Conflict, match=r"'r' began with another state\['"):
            run(**other)
    # Neither an object nor a field that a stage has set is compared.
    assert run(n=7)["n"] == 1


# -- what is refused


@cases(
    "name",
    {
        "empty": "",
        "a space": " ",
        "a slash": "a/b",
        "too long in bytes": "é" * MAX_STAGE_NAME_BYTES,
        "a number": 5,
        "a secret": "sk-" + "a1B2" * 12,
    },
)
def test_names_that_are_refused(name: Any) -> None:
    with pytest.raises(InvalidInput, match="name of a pipeline is"):
        Pipeline(name, store=None)
    with pytest.raises(InvalidInput, match="name of a stage is"):
        Pipeline("p", store=None).stage(name=name or " ")(lambda state: 1)
    if name:
        pipeline = Pipeline("p", store=None)
        pipeline.stage(name="s")(lambda state: 1)
        with pytest.raises(InvalidInput, match="id of a run is"):
            run_pipeline(pipeline, {}, id=name)


@cases(
    ("options", "message"),
    {
        "retries beside a policy": (
            {"retries": 1, "policy": policies.stage},
            "absent if there is a policy",
        ),
        "a number as policy": ({"policy": 3}, "policy is 3"),
        "no time": ({"timeout": 0}, "timeout is 0"),
        "a number as model": ({"model": 3}, "generate is 3"),
        "a parameter that nobody fills": (
            {"then": [lambda state, notes: 1]},
            "<lambda>(state, notes)'; it must be a function of the state, or of",
        ),
    },
)
def test_options_of_a_stage_that_are_refused(
    options: dict[str, Any], message: str
) -> None:
    pipeline = Pipeline("p", store=None)
    with pytest.raises(InvalidInput) as caught:
        pipeline.stage(name="s", **options)(lambda state: 1)
    assert message in str(caught.value)
    assert pipeline.stages == ()


# -- settings

DEFAULTS = {
    "max_stage_retries": (2, ""),
    "max_check_attempts": (2, "max_guardrail_attempts"),
    "deviation_sigma": (10.0, "PREDICTION_DEVIATION_THRESHOLD"),
    "spread_ratio_min": (0.1, "VARIANCE_RATIO_MIN"),
    "spread_ratio_max": (5.0, "VARIANCE_RATIO_MAX"),
    "constant_relative_std": (0.01, "CONSTANT_PREDICTION_THRESHOLD"),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_settings_have_defaults_names_and_older_names(name: str) -> None:
    default, older = DEFAULTS[name]
    assert getattr(Guardrails.of({"PATH": "/bin", "OTHER": "x"}), name) == default
    for spelling in filter(None, (name, name.upper(), older, older.lower())):
        for form in ("{}", "HEEDFUL_{}", "heedful_{}"):
            setting = getattr(Guardrails.of({form.format(spelling): " 3 "}), name)
            assert setting == 3
            assert type(setting) is type(default)
    for settings in ({older: "7", name: "3"}, {name: "3", older: "7"}):
        assert getattr(Guardrails.of(settings), name) == 3
    assert (name in Guardrails().thresholds) == (not name.startswith("max_"))


def test_a_word_as_a_number_is_refused() -> None:
    with pytest.raises(InvalidInput, match="retries is 'two'; it must be a whole"):
        Guardrails.of({"max_stage_retries": "two"})
