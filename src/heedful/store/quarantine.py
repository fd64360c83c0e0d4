"""The quarantine: entries that wait, are released or rejected, and sources that are revoked."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from heedful.errors import InvalidInput, NotFound, NotQuarantined
from heedful.lessons.lesson import ORDER, Example, Reflection, Scope, Signature
from heedful.lessons.trust import (
    HELD,
    Action,
    Provenance,
    QuarantinedLesson,
    RevocationResult,
    Sighting,
    initial_state,
)
from heedful.store.lessons import LESSON, add_example, follow, mark, rule
from heedful.store.store import Db, Row, key_of, storable, token

Plain = dict[str, Any]
# How many sightings of a lesson are shown, the newest first.
TOLD = 20
DONE = {"release": "released", "reject": "rejected"}


def entries(db: Db, scope: Scope, ids: Sequence[int] | None) -> list[QuarantinedLesson]:
    """Return examples by their ids, in any state; with None all that wait in quarantine."""
    key = _key(scope)
    if ids is None:
        ids = [row["id"] for row in db.run("waiting", key).fetchall()]
    rows = db.run("read_held", {**key, "ids": json.dumps(list(ids))}).fetchall()
    return [_held(row) for row in rows]


def provenance(db: Db, scope: Scope, one: QuarantinedLesson) -> Provenance:
    """Return the sources, parents, children and sightings of an example, and the rulings on it."""
    lesson = {"kind": one.kind, "signature": one.signature, "most": TOLD}
    values = {**_key(scope), "example": one.id, "subject": f"{one.kind}/{one.signature}", **lesson}
    found = {
        name: db.run(name, values).fetchall()
        for name in ("rests_on", "parents_of", "children_of", "newest_sightings", "rulings_on")
    }
    return Provenance(
        tuple(row["source"] for row in found["rests_on"]),
        tuple(row["parent"] for row in found["parents_of"]),
        tuple(row["child"] for row in found["children_of"]),
        tuple(Sighting(**dict(row)) for row in found["newest_sightings"]),
        tuple({**dict(row), "record": json.loads(row["record"])} for row in found["rulings_on"]),
    )


def settle(db: Db, scope: Scope, ids: Collection[int], action: Action, by: str, why: str) -> None:
    """Release or reject entries, all or none; on record.

    A released entry gets the trust of the operator. Raises NotFound, NotQuarantined, InvalidInput.
    """
    if not ids:
        raise InvalidInput("ids", list(ids), "at least one id of the quarantine")
    known = {one.id: one for one in entries(db, scope, sorted(set(ids)))}
    now = time.time()
    for id in sorted(set(ids)):
        if id not in known:
            raise NotFound("example", str(id), f"the memory of {scope.tenant}/{scope.project}")
        _settle(db, scope, known[id], action, by, why, now)


def _settle(
    db: Db, scope: Scope, one: QuarantinedLesson, action: Action, by: str, why: str, now: float
) -> None:
    released = action == "release"
    values = {
        **_key(scope),
        "example": one.id,
        "state": "candidate" if released else "retired",
        "trust": "operator" if released else one.trust,
        "subject": f"{one.kind}/{one.signature}",
    }
    rows = db.run("settle_example", values).fetchall()
    if not rows:
        last = db.run("rulings_on", values).fetchone()
        ruled = f"was {DONE[last['action']]} by {last['by']}" if last is not None else ""
        raise NotQuarantined(one.id, one.state, ruled)
    (row,) = rows
    digest = mark(row["digest"], one.lesson)
    record = {"example": one.id, "digest": digest, "source": one.source, "trust": one.trust}
    rule(db, scope, action, values["subject"], by, why, now, record)
    values["reflection"] = row["reflection"]
    if released:
        follow(db, {**values, "kind": one.kind, "signature": one.signature})
    lesson = db.run("read_voice", values).fetchone()
    if lesson["trust"] in HELD and (released or lesson["author"] == one.id):
        _speak(db, values, one.id if released else _best(db, values), lesson)


def revoke(db: Db, scope: Scope, source: str, by: str, why: str, dry_run: bool) -> RevocationResult:
    """Remove everything that derives from a source, and its sightings, on record.

    `dry_run` only counts. Lessons keep what other sources said about them. Raises NotFound if the
    source left nothing.
    """
    now = time.time()
    db.execute("savepoint revocation")
    removed = _revoked(db, _key(scope), storable(source), now)
    if dry_run:
        db.execute("rollback to revocation")
    db.execute("release revocation")
    if removed == RevocationResult():
        where = f"the memory of {scope.tenant}/{scope.project}"
        raise NotFound("source", source, where)
    if not dry_run:
        rule(db, scope, "revoke", source, by, why, now, asdict(removed))
    return removed


def _revoked(db: Db, key: Plain, source: str, now: float) -> RevocationResult:
    values: Plain = {**key, "source": source, "now": now, "digest": LESSON}
    rests = [row["id"] for row in db.run("rests_on_source", values).fetchall()]
    values["ids"] = json.dumps(rests)
    seen = Counter(row["reflection"] for row in db.run("delete_sightings", values).fetchall())
    vectors = db.run("delete_vectors", values).rowcount
    gone = db.run("delete_examples", values).fetchall()
    for name in ("delete_origins", "delete_lineage", "forget_record"):
        db.run(name, values)
    lessons = 0
    for reflection in sorted(seen.keys() | {row["reflection"] for row in gone}):
        values |= {"reflection": reflection, "n": seen[reflection]}
        db.run("unsee", values)
        lessons += _bereft(db, values)
    return RevocationResult(len(gone), lessons, sum(seen.values()), vectors)


def _bereft(db: Db, values: Plain) -> bool:
    """Give a lesson that lost its author the words of a remaining example, or delete the lesson."""
    lesson = db.run("read_voice", values).fetchone()
    if lesson["spoken_for"]:
        return False
    db.run("give_back", values)
    best = _best(db, values)
    if best is None and not _from_sighting(db, values, lesson):
        db.run("delete_reflection", values)
        return True
    _speak(db, values, best or _best(db, values), lesson)
    return False


def _best(db: Db, values: Plain) -> int | None:
    """Return the most trusted example of a lesson, the oldest of these; rejected ones come last."""
    row = db.run("best_example", {**values, "order": json.dumps(ORDER)})
    found = row.fetchone()
    return int(found["id"]) if found is not None else None


def _speak(db: Db, values: Plain, example: int | None, lesson: Row) -> None:
    """Give a lesson the words, trust and state of an example; a proof's retirement stays."""
    stays = lesson["state"] in ("retired", "superseded") and lesson["trust"] not in HELD
    values = {**values, "example": example, "kept": lesson["state"] if stays else ""}
    db.run("bring_back", values)
    db.run("set_voice", values)
    rows = db.run("read_voices", values).fetchall()
    # The row of the lesson itself has its words; a row with other words has its own digest.
    for row in sorted(rows, key=lambda row: bool(row["id"] == example)):
        alone = row["digest"] in (LESSON, mark(LESSON, row["lesson"]))
        digest = mark(LESSON, row["lesson"]) if row["id"] != example else LESSON
        if alone and row["digest"] != digest:
            db.run("set_digest", {"example": row["id"], "digest": digest})


def _from_sighting(db: Db, values: Plain, lesson: Row) -> bool:
    """Write the most trusted sighting as the lesson; return False without a sighting."""
    order = {**values, "order": json.dumps(ORDER)}
    row = db.run("best_sighting", order).fetchone()
    if row is None:
        return False
    one = Reflection(
        lesson["kind"],
        Signature("", lesson["pattern"], lesson["signature"]),
        lesson["error_type"],
        row["text"],
        row["text"],
        trust=row["trust"],
        state=initial_state(row["trust"]),
    )
    written = {name: row[name] for name in ("text", "source", "parents", "trust")}
    add_example(db, {**values, **written, "state": one.state}, one, Example(row["text"], ""))
    return True


def _held(row: Row) -> QuarantinedLesson:
    plain = {name: row[name] for name in row.keys() if name != "record"}  # noqa: SIM118 - a Row
    example = Example(**json.loads(row["record"]))
    tags = tuple(json.loads(row["tags"]))
    return QuarantinedLesson(
        **{**plain, "tags": tags, "example": example if example.accepted else None}
    )


def _key(scope: Scope) -> Plain:
    return {**key_of(scope), "scope": token(scope)}
