"""Replay when to climb: what other plans of a ladder would have cost and solved.

A recorded loop shows what another plan would have done only where it made the same
attempts, or more. A rung above the first answered with the feedback on the attempts
below it; that it would have done as well without it is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from itertools import chain
from typing import Any

from heedful.errors import InvalidInput
from heedful.loop.climb import ClimbRecord, plan_ladder
from heedful.loop.ladder import Climb, Ladder, RungAttempt
from heedful.loop.record import Loop
from heedful.validation import MAX_SCORE, check_number

Tries = tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedClimb:
    """How a loop with a ladder went, under the ladder that it had in the end.

    Loops of one `key`, which is their memory key, share one record.
    """

    climb: Climb
    ladder: Ladder
    key: str = ""

    @classmethod
    def of(cls, loop: Loop, key: str = "") -> RecordedClimb | None:
        """Return how a loop went.

        None without a ladder or attempts, or if it was cancelled.
        """
        climb = loop.climb()
        if climb is None or loop.ladder is None:
            return None
        if loop.cancelled or not climb.attempts:
            return None
        return cls(climb=climb, ladder=loop.ladder, key=key)

    def follow(self, tries: Tries) -> Followed:
        """Return what a plan would have done, as far as it is recorded."""
        attempts: list[RungAttempt] = []
        for rung, limit in enumerate(tries, start=1):
            if limit == 0:
                continue
            for attempt in self._of_rung(rung)[:limit]:
                attempts.append(attempt)
                if attempt.passed:
                    return Followed(self, tuple(attempts), shows_all=True)
            if not self._shows(rung, limit):
                return Followed(self, tuple(attempts), shows_all=False)
        return Followed(self, tuple(attempts), shows_all=True)

    def _of_rung(self, rung: int) -> list[RungAttempt]:
        return [attempt for attempt in self.climb.attempts if attempt.rung == rung]

    def _shows(self, rung: int, limit: int | None) -> bool:
        """Return whether all attempts of a rung are recorded and none passed."""
        count = len(self._of_rung(rung))
        if limit is not None and count >= limit:
            return True
        recorded_limit = self.ladder.limit(rung)
        was_ended = recorded_limit is not None and count >= recorded_limit
        return count > 0 and not was_ended and rung not in self.ladder.closed

    def priced(self, prices: Sequence[float]) -> RecordedClimb:
        """Return the loop with these prices of a token, one for each rung.

        A ladder that had fewer rungs gets the others. Raises InvalidInput if it had
        more.
        """
        names = self.ladder.names
        if len(prices) < len(names):
            rungs = ", ".join(map(self.ladder.name, range(1, len(names) + 1)))
            raise InvalidInput("prices", tuple(prices), f"a price for each of: {rungs}")
        missing = ("",) * (len(prices) - len(names))
        ladder = self.ladder.renamed((*names, *missing))
        attempts = [
            replace(attempt, cost=attempt.tokens * prices[attempt.rung - 1])
            for attempt in self.climb.attempts
        ]
        climb = replace(self.climb, attempts=tuple(attempts))
        return replace(self, climb=climb, ladder=ladder)


@dataclass(frozen=True, slots=True)
class Followed:
    """The recorded attempts of a loop that a plan would have made.

    The record `shows_all` of them, or the plan would have made others, too.
    """

    recorded: RecordedClimb
    attempts: tuple[RungAttempt, ...]
    _: KW_ONLY
    shows_all: bool


@dataclass(frozen=True, slots=True)
class Way:
    """A way to climb: it plans a loop from the record of its key."""

    name: str
    plan: Callable[[RecordedClimb, ClimbRecord], Tries]


def _all_tries(recorded: RecordedClimb, record: ClimbRecord) -> Tries:
    return (None,) * len(recorded.ladder.names)


def _one_try(recorded: RecordedClimb, record: ClimbRecord) -> Tries:
    return (*(1 for _ in recorded.ladder.names[1:]), None)


def _last_rung(recorded: RecordedClimb, record: ClimbRecord) -> Tries:
    return (*(0 for _ in recorded.ladder.names[1:]), None)


def _planned(recorded: RecordedClimb, record: ClimbRecord) -> Tries:
    ladder = Ladder(names=recorded.ladder.names)
    return plan_ladder(ladder, record, recorded.climb.loop).tries


ALL_TRIES = Way("all tries, then climb", _all_tries)
ONE_TRY = Way("one try, then climb", _one_try)
LAST_RUNG = Way("the last rung at once", _last_rung)
PLANNED = Way("planned from the past", _planned)
WAYS = (ALL_TRIES, ONE_TRY, LAST_RUNG, PLANNED)


@dataclass(frozen=True, slots=True, kw_only=True)
class WayFigures:
    """What a way to climb would have cost and solved over recorded loops.

    `beyond` counts the loops whose record does not show it. All other figures are those
    of the other `loops`; the `recorded` ones are what the same loops did cost and
    solve. `alone` counts those that the first rung solves.
    """

    way: str
    loops: int
    beyond: int
    attempts: int
    tokens: int
    cost: float
    recorded_cost: float
    solved: int
    recorded_solved: int
    alone: int

    def plain(self) -> dict[str, Any]:
        """Return JSON data."""
        return asdict(self)


def compare_ways(
    recorded: Sequence[RecordedClimb], ways: Sequence[Way] = WAYS
) -> tuple[WayFigures, ...]:
    """Return the figures of each way over loops, oldest first.

    A plan from the past reads what the loops before it would have done under this plan,
    where their records show it.
    """
    return tuple(_figures(way, list(_follow(recorded, way))) for way in ways)


def _follow(recorded: Sequence[RecordedClimb], way: Way) -> Iterator[Followed]:
    records: dict[str, ClimbRecord] = {}
    for loop in recorded:
        record = records.get(loop.key, ClimbRecord())
        followed = loop.follow(way.plan(loop, record))
        if followed.shows_all:
            climb = replace(loop.climb, attempts=followed.attempts)
            records[loop.key] = record.after(climb)
        yield followed


def _figures(way: Way, loops: Sequence[Followed]) -> WayFigures:
    clear = [loop for loop in loops if loop.shows_all]
    attempts = list(chain.from_iterable(loop.attempts for loop in clear))
    recorded = [loop.recorded.climb.attempts for loop in clear]
    return WayFigures(
        way=way.name,
        loops=len(clear),
        beyond=len(loops) - len(clear),
        attempts=len(attempts),
        tokens=sum(attempt.tokens for attempt in attempts),
        cost=sum(attempt.cost for attempt in attempts),
        recorded_cost=sum(attempt.cost for attempt in chain.from_iterable(recorded)),
        solved=sum(_passed(loop.attempts) for loop in clear),
        recorded_solved=sum(map(_passed, recorded)),
        alone=sum(_passed_on_first(loop.attempts) for loop in clear),
    )


def _passed(attempts: Sequence[RungAttempt]) -> bool:
    return any(attempt.passed for attempt in attempts)


def _passed_on_first(attempts: Sequence[RungAttempt]) -> bool:
    return any(attempt.passed and attempt.rung == 1 for attempt in attempts)


def parse_prices(text: str) -> tuple[float, ...]:
    """Return the prices in a text such as "1,5". Raises InvalidInput."""
    allowed = "the price of a token of each rung, with commas between: 1,5"
    try:
        prices = tuple(map(float, text.split(",")))
    except ValueError:
        raise InvalidInput("prices", text, allowed) from None
    if len(prices) < 2:
        raise InvalidInput("prices", text, allowed)
    for price in prices:
        check_number("prices", price, low=0, high=MAX_SCORE)
    return prices
