"""Search for examples by words (BM25) and by vectors, and storage of the vectors.

Both searches stay within the scope. With SQLite, a connection keeps the vectors of a
scope in memory, and a search compares all of them. PostgreSQL compares the vectors
itself.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import nlargest
from itertools import accumulate
from math import log
from typing import TYPE_CHECKING, NamedTuple

from heedful.lessons.finding_rules import (
    MAX_COMPARED_SIGHTINGS,
    cases_of_rule,
    constant_rule,
    with_rule,
)
from heedful.lessons.lesson import (
    ANY_LESSON,
    Cause,
    Example,
    Filter,
    LessonRun,
    Match,
    Scope,
    clip,
)
from heedful.lessons.origin import standing_of
from heedful.lessons.scope import TOLD_STATES
from heedful.lessons.words import MIN_SHARED_WORDS, coverage, overlap, weights, words
from heedful.store.connection import (
    MAX_READ_ROWS,
    MAX_ROWS,
    Db,
    Row,
    from_row,
    key_of,
    resumable,
    storable,
)
from heedful.validation import Document, Fields

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]
    Rows = NDArray[np.float32]

# The words of a query that are counted, and how many of the rarest are searched. More
# than 12 did not improve the results.
MAX_COUNTED_WORDS = 256
MAX_SEARCHED_WORDS = 16
# A search looks at `BASE_MATCHES` matches, plus one for every `TEXTS_PER_MATCH` texts.
# With half as many, the first five results of 391 questions to 23,000 texts contain 1 %
# less of the evidence.
BASE_MATCHES = 2_000
TEXTS_PER_MATCH = 20
# The usual parameters of BM25.
BM25_K1 = 1.2
BM25_B = 0.75


def count_texts(db: Db, corpus: Row, words: Sequence[str]) -> dict[str, int]:
    """Return how many searchable texts of a scope contain each word, rarest first.

    `corpus` is the row about these texts: their `mark` in the full-text index, their
    number and their length. Counts only the first `MAX_COUNTED_WORDS` of `words`.
    """
    terms = list(dict.fromkeys(words))[:MAX_COUNTED_WORDS]
    values = {"mark": corpus["mark"], "terms": json.dumps(terms)}
    rows = db.run("count_terms", values).fetchall()
    rows.sort(key=lambda row: int(row["n"]))
    return {row["term"]: row["n"] for row in rows}


def matching(
    db: Db,
    corpus: Row,
    counts: Mapping[str, int],
    max_ids: int,
    among: set[int] | None = None,
) -> list[int]:
    """Return the ids of the `max_ids` texts with the most weight of rare words.

    The best comes first. Searches only for the rarest words: as many as have about
    `BASE_MATCHES` matches in total. If the rarest word alone has more matches, only its
    newest matches count. With `among`, only texts with these ids count, and the number
    of their matches is not limited.

    `corpus` is the row about the scope's texts (its index `mark`, their number), and
    `counts` says how many of them contain each word, rarest first.
    """
    limit = corpus["texts"]
    if among is None:
        limit = BASE_MATCHES + corpus["texts"] // TEXTS_PER_MATCH

    # How many of the rarest words have together no more matches than the limit?
    rare_words = [word for word, count in counts.items() if count]
    rare_words = rare_words[:MAX_SEARCHED_WORDS]
    totals = accumulate(counts[word] for word in rare_words)
    affordable = len([total for total in totals if total <= limit])
    terms = rare_words[: max(1, affordable)]
    if len(terms) == 1 and among is None:
        limit = max_ids  # all its matches have the same weight, so the newest are best

    scores: dict[int, float] = {}
    values = {"mark": corpus["mark"], "terms": json.dumps(terms), "limit": limit}
    for row in db.run("match_terms", values):
        weight = rarity(counts[row["term"]], corpus["texts"])
        ids = json.loads(row["ids"])
        if among is not None:
            ids = [id for id in ids if id in among]

        # No id occurs twice in a row, so the first row needs no sums.
        if not scores:
            scores = dict.fromkeys(ids, weight)
        else:
            for id in ids:
                scores[id] = scores.get(id, 0.0) + weight

    return nlargest(max_ids, scores, key=scores.__getitem__)


def rarity(count: int, texts: int) -> float:
    """Return the inverse document frequency of a word in `count` of `texts` texts.

    It is above 0, and higher for a rarer word.
    """
    return log(1 + (texts - count + 0.5) / (count + 0.5))


def bm25(rarities: Mapping[str, float], text_words: str, mean_length: float) -> float:
    """Return the BM25 score of a text for the words of a query.

    Okapi BM25 (Robertson & Zaragoza, "The Probabilistic Relevance Framework", 2009).
    `rarities` has the `rarity` of each word of the query. `text_words` are the
    `searched_words` of the text, and `mean_length` is the mean length of all texts in
    characters.
    """
    occurrences: defaultdict[str, int] = defaultdict(int)
    for word in text_words.split(" "):
        if word in rarities:
            occurrences[word] += 1

    # Two blanks end the words that count towards the length.
    length = len(text_words.partition("  ")[0])
    damping = BM25_K1 * (1 - BM25_B + BM25_B * length / mean_length)
    return sum(
        rarities[word] * n * (BM25_K1 + 1) / (n + damping)
        for word, n in occurrences.items()
    )


def placed(db: Db, space: str, vector: Sequence[float]) -> Document:
    """Return the columns with which a vector is stored.

    `space` names the embedding model that made it. `data` are its numbers as bytes:
    little-endian 32-bit floats. `near` is the same as text for pgvector, None on
    SQLite.
    """
    import numpy as np

    data = np.asarray(vector, dtype="<f4").tobytes()
    near = short(data) if db.dialect == "postgres" else None
    return {"space": space, "data": data, "near": near}


def short(data: bytes) -> str:
    """Return a vector as text for the type halfvec of pgvector: "[0.1234,-1.5]".

    `data` are its numbers as little-endian 32-bit floats. Each gets four digits,
    because a halfvec stores only 11 bits of it.
    """
    import numpy as np

    numbers = [f"{number:.4g}" for number in np.frombuffer(data, "<f4").tolist()]
    return f"[{','.join(numbers)}]"


# The number of vectors that are read together: they fit into the cache of a core.
VECTOR_BATCH_ROWS = 256


class Vectors:
    """A connection's cache of the vectors of the scopes that it searched last.

    It has at most `most` bytes, by default for some 350,000 vectors of 384 dimensions,
    but the vectors of the current search always stay.
    """

    def __init__(self, most: int = 512 * 2**20) -> None:
        self._most = most
        self._tables: dict[tuple[str, str, int], VectorTable] = {}

    def table(self, db: Db, key: Document, corpus: Row, width: int) -> VectorTable:
        """Return the table of a scope's vectors, brought up to date from the database.

        `key` has the scope and the vector space, `corpus` is the row about the scope's
        texts, and `width` is the number of numbers in a vector. Tables that were not
        used for longest are dropped once all take too much memory.
        """
        name = corpus["scope"], key["space"], width
        table = self._tables.pop(name, None)
        # Deleted vectors stay until a search finds them, so a table with too many is
        # read again.
        max_rows = 2 * corpus["texts"] + VECTOR_BATCH_ROWS
        if table is None or table.count > max_rows:
            table = VectorTable(width, corpus["texts"])
        table.follow(db, key, corpus["changed"])

        # This table is now the last one, so the first is the least recently used.
        self._tables[name] = table
        while self.bytes > self._most and len(self._tables) > 1:
            del self._tables[next(iter(self._tables))]
        return table

    @property
    def bytes(self) -> int:
        """The memory that the vectors of all scopes take, in bytes."""
        return sum(table.bytes for table in self._tables.values())


class VectorTable:
    """The vectors of a scope, each with an id, in no order.

    A vector has `width` numbers. The table has `room` rows; the first `count` are in
    use. It grows if necessary.
    """

    def __init__(self, width: int, room: int) -> None:
        import numpy as np

        self._followed: int = 0  # the version of the scope's vectors that was read
        self._newest: int = 0  # the highest id that was ever in the table
        self.count: int = 0
        self._ids = np.empty(room, np.int64)
        self._vectors = np.empty((room, width), np.float32)

    @property
    def bytes(self) -> int:
        """The allocated memory, in bytes."""
        return self._ids.nbytes + self._vectors.nbytes

    def follow(self, db: Db, key: Document, changed: int) -> None:
        """Read and add the vectors that became searchable since the last call.

        `key` has their scope and vector space. `changed` is the version of the scope's
        vectors now: if it has not changed, nothing is read. Vectors of another length
        than those of the table are skipped.
        """
        import numpy as np

        if changed == self._followed:
            return

        vector_bytes = 4 * self._vectors.shape[1]
        rows = db.run("new_vectors", {**key, "since": self._followed})

        batch = rows.fetchmany(VECTOR_BATCH_ROWS)
        while batch:
            vectors = {id: data for id, data in batch if len(data) == vector_bytes}
            if vectors:
                ids = np.array(list(vectors), np.int64)
                numbers = np.frombuffer(b"".join(vectors.values()), "<f4")
                self._put(ids, numbers.reshape(len(vectors), -1))
            batch = rows.fetchmany(VECTOR_BATCH_ROWS)

        self._followed = changed

    def nearest(self, query: Rows, max_ids: int, allowed_ids: Ids | None = None) -> Ids:
        """Return the ids of the `max_ids` vectors nearest to `query`, nearest first.

        The nearest has the greatest scalar product with the query. With `allowed_ids`,
        only vectors with these ids are compared.
        """
        import numpy as np

        ids = self.ids
        scores = self._vectors[: self.count] @ query
        if allowed_ids is not None:
            allowed = np.isin(ids, allowed_ids)
            scores = scores[allowed]
            ids = ids[allowed]

        # Only the best are sorted, as sorting all would be slow. A partition finds the
        # score of the last of them.
        if max_ids < len(ids):
            lowest_score = np.partition(scores, -max_ids)[-max_ids]
            best = np.flatnonzero(scores >= lowest_score)
            scores = scores[best]
            ids = ids[best]

        return ids[np.lexsort((ids, -scores))[:max_ids]]

    @property
    def ids(self) -> Ids:
        """The ids of all vectors, in the order of the rows."""
        return self._ids[: self.count]

    def drop(self, deleted_ids: Ids) -> None:
        """Remove the rows with these ids, if any; rows from the end fill the gaps."""
        import numpy as np

        is_gone = np.isin(self.ids, deleted_ids)
        self.count -= int(is_gone.sum())

        # Behind the new end, there are as many rows to keep as there are gaps before
        # it.
        holes = np.flatnonzero(is_gone[: self.count])
        movable = self.count + np.flatnonzero(~is_gone[self.count :])
        self._ids[holes] = self._ids[movable]
        self._vectors[holes] = self._vectors[movable]

    def _put(self, ids: Ids, vectors: Rows) -> None:
        """Append vectors; those with the same ids are replaced.

        `ids` are those of the rows of `vectors`. The table grows if it is full.
        """
        # Ids rise: only one up to the newest can be in the table already.
        if ids.min() <= self._newest:
            self.drop(ids)
        self._newest = max(self._newest, int(ids.max()))

        end = self.count + len(ids)
        if end > len(self._ids):
            # An eighth more than needed, so that not every call has to grow the table.
            room = end + end // 8
            self._ids.resize(room, refcheck=False)
            self._vectors.resize((room, self._vectors.shape[1]), refcheck=False)

        self._ids[self.count : end] = ids
        self._vectors[self.count : end] = vectors
        self.count = end


# How many more vectors than `limit` PostgreSQL returns, because a halfvec orders them
# only roughly.
SPARE_VECTORS = 6


def search(
    db: Db,
    scope: Scope,
    text: str,
    space: str,
    vector: Sequence[float] | None,
    limit: int,
    only: Filter | None = None,
    waiting: bool = False,
    memory_key: str = "",
    every: bool = False,
    min_shared: int = MIN_SHARED_WORDS,
) -> list[Match]:
    """Return the stored examples most like `text`, found by words and by vector.

    There are at most `limit` by words and `limit` by vector. `space` names the
    embedding model of `vector`, and `only` filters the examples. A match has a
    `keyword` score if the search by words found it, and a `cosine` if its vector is in
    `space`. With `waiting`, examples in quarantine are returned, too. With `every`, all
    examples that pass the filter are added, whatever they say. With fewer than
    `min_shared` words in common, an example has no `coverage`. `memory_key` names the
    function that asks: if its loops broke rules, its own examples are marked `own`.
    """
    # The row about all searchable texts of the scope; without any, there is none.
    corpus = db.one("read_corpus", scope)
    if corpus is None:
        return []

    parameters = SearchParameters(
        db=db,
        key={**key_of(scope), "space": space, "memory_key": memory_key},
        corpus=corpus,
        limit=limit,
        only=only or ANY_LESSON,
        waiting=waiting,
    )

    counts = count_texts(db, corpus, words(storable(text)))
    keyword_scores = by_text(parameters, counts)

    cosines: dict[int, float] = {}
    if vector is not None:
        cosines = by_vector(
            parameters, vector, [*keyword_scores, *parameters.waiting_ids]
        )

    ids = [*(keyword_scores | cosines)]
    if every:
        ids += parameters.read(parameters.filtered_ids)
        ids = [*dict.fromkeys([*ids, *parameters.waiting_ids])]

    word_weights = weights(counts, corpus["texts"])
    task_words = frozenset(words(text))
    return [
        _match_of(
            parameters.rows[id],
            word_weights,
            task_words,
            cosine=cosines.get(id),
            keyword=keyword_scores.get(id),
            min_shared=min_shared,
        )
        for id in ids
    ]


def hidden(
    db: Db,
    scope: Scope,
    text: str,
    space: str,
    vector: Sequence[float] | None,
    reviews: bool = True,
) -> list[Match]:
    """Return the newest examples that no other search finds, and how well each fits.

    First come those that wait in quarantine, if the caller `reviews` it; then those of
    retired lessons, whose state is given as "retired". How well they fit `text` is
    measured by words, and by `vector` if their vectors are of the model `space`.
    """
    corpus = db.one("read_corpus", scope)
    if corpus is None:
        return []

    parameters = SearchParameters(
        db=db,
        key={**key_of(scope), "space": space, "memory_key": ""},
        corpus=corpus,
        limit=0,
        only=ANY_LESSON,
        waiting=reviews,
    )
    waiting_ids = parameters.waiting_ids  # this reads their rows

    # From now on, `read` finds the examples of retired lessons, too.
    parameters.values["waiting"] = "retired"
    retired_ids = parameters.read(
        row["id"] for row in db.all("retired", scope, most=MAX_READ_ROWS)
    )
    if not parameters.rows:
        return []

    cosines: dict[int, float] = {}
    if vector is not None:
        import numpy as np

        cosines = parameters.cosines(parameters.rows, np.asarray(vector, "<f4"))

    counts = count_texts(db, corpus, words(storable(text)))
    word_weights = weights(counts, corpus["texts"])
    task_words = frozenset(words(text))
    matches = {
        id: _match_of(row, word_weights, task_words, cosine=cosines.get(id))
        for id, row in parameters.rows.items()
    }
    waiting = [matches[id] for id in waiting_ids]
    retired = [replace(matches[id], state="retired") for id in retired_ids]
    return [*waiting, *retired]


def _match_of(
    row: Row,
    word_weights: Mapping[str, float],
    task_words: frozenset[str],
    *,
    cosine: float | None,
    keyword: float | None = None,
    min_shared: int = MIN_SHARED_WORDS,
) -> Match:
    """Return the example in `row` with how well it fits a query.

    `word_weights` are the weights of the query's words by their rarity, `task_words`
    all its words. `cosine` and `keyword` are the scores of the searches by vector and
    by words, None if it was not found so. `overlap` is measured only without a cosine.
    """
    example = example_of(row)
    likeness = 0.0
    if cosine is None:
        likeness = overlap(task_words, frozenset(words(example.task)))
    text_words = frozenset(row["words"].split(" "))
    covered = coverage(word_weights, text_words)
    # One word in common may be of the language, or of the domain of all texts.
    if len(task_words & text_words) < min(min_shared, len(task_words)):
        covered = 0.0
    return from_row(
        Match,
        row,
        example=example,
        lesson=row["text"],
        run=LessonRun.read(row["run"]),
        cause=None,
        rule_keys=(),
        worked=None,
        cosine=cosine,
        keyword=keyword,
        coverage=covered,
        overlap=likeness,
    )


def example_of(row: Row) -> Example:
    """Return the example that is stored in the column `record`."""
    return Example(**json.loads(row["record"]))


class SearchParameters:
    """The parameters of one search, and the example rows that it has read.

    `values` are the parameters of SQL statements. `all` is True if every example passes
    the filter.
    """

    def __init__(
        self,
        db: Db,
        key: Document,
        corpus: Row,
        limit: int,
        only: Filter,
        waiting: bool,
    ) -> None:
        """Prepare a search of at most `limit` examples that pass the filter `only`.

        `key` has the scope and the vector space, and `corpus` is the row about the
        scope's texts. With `waiting`, examples in quarantine are found, too.
        """
        self.db = db
        self.key = key
        self.corpus = corpus
        self.limit = limit
        self.all: bool = only == ANY_LESSON

        tags = {storable(tag) for tag in only.tags}
        self.values: Document = {
            **key,
            "tags": json.dumps(sorted(tags)),
            # So many of the tags a lesson must have.
            "least": len(tags) if only.match == "all" else 1,
            "kind": json.dumps(only.kind),
            "error_type": storable(only.error_type),
            "importance": only.importance,
            "since": only.since,
            "waiting": "quarantined" if waiting else "",
        }

        self.rows: dict[int, Row] = {}

    def read(self, ids: Iterable[int]) -> list[int]:
        """Read examples into `rows`; return the ids of those that may be recalled.

        They pass the filter of the search. What was read before is not read again.
        """
        ids = list(ids)
        unread = json.dumps([id for id in ids if id not in self.rows])
        for row in self.db.run("read_examples", {**self.values, "ids": unread}):
            self.rows[row["id"]] = row
        return [id for id in ids if id in self.rows and self.rows[id]["passes"]]

    @cached_property
    def filtered_ids(self) -> set[int]:
        """The ids of all examples that may be recalled and pass the filter."""
        return {row["id"] for row in self.db.run("filtered", self.values)}

    @cached_property
    def waiting_ids(self) -> list[int]:
        """The ids of the newest examples in quarantine that pass the filter.

        They are empty unless the search wants those in quarantine, too. Their rows are
        read into `rows`.
        """
        if not self.values["waiting"]:
            return []

        values = {
            "scope": self.corpus["scope"],
            "most": MAX_READ_ROWS,
            "before": MAX_ROWS,
        }
        return self.read(row["id"] for row in self.db.run("waiting_ids", values))

    def cosines(self, ids: Iterable[int], query: Rows) -> dict[int, float]:
        """Return the cosines of examples with a query, by the ids of the examples.

        Their rows must have been read. Those without a vector of the length of `query`
        are left out. Vectors have length 1, so a cosine is a scalar product.
        """
        import numpy as np

        vectors: dict[int, bytes] = {}
        for id in ids:
            data = self.rows[id]["vector"]
            if data is not None and len(data) == query.nbytes:
                vectors[id] = data

        numbers = np.frombuffer(b"".join(vectors.values()), "<f4")
        products = numbers.reshape(len(vectors), len(query)) @ query
        return dict(zip(vectors, products.tolist(), strict=True))


def by_text(
    parameters: SearchParameters, counts: Mapping[str, int]
) -> dict[int, float]:
    """Search by words: return the scores of the best examples by id, best first.

    A score is that of BM25, divided by the best one: above 0, at most 1. `counts` says
    how many texts contain each word of the query.
    """
    corpus = parameters.corpus
    limit = parameters.limit
    max_ids = 2 * limit
    ids = matching(parameters.db, corpus, counts, max_ids)
    matches = parameters.read(ids)

    # There were more matches, but the filter removed too many of these: search again,
    # only among the examples that pass it.
    if len(matches) < limit and len(ids) == max_ids:
        ids = matching(
            parameters.db,
            corpus=corpus,
            counts=counts,
            max_ids=max_ids,
            among=parameters.filtered_ids,
        )
        matches = parameters.read(ids)

    waiting_ids = parameters.waiting_ids
    if not matches and not waiting_ids:
        return {}

    # The corpus does not count the examples in quarantine.
    texts = {id: parameters.rows[id]["words"] for id in [*matches, *waiting_ids]}
    text_count = corpus["texts"] + len(waiting_ids)
    total_length = corpus["length"] + sum(len(texts[id]) for id in waiting_ids)
    mean_length = max(1, total_length) / text_count
    rarities = {word: rarity(count, text_count) for word, count in counts.items()}
    scores = {id: bm25(rarities, text, mean_length) for id, text in texts.items()}

    matching_ids = [id for id in scores if scores[id] > 0]
    best_ids = sorted(matching_ids, key=lambda id: (-scores[id], id))[:limit]
    return {id: scores[id] / scores[best_ids[0]] for id in best_ids}


def by_vector(
    parameters: SearchParameters, vector: Sequence[float], also_ids: Iterable[int] = ()
) -> dict[int, float]:
    """Search by vector: return cosines by example id, those of the nearest first.

    Then follow the cosines of the examples `also_ids`, whose rows were read before.
    """
    import numpy as np

    query = np.asarray(vector, "<f4")
    if parameters.db.dialect == "sqlite":
        found_ids = by_table(parameters, query)
    else:
        found_ids = by_database(parameters, query)

    cosines = parameters.cosines(found_ids, query)
    nearest_ids = sorted(cosines, key=lambda id: (-cosines[id], id))[: parameters.limit]
    return {id: cosines[id] for id in nearest_ids} | parameters.cosines(also_ids, query)


def by_table(parameters: SearchParameters, query: Rows) -> list[int]:
    """Return the ids of the examples nearest to `query`, by the vectors in memory.

    Vectors of deleted examples that the search meets leave the memory.
    """
    import numpy as np

    cache = parameters.db.local(Vectors)
    table = cache.table(parameters.db, parameters.key, parameters.corpus, len(query))

    limit = parameters.limit
    ids = table.nearest(query, limit).tolist()
    matching_ids = parameters.read(ids)

    deleted_ids = [id for id in ids if id not in parameters.rows]
    if deleted_ids:
        table.drop(np.array(deleted_ids))

    if len(matching_ids) >= limit or len(ids) < limit:
        return matching_ids

    # Too many were deleted or do not pass the filter: search only among those that do.
    # If all examples pass it, the ids of the others are of deleted ones.
    allowed_ids = np.array(list(parameters.filtered_ids), np.int64)
    matching_ids = parameters.read(table.nearest(query, limit, allowed_ids).tolist())
    if parameters.all:
        table.drop(np.setdiff1d(table.ids, allowed_ids))
    return matching_ids


def by_database(parameters: SearchParameters, query: Rows) -> list[int]:
    """Return the ids of the examples nearest to `query`, found by PostgreSQL.

    They are some more than the limit, because it compares rounded numbers.
    """
    # "" means all examples of the scope.
    among = "" if parameters.all else json.dumps(list(parameters.filtered_ids))
    values = {
        **parameters.key,
        "near": short(query.tobytes()),
        "width": len(query),
        "limit": parameters.limit + SPARE_VECTORS,
        "among": among,
    }
    return parameters.read(
        row["example"] for row in parameters.db.run("nearest", values)
    )


# The characters of the example of a rule: two of them fit into the budget of a prompt.
MAX_RULE_EXAMPLE_CHARS = 600


def memory_keys(db: Db, scope: Scope) -> list[str]:
    """Return the memory keys of a scope; a key names the function that loops serve.

    They are those of its loops, of the rules that loops broke, and of its examples.
    """
    return [row["memory_key"] for row in db.all("memory_keys", scope)]


def keys_of_rule(db: Db, scope: Scope, lesson: Fields) -> list[str]:
    """Return the memory keys whose loops broke the rule of a lesson."""
    rule = {**key_of(scope), "kind": lesson["kind"], "signature": lesson["signature"]}
    rows = db.select("distinct memory_key", "cause", rule)
    return sorted(row["memory_key"] for row in rows)


def by_cause(
    db: Db, scope: Scope, memory_key: str, task: str, check_ids: Sequence[str]
) -> list[Match]:
    """Return the rules that loops of this memory key broke, worst first.

    A memory key names a function. After its rules come those that loops of other keys
    broke under one of the checks `check_ids`, counted over all these keys. There are at
    most 50 rows of a rule and a key.

    Each rule is a match without a score, but with a `cause`: how many loops broke it
    and mended it. Unless a person has written its text, this says nothing particular of
    any task but this `task`, and for a rule of other keys of none. Its example is
    `worked` if it is whole, short and not of another key.
    """
    matches = []
    rows = db.all(
        "by_cause", scope, memory_key=memory_key, check_ids=json.dumps(check_ids)
    )
    rows_by_rule: defaultdict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        rows_by_rule[row["rule"]][row["memory_key"]] = row
    # Of each rule its first row stays: that of the key, or the worst of the others.
    first_rows = {row["rule"]: row for row in reversed(rows)}
    rows = [row for row in rows if row is first_rows[row["rule"]]]
    sightings = _rule_sightings(db, scope, memory_key, rows)
    texts = _rule_texts(rows, sightings, clip(task))
    # Rules of other keys get texts without the particulars of this task.
    texts |= _rule_texts(
        [row for row in rows if row["memory_key"] != memory_key], sightings, task=""
    )
    for row in rows:
        example = example_of(row)
        chars = len(example.task) + len(example.rejected) + len(example.accepted)

        worked_example = None
        is_whole = example.accepted and example.rejected
        is_own = row["example_key"] in ("", memory_key)
        if is_whole and is_own and chars <= MAX_RULE_EXAMPLE_CHARS:
            worked_example = example

        rows_by_key = rows_by_rule[row["rule"]]
        if memory_key in rows_by_key:  # its own loops say enough
            rows_by_key = {memory_key: row}
        cause = replace(
            from_row(Cause, row, varies=texts[row["rule"]].varies),
            loops=sum(row["loops"] for row in rows_by_key.values()),
            mended=sum(row["mended"] for row in rows_by_key.values()),
        )

        match = from_row(
            Match,
            row,
            run=LessonRun.read(row["run"]),
            cause=cause,
            rule_keys=tuple(sorted(rows_by_key)),
            lesson=texts[row["rule"]].text,
            author=texts[row["rule"]].author,
            example=Example(example.task, ""),
            worked=worked_example,
            cosine=None,
            keyword=None,
            coverage=0.0,
            overlap=0.0,
            own=False,
        )
        matches.append(match)
    return matches


def with_told_words(db: Db, scope: Scope, lessons: Sequence[Fields]) -> list[Fields]:
    """Return lessons with the texts that a prompt about a new task would have.

    The text of a rule, that is a lesson about a failed check, loses the particulars of
    the tasks from which it was learnt. Other texts stay as they are, and so does one
    that a person has written or that is empty.
    """
    rules = {
        lesson["id"]: {**lesson, "lesson_id": lesson["id"], "rule": lesson["id"]}
        for lesson in lessons
        if lesson["kind"] == "check" and lesson["state"] in TOLD_STATES
    }
    # Rules of one check that read the same without particulars are compared.
    related_rows = list[Fields]()
    for check in {rule["error_type"] for rule in rules.values()}:
        key = {**key_of(scope), "kind": "check", "error_type": check}
        related_rows += db.select(
            "id as lesson_id", "lesson", key, "order by last_seen desc, id limit 50"
        )
    sightings = _rule_sightings(db, scope, "", [*rules.values(), *related_rows])
    rows = [{**rule, "author": None} for rule in rules.values()]
    texts = _rule_texts(rows, sightings, task="")
    shown_lessons = []
    for lesson in lessons:
        rule = texts.get(lesson["id"])
        if rule is not None and lesson["text"]:
            lesson = {**lesson, "text": rule.text}
        shown_lessons.append(lesson)
    return shown_lessons


class _RuleText(NamedTuple):
    """The text of a rule, and the id of an example that has all its words.

    It `varies` if the fix differs from task to task.
    """

    text: str
    author: int | None
    varies: bool = False


def _rule_sightings(
    db: Db, scope: Scope, memory_key: str, rows: Sequence[Row]
) -> list[Row]:
    """Return the newest examples (sightings) of the rules in `rows`, newest first.

    Among them are the newest 200 of the scope that are of the memory key: the same
    mistake may have been stored in other words.
    """
    if not rows:
        return []

    return db.all(
        "sightings_of_rules",
        scope,
        ids=json.dumps(sorted({row["lesson_id"] for row in rows})),
        most=MAX_COMPARED_SIGHTINGS,
        memory_key=memory_key,
        # In these, other words for the same mistake are looked for.
        recent=200,
    )


def _rule_texts(
    rows: Sequence[Row], sightings: Sequence[Row], task: str
) -> dict[str, _RuleText]:
    """Return the texts of rules, by the names of the rules in `rows`.

    The text of a rule says what its newest findings have in common. A finding is what a
    check said was wrong in an answer; the examples `sightings` have them. A text that a
    person has written stays. For the task `task`, a rule has the words found there.
    """
    written_ids = {
        row["lesson_id"]
        for row in rows
        if standing_of(row["trust"], row["released_by"]) == "user"
    }
    findings = list[tuple[Row, Example]]()
    for sighting in sightings:
        example = example_of(sighting)
        if example.wrong:
            findings.append((sighting, with_rule(example)))

    texts = {row["rule"]: _RuleText(row["text"], row["author"]) for row in rows}
    for row in rows:
        lesson_findings = [
            finding
            for finding in findings
            if finding[0]["lesson_id"] == row["lesson_id"]
        ]
        if lesson_findings and row["lesson_id"] not in written_ids:
            texts[row["rule"]] = _text_of_rule(row, lesson_findings, findings, task)
    return texts


def _text_of_rule(
    row: Row,
    lesson_findings: Sequence[tuple[Row, Example]],
    findings: Sequence[tuple[Row, Example]],
    task: str,
) -> _RuleText:
    """Return the text of the rule in `row`, by what its findings have in common.

    A finding is what a check said was wrong: a stored row with its example. Compared
    are `lesson_findings`, those of the rule's own lesson, and those of `findings` that
    read the same without particulars and are of the same check; both have the newest
    first. If the lesson has a finding about this very `task`, its words are returned.
    """
    task_rows = [
        sighting for sighting, example in lesson_findings if example.task == task
    ]
    if task_rows:
        return _RuleText(task_rows[0]["lesson"], task_rows[0]["id"])

    newest_row, example = lesson_findings[0]
    alike = [
        finding
        for finding in findings
        if finding in lesson_findings
        or (finding[0]["error_type"], finding[1].rule)
        == (newest_row["error_type"], example.rule)
    ]
    lesson_examples = [
        example for _, example in lesson_findings[:MAX_COMPARED_SIGHTINGS]
    ]
    examples = [example for _, example in alike[:MAX_COMPARED_SIGHTINGS]]
    # The newest finding has all words that the compared ones have in common.
    author = alike[0][0]["id"]
    if cases_of_rule(lesson_examples, examples) is lesson_examples:
        examples = lesson_examples
        author = newest_row["id"]
    # A rule is verified if an answer was accepted after the mistake.
    corrected = row["seen"] if row["state"] == "verified" else 0
    return _RuleText(
        constant_rule(examples, corrected),
        author,
        varies=len({example.fix for example in examples}) > 1,
    )


# The characters of a blank task. A blank task gets no vector.
BLANK_CHARACTERS = " \t\n\r\v\f\xa0\u3000"


def spaces(db: Db, scope: Scope) -> dict[str, int]:
    """Return how many examples have a vector of each space, by the names of these.

    A space is that of one embedding model; under "" are those without a vector. Counted
    are examples that can be recalled and whose task is not blank.
    """
    return {
        row["space"]: row["n"]
        for row in db.all("count_spaces", scope, blank=BLANK_CHARACTERS)
    }


def unplaced(
    db: Db, scope: Scope, space: str, after: int, limit: int, since: float = 0.0
) -> list[tuple[int, str]]:
    """Return (id, task) of the examples that need a vector of the space `space`.

    They can be recalled, and have no vector or one of another embedding model. There
    are at most `limit`, in the order of their ids, which are above `after`. Examples
    that were stored before the time `since` are left out.
    """
    return [
        (row["id"], row["task"])
        for row in db.all(
            "unplaced",
            scope,
            space=space,
            after=after,
            limit=limit,
            since=since,
            blank=BLANK_CHARACTERS,
        )
    ]


@resumable(result=int)
def place(
    db: Db, scope: Scope, space: str, places: Sequence[tuple[int, str, Sequence[float]]]
) -> int:
    """Store the vectors of examples; return how many were new or changed.

    `space` names the embedding model that made them. `places` has the id, the task and
    the vector of each example. Skips an example that was deleted, or whose task has
    changed since: the vector is that of the old task.
    """
    written = 0
    for id, task, vector in places:
        example = {**key_of(scope), "id": id, "task": task}
        written += db.run("place", {**example, **placed(db, space, vector)}).rowcount
    return written
