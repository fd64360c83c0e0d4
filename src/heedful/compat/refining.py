"""Generate, critique, revise: single steps under the names of earlier systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heedful.checks.evaluate import Check, Context, Evaluate, evaluated
from heedful.drive.drive import Result
from heedful.drive.generate import Revise, revised
from heedful.loop import policies
from heedful.loop.decide import Done, Policy, Verdict, decide
from heedful.loop.record import Attempt, Candidate, Evaluation, Goal, Loop, check_goals
from heedful.loop.stop import find_near_repeat as near

# The rules that end a loop before it has converged.
UNSETTLED = ("attempts", "budget", "cancelled", "unscored")


async def run_iteration(
    task: Any,
    candidate: Any,
    *,
    revise: Revise,
    checks: Sequence[Check] = (),
    evaluate: Evaluate | None = None,
    goals: Sequence[Goal] = (),
    policy: Policy = policies.reflection,
) -> dict[str, Any]:
    """Judge a candidate, revise it once if it does not pass, and judge the revision.

    Returns the better of the two as `candidate`, the `critique` of the first (`severity` 0..1,
    `issues`, `suggestions`), whether they have `converged`, and as `improvement` how much less
    severe the revision is. Raises InvalidInput, CheckFailed, GenerateFailed, ModelError.
    """
    check_goals(tuple(goals))
    values = [candidate]
    loop = Loop("iteration", tuple(goals), improves=policy.improvement)
    loop = loop.then(await _judged(loop, candidate, Context(task), checks, evaluate))
    first = loop.attempts[0].evaluation or Evaluation()
    if not isinstance(decide(loop, policy), Done):
        at = Context(task, 2, previous=candidate)
        value = (await revised(revise, at, first.findings)).values[0]
        values.append(value)
        loop = loop.then(await _judged(loop, value, at, checks, evaluate))
    last = loop.attempts[-1].evaluation or Evaluation()
    complaints = [one for one in first.findings if one.level != "note"]
    return {
        "candidate": values[(loop.best or 1) - 1],
        "critique": {
            "severity": first.worst,
            "issues": [one.message for one in complaints],
            "suggestions": [one.fix for one in complaints if one.fix],
        },
        "converged": check_convergence(loop, policy),
        "improvement": improvement_score(first, last),
    }


def check_convergence(loop: Loop, policy: Policy = policies.reflection) -> bool:
    """Return True if a loop passed, or if no further attempt would improve it."""
    return _settled(decide(loop, policy))


def has_converged(result: Result[Any]) -> bool:
    """Return True if the loop of a result converged, and did not only use up its attempts."""
    return _settled(result.verdict)


def improvement_score(before: Evaluation, after: Evaluation) -> float:
    """Return how much less severe the worst finding became, -1..1; above 0 is better."""
    return round(before.worst - after.worst, 3)


def _settled(verdict: Verdict) -> bool:
    stops = verdict.stopped_by if isinstance(verdict, Done) else ()
    rests = any(stop.rule not in UNSETTLED for stop in stops)
    return isinstance(verdict, Done) and (verdict.passed or rests)


async def _judged(
    loop: Loop, value: Any, at: Context, checks: Sequence[Check], evaluate: Evaluate | None
) -> Attempt:
    made, candidate = loop.attempts, Candidate.of(value)
    judged = await evaluated(value, at, checks, evaluate)
    return Attempt(len(made) + 1, candidate, judged, repeats=near(candidate, made))
