"""What judging may cost, where it runs, and arguments that cannot be used."""

from __future__ import annotations

import asyncio
import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import heedful
from heedful.checks.evaluate import Context, evaluated
from heedful.errors import CheckFailed, GenerateFailed, InvalidInput
from heedful.loop.record import Finding
from heedful.testing import ScriptedModel

GOAL = heedful.Goal("quality", 0.5)


def judge(score: Any, calls: int = 1) -> Any:
    """An evaluator that asks a model."""

    async def judged(candidate: str, at: heedful.Context) -> heedful.Evaluation:
        return heedful.Evaluation(scores={"quality": score}, usage=heedful.Usage(calls, 10, 2))

    return judged


def driven(**options: Any) -> heedful.Result[Any]:
    options = {"generate": ScriptedModel("a", "b", "c", "d"), "store": None} | options
    return asyncio.run(heedful.run("task", **options))


def test_what_a_judge_spends_counts_for_every_candidate():
    async def two(task: str, hint: str) -> list[str]:
        return ["a", "b"]

    result = driven(generate=two, evaluate=judge(0.9, calls=3), goals=[GOAL])
    assert result.usage.calls == 2 + 2 * 3
    assert result.usage.tokens == 2 * 12


def test_what_a_check_spends_ends_a_budget():
    policy = heedful.Policy((heedful.Budget(calls=4), heedful.MaxAttempts(9)))
    result = driven(checks=[judge(0.1)], goals=[GOAL], policy=policy)
    assert len(result.loop.attempts) == 2
    assert result.stopped_by[0].rule == "budget"


def test_what_a_judge_spent_is_stored(tmp_path: Path):
    store = str(tmp_path / "heedful.db")
    made = driven(evaluate=judge(0.9), goals=[GOAL], store=store, id="a")
    again = driven(evaluate=judge(0.9), goals=[GOAL], store=store, id="a")
    assert again.loop.attempts == made.loop.attempts
    evaluation = again.loop.attempts[0].evaluation
    assert evaluation is not None
    assert evaluation.usage.calls == 1


@pytest.mark.parametrize(("pure", "elsewhere"), [(False, True), (True, False)])
def test_a_plain_check_that_is_not_pure_runs_in_a_thread(pure, elsewhere):
    seen = []

    def check(candidate: str, at: heedful.Context) -> list[heedful.Finding]:
        seen.append(threading.current_thread() is not threading.main_thread())
        return []

    check.pure = pure  # type: ignore[attr-defined]
    assert driven(checks=[check]).passed
    assert seen == [elsewhere]


def test_a_check_that_blocks_does_not_hold_up_another_loop():
    blocked, free = threading.Event(), threading.Event()

    def waits(candidate: str, at: heedful.Context) -> list[heedful.Finding]:
        blocked.set()
        assert free.wait(30)
        return []

    def frees(candidate: str, at: heedful.Context) -> list[heedful.Finding]:
        assert blocked.wait(30)
        free.set()
        return []

    async def both() -> list[heedful.Result[Any]]:
        models = ScriptedModel("a"), ScriptedModel("b")
        runs = zip(models, (waits, frees), strict=True)
        return await asyncio.gather(
            *(heedful.run("t", generate=m, checks=[c], store=None) for m, c in runs)
        )

    assert [result.passed for result in asyncio.run(both())] == [True, True]


def test_a_finding_that_cannot_be_made_names_the_check():
    def careless(candidate: str, at: heedful.Context) -> list[heedful.Finding]:
        return [heedful.Finding("careless", "no", severity=9)]

    with pytest.raises(CheckFailed, match=r"'careless'.*severity is 9"):
        driven(checks=[careless])


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_scores_of_numpy_are_numbers(kind, tmp_path: Path):
    store = str(tmp_path / "heedful.db")
    result = driven(evaluate=judge(kind(1)), goals=[GOAL], store=store)
    assert result.passed
    evaluation = result.loop.attempts[0].evaluation
    assert evaluation is not None
    assert isinstance(evaluation.scores["quality"], float | int)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("policy", None),
        ("checks", len),
        ("checks", ["x"]),
        ("goals", GOAL),
        ("goals", ["quality >= 1"]),
        ("timeout", float("nan")),
        ("timeout", 0),
        ("store", 5),
        ("generate", "embedded"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(name, value):
    with pytest.raises(InvalidInput, match=name):
        driven(**{name: value})


def test_calls_that_failed_spend_the_budget_before_another_is_made(tmp_path: Path):
    calls = []

    async def broken(task: str, hint: str) -> str:
        calls.append(task)
        raise RuntimeError("no")

    policy = heedful.Policy((heedful.Budget(calls=2), heedful.MaxAttempts(9)))
    options = {"generate": broken, "policy": policy, "store": str(tmp_path / "e.db"), "id": "a"}
    for _ in range(2):
        with pytest.raises(GenerateFailed):
            driven(**options)
    result = driven(**options)
    assert (len(calls), result.passed, result.best) == (2, False, None)
    assert result.stopped_by[0].rule == "budget"


def test_a_check_that_nobody_waits_for_any_more_leaves_no_coroutine():
    """Its thread ends after the caller has gone; a coroutine left over would be a warning."""
    gate, ended = threading.Event(), threading.Event()

    async def found() -> list[Finding]:
        return []

    def check(candidate: Any, at: Context) -> Any:
        gate.wait(30)
        ended.set()
        return found()

    async def scenario() -> None:
        asked = asyncio.create_task(evaluated("x", Context("t"), [check], None))
        await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        gate.set()
        await asyncio.to_thread(ended.wait, 30)

    asyncio.run(scenario())
    gc.collect()
