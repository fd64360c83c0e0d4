"""The database that the settings of a command name, opened for one command."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from heedful.cli.exits import run_interruptibly
from heedful.cli.settings import Settings, scope_of, seconds, settings
from heedful.errors import NotFound, StoreUnavailable, missing_folder
from heedful.lessons.scope import Scope
from heedful.store import open_store
from heedful.store.projects import prepare_database, user_folder
from heedful.store.store import Store

T = TypeVar("T")
# Whoever looks once a month has seen a loop before it goes.
MIN_KEPT_DAYS = 31
NAME_DATABASE_HINT = (
    "; pass --db with the file that your program names, or let heedful run create one"
)


def ask_store(
    values: Settings,
    question: Callable[[Store], Awaitable[T]],
    *,
    new: bool = False,
    stopped: str = "interrupted",
) -> T:
    """Open the store and return the result of `question` about it.

    `new` allows a database file that does not exist. After Ctrl-C, `stopped` is
    printed. Raises NotFound, StoreError.
    """

    async def work() -> T:
        async with opened_store(values, new=new) as store:
            return await question(store)

    return run_interruptibly(work(), lambda: stopped)


def ask_scope(
    question: Callable[[Store, Scope], Awaitable[T]], *, new: bool = False
) -> T:
    """Open the store, and return the result of `question` in the scope of the settings.

    `new` is that of `ask_store`. Raises NotFound, StoreError.
    """
    values = settings()
    scope = scope_of(values)
    return ask_store(values, lambda store: question(store, scope), new=new)


def read(function: Callable[..., T], *arguments: object) -> T:
    """Return the result of a function of the store, in the scope of the settings.

    Raises NotFound, StoreError.
    """
    return ask_scope(lambda store, scope: store.read(scope, function, *arguments))


def removal_seconds(values: Settings) -> tuple[float | None, float | None]:
    """Return after how many seconds unused lessons, and ended loops, are removed.

    Raises InvalidInput.
    """
    unused = seconds("forget", values.forget)
    return unused, seconds("forget_loops", values.forget_loops, min_days=MIN_KEPT_DAYS)


def db_exists(db: str) -> bool:
    """Return True if `db` is a file that exists, or a URL, such as that of a server."""
    return "://" in db or Path(db).exists()


def check_database(db: str, *, new: bool) -> None:
    """Raise NotFound if the file `db` does not exist and may not be `new`.

    Raises StoreUnavailable if it may be new, and its folder does not exist.
    """
    if db_exists(db):
        return
    folder = Path(db).absolute().parent
    if not new:
        place = f"the folder {folder}"
        raise NotFound("database", db, place, remedy=NAME_DATABASE_HINT)
    # heedful makes the folders of its own.
    if not (folder.is_dir() or folder.is_relative_to(user_folder())):
        raise StoreUnavailable(f"no database {db!r} in {missing_folder(str(folder))}")


@asynccontextmanager
async def opened_store(values: Settings, *, new: bool = False) -> AsyncIterator[Store]:
    """Open the store, and close it after the block.

    Raises NotFound, StoreUnavailable.
    """
    check_database(values.db, new=new)
    store = open_store(prepare_database(values.db))
    try:
        yield store
    finally:
        await store.close()
