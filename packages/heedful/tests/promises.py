"""What every store and every reader promises, as cases that each of ours must pass.

A case is an async function, and its docstring is the promise. A case of `STORE` takes a
function that opens a store; each call opens the same database, which is empty before
the case. A case of `READER` takes a `SampleFile`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from heedful import Episode, Evaluation, Memory, Scope, Store, open_loop
from heedful.episodes.episode import Limits
from heedful.episodes.readers.base import Reader
from heedful.episodes.reading import readers
from heedful.errors import AttemptTaken, Conflict, UsageError
from heedful.store import session_marks
from heedful.store.connection import Db
from heedful.testing import FixedEmbedder

# -- stores

SCOPE = Scope("tenant", "project")
SESSION = "promises"


@asynccontextmanager
async def opened(make: Callable[[], Store]) -> AsyncIterator[Store]:
    """Open a store; close it at the end, twice, which does no harm."""
    store = make()
    try:
        yield store
    finally:
        await store.close()
        await store.close()


async def write_mark(store: Store, mark: str) -> None:
    """Write a row: the mark of a session."""
    await store.write(SCOPE, session_marks.mark, SESSION, [mark])


async def read_marks(store: Store, scope: Scope = SCOPE) -> list[str]:
    """Return the rows that cases write."""
    marks = ("first", "second", "undone")
    return sorted(await store.read(scope, session_marks.find, SESSION, marks))


def mark_and_fail(db: Db, scope: Scope) -> None:
    """Write a row, and fail."""
    session_marks.mark(db, scope, SESSION, ["undone"])
    raise LookupError("the work fails after its write")


async def store_shows_a_write_to_all(make: Callable[[], Store]) -> None:
    """Every store of a database sees a write that has returned, in its scope only."""
    async with opened(make) as store, opened(make) as other:
        await write_mark(store, "first")
        assert await read_marks(other) == ["first"]
        assert await read_marks(other, Scope("other", "project")) == []
        assert await read_marks(other, Scope("tenant", "other")) == []


async def store_undoes_what_fails(make: Callable[[], Store]) -> None:
    """Work that raises changes nothing, and harms no other write of that moment."""
    async with opened(make) as store:
        _, error, _ = await asyncio.gather(
            write_mark(store, "first"),
            store.write(SCOPE, mark_and_fail),
            write_mark(store, "second"),
            return_exceptions=True,
        )
        assert isinstance(error, LookupError)
        assert await read_marks(store) == ["first", "second"]


async def store_counts_in_the_database(make: Callable[[], Store]) -> None:
    """Two writers of one error at the same time make one row, and no count is lost."""
    async with opened(make) as store, opened(make) as other:
        memories = [Memory(a, SCOPE, embedder=FixedEmbedder()) for a in (store, other)]
        results = await asyncio.gather(
            *[memory.remember("TypeError", "no len()") for memory in memories * 8]
        )
        assert sorted(remembered.seen for remembered in results) == [*range(1, 17)]
        assert await memories[0].count() == 1


async def store_refuses_what_conflicts(make: Callable[[], Store]) -> None:
    """An attempt is reported with one output, and a loop has one task."""
    async with opened(make) as store, opened(make) as other:
        first, second = [
            await open_loop("one", "a task", store=opened, goals=["score >= 1"])
            for opened in (store, other)
        ]
        evaluation = Evaluation(scores={"score": 0.5})
        await first.report("an output", attempt=1, evaluation=evaluation)
        with pytest.raises(AttemptTaken):
            await second.report("another", attempt=1, evaluation=evaluation)
        with pytest.raises(Conflict):
            await open_loop("one", "another task", store=other)


async def store_reads_one_snapshot(make: Callable[[], Store]) -> None:
    """A read sees the database as it was at its first statement, despite writers."""
    async with opened(make) as store, opened(make) as other:
        loop = asyncio.get_running_loop()

        def find_twice(db: Db, scope: Scope) -> list[frozenset[str]]:
            before = session_marks.find(db, scope, SESSION, ["first"])
            write = write_mark(other, "first")
            asyncio.run_coroutine_threadsafe(write, loop).result(30)
            return [before, session_marks.find(db, scope, SESSION, ["first"])]

        assert await store.read(SCOPE, find_twice) == [frozenset()] * 2


# -- readers

# A made-up key of AWS, which nobody has.
SECRET = "AKIAIOSFODNN7EXAMPLE"
# Values that belong to no format of traces.
FOREIGN: tuple[Any, ...] = (
    None,
    [],
    {"type": "note"},
    {"events": [{"name": "click"}]},
    {"events": [{"type": "click", "id": 1}]},
    {"action": "labeled", "number": 7},
    {"type": "turn.prompt", "input": []},
    {"type": "reasoning", "summary": []},
    {"messages": ["hi"]},
    {"payload": {"id": 1}},
    {"message": "done", "level": "info"},
    "2026-01-31 12:00 started",
    '{"role": "user"}',
    b"\x1f\x8b",
)
# What a damaged file may have in place of a part.
DAMAGE: tuple[Any, ...] = (None, -1, "text", [None], {"a": [1]})


@dataclass(frozen=True, kw_only=True)
class SampleFile:
    """A class of readers, the decoded values of a file of its format, and a text in it.

    The file has an episode of at least two events, one of them with the text.
    """

    reader: type[Reader]
    values: Sequence[Any]
    text: str

    def read(self, values: Sequence[Any], **limits: int) -> list[Episode]:
        """Read values as heedful does: what is refused is left out."""
        reader = self.reader(Limits(**limits))
        episodes: list[Episode] = []
        for value in values:
            with suppress(UsageError):
                episodes += reader.add(value)
        with suppress(UsageError):
            episodes += reader.finish()
        return episodes


def variants(value: Any, new: Any) -> Iterator[Any]:
    """Yield copies of JSON data, each with something new in place of one part."""
    if isinstance(value, dict):
        for key, old in value.items():
            yield from ({**value, key: part} for part in (new, *variants(old, new)))
    if isinstance(value, list):
        entries = dict(enumerate(value))
        yield from ([*variant.values()] for variant in variants(entries, new))


async def reader_reads_its_format(sample: SampleFile) -> None:
    """A file gives the same episodes each time, with its texts and its format."""
    episodes = sample.read(sample.values)
    assert sample.text in repr(episodes)
    assert {episode.source for episode in episodes} == {sample.reader.source}
    assert sample.read(sample.values) == episodes
    assert sample.read(()) == []


async def reader_recognises_its_format_alone(sample: SampleFile) -> None:
    """A reader recognises its file, no other but chats' does, and nothing else."""
    source = sample.reader.source
    types = {sample.reader, *readers()}
    sources = {kind.source for kind in types if any(map(kind.begins, sample.values))}
    assert {source} <= sources <= {source, "chat"}
    assert not any(map(sample.reader.begins, FOREIGN))


