"""Recall at size: one large scope, a thousand tenants, and what `remember` costs there.

The texts are halves of sentences from this project's own pages, put together: some
thousand words in however many texts, so that the rarest are less rare than in texts
that people write. So are the queries, which are embedded beforehand.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import heedful
from bench.durable import count_syncs
from bench.rows import Figure
from bench.timing import milliseconds, percentile
from heedful.lessons.lesson import ANY_LESSON, Lesson, Scope
from heedful.lessons.signature import signature
from heedful.lessons.words import words
from heedful.memory.memory import MIN_LEG_CANDIDATES
from heedful.models import open_embedder
from heedful.models.embedding import space_of
from heedful.store import exposures, search
from heedful.store.connection import Db, key_of, token
from heedful.store.search import Vectors
from heedful.store.sqlite import in_file
from heedful.store.store import Store

Rows = NDArray[np.float32]
PAGES = ("README.md", "docs/**/*.md", "examples/*/README.md")
OUT = Path("bench/out")
REAL = 10_000
MILLION = 1_000_000
QUERIES = 200
BATCH = 500
ROUNDS = 5
# The length of the noise that is added to a unit vector: their cosine is 1 / sqrt(1 +
# 0.5²), 0.89.
NOISE = 0.5
TENANTS = 1_000
EACH = 100


@dataclass(frozen=True)
class PreparedEmbedder:
    """An embedder that has embedded everything beforehand."""

    vectors: dict[str, Any] = field(default_factory=dict)
    name: str = "known"
    dimensions: int = 384

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return the stored vectors of the texts."""
        return [self.vectors[text] for text in texts]


@dataclass(frozen=True, kw_only=True)
class Size:
    """One scope: its name, its texts with their vectors, and the milliseconds that it
    may take.
    """

    name: str
    texts: Sequence[str]
    vectors: Rows
    leg: float
    hybrid: float


def figures(folder: str, real: int, million: bool) -> Iterable[Figure]:
    """Measure scopes of `REAL`, of `real` and of a million texts, and tenants."""
    corpus = make_texts(max(real, REAL) + QUERIES)
    vectors = embed_texts(corpus)
    embedder = PreparedEmbedder(
        dict(zip(corpus[-QUERIES:], vectors[-QUERIES:], strict=True))
    )
    corpus = corpus[:-QUERIES]
    vectors = vectors[:-QUERIES]
    yield from measure_scope(
        folder,
        Size(
            name="10k embedded",
            texts=corpus[:REAL],
            vectors=vectors[:REAL],
            leg=0.5,
            hybrid=4,
        ),
        embedder,
    )
    if real > REAL:
        yield from measure_scope(
            folder,
            Size(
                name=f"{real // 1000}k embedded",
                texts=corpus,
                vectors=vectors,
                leg=3,
                hybrid=15,
            ),
            embedder,
        )
    if million:
        noisy = perturb(vectors, MILLION)
        yield from measure_scope(
            folder,
            Size(
                name="1M perturbed",
                texts=make_texts(MILLION),
                vectors=noisy,
                leg=20,
                hybrid=60,
            ),
            embedder,
        )
        from bench import recall_postgres  # which builds on this module

        yield from recall_postgres.figures(vectors, embedder, MILLION)
    yield from measure_tenants(folder, vectors, embedder)
    yield from measure_fsyncs(folder)


