"""Which texts of a memory have a vector of its embedder, and vectors for the others.

A space is an embedder's name with the length of its vectors. Only vectors of one space
are compared, so after a change of the embedder the texts without a vector in the new
space are embedded again.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from heedful.errors import InvalidInput
from heedful.memory.memory import Memory
from heedful.models.embedding import embed, space_of
from heedful.store import search

# Texts that are embedded and written together: 0.1 s of a small embedder on one core.
EMBEDDING_BATCH_TEXTS = 32
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


async def count_spaces(memory: Memory) -> Spaces:
    """Count the texts with and without a vector of the embedder in use."""
    counts = await memory.store.read(memory.scope, search.spaces)
    return Spaces.of(counts, space_of(memory.embedder))


async def reembed(
    memory: Memory,
    progress: Progress | None = None,
    since: float = 0.0,
    pause: Callable[[], Awaitable[None]] | None = None,
) -> Spaces:
    """Embed the texts that have no vector of the embedder in use.

    Returns how many texts have one at the end, and how many not. Texts stored before
    the time `since` (seconds since 1970) are left out. `pause` is awaited before each
    small batch, and `progress` is called after it. A batch is one transaction, and
    others may write in between. Stop it at any time; the next call continues. Raises
    InvalidInput without an embedder, ModelError, StoreError.
    """
    if memory.embedder is None:
        raise InvalidInput("embedder", None, "an embedder, which computes the vectors")

    space = space_of(memory.embedder)
    total = (await count_spaces(memory)).behind
    last_id = 0  # texts are read in the order of their ids
    count = 0
    while True:
        batch = await memory.store.read(
            memory.scope,
            search.unplaced,
            space,
            after=last_id,
            limit=EMBEDDING_BATCH_TEXTS,
            since=since,
        )
        if not batch:
            return await count_spaces(memory)

        if pause is not None:
            await pause()
        vectors = await embed(memory.embedder, [text for _, text in batch])
        texts_with_vectors = [
            (id, text, vector)
            for (id, text), vector in zip(batch, vectors, strict=True)
        ]
        # A text that was changed or deleted meanwhile is skipped, and not counted.
        count += await memory.store.write(
            memory.scope, search.place, space, texts_with_vectors
        )

        last_id, _ = batch[-1]
        if progress is not None:
            # Texts may have been added since the total was counted.
            progress(count, max(count, total))