async def reader_refuses_damaged_values(sample: SampleFile) -> None:
    """A value that is damaged at any place is read, or raises a UsageError."""
    for damage in DAMAGE:
        for values in variants([*sample.values], damage):
            digests = [episode.digest for episode in sample.read(values)]
            assert all(digests), values


async def reader_loses_nothing_beside_damage(sample: SampleFile) -> None:
    """A value that is damaged as a whole takes nothing from the values beside it."""
    for damage in DAMAGE:
        values = [part for value in sample.values for part in (damage, value)]
        assert sample.text in repr(sample.read(values)), damage


async def reader_removes_secrets(sample: SampleFile) -> None:
    """No secret of a file is in an episode."""
    text = json.dumps(sample.values).replace(sample.text, SECRET)
    assert SECRET not in repr(sample.read(json.loads(text)))


async def reader_keeps_its_limits(sample: SampleFile) -> None:
    """An episode has no more events than its limit, and says how many it left out."""
    episodes = sample.read(sample.values)
    counts = [len(episode.events) + episode.omitted for episode in episodes]
    limited = sample.read(sample.values, events=1)
    figures = [(len(episode.events), episode.omitted) for episode in limited]
    assert figures == [(1, count - 1) for count in counts]


STORE: tuple[Callable[[Callable[[], Store]], Awaitable[None]], ...] = (
    store_shows_a_write_to_all,
    store_undoes_what_fails,
    store_counts_in_the_database,
    store_refuses_what_conflicts,
    store_reads_one_snapshot,
)
READER: tuple[Callable[[SampleFile], Awaitable[None]], ...] = (
    reader_reads_its_format,
    reader_recognises_its_format_alone,
    reader_refuses_damaged_values,
    reader_loses_nothing_beside_damage,
    reader_removes_secrets,
    reader_keeps_its_limits,
)
