"""Where texts lie in the space of an embedder, and how a memory moves into another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from heedful.errors import InvalidInput
from heedful.protocols import Embedder, Scope, Store

# So many of so many are done.
Progress = Callable[[int, int], None]
# Texts that are embedded and written together: 0.1 s of a small embedder on one core.
BATCH = 32


@dataclass(frozen=True, slots=True)
class Spaces:
    """Where the examples and lessons of a scope lie that recall looks through.

    `space` is that of the embedder in use, "" without one: `here` is how many lie in it,
    `elsewhere` how many in each other space, and `nowhere` how many have no vector. Recall compares
    vectors of its own space only; all else it finds by words.
    """

    space: str
    here: int = 0
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    nowhere: int = 0

    @classmethod
    def of(cls, counts: Mapping[str, int], space: str) -> Spaces:
        """The same counts, "" for those without a vector, seen from one of the spaces."""
        elsewhere = {name: n for name, n in sorted(counts.items()) if name not in ("", space)}
        return cls(space, counts.get(space, 0) if space else 0, elsewhere, counts.get("", 0))

    @property
    def behind(self) -> int:
        """How many `reembed` would move; 0 without an embedder, which needs no vectors."""
        return self.nowhere + sum(self.elsewhere.values()) if self.space else 0

    def __str__(self) -> str:
        others = [f"{count} in {space}" for space, count in self.elsewhere.items()]
        nowhere = [f"{self.nowhere} without a vector"] if self.nowhere else []
        here = [f"{self.here} in {self.space}"] if self.space else []
        return ", ".join([*here, *others, *nowhere])


def space_of(embedder: Embedder | None) -> str:
    """The name of an embedder's space: vectors of two names, or two lengths, are never compared."""
    return f"{embedder.name}/{embedder.dimensions}" if embedder is not None else ""


async def placed(embedder: Embedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """One vector a text. Raises InvalidInput where one is not as long as the embedder says."""
    vectors = await embedder.embed(texts)
    lengths = {len(one) for one in vectors}
    if len(vectors) != len(texts) or lengths - {embedder.dimensions}:
        found = f"{len(vectors)} vectors of {sorted(lengths)} numbers from {embedder.name}"
        wanted = f"{len(texts)} of the {embedder.dimensions} numbers that it names"
        raise InvalidInput("embedder", found, wanted)
    if not all(isfinite(sum(one)) for one in vectors):
        raise InvalidInput("embedder", embedder.name, "one that gives finite numbers")
    return vectors


async def reembed(
    store: Store, scope: Scope, embedder: Embedder | None, progress: Progress | None = None
) -> int:
    """Give every example a vector of the embedder's space that has none in it; how many got one.

    In small batches, each one transaction: it may be stopped at any time and goes on where it was
    when it is called again, and others may write meanwhile. Raises InvalidInput, ModelError,
    StoreError.
    """
    if embedder is None:
        raise InvalidInput("embedder", None, "one, whose space the examples move into")
    space, last, done = space_of(embedder), 0, 0
    total = Spaces.of(await store.spaces(scope), space).behind
    while batch := await store.unplaced(scope, space, last, BATCH):
        vectors = await placed(embedder, [text for _, text in batch])
        places: list[tuple[int, str, Any]] = [
            (id, text, vector) for (id, text), vector in zip(batch, vectors, strict=True)
        ]
        done += await store.place(scope, space, places)
        last = batch[-1][0]
        if progress is not None:
            progress(done, max(done, total))
    return done
