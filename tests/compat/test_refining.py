"""Single steps of generate, critique, revise, under the names that callers rely on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import heedful
from heedful.checks import contains
from heedful.compat import check_convergence, has_converged, improvement_score, run_iteration
from heedful.loop.policies import reflection
from heedful.loop.record import Evaluation, Finding
from heedful.testing import history


def do(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def severe(*severities: float) -> Evaluation:
    return Evaluation(tuple(Finding("c", f"{s}", f"mend {s}", severity=s) for s in severities))


def judged(levels: dict[str, float]) -> Any:
    """An evaluator that finds a fault of that severity in each candidate, and none in others."""

    def evaluate(candidate: Any, at: Any) -> Evaluation:
        return severe(levels[candidate]) if candidate in levels else Evaluation()

    return evaluate


@pytest.mark.parametrize(
    ("levels", "revision", "best", "converged", "improvement"),
    [
        ({"draft": 0.8}, "right", "right", True, 0.8),
        ({"draft": 0.8, "another one": 0.5}, "another one", "draft", False, 0.3),
        ({"draft": 0.8, "another one": 0.9}, "another one", "draft", False, -0.1),
        ({"draft": 0.8, "another one": 0.2}, "another one", "draft", True, 0.6),  # below 0.3
        ({"draft": 0.8}, "draft", "draft", True, 0.0),  # minimal change
        ({}, "never", "draft", True, 0.0),
        ({"draft": 0.2}, "never", "draft", True, 0.0),
    ],
)
def test_one_iteration_judges_revises_and_judges_again(
    levels, revision, best, converged, improvement
):
    seen: list[Any] = []

    def revise(task: Any, candidate: Any, findings: Any) -> Any:
        seen.append((task, candidate, [one.message for one in findings]))
        return revision

    told = do(run_iteration("task", "draft", revise=revise, evaluate=judged(levels)))
    assert list(told) == ["candidate", "critique", "converged", "improvement"]
    assert (told["candidate"], told["converged"]) == (best, converged)
    assert told["improvement"] == improvement
    worst = levels.get("draft", 0.0)
    issues = [f"{worst}"] * bool(worst)
    assert told["critique"] == {
        "severity": worst,
        "issues": issues,
        "suggestions": [f"mend {one}" for one in issues],
    }
    assert seen == ([] if revision == "never" else [("task", "draft", issues)])


def test_checks_and_goals_count_in_an_iteration():
    goals = [heedful.Goal("quality", 0.5)]
    told = do(
        run_iteration(
            "task",
            "a draft",
            revise=lambda task, candidate, findings: "please, a draft",
            checks=[contains("please")],
            evaluate=lambda candidate, at: Evaluation(scores={"quality": len(candidate) / 30}),
            goals=goals,
        )
    )
    assert (told["candidate"], told["converged"]) == ("please, a draft", True)


@pytest.mark.parametrize(
    ("attempts", "converged"),
    [
        ([["a"]], False),
        ([["a"], ["b"]], False),
        ([["a"], ["b"], ["c"]], False),  # it ran out of attempts, and did not come to rest
        ([["a"], ["a"]], True),  # no new issue
        ([["a"], []], True),
    ],
)
def test_a_loop_has_come_to_rest_or_only_run_out(attempts, converged):
    assert check_convergence(history(*attempts)) is converged


@pytest.mark.parametrize(("last", "converged"), [("right", True), ("c", False)])
def test_a_result_has_converged_or_only_run_out(last, converged):
    answers = iter(["a", "b", last])
    evaluate = judged({"a": 0.9, "b": 0.8, "c": 0.7})
    options: dict[str, Any] = {"evaluate": evaluate, "policy": reflection, "store": None}
    result = do(heedful.run("task", generate=lambda task, hint: next(answers), **options))
    assert (has_converged(result), len(result.loop.attempts)) == (converged, 3)


@pytest.mark.parametrize(
    ("before", "after", "score"),
    [((0.8,), (0.5,), 0.3), ((), (0.4,), -0.4), ((1.0, 0.2), (), 1.0)],
)
def test_improvement_is_how_much_less_severe_the_worst_is(before, after, score):
    assert improvement_score(severe(*before), severe(*after)) == score
