"""Full text of a scope: which examples have the rare words of a query, and how well they fit it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import log

from heedful.store.database import ALL, Db, Row

# The words of a query that are counted, and the rarest of them, which are looked for: more than 12
# brought nothing.
COUNTED = 256
TERMS = 16
# The matches that are looked at: so many, and one for so many texts. With half of them, of 391
# questions to 23,000 texts 1 % of the evidence less is among the first five.
MATCHES, FOR_EACH = 2_000, 20
# BM25 as it is commonly set.
K1, B = 1.2, 0.75


def counts(db: Db, corpus: Row, words: Sequence[str]) -> dict[str, int]:
    """Word -> how many texts of the scope have it, the rarest first; of the first `COUNTED`."""
    wanted = list(dict.fromkeys(words))[:COUNTED]
    values = {"mark": corpus["mark"], "terms": json.dumps(wanted)}
    rows = db.named("count_terms", values).fetchall() if wanted else []
    return {row["term"]: row["n"] for row in sorted(rows, key=lambda row: int(row["n"]))}


def matching(
    db: Db,
    corpus: Row,
    counts: Mapping[str, int],
    many: int,
    among: set[int] | None = None,
) -> list[int]:
    """The ids of the `many` texts whose rare words weigh most; of `among`, where that is given.

    The rarest words are looked for, as many as have `MATCHES` or so matches together; of the rarest
    of all, where it alone has more, the newest. Without a bound, where only those `among` count.
    """
    most = ALL if among is not None else MATCHES + corpus["texts"] // FOR_EACH
    rare = [term for term, count in counts.items() if count][:TERMS]
    upto = sum(total <= most for total in accumulate(counts[term] for term in rare))
    terms = json.dumps(rare[: max(1, upto)])
    scores: dict[int, float] = {}
    for row in db.named("match_terms", {"mark": corpus["mark"], "terms": terms, "limit": most}):
        weight, ids = rarity(counts[row["term"]], corpus["texts"]), json.loads(row["ids"])
        for id in ids if among is None else filter(among.__contains__, ids):
            scores[id] = scores.get(id, 0.0) + weight
    return sorted(scores, key=scores.__getitem__, reverse=True)[:many]


def rarity(count: int, texts: int) -> float:
    """The inverse document frequency of BM25, above 0."""
    return log(1 + (texts - count + 0.5) / (count + 0.5))


def bm25(rarities: Mapping[str, float], words: str, mean: float) -> float:
    """How well a text, given as words with blanks between them, fits the words of a query.

    Okapi BM25 (Robertson & Zaragoza, "The Probabilistic Relevance Framework", 2009); `mean` is the
    mean length of the texts, in characters.
    """
    said: defaultdict[str, int] = defaultdict(int)
    for word in words.split(" "):
        if word in rarities:
            said[word] += 1
    long = K1 * (1 - B + B * len(words) / mean)
    return sum(rarities[word] * n * (K1 + 1) / (n + long) for word, n in said.items())
