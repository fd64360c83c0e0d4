"""Lessons in SQL: the upsert and the indexed read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

from heedful.memory.learn import Example, Reflection
from heedful.memory.trust import HELD, RAISING, TAGS, Quota, lowest
from heedful.protocols import Remembered, Scope
from heedful.redact import redacted, redacted_data
from heedful.store import trust
from heedful.store.database import Db, Row
from heedful.store.superseded import follow

Plain = dict[str, Any]
Wrote = Literal["nothing", "new", "raised"]
# How many numbers a halfvec of pgvector may have, and what each is below; it keeps 11 bits of them.
HALVES, LARGEST_HALF = 16_000, 65_504
SIGNED = "sig:"  # how a tag begins that is an exact signature
LESSON = "lesson"  # the digest of the row that a lesson without an example is found by


def remember(
    db: Db, scope: Scope, reflections: Sequence[Reflection], now: float, quota: Quota | None = None
) -> list[Remembered]:
    """One upsert a reflection: counted in the database, with its sighting and its example.

    A lesson of a loop that was shown what is gone by now is left out. Raises InvalidInput for an
    unknown parent, and QuotaExceeded.
    """
    key = {**key_of(scope), "scope": token(scope)}
    answers = []
    for one in reflections:
        if (stamped := trust.stamped(db, key, one)) is not None:
            answers.append(_remember(db, key, stamped, now))
            if quota is not None and stamped.state == "quarantined":
                trust.within(db, key, storable(stamped.source), quota)
    return answers


def _remember(db: Db, key: Plain, reflection: Reflection, now: float) -> Remembered:
    values = {
        **key,
        "kind": reflection.kind,
        "signature": reflection.signature.digest,
        "pattern": storable(reflection.signature.pattern),
        "error_type": storable(reflection.error_type),
        "text": storable(reflection.text),
        "tags": json.dumps([storable(tag) for tag in reflection.tags]),
        "meta": json.dumps(redacted_data(dict(reflection.meta))),
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
        trust.vouched(db, values, name_of(reflection), digest)


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
    held = reflection.trust in HELD or lowest([reflection.trust, row["trust"]]) != reflection.trust
    return mark(LESSON, text) if told and held else ""


def add_example(db: Db, values: Plain, reflection: Reflection, example: Example) -> Wrote:
    """Write an example of a lesson, with what it comes from, unless it is there and trusted more.

    `values`: its `reflection`, `digest`, `text`,
    `state`, `trust`, `source`, `parents` and `now`, and the scope.
    """
    from heedful.memory.words import (
        words,
    )  # costs 0.3 MB, which a loop without memory can do without

    task = storable(example.task)
    values = {
        **values,
        "task": task,
        "record": json.dumps(redacted_data(asdict(example))),
        "lesson": values["text"],
        "words": " ".join(words(f"{task}\n{storable(reflection.context)}")),
    }
    if values["state"] == "quarantined":
        known = mark(values["digest"], values["text"])
        rejected = trust.was_rejected(db, values, name_of(reflection), known)
        values["state"] = "retired" if rejected else "quarantined"
    rows = db.named("insert_example", values).fetchall()
    wrote: Wrote = "nothing"
    if rows:
        wrote = "raised" if trust.rests(db, values, rows[0]["id"]) else "new"
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
    """Delete the reflections of the scope, with their examples, sightings and origins."""
    deleted = db.named("clear_reflections", key_of(scope)).rowcount
    for name in ("clear_lineage", "clear_origins", "clear_dreams", "clear_links"):
        db.named(name, {**key_of(scope), "scope": token(scope)})
    return deleted


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
    text = redacted(text).replace("\0", "?")
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
