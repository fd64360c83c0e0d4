"""What a command works with, opened as the settings say and closed when it is done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from errata.errors import NotFound
from errata.protocols import Embedder, Model, Scope, Store

if TYPE_CHECKING:
    from errata.cli.settings import Settings
    from errata.memory.memory import Memory

Progress = Callable[[str, int, int, str], None]
EMBEDDER = ("minilm-int8", "minilm-tokenizer")


def scope_of(settings: Settings) -> Scope:
    """Whose loops and lessons."""
    return Scope(settings.tenant, settings.project)


@asynccontextmanager
async def stored(settings: Settings, *, new: bool = False) -> AsyncIterator[Store]:
    """The store; raises NotFound where there is no such file, unless it may be `new`."""
    from errata.store import open_store

    if not new and not _exists(settings.db):
        raise NotFound("database", settings.db, "this folder; errata run makes one, --db names one")
    store = open_store(settings.db)
    try:
        yield store
    finally:
        await store.close()


def _exists(db: str) -> bool:
    return db == ":memory:" or Path(db).exists()


@asynccontextmanager
async def model_of(settings: Settings, progress: Progress | None = None) -> AsyncIterator[Model]:
    """The model, with its weights fetched where they are missing: no attempt's time pays for it."""
    from errata.models import open_model, weights

    model = open_model(
        settings.model,
        cache=settings.cache,
        threads=settings.threads,
        context=settings.context,
        timeout=settings.timeout,
        progress=progress,
    )
    try:
        if needed := weights.needed(settings.model):
            await weights.fetch(needed, cache=settings.cache, progress=progress)
        yield model
    finally:
        await model.close()


def memory_of(settings: Settings, store: Store, progress: Progress | None = None) -> Memory:
    """The memory of the scope; with an embedder where the settings and the machine give one."""
    from errata.memory.memory import Memory

    return Memory(store, scope_of(settings), _embedder(settings, progress))


def embedding(settings: Settings) -> str:
    """How recall compares: "minilm" (meanings) or "none" (words).

    `auto` takes minilm where its packages are installed and its weights are in the cache.
    """
    if settings.embedder != "auto":
        return settings.embedder
    from errata.models import weights

    there = all(weights.find(name).cached(settings.cache).is_file() for name in EMBEDDER)
    installed = find_spec("onnxruntime") is not None and find_spec("tokenizers") is not None
    return "minilm" if there and installed else "none"


def _embedder(settings: Settings, progress: Progress | None) -> Embedder | None:
    from errata.models import open_embedder

    name = embedding(settings)
    return None if name == "none" else open_embedder(name, cache=settings.cache, progress=progress)
