"""Dreams in SQL: what they see and supersede, in one transaction, and how that is undone."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from heedful.errors import NotFound, RollbackRefused
from heedful.lessons.consolidate import Lesson, Proposal
from heedful.lessons.lesson import Reflection, Scope
from heedful.store.database import Db, Row
from heedful.store.lessons import carry, key_of, rule, storable, upsert

Plain = dict[str, Any]
FIELDS = (
    "id", "kind", "signature", "error_type", "text", "state", "trust", "importance", "useful",
    "seen", "helped", "hurt", "source", "author", "first_seen", "last_seen", "last_shown",
)  # fmt: skip
FLAGS = ("pinned", "apart", "held")
QUERIES = 5
CHANGED = "a lesson of it changed meanwhile"


def material(db: Db, scope: Scope, space: str) -> list[tuple[Lesson, Sequence[float] | None]]:
    """What may be recalled, in the order of its names, with vectors."""
    import numpy as np

    rows = db.named("material", {**key_of(scope), "space": space})
    return [
        (_lesson(row), None if row["data"] is None else np.frombuffer(row["data"], "<f4"))  # type: ignore[misc]
        for row in rows
    ]


def _lesson(row: Row) -> Lesson:
    told = {name: row[name] for name in FIELDS} | {name: bool(row[name]) for name in FLAGS}
    return Lesson(**told)


def queries(db: Db, scope: Scope, ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the newest texts that each lesson was found by, five at most, without its own."""
    found = {}
    for id in ids:
        rows = db.named("asked", {"reflection": id, "most": QUERIES})
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
    """Keep the report and do what is "proposed"; the id of the dream, and what became of each.

    `expected` are the lessons as they were looked at: of a proposal with one that changed since
    nothing is done. `made` are the new lessons of proposals, by their place.
    """
    return _Dreaming(db, scope, by, time.time()).dream(report, proposals, expected, made)


class _Dreaming:
    """One dream within its transaction."""

    def __init__(self, db: Db, scope: Scope, by: str, now: float) -> None:
        self._db, self._scope, self._now = db, scope, now
        values = {**key_of(scope), "by": storable(by), "now": now}
        self.id = int(db.named("insert_dream", values).fetchall()[0]["id"])

    def dream(
        self,
        report: Mapping[str, Any],
        proposals: Sequence[Proposal],
        expected: Mapping[int, Lesson],
        made: Mapping[int, Reflection],
    ) -> tuple[int, list[Proposal]]:
        done = []
        for at, one in enumerate(proposals):
            if one.outcome == "proposed":
                one = self._do(one, expected, made.get(at))
            done.append(one)
        told = {**report, "proposals": [plain(one) for one in done]}
        values = {"report": json.dumps(told), "dream": self.id}
        self._db.named("set_report", values)
        return self.id, done

    def _do(
        self, one: Proposal, expected: Mapping[int, Lesson], new: Reflection | None
    ) -> Proposal:
        lessons = [expected[id] for id in one.members]
        if not all(self._unchanged(lesson, True) for lesson in lessons) or (
            new is None and not self._unchanged(expected[one.survivor], False)
        ):
            return replace(one, outcome=CHANGED)
        survivor, name = one.survivor, ""
        if new is not None:
            name = f"{new.kind}/{new.signature.digest}"
            known = {**key_of(self._scope), "kind": new.kind, "signature": new.signature.digest}
            if self._db.named("find_lesson", known).fetchall():
                return replace(one, outcome="what the model wrote is known already")
            (answer,) = upsert(self._db, self._scope, [new], self._now)
            survivor = answer.id
        else:
            name = expected[survivor].name
        for lesson in lessons:
            self._supersede(lesson, survivor, name, one.why)
        return replace(one, survivor=survivor, outcome="done")

    def _unchanged(self, lesson: Lesson, member: bool) -> bool:
        same = {
            name: getattr(lesson, name) for name in ("id", "kind", "signature", "text", "trust")
        }
        values = {**key_of(self._scope), **same, "member": member}
        return bool(self._db.named("unchanged", values).fetchall())

    def _supersede(self, lesson: Lesson, survivor: int, name: str, why: str) -> None:
        before = json.dumps({"lesson": lesson.name, "state": lesson.state})
        values = {
            **key_of(self._scope),
            "dream": self.id,
            "what": "reflection",
            "id": lesson.id,
            "subject": lesson.id,
            "before": before,
            "successor": survivor,
            "why": why,
            "child": lesson.name,
            "parent": name,
            "now": self._now,
        }
        for statement in ("insert_supersession", "insert_became"):
            self._db.named(statement, values)
        carry(self._db, self.id, lesson.id, survivor)
        self._db.named("supersede", values)


def plain(one: Proposal) -> Plain:
    """A proposal as it is kept: without a text, which may be revoked."""
    return {name: value for name, value in asdict(one).items() if name != "text"}


def log(
    db: Db, scope: Scope, limit: int, id: int | None = None, before: int | None = None
) -> list[Mapping[str, Any]]:
    """Dreams, the newest first, or the one of that id; with the texts that there are still."""
    values = {**key_of(scope), "limit": limit, "dream": id, "before": before}
    found: list[Mapping[str, Any]] = []
    for row in db.named("read_dreams", values).fetchall():
        report = json.loads(row["report"])
        ids = {n for one in report["proposals"] for n in (*one["members"], one["survivor"])}
        named = {**key_of(scope), "ids": json.dumps(sorted(ids))}
        texts = {one["id"]: one["text"] for one in db.named("texts_of", named)}
        known = {name: row[name] for name in ("id", "by", "at", "undone")}
        found.append({**report, **known, "texts": texts})
    return found


def undo(db: Db, scope: Scope, id: int, by: str, why: str) -> int:
    """Bring back what a dream superseded, on record; how many lessons are back.

    Raises NotFound, RollbackRefused, InvalidInput without an actor.
    """
    known = log(db, scope, 1, id)
    if not known:
        raise NotFound("dream", str(id), f"the memory of {scope.tenant}/{scope.project}")
    if known[0]["undone"] is not None:
        raise RollbackRefused(id, "it was rolled back before; heedful dream log shows when")
    values: Plain = {**key_of(scope), "dream": id, "now": time.time()}
    for later in db.named("superseded_later", values).fetchall():
        what = f"dream {later['dream']} superseded its lesson {later['subject']} since"
        do = f"roll that back first: heedful dream rollback {later['dream']}"
        raise RollbackRefused(id, f"{what}; {do}", later["dream"])
    back = 0
    for row in db.named("read_supersessions", values).fetchall():
        if row["what"] == "reflection":
            child = json.loads(row["before"])["lesson"]
            rows = db.named("delete_became", {**values, "child": child})
            back += sum(one["back"] for one in rows.fetchall())
    for one in known[0]["proposals"]:
        if one["action"] == "generalise" and one["outcome"] == "done":
            db.named("delete_made", {**values, "made": one["survivor"]})
    db.named("set_undone", values)
    rule(db, scope, "rollback", f"dream/{id}", by, why, time.time())
    return back
