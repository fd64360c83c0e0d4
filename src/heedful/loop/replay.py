"""What another policy would have done with recorded loops, as far as the record can tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from heedful.errors import InvalidInput
from heedful.loop.decide import Again, Done, Policy, Verdict, decide
from heedful.loop.measure import LARGEST, number
from heedful.loop.record import Loop
from heedful.loop.stop import Budget
from heedful.protocols import NOTHING, Usage

LESS = 0.999  # the most that an attempt is worth that does not pass


@dataclass(frozen=True)
class Recorded:
    """A recorded loop and, where it is known, how good each of its attempts really was (0..1).

    Where it is not known, an attempt that passes is worth 1, any other the share that it met and
    less than 1: what all checks accept may still miss a goal.
    """

    loop: Loop
    quality: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.quality and len(self.quality) != len(self.loop.attempts):
            allowed = f"one number for each of {len(self.loop.attempts)} attempts, or left out"
            raise InvalidInput("quality", self.quality, allowed)
        for value in self.quality:
            number("quality", value, 0, 1)

    def worth(self, attempt: int | None) -> float:
        """The quality of an attempt, counted from 1; None: 0."""
        if attempt is None:
            return 0.0
        if self.quality:
            return self.quality[attempt - 1]
        evaluation = self.loop.attempts[attempt - 1].evaluation
        if evaluation is None:
            return 0.0
        passes = evaluation.passes(self.loop.goals)
        return 1.0 if passes else min(evaluation.met or 0.0, LESS)

    @property
    def oracle(self) -> int:
        """How many attempts one needs who knows the first attempt of quality 1; 1 without one."""
        numbers = range(1, len(self.loop.attempts) + 1)
        return next((n for n in numbers if self.worth(n) == 1), 1)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a policy does with one recorded loop: the attempts it makes, the one it keeps.

    Not `exact`: the record cannot tell, mostly as it ends where the policy would have gone on.
    """

    attempts: int
    kept: int | None
    verdict: Verdict
    exact: bool
    usage: Usage


@dataclass(frozen=True, slots=True)
class Figures:
    """What a policy would have cost and lost over recorded loops.

    `solved` counts kept attempts of quality 1, `solvable` loops that have one; `quality` is the
    mean of the kept ones (0..1). `oracle` is the sum of `Recorded.oracle`, `regret` counts the
    attempts beyond it, loop by loop. For `beyond` loops the record cannot tell; they count as far
    as it goes, so their cost and quality are lower bounds.
    """

    policy: str
    loops: int
    attempts: int
    usage: Usage
    solved: int
    solvable: int
    quality: float
    oracle: int
    regret: int
    beyond: int

    @property
    def lost(self) -> int:
        """Loops that the record solves and the policy does not."""
        return self.solvable - self.solved


def replay(loop: Loop, policy: Policy) -> Replayed:
    """What `policy` would have done with the attempts of `loop`, without overrides.

    Exact where it stops no later than the record does: an attempt depends on those before it alone.
    But not where it rests on when calls outside the attempts were made, which no record says, where
    a budget of seconds would have cut the last attempt, or where goals that the loop did not have
    would have been fed back.
    """
    goals = loop.goals or policy.goals
    bare = replace(loop, improves=policy.improvement, goals=goals, overrides=(), cancelled="")
    seen, verdict = _driven(replace(bare, extra=NOTHING), policy)
    made, ended = _driven(bare, policy) if loop.extra != NOTHING else (seen, verdict)
    exact = isinstance(ended, Done) and len(made.attempts) == len(seen.attempts)
    exact = exact and not _cut(made, policy) and not (_fed_back(seen) and not loop.goals)
    verdict = ended if exact and isinstance(verdict, Again) else verdict
    return Replayed(len(seen.attempts), seen.best, verdict, exact, seen.usage)


def _driven(loop: Loop, policy: Policy) -> tuple[Loop, Verdict]:
    """The loop as far as the policy goes with its attempts, and the last verdict."""
    verdict: Verdict = Again()
    seen = loop.upto(0)
    while len(seen.attempts) < len(loop.attempts) and isinstance(verdict, Again):
        seen = loop.upto(len(seen.attempts) + 1)
        verdict = decide(seen, policy)
    return seen, verdict


def _cut(loop: Loop, policy: Policy) -> bool:
    """Whether a budget may end before the first attempt begins or before the last one ends."""
    budgets = [rule for rule in policy.rules if isinstance(rule, Budget)]
    seconds = min((rule.seconds for rule in budgets if rule.seconds), default=LARGEST)
    return loop.usage.seconds > seconds or any(rule(loop.upto(0)) for rule in budgets)


def _fed_back(loop: Loop) -> bool:
    """Whether an attempt was made after one that missed a goal."""
    return any(a.evaluation and a.evaluation.unmet(loop.goals) for a in loop.attempts[:-1])


def compare(recorded: Sequence[Recorded], policies: Iterable[Policy]) -> tuple[Figures, ...]:
    """The figures of each policy over the same loops, in the order of the policies."""
    return tuple(_figures(recorded, policy) for policy in policies)


def _figures(recorded: Sequence[Recorded], policy: Policy) -> Figures:
    attempts = solved = solvable = oracle = regret = beyond = 0
    quality, usages = 0.0, []
    for one in recorded:
        made = replay(one.loop, policy)
        worth = one.worth(made.kept)
        attempts += made.attempts
        quality += worth
        solved += worth == 1
        solvable += any(one.worth(n) == 1 for n in range(1, len(one.loop.attempts) + 1))
        oracle += (least := one.oracle)
        regret += max(0, made.attempts - least)
        beyond += not made.exact
        usages.append(made.usage)
    mean = quality / len(recorded) if recorded else 0.0
    counts = (solved, solvable, mean, oracle, regret, beyond)
    return Figures(policy.name, len(recorded), attempts, sum(usages, NOTHING), *counts)
