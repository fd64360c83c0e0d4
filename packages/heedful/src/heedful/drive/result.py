"""The result of a loop that was driven in this process."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Generic, TypeVar

from heedful.display import line_text, screen_text
from heedful.lessons.briefing import Briefing
from heedful.loop import decide, record
from heedful.loop.explain import Explanation, explain
from heedful.loop.stop import Stop
from heedful.notebook import html_form

C = TypeVar("C")


@dataclass(frozen=True, repr=False)
class Result(Generic[C]):
    """The result of a loop. `candidate` is the best evaluated candidate, or None.

    If the best answer does not fit a declared output, `candidate` is None; the text of
    each answer is in `loop.attempts`.

    `print` shows it in a few lines, and a notebook as HTML.

    `briefing` says what memory showed the loop before each attempt, and what it
    withheld and why. `refused_by` is the last exception of your functions that refused
    an answer of the last attempt; None if they raised none.
    """

    id: str
    candidate: C | None
    _: KW_ONLY
    verdict: decide.Done
    loop: record.Loop
    policy: decide.Policy
    briefing: Briefing | None = None
    refused_by: BaseException | None = None

    _repr_html_ = html_form

    def __repr__(self) -> str:
        return line_text(
            "Result",
            passed=self.passed,
            judged=self.judged,
            candidate=self.candidate,
            attempts=self.attempts,
        )

    def __str__(self) -> str:
        explanation = self.explain()
        lines = [explanation.sentence]
        if self.candidate is not None:
            lines.append(f"candidate: {self.candidate}")
        lines += str(explanation).splitlines()
        lines.append(f"loop {self.id}: {self.loop.usage_text}")
        return screen_text(lines)

    @property
    def passed(self) -> bool:
        """True if the candidate has no error and meets every goal."""
        return self.verdict.passed

    @property
    def judged(self) -> bool:
        """False if no check, goal or evaluator judged an attempt."""
        return any(not attempt.unjudged for attempt in self.loop.attempts)

    @property
    def attempts(self) -> int:
        """The number of attempts that the loop made."""
        return len(self.loop.attempts)

    @property
    def best(self) -> int | None:
        """The number of the best attempt, from 1; None if no candidate was judged."""
        return self.verdict.best

    @property
    def stopped_by(self) -> tuple[Stop, ...]:
        """The rules that stopped the loop, the most important first; none if passed."""
        return self.verdict.stopped_by

    @property
    def wrong(self) -> tuple[str, ...]:
        """What is wrong with `candidate`: each error, and each goal that it misses.

        Without a candidate, it is what was wrong with the last answer.
        """
        if not self.loop.attempts:
            return ()

        evaluation = self.loop.attempts[(self.best or 0) - 1].evaluation
        if evaluation is None:
            return ()

        triggers = decide.triggers(evaluation, self.loop.goals)
        return tuple(trigger.detail for trigger in triggers)

    @property
    def usage(self) -> record.Usage:
        """The usage of all attempts together, including failed attempts."""
        return self.loop.usage

    def explain(self) -> Explanation:
        """Explain why the loop went on and ended, and what would have changed that.

        It also says what memory showed the loop, or why it was silent.
        """
        explanation = explain(
            self.loop, self.policy, {len(self.loop.attempts): self.verdict}
        )
        if self.briefing is None:
            return explanation
        memory = (f"memory: {self.briefing.summary}", *self.briefing.lines)
        return replace(explanation, memory=memory)
