"""One job: told of, in the trace of whoever handed it over, and when it is tried again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from heedful import telemetry
from heedful.errors import HeedfulError, NotFound, UsageError
from heedful.work.tasks import Job, Tools

# What became of a job, in words.
Told = Callable[[Job, str], None]
# Tries of a job, and the longest wait between two, in seconds: all of them take two hours.
TRIES = 13
LONGEST = 3_600.0


def untold(job: Job, what: str) -> None:
    """Nobody listens."""


def again_in(error: BaseException | None, tries: int) -> float | None:
    """Seconds until a job that failed `tries` times is tried again: 2, 4, 8 …; None for never.

    Never what fails the same way each time: wrong input, what is not there, or a defect of heedful.
    What a worker that stops has cut short is free for the next one at once.
    """
    if isinstance(error, asyncio.CancelledError):
        return 0.0
    lasting = isinstance(error, UsageError | NotFound) or not isinstance(error, HeedfulError)
    if lasting or tries >= TRIES:
        return None
    return min(LONGEST, 2.0**tries)


async def do(
    job: Job, tools: Tools, tries: int, carried: Mapping[str, str], told: Told = untold
) -> None:
    """Do a job, for the `tries`th time; `carried` names the trace that it belongs to.

    Raises what the task raises.
    """
    began = time.monotonic()
    told(job, "begun" if tries == 1 else f"begun again, try {tries}")
    try:
        with telemetry.task(job.task, job.scope, carried):
            await job.done(tools)
    except asyncio.CancelledError:
        told(job, "given back")
        raise
    except HeedfulError as error:
        wait = again_in(error, tries)
        after = "given up" if wait is None else f"again in {wait:g} s"
        told(job, f"{after}: {type(error).__name__}: {error}")
        raise
    told(job, f"done in {time.monotonic() - began:.2f} s")
