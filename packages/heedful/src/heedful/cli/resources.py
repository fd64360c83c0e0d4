"""The memory, the models and the judge that the settings of a command name.

Each is opened for one command and closed after it. Weights are downloaded before
anything else begins, so that no attempt waits for them.
"""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from heedful import doors
from heedful.cli.databases import ask_store, db_exists
from heedful.cli.printing import fetched
from heedful.cli.settings import (
    NO_MODEL,
    Settings,
    folder_of_code,
    is_stated,
    scope_of,
    settings,
)
from heedful.doors import JobQueue
from heedful.errors import UsageError
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.models import (
    embedder_here,
    names_function,
    open_embedder,
    open_model,
    weights,
)
from heedful.models.contract import Embedder, Model
from heedful.store import POSTGRES_PREFIXES
from heedful.store.projects import own_db, prepare_database
from heedful.store.store import Store

T = TypeVar("T")
# The share of labelled pairs that a judge must rank right. A coin would pass 1 of 170
# checks.
MIN_JUDGE_RIGHT_SHARE = 0.8


def ask(
    question: Callable[[Memory], Awaitable[T]],
    values: Settings | None = None,
    *,
    new: bool = False,
    stopped: str = "interrupted",
) -> T:
    """Open the memory of the settings, and return the result of `question` about it.

    Other `values` name another memory. `new` and `stopped` are those of `ask_store`.
    Raises NotFound, StoreError.
    """
    chosen = values or settings()
    return ask_store(
        chosen,
        lambda store: question(memory_of(chosen, store)),
        new=new,
        stopped=stopped,
    )


def ask_all(question: Callable[[Memory], Awaitable[T]]) -> list[tuple[str, T]]:
    """Ask the memory and, unless a database is stated, the user's own memory, too.

    Returns each database with its answer. Raises NotFound, StoreError.
    """
    values = settings()
    dbs = [values.db]

    if has_own_memory() and not is_stated("db"):
        dbs.append(str(own_db()))

    # If none exists, the first is asked all the same, for its error.
    existing = [db for db in dbs if db_exists(db)] or dbs[:1]
    return [(db, ask(question, replace(values, db=db))) for db in existing]


def ask_own(question: Callable[[Memory], Awaitable[T]], *, new: bool = False) -> T:
    """Open the user's own memory, and return the result of `question` about it.

    With `new`, it is made if it does not exist. Raises NotFound, StoreError.
    """
    db = str(own_db())
    prepare_database(db)
    values = replace(settings(), db=db, project=Scope().project)
    return ask(question, values, new=new)


def has_own_memory() -> bool:
    """Return True if the user has a memory besides that of the settings."""
    own_file = own_db()
    return own_file.exists() and own_file != Path(settings().db).absolute()


async def embed_later(scope: Scope) -> None:
    """Let a worker embed what was released, if workers do the jobs of the database."""
    queue_of_jobs = opened_queue(settings().db)
    if queue_of_jobs is not None:
        async with queue_of_jobs as queue:
            await queue.defer("embed", scope)


def opened_queue(db: str) -> AbstractAsyncContextManager[JobQueue] | None:
    """Return the queue of a database, to open with `async with`.

    Return None if its jobs are done in the process of the service, or if
    `heedful-server`, which has the queue, is not installed.
    """
    scheme = "postgresql" if db.startswith(POSTGRES_PREFIXES) else ""
    open_queue = doors.QUEUES.load(scheme)
    return None if open_queue is None else open_queue(db)


def memory_of(values: Settings, store: Store) -> Memory:
    """Return the memory of the scope, with the embedder of the settings."""
    return Memory(
        store,
        scope_of(values),
        embedder=embedder_of(values),
        holdout=values.holdout,
        max_entries=values.max_entries,
        strict=values.strict,
        trust=values.trust,
    )


