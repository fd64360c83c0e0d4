"""The application: the routes behind the entrance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.middleware import Middleware

from errata import __version__
from errata.http import problems
from errata.http.entrance import Entrance
from errata.http.routes import ROUTERS, SHAPES
from errata.http.setup import Setup


def application(setup: Setup) -> FastAPI:
    """The service as an ASGI application; it closes the store when it is shut down."""

    @asynccontextmanager
    async def alive(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await setup.store.close()

    app = FastAPI(
        title="errata",
        version=__version__,
        summary="When to think again, when to stop, and never the same mistake twice.",
        lifespan=alive,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        middleware=[Middleware(Entrance, setup=setup, shapes=SHAPES)],
    )
    app.state.setup = setup
    problems.install(app, SHAPES)
    for router in ROUTERS:
        app.include_router(router)
    return app
