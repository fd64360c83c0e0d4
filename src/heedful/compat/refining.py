"""Generate, critique, revise: single steps under the names of earlier systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heedful.checks.evaluate import Check, Context, Evaluate, evaluated
from heedful.drive.drive import Result
from heedful.drive.generate import Revise, revised
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
    record.check_goals(tuple(goals))
    loop = record.Loop("iteration", tuple(goals), improves=policy.improvement)
    values, at = [candidate], Context(task)
    while True:
        value, made = values[-1], record.Candidate.of(values[-1])
        judged = await evaluated(value, at, checks, evaluate)
        near = stop.find_near_repeat(made, loop.attempts)
        loop = loop.then(record.Attempt(len(values), made, judged, repeats=near))
        first = loop.attempts[0].evaluation or record.Evaluation()
        if len(values) == 2 or isinstance(decide.decide(loop, policy), decide.Done):
            break
        at = Context(task, 2, previous=candidate)
        values.append((await revised(revise, at, first.findings)).values[0])
    complaints = [finding for finding in first.findings if finding.level != "note"]
    return {
        "candidate": values[(loop.best or 1) - 1],
        "critique": {
            "severity": first.worst,
            "issues": [finding.message for finding in complaints],
            "suggestions": [finding.fix for finding in complaints if finding.fix],
        },
        "converged": check_convergence(loop, policy),
        "improvement": improvement_score(first, judged),
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
