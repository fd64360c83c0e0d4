"""Judging: the share that is met, which candidate is preferred, what it costs, where it
runs.
"""

from collections.abc import Sequence
from typing import Any

import pytest

import heedful
from heedful.checks.evaluate import Context, evaluated
from heedful.errors import CheckFailed, ModelError
from heedful.loop.decide import Policy
from heedful.loop.record import Evaluation, Finding, Goal, Usage
from heedful.loop.stop import MaxAttempts
from tests.drive.support import WANTED, Check, Generator
from tests.tables import cases

AT = Context("task")
GOAL = Goal("quality", 0.5)
ONCE = Policy((MaxAttempts(1),))
SECRET = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
ONE_ERROR = (Finding("c", "m"),)


class Asking:
    """A check that asks for `asks` things, of which so many are errors."""

    pure = True
    name = "asking"

    def __init__(self, asks: Any, errors: int, level: Any = "error") -> None:
        if asks is not None:
            self.asks = asks
        self._found = [Finding("c", f"{n}", level=level) for n in range(errors)]

    def __call__(self, candidate: Any, context: Context) -> Sequence[Finding]:
        return self._found


def judge_that_gives(**fields: Any) -> Any:
    """A check, or an evaluator, that answers with an Evaluation."""

    def judge(candidate: Any, context: Context) -> Evaluation:
        return Evaluation(**fields)

    return judge


async def drive(*answers: Any, **options: Any) -> heedful.Result[Any]:
    if not answers:
        answers = ("a", "b", "c", "d")
    options.setdefault("generate", Generator(*answers))
    return await heedful.run("task", store=None, **options)


async def judge_candidate(
    *checks: Any, evaluate: Any = None, candidate: Any = "x"
) -> Evaluation:
    return await evaluated(candidate, AT, checks, evaluate)


# -- the share that is met


@cases(
    ("checks", "evaluate", "met"),
    {
        "nothing was asked": ([], None, None),
        "more errors than there are things asked": ([Asking(4, 9)], None, 0.0),
        "scores and errors without a share": (
            [judge_that_gives(findings=ONE_ERROR, scores={"q": 1.0})],
            None,
            None,
        ),
        "a share that is given": (
            [judge_that_gives(met=0.25, findings=ONE_ERROR)],
            None,
            0.25,
        ),
        "an evaluator beside a check": (
            [Asking(None, 0)],
            judge_that_gives(met=0.5),
            0.75,
        ),
    },
)
async def test_the_share_that_is_met_weighs_what_each_check_asks(checks, evaluate, met):
    assert (await judge_candidate(*checks, evaluate=evaluate)).met == met


async def test_a_check_that_asks_for_no_number_of_things_is_named():
    with pytest.raises(
        CheckFailed, match=r"'asking' raised ValueError: .its `asks` is .*at least"
    ):
        await judge_candidate(Asking(float("nan"), 1))


# -- several candidates of one attempt

GOALS = (GOAL, Goal("drift", 0.5, "at_most"))


def of(
    quality: float, drift: float, preference: float = 0.0, errors: int = 0
) -> Evaluation:
    findings = tuple(Finding("c", f"{n}") for n in range(errors))
    return Evaluation(
        findings,
        {"quality": quality, "drift": drift},
        usage=Usage(1),
        preference=preference,
    )


@cases(
    ("candidates", "best"),
    {
        "the preferred": ([of(0.6, 0.4), of(0.6, 0.4, preference=0.1)], 1),
        "preference comes before the margin": (
            [of(0.9, 0.1), of(0.6, 0.4, preference=0.1)],
            1,
        ),
        "but after the goals": ([of(0.6, 0.4), of(0.4, 0.4, preference=9.0)], 0),
        "and after the errors": (
            [of(0.6, 0.4), of(0.9, 0.1, preference=9.0, errors=1)],
            0,
        ),
    },
)
async def test_the_preferred_candidate_is_chosen_among_equals(candidates, best):
    names = [f"candidate {n}" for n in range(len(candidates))]

    def judge(candidate: Any, context: Context) -> Evaluation:
        evaluation: Evaluation = candidates[names.index(candidate)]
        return evaluation

    result = await drive(names, evaluate=judge, goals=GOALS, policy=ONCE)
    assert result.candidate == f"candidate {best}"
    evaluation = result.loop.attempts[0].evaluation
    assert evaluation is not None
    assert evaluation.preference == candidates[best].preference
    assert evaluation.usage.calls == len(candidates)  # judging the others cost as much


# -- checks that raise, where a finding stands for them


def stand_in(check: str, error: CheckFailed | ModelError) -> Finding:
    return Finding(
        check, f"not judged, {type(error).__name__} {SECRET}", level="warning"
    )


def lazy(candidate: Any, context: Context) -> Any:
    return (Finding("x", "y") for _ in range(1 // 0))


def asks_none(candidate: Any, context: Context) -> Any:
    return []


asks_none.asks = 0  # type: ignore[attr-defined]


def fails(candidate: Any, context: Context) -> Any:
    raise ModelError("gone")


@pytest.mark.parametrize("check", [lazy, asks_none, fails])
async def test_a_finding_stands_for_a_check_or_evaluator_that_raises(check):
    right = Check()
    evaluation = await evaluated(
        WANTED, at=AT, checks=[right, check, right], evaluate=None, instead=stand_in
    )
    assert [finding.check for finding in evaluation.findings] == [check.__name__]
    assert "not judged" in evaluation.findings[0].message
    assert SECRET not in evaluation.findings[0].message
    # the others are asked
    assert evaluation.met == 1.0
    assert len(right.seen) == 2
    with pytest.raises((CheckFailed, ModelError)):
        await judge_candidate(check)
    evaluation = await evaluated(
        WANTED, at=AT, checks=[right], evaluate=fails, instead=stand_in
    )
    assert [finding.check for finding in evaluation.findings] == ["fails"]
    assert evaluation.scores == {}
