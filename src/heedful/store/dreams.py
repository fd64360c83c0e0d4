"""Dreams: what they read, what they change, and how they are rolled back.

A dream replaces lessons by other lessons. It writes its report and all its changes in
one transaction. Nothing is deleted: a superseded lesson comes back with a rollback.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from heedful.errors import NotFound, RollbackRefused
from heedful.lessons.lesson import Scope
from heedful.store.connection import Db, from_row, key_of, resumable, storable
from heedful.store.lessons import Plain, move_examples, name_of, rule

if TYPE_CHECKING:  # imported when they are needed: a hook process starts for each event
    from heedful.lessons.consolidate import DreamLesson, Proposal

MAX_LESSON_QUERIES = 5
# The fields that must be unchanged for a dream to supersede a lesson.
UNCHANGED_LESSON_FIELDS = ("id", "kind", "signature", "text", "trust")
CHANGED_LESSON_OUTCOME = "one of its lessons changed during the dream"


def material(
    db: Db, scope: Scope, space: str
) -> list[tuple[DreamLesson, Sequence[float] | None]]:
    """Return the recallable lessons, sorted by name.

    Each has its vector in `space`, or None.
    """
    import numpy as np

    from heedful.lessons.consolidate import DreamLesson

    lessons = list[tuple[DreamLesson, Any]]()
    for row in db.all("material", scope, space=space):
        vector = None
        if row["data"] is not None:
            vector = np.frombuffer(row["data"], "<f4")
        lessons.append((from_row(DreamLesson, row), vector))
    return lessons


def queries(db: Db, scope: Scope, ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the newest tasks and sightings of each lesson.

    There are at most `MAX_LESSON_QUERIES` for a lesson.
    """
    texts = {}
    for id in ids:
        rows = db.run("asked", {"lesson_id": id, "most": MAX_LESSON_QUERIES})
        texts[id] = [row["text"] for row in rows]
    return texts


def _dream_result() -> Any:
    from heedful.lessons.consolidate import Proposal

    return tuple[int, list[Proposal]]


@resumable(result=_dream_result)
def supersede(
    db: Db,
    scope: Scope,
    report: Mapping[str, Any],
    proposals: Sequence[Proposal],
    expected: Mapping[int, DreamLesson],
    by: str,
) -> tuple[int, list[Proposal]]:
    """Store a dream's report and carry out its proposals.

    Returns the dream's id and the proposals, each with its outcome. `expected` holds
    the lessons as the dream read them: a proposal is skipped if one of its lessons has
    changed since.
    """
    key = key_of(scope)
    dream = {**key, "report": "{}", "by": storable(by), "at": time.time()}
    id = int(db.insert("dream", dream, "returning id").fetchone()["id"])
    results = []
    for proposal in proposals:
        if proposal.outcome == "proposed":
            outcome = _carry_out(db, key, id, proposal, expected)
            results.append(replace(proposal, outcome=outcome))
        else:
            results.append(proposal)
    record = {**report, "proposals": [asdict(result) for result in results]}
    db.update("dream", {"id": id}, {"report": json.dumps(record)})
    return id, results


def _carry_out(
    db: Db,
    key: Plain,
    dream: int,
    proposal: Proposal,
    expected: Mapping[int, DreamLesson],
) -> str:
    """Replace the members of a proposal by its survivor; return the outcome."""
    members = [expected[id] for id in proposal.members]
    survivor = expected[proposal.survivor]
    for lesson in (*members, survivor):
        values = {name: getattr(lesson, name) for name in UNCHANGED_LESSON_FIELDS}
        values["member"] = lesson in members
        if db.first("unchanged", {**key, **values}) is None:
            return CHANGED_LESSON_OUTCOME
    for lesson in members:
        link = {
            **key,
            "child": lesson.name,
            "relation": "became",
            "parent": survivor.name,
            "dream": dream,
            "before": lesson.state,
        }
        db.insert("link", link)
        move_examples(db, lesson.id, survivor.id)
        db.update("lesson", {"id": lesson.id}, {"state": "superseded"})
    return "done"


def log(
    db: Db, scope: Scope, limit: int, id: int | None = None, before: int | None = None
) -> list[Mapping[str, Any]]:
    """Return dreams as plain data, newest first.

    Returns only dream `id`, or all with ids below `before`. `texts` maps the ids of a
    dream's lessons to the texts of these lessons.
    """
    dreams = list[Mapping[str, Any]]()
    for row in db.all("read_dreams", scope, limit=limit, dream=id, before=before):
        report = json.loads(row["report"])
        ids = set[int]()
        for proposal in report["proposals"]:
            ids.update(proposal["members"], [proposal["survivor"]])
        lessons = db.all("texts_of", scope, ids=json.dumps(sorted(ids)))
        columns = {name: row[name] for name in ("id", "by", "at", "undone")}
        texts = {lesson["id"]: lesson["text"] for lesson in lessons}
        dreams.append({**report, **columns, "texts": texts})
    return dreams


@resumable(result=int)
def undo(db: Db, scope: Scope, id: int, by: str, why: str) -> int:
    """Restore the lessons that a dream superseded; return their number.

    Records a ruling. Raises NotFound, RollbackRefused, and InvalidInput if `by` is
    empty.
    """
    dreams = log(db, scope, limit=1, id=id)
    if not dreams:
        where = f"the memory of {scope.tenant}/{scope.project}"
        raise NotFound("dream", str(id), where)
    dream = dreams[0]
    if dream["undone"] is not None:
        raise RollbackRefused(
            id, "it is rolled back already; heedful dream log shows when"
        )
    for later in db.all("superseded_later", scope, dream=id):
        event = f"dream {later['dream']} later superseded its lesson {later['child']}"
        remedy = f"roll back that dream first: heedful dream rollback {later['dream']}"
        raise RollbackRefused(id, f"{event}; {remedy}", later["dream"])
    links = db.select("parent", "link", {**key_of(scope), "dream": id})
    parents = {row["parent"] for row in links}
    restored: int = sum(row["back"] for row in db.all("undo_dream", scope, dream=id))
    for proposal in dream["proposals"]:
        if proposal["action"] != "reword":
            continue
        survivor = {"id": proposal["survivor"]}
        for row in db.select("kind, signature", "lesson", survivor):
            if name_of(row) in parents:
                db.update("lesson", survivor, {"state": "superseded"})
    db.update("dream", {"id": id}, {"undone": time.time()})
    rule(
        db,
        scope,
        action="rollback",
        subject=f"dream/{id}",
        by=by,
        why=why,
        now=time.time(),
    )
    return restored
