"""Routes for finished runs of agents, sent as episodes or as OpenTelemetry traces."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from heedful.errors import InvalidInput
from heedful.memory.ingest import receive
from heedful.memory.reflect import to_stored_episode
from heedful.service.auth import Paged, Reading, Writing
from heedful.service.middleware import PROTOBUF
from heedful.service.problems import Problem
from heedful.service.schemas import Document, EpisodeRow, NewEpisode
from heedful.service.wire import Page
from heedful.store import episodes, records
from heedful.traces.episode import Limits
from heedful.traces.messages import EpisodeReader

router: APIRouter = APIRouter(prefix="/v1", tags=["episodes"])
_JSON = "application/json"
Trust = Annotated[
    Literal["external", "operator"],
    Query(description="Who wrote the task; `operator` needs a key that may approve."),
]


@router.post("/episodes", status_code=202, responses={200: {"model": Document}})
async def create(
    new: NewEpisode, caller: Writing, response: Response, trust: Trust = "external"
) -> Document:
    """Store a finished run, so that a worker reflects on it; a repeated call stores nothing more.

    200 if heedful has already reflected on the run, else 202. Lessons from the text of tools,
    documents and users wait in quarantine.
    """
    if not new.events and new.fault is None:
        raise InvalidInput("events", [], "at least one event, or a fault")
    caller.needs("approve" if trust == "operator" else "write")
    plain = new.model_dump(mode="json", exclude={"tenant"}, exclude_unset=True)
    [episode] = await asyncio.to_thread(EpisodeReader(Limits()).add, {"events": [], **plain})
    stored = await asyncio.to_thread(to_stored_episode, episode, trust)
    state = await episodes.put(caller.setup.store, caller.scope, stored)
    if state != "reflected":
        await caller.setup.work.defer("reflect", caller.scope, digest=episode.digest)
    response.status_code = 200 if state == "reflected" else 202
    return {"digest": episode.digest, "state": state}


@router.get("/episodes")
async def listed(
    caller: Reading, page: Paged, state: records.EpisodeState | None = None
) -> Page[EpisodeRow]:
    """List the episodes and their states, newest first."""
    rows = await caller.read(episodes.page, page.limit + 1, state or "", page.cursor or "")
    return Page[EpisodeRow].of(rows, page.limit, "digest")


traces_router: APIRouter = APIRouter(prefix="/v1", tags=["traces"])


@traces_router.post("/traces", response_class=Response)
async def traces(request: Request, caller: Writing, trust: Trust = "external") -> Response:
    """Receive spans of agents over OTLP/HTTP, in any order and from any number of services.

    Soon after the root span of a trace has ended, the trace becomes one episode. The answer reports
    spans that cannot be stored as `partial_success`.
    """
    caller.needs("approve" if trust == "operator" else "write")
    kind = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
    body = await request.body()
    try:
        sent: Any = body if kind == PROTOBUF else json.loads(body)
        refused = await receive(caller.setup.store, caller.scope, sent, trust)
    except (InvalidInput, ValueError, RecursionError) as error:
        raise Problem(400, "invalid_traces", f"not OTLP: {error}") from error
    caller.setup.metrics.refused.inc(refused.total())
    total, why = refused.total(), "; ".join(f"{n} spans: {why}" for why, n in refused.items())
    if kind == PROTOBUF:
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as wire

        answer = wire.ExportTraceServiceResponse()
        if total:
            answer.partial_success.rejected_spans = total
            answer.partial_success.error_message = why
        return Response(answer.SerializeToString(), media_type=PROTOBUF)
    # Protobuf writes 64-bit integers as text in JSON.
    part = {"partialSuccess": {"rejectedSpans": str(total), "errorMessage": why}}
    return Response(json.dumps(part if total else {}), media_type=_JSON)
