"""The result of a loop that was driven in this process."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Generic, TypeVar

from heedful.lessons.briefing import Briefing
from heedful.loop import decide, record, stop
from heedful.loop.explain import Explanation, explain

C = TypeVar("C")


@dataclass(frozen=True)
class Result(Generic[C]):
    """The result of a loop. `candidate` is the best evaluated candidate, or None.

    `briefing` says what memory showed the loop before each attempt, and what it
    withheld and why.
    """

    id: str
    candidate: C | None
    _: KW_ONLY
    verdict: decide.Done
    loop: record.Loop
    policy: decide.Policy
    briefing: Briefing | None = None

    @property
    def passed(self) -> bool:
        """True if the candidate has no error and meets every goal."""
        return self.verdict.passed

    @property
    def best(self) -> int | None:
        """The number of the attempt that made `candidate`, from 1, or None."""
        return self.verdict.best

    @property
    def stopped_by(self) -> tuple[stop.Stop, ...]:
        """The rules that stopped the loop, the most important first; none if passed."""
        return self.verdict.stopped_by

    @property
    def wrong(self) -> tuple[str, ...]:
        """What is wrong with `candidate`: each error, and each goal that it misses."""
        if not self.best:
            return ()

        evaluation = self.loop.attempts[self.best - 1].evaluation
        if evaluation is None:
            return ()

        triggers = decide.triggers(evaluation, self.loop.goals)
        return tuple(trigger.detail for trigger in triggers)

    @property
    def usage(self) -> record.Usage:
        """The usage of all attempts together, including failed attempts."""
        return self.loop.usage

    def explain(self) -> Explanation:
        """Explain why the loop went on and ended, and what would have changed that."""
        last = len(self.loop.attempts)
        return explain(self.loop, self.policy, {last: self.verdict})
