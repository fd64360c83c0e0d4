"""What loops were shown, what came of it, and what was ruled on that, in SQL."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from heedful.errors import NotFound
from heedful.lessons.learn import Reflection
from heedful.lessons.lesson import Scope
from heedful.lessons.proof import Case, Cases, Comparison, Exposure, Lesson, Outcome, Past
from heedful.store.database import Db
from heedful.store.lessons import LESSON, key_of, mark, rule

# A loop that has not ended after so many seconds counts as given up.
GIVEN_UP = 86_400.0


def expose(
    db: Db, scope: Scope, exposures: Sequence[Exposure], outcome: Outcome | None, now: float
) -> None:
    """Write down what a loop was shown, and how it ended, each once: what was first stays."""
    if exposures and not shown_to(db, scope, exposures[0].loop):
        at = max(_after(db, scope, str(one.lesson), now) for one in exposures)
        for one in exposures:
            kind, _, signature = str(one.lesson).partition("/")
            values = {
                **key_of(scope),
                "loop": one.loop,
                "kind": kind,
                "signature": signature,
                "shown": one.shown,
                "share": one.share,
                "together": one.together,
                "among": len(exposures),
                "examples": json.dumps(one.examples),
                "now": at,
            }
            db.named("insert_exposure", values)
    if outcome is not None:
        _end(db, scope, outcome, now)


def _end(db: Db, scope: Scope, outcome: Outcome, now: float) -> None:
    """The outcome of a loop that has exposures, counted on the lessons that it was shown."""
    values = {
        **key_of(scope),
        "loop": outcome.loop,
        "right_at_once": outcome.right_at_once,
        "calls": outcome.calls,
        "signatures": json.dumps(sorted(outcome.signatures)),
        "now": now,
    }
    if db.named("insert_outcome", values).fetchall():
        db.named("count_outcome", values)


def past(db: Db, scope: Scope, loop: str) -> Past:
    """What the loop was shown and whether it has taught, and how many loops have an outcome."""
    row = db.named("count_outcomes", {**key_of(scope), "loop": loop}).fetchone()
    return Past(tuple(shown_to(db, scope, loop)), row["ended"], row["number"], bool(row["taught"]))


def untaught(db: Db, scope: Scope, reflections: Sequence[Reflection]) -> list[Reflection]:
    """Those of no loop, and of loops that had taught nothing here; from now on these have."""
    new = {""}
    for loop in {one.loop for one in reflections if one.loop}:
        if db.named("teach", {**key_of(scope), "loop": loop}).rowcount:
            new.add(loop)
    return [one for one in reflections if one.loop in new]


def shown_to(db: Db, scope: Scope, loop: str) -> list[Exposure]:
    """What the loop was shown of each lesson, or spared."""
    from heedful.lessons.proof import Exposure

    rows = db.named("read_exposures", {**key_of(scope), "loop": loop}).fetchall()
    return [
        Exposure(
            f"{row['kind']}/{row['signature']}",
            loop,
            bool(row["shown"]),
            row["signature"],
            row["share"],
            bool(row["together"]),
            tuple(json.loads(row["examples"])),
        )
        for row in rows
    ]


def evidence(db: Db, scope: Scope, most_calls: int, now: float) -> tuple[Cases, int]:
    """How often each case was met, counted by the database; and the loops under way."""
    values = {**key_of(scope), "most": most_calls, "day": GIVEN_UP, "now": now}
    cases: defaultdict[Lesson | None, dict[Case, int]] = defaultdict(dict)
    for row in db.named("read_evidence", values):
        lesson, share, shown, right, recurred, calls, n = row
        cases[lesson][share, bool(shown), bool(right), bool(recurred), calls] = n
    return dict(cases), int(db.named("count_pending", values).fetchone()["n"])


def conclude(
    db: Db, scope: Scope, useful: Mapping[str, float], hurting: Sequence[Comparison], now: float
) -> list[str]:
    """Set by what lessons are ranked, and retire; the names of those that were not before."""
    db.named("reset_useful", key_of(scope))
    for lesson, factor in useful.items():
        db.named("set_useful", {**_key(scope, lesson), "useful": factor})
    retired = []
    for one in hurting:
        lesson = str(one.lesson)
        for row in db.named("retire", _key(scope, lesson)).fetchall():
            record = {**asdict(one), "digest": mark(LESSON, row["text"])}
            at = _after(db, scope, lesson, now)
            rule(db, scope, "retire", lesson, "proof", str(one), at, record)
            retired.append(lesson)
    return retired


def restore(db: Db, scope: Scope, id: int, by: str, why: str, now: float) -> None:
    """Bring back a lesson that a proof retired; on record. Raises NotFound."""
    rows = db.named("restore", {**key_of(scope), "id": id}).fetchall()
    if not rows:
        where = f"the lessons of {scope.tenant}/{scope.project}"
        raise NotFound("lesson that a proof retired", str(id), where)
    lesson = f"{rows[0]['kind']}/{rows[0]['signature']}"
    at = max(_after(db, scope, lesson, now), rows[0]["last_shown"])
    rule(db, scope, "restore", lesson, by, why, at)


def rulings(db: Db, scope: Scope, limit: int) -> list[Mapping[str, Any]]:
    """What was done to which lessons, by whom and why, newest first."""
    rows = db.named("read_rulings", {**key_of(scope), "limit": limit}).fetchall()
    return [{**dict(row), "record": json.loads(row["record"])} for row in rows]


def clear(db: Db, scope: Scope) -> None:
    """Delete exposures and outcomes of the scope, and who taught; rulings stay on record."""
    for table in ("exposures", "outcomes", "taught"):
        db.named(f"clear_{table}", key_of(scope))


def _after(db: Db, scope: Scope, lesson: str, now: float) -> float:
    """Now, but later than what was last ruled on the lesson: a clock may be set back."""
    values = {**key_of(scope), "subject": lesson, "now": now}
    return float(db.named("after_ruling", values).fetchone()["at"])


def _key(scope: Scope, lesson: str) -> dict[str, str]:
    kind, _, signature = lesson.partition("/")
    return {**key_of(scope), "kind": kind, "signature": signature}