@asynccontextmanager
async def opened_model(
    values: Settings, setting: str = "model"
) -> AsyncIterator[Model]:
    """Open the model, and close it after the block.

    Missing weights are downloaded first, so that no attempt waits for them. `setting`
    is as for `open_here`. Raises UsageError if the model is "none".
    """
    model = open_here(values, setting)
    if model is None:
        raise UsageError("model is none, but this command asks a model; name one")

    try:
        needed = weights.for_model(values.model)
        # Without its package, the model refuses the first call.
        if needed is not None and find_spec("xllamacpp") is not None:
            await weights.fetch(needed, cache=values.cache, progress=fetched)
        yield model
    finally:
        await model.close()


@asynccontextmanager
async def opened_models(values: Settings) -> AsyncIterator[list[Model]]:
    """Open all models of the settings, cheapest first, and close them after the block.

    Raises as `opened_model` does.
    """
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(opened_model(replace(values, model=name)))
            for name in values.models
        ]


def model_here(values: Settings) -> Model | None:
    """Open the model without a download.

    Return None if its name is "none", or if it is the default model and is not
    installed.
    """
    needed = weights.for_model(values.model)
    is_default = values.model == Settings.model
    if needed is not None and is_default:
        has_weights = needed.cached(values.cache).is_file()
        if not has_weights or find_spec("xllamacpp") is None:
            return None
    return open_here(values)


def open_here(values: Settings, setting: str = "model") -> Model | None:
    """Open the model without a download, or return None if its name is "none".

    `setting` is the setting that names it. Raises UsageError if the model is Python
    code that only a file found in the current folder names.
    """
    if values.model == NO_MODEL:
        return None

    if names_function(values.model):
        allow_imports(folder_of_code(setting))
    model = open_model(
        values.model,
        cache=values.cache,
        threads=values.threads,
        context=values.context,
        timeout=values.timeout,
    )
    # What heedful model judge found about a model is better than what its kind says.
    right, pairs = judge_results(values)[1].get(values.model, (0, 0))
    if pairs:
        is_capable = right >= MIN_JUDGE_RIGHT_SHARE * pairs
        model.is_capable = is_capable  # type: ignore[attr-defined]
    return model


def allow_imports(folder: Path) -> None:
    """Let `import` find modules in a folder first, as `python -m` does."""
    sys.path.insert(0, str(folder))


def embedder_of(values: Settings) -> Embedder | None:
    """Open the embedder, or return None if recall compares only words."""
    if not compares_meanings(values):
        return None
    return open_embedder("minilm", cache=values.cache, progress=fetched)


def compares_meanings(values: Settings) -> bool:
    """Return True if recall compares meanings, and not only words.

    With "auto" it does if the packages and weights for it are installed.
    """
    if values.embedder == "auto":
        return embedder_here(values.cache)
    return values.embedder == "minilm"


def judging(values: Settings) -> Settings:
    """Return the settings with the judge as the model."""
    return replace(values, model=values.judge)


def judge_results(values: Settings) -> tuple[Path, dict[str, tuple[int, int]]]:
    """Return the file in which the checks of judges are stored, and what it says.

    It maps each judge to the number of pairs that it ranked right, and of all its
    pairs; {} if the file is missing or damaged.
    """
    path = (values.cache or weights.default_cache()) / "judges.json"
    with suppress(OSError, ValueError):
        content = path.read_bytes()
        from pydantic import TypeAdapter  # slow to import

        adapter = TypeAdapter(dict[str, tuple[int, int]])
        return path, adapter.validate_json(content)
    return path, {}


def judge_doubt(values: Settings) -> str:
    """Return why it is doubtful that the judge can judge.

    "" if it has passed its check, or if there is no judge.
    """
    if values.judge == NO_MODEL:
        return ""

    _, results = judge_results(values)
    right, pairs = results.get(values.judge, (0, 0))
    if not pairs:
        return "nobody knows whether it can judge; run heedful model judge"
    if right >= MIN_JUDGE_RIGHT_SHARE * pairs:
        return ""
    return (
        f"it ranks {right} of {pairs} labelled pairs right, a judge needs "
        f"{MIN_JUDGE_RIGHT_SHARE:.0%}"
    )
