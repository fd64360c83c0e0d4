"""The ladder of a loop: who can make its attempts, cheapest first.

A loop climbs when a rule ends the attempts of a rung: the next attempt is made by the
rung above, and the rules count from there. A loop without a ladder has one rung. Every
face that shows what rungs did in many loops takes the figures from `figure_ladders`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import date, timedelta
from operator import attrgetter
from typing import Any

from heedful.validation import require

MAX_RUNGS = 16
# What an answer spent is known only if the answer says so; heedful counts the calls.
REPORTED_UNITS = ("tokens", "cost")
COST_UNITS = ("calls", "tokens", "cost", "seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """The most that the attempts of one rung may spend in a day, over all loops.

    `name` is that of the rung. Days are those of UTC; None means no limit.
    """

    name: str
    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None

    @property
    def counted_units(self) -> list[str]:
        """The limited units that only an answer can report."""
        return [unit for unit in REPORTED_UNITS if getattr(self, unit) is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What the attempts of a rung have spent on a `day`, in days since 1970."""

    day: int
    calls: int = 0
    tokens: int = 0
    cost: float = 0.0

    def spent_of(self, allowance: Allowance) -> str:
        """Return in words which limits of the day are reached; "" if none is.

        >>> Spending(day=20_000, calls=2).spent_of(Allowance(name="large", calls=2))
        '2 of 2 calls spent, the limit of 2024-10-04 (UTC)'
        """
        reached = []
        for unit in ("calls", "tokens", "cost"):
            limit = getattr(allowance, unit)
            spent = getattr(self, unit)
            if limit is not None and spent >= limit:
                reached.append(f"{spent:.12g} of {limit:.12g} {unit}")
        if not reached:
            return ""
        day = date(1970, 1, 1) + timedelta(days=self.day)
        return f"{', '.join(reached)} spent, the limit of {day} (UTC)"


@dataclass(frozen=True, slots=True)
class RungAttempt:
    """What one attempt of a loop with a ladder cost, and whether it passed.

    `seconds` is wall time, `cost` is in the currency of `Usage.cost`.
    """

    rung: int
    passed: bool
    _: KW_ONLY
    calls: int = 1
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """The calls and costs of loops with a ladder outside the attempts of their rungs.

    They are from calls that failed or were cut off, and from drafts of callers.
    """

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0

    def __str__(self) -> str:
        if not (self.calls or self.tokens or self.cost):
            return ""
        spent = f"calls {self.calls}, tokens {self.tokens}, cost {self.cost:.6g}"
        return f"besides, calls that failed or were cut off, and drafts: {spent}"


def add_overheads(costs: Sequence[object]) -> Overhead:
    """Return the sums of usages or overheads."""
    sums = add_costs(costs)
    return Overhead(
        calls=sums["calls"],
        tokens=sums["tokens"],
        cost=sums["cost"],
        seconds=sums["seconds"],
    )


def add_costs(costs: Sequence[object]) -> dict[str, Any]:
    """Return the sums of usages, attempts or overheads, by unit.

    >>> add_costs([Overhead(calls=1, tokens=20), Overhead(calls=2, seconds=0.5)])
    {'calls': 3, 'tokens': 20, 'cost': 0.0, 'seconds': 0.5}
    """
    return {unit: sum(map(attrgetter(unit), costs)) for unit in COST_UNITS}


@dataclass(frozen=True, slots=True)
class Climb:
    """The attempts of a loop with a ladder that ended `at`, in seconds since 1970.

    `names` are those of the rungs. `overhead` is what else the loop spent.
    """

    loop: str
    attempts: tuple[RungAttempt, ...]
    _: KW_ONLY
    names: tuple[str, ...] = ()
    at: float = 0.0
    overhead: Overhead = Overhead()

    @property
    def cost(self) -> float:
        """The cost of the whole loop, as `Loop.usage` has it."""
        return sum(attempt.cost for attempt in self.attempts) + self.overhead.cost

    @property
    def answered_by(self) -> int | None:
        """The rung whose attempt passed; None if none did."""
        rungs = [attempt.rung for attempt in self.attempts if attempt.passed]
        return rungs[0] if rungs else None

    @property
    def climbed(self) -> bool:
        """True if a rung above the first one made an attempt."""
        return any(attempt.rung > 1 for attempt in self.attempts)


@dataclass(frozen=True, slots=True)
class Closing:
    """A rung makes no further attempt, since the loop had so many `attempts`.

    `why` is the error of the rung, or the limit of the day that it has reached.
    """

    rung: int
    attempts: int = 0
    why: str = ""