def measure_scope(
    folder: str, size: Size, embedder: PreparedEmbedder
) -> Iterable[Figure]:
    """Measure all figures of one scope."""
    path = f"{folder}/recall-{len(size.texts)}.db"
    asyncio.run(fill(path, [Scope()], size.texts, size.vectors))
    bytes_each = Path(path).stat().st_size / len(size.texts)
    yield Figure(name=f"disk a lesson, {size.name}", value=bytes_each / 1e3, unit="kB")
    yield Figure(
        name=f"first search of a process, {size.name}",
        value=time_first_recall(path, embedder),
        unit="ms",
    )
    with closing(sqlite3.connect(f"{path}-plain")) as db:
        bm25_median = median(time_bm25(db, size.texts, embedder))
    store = in_file(path)
    turns = [(Scope(), vector) for vector in embedder.vectors.values()]
    legs, found_ids = asyncio.run(time_searches(store, turns, embedder))
    yield Figure(
        name=f"RAM of its vectors, {size.name}",
        value=asyncio.run(read_vectors(store)).bytes / 1e6,
        unit="MB",
    )
    yield from spread(f"vector leg, {size.name}", legs, size.leg)
    exact, nearest = scan_exactly(size.vectors, embedder)
    yield Figure(
        name=f"exact scan by numpy, {size.name}, p50", value=median(exact), unit="ms"
    )
    shares = [len(a & b) / 10 for a, b in zip(found_ids, nearest, strict=True)]
    yield Figure(
        name=f"vector leg, {size.name}, recall@10",
        value=mean(shares),
        unit="",
        least=0.99,
    )
    hybrid_times = asyncio.run(time_recalls(store, [Scope()], embedder))
    yield from spread(f"recall, {size.name}", hybrid_times, size.hybrid)
    yield Figure(
        name=f"FTS5 OR by bm25() alone, {size.name}, p50", value=bm25_median, unit="ms"
    )
    spent = asyncio.run(time_remember(store, embedder))
    yield Figure(name=f"remember into {size.name}, p50", value=median(spent), unit="ms")


def spread(
    name: str, times: Sequence[float], target: float | None = None
) -> Iterable[Figure]:
    """Yield the median, which has the target, and the 99th percentile."""
    yield Figure(name=f"{name}, p50", value=median(times), unit="ms", most=target)
    yield Figure(name=f"{name}, p99", value=percentile(times, 99), unit="ms")


async def read_vectors(store: Store) -> Vectors:
    """Return the vectors that the reading connection keeps in memory."""
    return await store.read(Scope(), lambda db, _: db.local(Vectors))


async def time_searches(
    store: Store, turns: Sequence[tuple[Scope, Any]], embedder: PreparedEmbedder
) -> tuple[list[float], list[set[int]]]:
    """Return milliseconds and ten results of each search, in its transaction; rows
    count from 0.
    """

    def search_vector(db: Db, scope: Scope, vector: Any) -> tuple[float, set[int]]:
        began = time.perf_counter()
        corpus = db.run("read_corpus", {"scope": token(scope)}).fetchone()
        parameters = search.SearchParameters(
            db=db,
            key={**key_of(scope), "space": space_of(embedder), "memory_key": ""},
            corpus=corpus,
            limit=MIN_LEG_CANDIDATES,
            only=ANY_LESSON,
            waiting=False,
        )
        ids = list(search.by_vector(parameters, vector))
        return (time.perf_counter() - began) * 1e3, {id - 1 for id in ids[:10]}

    rounds = []
    for _ in range(ROUNDS):
        searches = [
            await store.read(scope, search_vector, vector) for scope, vector in turns
        ]
        rounds.append(searches)
    return fastest_searches(rounds)


def fastest_searches(
    rounds: Sequence[Sequence[tuple[float, set[int]]]],
) -> tuple[list[float], list[set[int]]]:
    """Return the fastest round of each search, and its results in the first."""
    turns = zip(*rounds, strict=True)
    times = [min(searches, key=lambda turn: turn[0])[0] for searches in turns]
    return times, [ids for _, ids in rounds[0]]


def scan_exactly(
    vectors: Rows, embedder: PreparedEmbedder
) -> tuple[list[float], list[set[int]]]:
    """Return the same by an exact scan of float32, all in RAM."""

    def scan(query: Any) -> tuple[float, set[int]]:
        began = time.perf_counter()
        nearest = np.argpartition(vectors @ query, -10)[-10:]
        return (time.perf_counter() - began) * 1e3, set(nearest.tolist())

    queries = list(embedder.vectors.values())
    return fastest_searches([list(map(scan, queries)) for _ in range(ROUNDS)])


