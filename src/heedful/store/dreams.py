"""Dreams: what they read, what they change, and how they are rolled back.

A dream replaces lessons by other lessons, and writes reflections that cite lessons. It
writes its report and all its changes in one transaction. Nothing is deleted: a
superseded lesson comes back with a rollback, which supersedes the reflections.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from heedful.errors import NotFound, RollbackRefused
from heedful.lessons.dream_proposals import DreamLesson, Proposal
from heedful.lessons.lesson import Lesson, Scope
from heedful.lessons.mistake import from_json, without_outside
from heedful.store.connection import Db, Row, from_row, key_of, resumable, storable
from heedful.store.lessons import Plain, upsert
from heedful.store.rulings import name_of, rule

# The fields that must be unchanged for a dream to supersede a lesson.
UNCHANGED_LESSON_FIELDS = ("id", "kind", "signature", "text", "trust")
CHANGED_LESSON_OUTCOME = "one of its lessons changed during the dream"
# The outcomes of a reflection that is stored already, in the same words.
COUNTED_OUTCOME = "the same came back: one more sighting is counted"
KNOWN_OUTCOME = "it is stored already, and nothing came back since"
WITHDRAWN_OUTCOME = "it was rolled back or retired before"
REFUSED_OUTCOME = "its words were refused before; they wait in quarantine"


def material(db: Db, scope: Scope) -> list[DreamLesson]:
    """Return the lessons that recall may find, sorted by name."""
    lessons = []
    for row in db.all("material", scope):
        mistake = from_json(row["mistake"])
        mistake = mistake and without_outside(mistake)
        lessons.append(from_row(DreamLesson, row, mistake=mistake))
    return lessons


def runs(db: Db, scope: Scope) -> dict[int, set[str]]:
    """Return the runs in which each lesson in use was seen, by the lesson's id.

    A sighting of no loop or episode is a run of its own.
    """
    runs_by_id = defaultdict[int, set[str]](set)
    for row in db.all("runs_of_lessons", scope, limit=100_000):
        runs_by_id[row["lesson_id"]].add(row["run"])
    return runs_by_id


@resumable(result=tuple[int, list[Proposal]])
def supersede(
    db: Db,
    scope: Scope,
    report: Mapping[str, Any],
    proposals: Sequence[Proposal],
    expected: Mapping[int, DreamLesson],
    by: str,
    reflections: Mapping[int, Lesson] | None = None,
) -> tuple[int, list[Proposal]]:
    """Store a dream's report and carry out its proposals.

    Returns the dream's id and the proposals, each with its outcome. `expected` holds
    the lessons as the dream read them: a proposal is skipped if one of its lessons has
    changed since. `reflections` are those to write, by the survivor of their proposal,
    which becomes their id.
    """
    key = key_of(scope)
    # The report comes last, because it has the outcomes.
    dream = {**key, "report": "{}", "by": storable(by), "at": time.time()}
    id = int(db.insert_now("dream", dream, "returning id").fetchone()["id"])

    results = []
    for proposal in proposals:
        if proposal.action == "reflect" and proposal.outcome == "proposed":
            lesson = (reflections or {})[proposal.survivor]
            results += _write_reflection(
                db,
                scope,
                id,
                proposal=proposal,
                reflection=lesson,
                expected=expected,
            )
        else:
            outcome = _carry_out(db, key, id, proposal, expected)
            # A reflection that is not written gets no id.
            survivor = max(0, proposal.survivor)
            results.append(replace(proposal, survivor=survivor, outcome=outcome))

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
    if not all(
        _is_unchanged(db, key, lesson, lesson in members)
        for lesson in (*members, survivor)
    ):
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
        db.update("lesson", {"id": lesson.id}, {"state": "superseded"})

    return "done"


def _is_unchanged(db: Db, key: Plain, lesson: DreamLesson, is_member: bool) -> bool:
    """Return True if a lesson is as the dream read it.

    A lesson that `is_member` is replaced by another one, so it must not be pinned.
    """
    values = {name: getattr(lesson, name) for name in UNCHANGED_LESSON_FIELDS}
    values["member"] = is_member
    return db.first("unchanged", {**key, **values}) is not None


def _write_reflection(
    db: Db,
    scope: Scope,
    dream: int,
    proposal: Proposal,
    reflection: Lesson,
    expected: Mapping[int, DreamLesson],
) -> list[Proposal]:
    """Write a reflection that cites the members; return the proposals with outcomes.

    It replaces an earlier reflection about the same thing, which is a proposal of its
    own. A reflection that is stored already is only counted.
    """
    key = key_of(scope)
    cited = [expected[id] for id in proposal.members]
    if not all(_is_unchanged(db, key, lesson, is_member=False) for lesson in cited):
        return [replace(proposal, survivor=0, outcome=CHANGED_LESSON_OUTCOME)]

    cited_ids = json.dumps(proposal.members)
    authors = [row["author"] for row in db.all("authors", scope, ids=cited_ids)]
    reflection = replace(reflection, parents=tuple(authors))
    name = {"kind": reflection.kind, "signature": reflection.signature.digest}
    for row in db.select("*", "lesson", {**key, **name}):
        last_seen = max(lesson.last_seen for lesson in cited)
        outcome = _count_reflection(db, scope, reflection, row=row, last_seen=last_seen)
        return [replace(proposal, survivor=row["id"], outcome=outcome)]

    [answer] = upsert(db, scope, lessons=[reflection], now=time.time())
    for lesson in cited:
        link = {"child": name_of(name), "relation": "cites", "parent": lesson.name}
        db.insert("link", {**key, **link, "dream": dream})
    if answer.state == "quarantined":
        return [replace(proposal, survivor=answer.id, outcome=REFUSED_OUTCOME)]

    results = [replace(proposal, survivor=answer.id, outcome="done")]
    same_thing = {"kind": reflection.kind, "pattern": reflection.signature.pattern}
    for row in db.select("*", "lesson", {**key, **same_thing, "state": "unverified"}):
        if row["id"] != answer.id:
            link = {"child": name_of(row), "relation": "became"}
            db.insert("link", {**key, **link, "parent": name_of(name), "dream": dream})
            db.update("lesson", {"id": row["id"]}, {"state": "superseded"})
            change = replace(
                results[0],
                action="reword",
                members=(row["id"],),
                why="the new reflection cites what is known now",
            )
            results.append(change)
    return results


def _count_reflection(
    db: Db, scope: Scope, reflection: Lesson, row: Row, last_seen: float
) -> str:
    """Count a stored reflection if what it cites came back; return the outcome.

    `row` is its lesson, and `last_seen` is when the newest of the lessons was seen.
    """
    if row["state"] not in ("unverified", "verified"):
        return WITHDRAWN_OUTCOME
    if last_seen <= row["last_seen"]:
        return KNOWN_OUTCOME

    same = replace(
        reflection, text=row["text"], sighting=row["text"], trust=row["trust"]
    )
    upsert(db, scope, lessons=[replace(same, vector=None)], now=time.time())
    return COUNTED_OUTCOME


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
    links = db.select("child, relation, parent", "link", {**key_of(scope), "dream": id})
    new_names = {
        row["child"] if row["relation"] == "cites" else row["parent"] for row in links
    }
    restored: int = sum(row["back"] for row in db.all("undo_dream", scope, dream=id))

    # The new lesson of a dream that reworded or reflected is superseded.
    for proposal in dream["proposals"]:
        if proposal["action"] not in ("reword", "reflect"):
            continue
        key = {"id": proposal["survivor"]}
        for survivor in db.select("kind, signature", "lesson", key):
            if name_of(survivor) in new_names:
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

    A dream cannot be rolled back twice, or before a later dream that superseded one of
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
