"""Trust in SQL: as what a text is written, what it rests on, how much one source may say."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from heedful.errors import InvalidInput, QuotaExceeded
from heedful.memory.learn import Reflection
from heedful.memory.trust import HELD, RAISING, Quota, begins, bounded, derived
from heedful.store.database import Db

Plain = dict[str, Any]
NOBODY = "[]"


def stamped(db: Db, key: Plain, one: Reflection) -> Reflection | None:
    """The reflection with the trust and state that it is written with, and all its parents.

    `key` names the scope: `tenant`, `project`, and its token as `scope`. None for the lesson of a
    loop that was shown what is revoked or forgotten by now: nobody could say what it rests on.
    Raises InvalidInput where a parent is unknown.
    """
    parents = set(one.parents)
    if one.loop:
        rows = db.named("shown_to_loop", {**key, "loop": one.loop}).fetchall()
        parents |= {int(row["id"]) for row in rows}
    ids = {**key, "parents": json.dumps(sorted(parents))}
    if one.loop and one.trust == "measured":
        traced = db.named("count_traced", ids).fetchone()["n"] if parents else 0
        if traced < len(parents):
            return None
        trusts = []
    else:
        known = db.named("known_parents", ids).fetchall() if parents else []
        trusts = [row["trust"] for row in known]
        if len(known) < len(parents):
            unknown = sorted(parents - {row["id"] for row in known})
            raise InvalidInput("derived_from", unknown, "ids of examples of this scope")
    trust = derived(one.trust, trusts, one.loop) if parents else one.trust
    if one.pinned and trust not in RAISING:
        raise InvalidInput("pinned", True, f"False for what is of trust {trust}")
    state = begins(trust, one.state)
    source = one.source or (trust if trust in HELD else "")
    one = bounded(one) if trust in HELD else one
    return replace(one, trust=trust, state=state, source=source, parents=tuple(sorted(parents)))


def rests(db: Db, values: Plain, example: int) -> bool:
    """Write down what an example comes from, in place of what it came from before, if it did.

    Not in place of it where it derives from itself: what it was before is then in it still.
    `values`: the scope, its `source`, and its `parents` as a JSON list of ids.
    """
    values = {**values, "example": example}
    known = db.named("has_origin", values).fetchone() is not None
    if values["parents"] == NOBODY or not db.named("is_own_ancestor", values).fetchall():
        db.named("drop_origin", values)
        db.named("drop_lineage", values)
    db.named("insert_origin", values)
    db.named("insert_lineage", values)
    return known


def vouched(db: Db, values: Plain, lesson: str, digest: str) -> None:
    """Put on record that an operator raised what was known, by saying the same."""
    by = values["source"] or "operator"
    record = json.dumps({"digest": digest, "source": values["source"]})
    told = {"action": "release", "subject": lesson, "by": by, "why": "said the same"}
    db.named("insert_ruling", {**values, **told, "record": record})


def within(db: Db, key: Plain, source: str, quota: Quota) -> None:
    """Raises QuotaExceeded where the source, which is not trusted, has said too much."""
    for what, name, most, remedy in (
        ("entries in quarantine", "count_held", quota.entries, "release or reject some first"),
        ("sightings", "count_sightings", quota.sightings, "revoke the source"),
    ):
        values = {**key, "source": source, "most": most}
        count = db.named(name, values).fetchone()["n"]
        if count > most:
            raise QuotaExceeded(source, what, count, most, f"{remedy}, or raise its quota")


def was_rejected(db: Db, key: Plain, lesson: str, digest: str) -> bool:
    """Whether the last ruling on this very text was that it is not wanted."""
    values = {**key, "subject": lesson, "digest": digest}
    row = db.named("ruled_last", values).fetchone()
    return row is not None and row["action"] == "reject"
