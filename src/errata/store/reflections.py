"""Lessons in SQLite: the upsert and the indexed read."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from errata.memory.learn import Example, Reflection
from errata.protocols import Remembered, Scope
from errata.redact import redacted, redacted_data
from errata.store.statements import statements

Db = sqlite3.Connection
LESSON = "lesson"  # the digest of the row that a lesson without an example is found by


def remember(
    db: Db, scope: Scope, reflections: Sequence[Reflection], now: float
) -> list[Remembered]:
    """One upsert a reflection: counted in the database, with its sighting and its example."""
    return [_remember(db, scope, one, now) for one in reflections]


def _remember(db: Db, scope: Scope, reflection: Reflection, now: float) -> Remembered:
    values = {
        **key_of(scope),
        "kind": reflection.kind,
        "signature": reflection.signature.digest,
        "pattern": storable(reflection.signature.pattern),
        "error_type": storable(reflection.error_type),
        "text": storable(reflection.text),
        "tags": json.dumps([storable(tag) for tag in reflection.tags]),
        "state": reflection.state,
        "trust": reflection.trust,
        "importance": reflection.importance,
        "source": storable(reflection.source),
        "pinned": reflection.pinned,
        "now": now,
    }
    row = db.execute(statements()["upsert_reflection"], values).fetchall()[0]
    id, seen = int(row["id"]), int(row["seen"])
    sighting = {
        "reflection": id,
        "loop": reflection.loop,
        "text": storable(reflection.sighting),
        "source": values["source"],
        "now": now,
    }
    db.execute(statements()["insert_occurrence"], sighting)
    if reflection.example is not None:
        _add_example(db, scope, id, reflection, reflection.example, now)
    elif row["text"] == values["text"]:  # not where what was said before is trusted more
        _add_example(db, scope, id, reflection, Example(reflection.text, ""), now, LESSON)
    return Remembered(id, created=seen == 1, seen=seen)


def _add_example(
    db: Db,
    scope: Scope,
    id: int,
    reflection: Reflection,
    example: Example,
    now: float,
    digest: str = "",
) -> None:
    from errata.memory.words import (
        words,
    )  # costs 0.3 MB, which a loop without memory can do without

    digest, task = digest or example.digest, storable(example.task)
    values = {
        "reflection": id,
        "scope": token(scope),
        "task": task,
        "record": json.dumps(redacted_data(asdict(example))),
        "digest": digest,
        "state": reflection.state,
        "trust": reflection.trust,
        "now": now,
        "words": " ".join(words(f"{task}\n{storable(reflection.context)}")),
    }
    db.execute(statements()["insert_example"], values)
    if reflection.vector is not None:
        vector = {
            **key_of(scope),
            "reflection": id,
            "digest": digest,
            "space": reflection.space,
            "data": _blob(reflection.vector),
        }
        db.execute(statements()["insert_vector"], vector)


def top(db: Db, scope: Scope, limit: int) -> list[Mapping[str, Any]]:
    """The reflections most often seen."""
    rows = db.execute(statements()["top_reflections"], {**key_of(scope), "limit": limit}).fetchall()
    return [plain(row) for row in rows]


def count(db: Db, scope: Scope) -> int:
    """How many reflections there are."""
    return int(db.execute(statements()["count_reflections"], key_of(scope)).fetchone()["n"])


def clear(db: Db, scope: Scope) -> int:
    """Delete the reflections of the scope, with their examples and sightings."""
    return db.execute(statements()["clear_reflections"], key_of(scope)).rowcount


def token(scope: Scope) -> str:
    """The scope as one word of the full-text index."""
    name = f"{scope.tenant}\0{scope.project}"
    return "s" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def key_of(scope: Scope) -> dict[str, Any]:
    return {"tenant": scope.tenant, "project": scope.project}


def storable(text: str) -> str:
    """Text without secrets that UTF-8 can hold: a lone surrogate becomes a question mark."""
    text = redacted(text)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _blob(vector: Sequence[float]) -> bytes:
    import numpy as np

    return np.asarray(vector, dtype="<f4").tobytes()


def plain(row: sqlite3.Row) -> Mapping[str, Any]:
    return {**dict(row), "tags": json.loads(row["tags"])}
