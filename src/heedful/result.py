"""How a driven loop ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from heedful.loop.decide import Done, Policy
from heedful.loop.explain import Explanation, explain
from heedful.loop.record import Loop
from heedful.loop.stop import Stop
from heedful.protocols import Usage

C = TypeVar("C")


@dataclass(frozen=True)
class Result(Generic[C]):
    """How a loop ended. `candidate` is the best one, None where no attempt was evaluated."""

    id: str
    candidate: C | None
    verdict: Done
    loop: Loop
    policy: Policy

    @property
    def passed(self) -> bool:
        """Whether the candidate has no error and meets every goal."""
        return self.verdict.passed

    @property
    def best(self) -> int | None:
        """The number of the attempt that `candidate` comes from."""
        return self.verdict.best

    @property
    def stopped_by(self) -> tuple[Stop, ...]:
        """The rules that stopped the loop, the one that counts first; empty where it passed."""
        return self.verdict.stopped_by

    @property
    def usage(self) -> Usage:
        """What all attempts cost."""
        return self.loop.usage

    def explain(self) -> Explanation:
        """Why it went on, why it stopped, and what would have changed it."""
        return explain(self.loop, self.policy)
