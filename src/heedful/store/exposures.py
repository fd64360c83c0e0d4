"""Exposures of loops to lessons, the outcomes of these loops, and rulings on lessons."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from heedful.errors import NotFound
from heedful.lessons import lesson as records
from heedful.lessons.lesson import Exposure, Outcome, Quota, Reflection, Remembered, Scope
from heedful.lessons.proof import Case, Cases, Comparison
from heedful.store.lessons import LESSON, evict, mark, rule, upsert
from heedful.store.store import SKIP, Db, from_row, key_of

# A loop that has not ended after so many seconds counts as given up.
GIVEN_UP = 86_400.0


def remember(
    db: Db,
    scope: Scope,
    reflections: Sequence[Reflection],
    *,
    exposures: Sequence[Exposure] = (),
    outcome: Outcome | None = None,
    most: int = 0,
    quota: Quota | None = None,
) -> list[Remembered]:
    """Store reflections, counting each sighting, and record what a loop was shown.

    The first exposures and the first outcome of a loop stay. All that a loop teaches comes in one
    call; a later call for the same loop adds nothing. If `most` is above 0, the least useful
    lessons beyond that number are evicted, except pinned ones; a new lesson that is evicted at once
    is answered with `Remembered(0, False, 0)`. A source that is not trusted may not exceed its
    `quota`. A lesson learnt from something that was removed since is left out. Raises InvalidInput,
    QuotaExceeded.
    """
    now = time.time()
    expose(db, scope, exposures, outcome, now)
    untaught = {""}
    for loop in {one.loop for one in reflections if one.loop}:
        if db.insert("taught", {**key_of(scope), "loop": loop}, SKIP).rowcount:
            untaught.add(loop)
    new = [one for one in reflections if one.loop in untaught]
    return evict(db, scope, upsert(db, scope, new, now, quota), most)


def expose(
    db: Db, scope: Scope, exposures: Sequence[Exposure], outcome: Outcome | None, now: float
) -> None:
    """Record what a loop was shown and how it ended; the first record stays."""
    if exposures and not shown_to(db, scope, exposures[0].loop):
        at = max(_after(db, scope, str(one.lesson), now) for one in exposures)
        for one in exposures:
            insert_exposure(db, scope, one, len(exposures), at)
    if outcome is not None:
        insert_outcome(db, scope, outcome, now)


def insert_exposure(db: Db, scope: Scope, one: Exposure, among: int, at: float) -> bool:
    """Insert an exposure of a loop to one lesson of `among`; return False if it was known."""
    names = ("loop", "shown", "share", "together")
    values = {**_key(scope, str(one.lesson)), **{name: getattr(one, name) for name in names}}
    values |= {"examples": json.dumps(one.examples), "among": among, "at": at}
    return bool(db.insert("exposure", values, SKIP).rowcount)


def insert_outcome(db: Db, scope: Scope, outcome: Outcome, at: float) -> bool:
    """Insert the outcome of a loop with exposures, and count it; return False if it has one."""
    values = {**asdict(outcome), "signatures": json.dumps(sorted(outcome.signatures))}
    new = db.one("insert_outcome", scope, **values, now=at) is not None
    if new:
        db.run("count_outcome", {**key_of(scope), **values})
    return new


def past(db: Db, scope: Scope, loop: str) -> records.Past:
    """Return what the loop was shown, whether it has taught, and how many loops have an outcome."""
    (row,) = db.all("count_outcomes", scope, loop=loop)
    exposed = tuple(shown_to(db, scope, loop))
    return records.Past(exposed, row["ended"], row["number"], bool(row["taught"]))


def shown_to(db: Db, scope: Scope, loop: str) -> list[Exposure]:
    """Return the exposures of a loop: the lessons that it was shown, and those withheld."""
    columns = "kind || '/' || signature as lesson, exposure.*"
    rows = db.select(columns, "exposure", {**key_of(scope), "loop": loop})
    return [from_row(Exposure, row) for row in rows]


def evidence(db: Db, scope: Scope, most_calls: int) -> tuple[Cases, int]:
    """Return how often each case occurred, counted by the database, and the number of open loops.

    A loop without an outcome after a day counts as given up: wrong at first, with every error
    repeated and `most_calls` calls. For a restored lesson only later loops count.
    """
    times = {"day": GIVEN_UP, "now": time.time()}
    cases: defaultdict[records.LessonName | None, dict[Case, int]] = defaultdict(dict)
    for row in db.all("read_evidence", scope, **times, most=most_calls):
        lesson, share, shown, right, recurred, calls, n = row
        cases[lesson][share, bool(shown), bool(right), bool(recurred), calls] = n
    return dict(cases), int(db.all("count_pending", scope, **times)[0]["n"])


def conclude(
    db: Db, scope: Scope, useful: Mapping[str, float], hurting: Sequence[Comparison]
) -> list[str]:
    """Retire lessons that are proven to hurt, on record; return the names of those newly retired.

    Pinned lessons stay. `useful` maps names (`kind/signature`) to the factors used in ranking from
    now on. The factor is 1 for all others, and at least 1 for pinned lessons.
    """
    db.run("reset_useful", key_of(scope))
    for lesson, factor in useful.items():
        db.run("set_useful", {**_key(scope, lesson), "useful": factor})
    retired = []
    for one in hurting:
        lesson = str(one.lesson)
        for row in db.run("retire", _key(scope, lesson)).fetchall():
            record = {**asdict(one), "digest": mark(LESSON, row["text"])}
            at = _after(db, scope, lesson, time.time())
            rule(db, scope, "retire", lesson, "proof", str(one), at, record)
            retired.append(lesson)
    return retired


def restore(db: Db, scope: Scope, id: int, by: str, why: str) -> None:
    """Bring back a lesson that a proof retired, on record. Raises NotFound."""
    row = db.one("restore", scope, id=id)
    if row is None:
        where = f"the lessons of {scope.tenant}/{scope.project}"
        raise NotFound("lesson that a proof retired", str(id), where)
    lesson = f"{row['kind']}/{row['signature']}"
    at = max(_after(db, scope, lesson, time.time()), row["last_shown"])
    rule(db, scope, "restore", lesson, by, why, at)


def rulings(db: Db, scope: Scope, limit: int) -> list[Mapping[str, Any]]:
    """Return the rulings of a scope, newest first."""
    columns, end = "action, subject, by, why, record, at", "order by at desc, id desc limit"
    rows = db.select(columns, "ruling", key_of(scope), f"{end} {limit:d}")
    return [{**dict(row), "record": json.loads(row["record"])} for row in rows]


def _after(db: Db, scope: Scope, lesson: str, now: float) -> float:
    """Return the current time, or a moment after the last ruling if the clock was set back."""
    return float(db.all("after_ruling", scope, subject=lesson, now=now)[0]["at"])


def _key(scope: Scope, lesson: str) -> dict[str, str]:
    kind, _, signature = lesson.partition("/")
    return {**key_of(scope), "kind": kind, "signature": signature}
