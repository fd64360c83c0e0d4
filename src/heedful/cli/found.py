"""Stored loops and runs of pipelines, found by what a user types."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from heedful.errors import NotFound, UsageError
from heedful.memory.memory import Memory
from heedful.reports import Report
from heedful.runs import is_run, report_of
from heedful.store import loops as loop_store
from heedful.store.records import StoredLoop

LAST = "last"
SHOWN = 10
LOOKED_AT = 200  # loops that begin alike, and loops among which a name like the given is looked for


async def loop_of(memory: Memory, name: str) -> StoredLoop:
    """The loop of that id, or the only one whose id begins so; `last`: the newest run.

    The beginning of a run is that of its stages, too, and means the run. Raises NotFound,
    UsageError.
    """
    try:
        return await memory.store.read(memory.scope, loop_store.read, name)
    except NotFound as error:
        if name == LAST and (newest := await newest_runs(memory, 1)):
            return newest[0]
        found = await memory.store.read(memory.scope, loop_store.newest, LOOKED_AT, name)
        if not found:
            raise await _nothing(memory, name, error) from None
    ends = tuple(f"{one.id}/" for one in found if is_run(one))
    found = [one for one in found if not one.id.startswith(ends)] if ends else found
    if len(found) == 1:
        return found[0]
    ids = ", ".join(sorted(one.id for one in found)[:SHOWN])
    more = ", …" if len(found) > SHOWN else ""
    raise UsageError(f"several loops begin with {name!r}: {ids}{more}; give more of the id")


async def run_of(memory: Memory, name: str) -> Report:
    """The run of a pipeline of that id, found as `loop_of` does. Raises NotFound, UsageError."""
    found = await loop_of(memory, name)
    if not is_run(found):
        hint = f"heedful why {found.id} tells it, heedful runs lists runs"
        raise UsageError(f"loop {found.id!r} is not the run of a pipeline; {hint}")
    return await report_of(memory.store, memory.scope, found.id)


async def newest_runs(memory: Memory, limit: int, pipeline: str = "") -> list[StoredLoop]:
    """The newest runs, newest first; of one pipeline, where its name is given."""
    asked = 8 * limit
    while True:
        found = await memory.store.read(memory.scope, loop_store.newest, asked)
        runs = [one for one in found if is_run(one)]
        runs = [one for one in runs if pipeline in ("", one.head.task["pipeline"])]
        if len(runs) >= limit or len(found) < asked:
            return runs[:limit]
        asked *= 4


async def _nothing(memory: Memory, name: str, error: NotFound) -> NotFound:
    """What was not found, with the ids that are like it."""
    if name == LAST:
        where = f"{memory.store.url}; no pipeline has run in this scope"
        return NotFound("loop", name, where)
    loops: Sequence[StoredLoop] = await memory.store.read(
        memory.scope, loop_store.newest, LOOKED_AT
    )
    near = get_close_matches(name, [one.id for one in loops], n=3)
    told = f"there is {', '.join(near)}" if near else "heedful loops and heedful runs list them"
    return NotFound("loop", name, f"{error.where}; {told}")
