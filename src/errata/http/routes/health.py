"""Whether the service lives, and whether it can work."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from errata.errors import StoreError
from errata.http.setup import Given

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """That the process answers."""

    status: str = "ok"


class Readiness(BaseModel):
    """What the service needs, and whether it is there."""

    status: str
    store: str


@router.get("/healthz")
async def healthz() -> Health:
    """The process answers; nothing else is looked at."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness}})
async def readyz(setup: Given, response: Response) -> Readiness:
    """The store is reached; 503 where it is not."""
    try:
        await setup.store.keys.any()
    except StoreError as error:
        response.status_code = 503
        return Readiness(status="unavailable", store=type(error).__name__)
    return Readiness(status="ready", store="ok")


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(setup: Given) -> Response:
    """What was counted, in Prometheus' text format."""
    text = setup.metrics.text(await setup.work.depth())
    return Response(text, media_type=CONTENT_TYPE_LATEST)