def rung_label(number: int, name: str) -> str:
    """Return the number of a rung with its name, if it has one.

    >>> rung_label(2, "large")
    'rung 2 (large)'
    """
    return f"rung {number} ({name})" if name else f"rung {number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The rungs of a loop, counted from 1.

    `names` has a name for each rung: its model or its function. `closings` are the
    rungs that failed, or that have spent what they may.

    >>> ladder = Ladder(names=("small", "large"))
    >>> ladder.start, ladder.above(1), ladder.above(2)
    (1, 2, None)
    """

    names: tuple[str, ...]
    closings: tuple[Closing, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.names)
        allowed = f"2 to {MAX_RUNGS} rungs, cheapest first"
        require(2 <= count <= MAX_RUNGS, "ladder", self.names, allowed)
        require(
            all(1 <= rung <= count for rung in self.closed),
            "closings",
            self.closings,
            f"rungs from 1 to {count}",
        )

    @property
    def start(self) -> int:
        """The rung that makes the first attempt: the first one, unless it is closed."""
        return self.above(0) or 1

    def above(self, rung: int) -> int | None:
        """Return the next rung above `rung` that may make attempts; None if none is."""
        for number in range(rung + 1, len(self.names) + 1):
            if number not in self.closed:
                return number
        return None

    def renamed(self, names: tuple[str, ...]) -> "Ladder":
        """Return the ladder with these rungs; those that are closed stay so."""
        closings = tuple(item for item in self.closings if item.rung <= len(names))
        return replace(self, names=names, closings=closings)

    def name(self, rung: int) -> str:
        """Return the name of a rung with its number."""
        return rung_label(rung, self.names[rung - 1])

    @property
    def closed(self) -> tuple[int, ...]:
        """The rungs that make no further attempt."""
        return tuple(closing.rung for closing in self.closings)

    def close(self, rung: int, attempts: int, why: str) -> "Ladder":
        """Return the ladder without further attempts of `rung`.

        The loop has made so many `attempts`.
        """
        closing = Closing(rung, attempts, f"{self.name(rung)}: {why}")
        return replace(self, closings=(*self.closings, closing))

    def upto(self, attempts: int) -> "Ladder":
        """Return the ladder as it was when the loop had made so many attempts."""
        closings = tuple(item for item in self.closings if item.attempts <= attempts)
        return replace(self, closings=closings)

    def reason(self, rungs: Collection[int]) -> str:
        """Return why some of `rungs` are closed; "" if none of them is."""
        return "; ".join(item.why for item in self.closings if item.rung in rungs)


@dataclass(frozen=True, slots=True, kw_only=True)
class RungFigures:
    """The results and costs of one rung in loops with a ladder.

    `model` is the name of the rung. It answered `tasks`, a `share` of all loops, from 0
    to 1. Its `attempts` in all loops made `calls` and spent `tokens`, `cost` in the
    currency of `Usage.cost`, and `seconds` of wall time.
    """

    rung: int
    model: str
    tasks: int
    share: float
    attempts: int
    calls: int
    tokens: int
    cost: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderFigures:
    """The figures of `tasks` loops with a ladder, by rung.

    `passed` counts the loops that were answered. The `rungs` and the `overhead`
    together are everything that the loops spent.
    """

    tasks: int = 0
    passed: int = 0
    rungs: tuple[RungFigures, ...] = ()
    overhead: Overhead = Overhead()


def figure_ladders(climbs_or_none: Iterable[Climb | None]) -> LadderFigures:
    """Return the figures of loops with a ladder; those without one are None.

    Rungs of the same number with different models are listed by themselves.
    """
    climbs = [climb for climb in climbs_or_none if climb is not None]
    attempts: defaultdict[tuple[int, str], list[RungAttempt]] = defaultdict(list)
    for climb in climbs:
        for number, name in enumerate(climb.names, 1):
            attempts[number, name] += [a for a in climb.attempts if a.rung == number]

    return LadderFigures(
        tasks=len(climbs),
        passed=sum(1 for climb in climbs if climb.answered_by),
        rungs=tuple(
            _figure_rung(rung, model, attempts[rung, model], len(climbs))
            for rung, model in sorted(attempts)
        ),
        overhead=add_overheads([climb.overhead for climb in climbs]),
    )


def _figure_rung(
    rung: int, model: str, attempts: Sequence[RungAttempt], tasks: int
) -> RungFigures:
    """Return the figures of a rung from its attempts in `tasks` loops."""
    # A loop ends with the attempt that passes, so at most one of a loop does.
    answered = sum(1 for attempt in attempts if attempt.passed)
    return RungFigures(
        rung=rung,
        model=model,
        tasks=answered,
        share=answered / tasks,
        attempts=len(attempts),
        **add_costs(attempts),
    )
