"""Ask an embedder for vectors and check its answer."""

from collections.abc import Sequence

from heedful.errors import ModelUnavailable
from heedful.models.contract import Embedder
from heedful.validation import require

# What a halfvec of pgvector can hold: this many numbers, each below this bound.
MAX_VECTOR_DIMENSIONS = 16_000
MAX_HALF_NUMBER = 65_504
# The embedder of a process is loaded in 0.5 s, or 3 s on a busy machine; the rest is
# for fetching its weights.
EMBEDDER_LOAD_SECONDS = 10.0


def space_of(embedder: Embedder | None) -> str:
    """Return the name of the embedder's space, "" for None."""
    return f"{embedder.name}/{embedder.dimensions}" if embedder is not None else ""


def state_of(embedder: Embedder | None) -> str:
    """Return "none", "not loaded yet" or "ok": an embedder is loaded when it is needed.

    One that runs elsewhere is always "ok".
    """
    if embedder is None:
        return "none"
    return "ok" if getattr(embedder, "is_loaded", True) else "not loaded yet"


async def embed(embedder: Embedder, texts: Sequence[str]) -> Sequence[Sequence[float]]:
    """Return a vector for each text. Raises InvalidInput if one cannot be stored."""
    answer = embedder.embed(texts)
    is_async = hasattr(answer, "__await__")
    require(is_async, "embedder", embedder.name, "one whose method `embed` is async")

    vectors = await answer
    lengths = {len(vector) for vector in vectors}
    require(
        len(vectors) == len(texts) and lengths <= {embedder.dimensions},
        "embedder",
        f"{len(vectors)} vectors of {sorted(lengths)} numbers from {embedder.name}",
        f"{len(texts)} of {embedder.dimensions} numbers each",
    )
    require(
        0 < embedder.dimensions <= MAX_VECTOR_DIMENSIONS,
        "embedder.dimensions",
        embedder.dimensions,
        f"1 to {MAX_VECTOR_DIMENSIONS}",
    )

    import numpy as np  # slow to import

    are_small = (np.abs(np.asarray(vectors)) < MAX_HALF_NUMBER).all()
    allowed = f"one that gives finite numbers below {MAX_HALF_NUMBER}"
    require(are_small, "embedder", embedder.name, allowed)
    return vectors


async def load_embedder(embedder: Embedder | None) -> None:
    """Load an embedder that runs in this process: its first call does otherwise.

    Raises WeightsError, and ModelUnavailable if it takes more than 10 seconds.
    """
    load = getattr(embedder, "load", None)
    if embedder is None or load is None:
        return
    import asyncio  # hooks load no embedder

    try:
        async with asyncio.timeout(EMBEDDER_LOAD_SECONDS):
            await load()
    except TimeoutError as error:
        raise ModelUnavailable(
            f"{embedder.name} was not loaded within {EMBEDDER_LOAD_SECONDS:g} s; fetch "
            "its weights before: heedful model fetch"
        ) from error
