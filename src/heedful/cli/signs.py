"""What `heedful doctor` tells of: signs, and those of what any database holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from heedful.cli.opening import embedder_of, scope_of
from heedful.cli.settings import Settings
from heedful.loop.feedback import clean
from heedful.store.database import Db

OPEN_LOOPS = "select id, owner, lease from loop where state = 'open' order by n"


@dataclass(frozen=True)
class Sign:
    """One thing that was looked at: whether it is well, what was found, what to do if not."""

    name: str
    well: bool
    found: str
    todo: str = ""


def contents(db: Db, values: Settings) -> Iterator[Sign]:
    """The signs of loops, vectors and episodes: of all that the connection may see."""
    yield _loops(db)
    yield from _vectors(db, values)
    yield from _episodes(db, values)


def _loops(db: Db) -> Sign:
    from heedful.store.loops import alive

    rows = db.execute(OPEN_LOOPS).fetchall()
    idle = [id for id, owner, lease in rows if not alive(owner, lease, time.time())]
    ids = ", ".join(clean(id, 60) for id in idle[:5])
    hint = f": {ids}; heedful run … --resume goes on" if ids else ""
    return Sign(
        "open loops", True, f"{len(rows) - len(idle)} running, {len(idle)} interrupted{hint}"
    )


def _vectors(db: Db, values: Settings) -> Iterator[Sign]:
    """Whether recall can compare all that was learnt by meaning, where it compares meanings."""
    from heedful.memory.spaces import Spaces, space_of
    from heedful.store.search import spaces

    if space := space_of(embedder_of(values)):
        found = Spaces.of(spaces(db, scope_of(values)), space)
        yield Sign("vectors", not found.behind, str(found), "heedful reembed")


def _episodes(db: Db, values: Settings) -> Iterator[Sign]:
    """Whether what was handed over to be reflected on was; why not, where it failed."""
    from heedful.store.episodes import counts, last_error

    scope = scope_of(values)
    found, why = counts(db, scope), clean(last_error(db, scope), 200)
    failed, waiting = found.get("failed", 0), found.get("waiting", 0)
    if found:
        said = f"{found.get('reflected', 0)} reflected on, {waiting} waiting, {failed} failed"
        said = f"{said} (the last: {why})" if why else said
        yield Sign("episodes", not failed, said, "heedful reflect --waiting")
