"""Judge the candidates of an attempt, and find what an earlier attempt had already.

`Judges` asks the loop's own checks, its evaluator, its declared output and the checks
of lessons about each candidate, and chooses the best one. A function that refuses its
own answer by an exception has judged it, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from heedful import errors
from heedful.checks.evaluate import (
    Check,
    Context,
    Evaluate,
    evaluated,
    list_judges,
)
from heedful.checks.output import Output, read_output, remaining_fault
from heedful.checks.refusal import RefusedAnswer, Refusing, refused_answer, refuses
from heedful.drive.generate import CandidateBatch, Producer, choose_best
from heedful.drive.journal import LoopMemory
from heedful.lessons.check_findings import add_findings
from heedful.loop import record, stop
from heedful.loop.decide import triggers
from heedful.loop.similarity import find_near_repeat
from heedful.validation import MAX_LISTED_ITEMS, typed_frozen

# The judge of a loop without any other whose function refuses answers by raising.
FUNCTION_JUDGE = (record.ANSWER_CHECK,)


def judge_names(
    checks: Sequence[Check], evaluate: Evaluate | None, output: Output | None
) -> tuple[str, ...]:
    """Return the names of what judges a candidate, in order."""
    names = stop.check_names(list_judges(checks, evaluate))
    return names if output is None else (record.OUTPUT_CHECK, *names)


def find_repeat(
    candidate: record.Candidate, loop: record.Loop, rung: int
) -> int | None:
    """Return the number of the attempt of this rung that a candidate repeats."""
    if not loop.attempts or loop.rung != rung:
        return None
    return find_near_repeat(candidate, loop.of_rung().attempts)


@typed_frozen(slots=True, kw_only=True)
class Judges:
    """What judges the candidates of a loop, each by its `names`.

    They `are_pure` if all of them are declared cheap and repeatable. `stage_checks` are
    the checks that the `evaluate` of a stage calls. `refusals` has the exceptions that
    refused the answers of the last attempt.
    """

    checks: Sequence[Check]
    evaluate: Evaluate | None
    output: Output | None
    refuse: Refusing
    names: tuple[str, ...]
    are_pure: bool
    stage_checks: Sequence[Callable[..., Any]]
    memory: LoopMemory | None
    refusals: list[BaseException] = field(default_factory=list)

    def names_in(self, loop: record.Loop) -> tuple[str, ...]:
        """Return the names of what judges the next answer of a loop.

        A function that has refused an answer judges those that it returns.
        """
        if not self.names and loop.judges_itself:
            return FUNCTION_JUDGE
        return self.names

    def refusal(self, error: errors.GenerateFailed) -> RefusedAnswer:
        """Return the answer that a function refused by raising.

        Raises `error` if its exception does not refuse: then the function is at fault.
        """
        cause = error.__cause__
        if cause is None or not refuses(cause, self.refuse):
            raise error
        self.refusals.append(cause)
        return refused_answer(cause)

    async def best_of(
        self,
        answer: CandidateBatch,
        context: Context,
        goals: tuple[record.Goal, ...],
        producer: Producer,
    ) -> tuple[Any, record.Evaluation, tuple[str, ...]]:
        """Judge all candidates, equal ones once; return the best and its evaluation.

        The evaluation has the usage of judging all of them. The texts say what is wrong
        with the others, the first reason of each, at most `MAX_LISTED_ITEMS`.
        """
        judged = [
            await self._judge(value, context, fault)
            for value, fault in answer.distinct(self.output)
        ]
        value, evaluation = judged[0]
        if len(judged) == 1:  # nearly always
            return value, evaluation, ()

        evaluations = [evaluation for _, evaluation in judged]
        best = choose_best(producer, evaluations, goals)
        usage = sum((evaluation.usage for evaluation in evaluations), record.NO_USAGE)
        value, evaluation = judged[best]
        wrong: list[str] = []
        for other in evaluations[:best] + evaluations[best + 1 :]:
            wrong += [trigger.detail for trigger in triggers(other, goals)[:1]]
        lost = tuple(dict.fromkeys(wrong))[:MAX_LISTED_ITEMS]
        return value, replace(evaluation, usage=usage), lost

    async def _judge(
        self, value: Any, context: Context, fault: record.Finding | None
    ) -> tuple[Any, record.Evaluation]:
        """Judge a candidate; return it, read as the declared output.

        If it does not fit the output, no check is asked. A `fault` in how its provider
        ended it is an error, whatever the checks say.
        """
        fault = remaining_fault(fault, (*self.checks, *self.stage_checks, self.output))
        value, checks, evaluate = read_output(
            self.output, value, self.checks, self.evaluate, fault=fault
        )
        evaluation = await evaluated(
            value,
            context,
            checks,
            evaluate,
            refuse=self.refuse,
            raised=self.refusals,
            fault=fault,
        )
        if fault is not None and isinstance(value, str) and not value:
            value = None  # the provider gave no text
        # The evaluator of a stage without checks judges nothing.
        if not self.names:
            evaluation = replace(evaluation, met=None)

        memory = self.memory
        if memory is None or memory.briefing is None or not memory.briefing.checks:
            return value, evaluation
        added = add_findings(
            evaluation, value, memory.briefing.checks, judges=memory.checks
        )
        return value, added or evaluation
