"""Routes for operators: health, metrics, API documentation, keys and the audit log."""

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress
from math import nan
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from heedful import __version__
from heedful.errors import StoreError, StoreUnavailable
from heedful.lessons.lesson import Scope
from heedful.models.embedding import state_of
from heedful.store import keys as key_store
from heedful.store.connection import check_writes
from heedful.validation import Document
from heedful.wire import Page
from heedful_server import schemas
from heedful_server.auth import Administering, Paged, api_router
from heedful_server.jobs import Workload
from heedful_server.setup import MAX_CACHE_SECONDS, Setup

router = APIRouter(tags=["health"])
# A service without workers answers: it queues the work.
READY_STATES = {"ok", "no_worker", "behind"}
# What the page of the documentation may load: nothing but its own style.
DOCS_CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
)


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Return 200 if the process answers; nothing else is checked."""
    return {"status": "ok"}


class Readiness:
    """The last answer of `/readyz`, and damage of the store that a request met."""

    def __init__(self) -> None:
        # The holder of the lock asks the store and the job queue; others wait for it.
        self.probing = asyncio.Lock()
        # When they were asked last, in seconds of the monotonic clock.
        self.probed = float("-inf")
        self.states: dict[str, str] = {}
        # The name of the error; "" without damage. Only a restart can end it.
        self.damage = ""

    async def ask(self, setup: Setup) -> bool:
        """Ask the store and the job queue, or repeat an answer that is new enough.

        Return True if the service is ready.
        """
        async with self.probing:
            # It asks for the writer: a read does not show that the writer is stuck, or
            # that a server has become a standby.
            if time.monotonic() >= self.probed + MAX_CACHE_SECONDS:
                store = await _state(setup.store.write(Scope(), check_writes))
                work = store
                # The queue is in the same database: to ask it would only take longer.
                if store != StoreUnavailable.__name__:
                    work = await _state(setup.work.workload())
                self.states = {"store": self.damage or store, "work": work}
                self.probed = time.monotonic()
        return set(self.states.values()) <= READY_STATES


@router.head("/readyz", include_in_schema=False)
@router.get(
    "/readyz", responses={503: {"model": dict[str, str], "description": "Not ready."}}
)
async def readyz(request: Request, response: Response) -> dict[str, str]:
    """Return 200 if the store accepts writes and has the right schema, and the job
    queue answers.

    In the answer, `store` and `work` (the job queue) are `ok` or the name of an error.
    `work` may also be `no_worker` (jobs wait, and no worker is alive) or `behind` (a
    job has waited for ten minutes): the service is still ready. `embedder` is `ok`,
    `none`, or `not loaded yet`, as long as nothing was embedded. `version` is the
    version of heedful that answers.
    """
    readiness: Readiness = request.app.state.readiness
    setup: Setup = request.app.state.setup
    status = "ready"
    response.status_code = 200
    if not await readiness.ask(setup):
        status = "unavailable"
        response.status_code = 503
    states = {**readiness.states, "embedder": state_of(setup.embedder)}
    return {"status": status, **states, "version": __version__}


async def _state(call: Awaitable[object]) -> str:
    """Return the state of the workload that a call returns, or "ok" without one.

    If the call raises a StoreError, return its name.
    """
    try:
        answer = await call
    except StoreError as error:
        return type(error).__name__
    return answer.state if isinstance(answer, Workload) else "ok"


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Return metrics for Prometheus, without the jobs if the job queue does not
    answer.
    """
    setup: Setup = request.app.state.setup
    is_ready = await request.app.state.readiness.ask(setup)
    workload = Workload(depths=(), workers=nan)
    with suppress(StoreError):
        workload = await setup.work.workload()

    return Response(
        setup.metrics.text(workload, is_ready=is_ready), media_type=CONTENT_TYPE_LATEST
    )


@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> Response:
    """Return the API documentation as an HTML page without scripts."""
    return HTMLResponse(
        request.app.state.page(),
        headers={"Content-Security-Policy": DOCS_CONTENT_POLICY},
    )


def documentation(app: FastAPI) -> bytes:
    """Return the page of `/docs`."""
    from jinja2 import Environment, FileSystemLoader

    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parents[1]), autoescape=True
    )
    return templates.get_template("docs.html.j2").render(spec=app.openapi()).encode()


keys_router = api_router("keys")


@keys_router.get("/keys")
async def keys(caller: Administering, page: Paged) -> Page[schemas.KeyRow]:
    """List the keys of the tenant, newest first, without their secrets.

    A caller limited to projects sees only keys that are limited to these projects.
    """
    rows = await caller.read(
        key_store.newest, page.limit + 1, page.cursor or "", caller.key.projects
    )
    return Page[schemas.KeyRow].of(rows, page.limit, "id")


@keys_router.get("/audit")
async def audit(caller: Administering, page: Paged) -> Page[Document]:
    """List the audit log of the tenant, newest first.

    A caller limited to projects sees only entries about these projects.
    """
    rows = await caller.read(
        key_store.audit_rows, page.limit + 1, page.id or 0, caller.key.projects
    )
    return Page[Document].of(rows, page.limit, "n")
