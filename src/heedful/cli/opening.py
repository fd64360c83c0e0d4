"""What a command works with, opened as the settings say and closed when it is done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from heedful.cli.interrupt import drive
from heedful.cli.settings import Settings, settings
from heedful.errors import NotFound
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.models.contract import Embedder, Model
from heedful.store import POSTGRES
from heedful.store.store import Store

T = TypeVar("T")
Progress = Callable[[str, int, int, str], None]
EMBEDDER = ("minilm-int8", "minilm-tokenizer")


def ask(db: str | None, question: Callable[[Memory], Awaitable[T]]) -> T:
    """What a stored memory (its `store`, its `scope`) answers. Raises NotFound, StoreError."""

    async def asked() -> T:
        values = settings(db=db)
        async with stored(values) as store:
            return await question(memory_of(values, store))

    return drive(asked())


def scope_of(values: Settings) -> Scope:
    """Whose loops and lessons."""
    return Scope(values.tenant, values.project)


@asynccontextmanager
async def stored(values: Settings, *, new: bool = False) -> AsyncIterator[Store]:
    """The store; raises NotFound where there is no such file, unless it may be `new`."""
    from heedful.store import open_store

    store = open_store(values.db if new else _there(values.db))
    try:
        yield store
    finally:
        await store.close()


def _there(db: str) -> str:
    if not db.startswith(POSTGRES) and not Path(db).exists():
        where = "this folder; check the path, or let heedful run make one (records end in .jsonl)"
        raise NotFound("database", db, where)
    return db


@asynccontextmanager
async def model_of(values: Settings, progress: Progress | None = None) -> AsyncIterator[Model]:
    """The model, with its weights fetched where they are missing: no attempt's time pays for it."""
    from heedful.models import weights

    model = _opened(values)
    try:
        if needed := weights.needed(values.model):
            await weights.fetch(needed, cache=values.cache, progress=progress)
        yield model
    finally:
        await model.close()


def model_here(values: Settings) -> Model | None:
    """The model; None where it would be embedded and is not here: a service fetches nothing."""
    from heedful.models import weights

    if needed := weights.needed(values.model):
        there = needed.cached(values.cache).is_file() and find_spec("xllamacpp") is not None
        if not there and values.model == Settings.model_fields["model"].default:
            return None
    return _opened(values)


def _opened(values: Settings) -> Model:
    from heedful.models import open_model

    return open_model(
        values.model,
        cache=values.cache,
        threads=values.threads,
        context=values.context,
        timeout=values.timeout,
    )


def wording(model: Model | None) -> str:
    """What words the lessons of runs, as a person is told."""
    return model.name if model is not None else "none: what runs teach goes by rules"


def memory_of(values: Settings, store: Store, progress: Progress | None = None) -> Memory:
    """The memory of the scope; with an embedder where the settings and the machine give one."""
    from heedful.memory.memory import Memory

    embedder = embedder_of(values, progress)
    return Memory(store, scope_of(values), embedder, holdout=values.holdout)


def embedder_of(values: Settings, progress: Progress | None = None) -> Embedder | None:
    """The embedder; None where recall compares words."""
    from heedful.models import open_embedder

    if not by_meaning(values):
        return None
    return open_embedder("minilm", cache=values.cache, progress=progress)


def by_meaning(values: Settings) -> bool:
    """Whether recall compares meanings.

    `auto` is so where the packages are installed and the weights are in the cache.
    """
    from heedful.models import weights

    if values.embedder != "auto":
        return values.embedder == "minilm"
    there = all(weights.find(name).cached(values.cache).is_file() for name in EMBEDDER)
    return there and None not in (find_spec("onnxruntime"), find_spec("tokenizers"))
