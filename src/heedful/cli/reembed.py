"""`heedful reembed`: move what memory holds into the space of the embedder in use."""

from __future__ import annotations

from functools import partial

from heedful.cli.interrupt import drive
from heedful.cli.opening import memory_of, stored
from heedful.cli.output import Db, Json, counted, following, print_json, say, show
from heedful.cli.progress import Progress
from heedful.cli.settings import settings
from heedful.errors import UsageError
from heedful.memory.spaces import Spaces

STOPPED = "stopped; heedful reembed goes on where it was"


def reembed(db: Db = None, json: Json = False) -> int:
    """Give a vector to what recall cannot compare by meaning.

    After another embedder was chosen, or what was learnt without one. It may be stopped at any time
    and goes on where it was; recall goes on meanwhile.
    """

    async def moved(progress: Progress) -> tuple[int, Spaces]:
        values = settings(db=db)
        async with stored(values) as store:
            memory = memory_of(values, store, progress.fetched)
            if memory.embedder is None:
                raise UsageError(
                    "recall compares words here, which needs no vectors; for meanings install "
                    "heedful[embedded] and run it with HEEDFUL_EMBEDDER=minilm"
                )
            done = await memory.reembed(partial(_told, progress))
            return done, await memory.spaces()

    with Progress() as progress:
        done, spaces = drive(moved(progress), lambda: STOPPED)
    if json:
        print_json({"embedded": done, **spaces_to(spaces)})
    else:
        show(f"{counted(done, 'example')} embedded; {spaces}")
    return 0


def _told(progress: Progress, done: int, total: int) -> None:
    progress.counted("embedding", done, total, "examples")


def spaces_to(spaces: Spaces) -> dict[str, object]:
    """Where examples lie, as JSON data."""
    elsewhere = dict(spaces.elsewhere)
    found = {"here": spaces.here, "elsewhere": elsewhere, "nowhere": spaces.nowhere}
    return {"space": spaces.space, **found}


def warn(spaces: Spaces, db: str) -> None:
    """Say so on stderr where recall cannot compare everything by meaning."""
    if spaces.behind:
        say(f"by words alone: {counted(spaces.behind, 'example')} ({spaces})")
        say(following("reembed", db=db))
