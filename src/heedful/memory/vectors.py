"""Vectors of texts: ask an embedder, check its answer, and count what has a vector.

A space is an embedder's name with the length of its vectors. Only vectors of one space
are compared, so after a change of the embedder the texts without a vector in the new
space are embedded again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.errors import InvalidInput, ModelUnavailable
from heedful.models.contract import Embedder
from heedful.store import search

if TYPE_CHECKING:
    from heedful.memory.memory import Memory

# What a halfvec of pgvector can hold: this many numbers, each below this bound.
MAX_VECTOR_DIMENSIONS = 16_000
MAX_HALF_NUMBER = 65_504
# Texts that are embedded and written together: 0.1 s of a small embedder on one core.
EMBEDDING_BATCH_TEXTS = 32
# The embedder of a process is loaded in 0.5 s, or 3 s on a busy machine; the rest is
# for fetching its weights.
EMBEDDER_LOAD_SECONDS = 10.0
# Called with how many texts are done, and how many there are.
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Spaces:
    """How many examples and lessons have a vector in the space of the embedder in use.

    `space` is this space, "" without an embedder. `here` counts the texts with a vector
    in it, and `behind` the texts that `reembed` would embed. Recall finds the latter by
    words.
    """

    space: str
    here: int = 0
    behind: int = 0

    @classmethod
    def of(cls, counts: Mapping[str, int], space: str) -> "Spaces":
        """Return the counts for `space` from the numbers of texts by space."""
        if not space:
            return cls("")
        here = counts.get(space, 0)
        return cls(space, here, sum(counts.values()) - here)

    def __str__(self) -> str:
        behind = f", {self.behind} without a vector" if self.behind else ""
        return f"{self.here} in {self.space}{behind}"


def space_of(embedder: Embedder | None) -> str:
    """Return the name of the embedder's space, "" for None."""
    return f"{embedder.name}/{embedder.dimensions}" if embedder is not None else ""


async def embed(embedder: Embedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """Return a vector for each text. Raises InvalidInput if one cannot be stored."""
    answer = embedder.embed(texts)
    if not hasattr(answer, "__await__"):
        raise InvalidInput(
            "embedder", embedder.name, "one whose method `embed` is async"
        )

    vectors = await answer
    lengths = {len(vector) for vector in vectors}
    if len(vectors) != len(texts) or lengths - {embedder.dimensions}:
        numbers = f"vectors of {sorted(lengths)} numbers"
        raise InvalidInput(
            "embedder",
            f"{len(vectors)} {numbers} from {embedder.name}",
            f"{len(texts)} of {embedder.dimensions} numbers each",
        )
    if not 0 < embedder.dimensions <= MAX_VECTOR_DIMENSIONS:
        raise InvalidInput(
            "embedder.dimensions", embedder.dimensions, f"1 to {MAX_VECTOR_DIMENSIONS}"
        )

    import numpy as np  # slow to import

    if not (np.abs(np.asarray(vectors)) < MAX_HALF_NUMBER).all():
        allowed = f"one that gives finite numbers below {MAX_HALF_NUMBER}"
        raise InvalidInput("embedder", embedder.name, allowed)
    return vectors


async def load_embedder(embedder: Embedder | None) -> None:
    """Load an embedder that runs in this process: its first call does otherwise.

    Raises WeightsError, and ModelUnavailable if it takes more than 10 seconds.
    """
    load = getattr(embedder, "load", None)
    if embedder is None or load is None:
        return
    try:
        async with asyncio.timeout(EMBEDDER_LOAD_SECONDS):
            await load()
    except TimeoutError as error:
        raise ModelUnavailable(
            f"{embedder.name} was not loaded within {EMBEDDER_LOAD_SECONDS:g} s; fetch "
            "its weights before: heedful model fetch"
        ) from error


async def count_spaces(memory: "Memory") -> Spaces:
    """Count the texts with and without a vector of the embedder in use."""
    counts = await memory.store.read(memory.scope, search.spaces)
    return Spaces.of(counts, space_of(memory.embedder))


async def reembed(
    memory: "Memory",
    progress: Progress | None = None,
    since: float = 0.0,
    pause: Callable[[], Awaitable[None]] | None = None,
) -> Spaces:
    """Embed the texts without a vector in the embedder's space; return how many have.

    Texts stored before the time `since` (seconds since 1970) are left out. Each small
    batch is one transaction, after a `pause`, and others may write meanwhile. Stop it
    at any time; the next call continues. Raises InvalidInput without an embedder,
    ModelError, StoreError.
    """
    if memory.embedder is None:
        raise InvalidInput("embedder", None, "an embedder, which computes the vectors")

    space = space_of(memory.embedder)
    total = (await count_spaces(memory)).behind
    last_row = 0
    count = 0
    while True:
        batch = await memory.store.read(
            memory.scope,
            search.unplaced,
            space,
            after=last_row,
            limit=EMBEDDING_BATCH_TEXTS,
            since=since,
        )
        if not batch:
            return await count_spaces(memory)

        if pause is not None:
            await pause()
        vectors = await embed(memory.embedder, [text for _, text in batch])
        placed = [
            (row, text, vector)
            for (row, text), vector in zip(batch, vectors, strict=True)
        ]
        count += await memory.store.write(memory.scope, search.place, space, placed)

        last_row, _ = batch[-1]
        if progress is not None:
            progress(count, max(count, total))
