"""Embedding spaces: which space each example's vector is in, and how to move them to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from heedful.errors import InvalidInput
from heedful.models.contract import Embedder

Progress = Callable[[int, int], None]  # called with how many of how many are done
# Texts that are embedded and written together: 0.1 s of a small embedder on one core.
BATCH = 32


@dataclass(frozen=True, slots=True)
class Spaces:
    """How many examples and lessons of a scope have a vector in each embedding space.

    `space` is that of the embedder in use, "" without one. `here` counts the texts in it,
    `elsewhere` those in each other space, and `nowhere` those without a vector. Recall compares
    vectors of its own space only; it finds all other texts by words.
    """

    space: str
    here: int = 0
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    nowhere: int = 0

    @classmethod
    def of(cls, counts: Mapping[str, int], space: str) -> Spaces:
        """Sort counts by space, "" for texts without a vector, as seen from one space."""
        elsewhere = {name: n for name, n in sorted(counts.items()) if name not in ("", space)}
        return cls(space, counts.get(space, 0) if space else 0, elsewhere, counts.get("", 0))

    @property
    def behind(self) -> int:
        """Return how many texts `reembed` would move; 0 without an embedder."""
        return self.nowhere + sum(self.elsewhere.values()) if self.space else 0

    def __str__(self) -> str:
        others = [f"{count} in {space}" for space, count in self.elsewhere.items()]
        nowhere = [f"{self.nowhere} without a vector"] if self.nowhere else []
        here = [f"{self.here} in {self.space}"] if self.space else []
        return ", ".join([*here, *others, *nowhere])


def space_of(embedder: Embedder | None) -> str:
    """Return the name of an embedder's space, "" without one; only equal names are compared."""
    return f"{embedder.name}/{embedder.dimensions}" if embedder is not None else ""


async def embed(embedder: Embedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """Return a vector for each text. Raises InvalidInput for vectors that cannot be stored."""
    vectors = await embedder.embed(texts)
    lengths = {len(vector) for vector in vectors}
    if len(vectors) != len(texts) or lengths - {embedder.dimensions}:
        found = f"{len(vectors)} vectors of {sorted(lengths)} numbers from {embedder.name}"
        wanted = f"{len(texts)} of {embedder.dimensions} numbers each"
        raise InvalidInput("embedder", found, wanted)
    if not all(isfinite(sum(vector)) for vector in vectors):
        raise InvalidInput("embedder", embedder.name, "one that gives finite numbers")
    return vectors
