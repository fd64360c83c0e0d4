"""Replay recorded loops under other policies: decide again on recorded attempts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from typing import Any

from heedful.errors import InvalidInput
from heedful.loop.decide import Again, Done, Policy, Verdict, check_types, decide
from heedful.loop.record import MAX_SCORE, NO_USAGE, Loop, Usage
from heedful.loop.stop import Budget, MaxAttempts
from heedful.validation import check_number

# A replay of this policy repeats each loop as it was recorded.
RECORDED_POLICY = Policy((MaxAttempts(10**9),), unscored="again", name="as recorded")


@dataclass(frozen=True)
class RecordedLoop:
    """A recorded loop and, if known, the true quality (0..1) of each attempt.

    If unknown, the quality of an attempt that passes is 1; otherwise it is the share of
    checks that passed, but less than 1, because a goal may still be missed.
    """

    loop: Loop
    quality: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.quality and len(self.quality) != len(self.loop.attempts):
            allowed = (
                f"one number for each of {len(self.loop.attempts)} attempts, or left "
                "out"
            )
            raise InvalidInput("quality", self.quality, allowed)
        for value in self.quality:
            check_number("quality", value, low=0, high=1)

    def worth(self, attempt: int | None) -> float:
        """Return the quality of the attempt with this number (from 1); 0 for None."""
        if attempt is not None and self.quality:
            return self.quality[attempt - 1]
        evaluation = self.loop.attempts[attempt - 1].evaluation if attempt else None
        if evaluation is None:
            return 0.0
        return (
            1.0
            if evaluation.passes(self.loop.goals)
            else min(evaluation.met or 0.0, 0.999)
        )

    @property
    def oracle(self) -> int:
        """The number of the first attempt of quality 1, or 1 if there is no such
        attempt.
        """
        return next(
            (n for n in range(1, len(self.loop.attempts) + 1) if self.worth(n) == 1), 1
        )

    @property
    def solvable(self) -> bool:
        """True if any attempt has quality 1."""
        return bool(self.loop.attempts) and self.worth(self.oracle) == 1


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a policy does with a recorded loop: how many attempts it makes and which it
    keeps.

    `exact` is False if the record does not show the result, usually because it ends too
    early.
    """

    attempts: int
    kept: int | None
    _: KW_ONLY
    verdict: Verdict
    exact: bool
    usage: Usage


@dataclass(frozen=True, slots=True)
class Figures:
    """What a policy would have cost and solved over recorded loops.

    `solved` counts the loops whose kept attempt has quality 1, `solvable` the loops in
    which any attempt has quality 1. `quality` is the mean over the kept attempts
    (0..1). `oracle` is the sum of `RecordedLoop.oracle`, `regret` the number of
    attempts that the policy makes after the oracle stops. `beyond` counts loops whose
    replay is not exact; their cost and quality are lower bounds.
    """

    policy: str
    loops: int
    _: KW_ONLY
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
        """The number of solvable loops that the policy does not solve."""
        return self.solvable - self.solved

    def plain(self) -> dict[str, Any]:
        """Return JSON data."""
        return {**asdict(self), "lost": self.lost}


def replay(loop: Loop, policy: Policy) -> ReplayResult:
    """Return what `policy` would have done with the attempts of `loop`, without
    overrides.

    The result is exact if the policy stops within the recorded attempts. It is not
    exact if the result depends on when calls outside the attempts were made, if a
    budget of seconds would have cut off the last attempt, or if the feedback would have
    named other goals.
    """
    check_types(loop, policy)
    goals = loop.goals or policy.goals
    bare = replace(
        loop, improves=policy.improvement, goals=goals, overrides=(), cancelled=""
    )
    seen, verdict = _driven(replace(bare, extra=NO_USAGE), policy)
    with_extra = seen
    ended = verdict
    if loop.extra != NO_USAGE:
        with_extra, ended = _driven(bare, policy)
    budgets = [rule for rule in policy.rules if isinstance(rule, Budget)]
    seconds = min((rule.seconds for rule in budgets if rule.seconds), default=MAX_SCORE)
    # A budget may end before the first attempt begins or the last one ends.
    cut = with_extra.usage.seconds > seconds
    cut = cut or any(rule(with_extra.upto(0)) for rule in budgets)
    judged = [a.evaluation for a in seen.attempts[:-1] if a.evaluation]
    uses_policy_goals = not loop.goals and any(
        evaluation.unmet(goals) for evaluation in judged
    )
    exact = isinstance(ended, Done) and len(with_extra.attempts) == len(seen.attempts)
    exact = exact and not cut and not uses_policy_goals
    verdict = ended if exact and isinstance(verdict, Again) else verdict

    return ReplayResult(
        len(seen.attempts), seen.best, verdict=verdict, exact=exact, usage=seen.usage
    )


def _driven(loop: Loop, policy: Policy) -> tuple[Loop, Verdict]:
    """Return the loop up to the attempt after which `policy` stops it, and the last
    verdict.
    """
    verdict: Verdict = Again()
    seen = loop.upto(0)
    while len(seen.attempts) < len(loop.attempts) and isinstance(verdict, Again):
        seen = loop.upto(len(seen.attempts) + 1)
        verdict = decide(seen, policy)
    return seen, verdict


def compare(
    recorded: Sequence[RecordedLoop], policies: Iterable[Policy]
) -> tuple[Figures, ...]:
    """Return the figures of each policy over all loops, in the order of `policies`."""
    oracles = [record.oracle for record in recorded]
    compared = []
    for policy in policies:
        results = [replay(record.loop, policy) for record in recorded]
        worths = [
            record.worth(result.kept)
            for record, result in zip(recorded, results, strict=True)
        ]
        quality = 0.0
        if recorded:
            quality = sum(worths) / len(recorded)
        regrets = [
            max(0, result.attempts - oracle)
            for result, oracle in zip(results, oracles, strict=True)
        ]
        figures = Figures(
            policy=policy.name,
            loops=len(recorded),
            attempts=sum(result.attempts for result in results),
            usage=sum((result.usage for result in results), NO_USAGE),
            solved=sum(worth == 1 for worth in worths),
            solvable=sum(record.solvable for record in recorded),
            quality=quality,
            oracle=sum(oracles),
            regret=sum(regrets),
            beyond=sum(not result.exact for result in results),
        )
        compared.append(figures)

    return tuple(compared)


def with_policy_goals(
    recorded: Sequence[RecordedLoop], policies: Sequence[Policy]
) -> list[RecordedLoop]:
    """Return the loops; a loop without goals gets the goals of the policies.

    All policies are then judged by the same goals. If the policies have different
    goals, or scores for these goals are missing in a loop, the loop stays as it is.
    """
    by_goals = {policy.goals: policy for policy in policies if policy.goals}
    if len(by_goals) != 1:
        return list(recorded)

    [(goals, policy)] = by_goals.items()
    judged_alike = []
    for record in recorded:
        if not record.loop.goals and not count_unscored([record], policy):
            record = replace(record, loop=replace(record.loop, goals=goals))
        judged_alike.append(record)

    return judged_alike


def count_unscored(recorded: Sequence[RecordedLoop], policy: Policy) -> int:
    """Count the loops without goals that lack a score for a goal of the policy."""
    count = 0
    for loop in (record.loop for record in recorded if not record.loop.goals):
        evaluations = (attempt.evaluation for attempt in loop.attempts)
        if any(e is not None and e.unscored(policy.goals) for e in evaluations):
            count += 1
    return count
