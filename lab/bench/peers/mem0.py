"""mem0 in its default store, Qdrant on disk in the process, without its model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from langchain_core.embeddings import Embeddings
from mem0 import Memory

from bench.peers.contract import Line, Work, serve
from bench.peers.memories import (
    DIMENSIONS,
    TOP,
    Lessons,
    measure_search,
    measure_store,
    write_together,
    write_until_killed,
)

USER = "bench"


class PreparedEmbeddings(Embeddings):
    """heedful's embedder, whose vectors were made beforehand."""

    def __init__(self, lessons: Lessons) -> None:
        self.lessons = lessons

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of the texts."""
        return self.lessons.embed(texts)

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a text."""
        return self.lessons.embed_one(text)


def open_memory(work: Work, lessons: Lessons) -> Any:
    """Return the memory in the folder of the work."""
    store = {
        "path": f"{work.folder}/qdrant",
        "on_disk": True,
        "collection_name": "lessons",
        "embedding_model_dims": DIMENSIONS,
    }
    embedder = {
        "model": PreparedEmbeddings(lessons),
        "embedding_dims": DIMENSIONS,
    }
    return Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": store},
            "embedder": {"provider": "langchain", "config": embedder},
            # It is never asked: nothing is inferred.
            "llm": {"provider": "openai", "config": {"api_key": "none"}},
            "history_db_path": f"{work.folder}/history.db",
        }
    )


def keep_lessons(work: Work) -> Iterator[Line]:
    """Add the lessons one by one and search them."""
    lessons = Lessons.read(work.inputs)
    memory = open_memory(work, lessons)

    def add(number: int, text: str) -> None:
        metadata = {"number": number}
        memory.add(text, user_id=USER, metadata=metadata, infer=False)

    def search(query: str) -> list[int]:
        only = {"user_id": USER}
        answer = memory.search(query, top_k=TOP, filters=only, threshold=0.0)
        return [match["metadata"]["number"] for match in answer["results"]]

    yield from measure_store(lessons, add)
    yield from measure_search(lessons, search)


def keep_sighting(work: Work) -> Iterator[Line]:
    """Add one error again and again: it has no key by which it could be counted."""
    lessons = Lessons.read(work.inputs)
    text = lessons.texts[0]
    memories = list[Any]()

    def add() -> None:
        # Qdrant on disk is for one process; another is refused when it opens it.
        if not memories:
            memories.append(open_memory(work, lessons))
        memories[0].add(text, user_id=USER, infer=False)

    yield from write_together(add, work.times)


def keep_writing(work: Work) -> Iterator[Line]:
    """Add lessons until the process is killed."""
    lessons = Lessons.read(work.inputs)
    memory = open_memory(work, lessons)

    def add(number: int) -> None:
        memory.add(lessons.text_of(number), user_id=USER, infer=False)

    yield from write_until_killed(add, work.times)


def count_rows(work: Work) -> Iterator[Line]:
    """Count the memories; each is a sighting."""
    memory = open_memory(work, Lessons.read(work.inputs))
    answer = memory.get_all(filters={"user_id": USER}, top_k=work.times)
    yield Line(figure="rows", value=len(answer["results"]))
    yield Line(figure="counted", value=len(answer["results"]))


if __name__ == "__main__":
    serve(
        {
            "lessons": keep_lessons,
            "sighting": keep_sighting,
            "write": keep_writing,
            "count": count_rows,
        }
    )
