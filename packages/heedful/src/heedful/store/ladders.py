"""What rungs have spent, and how loops with a ladder ended.

A call of a rung with a limit is reserved before it is made: of several drivers, each
gets a call only while some are left. A reservation that a crash loses stays counted.
"""

import json

from heedful.lessons.scope import DAY_SECONDS, Scope
from heedful.loop import codec
from heedful.loop.ladder import (
    Allowance,
    Climb,
    LadderFigures,
    Spending,
    figure_ladders,
)
from heedful.loop.record import Usage
from heedful.store.connection import Db, bulk, key_of, storable
from heedful.validation import MAX_INTEGER, MAX_SCORE, Document


def reserve(db: Db, scope: Scope, allowance: Allowance, at: float) -> Spending | None:
    """Reserve one call of a rung at the time `at`, in seconds since 1970.

    Returns None if it is reserved, or else what the rung has spent on this day.
    """
    key = {**key_of(scope), **_day_of_rung(allowance.name, at)}
    limits = {
        "calls": MAX_INTEGER if allowance.calls is None else allowance.calls,
        "tokens": MAX_INTEGER if allowance.tokens is None else allowance.tokens,
        "cost": MAX_SCORE if allowance.cost is None else allowance.cost,
    }
    if db.first("reserve_call", {**key, **limits}) is not None:
        return None
    return spending(db, scope, allowance.name, at)


def spending(db: Db, scope: Scope, rung: str, at: float) -> Spending:
    """Return what a rung has spent on the day of the time `at`."""
    key = {**key_of(scope), **_day_of_rung(rung, at)}
    for row in db.select("calls, tokens, cost", "spending", key):
        return Spending(
            day=key["day"],
            calls=row["calls"],
            tokens=row["tokens"],
            cost=row["cost"],
        )
    return Spending(day=key["day"])


def spending_values(rung: str, usage: Usage, at: float) -> Document:
    """Return what an attempt adds to the row of its rung on a day.

    Its first call was reserved, so it is counted already.
    """
    return {
        **_day_of_rung(rung, at),
        "calls": max(0, usage.calls - 1),
        "tokens": usage.tokens,
        "cost": usage.cost,
    }


@bulk
def figures(db: Db, scope: Scope, model: str = "") -> LadderFigures:
    """Return what the rungs answered and spent in the newest loops with a ladder.

    These are at most 5,000 loops. With a `model`, only those count whose
    first rung it is.
    """
    newest = "order by at desc limit 5000"
    rows = db.select("record", "climb", key_of(scope), newest)
    climbs = [codec.from_document(Climb, json.loads(row["record"])) for row in rows]
    return figure_ladders(
        climb for climb in climbs if not model or climb.names[:1] == (model,)
    )


def _day_of_rung(rung: str, time: float) -> Document:
    """Return the columns that name a rung and a day, without the scope."""
    return {"rung": storable(rung), "day": int(time // DAY_SECONDS)}
