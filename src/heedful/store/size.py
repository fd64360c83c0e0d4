"""Keeping memory small in SQL: a bound that evicts, and lessons removed on request."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import Any

from heedful.errors import NotFound
from heedful.protocols import Remembered, Scope
from heedful.store.database import ALL, Db
from heedful.store.reflections import count, key_of, token
from heedful.store.rulings import rule

DAY = 86_400.0
NOT_KEPT = Remembered(0, created=False, seen=0)


def evict(db: Db, scope: Scope, answers: Sequence[Remembered], most: int) -> list[Remembered]:
    """Bring a scope that grew back to `most` lessons; the answers, with those that are not kept.

    And to as many examples: one lesson may have any number of them.

    What is new goes last, lest a full memory learn nothing more; but new or not, what is
    quarantined goes before all else.
    """
    new = {one.id for one in answers if one.created}
    gone: set[int] = set()
    for kept in (new, ()) if most and new else ():
        if (excess := count(db, scope) - most) > 0:
            gone |= _evict(db, scope, kept, excess)
    if most:
        _evict_examples(db, scope, most)
    return [NOT_KEPT if one.id in gone else one for one in answers]


def _evict(db: Db, scope: Scope, kept: Collection[int], excess: int) -> set[int]:
    values = {**key_of(scope), "kept": json.dumps(list(kept)), "excess": excess}
    return {row["id"] for row in db.named("evict", values).fetchall()}


def _evict_examples(db: Db, scope: Scope, most: int) -> None:
    """Bring what may be recalled back to `most` texts: the oldest examples go, none pinned."""
    values = {"scope": token(scope)}
    corpus = db.named("read_corpus", values).fetchone()
    if corpus is not None and (excess := corpus["texts"] - most) > 0:
        db.named("evict_examples", {**values, "excess": excess})


def prunable(
    db: Db, scope: Scope, unused_for: float, keep: int, now: float
) -> list[Mapping[str, Any]]:
    """What `prune` would remove, as plain data with `why`; 0 and below 0 ask for nothing.

    `unused_for` is in seconds: neither seen nor shown since. A time that is still to come, of a
    clock that went wrong, is no reason.
    """
    before = now - unused_for if unused_for else -inf
    found: list[Mapping[str, Any]] = []
    for one in _least(db, scope, -inf, before, ALL):
        days = (now - max(one["last_seen"], one["last_shown"])) / DAY
        found.append({**one, "why": f"not used for {days:.0f} days"})
    excess = count(db, scope) - len(found) - keep if keep >= 0 else 0
    if excess > 0:
        why = f"the least useful beyond {keep}"
        found += [{**one, "why": why} for one in _least(db, scope, before, inf, excess)]
    return found


def prune(
    db: Db, scope: Scope, unused_for: float, keep: int, by: str, now: float
) -> list[Mapping[str, Any]]:
    """Remove what `prunable` names; on record, with the names."""
    found = prunable(db, scope, unused_for, keep, now)
    ids = json.dumps([one["id"] for one in found])
    db.named("delete_reflections", {**key_of(scope), "ids": ids})
    if found:
        removed = [
            {"lesson": f"{one['kind']}/{one['signature']}", "why": one["why"]} for one in found
        ]
        rule(db, scope, "prune", f"{len(found)} lessons", by, "", now, {"removed": removed})
    return found


def pin(db: Db, scope: Scope, id: int, pinned: bool, by: str, why: str, now: float) -> None:
    """Keep a lesson from eviction and pruning, or no longer; on record. Raises NotFound."""
    values = {**key_of(scope), "id": id, "pinned": pinned}
    rows = db.named("set_pinned", values).fetchall()
    if not rows:
        raise NotFound("lesson", str(id), f"the lessons of {scope.tenant}/{scope.project}")
    subject = f"{rows[0]['kind']}/{rows[0]['signature']}"
    rule(db, scope, "pin" if pinned else "unpin", subject, by, why, now)


def _least(
    db: Db, scope: Scope, since: float, before: float, limit: int
) -> list[Mapping[str, Any]]:
    values = {**key_of(scope), "since": since, "before": before, "limit": limit}
    return [dict(row) for row in db.named("prunable", values).fetchall()]
