"""The application: the routes behind the middleware, and the collector of traces."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from functools import partial

from fastapi import FastAPI
from starlette.middleware import Middleware

from heedful import __version__
from heedful.errors import StoreError
from heedful.lessons.lesson import Scope
from heedful.memory.ingest import Gathered, gather
from heedful.service import problems
from heedful.service.auth import Callers
from heedful.service.middleware import Entrance
from heedful.service.openapi import describe, operation_id
from heedful.service.routes import ROUTERS, SHAPES
from heedful.service.setup import Setup

log: logging.Logger = logging.getLogger("heedful.http")
# The longest time between two looks at traces that wait, in seconds; and how it grows.
LONGEST_WAIT, GROWTH = 60.0, 1.5
# Seconds after a trace has settled, so that no look comes a moment too early.
MARGIN = 0.05


class TraceCollector:
    """Turns the traces of a scope into episodes, from its first span until no trace waits.

    If a process is killed, the next process that gets spans of the scope continues its work. Two
    processes may work on the same scope.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._looking: dict[Scope, tuple[asyncio.Task[None], asyncio.Event]] = {}

    def soon(self, scope: Scope) -> None:
        """Look for ended traces of the scope after a pause, because spans have arrived."""
        under_way = self._looking.get(scope)
        if under_way is not None and not under_way[0].done():
            under_way[1].set()
            return
        came = asyncio.Event()
        # In its own context, because it is not part of the call that brought the spans.
        task = asyncio.create_task(self._look(scope, came), context=Context())
        self._looking[scope] = task, came
        task.add_done_callback(lambda done: self._ended(scope, done))

    def _ended(self, scope: Scope, task: asyncio.Task[None]) -> None:
        if self._looking[scope][0] is task:  # otherwise new spans started another task
            del self._looking[scope]

    async def close(self) -> None:
        """Stop looking; waiting spans stay in the store."""
        tasks = [task for task, _ in self._looking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, scope: Scope, came: asyncio.Event) -> None:
        settled = self._setup.patience.settled + MARGIN
        wait: float | None = settled
        while wait is not None or came.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(came.wait(), wait)
                await asyncio.sleep(settled)
            new = came.is_set()
            came.clear()
            result = await self._collect(scope)
            if new or result.episodes:
                pause = settled
            else:
                pause = max(settled, min(LONGEST_WAIT, GROWTH * (wait or settled)))
            wait = None if result.again is None else pause

    async def _collect(self, scope: Scope) -> Gathered:
        setup = self._setup
        try:
            result = await gather(setup.store, scope, setup.patience)
            for digest in result.episodes:
                await setup.work.defer("reflect", scope, digest=digest)
        except StoreError as error:
            log.warning("traces were not gathered; the next round will try again: %s", error)
            return Gathered(again=LONGEST_WAIT)
        counts = {
            "episode": len(result.episodes),
            "empty": result.empty,
            "given_up": result.given_up,
        }
        for outcome, n in counts.items():
            setup.metrics.gathered(outcome, n)
        return result


def application(setup: Setup) -> FastAPI:
    """Return the service as an ASGI application; the caller closes the store."""
    collector, callers = TraceCollector(setup), Callers(setup)

    @asynccontextmanager
    async def alive(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await collector.close()

    app = FastAPI(
        title="heedful",
        version=__version__,
        summary="When to think again, when to stop, and never the same mistake twice.",
        lifespan=alive,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=operation_id,
        middleware=[Middleware(Entrance, setup=setup, callers=callers, shapes=SHAPES)],
    )
    app.state.setup, app.state.collector, app.state.callers = setup, collector, callers
    problems.install(app, SHAPES)
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = partial(describe, app, SHAPES)  # type: ignore[method-assign]
    return app
