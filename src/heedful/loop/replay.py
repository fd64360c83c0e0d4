"""Replay recorded loops under other policies, and choose the cheapest policy.

`replay` decides again on recorded attempts. `tune` chooses the best policy of a grid on one half of
the loops, and reports its figures on the other half.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from heedful.errors import InvalidInput
from heedful.loop.decide import Again, Done, Policy, Verdict, check_types, decide
from heedful.loop.policies import policy
from heedful.loop.record import LARGEST, NOTHING, Improvement, Loop, Usage, check_number
from heedful.loop.stop import Budget, MaxAttempts

LESS = 0.999  # the highest quality of an attempt that does not pass


@dataclass(frozen=True)
class RecordedLoop:
    """A recorded loop and, if known, the true quality (0..1) of each attempt.

    If unknown, the quality of an attempt that passes is 1; otherwise it is the share of checks that
    passed, but less than 1, because a goal may still be missed.
    """

    loop: Loop
    quality: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.quality and len(self.quality) != len(self.loop.attempts):
            allowed = f"one number for each of {len(self.loop.attempts)} attempts, or left out"
            raise InvalidInput("quality", self.quality, allowed)
        for value in self.quality:
            check_number("quality", value, 0, 1)

    def worth(self, attempt: int | None) -> float:
        """Return the quality of the attempt with this number (from 1); 0 for None."""
        if attempt is not None and self.quality:
            return self.quality[attempt - 1]
        evaluation = self.loop.attempts[attempt - 1].evaluation if attempt else None
        if evaluation is None:
            return 0.0
        passes = evaluation.passes(self.loop.goals)
        return 1.0 if passes else min(evaluation.met or 0.0, LESS)

    @property
    def oracle(self) -> int:
        """The number of the first attempt of quality 1, or 1 if there is no such attempt."""
        return self._solving()[0] if self.solvable else 1

    @property
    def solvable(self) -> bool:
        """True if any attempt has quality 1."""
        return bool(self._solving())

    def _solving(self) -> list[int]:
        return [n for n in range(1, len(self.loop.attempts) + 1) if self.worth(n) == 1]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a policy does with a recorded loop: how many attempts it makes and which it keeps.

    `exact` is False if the record does not show the result, usually because the recording ends
    before the policy stops.
    """

    attempts: int
    kept: int | None
    verdict: Verdict
    exact: bool
    usage: Usage


