"""Generate, critique, revise: single steps under the names of earlier systems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from heedful.checks.evaluate import Check, Evaluate
from heedful.drive.drive import Result, run
from heedful.drive.generate import Revise
from heedful.loop import decide, policies, record, stop

# The rules that end a loop before it has converged.
UNSETTLED = ("attempts", "budget", "cancelled", "unscored")


async def run_iteration(
    task: Any,
    candidate: Any,
    *,
    revise: Revise,
    checks: Sequence[Check] = (),
    evaluate: Evaluate | None = None,
    goals: Sequence[record.Goal] = (),
    policy: decide.Policy = policies.reflection,
) -> dict[str, Any]:
    """Judge a candidate, revise it once if it does not pass, and judge the revision.

    Returns the better of the two as `candidate`, the `critique` of the first (`severity` 0..1,
    `issues`, `suggestions`), whether they have `converged`, and as `improvement` how much less
    severe the revision is. Raises InvalidInput, CheckFailed, GenerateFailed, ModelError.
    """
    result = await run(
        task,
        generate=lambda task, hint: candidate,
        revise=revise,
        initial=candidate,
        checks=checks,
        evaluate=evaluate,
        goals=goals,
        policy=replace(policy, rules=(*policy.rules, stop.MaxAttempts(2))),
        store=None,
    )
    judged = [attempt.evaluation or record.Evaluation() for attempt in result.loop.attempts]
    first = judged[0]
    complaints = [finding for finding in first.findings if finding.level != "note"]
    return {
        "candidate": result.candidate,
        "critique": {
            "severity": first.worst,
            "issues": [finding.message for finding in complaints],
            "suggestions": [finding.fix for finding in complaints if finding.fix],
        },
        "converged": check_convergence(result.loop, policy),
        "improvement": improvement_score(first, judged[-1]),
    }


def check_convergence(loop: record.Loop, policy: decide.Policy = policies.reflection) -> bool:
    """Return True if a loop passed, or if no further attempt would improve it."""
    return _settled(decide.decide(loop, policy))


def has_converged(result: Result[Any]) -> bool:
    """Return True if the loop passed, or a rule stopped it that is not a limit."""
    return _settled(result.verdict)


def improvement_score(before: record.Evaluation, after: record.Evaluation) -> float:
    """Return how much less severe the worst finding became, -1..1; above 0 is better."""
    return round(before.worst - after.worst, 3)


def _settled(verdict: decide.Verdict) -> bool:
    if not isinstance(verdict, decide.Done):
        return False
    return verdict.passed or any(each.rule not in UNSETTLED for each in verdict.stopped_by)
