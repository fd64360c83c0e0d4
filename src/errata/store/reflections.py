"""Lessons in SQLite: the upsert, the indexed read, and the two legs of a search."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from errata.memory.learn import Example, Reflection
from errata.protocols import ANY, Filter, Found, Remembered, Scope
from errata.redact import redacted, redacted_data
from errata.store.statements import statements

Db = sqlite3.Connection
# The words of a query that are counted, and the rarest of them, which are looked for: more than 12
# brought nothing.
COUNTED = 256
TERMS = 16
LESSON = "lesson"  # the digest of the row that a lesson without an example is found by


def remember(
    db: Db, scope: Scope, reflections: Sequence[Reflection], now: float
) -> list[Remembered]:
    """One upsert a reflection: counted in the database, with its sighting and its example."""
    return [_remember(db, scope, one, now) for one in reflections]


def _remember(db: Db, scope: Scope, reflection: Reflection, now: float) -> Remembered:
    values = {
        **_key(scope),
        "kind": reflection.kind,
        "signature": reflection.signature.digest,
        "pattern": storable(reflection.signature.pattern),
        "error_type": storable(reflection.error_type),
        "text": storable(reflection.text),
        "tags": json.dumps([storable(tag) for tag in reflection.tags]),
        "state": reflection.state,
        "trust": reflection.trust,
        "importance": reflection.importance,
        "now": now,
    }
    row = db.execute(statements()["upsert_reflection"], values).fetchall()[0]
    id, seen = int(row["id"]), int(row["seen"])
    sighting = {
        "reflection": id,
        "loop": reflection.loop,
        "text": storable(reflection.sighting),
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
        "now": now,
        "words": " ".join(words(f"{task}\n{storable(reflection.context)}")),
    }
    db.execute(statements()["insert_example"], values)
    if reflection.vector is not None:
        vector = {
            **_key(scope),
            "reflection": id,
            "digest": digest,
            "space": reflection.space,
            "data": _blob(reflection.vector),
        }
        db.execute(statements()["insert_vector"], vector)


def top(db: Db, scope: Scope, limit: int) -> list[Mapping[str, Any]]:
    """The reflections most often seen."""
    rows = db.execute(statements()["top_reflections"], {**_key(scope), "limit": limit}).fetchall()
    return [_plain(row) for row in rows]


def seen(db: Db, scope: Scope, signature: str) -> list[Mapping[str, Any]]:
    """The reflections of a pattern digest: one indexed read."""
    rows = db.execute(statements()["seen"], {**_key(scope), "signature": signature}).fetchall()
    return [_plain(row) for row in rows]


def count(db: Db, scope: Scope) -> int:
    """How many reflections there are."""
    return int(db.execute(statements()["count_reflections"], _key(scope)).fetchone()["n"])


def clear(db: Db, scope: Scope) -> int:
    """Delete the reflections of the scope, with their examples and sightings."""
    return db.execute(statements()["clear_reflections"], _key(scope)).rowcount


def search(
    db: Db,
    scope: Scope,
    text: str,
    space: str,
    vector: Sequence[float] | None,
    limit: int,
    only: Filter = ANY,
) -> list[Found]:
    """Both legs; what either brought, with every distance there is."""
    from errata.memory.words import weights

    counts, every = _counts(db, scope, text)
    by_text = _by_text(db, scope, counts, limit, only)
    by_vector = {}
    if vector is not None:
        by_vector = _by_vector(db, scope, space, vector, limit, only, by_text)
    weighed = weights(counts, every)
    found = []
    for id in by_text | by_vector:
        rows = db.execute(statements()["read_example"], {**_key(scope), "id": id}).fetchall()
        found += [_found(row, by_vector.get(id), by_text.get(id), weighed) for row in rows]
    return found


def token(scope: Scope) -> str:
    """The scope as one word of the full-text index."""
    name = f"{scope.tenant}\0{scope.project}"
    return "s" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _counts(db: Db, scope: Scope, text: str) -> tuple[dict[str, int], int]:
    """Term -> how many examples of this scope have it, the rarest first; and how many there are."""
    from errata.memory.words import words

    wanted = list(dict.fromkeys(words(storable(text))))[:COUNTED]
    within = f"scope : {token(scope)}"
    values = {"scope": f'{within} AND words : "', "terms": json.dumps(wanted)}
    rows = db.execute(statements()["count_terms"], values).fetchall() if wanted else []
    every = db.execute(statements()["count_recallable"], {"scope": within}).fetchall()[0]["n"]
    return {row["term"]: row["n"] for row in sorted(rows, key=lambda row: int(row["n"]))}, every


def _by_text(
    db: Db, scope: Scope, counts: Mapping[str, int], limit: int, only: Filter
) -> dict[int, float]:
    """Example -> BM25 as a share of the best match, 0..1; of a term that is nowhere none has it."""
    rarest = [f'"{term}"' for term, count in counts.items() if count][:TERMS]
    if not rarest:
        return {}
    query = f"scope : {token(scope)} AND words : ({' OR '.join(rarest)})"
    values = {"query": query, "limit": limit, **_filter(only)}
    rows = db.execute(statements()["match_examples"], values).fetchall()
    best = min((row["score"] for row in rows), default=0.0)
    return {row["id"]: row["score"] / best if best else 0.0 for row in rows}


def _by_vector(
    db: Db,
    scope: Scope,
    space: str,
    vector: Sequence[float],
    limit: int,
    only: Filter,
    also: Collection[int],
) -> dict[int, float]:
    """Example -> cosine, by an exact scan of the scope: of the nearest, and of those in `also`."""
    import numpy as np

    values = {**_key(scope), "space": space, **_filter(only)}
    rows = db.execute(statements()["scope_vectors"], values).fetchall()
    query = np.asarray(vector, dtype="<f4")
    rows = [row for row in rows if len(row["data"]) == query.nbytes]
    if not rows:
        return {}
    matrix = np.frombuffer(b"".join(row["data"] for row in rows), dtype="<f4")
    scores = matrix.reshape(len(rows), -1) @ query
    order = [int(i) for i in np.argsort(-scores, kind="stable")[:limit]]
    order += [i for i, row in enumerate(rows) if row["example"] in also]
    return {int(rows[i]["example"]): float(scores[i]) for i in order}


def _filter(only: Filter) -> dict[str, Any]:
    wanted = {storable(tag) for tag in only.tags}
    return {
        "tags": json.dumps(sorted(wanted)),
        "least": len(wanted) if only.match == "all" else 1,
        "kind": only.kind,
        "error_type": storable(only.error_type),
        "importance": only.importance,
        "since": only.since,
    }


def _key(scope: Scope) -> dict[str, Any]:
    return {"tenant": scope.tenant, "project": scope.project}


def storable(text: str) -> str:
    """Text without secrets that UTF-8 can hold: a lone surrogate becomes a question mark."""
    text = redacted(text)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _blob(vector: Sequence[float]) -> bytes:
    import numpy as np

    return np.asarray(vector, dtype="<f4").tobytes()


def _plain(row: sqlite3.Row) -> Mapping[str, Any]:
    plain = dict(row)
    plain["tags"] = json.loads(plain["tags"])
    return plain


def _found(
    row: sqlite3.Row, cosine: float | None, keyword: float | None, weighed: Mapping[str, float]
) -> Found:
    from errata.memory.words import coverage

    return Found(
        row["id"],
        row["reflection"],
        Example(**json.loads(row["record"])),
        row["kind"],
        row["state"] == "verified",
        row["seen"],
        row["importance"],
        row["at"],
        cosine,
        keyword,
        coverage(weighed, frozenset(row["words"].split(" "))),
        error_type=row["error_type"],
        lesson=row["text"],
        tags=tuple(json.loads(row["tags"])),
    )
