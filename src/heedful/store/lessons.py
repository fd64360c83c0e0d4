"""What a superseded lesson has, beside what took its place, in SQL.

Trust in SQL: as what a text is written, what it rests on, how much one source may say.
Lessons in SQL: the upsert and the indexed read.
What was ruled on lessons, by whom and why, in SQL.
Keeping memory small in SQL: a bound that evicts, and lessons removed on request.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from math import inf
from types import MappingProxyType
from typing import Any, Literal

from heedful.errors import InvalidInput, NotFound, QuotaExceeded
from heedful.lessons.lesson import Example, Reflection, Remembered, Scope
from heedful.lessons.trust import (
    HELD,
    RAISING,
    TAGS,
    Quota,
    check_actor,
    clip_reflection,
    derive_trust,
    initial_state,
    lowest_trust,
)
from heedful.redact import redact, redact_data
from heedful.store.database import ALL, Db, Row


def carry(db: Db, dream: int, subject: int, successor: int) -> None:
    """Give the successor copies of the examples of a lesson that may be recalled.

    Each derives from the one that it copies, so that what a revocation removes it removes twice.
    """
    values: dict[str, Any] = {"dream": dream, "subject": subject, "successor": successor}
    for row in db.named("carried", values).fetchall():
        one = {**values, "example": row["id"]}
        one["copy"] = db.named("copy_example", one).fetchall()[0]["id"]
        for name in ("copy_origin", "copy_lineage", "copy_vector"):
            db.named(name, one)
        before = json.dumps({"state": row["state"]})
        told = {"what": "example", "subject": row["id"], "before": before}
        told |= {"successor": one["copy"], "why": ""}
        db.named("insert_supersession", {**values, **told})


def follow(db: Db, values: dict[str, Any]) -> None:
    """Let what was just learnt of a superseded lesson be recalled with what took its place.

    Of one that is not superseded there is nothing to do.
    `values`: the scope, and its `kind`, `signature` and id as `reflection`.
    """
    name = f"{values['kind']}/{values['signature']}"
    told = {**values, "name": name, "subject": values["reflection"]}
    for row in db.named("became", told).fetchall():
        if row["dream"] is not None:
            carry(db, row["dream"], values["reflection"], row["id"])


Plain = dict[str, Any]
NOBODY = "[]"


def stamp(db: Db, key: Plain, one: Reflection) -> Reflection | None:
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
    trust = derive_trust(one.trust, trusts, one.loop) if parents else one.trust
    if one.pinned and trust not in RAISING:
        raise InvalidInput("pinned", True, f"False for what is of trust {trust}")
    state = initial_state(trust, one.state)
    source = one.source or (trust if trust in HELD else "")
    one = clip_reflection(one) if trust in HELD else one
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


Wrote = Literal["nothing", "new", "raised"]
# How many numbers a halfvec of pgvector may have, and what each is below; it keeps 11 bits of them.
HALVES, LARGEST_HALF = 16_000, 65_504
SIGNED = "sig:"  # how a tag begins that is an exact signature
CLEARED = (
    "lineage", "origins", "dreams", "links", "exposures", "outcomes", "taught", "episodes",
    "spans", "traces",
)  # fmt: skip
LESSON = "lesson"  # the digest of the row that a lesson without an example is found by


def upsert(
    db: Db, scope: Scope, reflections: Sequence[Reflection], now: float, quota: Quota | None = None
) -> list[Remembered]:
    """One upsert a reflection: counted in the database, with its sighting and its example.

    A lesson of a loop that was shown what is gone by now is left out. Raises InvalidInput for an
    unknown parent, and QuotaExceeded.
    """
    key = {**key_of(scope), "scope": token(scope)}
    answers = []
    for one in reflections:
        if (stamped := stamp(db, key, one)) is not None:
            answers.append(_upsert(db, key, stamped, now))
            if quota is not None and stamped.state == "quarantined":
                within(db, key, storable(stamped.source), quota)
    return answers


def _upsert(db: Db, key: Plain, reflection: Reflection, now: float) -> Remembered:
    values = {
        **key,
        "kind": reflection.kind,
        "signature": reflection.signature.digest,
        "pattern": storable(reflection.signature.pattern),
        "error_type": storable(reflection.error_type),
        "text": storable(reflection.text),
        "tags": json.dumps([storable(tag) for tag in reflection.tags]),
        "meta": json.dumps(redact_data(dict(reflection.meta))),
        "state": reflection.state,
        "trust": reflection.trust,
        "importance": reflection.importance,
        "source": storable(reflection.source),
        "pinned": reflection.pinned,
        "loop": reflection.loop,
        "parents": json.dumps(reflection.parents),
        "now": now,
    }
    if reflection.trust in RAISING:
        words = mark(LESSON, values["text"])
        db.named("begin_anew", {**values, "mark": words})
    row = db.named("upsert_reflection", values).fetchall()[0]
    values["reflection"] = id = int(row["id"])
    _sign(db, values, reflection, json.loads(row["tags"]))
    sighting = {**values, "text": storable(reflection.sighting)}
    db.named("insert_occurrence", sighting)
    _write(db, values, reflection, row)
    if row["state"] == "superseded":
        follow(db, values)
    return Remembered(id, created=row["seen"] == 1, seen=int(row["seen"]))


def _sign(db: Db, values: Plain, reflection: Reflection, tags: list[str]) -> None:
    """Let a lesson be asked for by the signature of this very text, too, where that is a tag."""
    given = json.loads(values["tags"]) if reflection.trust not in HELD else []
    new = [tag for tag in given if tag.startswith(SIGNED) and tag not in tags]
    if new and len(tags) + len(new) <= TAGS:
        db.named("set_tags", {**values, "tags": json.dumps([*tags, *new])})


def _write(db: Db, values: Plain, reflection: Reflection, row: Row) -> None:
    """Write what comes with a sighting: its example, or the row of the lesson itself, or both.

    `row` is the lesson, which has no author where its words are new or were replaced just now.
    """
    raised = row["author"] is None and row["seen"] > 1
    if raised:
        step_aside(db, values)
    wrote: Wrote = "nothing"
    if reflection.example is not None:
        values["digest"] = reflection.example.digest
        wrote = add_example(db, values, reflection, reflection.example)
    elif digest := _speaks(reflection, row, values["text"]):
        values["digest"] = digest
        wrote = _add_words(db, values, reflection)
    if row["author"] is None:
        words: Wrote = wrote
        if wrote == "nothing":  # the example is another's, the words are not
            values["digest"] = LESSON
            words = _add_words(db, values, replace(reflection, vector=None))
        db.named("set_author", values)
        if words == "nothing":  # and these words another's, too
            db.named("follow_author", values)
    if reflection.trust == "operator" and (raised or wrote == "raised"):
        digest = mark(values["digest"], values["text"])
        vouched(db, values, name_of(reflection), digest)


def step_aside(db: Db, values: Plain) -> None:
    """Let the words that a lesson had be an entry like others, since it has new ones now."""
    for row in db.named("old_voice", values).fetchall():
        told = {"example": row["id"], "digest": mark(LESSON, row["lesson"])}
        db.named("step_aside", told)


def _add_words(db: Db, values: Plain, reflection: Reflection) -> Wrote:
    """Write the row that a lesson is found by without an example."""
    if values["digest"] == LESSON:
        values["mark"] = mark(LESSON, values["text"])
        db.named("take_voice", values)
    words = Example(reflection.text, "", context=reflection.context)
    return add_example(db, values, reflection, words)


def _speaks(reflection: Reflection, row: Row, text: str) -> str:
    """The digest of the row that a lesson without an example has; "" where it has none.

    That of its own where these are its words. Others are kept beside it where they are no mere
    sighting: to be released, or since less trusted words must not silence them.
    """
    if row["text"] == text:
        return LESSON
    told = reflection.text != reflection.sighting
    held = (
        reflection.trust in HELD
        or lowest_trust([reflection.trust, row["trust"]]) != reflection.trust
    )
    return mark(LESSON, text) if told and held else ""


def add_example(db: Db, values: Plain, reflection: Reflection, example: Example) -> Wrote:
    """Write an example of a lesson, with what it comes from, unless it is there and trusted more.

    `values`: its `reflection`, `digest`, `text`,
    `state`, `trust`, `source`, `parents` and `now`, and the scope.
    """
    from heedful.lessons.words import (
        words,  # costs 0.3 MB, which a loop without memory can do without
    )

    task = storable(example.task)
    values = {
        **values,
        "task": task,
        "record": json.dumps(redact_data(asdict(example))),
        "lesson": values["text"],
        "words": " ".join(words(f"{task}\n{storable(reflection.context)}")),
    }
    if values["state"] == "quarantined":
        known = mark(values["digest"], values["text"])
        rejected = was_rejected(db, values, name_of(reflection), known)
        values["state"] = "retired" if rejected else "quarantined"
    rows = db.named("insert_example", values).fetchall()
    wrote: Wrote = "nothing"
    if rows:
        wrote = "raised" if rests(db, values, rows[0]["id"]) else "new"
    else:
        db.named("verify_example", values)
    if reflection.vector is not None and (rows or reflection.trust not in HELD):
        place = placed(db, reflection.space, blob(reflection.vector))
        db.named("insert_vector", {**values, **place})
    return wrote


def name_of(reflection: Reflection) -> str:
    """What a ruling names it by."""
    return f"{reflection.kind}/{reflection.signature.digest}"


def mark(digest: str, lesson: str) -> str:
    """What tells a text apart for good: the row of a lesson itself may get other words."""
    return Example(lesson, "").digest if digest == LESSON else digest


def top(db: Db, scope: Scope, limit: int) -> list[Mapping[str, Any]]:
    """The reflections most often seen."""
    rows = db.named("top_reflections", {**key_of(scope), "limit": limit}).fetchall()
    return [plain(row) for row in rows]


def count(db: Db, scope: Scope) -> int:
    """How many reflections there are."""
    return int(db.named("count_reflections", key_of(scope)).fetchone()["n"])


def clear(db: Db, scope: Scope) -> int:
    """Forget the lessons of the scope and what they came to; how many there were.

    Rulings stay on record.
    """
    deleted = db.named("clear_reflections", key_of(scope)).rowcount
    for table in CLEARED:
        db.named(f"clear_{table}", {**key_of(scope), "scope": token(scope)})
    return deleted


def scopes(db: Db, scope: Scope, waiting: bool = False) -> list[Scope]:
    """Return all scopes that have lessons; those where traces or episodes wait with `waiting`.

    Whoever asks sees no more of them than their names.
    """
    rows = db.named("scopes_waiting" if waiting else "scopes").fetchall()
    return [Scope(*row) for row in rows]


def token(scope: Scope) -> str:
    """The scope as one word of the full-text index."""
    name = f"{scope.tenant}\0{scope.project}"
    return "s" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def key_of(scope: Scope) -> dict[str, Any]:
    return {"tenant": scope.tenant, "project": scope.project}


def storable(text: str) -> str:
    """Text without secrets that every database can hold.

    A lone surrogate, of which UTF-8 has none, becomes a question mark, and so does the character 0,
    of which PostgreSQL has none.
    """
    text = redact(text).replace("\0", "?")
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def blob(vector: Sequence[float]) -> bytes:
    """The vector as 32-bit floats, the least byte first."""
    import numpy as np

    return np.asarray(vector, dtype="<f4").tobytes()


def placed(db: Db, space: str, data: bytes) -> Plain:
    """A vector as the statements that write one take it: to PostgreSQL its short form is told."""
    return {"space": space, "data": data, "near": short(data) if db.dialect == "postgres" else None}


def short(data: bytes) -> str | None:
    """A vector as pgvector reads it as halfvec; None where that has no room for it."""
    import numpy as np

    numbers = np.frombuffer(data, "<f4")
    fits = 0 < len(numbers) <= HALVES and bool((np.abs(numbers) < LARGEST_HALF).all())
    return f"[{','.join([f'{one:.4g}' for one in numbers.tolist()])}]" if fits else None


def plain(row: Row) -> Mapping[str, Any]:
    flags = {name: bool(row[name]) for name in ("pinned", "apart")}
    return {**dict(row), **flags, "tags": json.loads(row["tags"])}


NOTHING_MORE: Mapping[str, Any] = MappingProxyType({})


def rule(
    db: Db,
    scope: Scope,
    action: str,
    subject: str,
    by: str,
    why: str,
    now: float,
    record: Mapping[str, Any] = NOTHING_MORE,
) -> None:
    """Put on record what was done to what; `record` is plain data. Raises InvalidInput.

    The subject is a lesson by `kind/signature`, so that the ruling outlives it, or a digest.
    """
    check_actor(by, why)
    values = {
        **key_of(scope),
        "action": action,
        "subject": storable(subject),
        "by": storable(by),
        "why": storable(why),
        "record": json.dumps(redact_data(dict(record))),
        "now": now,
    }
    db.named("insert_ruling", values)


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


def prunable(db: Db, scope: Scope, unused_for: float, keep: int) -> list[Mapping[str, Any]]:
    """What `prune` would remove, as plain data with `why`; 0 and below 0 ask for nothing.

    `unused_for` is in seconds: neither seen nor shown since. A time that is still to come, of a
    clock that went wrong, is no reason.
    """
    now = time.time()
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


def prune(db: Db, scope: Scope, unused_for: float, keep: int, by: str) -> list[Mapping[str, Any]]:
    """Remove what `prunable` names; on record, with the names."""
    found = prunable(db, scope, unused_for, keep)
    ids = json.dumps([one["id"] for one in found])
    db.named("delete_reflections", {**key_of(scope), "ids": ids})
    if found:
        removed = [
            {"lesson": f"{one['kind']}/{one['signature']}", "why": one["why"]} for one in found
        ]
        rule(db, scope, "prune", f"{len(found)} lessons", by, "", time.time(), {"removed": removed})
    return found


def pin(db: Db, scope: Scope, id: int, pinned: bool, by: str, why: str) -> None:
    """Keep a lesson from eviction and pruning, or no longer; on record. Raises NotFound."""
    values = {**key_of(scope), "id": id, "pinned": pinned}
    rows = db.named("set_pinned", values).fetchall()
    if not rows:
        raise NotFound("lesson", str(id), f"the lessons of {scope.tenant}/{scope.project}")
    subject = f"{rows[0]['kind']}/{rows[0]['signature']}"
    rule(db, scope, "pin" if pinned else "unpin", subject, by, why, time.time())


def _least(
    db: Db, scope: Scope, since: float, before: float, limit: int
) -> list[Mapping[str, Any]]:
    values = {**key_of(scope), "since": since, "before": before, "limit": limit}
    return [dict(row) for row in db.named("prunable", values).fetchall()]
