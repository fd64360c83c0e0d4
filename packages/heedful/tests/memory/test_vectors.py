"""A changed embedder is noticed, its vectors are never mixed, and memory moves into its
space.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest

from heedful.errors import InvalidInput, ModelUnavailable
from heedful.lessons.lesson import Example
from heedful.memory.memory import Memory
from heedful.memory.vectors import EMBEDDING_BATCH_TEXTS, Spaces, count_spaces, reembed
from heedful.testing import FixedEmbedder
from tests.store.support import rows
from tests.tables import cases

pytestmark = pytest.mark.both_nightly

PARCEL = Example("convert the weight of parcel 7 to kilograms", "7 kg")


class Other(FixedEmbedder):
    """Another model: the same words lie elsewhere."""

    name = "other"


class Lying(FixedEmbedder):
    """Says one length and gives another, or gives no numbers."""

    def __init__(
        self, says: int, gives: int, fill: float = 0.5, missing: int = 0
    ) -> None:
        super().__init__(says)
        self._gives = gives
        self._fill = fill
        self._missing = missing

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [[self._fill] * self._gives for _ in texts[self._missing :]]


class Meanwhile(FixedEmbedder):
    """Something is done while it embeds."""

    def __init__(self, done: Callable[[], Awaitable[Any]]) -> None:
        super().__init__()
        self._done = done

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        await self._done()
        return await super().embed(texts)


async def learn(memory: Memory, number: int) -> None:
    for n in range(number):
        await memory.remember(
            "E", f"error '{n}'", example=Example(f"task {n} of parcels", "done")
        )


def read_vectors(path: Any) -> list[tuple[str, int]]:
    return rows(path, "select space, length(data) / 4 from vector order by example")


async def test_a_changed_embedder_is_noticed_and_memory_moves(store, path):
    words = Memory(store)
    first = Memory(store, embedder=FixedEmbedder())
    second = Memory(store, embedder=Other())
    shorter = Memory(store, embedder=Other(8))
    assert await count_spaces(first) == Spaces("fixed/64")
    await words.remember("E", "no unit", example=PARCEL)
    await first.remember(
        "E", "no date", example=Example("write the date 3 March", "2024")
    )
    assert await count_spaces(words) == Spaces("")
    assert await count_spaces(first) == Spaces("fixed/64", 1, behind=1)
    there = await count_spaces(second)
    assert there == Spaces("other/64", 0, behind=2)
    assert str(there) == "0 in other/64, 2 without a vector"
    # Never compared: what is found is found by its words.
    assert [match.cosine for match in await second.recall(PARCEL.task)] == [None]

    await reembed(second)
    assert await count_spaces(second) == Spaces("other/64", 2)
    (moved,) = await second.recall(PARCEL.task)
    assert moved.cosine == pytest.approx(1.0)
    await reembed(second)
    # The same model with vectors of another length is another space.
    assert await count_spaces(shorter) == Spaces("other/8", 0, behind=2)
    assert [match.cosine for match in await shorter.recall(PARCEL.task)] == [None]
    await reembed(shorter)
    assert read_vectors(path) == [("other/8", 8), ("other/8", 8)]


@cases(
    "embedder, message",
    {
        "a number too few": (
            Lying(64, 63),
            r"1 vectors of \[63\] numbers from fixed'; it must be 1 of 64",
        ),
        "no numbers": (Lying(64, 0), r"1 vectors of \[0\] numbers"),
        "a vector too few": (Lying(64, 64, missing=1), r"0 vectors of \[\] numbers"),
        "not a number": (
            Lying(64, 64, fill=float("nan")),
            "one that gives finite numbers",
        ),
        "infinite as a half": (
            Lying(64, 64, fill=-65_504.0),
            "one that gives finite numbers",
        ),
        "too long a vector": (Lying(16_001, 16_001), "1 to 16000"),
    },
)
def test_an_embedder_that_lies_about_its_vectors_writes_nothing(
    store, path, embedder, message
):
    memory = Memory(store, embedder=embedder)
    asyncio.run(Memory(store).remember("E", "no unit", example=PARCEL))
    for work in (
        lambda: memory.remember("E", "no date", example=PARCEL),
        lambda: memory.recall("convert a weight"),
        partial(reembed, memory),
    ):
        with pytest.raises(InvalidInput, match=message):
            asyncio.run(work())
    assert read_vectors(path) == []
    assert asyncio.run(memory.count()) == 1


def test_what_is_written_meanwhile_is_not_written_over(store, path):
    """A lesson whose words change while they are embedded gets no vector of the old
    ones.
    """
    words = Memory(store)

    async def corrected() -> None:
        await words.remember(
            "E", "bad value 'x'", lesson="the right words", origin="user"
        )

    async def forgotten() -> None:
        await words.clear()

    async def scenario() -> None:
        await words.remember(
            "E", "bad value 'x'", lesson="the first words", origin="local"
        )
        await reembed(Memory(store, embedder=Meanwhile(corrected)))
        memory = Memory(store, embedder=FixedEmbedder())
        await reembed(memory)
        assert (await count_spaces(memory)).behind == 0
        (match,) = await memory.recall("the right words")
        assert match.cosine == pytest.approx(1.0)
        await words.remember("E", "bad value 'y'", lesson="soon forgotten")
        await reembed(Memory(store, embedder=Meanwhile(forgotten)))

    asyncio.run(scenario())
    assert read_vectors(path) == []


def test_stopped_in_the_middle_it_goes_on_where_it_was(store, path):
    asyncio.run(learn(Memory(store), 3 * EMBEDDING_BATCH_TEXTS))
    batch_sizes: list[int] = []

    class Failing(FixedEmbedder):
        async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
            batch_sizes.append(len(texts))
            if len(batch_sizes) == 2:
                raise ModelUnavailable("gone")
            return await super().embed(texts)

    memory = Memory(store, embedder=Failing())
    with pytest.raises(ModelUnavailable):
        asyncio.run(reembed(memory))
    assert len(read_vectors(path)) == EMBEDDING_BATCH_TEXTS
    assert asyncio.run(reembed(memory)).behind == 0
    assert batch_sizes == [EMBEDDING_BATCH_TEXTS] * 4
    assert read_vectors(path) == [("fixed/64", 64)] * 3 * EMBEDDING_BATCH_TEXTS
