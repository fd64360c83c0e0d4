"""mem0 in its default store, Qdrant on disk in the process, without its model."""

from __future__ import annotations

from typing import Any

from langchain_core.embeddings import Embeddings
from mem0 import Memory

from bench.peers.contract import Work, serve
from bench.peers.memories import DIMENSIONS, TOP, Lessons, memory_programs

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


class Memories:
    """The memory in the folder of the work; it has no key to count an error by."""

    def __init__(self, work: Work, lessons: Lessons) -> None:
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
        self.memory: Any = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "embedder": {"provider": "langchain", "config": embedder},
                # It is never asked: nothing is inferred.
                "llm": {"provider": "openai", "config": {"api_key": "none"}},
                "history_db_path": f"{work.folder}/history.db",
            }
        )

    def put(self, number: int, text: str) -> None:
        """Add a lesson."""
        self.memory.add(
            text,
            user_id=USER,
            metadata={"number": number},
            infer=False,
        )

    def search(self, query: str) -> list[int]:
        """Return the numbers of the lessons that fit best."""
        answer = self.memory.search(
            query,
            top_k=TOP,
            filters={"user_id": USER},
            threshold=0.0,
        )
        return [match["metadata"]["number"] for match in answer["results"]]

    def count_up(self, text: str) -> None:
        """Add the error again."""
        self.memory.add(text, user_id=USER, infer=False)

    def count(self, text: str, most: int) -> tuple[int, int]:
        """Return how many memories there are; each is a sighting."""
        answer = self.memory.get_all(filters={"user_id": USER}, top_k=most)
        number = len(answer["results"])
        return number, number


if __name__ == "__main__":
    serve(memory_programs(Memories))
