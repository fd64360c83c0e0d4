"""Chroma in one process, on disk, with vectors passed in."""

from __future__ import annotations

from typing import Any

import chromadb
from chromadb.config import Settings

from bench.peers.contract import Work, serve
from bench.peers.memories import TOP, Lessons, memory_programs


class Collection:
    """The collection in the folder of the work; an error is counted by its text."""

    def __init__(self, work: Work, lessons: Lessons) -> None:
        client = chromadb.PersistentClient(
            path=f"{work.folder}/chroma",
            settings=Settings(anonymized_telemetry=False),
        )
        self.vector_of = lessons.embed_one
        self.collection: Any = client.get_or_create_collection(
            "lessons",
            embedding_function=None,
            configuration={"hnsw": {"space": "cosine"}},
        )

    def put(self, number: int, text: str) -> None:
        """Add a lesson."""
        self.collection.add(
            ids=[str(number)],
            embeddings=[self.vector_of(text)],
            documents=[text],
        )

    def search(self, query: str) -> list[int]:
        """Return the numbers of the nearest lessons."""
        answer = self.collection.query(
            query_embeddings=[self.vector_of(query)], n_results=TOP
        )
        return [int(number) for number in answer["ids"][0]]

    def sightings(self, text: str) -> int:
        """Return how often an error was counted."""
        metadatas = self.collection.get(ids=[text])["metadatas"]
        return int(metadatas[0]["count"]) if metadatas else 0

    def count_up(self, text: str) -> None:
        """Count one error in a record that has its text as the id."""
        metadata = {"count": self.sightings(text) + 1}
        self.collection.upsert(
            ids=[text],
            embeddings=[self.vector_of(text)],
            documents=[text],
            metadatas=[metadata],
        )

    def count(self, text: str, most: int) -> tuple[int, int]:
        """Return how many records there are, and the count of the error."""
        return self.collection.count(), self.sightings(text)


if __name__ == "__main__":
    serve(memory_programs(Collection))
