"""Remove the loops that ended long ago, and the lessons that nobody has used.

Loops go with their attempts, decisions and notes. What was measured stays: exposures,
outcomes and what loops taught have the names of loops, and do not need their rows. A
loop whose row a proof still reads stays, too. A run goes with its stages.

A transaction removes some hundred loops, so that no writer waits long, and leaves each
loop whole or removes it. A read finds them: it passes those that stay, which may be
many. One ruling counts the loops of all transactions.

Lessons go in one transaction: the unused ones, or all but the most useful.
"""

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import inf

from heedful.errors import LeaseLost
from heedful.lessons.scope import DAY_SECONDS, Scope, name_scope
from heedful.store.connection import (
    MAX_ROWS,
    Db,
    bulk,
    from_row,
    holds,
    key_of,
    resumable,
)
from heedful.store.lessons import count, delete_lessons
from heedful.store.rulings import name_of, rule
from heedful.store.store import Store
from heedful.validation import Fields, check_actor

Pruned = list[Fields]  # the rows of lessons, each with why it goes
# Loops and runs that a transaction removes; the stages of a run are removed with it.
MAX_REMOVED_LOOPS = 300
# So few loops may all go unattended.
MAX_UNDOUBTED_LOOPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """Loops that may be removed: how many, and the `numbers` of their rows in a list.

    The `earliest` and the `latest` are the times when they changed last, None if there
    are no loops.
    """

    loops: int
    numbers: str
    earliest: float | None
    latest: float | None


@bulk
def count_all(db: Db, scope: Scope) -> int:
    """Count the loops of a scope."""
    (row,) = db.select("count(*) as loops", "loop", key_of(scope))
    return int(row["loops"])


@holds()
def remove_some(
    db: Db,
    scope: Scope,
    *,
    before: float,
    after: float,
    until: float,
    by: str,
    began: float,
) -> int:
    """Remove up to 300 loops that ended before the time `before`; return how many.

    Their last change was at a time from `after` to `until`. `by` is who removes them:
    one ruling, the record of this decision, has the time `began` and counts them all.
    Raises LeaseLost if a loop changes meanwhile.
    """
    # Another writer may have changed loops since they were found: find them again here.
    expired = find(
        db, scope, before, after=after, until=until, limit=MAX_REMOVED_LOOPS, lists=True
    )
    if not expired.loops:
        return 0

    values = {**key_of(scope), "numbers": f"[{expired.numbers}]", "before": before}
    db.send("remove_notes", values)
    if db.run("remove_loops", values).rowcount != expired.loops:
        raise LeaseLost("loops changed while they were removed; try again")
    _count_in_ruling(db, scope, expired.loops, before=before, by=by, began=began)
    return expired.loops


@bulk
def find(
    db: Db,
    scope: Scope,
    before: float,
    *,
    after: float = 0.0,
    until: float = inf,
    limit: int = MAX_ROWS,
    lists: bool = False,
) -> Expired:
    """Count the loops that `remove` would remove: they ended before the time `before`.

    Their last change was at a time from `after` to `until`. Left out are loops that are
    still evidence for a proof, and runs whose stages are not all as old. At most
    `limit` loops, and the stages of runs among them, are counted. With `lists`, the
    numbers of their rows are read, too. Times are seconds since 1970.
    """
    (row,) = db.all(
        "expired_loops",
        scope,
        before=before,
        after=after,
        until=min(until, before),
        day=DAY_SECONDS,
        limit=limit,
        lists=int(lists),
    )
    return from_row(Expired, row)


def _count_in_ruling(
    db: Db, scope: Scope, loops: int, *, before: float, by: str, began: float
) -> None:
    """Record that `by` removed so many `loops` that ended before the time `before`.

    A removal takes several transactions, but has one ruling, the record of a decision.
    The first transaction makes it, with the time `began`; the others add their loops.
    """
    day = datetime.fromtimestamp(before, UTC).date().isoformat()
    subject = f"loops that ended before {day}"
    key = {**key_of(scope), "subject": subject, "action": "expire", "at": began}
    rulings = db.select("record", "ruling", key)
    if rulings:
        total_loops = json.loads(rulings[0]["record"])["loops"] + loops
        db.update("ruling", key, {"record": json.dumps({"loops": total_loops})})
    else:
        rule(
            db,
            scope,
            action="expire",
            subject=subject,
            by=by,
            why="",
            now=began,
            record={"loops": loops},
        )


