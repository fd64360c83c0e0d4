"""heedful at the work of its peers: the loop, the durable loop and the memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

import heedful
from bench.peers.contract import Line, Work, serve, spread
from bench.peers.loop import (
    LONG_FAULTS,
    TASK,
    Double,
    check_answer,
    find_fault,
    find_long_fault,
    time_async_cycles,
    time_batches,
)
from bench.peers.memories import (
    DIMENSIONS,
    TOP,
    Lessons,
    measure_search,
    measure_store,
    memory_programs,
)
from bench.recall import PreparedEmbedder, letters
from heedful.checks.evaluate import Context
from heedful.lessons.lesson import ANY_LESSON
from heedful.memory.memory import MIN_LEG_CANDIDATES
from heedful.models.contract import Answer, Message
from heedful.models.embedding import space_of
from heedful.store import search
from heedful.store.connection import Db, key_of, token


def short(candidate: str, context: Context) -> list[heedful.Finding]:
    """Accept at most two words."""
    fault = find_fault(candidate)
    return [heedful.Finding("words", fault)] if fault else []


def short_at_length(candidate: str, context: Context) -> list[heedful.Finding]:
    """Accept at most two words, and say so in one finding of 2 kB."""
    fault = find_long_fault(candidate)
    return [heedful.Finding("words", fault)] if fault else []


def short_in_parts(candidate: str, context: Context) -> list[heedful.Finding]:
    """Accept at most two words, and say so in 2 kB: a finding for each sentence."""
    sentences = find_long_fault(candidate).split(". ")
    return [heedful.Finding("words", sentence) for sentence in sentences if sentence]


short.pure = True  # type: ignore[attr-defined]


class DoubleModel:
    """The double as a model of heedful."""

    name = "double"

    def __init__(self, double: Double) -> None:
        self.double = double

    async def complete(self, messages: Sequence[Message], **options: Any) -> Answer:
        """Return the next answer."""
        return Answer(self.double.ask(message.content for message in messages))

    async def close(self) -> None:
        """Do nothing: the double holds nothing open."""


async def cycle(double: Double, store: str | None) -> None:
    """Run a loop whose answers a function gives."""

    async def generate(task: str, hint: str) -> str:
        return double.ask([task, hint])

    result = await heedful.run(TASK, generate=generate, checks=[short], store=store)
    check_answer(result.candidate)


async def write_cycle(
    writer: heedful.Writer, memory: heedful.Memory | None = None
) -> None:
    """Run a loop whose answers a model writes."""
    result = await heedful.run(
        TASK,
        generate=writer,
        checks=[short],
        memory=memory,
        store=None,
    )
    check_answer(result.candidate)


def time_loop(work: Work) -> Iterator[Line]:
    """Time loops in memory, by a function and by a model."""
    yield from time_async_cycles(partial(cycle, Double(), None), work.times)
    writer = heedful.Writer(DoubleModel(Double()))
    yield from time_async_cycles(
        partial(write_cycle, writer), work.times, prefix="other_cycle"
    )


def time_durable_loop(work: Work) -> Iterator[Line]:
    """Time loops that are stored, one after the other."""
    yield from time_async_cycles(partial(cycle, Double(), work.file), work.times)


def time_loops_together(work: Work) -> Iterator[Line]:
    """Time batches of loops that are stored, for one loop of the batch."""
    batches = time_batches(lambda: cycle(Double(), work.file), work.times)
    yield from spread("cycle", asyncio.run(batches))


def count_bytes(work: Work) -> Iterator[Line]:
    """Count what is sent for eight failures of 2 kB: of one finding, and of many.

    A memory then has what a first task taught for the next one.
    """
    for check, prefix in ((short_at_length, "sent"), (short_in_parts, "parts_sent")):
        double = Double(failures=LONG_FAULTS)
        loop = heedful.run(
            TASK,
            generate=heedful.Writer(DoubleModel(double)),
            checks=[check],
            policy=heedful.Policy((heedful.MaxAttempts(LONG_FAULTS + 1),)),
            store=None,
        )
        check_answer(heedful.run_sync(loop).candidate)
        yield from double.report(prefix)

    double = Double()
    writer = heedful.Writer(DoubleModel(double))
    memory = heedful.Memory(work.file, holdout=0)
    heedful.run_sync(write_cycle(writer, memory))
    requests = len(double.sent)
    heedful.run_sync(write_cycle(writer, memory))
    yield double.report_next_task(requests)


class LessonMemory:
    """The memory in the file of the work."""

    def __init__(self, work: Work, lessons: Lessons) -> None:
        vectors = np.asarray(lessons.components).reshape(-1, DIMENSIONS)
        vectors_by_text = dict(zip(lessons.rows, vectors, strict=True))
        self.embedder = PreparedEmbedder(
            vectors_by_text,
            name="minilm-int8",
        )
        self.memory = heedful.Memory(work.file, embedder=self.embedder)
        self.runner = asyncio.Runner()
        self.numbers = dict[int, int]()

    def put(self, number: int, text: str) -> None:
        """Remember a lesson."""
        lesson = self.runner.run(self.memory.remember(letters(number), text))
        self.numbers[lesson.id] = number

    def search(self, query: str) -> list[int]:
        """Return the numbers of the lessons that are recalled."""
        matches = self.runner.run(self.memory.recall(query, TOP))
        return [self.numbers[match.id] for match in matches]

    def search_vectors(self, query: str) -> list[int]:
        """Return the numbers of the lessons whose vectors are nearest."""
        vector = self.embedder.vectors[query]
        reading = self.memory.store.read(self.memory.scope, self._by_vector, vector)
        ids = self.runner.run(reading)
        return [self.numbers[id] for id in ids[:TOP]]

    def _by_vector(self, db: Db, scope: heedful.Scope, vector: Any) -> list[int]:
        space = space_of(self.embedder)
        parameters = search.SearchParameters(
            db=db,
            key={**key_of(scope), "space": space, "memory_key": ""},
            corpus=db.run("read_corpus", {"scope": token(scope)}).fetchone(),
            limit=MIN_LEG_CANDIDATES,
            only=ANY_LESSON,
            waiting=False,
        )
        return list(search.by_vector(parameters, vector))

    def count_up(self, text: str) -> None:
        """Remember one error again."""
        self.runner.run(self.memory.remember("sighting", text))

    def count(self, text: str, most: int) -> tuple[int, int]:
        """Return how many lessons there are, and how often the error was seen."""
        rows = self.runner.run(self.memory.count())
        return rows, self.runner.run(self.memory.seen("sighting", text)).count


def keep_lessons(work: Work) -> Iterator[Line]:
    """Remember the lessons one by one, recall them, and search their vectors alone."""
    lessons = Lessons.read(work.inputs)
    memory = LessonMemory(work, lessons)
    yield from measure_store(lessons, memory.put)
    yield from measure_search(lessons, memory.search)
    yield from measure_search(lessons, memory.search_vectors, prefix="vector_search")


if __name__ == "__main__":
    serve(
        {
            "cycle": time_loop,
            "durable": time_durable_loop,
            "together": time_loops_together,
            "bytes": count_bytes,
            **memory_programs(LessonMemory),
            "lessons": keep_lessons,
        }
    )
