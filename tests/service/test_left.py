"""What a process that was killed has left is found by the next sweep."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest

from heedful.lessons.lesson import Scope
from heedful.memory.ingest import Patience, receive
from heedful.service.jobs import Depth, Tools, sweep
from heedful.store import episodes
from tests.engines import opened
from tests.service.jobs import OTHER, SCOPE
from tests.traces.runs import document, genai

pytestmark = pytest.mark.both


class Handed:
    """Work that is handed over, and done by nobody."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, Scope, dict[str, Any]]] = []

    async def defer(self, task: str, scope: Scope, **arguments: Any) -> None:
        self.jobs.append((task, scope, arguments))

    async def depth(self) -> Sequence[Depth]:
        return []


def test_a_trace_that_has_ended_is_an_episode_though_nobody_looked(tmp_path, monkeypatch):
    work, real = Handed(), time.time
    with opened(tmp_path / "w.db") as store:
        asyncio.run(receive(store, SCOPE, document(genai())))
        asyncio.run(receive(store, OTHER, document(genai()[:-1])))  # its root is to come
        asyncio.run(sweep(work, Tools(store)))
        assert work.jobs == []
        later = real() + Patience().settled + 1
        monkeypatch.setattr(time, "time", lambda: later)
        asyncio.run(sweep(work, Tools(store)))
        [one] = asyncio.run(store.read(SCOPE, episodes.newest, 9))
        assert work.jobs == [("reflect", SCOPE, {"digest": one.digest})]
        assert asyncio.run(store.read(OTHER, episodes.counts)) == {}
