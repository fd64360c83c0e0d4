"""When to climb: how many attempts each rung of a ladder gets, from what happened.

A `ClimbRecord` counts, for the loops of one memory key, how often each attempt of a
rung passed, what it cost, and what a climb cost and solved. Old loops fade, because
memory changes what a model can do. `plan_ladder` reads the record before a loop begins,
so its plan depends on the past only.

An attempt of a rung is left out if it costs more for each task that it solves than a
climb does, even at the upper end of the interval of its share. No loop climbs to a rung
where hardly a climb passes. One loop in `EXPLORED_LOOPS` has no plan, so that the
record shows when this has changed.
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
# No loop climbs to a rung where hardly a climb passes: fewer than this share of them.
MIN_CLIMB_SHARE = 0.1
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
    """What the attempts of the rung with this `name` did.

    `attempts` has the first, second … attempt of the rung in a loop. `arrivals` counts
    the loops that climbed to it from below: whether they passed there or above, and
    what they cost from there on. No loop climbs to it while it `rests`, because hardly
    any climb passed.
    """

    name: str = ""
    attempts: tuple[AttemptShare, ...] = ()
    arrivals: AttemptShare = AttemptShare()
    rests: bool = False

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

    def with_attempts(self, attempts: Sequence[RungAttempt]) -> RungRecord:
        """Return the record with the attempts of the rung in one more loop."""
        shares = list(self.attempts)
        for index, attempt in enumerate(attempts):
            if index == len(shares):
                shares.append(AttemptShare())
            shares[index] = shares[index].after(
                attempt.passed, attempt.cost, attempt.seconds
            )
        return replace(self, attempts=tuple(shares))

    def with_arrival(self, later: Sequence[RungAttempt]) -> RungRecord:
        """Return the record with one more loop that climbed to the rung.

        `later` are its attempts from there on. The rung begins to rest when the upper
        end of the share that passed is too low, and goes on when half of that share is
        below the lower end.
        """
        arrivals = self.arrivals.after(
            any(attempt.passed for attempt in later),
            sum(attempt.cost for attempt in later),
            sum(attempt.seconds for attempt in later),
        )
        rests = self.rests
        if arrivals.count >= MIN_COUNTED_ATTEMPTS:
            least, most = arrivals.ends()
            rests = most <= MIN_CLIMB_SHARE
            if self.rests:
                rests = least <= MIN_CLIMB_SHARE / 2
        return replace(self, arrivals=arrivals, rests=rests)


@dataclass(frozen=True, slots=True)
class ClimbRecord:
    """What the loops of one memory key did on each rung, lowest first."""

    rungs: tuple[RungRecord, ...] = ()

    def of(self, names: Sequence[str]) -> ClimbRecord:
        """Return the record for rungs with these names.

        A rung with another name has no record. Nor is it known what a climb to a rung
        brings if the one below has another name.
        """
        rungs = []
        is_known = True
        for place, name in enumerate(names):
            rung = RungRecord(name)
            if place < len(self.rungs) and self.rungs[place].name == name:
                rung = self.rungs[place]
            if not is_known:
                rung = replace(rung, arrivals=AttemptShare(), rests=False)
            is_known = bool(rung.attempts)
            rungs.append(rung)
        return ClimbRecord(tuple(rungs))

    def after(self, climb: Climb) -> ClimbRecord:
        """Return the record with one more loop."""
        highest = max((attempt.rung for attempt in climb.attempts), default=0)
        missing = ("",) * (highest - len(climb.names))
        rungs = list(self.of((*climb.names, *missing)).rungs)

        for place in range(len(rungs)):
            attempts = [a for a in climb.attempts if a.rung == place + 1]
            rungs[place] = rungs[place].with_attempts(attempts)

        for index in range(1, len(climb.attempts)):
            before = climb.attempts[index - 1].rung
            rung = climb.attempts[index].rung
            if rung > before:
                arrived = rungs[rung - 1].with_arrival(climb.attempts[index:])
                rungs[rung - 1] = arrived
        return ClimbRecord(tuple(rungs))


def plan_ladder(
    ladder: Ladder, record: ClimbRecord, loop: str, seed: str = ""
) -> Ladder:
    """Return the ladder with the plan of a new loop, and the reasons for it.

    `loop` is the id of the loop; with the `seed` it decides whether the loop explores.
    A rung without a plan ends by the rules of the policy.
    """
    rungs = record.of(ladder.names).rungs
    tries: list[int | None] = [None] * len(rungs)
    reasons = []
    lower = 0
    for upper in range(1, len(rungs)):
        if rungs[upper].rests:
            tries[upper] = 0
            reasons.append(_why_rests(ladder, upper + 1, rungs[upper]))
            continue

        limit = _worthwhile_attempts(rungs[lower], rungs[upper])
        if limit is not None:
            tries[lower] = limit
            attempt = f"attempt {limit + 1} of {ladder.name(lower + 1)}"
            reasons.append(attempt + _why_left_out(limit, rungs[lower], rungs[upper]))
        lower = upper

    if not reasons:
        return ladder
    if _explores(loop, seed):
        why = f"one loop in {EXPLORED_LOOPS} may try all rungs"
        return replace(ladder, why=why)
    return replace(ladder, tries=tuple(tries), why="; ".join(reasons))


def _worthwhile_attempts(rung: RungRecord, upper: RungRecord) -> int | None:
    """Return how many attempts of a rung are worth their cost; None if all may be.

    An attempt is not, if even at the upper end of its share it costs more for each
    task that it solves than a climb does at the lower end. It counts as certain to pass
    if too little is known of it.
    """
    climb = upper.arrivals
    least, _ = climb.ends()
    if climb.count < MIN_COUNTED_ATTEMPTS or not least:
        return None

    cost, climb_cost = _costs(rung, upper)
    cost_of_solved = climb_cost / least
    limit = None
    gain_after = 0.0  # that of the attempts after this one, in the place of a climb
    for index in reversed(range(len(rung.attempts))):
        share = rung.attempts[index]
        least_count = MIN_COUNTED_ATTEMPTS if index else MIN_COUNTED_FIRST_ATTEMPTS
        _, chance = share.ends()
        if share.count < least_count:
            chance = 1.0
        gain = chance * cost_of_solved - cost + (1 - chance) * gain_after
        if gain < 0:
            gain = 0.0
            limit = index
        gain_after = gain
    return limit


def _costs(rung: RungRecord, upper: RungRecord) -> tuple[float, float]:
    """Return the cost of an attempt and of a climb: money, or time if it is unknown."""
    mean = rung.mean
    climb = upper.arrivals
    if mean.cost or climb.cost:
        return mean.cost, climb.cost
    return mean.seconds, climb.seconds


def _why_left_out(index: int, rung: RungRecord, upper: RungRecord) -> str:
    """Return why the attempts of a rung from this `index` on are left out."""
    share = rung.attempts[index]
    cost, climb_cost = _costs(rung, upper)
    ratio = cost / climb_cost if climb_cost else 0.0
    price = f"costs {ratio:.0%} of a climb"
    if not upper.arrivals.cost:
        price = f"takes {ratio:.0%} of the time of a climb"
    climbs = f"which passes in {upper.arrivals.mean:.0%}"
    return f" passes in {share.mean:.0%} of the loops and {price}, {climbs}"


def _why_rests(ladder: Ladder, number: int, rung: RungRecord) -> str:
    """Return why no loop climbs to a rung."""
    share = rung.arrivals.mean
    return f"a climb to {ladder.name(number)} passes in {share:.0%} of the loops"


def _explores(loop: str, seed: str) -> bool:
    """Return True for one loop in `EXPLORED_LOOPS`, by its id and the seed."""
    digest = hashlib.sha256(f"explore\0{seed}\0{loop}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % EXPLORED_LOOPS == 0
