"""Begin a run whose id the host derives, such as from a session or a thread."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress

from heedful.errors import Conflict
from heedful.integrations.host import Advice, HostRun


async def begin_run(
    open: Callable[[str, str], HostRun], id: str, task: str
) -> tuple[HostRun, Advice]:
    """Begin or continue a run, and recall; `open` returns the run of an id and a task.

    An id of an ended run or of another task gets a random suffix.
    """
    run = open(id, task)
    with suppress(Conflict):
        advice = await run.recall()
        if not run.judges or (run.loop and not run.loop.ended):
            return run, advice

    run = open(f"{id}~{secrets.token_hex(4)}", task)
    return run, await run.recall()
