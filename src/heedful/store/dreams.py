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

# At most this many texts are read for a lesson.
MAX_LESSON_QUERIES = 5
# The fields that must be unchanged for a dream to supersede a lesson.
UNCHANGED_LESSON_FIELDS = ("id", "kind", "signature", "text", "trust")
CHANGED_LESSON_OUTCOME = "one of its lessons changed during the dream"


def material(
    db: Db, scope: Scope, space: str
) -> list[tuple[DreamLesson, Sequence[float] | None]]:
    """Return the lessons that recall may find, sorted by name.

    Each comes with its vector in the vector space `space`, or None if it has none.
    """
    import numpy as np

    from heedful.lessons.consolidate import DreamLesson

    lessons = list[tuple[DreamLesson, Any]]()
    for row in db.all("material", scope, space=space):
        data = row["data"]
        # Vectors are stored as 32-bit floats.
        vector = None if data is None else np.frombuffer(data, "<f4")
        lessons.append((from_row(DreamLesson, row), vector))

    return lessons


def queries(db: Db, scope: Scope, ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the newest texts that led to each of these lessons, by the lesson's id.

    These are tasks and sightings of the lesson, at most `MAX_LESSON_QUERIES`.
    """
    texts = {}
    for id in ids:
        rows = db.run("asked", {"lesson_id": id, "most": MAX_LESSON_QUERIES})
        texts[id] = [row["text"] for row in rows]

    return texts


def _dream_result() -> Any:
    # The type of the result of `supersede`.
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
    # The report comes last, because it has the outcomes.
    dream = {**key, "report": "{}", "by": storable(by), "at": time.time()}
    id = int(db.insert_now("dream", dream, "returning id").fetchone()["id"])

    results = []
    for proposal in proposals:
        outcome = _carry_out(db, key, id, proposal, expected)
        results.append(replace(proposal, outcome=outcome))

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
    """Replace the members of a proposal by its survivor; return the outcome.

    A proposal that has an outcome keeps it, and nothing is replaced.
    """
    if proposal.outcome != "proposed":
        return proposal.outcome

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
    """Return up to `limit` dreams as plain data, newest first.

    With `id`, returns only this dream; with `before`, only dreams with lower ids. The
    `texts` of a dream map the ids of its lessons to the texts of these lessons.
    """
    dreams = list[Mapping[str, Any]]()
    for row in db.all("read_dreams", scope, limit=limit, dream=id, before=before):
        report = json.loads(row["report"])
        lesson_ids = set[int]()
        for proposal in report["proposals"]:
            lesson_ids.update(proposal["members"], [proposal["survivor"]])
        lessons = db.all("texts_of", scope, ids=json.dumps(sorted(lesson_ids)))

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
    dream = _dream_to_undo(db, scope, id)
    links = db.select("parent", "link", {**key_of(scope), "dream": id})
    survivor_names = {row["parent"] for row in links}
    restored: int = sum(row["back"] for row in db.all("undo_dream", scope, dream=id))

    # A dream that rewords a lesson writes a new one, which gives way to the old one.
    for proposal in dream["proposals"]:
        if proposal["action"] != "reword":
            continue
        key = {"id": proposal["survivor"]}
        for survivor in db.select("kind, signature", "lesson", key):
            if name_of(survivor) in survivor_names:
                db.update("lesson", key, {"state": "superseded"})

    now = time.time()
    db.update("dream", {"id": id}, {"undone": now})
    rule(
        db,
        scope,
        action="rollback",
        subject=f"dream/{id}",
        by=by,
        why=why,
        now=now,
    )
    return restored


def _dream_to_undo(db: Db, scope: Scope, id: int) -> Mapping[str, Any]:
    """Return a dream that can be rolled back. Raises NotFound, RollbackRefused.

    A dream cannot be rolled back twice, nor before a later dream that superseded one of
    its lessons.
    """
    dreams = log(db, scope, limit=1, id=id)
    if not dreams:
        raise NotFound(
            "dream", str(id), f"the memory of {scope.tenant}/{scope.project}"
        )

    dream = dreams[0]
    if dream["undone"] is not None:
        raise RollbackRefused(
            id, "it is rolled back already; heedful dream log shows when"
        )

    later = db.one("superseded_later", scope, dream=id)
    if later is not None:
        event = f"dream {later['dream']} later superseded its lesson {later['child']}"
        remedy = f"roll back that dream first: heedful dream rollback {later['dream']}"
        raise RollbackRefused(id, f"{event}; {remedy}", later["dream"])

    return dream
