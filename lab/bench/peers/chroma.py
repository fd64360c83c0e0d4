"""Chroma in one process, on disk, with vectors passed in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import chromadb
from chromadb.config import Settings

from bench.peers.contract import Line, Work, serve
from bench.peers.memories import (
    TOP,
    Lessons,
    measure_search,
    measure_store,
    write_together,
    write_until_killed,
)


def open_collection(work: Work) -> Any:
    """Return the collection in the folder of the work."""
    settings = Settings(anonymized_telemetry=False)
    client = chromadb.PersistentClient(path=f"{work.folder}/chroma", settings=settings)
    return client.get_or_create_collection(
        "lessons",
        embedding_function=None,
        configuration={"hnsw": {"space": "cosine"}},
    )


def keep_lessons(work: Work) -> Iterator[Line]:
    """Add the lessons one by one and query them."""
    lessons = Lessons.read(work.inputs)
    collection = open_collection(work)

    def add(number: int, text: str) -> None:
        vector = lessons.embed_one(text)
        collection.add(ids=[str(number)], embeddings=[vector], documents=[text])

    def search(query: str) -> list[int]:
        vector = lessons.embed_one(query)
        answer = collection.query(query_embeddings=[vector], n_results=TOP)
        return [int(number) for number in answer["ids"][0]]

    yield from measure_store(lessons, add)
    yield from measure_search(lessons, search)


def keep_sighting(work: Work) -> Iterator[Line]:
    """Count one error in a record that has its text as the id."""
    text = Lessons.read(work.inputs).texts[0]
    vector = Lessons.read(work.inputs).embed_one(text)
    collection = open_collection(work)

    def count_up() -> None:
        metadatas = collection.get(ids=[text])["metadatas"]
        count = metadatas[0]["count"] if metadatas else 0
        collection.upsert(
            ids=[text],
            embeddings=[vector],
            documents=[text],
            metadatas=[{"count": count + 1}],
        )

    yield from write_together(count_up, work.times)


def keep_writing(work: Work) -> Iterator[Line]:
    """Add lessons until the process is killed."""
    lessons = Lessons.read(work.inputs)
    collection = open_collection(work)

    def add(number: int) -> None:
        text = lessons.text_of(number)
        vector = lessons.embed_one(text)
        collection.add(ids=[str(number)], embeddings=[vector], documents=[text])

    yield from write_until_killed(add, work.times)


def count_rows(work: Work) -> Iterator[Line]:
    """Count the records, and the sightings of the one error."""
    text = Lessons.read(work.inputs).texts[0]
    collection = open_collection(work)
    yield Line(figure="rows", value=collection.count())
    metadatas = collection.get(ids=[text])["metadatas"]
    yield Line(figure="counted", value=metadatas[0]["count"] if metadatas else 0)


if __name__ == "__main__":
    serve(
        {
            "lessons": keep_lessons,
            "sighting": keep_sighting,
            "write": keep_writing,
            "count": count_rows,
        }
    )
