"""The two legs of a search in SQLite: by full text, and by vector."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from errata.memory.learn import Example
from errata.protocols import ANY, Filter, Found, Scope
from errata.store.reflections import key_of, storable, token
from errata.store.statements import statements

Db = sqlite3.Connection
# The words of a query that are counted, and the rarest of them, which are looked for: more than 12
# brought nothing.
COUNTED = 256
TERMS = 16


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
        rows = db.execute(statements()["read_example"], {**key_of(scope), "id": id}).fetchall()
        found += [_found(row, by_vector.get(id), by_text.get(id), weighed) for row in rows]
    return found


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

    values = {**key_of(scope), "space": space, **_filter(only)}
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
        signature=row["signature"],
        useful=row["useful"],
    )
