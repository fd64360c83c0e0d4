"""Whether the service lives, and whether it can work."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import ClassVar, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, ConfigDict

from heedful.errors import StoreError
from heedful.http.described import page
from heedful.http.setup import Given

router: APIRouter = APIRouter(tags=["health"])


class Health(BaseModel):
    """That the process answers."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"example": {"status": "ok"}})

    status: str = "ok"


class Readiness(BaseModel):
    """What the service needs: `ok`, or the name of the error that it has."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={"example": {"status": "ready", "store": "ok", "work": "ok"}}
    )

    status: Literal["ready", "unavailable"]
    store: str
    work: str


@router.get("/healthz")
async def healthz() -> Health:
    """The process answers; nothing else is looked at."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness, "description": "It is not there."}})
async def readyz(setup: Given, response: Response) -> Readiness:
    """The store is reached and has the schema that this heedful needs, and work is handed over."""
    store, work = await _state(setup.store.keys.any()), await _state(setup.work.depth())
    ready = store == work == "ok"
    response.status_code = 200 if ready else 503
    return Readiness(status="ready" if ready else "unavailable", store=store, work=work)


async def _state(asked: Awaitable[object]) -> str:
    try:
        await asked
    except StoreError as error:
        return type(error).__name__
    return "ok"


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(setup: Given) -> Response:
    """What was counted, in Prometheus' text format."""
    try:
        waiting = await setup.work.depth()
    except StoreError:
        waiting = None  # which is told, too
    text = setup.metrics.text(waiting)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> Response:
    """What there is, for people: a page of the description."""
    safe = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    return HTMLResponse(page(request.app.openapi()), headers={"Content-Security-Policy": safe})