async def remove(store: Store, scope: Scope, *, ended_for: float, by: str) -> int:
    """Remove the loops that ended and did not change for `ended_for` seconds.

    Returns their number. `by` is who removes them. It goes batch by batch, from the
    loops that changed first to the last, so that no writer waits long. Raises
    InvalidInput if `by` is empty, and StoreError.
    """
    check_actor(by, "")
    began = time.time()
    before = began - ended_for
    removed = 0
    after = 0.0
    while True:
        expired = await store.read(
            scope, find, before, after=after, limit=MAX_REMOVED_LOOPS
        )
        if expired.earliest is None or expired.latest is None:
            return removed
        removed += await store.write(
            scope,
            remove_some,
            before=before,
            after=expired.earliest,
            until=expired.latest,
            by=by,
            began=began,
        )
        # The next batch begins here: loops that have stayed are not looked at again.
        after = expired.latest


async def doubt(store: Store, scope: Scope, ended_for: float) -> str:
    """Return why a job should not `remove` old loops now; "" if it may.

    Old are loops that ended more than `ended_for` seconds ago. If they are more than
    half of all, and more than a few, the clock may be fast: then new loops would be
    lost. The text says so to a person, with the command that removes them anyway.
    """
    old_loops = (await store.read(scope, find, time.time() - ended_for)).loops
    if old_loops <= MAX_UNDOUBTED_LOOPS:
        return ""

    loops = await store.read(scope, count_all)
    if old_loops * 2 <= loops:
        return ""
    days = f"{ended_for / DAY_SECONDS:g}"
    return (
        f"{old_loops} of {loops} loops seem to have ended more than {days} days ago, "
        "and stay; see that the clock is right, then run "
        f"{name_scope('heedful lessons prune', scope)} --by NAME --ended-for {days}d"
    )


def prunable(db: Db, scope: Scope, unused_for: float, keep: int) -> Pruned:
    """Return the lessons that `prune` would delete, with the reason as `why`.

    With `unused_for` above 0, these are the lessons neither seen nor shown for this
    many seconds. With `keep` of at least 0, the least useful lessons are added until
    only `keep` would remain; a negative `keep` adds none. Lessons that are pinned or
    proven to help are left out. Nothing is deleted.
    """
    now = time.time()
    before = now - unused_for if unused_for else -inf
    # Usefulness is above 1 only if a proof says that the lesson helps.
    find_unpinned = partial(db.all, "prunable", scope, most_useful=1, kept="[]")
    unused = find_unpinned(since=-inf, before=before, limit=MAX_ROWS)

    lessons = Pruned()
    for row in unused:
        days = (now - max(row["last_seen"], row["last_shown"])) / DAY_SECONDS
        lessons.append({**dict(row), "why": f"not used for {days:.0f} days"})

    excess = count(db, scope) - len(lessons) - keep
    if keep < 0 or excess <= 0:
        return lessons

    for row in find_unpinned(since=before, before=inf, limit=excess):
        lessons.append({**dict(row), "why": f"the least useful beyond {keep}"})
    return lessons


@resumable(result=Pruned, counts=True)
def prune(db: Db, scope: Scope, unused_for: float, keep: int, by: str) -> Pruned:
    """Delete lessons that are unused or beyond the number to keep, and return them.

    They are those that `prunable` returns for `unused_for` seconds and `keep` lessons.
    `by` is who deletes them. A ruling, the record of this decision, names them and why
    each went. Raises InvalidInput if `by` is empty.
    """
    lessons = prunable(db, scope, unused_for, keep)
    if not lessons:
        return lessons

    removed = [{"lesson": name_of(lesson), "why": lesson["why"]} for lesson in lessons]
    rule(
        db,
        scope,
        action="prune",
        subject=f"{len(lessons)} lessons",
        by=by,
        why="",
        record={"removed": removed},
    )
    # After the ruling, which refuses an empty `by`.
    delete_lessons(db, scope, lessons)
    return lessons
