"""Single steps of generate, critique, revise, under the names that callers rely on."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import heedful
from heedful import checks
from heedful.errors import InvalidInput
from heedful.loop.record import Evaluation, Finding
from heedful_compat.refining import (
    StageGuardrail,
    has_converged,
    improvement_score,
    run_iteration,
)
from tests.tables import cases


def evaluation_of(*severities: float) -> Evaluation:
    return Evaluation(
        tuple(Finding("c", f"{s}", fix=f"mend {s}", severity=s) for s in severities)
    )


def judge_by(levels: dict[str, float]) -> Any:
    """An evaluator that finds a fault of that severity in each candidate, and none in
    others.
    """

    def evaluate(candidate: Any, context: Any) -> Evaluation:
        return evaluation_of(levels[candidate]) if candidate in levels else Evaluation()

    return evaluate


@cases(
    ("levels", "revision", "best", "improvement"),
    {
        "hardly less is left": (
            {"draft": 0.8, "another one": 0.75},
            "another one",
            "another one",
            0.05,
        ),
        "as much is left": (
            {"draft": 0.8, "another one": 0.8},
            "another one",
            "draft",
            0.0,
        ),
        "more is left": (
            {"draft": 0.8, "another one": 0.9},
            "another one",
            "draft",
            -0.1,
        ),
        "the same revision": ({"draft": 0.8}, "draft", "draft", 0.0),
    },
)
async def test_one_iteration_judges_revises_and_judges_again(
    levels, revision, best, improvement
):
    seen: list[Any] = []

    def revise(task: Any, candidate: Any, findings: Any) -> Any:
        seen.append((task, candidate, [finding.message for finding in findings]))
        return revision

    result = await run_iteration(
        "task", "draft", revise=revise, evaluate=judge_by(levels)
    )
    assert list(result) == ["candidate", "critique", "converged", "improvement"]
    assert result["candidate"] == best
    assert result["converged"] is True
    assert result["improvement"] == improvement
    worst = levels["draft"]
    issues = [f"{worst}"]
    assert result["critique"] == {
        "severity": worst,
        "issues": issues,
        "suggestions": [f"mend {issue}" for issue in issues],
    }
    assert seen == [("task", "draft", issues)]


@pytest.mark.parametrize("how", ["evaluate", "checks"])
async def test_a_critic_may_answer_severity_issues_and_suggestions(how):
    issues = ["blunt", "long"]
    suggestions = ["say please"]
    critique = {"severity": np.float32(0.9), "issues": issues}
    critique["suggestions"] = suggestions

    def critic(candidate: Any, at: Any = None) -> dict[str, Any]:
        passed = {"severity": 0.0, "issues": [], "suggestions": []}
        return critique if candidate == "draft" else passed

    judging: dict[str, Any] = {"evaluate": critic, "checks": [critic]}
    step = await run_iteration(
        "task",
        "draft",
        revise=lambda prompt, draft, findings: "revision",
        **{how: judging[how]},
    )
    assert step["candidate"] == "revision"
    assert step["critique"]["severity"] == pytest.approx(0.9, abs=1e-6)
    assert step["critique"]["issues"] == issues
    assert step["critique"]["suggestions"] == suggestions
    assert step["improvement"] == pytest.approx(0.9, abs=1e-6)


async def test_an_error_of_the_reviser_names_the_reviser():
    def revise(prompt: Any, draft: Any, findings: Any) -> Any:
        raise OSError("no luck")

    with pytest.raises(heedful.errors.GenerateFailed, match=r"^revise raised OSError"):
        await iterate({"revise": revise})
    with pytest.raises(heedful.errors.GenerateFailed, match=r"^revise returned None"):
        await iterate({"revise": lambda prompt, draft, findings: None})


GOOD: dict[str, Any] = {
    "prompt": "task",
    "candidate": "draft",
    "evaluate": judge_by({"draft": 0.9, "other": 0.2}),
    "revise": lambda prompt, candidate, findings: "other",
}


async def iterate(changes: dict[str, Any]) -> Any:
    """Run the good iteration with these arguments changed."""
    return await run_iteration(**(GOOD | changes))


@cases(
    ("field", "value"),
    {
        "no candidate": ("candidate", None),
        "no evaluation": ("evaluate", None),
        "an unknown policy": ("policy", "none"),
    },
)
async def test_an_iteration_refuses_what_it_cannot_judge_or_revise(field, value):
    with pytest.raises(heedful.errors.UsageError) as caught:
        await iterate({field: value})
    assert field in str(caught.value)


@cases(("limit", "converged"), {"a plateau": (2, True), "out of attempts": (1, False)})
async def test_a_result_has_converged_where_a_plateau_stopped_it(limit, converged):
    """Which rule stops a loop, and which attempt is best, are tested in tests/loop."""
    result = await heedful.run(
        "task",
        generate=lambda *_: "draft",
        evaluate=judge_by({"draft": 0.9}),
        policy=f"plateau.patience=1, attempts.limit={limit}",
        store=None,
    )
    assert has_converged(result) is converged


def test_what_has_no_severity_is_refused():
    with pytest.raises(InvalidInput) as refusal:
        improvement_score({"severity": 0.5}, {"issues": []})
    assert refusal.value.field == "severity of after"


# -- stage guardrails


class PoliteGuardrail(StageGuardrail):
    """A subclass as callers write it: without an __init__."""

    checks = (checks.contains("please"),)


STAGE_GUARDRAILS = {"ask": PoliteGuardrail, "any": StageGuardrail}


def test_a_guardrail_subclass_declares_its_checks():
    guardrail = STAGE_GUARDRAILS["ask"]("ask")
    assert guardrail.stage == "ask"
    assert guardrail.validate("Send it.").overall_status == "failed"
    assert guardrail.validate("Send it, please.").overall_status == "passed"


FRAME = {"y": [1.0, 2.0, 3.0], "yhat": [1.1, 2.1, 3.1]}


@cases(
    ("check", "output"),
    {
        "p": (checks.predictions(actual="y", predicted="yhat"), FRAME),
        "ranges": (checks.ranges(y=(0, 2)), FRAME),
        "rows": (checks.rows(key="z"), FRAME),
        "results": (checks.results("nowhere.csv"), FRAME),
        "insights": (checks.insights(metrics={}), "We predict 4."),
        "precision": (checks.precision(at_most=0), "It is 4."),
        "json_schema": (checks.json_schema({"type": "object"}), "[]"),
    },
)
def test_a_guardrail_with_built_in_checks_can_be_pickled(check, output):
    guardrail = PoliteGuardrail("s", [check])
    again = pickle.loads(pickle.dumps(guardrail))
    report = guardrail.validate(output)
    assert isinstance(again, PoliteGuardrail)
    assert again.validate(output).failed_checks_summary == report.failed_checks_summary
    assert copy.copy(check).name == check.name
