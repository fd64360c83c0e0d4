"""Traces that have ended become episodes soon after, without anybody asking.

The application: the routes behind the entrance.
"""

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
SELDOM, SLOWER = 60.0, 1.5
# So much later than a trace has settled, lest a look come a moment too soon.
LATER = 0.05


class Gathering:
    """Looks at the traces of scopes to which spans came, until none waits there any more.

    What a process that was killed has left behind is found by the next that gets spans of its
    scope. Two that look at a time do no harm.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._looking: dict[Scope, tuple[asyncio.Task[None], asyncio.Event]] = {}

    def soon(self, scope: Scope) -> None:
        """Spans came: look when they have settled."""
        under_way = self._looking.get(scope)
        if under_way is not None and not under_way[0].done():
            under_way[1].set()
            return
        came = asyncio.Event()
        # In a context of its own: what it does is no part of the call that brought the spans.
        task = asyncio.create_task(self._look(scope, came), context=Context())
        self._looking[scope] = task, came
        task.add_done_callback(lambda done: self._ended(scope, done))

    def _ended(self, scope: Scope, task: asyncio.Task[None]) -> None:
        if self._looking[scope][0] is task:  # else spans came just then
            del self._looking[scope]

    async def close(self) -> None:
        """Look no more; what waits stays in the store."""
        tasks = [task for task, _ in self._looking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, scope: Scope, came: asyncio.Event) -> None:
        settled = self._setup.patience.settled + LATER
        wait: float | None = settled
        while wait is not None or came.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(came.wait(), wait)
                await asyncio.sleep(settled)
            new = came.is_set()
            came.clear()
            found = await self._gathered(scope)
            quick = new or bool(found.episodes)
            slower = settled if quick else max(settled, min(SELDOM, SLOWER * (wait or settled)))
            wait = None if found.again is None else slower

    async def _gathered(self, scope: Scope) -> Gathered:
        setup = self._setup
        try:
            found = await gather(setup.store, scope, setup.patience)
            for digest in found.episodes:
                await setup.work.defer("reflect", scope, digest=digest)
        except StoreError as error:
            log.warning("traces were not gathered, the next look will: %s", error)
            return Gathered(again=SELDOM)
        counts = {"episode": len(found.episodes), "empty": found.empty, "given_up": found.given_up}
        for outcome, n in counts.items():
            setup.metrics.gathered(outcome, n)
        return found


def application(setup: Setup) -> FastAPI:
    """The service as an ASGI application; whoever opened the store closes it."""
    gathering, callers = Gathering(setup), Callers(setup)

    @asynccontextmanager
    async def alive(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await gathering.close()

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
    app.state.setup, app.state.gathering, app.state.callers = setup, gathering, callers
    problems.install(app, SHAPES)
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = partial(describe, app, SHAPES)  # type: ignore[method-assign]
    return app
