"""The application: the routes behind the entrance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from starlette.middleware import Middleware

from heedful import __version__
from heedful.http import problems
from heedful.http.caller import Callers
from heedful.http.described import describe, named
from heedful.http.entrance import Entrance
from heedful.http.gathering import Gathering
from heedful.http.routes import ROUTERS, SHAPES
from heedful.http.setup import Setup


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
        generate_unique_id_function=named,
        middleware=[Middleware(Entrance, setup=setup, callers=callers, shapes=SHAPES)],
    )
    app.state.setup, app.state.gathering, app.state.callers = setup, gathering, callers
    problems.install(app, SHAPES)
    for router in ROUTERS:
        app.include_router(router)
    app.openapi = partial(describe, app, SHAPES)  # type: ignore[method-assign]
    return app
