"""The work of a memory, the same for every peer; the standard library is enough."""

from __future__ import annotations

import json
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Protocol

from bench.peers.contract import Line, Program, Work, describe, spread

DIMENSIONS = 384
TOP = 5


@dataclass(frozen=True, kw_only=True)
class Lessons:
    """Texts to remember and queries, all with their vectors.

    `nearest` are, for each query, the numbers of the lessons that an exact scan finds.
    `rows` says where the vector of a text stands in `components`.
    """

    texts: Sequence[str]
    queries: Sequence[str]
    nearest: Sequence[Sequence[int]]
    rows: Mapping[str, int]
    components: array[float]

    @classmethod
    def read(cls, folder: str) -> Lessons:
        """Read the folder that `write_lessons` wrote."""
        fields = json.loads(Path(folder, "lessons.json").read_text("utf-8"))
        components = array("f")
        components.frombytes(Path(folder, "vectors.f32").read_bytes())
        texts = [*fields["texts"], *fields["queries"]]
        return cls(
            texts=fields["texts"],
            queries=fields["queries"],
            nearest=fields["nearest"],
            rows={text: row for row, text in enumerate(texts)},
            components=components,
        )

    def text_of(self, number: int) -> str:
        """Return the text of a number; they begin again after the last one."""
        return self.texts[number % len(self.texts)]

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of the texts, which were embedded beforehand."""
        return [self.embed_one(text) for text in texts]

    def embed_one(self, text: str) -> list[float]:
        """Return the vector of a text."""
        begin = self.rows[text] * DIMENSIONS
        return self.components[begin : begin + DIMENSIONS].tolist()


def write_lessons(
    folder: Path,
    *,
    texts: Sequence[str],
    queries: Sequence[str],
    nearest: Sequence[Sequence[int]],
    vectors: bytes,
) -> None:
    """Write what `Lessons.read` reads; the vectors are float32, texts then queries."""
    fields = {"texts": texts, "queries": queries, "nearest": nearest}
    Path(folder, "lessons.json").write_text(json.dumps(fields), "utf-8")
    Path(folder, "vectors.f32").write_bytes(vectors)


def measure_store(
    lessons: Lessons, store: Callable[[int, str], object]
) -> Iterator[Line]:
    """Store all lessons, one by one, by their numbers and texts."""
    began = time.perf_counter()
    for number, text in enumerate(lessons.texts):
        store(number, text)
    seconds = time.perf_counter() - began
    yield Line(figure="stored", value=len(lessons.texts))
    yield Line(figure="store_ms", value=seconds / len(lessons.texts) * 1e3)


def measure_search(
    lessons: Lessons, search: Callable[[str], Sequence[int]], *, prefix: str = "search"
) -> Iterator[Line]:
    """Search each query and compare the `TOP` numbers with those of the exact scan."""
    search(lessons.queries[0])
    seconds = []
    shares = []
    for query, nearest in zip(lessons.queries, lessons.nearest, strict=True):
        began = time.perf_counter()
        numbers = search(query)
        seconds.append(time.perf_counter() - began)
        shares.append(len(set(numbers) & set(nearest)) / len(nearest))
    yield from spread(prefix, seconds)
    yield Line(figure=f"{prefix}_recall", value=mean(shares))


def write_together(write: Callable[[], object], times: int) -> Iterator[Line]:
    """Say `ready`, wait for a line on stdin, and write the same sighting so often.

    Yields a line for each sighting that was acknowledged, and for each refused one its
    error.
    """
    yield Line(figure="ready")
    sys.stdin.readline()
    for _ in range(times):
        try:
            write()
        except Exception as error:  # user code: whatever a peer raises is its answer
            yield Line(figure="refused", value=1, text=describe(error))
        else:
            yield Line(figure="acknowledged", value=1)


def write_until_killed(write: Callable[[int], object], times: int) -> Iterator[Line]:
    """Write lesson after lesson, and yield a line for each that was acknowledged."""
    for number in range(times):
        write(number)
        yield Line(figure="acknowledged", value=1)


class MemoryPeer(Protocol):
    """The memory of a peer, in the folder of the work."""

    def put(self, number: int, text: str) -> None:
        """Store a lesson."""

    def search(self, query: str) -> list[int]:
        """Return the numbers of the `TOP` lessons that fit best."""

    def count_up(self, text: str) -> None:
        """Store one more sighting of an error."""

    def count(self, text: str, most: int) -> tuple[int, int]:
        """Return how many rows there are, at most `most`, and how many sightings."""


def memory_programs(
    open_peer: Callable[[Work, Lessons], MemoryPeer],
) -> dict[str, Program]:
    """Return the programs of a peer whose memory `open_peer` opens."""

    def opened(work: Work) -> tuple[Lessons, MemoryPeer]:
        lessons = Lessons.read(work.inputs)
        return lessons, open_peer(work, lessons)

    def keep_lessons(work: Work) -> Iterator[Line]:
        """Store the lessons one by one and search them."""
        lessons, peer = opened(work)
        yield from measure_store(lessons, peer.put)
        yield from measure_search(lessons, peer.search)

    def keep_sighting(work: Work) -> Iterator[Line]:
        """Store one error again and again, beside other processes."""
        # A store for one process refuses another that opens it: that is an answer, too.
        open_once = cache(opened)

        def count_up() -> None:
            lessons, peer = open_once(work)
            peer.count_up(lessons.texts[0])

        yield from write_together(count_up, work.times)

    def keep_writing(work: Work) -> Iterator[Line]:
        """Store lessons until the process is killed."""
        lessons, peer = opened(work)

        def put(number: int) -> None:
            peer.put(number, lessons.text_of(number))

        yield from write_until_killed(put, work.times)

    def count_rows(work: Work) -> Iterator[Line]:
        """Count the lessons, and the sightings of the one error."""
        lessons, peer = opened(work)
        rows, sightings = peer.count(lessons.texts[0], work.times)
        yield Line(figure="rows", value=rows)
        yield Line(figure="counted", value=sightings)

    return {
        "lessons": keep_lessons,
        "sighting": keep_sighting,
        "write": keep_writing,
        "count": count_rows,
    }
