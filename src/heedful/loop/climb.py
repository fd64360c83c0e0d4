"""When to climb: how many attempts each rung of a ladder gets, from what happened.

A `ClimbRecord` counts, for the loops of one memory key, how often each attempt of a
rung passed, what it cost, and what a climb cost and solved. Old loops fade, because
memory changes what a model can do. `plan_ladder` reads the record before a loop begins,
so its plan depends on the past only.

A rung gets the number of attempts for which a loop costs least: its attempts, and the
climb if all of them fail. Attempts are left out only if this holds even at the upper
ends of the intervals of the shares that pass. One loop in `EXPLORED_LOOPS` has no plan,
so that the record shows when this has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from math import sqrt

from heedful.loop.ladder import Climb, Ladder, RungAttempt

# A share counts from this many attempts on. The first attempts of a rung decide whether
# loops begin above it, and memory helps them most, so they must be many more.
MIN_COUNTED_ATTEMPTS = 15
MIN_COUNTED_FIRST_ATTEMPTS = 40
# One loop in so many has no plan.
EXPLORED_LOOPS = 20
# After so many further attempts, an attempt counts 1 / e of a new one.
FADING_ATTEMPTS = 50
# A normal variable is within this many standard deviations below its upper end with
# a probability of 95 %.
ONE_SIDED_95_PERCENT = 1.645


@dataclass(frozen=True, slots=True)
class AttemptShare:
    """How many attempts there were and how many passed; old ones count less.

    `cost` is the mean of their costs, and `seconds` that of their wall time.
    """

    count: float = 0.0
    passed: float = 0.0
    _: KW_ONLY
    cost: float = 0.0
    seconds: float = 0.0

    @property
    def mean(self) -> float:
        """The share that passed; 0 without attempts."""
        return self.passed / self.count if self.count else 0.0

    def after(self, passed: bool, cost: float, seconds: float) -> AttemptShare:
        """Return the share with one more attempt."""
        fading = 1 - 1 / FADING_ATTEMPTS
        count = self.count * fading + 1
        return AttemptShare(
            count,
            self.passed * fading + passed,
            cost=self.cost + (cost - self.cost) / count,
            seconds=self.seconds + (seconds - self.seconds) / count,
        )

    def ends(self) -> tuple[float, float]:
        """Return the ends of the share's interval, each missed with at most 5 %.

        It is the score interval of E. B. Wilson, "Probable inference, the law of
        succession, and statistical inference", J. Am. Stat. Assoc. 22 (1927) 209-212.
        """
        if not self.count:
            return 0.0, 1.0
        squared = ONE_SIDED_95_PERCENT**2 / self.count
        centre = (self.mean + squared / 2) / (1 + squared)
        spread = self.mean * (1 - self.mean) / self.count + squared / 4 / self.count
        half = ONE_SIDED_95_PERCENT * sqrt(spread) / (1 + squared)
        return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True, slots=True)
class RungRecord:
    """What the attempts of one rung did, and what the rungs above it did after them.

    `attempts` has the first, second … attempt of the rung in a loop. `above` counts the
    loops that climbed from it. It `rests` while climbing has shown no gain.
    """

    attempts: tuple[AttemptShare, ...] = ()
    above: AttemptShare = AttemptShare()
    rests: bool = False

    @property
    def retries(self) -> AttemptShare:
        """All attempts of the rung but the first of a loop."""
        later = self.attempts[1:]
        count = sum(share.count for share in later)
        return AttemptShare(count, sum(share.passed for share in later))

    @property
    def mean(self) -> AttemptShare:
        """All attempts of the rung together."""
        count = sum(share.count for share in self.attempts)
        if not count:
            return AttemptShare()
        return AttemptShare(
            count,
            sum(share.passed for share in self.attempts),
            cost=sum(share.count * share.cost for share in self.attempts) / count,
            seconds=sum(share.count * share.seconds for share in self.attempts) / count,
        )

    def after(
        self, of_rung: Sequence[RungAttempt], later: Sequence[RungAttempt]
    ) -> RungRecord:
        """Return the record with one more loop.

        It has the attempts `of_rung`, and `later` those of rungs above.
        """
        attempts = list(self.attempts)
        for index, attempt in enumerate(of_rung):
            if index == len(attempts):
                attempts.append(AttemptShare())
            attempts[index] = attempts[index].after(
                attempt.passed, attempt.cost, attempt.seconds
            )

        above = self.above
        if of_rung and later:
            above = above.after(
                any(attempt.passed for attempt in later),
                sum(attempt.cost for attempt in later),
                sum(attempt.seconds for attempt in later),
            )
        record = RungRecord(tuple(attempts), above, self.rests)
        return replace(record, rests=record.should_rest())

    def should_rest(self) -> bool:
        """Return whether climbing has shown no gain over one more attempt.

        It begins to rest when it solved no larger a share, and goes on when the
        interval of its share is above that of the retries.
        """
        if self.above.count < MIN_COUNTED_ATTEMPTS:
            return self.rests
        retries = self.retries
        if not self.rests:
            return self.above.mean <= retries.mean
        least, _ = self.above.ends()
        return least <= retries.mean


@dataclass(frozen=True, slots=True)
class ClimbRecord:
    """What the loops of one memory key did on each rung, lowest first."""

    rungs: tuple[RungRecord, ...] = ()

    def after(self, climb: Climb) -> ClimbRecord:
        """Return the record with one more loop."""
        highest = max((attempt.rung for attempt in climb.attempts), default=0)
        count = max(highest, len(self.rungs))
        rungs = list(self.rungs)
        rungs += [RungRecord()] * (count - len(rungs))

        for place in range(count):
            of_rung = [a for a in climb.attempts if a.rung == place + 1]
            later = [a for a in climb.attempts if a.rung > place + 1]
            rungs[place] = rungs[place].after(of_rung, later)
        return ClimbRecord(tuple(rungs))


def plan_ladder(
    ladder: Ladder, record: ClimbRecord, loop: str, seed: str = ""
) -> Ladder:
    """Return the ladder with the plan of a new loop, and the reasons for it.

    `loop` is the id of the loop; with the `seed` it decides whether the loop explores.
    A rung without a plan ends by the rules of the policy.
    """
    tries: list[int | None] = [None] * len(ladder.names)
    reasons = []
    for place, rung in enumerate(record.rungs[: len(tries) - 1]):
        if rung.rests:
            tries[place + 1] = 0
            reasons.append(_why_rests(ladder, place + 1, rung))
            continue

        limit = _worthwhile_attempts(rung)
        # No loop climbs to a rung that is left out, so it keeps its record.
        if limit is not None and tries[place] is None:
            tries[place] = limit
            reasons.append(_why_limited(ladder, place + 1, rung, limit))

    if not reasons:
        return ladder
    if _explores(loop, seed):
        why = f"one loop in {EXPLORED_LOOPS} tries all rungs"
        return replace(ladder, why=why)
    return replace(ladder, tries=tuple(tries), why="; ".join(reasons))


def _worthwhile_attempts(rung: RungRecord) -> int | None:
    """Return how many attempts of a rung cost least, with the climb after them.

    None means that all may be worth their cost. Each attempt counts as good as the
    upper end of its interval, and as certain to pass if too little is known of it.
    """
    if rung.above.count < MIN_COUNTED_ATTEMPTS:
        return None

    cost, climb_cost = _costs(rung)
    limit = None
    left = climb_cost  # what a loop still costs after so many attempts of the rung
    for index in reversed(range(len(rung.attempts))):
        share = rung.attempts[index]
        least_count = MIN_COUNTED_ATTEMPTS if index else MIN_COUNTED_FIRST_ATTEMPTS
        _, chance = share.ends()
        if share.count < least_count:
            chance = 1.0
        left = cost + (1 - chance) * left
        if left > climb_cost:
            left = climb_cost
            limit = index
    return limit


def _costs(rung: RungRecord) -> tuple[float, float]:
    """Return the cost of an attempt and of a climb: money, or time if it is unknown."""
    mean = rung.mean
    if mean.cost or rung.above.cost:
        return mean.cost, rung.above.cost
    return mean.seconds, rung.above.seconds


def _why_limited(ladder: Ladder, number: int, rung: RungRecord, limit: int) -> str:
    """Return why a rung gets so many attempts."""
    share = rung.attempts[limit]
    cost, climb_cost = _costs(rung)
    ratio = cost / climb_cost if climb_cost else 0.0
    passed = f"attempt {limit + 1} of {ladder.name(number)} passes in {share.mean:.0%}"
    price = f"costs {ratio:.0%} of what a climb costs"
    if not rung.above.cost:
        price = f"takes {ratio:.0%} of the time of a climb"
    return f"{passed} of the loops and {price}"


def _why_rests(ladder: Ladder, number: int, rung: RungRecord) -> str:
    """Return why no loop climbs from a rung."""
    solved = f"a climb from {ladder.name(number)} solves {rung.above.mean:.0%}"
    return f"{solved}, another attempt {rung.retries.mean:.0%}"


def _explores(loop: str, seed: str) -> bool:
    """Return True for one loop in `EXPLORED_LOOPS`, by its id and the seed."""
    digest = hashlib.sha256(f"explore\0{seed}\0{loop}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % EXPLORED_LOOPS == 0


def record_of(climbs: Sequence[Climb]) -> ClimbRecord:
    """Return the record of loops, oldest first."""
    record = ClimbRecord()
    for climb in climbs:
        record = record.after(climb)
    return record
