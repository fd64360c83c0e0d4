"""An episode as a store keeps it, to be reflected on later."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from heedful.errors import StoreError
from heedful.lessons.lesson import Trust
from heedful.memory.episode import Episode
from heedful.memory.memory import Memory
from heedful.store import episodes
from heedful.store.records import StoredEpisode
from heedful.traces.gather import Limits
from heedful.traces.lines import write
from heedful.traces.reading import read

_log = logging.getLogger("heedful")
# Events of a record.
RECORDED = 2_000


def file(episode: Episode, digest: str, trust: Trust) -> StoredEpisode:
    """An episode as a store keeps it: of a long one its first events and its last."""
    events, half = episode.events, RECORDED // 2
    if len(events) > RECORDED:
        left = episode.omitted + len(events) - RECORDED
        episode = replace(episode, events=(*events[:half], *events[-half:]), omitted=left)
    (line,) = write([episode])
    record = {"episode": json.loads(line), "source": episode.source, "trust": trust}
    return StoredEpisode(digest, episode.id, episode.session, episode.outcome, record)


def unfiled(one: StoredEpisode) -> tuple[Episode, Trust]:
    """The episode that a store kept, and from whom its task was."""
    line = json.dumps(one.record["episode"]).encode("ascii")
    limits = Limits(events=RECORDED, bytes=len(line))
    (episode,) = read(line, "heedful", limits)
    return replace(episode, source=one.record["source"]), one.record["trust"]


class OnRecord:
    """While an episode is at work: what ends that early is told, and put on record in `memory`.

    It is raised all the same. An interruption is no failure; the episode is free again. Meanwhile
    the claim on it is renewed, so that nobody else takes it.
    """

    def __init__(self, memory: Memory | None, digest: str) -> None:
        self._memory, self._digest = memory, digest
        self._beats: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        """Hold the episode, which was claimed before."""
        if self._memory is not None:
            self._beats = asyncio.create_task(self._beat(self._memory))

    async def _beat(self, memory: Memory) -> None:
        while True:
            await asyncio.sleep(episodes.LEASE / 3)
            with suppress(StoreError):  # the next one may get through
                await memory.store.write(memory.scope, episodes.beat, self._digest)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put on record what went wrong, where something did."""
        if self._beats is not None:
            self._beats.cancel()
        if error is None:
            return
        told = ""
        if isinstance(error, Exception):
            failed(error)
            told = f"{type(error).__name__}: {error}"
        if self._memory is not None:
            with suppress(StoreError):  # what went wrong first is raised
                await self._memory.store.write(
                    self._memory.scope, episodes.record_failure, self._digest, told
                )


def failed(error: Exception) -> None:
    """Tell of a failure without a word of what was read or answered."""
    where = "".join(traceback.format_tb(error.__traceback__))
    told = {"error": type(error).__name__, "traceback": where}
    _log.warning("reflection_generation_failed", extra=told)
