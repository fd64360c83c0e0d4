"""Do the texts of a Chroma collection help? A trial of them, and its proof.

Each invoice is a loop, and a coin decides whether its prompts have what Chroma finds.
`write_total` stands for a model: it knows the currency of a customer only if its prompt
says it. `Words` stands for an embedding model; without it, Chroma fetches its own.
"""

import asyncio
import re
from zlib import crc32

import chromadb
import numpy as np
from chromadb.api.types import Documents, EmbeddingFunction, Embeddings

import heedful

CURRENCIES = {"Ada": "EUR", "Bo": "SEK", "Cleo": "CHF", "Dan": "NOK"}
DIMENSIONS = 1024


class Words(EmbeddingFunction[Documents]):
    """Texts with the same words are near each other."""

    def __init__(self) -> None:
        """Take no configuration; Chroma stores that of an embedding function."""

    def __call__(self, input: Documents) -> Embeddings:
        """Return a vector for each text, with the counts of its words."""
        vectors = np.zeros((len(input), DIMENSIONS), dtype=np.float32)
        for vector, text in zip(vectors, input, strict=True):
            for word in re.findall("[a-z]+", text.lower()):
                vector[crc32(word.encode()) % DIMENSIONS] += 1
        return list(vectors)


settings = chromadb.Settings(anonymized_telemetry=False)
notes = chromadb.EphemeralClient(settings).create_collection(
    "notes", embedding_function=Words()
)
notes.add(
    ids=list(CURRENCIES),
    documents=[f"{name} pays in {code}." for name, code in CURRENCIES.items()],
)


trial = heedful.Trial("chroma", "invoices.db", holdout=0.3)


def from_chroma(task):
    """Return the note that is nearest to a task."""
    found = notes.query(query_texts=[task], n_results=1)
    return found["documents"][0]


async def write_total(task, hint):
    """Write a total in the currency that the notes or the hint name last."""
    texts = await trial.offer(heedful.context().loop_id, from_chroma(task))
    codes = re.findall("EUR|SEK|CHF|NOK", " ".join([*texts, hint]))
    return f"12.50 {codes[-1]}" if codes else "12.50"


def currency(answer, context):
    """Check that an answer has the currency of the customer."""
    code = CURRENCIES[context.task.split()[-1]]
    if code not in answer:
        yield heedful.Finding("currency", "wrong currency", fix=f"write {code}")


async def main():
    """Write the totals of 60 invoices, and print what the notes add."""
    for number in range(60):
        name = list(CURRENCIES)[number % len(CURRENCIES)]
        result = await heedful.run(
            f"Write the total of invoice {number} for {name}",
            generate=write_total,
            checks=[currency],
            store="invoices.db",
            id=f"invoice/{number}",
        )
        await trial.end(result.id, passed=result.passed and result.attempts == 1)

    proven = await trial.prove()
    uplift = proven.uplift
    print(proven.source, proven.conclusion)
    print(f"shown {proven.shown}: {uplift.shown:.0%} right at the first try")
    print(f"withheld {proven.withheld}: {uplift.withheld:.0%} right at the first try")


asyncio.run(main())
