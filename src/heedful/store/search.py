"""The two legs of a search in SQL: by full text, and by vector."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from heedful.memory.learn import Example
from heedful.protocols import ANY, Filter, Found, Scope
from heedful.store import texts
from heedful.store.database import Db, Row
from heedful.store.reflections import key_of, short, storable, token

if TYPE_CHECKING:
    from heedful.store.vectors import Rows

# Candidates beyond those that are wanted: codes tell the nearest, not quite in their order. Among
# 100,000 vectors 99.5 % of the best 50 are among the first 50, 99.97 % among 52, all among 54.
SPARE = 6


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
    from heedful.memory.words import coverage, weights, words

    corpus = db.named("read_corpus", {"scope": token(scope)}).fetchone()
    if corpus is None:
        return []
    one = Sought(db, {**key_of(scope), "space": space}, corpus, limit, only)
    counts = texts.counts(db, corpus, words(storable(text)))
    keyword = by_text(one, counts)
    cosine = {} if vector is None else by_vector(one, vector, keyword)
    weighed, found = weights(counts, corpus["texts"]), []
    for id in keyword | cosine:
        share = coverage(weighed, frozenset(one.rows[id]["words"].split(" ")))
        found.append(_found(one.rows[id], cosine.get(id), keyword.get(id), share))
    return found


class Sought:
    """What one search looks for in one transaction, and the rows that it has read."""

    def __init__(self, db: Db, key: dict[str, Any], corpus: Row, limit: int, only: Filter) -> None:
        self.db: Db = db
        self.key: dict[str, Any] = key
        self.corpus: Row = corpus
        self.limit: int = limit
        self.all: bool = only == ANY
        self.values: dict[str, Any] = {**key, **_filter(only)}
        self.rows: dict[int, Row] = {}

    def read(self, ids: Iterable[int]) -> list[int]:
        """Those that exist, may be recalled and pass the filter, as the database says."""
        ids = list(ids)
        values = {**self.values, "ids": json.dumps([id for id in ids if id not in self.rows])}
        rows = self.db.named("read_examples", values)
        self.rows.update((row["id"], row) for row in rows)
        return [id for id in ids if id in self.rows and self.rows[id]["passes"]]

    @cached_property
    def filtered(self) -> set[int]:
        """All that may be recalled and pass the filter."""
        rows = self.db.named("filtered", self.values)
        return {id for (id,) in rows}

    def cosines(self, ids: Iterable[int], query: Rows) -> dict[int, float]:
        """The exact ones, of those that have a vector of that length."""
        import numpy as np

        data = {id: self.rows[id]["data"] or b"" for id in ids}
        data = {id: one for id, one in data.items() if len(one) == query.nbytes}
        matrix = np.frombuffer(b"".join(data.values()), "<f4").reshape(len(data), len(query))
        return dict(zip(data, (matrix @ query).tolist(), strict=True))


def by_text(one: Sought, counts: Mapping[str, int]) -> dict[int, float]:
    """Example -> BM25 as a share of the best match, 0..1."""
    many = 2 * one.limit
    ids = texts.matching(one.db, one.corpus, counts, many)
    found = one.read(ids)
    if len(found) < one.limit and len(ids) == many:
        found = one.read(texts.matching(one.db, one.corpus, counts, many, one.filtered))
    if not found:
        return {}
    every, mean = one.corpus["texts"], one.corpus["length"] / one.corpus["texts"]
    rarities = {term: texts.rarity(count, every) for term, count in counts.items()}
    scores = {id: texts.bm25(rarities, one.rows[id]["words"], mean) for id in found}
    best = sorted(found, key=lambda id: (-scores[id], id))[: one.limit]
    return {id: scores[id] / scores[best[0]] for id in best}


def by_vector(one: Sought, vector: Sequence[float], also: Iterable[int] = ()) -> dict[int, float]:
    """Example -> cosine: of the nearest, the nearest first; and of those in `also`."""
    import numpy as np

    query = np.asarray(vector, "<f4")
    found = (by_codes if one.db.dialect == "sqlite" else by_database)(one, query)
    cosine = one.cosines(found, query)
    best = sorted(cosine, key=lambda id: (-cosine[id], id))[: one.limit]
    return {id: cosine[id] for id in best} | one.cosines(also, query)


def by_codes(one: Sought, query: Rows) -> list[int]:
    """The nearest, and some more, as the codes in RAM tell them."""
    import numpy as np

    from heedful.store.vectors import Vectors

    codes = one.db.kept(Vectors).codes(one.db, one.key, one.corpus, len(query))
    many = one.limit + SPARE
    ids = codes.nearest(query, many).tolist()
    found = one.read(ids)
    if gone := [id for id in ids if id not in one.rows]:
        codes.drop(np.array(gone))
    if len(found) < one.limit and len(ids) == many:
        among = np.array(list(one.filtered), np.int64)
        found = one.read(codes.nearest(query, many, among).tolist())
        if one.all:
            codes.keep(among)
    return found


def by_database(one: Sought, query: Rows) -> list[int]:
    """The nearest, and some more, as the database tells them, which looks at each."""
    values = {"near": short(query.tobytes()), "width": len(query), "limit": one.limit + SPARE}
    if values["near"] is None:
        return []
    name = "nearest" if one.all else "nearest_of"
    return one.read(id for (id,) in one.db.named(name, {**one.values, **values}))


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


def _found(row: Row, cosine: float | None, keyword: float | None, coverage: float) -> Found:
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
        coverage,
        error_type=row["error_type"],
        lesson=row["text"],
        tags=tuple(json.loads(row["tags"])),
        signature=row["signature"],
        useful=row["useful"],
    )
