"""Dreams: the lessons that a consolidation reads, how it supersedes them, and how to undo it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from heedful.errors import NotFound, RollbackRefused
from heedful.lessons.consolidate import Lesson, Proposal
from heedful.lessons.lesson import Reflection, Scope
from heedful.store.lessons import carry, name_of, rule, upsert
from heedful.store.store import Db, Row, key_of, storable

Plain = dict[str, Any]
FLAGS = ("pinned", "apart", "held")
QUERIES = 5
# The fields that must be unchanged for a dream to supersede a lesson.
SAME = ("id", "kind", "signature", "text", "trust")
CHANGED = "a lesson of it changed meanwhile"


def material(db: Db, scope: Scope, space: str) -> list[tuple[Lesson, Sequence[float] | None]]:
    """Return the lessons that may be recalled, ordered by name, each with its vector."""
    import numpy as np

    rows = db.run("material", {**key_of(scope), "space": space})
    return [
        (_lesson(row), None if row["data"] is None else np.frombuffer(row["data"], "<f4"))  # type: ignore[misc]
        for row in rows
    ]


def _lesson(row: Row) -> Lesson:
    values = {one.name: row[one.name] for one in fields(Lesson)}
    return Lesson(**{**values, **{name: bool(row[name]) for name in FLAGS}})


def queries(db: Db, scope: Scope, ids: Sequence[int]) -> dict[int, list[str]]:
    """Return for each lesson the newest texts that found it, five at most, without its own text."""
    found = {}
    for id in ids:
        rows = db.run("asked", {"reflection": id, "most": QUERIES})
        found[id] = [row["text"] for row in rows]
    return found


def supersede(
    db: Db,
    scope: Scope,
    report: Mapping[str, Any],
    proposals: Sequence[Proposal],
    expected: Mapping[int, Lesson],
    made: Mapping[int, Reflection],
    by: str,
) -> tuple[int, list[Proposal]]:
    """Store the report and apply the proposals; return the dream's id and each proposal's outcome.

    `expected` holds the lessons as the dream read them: a proposal is skipped if one of its lessons
    has changed since. `made` holds the new lessons, by the position of their proposal. One
    transaction.
    """
    now = time.time()
    key = {**key_of(scope), "now": now}
    row = db.run("insert_dream", {**key, "by": storable(by)}).fetchall()[0]
    key["dream"] = int(row["id"])
    done = [
        _carry_out(db, scope, key, one, expected, made.get(place))
        if one.outcome == "proposed"
        else one
        for place, one in enumerate(proposals)
    ]
    record = {**report, "proposals": [plain(one) for one in done]}
    db.run("set_report", {"report": json.dumps(record), "dream": key["dream"]})
    return key["dream"], done


def _carry_out(
    db: Db,
    scope: Scope,
    key: Plain,
    proposal: Proposal,
    expected: Mapping[int, Lesson],
    new: Reflection | None,
) -> Proposal:
    members = [expected[id] for id in proposal.members]
    survivors = [expected[proposal.survivor]] if new is None else []
    for lesson in (*members, *survivors):
        same = {name: getattr(lesson, name) for name in SAME}
        if not db.run("unchanged", {**key, **same, "member": lesson in members}).fetchall():
            return replace(proposal, outcome=CHANGED)
    survivor = proposal.survivor
    if new is None:
        name = expected[survivor].name
    else:
        name = name_of(new)
        known = {**key, "kind": new.kind, "signature": new.signature.digest}
        if db.run("find_lesson", known).fetchall():
            return replace(proposal, outcome="what the model wrote is known already")
        (answer,) = upsert(db, scope, [new], key["now"])
        survivor = answer.id
    for lesson in members:
        before = json.dumps({"lesson": lesson.name, "state": lesson.state})
        ids = {"id": lesson.id, "subject": lesson.id, "successor": survivor}
        link = {"child": lesson.name, "parent": name, "what": "reflection", "why": proposal.why}
        values = {**key, **ids, **link, "before": before}
        for statement in ("insert_supersession", "insert_became"):
            db.run(statement, values)
        carry(db, key["dream"], lesson.id, survivor)
        db.run("supersede", values)
    return replace(proposal, survivor=survivor, outcome="done")


def plain(one: Proposal) -> Plain:
    """Return a proposal as it is stored: without texts, because a text may be revoked later."""
    return {name: value for name, value in asdict(one).items() if name != "text"}


def log(
    db: Db, scope: Scope, limit: int, id: int | None = None, before: int | None = None
) -> list[Mapping[str, Any]]:
    """Return dreams, newest first, or the dream with this id, with the texts that still exist."""
    values = {**key_of(scope), "limit": limit, "dream": id, "before": before}
    found: list[Mapping[str, Any]] = []
    for row in db.run("read_dreams", values).fetchall():
        report = json.loads(row["report"])
        ids = {n for one in report["proposals"] for n in (*one["members"], one["survivor"])}
        named = {**key_of(scope), "ids": json.dumps(sorted(ids))}
        texts = {one["id"]: one["text"] for one in db.run("texts_of", named)}
        known = {name: row[name] for name in ("id", "by", "at", "undone")}
        found.append({**report, **known, "texts": texts})
    return found


def undo(db: Db, scope: Scope, id: int, by: str, why: str) -> int:
    """Bring back the lessons that a dream superseded; return how many came back.

    Puts it on record. Raises NotFound, RollbackRefused, and InvalidInput without an actor.
    """
    known = log(db, scope, 1, id)
    if not known:
        raise NotFound("dream", str(id), f"the memory of {scope.tenant}/{scope.project}")
    if known[0]["undone"] is not None:
        raise RollbackRefused(id, "it was rolled back before; heedful dream log shows when")
    values: Plain = {**key_of(scope), "dream": id, "now": time.time()}
    for later in db.run("superseded_later", values).fetchall():
        what = f"dream {later['dream']} superseded its lesson {later['subject']} since"
        do = f"roll that back first: heedful dream rollback {later['dream']}"
        raise RollbackRefused(id, f"{what}; {do}", later["dream"])
    back = 0
    for row in db.run("read_supersessions", values).fetchall():
        if row["what"] == "reflection":
            child = json.loads(row["before"])["lesson"]
            rows = db.run("delete_became", {**values, "child": child})
            back += sum(one["back"] for one in rows.fetchall())
    for one in known[0]["proposals"]:
        if one["action"] == "generalise" and one["outcome"] == "done":
            db.run("delete_made", {**values, "made": one["survivor"]})
    db.run("set_undone", values)
    rule(db, scope, "rollback", f"dream/{id}", by, why, time.time())
    return back
