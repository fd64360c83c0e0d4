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
    """Reserve one call of a rung, that is one model of a ladder from cheap to dear.

    `allowance` names the rung and what it may spend a day; None is no limit. The day is
    that of the time `at`, in seconds since 1970. Returns None if the call is reserved.
    If a limit is reached, returns what the rung has spent on this day.
    """
    key = {**key_of(scope), **_day_of_rung(allowance.name, at)}
    limits = {
        "calls": MAX_INTEGER if allowance.calls is None else allowance.calls,
        "tokens": MAX_INTEGER if allowance.tokens is None else allowance.tokens,
        "cost": MAX_SCORE if allowance.cost is None else allowance.cost,
    }
    # One statement checks the limits and counts the call, so that several processes
    # cannot take the last call twice. It returns no row if a limit is reached.
    if db.first("reserve_call", {**key, **limits}) is not None:
        return None
    return spending(db, scope, allowance.name, at)


def spending(db: Db, scope: Scope, rung: str, at: float) -> Spending:
    """Return what a rung, one model of a ladder, has spent on the day of a time.

    `at` is in seconds since 1970. Without a record, the rung has spent nothing.
    """
    key = {**key_of(scope), **_day_of_rung(rung, at)}
    # There is at most one row, and its columns are fields of the result.
    rows = db.select("calls, tokens, cost", "spending", key)
    spent = dict(rows[0]) if rows else {}
    return Spending(day=key["day"], **spent)


def spending_values(rung: str, usage: Usage, at: float) -> Document:
    """Return the values of a statement that adds an attempt to what its rung has spent.

    A rung is one model of a ladder; its spending counts by days. The first call of the
    attempt is left out: it was counted when it was reserved.
    """
    return {
        **_day_of_rung(rung, at),
        "calls": max(0, usage.calls - 1),
        "tokens": usage.tokens,
        "cost": usage.cost,
    }


@bulk
def figures(db: Db, scope: Scope, model: str = "") -> LadderFigures:
    """Return what each rung answered and spent in the newest loops with a ladder.

    A ladder has rungs: models, from cheap to dear. At most the 5,000 newest of these
    loops are read. With a `model`, only those of them count whose first rung it is.
    """
    newest = "order by at desc limit 5000"
    rows = db.select("record", "climb", key_of(scope), newest)
    # A climb has the attempts of one loop, with their rungs.
    climbs = [codec.from_document(Climb, json.loads(row["record"])) for row in rows]
    return figure_ladders(
        climb for climb in climbs if not model or climb.names[:1] == (model,)
    )


def _day_of_rung(rung: str, time: float) -> Document:
    """Return the columns that name a rung and a day, without the scope."""
    return {"rung": storable(rung), "day": int(time // DAY_SECONDS)}
