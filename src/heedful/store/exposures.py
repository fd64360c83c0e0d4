"""The lessons that loops were shown, how these loops ended, and rulings on lessons."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from heedful.errors import NotFound
from heedful.lessons import lesson as records
from heedful.lessons.briefing import FIRST_LOOPS_WITHOUT_HOLDOUT, is_withheld
from heedful.lessons.lesson import Exposure, Lesson, Outcome, Remembered, Scope
from heedful.store import search
from heedful.store.connection import (
    CONFLICT_SKIP_SQL,
    MAX_ROWS,
    Actor,
    Db,
    from_row,
    key_of,
    resumable,
    storable,
    token,
)
from heedful.store.lessons import evict, rule, upsert, words_digest

if TYPE_CHECKING:  # imported when they are needed: a hook process starts for each event
    from heedful.lessons.proof import Case, Cases, Comparison

# A loop that has not ended after this many seconds counts as given up.
ABANDONED_LOOP_SECONDS = 86_400.0
MAX_COUNTED_QUARANTINE = 100  # texts in quarantine are counted up to this number


@resumable(result=list[Remembered])
def remember(
    db: Db,
    scope: Scope,
    reflections: Sequence[Lesson],
    *,
    exposures: Sequence[Exposure] = (),
    outcome: Outcome | None = None,
    most: int = 0,
    quota: int | None = None,
) -> list[Remembered]:
    """Store reflections, and record the exposures and the outcome of a loop.

    Later calls do not change the exposures and the outcome of a loop, and only the
    first call with reflections of a loop stores lessons of this loop. With `most` above
    0, the least useful lessons beyond `most` are evicted, except pinned ones. Returns
    one answer for each written reflection: `NOT_KEPT` if its lesson was evicted. Raises
    InvalidInput, and QuotaExceeded if an untrusted source exceeds its `quota`.
    """
    now = time.time()
    expose(db, scope, exposures=exposures, outcome=outcome, now=now)
    untaught = {""}
    for loop in {one.loop for one in reflections if one.loop}:
        if db.insert(
            "taught", {**key_of(scope), "loop": loop}, CONFLICT_SKIP_SQL
        ).rowcount:
            untaught.add(loop)
    new = [one for one in reflections if one.loop in untaught]
    return evict(
        db, scope, upsert(db, scope, reflections=new, now=now, quota=quota), most
    )


def expose(
    db: Db,
    scope: Scope,
    exposures: Sequence[Exposure],
    outcome: Outcome | None,
    now: float,
) -> int:
    """Record the exposures and the outcome of a loop, unless they are recorded already.

    The outcome of a loop with exposures updates the counters of the lessons shown to
    the loop. Returns the number of a new outcome in its scope, else 0.
    """
    if exposures and not shown_to(db, scope, exposures[0].loop):
        for one in exposures:
            told = {
                name: getattr(one, name)
                for name in ("loop", "shown", "share", "together")
            }
            values = {
                **_key(scope, one.lesson),
                **told,
                "among": len(exposures),
                "at": now,
            }
            values["via"] = db.actor.via
            values["most"] = db.actor.outcomes
            db.insert(
                "exposure",
                {**values, "examples": json.dumps(one.examples)},
                CONFLICT_SKIP_SQL,
            )
    return (
        0
        if outcome is None
        else _count(db, scope, outcome=outcome, now=now, actor=db.actor)
    )


def _count(db: Db, scope: Scope, outcome: Outcome, now: float, actor: Actor) -> int:
    new = 0
    if _ran(db, scope, outcome.loop, actor.via):
        broken = set(outcome.signatures)
        for rule in outcome.rules:  # its lesson may have been learnt from other words
            known = {**key_of(scope), "memory_key": outcome.memory_key, "rule": rule}
            broken |= {
                row["signature"] for row in db.select("signature", "cause", known)
            }
        fields = ("loop", "right_at_once", "calls", "memory_key")
        values = {name: getattr(outcome, name) for name in fields}
        values["signatures"] = json.dumps(sorted(broken))
        limits = {
            "via": actor.via,
            "most": actor.outcomes,
            "now": now,
            "day": ABANDONED_LOOP_SECONDS,
        }
        row = db.one("insert_outcome", scope, **values, **limits)
        new = (row and row["n"]) or 0
        if new:
            db.run("count_outcome", {**key_of(scope), **values, "times": 1})
        # A rule that the loop broke is written later.
        if outcome.memory_key and (new or not shown_to(db, scope, outcome.loop)):
            db.run(
                "keep_rules",
                {**key_of(scope), **values, "quiet": records.MIN_QUIET_LOOPS},
            )
    return new


def _ran(db: Db, scope: Scope, loop: str, via: str) -> bool:
    """Return False if a key writes that reported no attempt or event: it may invent the
    loop.
    """
    session = {**key_of(scope), "session": loop.rpartition("/")[0]}
    loops = db.select("n", "loop", {**key_of(scope), "id": loop}) if via else []
    tried = any(db.select("1", "attempt", {"loop": n, "via": via}) for (n,) in loops)
    return (
        not via
        or tried
        or bool(db.select("1", "event", {**session, "via": via}, "limit 1"))
    )


def past(db: Db, scope: Scope, loop: str) -> records.LoopExposures:
    """Return what the store knows of the exposures and the outcome of a loop."""
    (row,) = db.all("count_outcomes", scope, loop=loop)
    return records.LoopExposures(
        exposures=tuple(shown_to(db, scope, loop)),
        ended=row["ended"],
        number=row["number"],
    )


def brief(
    db: Db,
    scope: Scope,
    loop: str,
    memory_key: str,
    find: Callable[..., list[records.Match]],
) -> tuple[list[records.Match], records.LoopExposures]:
    """Return what `find` finds and the rules of the key, and what is known of the loop.

    The key is `memory_key`, or else that of the stored loop. Rules have a `cause`.
    """
    if not memory_key:
        rows = db.select("memory_key", "loop", {**key_of(scope), "id": loop})
        memory_key = rows[0]["memory_key"] if rows else ""
    rules = search.by_cause(db, scope, memory_key) if memory_key else []
    found = find(db, scope, memory_key=memory_key) + rules
    held = {"scope": token(scope), "most": MAX_COUNTED_QUARANTINE, "before": MAX_ROWS}
    waiting = len(db.run("held", held).fetchall())
    return found, replace(past(db, scope, loop), memory_key=memory_key, waiting=waiting)


def shown_to(db: Db, scope: Scope, loop: str) -> list[Exposure]:
    """Return the exposures of a loop: the lessons shown to it, and the lessons withheld
    from it.
    """
    columns = "kind || '/' || signature as lesson, exposure.*"
    rows = db.select(columns, "exposure", {**key_of(scope), "loop": loop})
    return [from_row(Exposure, row) for row in rows]


def evidence(db: Db, scope: Scope) -> tuple[Cases, int]:
    """Return for each lesson how often each `Case` occurred, and the number of open
    loops.

    The key None holds the cases of memory as a whole, with one case for each loop. If a
    loop has no outcome after a day, heedful assumes that its first attempt failed, that
    every error occurred again, and that it made `MAX_COUNTED_CALLS` calls. If a lesson was
    restored or its text was replaced, only loops after that count.
    """
    from heedful.lessons.proof import MAX_COUNTED_CALLS

    times = {"day": ABANDONED_LOOP_SECONDS, "now": time.time()}
    cases: defaultdict[str | None, dict[Case, int]] = defaultdict(dict)
    for row in db.all("read_evidence", scope, **times, most=MAX_COUNTED_CALLS):
        lesson, share, shown, right, recurred, calls, n = row
        cases[lesson][share, bool(shown), bool(right), bool(recurred), calls] = n
    return dict(cases), int(db.all("count_pending", scope, **times)[0]["n"])


@resumable(result=list[str])
def conclude(
    db: Db, scope: Scope, useful: Mapping[str, float], hurting: Sequence[Comparison]
) -> list[str]:
    """Retire the lessons in `hurting`; return the names of the retired lessons.

    Records a ruling for each retired lesson. Lessons that an operator wrote or pinned
    stay until they are unpinned; a ruling "review" puts them before a person, once.
    `useful` maps names of lessons (`kind/signature`) to their factors in ranking. The
    factor becomes 1 for all other lessons, and is at least 1 for those that an operator
    wrote or pinned.
    """
    db.run("reset_useful", key_of(scope))
    for lesson, factor in useful.items():
        db.run("set_useful", {**_key(scope, lesson), "useful": factor})
    retired = []
    for one in hurting:
        lesson = str(one.lesson)
        for row in db.run("retire", _key(scope, lesson)).fetchall():
            action = "retire" if row["state"] == "retired" else "review"
            record = {**asdict(one), "digest": words_digest(row["text"])}
            known = {**key_of(scope), "subject": lesson, "action": "review"}
            if action == "retire" or not db.select("id", "ruling", known):
                rule(
                    db,
                    scope,
                    action=action,
                    subject=lesson,
                    by="proof",
                    why=str(one),
                    now=time.time(),
                    record=record,
                )
            retired += [lesson] if action == "retire" else []
    return retired


@resumable(result=None)
def restore(db: Db, scope: Scope, id: int, by: str, why: str) -> None:
    """Restore a lesson that a proof retired, and record a ruling. Raises NotFound."""
    now = time.time()
    row = db.one("restore", scope, id=id, now=now)
    if row is None:
        where = f"the lessons of {scope.tenant}/{scope.project}"
        raise NotFound("lesson that a proof retired", str(id), where)
    rule(
        db,
        scope,
        action="restore",
        subject=f"{row['kind']}/{row['signature']}",
        by=by,
        why=why,
        now=now,
    )


def rulings(db: Db, scope: Scope, limit: int) -> list[Mapping[str, Any]]:
    """Return the rulings of the scope as plain data, newest first."""
    columns = "action, subject, by, why, record, at"
    end = "order by at desc, id desc limit"
    rows = db.select(columns, "ruling", key_of(scope), f"{end} {limit:d}")
    return [{**dict(row), "record": json.loads(row["record"])} for row in rows]


# Characters of a lesson's signature in the name of an opportunity.


def announce(
    db: Db,
    scope: Scope,
    session: str,
    lessons: Sequence[int],
    share: float,
    record: bool = True,
) -> frozenset[int]:
    """Return the ids of the lessons to be shown; `record` that they fit this moment of
    a session.

    Each is one opportunity to avoid its error: an exposure named `SESSION/SIGNATURE`. A
    lesson is withheld with the probability `share`, in the whole session or not at all.
    Nothing is withheld from the first sessions of a scope, and nothing shown that it
    alone taught, without an operator.
    """
    shown = set[int]()
    seed = f"{scope.tenant}\0{scope.project}"
    own = storable(f"episode:{session}"[:200]), 1
    share = (
        share
        if lessons and past(db, scope, "").ended >= FIRST_LOOPS_WITHOUT_HOLDOUT
        else 0.0
    )
    for id in lessons:
        columns = "kind, signature, source, seen, trust"
        for row in db.select(columns, "reflection", {**key_of(scope), "id": id}):
            if (row["source"], row["seen"]) == own and row["trust"] != "operator":
                continue
            name = f"{row['kind']}/{row['signature']}"
            digest = row["signature"]
            loop = f"{storable(session)}/{digest[:16]}"
            known = shown_to(db, scope, loop)
            tell = (
                known[0].shown if known else not is_withheld(seed, session, name, share)
            )
            if record:
                expose(
                    db,
                    scope,
                    exposures=(
                        Exposure(name, loop, shown=tell, signature=digest, share=share),
                    ),
                    outcome=None,
                    now=time.time(),
                )
            shown |= {id} if tell else set()
    return frozenset(shown)


def opportunities(db: Db, scope: Scope, session: str) -> list[tuple[str, str, float]]:
    """Return the opportunities of a session that have no outcome: name, signature,
    time.
    """
    return list(map(tuple, db.all("opportunities", scope, session=storable(session))))


@resumable(result=None)
def settle(db: Db, scope: Scope, outcomes: Sequence[Outcome], at: float) -> None:
    """Record how opportunities ended, as outcomes of the keys of their exposures."""
    for outcome in outcomes:
        key = {**key_of(scope), "loop": outcome.loop}
        for row in db.select("via, most", "exposure", key):
            _count(db, scope, outcome=outcome, now=at, actor=Actor(*row))


def _key(scope: Scope, lesson: str) -> dict[str, str]:
    kind, _, signature = lesson.partition("/")
    return {**key_of(scope), "kind": kind, "signature": signature}