@dataclass(frozen=True, slots=True)
class Figures:
    """What a policy would have cost and solved over recorded loops.

    `solved` counts the loops whose kept attempt has quality 1, `solvable` the loops in which any
    attempt has quality 1. `quality` is the mean over the kept attempts (0..1). `oracle` is the sum
    of `RecordedLoop.oracle`, `regret` the number of attempts that the policy makes after the oracle
    stops. `beyond` counts loops whose replay is not exact; their cost and quality are lower bounds.
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
        """The number of solvable loops that the policy does not solve."""
        return self.solvable - self.solved


def replay(loop: Loop, policy: Policy) -> ReplayResult:
    """Return what `policy` would have done with the attempts of `loop`, without overrides.

    The result is exact if the policy stops within the recorded attempts. It is not exact if the
    result depends on when calls outside the attempts were made, if a budget of seconds would have
    cut off the last attempt, or if the feedback would have named other goals.
    """
    check_types(loop, policy)
    goals = loop.goals or policy.goals
    bare = replace(loop, improves=policy.improvement, goals=goals, overrides=(), cancelled="")
    seen, verdict = _driven(replace(bare, extra=NOTHING), policy)
    made, ended = _driven(bare, policy) if loop.extra != NOTHING else (seen, verdict)
    budgets = [rule for rule in policy.rules if isinstance(rule, Budget)]
    seconds = min((rule.seconds for rule in budgets if rule.seconds), default=LARGEST)
    # A budget may end before the first attempt begins or the last one ends.
    cut = made.usage.seconds > seconds or any(rule(made.upto(0)) for rule in budgets)
    judged = [a.evaluation for a in seen.attempts[:-1] if a.evaluation]
    named = not loop.goals and any(evaluation.unmet(goals) for evaluation in judged)
    exact = isinstance(ended, Done) and len(made.attempts) == len(seen.attempts)
    exact = exact and not cut and not named
    verdict = ended if exact and isinstance(verdict, Again) else verdict
    return ReplayResult(len(seen.attempts), seen.best, verdict, exact, seen.usage)


def _driven(loop: Loop, policy: Policy) -> tuple[Loop, Verdict]:
    """Return the loop up to the attempt after which `policy` stops it, and the last verdict."""
    verdict: Verdict = Again()
    seen = loop.upto(0)
    while len(seen.attempts) < len(loop.attempts) and isinstance(verdict, Again):
        seen = loop.upto(len(seen.attempts) + 1)
        verdict = decide(seen, policy)
    return seen, verdict


def compare(recorded: Sequence[RecordedLoop], policies: Iterable[Policy]) -> tuple[Figures, ...]:
    """Return the figures of each policy over all loops, in the order of `policies`."""
    oracles, found = [one.oracle for one in recorded], list[Figures]()
    for each in policies:
        made = [replay(one.loop, each) for one in recorded]
        worths = [one.worth(result.kept) for one, result in zip(recorded, made, strict=True)]
        over = (max(0, m.attempts - least) for m, least in zip(made, oracles, strict=True))
        figures = Figures(
            policy=each.name,
            loops=len(recorded),
            attempts=sum(result.attempts for result in made),
            usage=sum((result.usage for result in made), NOTHING),
            solved=sum(worth == 1 for worth in worths),
            solvable=sum(one.solvable for one in recorded),
            quality=sum(worths) / len(recorded) if recorded else 0.0,
            oracle=sum(oracles),
            regret=sum(over),
            beyond=sum(not result.exact for result in made),
        )
        found.append(figures)
    return tuple(found)


MOST = 8  # the highest limit of attempts in the grid
REPEATS = tuple(
    f"repeat.times={times}{near}" for times in (1, 2, 3) for near in ("", ", repeat.near=false")
)
# The base "default" includes its rule for loops in which no check has passed. Policies based on
# "stage" have only the rules that are written here.
WRITTEN = (
    "stage",
    *(f"stage, {repeat}" for repeat in REPEATS),
    *(f"default, {repeat}" for repeat in REPEATS[2:]),
    "default, -repeat",
    *(f"stage, plateau.patience={patience}" for patience in (1, 2, 3)),
    *(f"stage, fatigue.limit={limit}" for limit in (0.15, 0.45)),
    *(f"stage, repeat.times=2, plateau.patience={patience}" for patience in (2, 3)),
)
Watch = Callable[[int, int], object]


@dataclass(frozen=True)
class TuningResult:
    """The cheapest policy that solves enough loops.

    `chosen_on` are the figures of this policy on the half of the loops that was used to choose it;
    `reported_on` are its figures on the other half. `before` are the old policy's figures on this
    other half, too. `tried` is the number of policies that were tried.
    """

    policy: Policy
    chosen_on: Figures
    reported_on: Figures
    before: Figures
    tried: int


def grid(base: Policy | None = None) -> Iterator[Policy]:
    """Yield policies of at most three rules; their names are texts that `policy` accepts.

    All have the improvement, the goals and the `unscored` of `base`.
    """
    base = base or policy("stage")
    better = base.improvement if isinstance(base.improvement, Improvement) else Improvement()
    kept = [
        *[f"min_gain={better.min_gain!r}"] * (better.min_gain != Improvement().min_gain),
        *[f"against={better.against}"] * (better.against != "best"),
        *[f"unscored={base.unscored}"] * (base.unscored != "stop"),
        *map(str, base.goals),
    ]
    for written in WRITTEN:
        # With a limit of 1, the other rules have no effect.
        for limit in range(1 if written == "stage" else 2, MOST + 1):
            made = policy(f"{written}, attempts.limit={limit}")
            name = ", ".join([made.name, *kept])
            yield Policy(made.rules, base.improvement, base.unscored, name, base.goals)


def tune(
    recorded: Sequence[RecordedLoop],
    before: Policy,
    keep: float = 0.99,
    watch: Watch = lambda done, total: None,
) -> TuningResult:
    """Choose, on half of the loops, the policy with the fewest attempts that solves enough loops.

    Enough is a share `keep` (0..1) of the solvable loops. A replay that is not exact counts with as
    many attempts as the policy allows. If no policy is better, the result is `before`. The id of a
    loop determines its half. `watch(done, total)` is told how many replays are done, and of how
    many. Raises InvalidInput.
    """
    check_number("keep", keep, 0, 1)
    loops = (replace(one.loop, goals=one.loop.goals or before.goals) for one in recorded)
    aimed = [replace(one, loop=loop) for one, loop in zip(recorded, loops, strict=True)]
    halves: tuple[list[RecordedLoop], list[RecordedLoop]] = ([], [])
    for one in aimed:
        id = one.loop.id.encode("utf-8", "surrogatepass")
        halves[hashlib.sha256(id).digest()[0] % 2].append(one)
    if min(map(len, halves)) < 2:
        split = " and ".join(str(len(half)) for half in halves)
        allowed = f"more: their ids give halves of {split} loops, and each half needs at least two"
        raise InvalidInput("loops", len(recorded), allowed)
    before = replace(before, name=before.name or "as it is")
    (now,) = compare(halves[0], [before])
    tried = [(now.attempts, -now.solved, before)]
    policies = list(grid(before))
    for place, each in enumerate(policies, 1):
        tried.append((*_cost(halves[0], each), each))
        watch(place * len(halves[0]), len(policies) * len(halves[0]))
    enough = Fraction(str(keep)) * now.solvable
    fits = [trial for trial in tried if now.solvable and -trial[1] >= enough]
    best = min(fits or tried[:1], key=lambda trial: trial[:2])[2]
    (chosen,) = compare(halves[0], [best])
    reported, old = compare(halves[1], (best, before))
    return TuningResult(best, chosen, reported, old, len(tried))


def _cost(recorded: Sequence[RecordedLoop], policy: Policy) -> tuple[int, int]:
    """Return an upper bound of the policy's attempts, and the negated number of solved loops."""
    limit = next(rule.limit for rule in policy.rules if isinstance(rule, MaxAttempts))
    made = [(one, replay(one.loop, policy)) for one in recorded]
    most = sum(result.attempts if result.exact else limit for _, result in made)
    return most, -sum(one.worth(result.kept) == 1 for one, result in made)