async def time_recalls(
    store: Store, scopes: Sequence[Scope], embedder: PreparedEmbedder
) -> list[float]:
    """Return milliseconds of each `Memory.recall`, both legs, in turn in the scopes."""

    async def recall(text: str, scope: Scope) -> float:
        memory = heedful.Memory(store, scope, embedder)
        return await milliseconds(memory.recall(text, 5))

    count = max(len(scopes), len(embedder.vectors))
    turns = list(islice(zip(cycle(embedder.vectors), cycle(scopes)), count))

    rounds: list[list[float]] = [[] for _ in range(ROUNDS)]
    for spent in rounds:
        spent.extend([await recall(text, scope) for text, scope in turns])
    return fastest(rounds)


def fastest(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Return the fastest round of each query, because other work only adds time."""
    return [min(spent) for spent in zip(*rounds, strict=True)]


async def time_remember(store: Store, embedder: PreparedEmbedder) -> list[float]:
    """Return the milliseconds for each new lesson, one after the other."""
    memory = heedful.Memory(store, embedder=embedder)
    spent = [
        await milliseconds(memory.remember(f"new {letters(number)}", text))
        for number, text in enumerate(embedder.vectors)
    ]
    await store.close()
    return spent


FIRST = """
import asyncio, json, sys, time
from bench.recall import PreparedEmbedder
import heedful
async def first(path, text, vector):
    memory = heedful.Memory(path, embedder=PreparedEmbedder({text: vector}))
    await memory.count()
    began = time.perf_counter()
    await memory.recall(text, 5)
    print((time.perf_counter() - began) * 1e3)
asyncio.run(first(sys.argv[1], *json.loads(sys.argv[2])))
"""


def time_first_recall(path: str, embedder: PreparedEmbedder) -> float:
    """Return the milliseconds of the first recall of a process, the median of three."""
    text, vector = next(iter(embedder.vectors.items()))
    program = [sys.executable, "-c", FIRST, path, json.dumps([text, vector.tolist()])]
    return median(
        float(
            subprocess.run(program, capture_output=True, text=True, check=True).stdout
        )
        for _ in range(3)
    )


def time_bm25(
    db: sqlite3.Connection, texts: Sequence[str], embedder: PreparedEmbedder
) -> list[float]:
    """Return the milliseconds of queries in a plain index: any word, by bm25()."""
    db.execute("create virtual table said using fts5 (words)")
    rows = ((" ".join(words(text)),) for text in texts)
    db.executemany("insert into said values (?)", rows)
    spent = []
    for query in embedder.vectors:
        any_of = " OR ".join(f'"{word}"' for word in words(query))
        began = time.perf_counter()
        sql = "select rowid from said where said match ? order by rank limit ?"
        db.execute(sql, (any_of, MIN_LEG_CANDIDATES)).fetchall()
        spent.append((time.perf_counter() - began) * 1e3)
    return spent


def measure_tenants(
    folder: str, vectors: Rows, embedder: PreparedEmbedder
) -> Iterable[Figure]:
    """Measure many scopes in one file, searched in turn."""
    scopes = [Scope(f"tenant {n}") for n in range(TENANTS)]
    count = TENANTS * EACH
    path = f"{folder}/tenants.db"
    asyncio.run(fill(path, scopes, make_texts(count), perturb(vectors, count)))
    store = in_file(path)
    name = f"{TENANTS:,} tenants of {EACH}"
    yield from spread(
        f"recall, {name}", asyncio.run(time_recalls(store, scopes, embedder))
    )
    yield Figure(
        name=f"RAM of their vectors, {name}",
        value=asyncio.run(read_vectors(store)).bytes / 1e6,
        unit="MB",
    )
    asyncio.run(store.close())


def measure_fsyncs(folder: str) -> Iterable[Figure]:
    """Count the syncs of 50 more lessons with strace, if it is installed."""
    program = (
        "import asyncio, sys; from bench.recall import remember_some; "
        "asyncio.run(remember_some(*sys.argv[1:]))"
    )
    syncs_each = count_syncs(program, f"{folder}/some")
    if syncs_each is not None:
        yield Figure(name="fsyncs a remember", value=syncs_each, unit="", most=1.0)


async def remember_some(path: str, count: str) -> None:
    """Remember so many lessons, one after the other."""
    store = in_file(path)
    for number in range(int(count)):
        await store.write(
            Scope(),
            exposures.remember,
            [make_lesson(number, f"text {number}", vector=None)],
        )
    await store.close()


async def fill(
    path: str, scopes: Sequence[Scope], texts: Sequence[str], vectors: Rows
) -> None:
    """Write a database with a lesson for each text, equally many in each scope."""
    store = in_file(path)
    per_scope = len(texts) // len(scopes)
    together = min(BATCH, per_scope)
    for begin in range(0, len(texts), together):
        numbers = range(begin, min(begin + together, len(texts)))
        lessons = [make_lesson(n, texts[n], vectors[n]) for n in numbers]
        await store.write(scopes[begin // per_scope], exposures.remember, lessons)
    await store.close()


def make_lesson(number: int, text: str, vector: Any) -> Lesson:
    """Return a lesson with a unique pattern."""
    lesson_signature = signature("bench", letters(number))
    space = space_of(PreparedEmbedder())
    return Lesson(
        "error",
        lesson_signature,
        error_type="bench",
        text=text,
        sighting=text,
        state="unverified",
        space=space,
        vector=vector,
    )


def letters(number: int) -> str:
    """Write a number in letters, so that no mask replaces it."""
    return "".join("abcdefghij"[int(digit)] for digit in str(number))


def make_texts(count: int) -> list[str]:
    """Return so many different texts of two halves; always the same texts."""
    halves = [half for half in map(halve, read_sentences()) if half is not None]
    chance = random.Random(count)
    unique_texts = dict[str, None]()
    while len(unique_texts) < count:
        (first_half, _) = chance.choice(halves)
        (_, second_half) = chance.choice(halves)
        unique_texts[f"{first_half} {second_half}"] = None
    return list(unique_texts)


def read_sentences() -> Iterator[str]:
    """Yield the sentences of the pages, without code."""
    for pattern in PAGES:
        for page in sorted(Path().glob(pattern)):
            prose = re.sub(r"(?ms)^```.*?^```", "", page.read_text("utf-8"))
            yield from re.split(r"(?<=[.:?!])\s+|\n\s*\n|\n[-#|]", prose)


def halve(sentence: str) -> tuple[str, str] | None:
    """Return both halves of a sentence of 8 to 40 words, else None."""
    parts = sentence.split()
    middle = len(parts) // 2
    return (
        (" ".join(parts[:middle]), " ".join(parts[middle:]))
        if 8 <= len(parts) <= 40
        else None
    )


def embed_texts(texts: Sequence[str]) -> Rows:
    """Return the vectors of the texts, 4 ms each; cached for the next run."""
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    path = OUT / f"embedded-{digest}.npy"
    if not path.exists():
        OUT.mkdir(parents=True, exist_ok=True)
        np.save(path, np.asarray(asyncio.run(open_embedder().embed(texts)), np.float32))
    vectors: Rows = np.load(path)
    return vectors


def perturb(vectors: Rows, count: int) -> Rows:
    """Return so many unit vectors, each made from one of `vectors` with noise."""
    chance = np.random.default_rng(count)
    noisy = np.empty((count, vectors.shape[1]), np.float32)
    for begin in range(0, count, BATCH):
        part = noisy[begin : begin + BATCH]
        part[:] = (
            chance.standard_normal(part.shape, np.float32)
            * NOISE
            / part.shape[1] ** 0.5
        )
        part += vectors[np.arange(begin, begin + len(part)) % len(vectors)]
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return noisy
