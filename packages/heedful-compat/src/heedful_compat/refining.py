"""Single steps of critiquing, revising and validating, as earlier systems name them.

One iteration is a loop of at most two attempts: the given candidate and its revision.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from heedful.checks.evaluate import Check, Evaluate
from heedful.checks.refusal import Refusing
from heedful.drive.generate import Revise
from heedful.drive.portal import run_sync
from heedful.drive.result import Result
from heedful.drive.run_loop import run
from heedful.errors import InvalidInput
from heedful.loop import decide, policies, record, stop
from heedful.loop.runs import CheckResult, StageAttempt
from heedful.pipeline import validate
from heedful.pipeline.stage_report import ValidationReport
from heedful.validation import Document, Fields, as_float, check_share, require
from heedful_compat.answers import Record

# Rules that end a loop although it has not converged.
UNCONVERGED_RULES = ("attempts", "budget", "cancelled", "unscored")


async def run_iteration(
    prompt: Any,
    candidate: Any,
    *,
    evaluate: Evaluate | None = None,
    revise: Revise,
    checks: Sequence[Check] = (),
    goals: Sequence[record.Goal] = (),
    policy: decide.Policy | str = policies.reflection,
) -> Document:
    """Judge a candidate; if it does not pass, revise it once and judge the revision.

    The result has these keys: `candidate` is the better of the two candidates, as in
    every loop. `critique` of the given candidate has `severity` (0..1), `issues` and
    `suggestions`. `converged` is True if a further attempt is not worthwhile.
    `improvement` is how much less severe the revision is (-1..1). Raises InvalidInput,
    CheckFailed, GenerateFailed, ModelError.
    """
    policy = policies.policy(policy)
    require(candidate is not None, "candidate", candidate, "the output to judge")
    if evaluate is None and not checks:
        raise InvalidInput("evaluate", evaluate, "a function, since no `checks` judge")

    allowed = "a function (prompt, candidate, findings)"
    require(callable(revise), "revise", revise, allowed)

    result = await run(
        prompt,
        generate=lambda task, hint: candidate,
        revise=revise,
        checks=checks,
        evaluate=evaluate,
        goals=goals,
        policy=replace(policy, rules=(*policy.rules, stop.MaxAttempts(2))),
        initial=candidate,
        store=None,
    )

    first = result.loop.attempts[0].evaluation or record.Evaluation()
    last = result.loop.attempts[-1].evaluation or record.Evaluation()
    complaints = [finding for finding in first.findings if finding.level != "note"]
    critique = {
        "severity": first.worst,
        "issues": [finding.message for finding in complaints],
        "suggestions": [finding.fix for finding in complaints if finding.fix],
    }

    return {
        "candidate": result.candidate,
        "critique": critique,
        "converged": check_convergence(result.loop, policy),
        "improvement": improvement_score(first, last),
    }


def check_convergence(
    loop: record.Loop, policy: decide.Policy = policies.reflection
) -> bool:
    """Return True if the loop passed, or if `policy` finds that more would not help.

    The loop has not converged if it ran out of attempts or budget, was cancelled, or
    has no score.
    """
    return _is_settled(decide.decide(loop, policy))


def has_converged(result: Result[Any]) -> bool:
    """Return True if the result passed, or more attempts would not have helped it.

    The loop has not converged if it ran out of attempts or budget, was cancelled, or
    has no score.
    """
    return _is_settled(result.verdict)


def improvement_score(
    before: record.Evaluation | Fields,
    after: record.Evaluation | Fields,
) -> float:
    """Return by how much the highest severity fell, in -1..1; above 0 is better.

    Critiques of earlier systems are mappings with a `severity`. Raises InvalidInput.
    """
    return round(_severity("before", before) - _severity("after", after), 3)


def _severity(name: str, critique: object) -> float:
    """Return the highest severity of an evaluation or of a critique."""
    if isinstance(critique, record.Evaluation):
        return critique.worst
    if not isinstance(critique, Mapping):
        allowed = "an Evaluation, or a mapping with a severity"
        raise InvalidInput(name, critique, allowed)
    severity: Any = as_float(critique.get("severity"))
    check_share(f"severity of {name}", severity)
    return float(severity)


def _is_settled(verdict: decide.Verdict) -> bool:
    """Return True for a loop that passed, or that any other rule stopped.

    The other rules are those that are not in `UNCONVERGED_RULES`.
    """
    if not isinstance(verdict, decide.Done):
        return False

    rules = {rule_stop.rule for rule_stop in verdict.stopped_by}
    return verdict.passed or not rules <= set(UNCONVERGED_RULES)


@dataclass(frozen=True, slots=True)
class GuardrailCheckResult(CheckResult, Record):
    """The result of one check of a stage's output, with attributes and keys."""


@dataclass
class StageGuardrailReport(ValidationReport, Record):
    """The report on one output of a stage, with attributes and keys."""

    checks: list[GuardrailCheckResult]

    @classmethod
    def of(cls, attempt: StageAttempt) -> "StageGuardrailReport":
        """Return the report on an attempt."""
        checks = [GuardrailCheckResult(**asdict(check)) for check in attempt.checks]
        return replace(super().of(attempt), checks=checks)


class StageGuardrail:
    """The checks of a stage that your own orchestrator runs.

    A subclass may declare its `checks`; then you create it with only the name of the
    stage.
    """

    checks: Sequence[Check] = ()

    def __init__(
        self,
        stage: str,
        checks: Sequence[Check] | None = None,
        refuse: Refusing = (),
    ) -> None:
        self.stage = stage
        self.refuse = refuse
        if checks is not None:
            self.checks = checks

    def validate(self, output: Any, state: Any = None) -> StageGuardrailReport:
        """Check an output; store nothing.

        The arguments are those of `heedful.pipeline.validate`. Inside an event loop,
        the loop waits until the checks have ended. Raises InvalidInput.
        """
        work = validate(self.stage, self.checks, output, state, refuse=self.refuse)
        # The caller may be inside an event loop, so the checks run in a thread.
        with ThreadPoolExecutor(1) as thread:
            attempt = thread.submit(run_sync, work).result()
        return StageGuardrailReport.of(attempt)
