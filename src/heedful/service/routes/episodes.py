"""Finished runs of agents, sent as episodes or as traces from OpenTelemetry."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Scope
from heedful.memory.ingest import receive
from heedful.memory.reflect import file, reflect
from heedful.service.auth import Caller, Project, Reading, Writing
from heedful.service.middleware import PROTOBUF
from heedful.service.openapi import SCHEMAS
from heedful.service.problems import Problem
from heedful.service.schemas import (
    EpisodeReceipt,
    EpisodeRow,
    NewEpisode,
    ReflectionOutcome,
    TaskTrust,
)
from heedful.service.setup import RouteSetup, Setup
from heedful.service.wire import Cursor, Limit, Page, cursor_from
from heedful.store import episodes
from heedful.traces.episode import Episode, Limits
from heedful.traces.messages import EpisodeReader

router: APIRouter = APIRouter(prefix="/v1", tags=["episodes"])
Wait = Annotated[bool, Query(description="Wait until the episode was reflected on.")]
Trust = Annotated[
    TaskTrust,
    Query(description="Who wrote the task; `operator` needs a key that may approve."),
]
State = Annotated[Literal["waiting", "reflected", "failed"] | None, Query()]


def vouched(caller: Caller, trust: TaskTrust) -> TaskTrust:
    """Return who the task came from, if the key may say so. Raises Forbidden."""
    if trust == "operator":
        caller.needs("approve")
    return trust


@router.post("/episodes", status_code=202, responses={200: {"model": EpisodeReceipt}})
async def create(
    new: NewEpisode,
    caller: Writing,
    setup: RouteSetup,
    response: Response,
    project: Project = None,
    wait: Wait = False,
    trust: Trust = "external",
) -> EpisodeReceipt:
    """Store a finished run, once however often it is sent; a worker reflects on it.

    200 if reflecting is done. Text from tools, documents and users waits in quarantine, with all
    that derives from it.
    """
    scope = caller.scope(project, new.tenant)
    episode = await asyncio.to_thread(_episode, new)
    given = vouched(caller, trust)
    taken = await (_now if wait else _later)(setup, scope, episode, given)
    response.status_code = 200 if taken.state == "reflected" else 202
    return taken


@router.get("/episodes")
async def listed(
    caller: Reading,
    setup: RouteSetup,
    project: Project = None,
    state: State = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[EpisodeRow]:
    """List the episodes and their states, newest first."""
    place: Any = cursor_from(cursor, float, str) or ()
    scope = caller.scope(project)
    rows = await setup.store.read(scope, episodes.page, limit + 1, state or "", *place)
    return Page[EpisodeRow].of(rows, limit, "at", "digest")


def _episode(new: NewEpisode) -> Episode:
    """Return the episode, of limited size and without secrets. Raises InvalidInput."""
    if not new.events and new.fault is None:
        raise InvalidInput("events", [], "at least one event, where there is no fault")
    [episode] = EpisodeReader(Limits()).add(new.plain())
    return episode


async def _later(setup: Setup, scope: Scope, episode: Episode, trust: TaskTrust) -> EpisodeReceipt:
    filed = await asyncio.to_thread(file, episode, episode.digest, trust)
    state = await episodes.put(setup.store, scope, filed)
    if state != "reflected":
        await setup.work.defer("reflect", scope, digest=filed.digest)
    return EpisodeReceipt(digest=filed.digest, state=state)


async def _now(setup: Setup, scope: Scope, episode: Episode, trust: TaskTrust) -> EpisodeReceipt:
    made = await reflect(episode, memory=setup.memory(scope), model=setup.model, trust=trust)
    assert made is not None
    state: Literal["waiting", "reflected"] = "waiting" if made.busy else "reflected"
    return EpisodeReceipt(digest=episode.digest, state=state, taught=ReflectionOutcome.of(made))


traces_router: APIRouter = APIRouter(prefix="/v1", tags=["traces"])
_JSON = "application/json"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY = {
    "required": True,
    "content": {PROTOBUF: _BINARY, _JSON: {"schema": SCHEMAS["OtlpRequest"]}},
}
_ANSWER: dict[str, Any] = {
    "content": {PROTOBUF: _BINARY, _JSON: {"schema": SCHEMAS["OtlpResponse"]}},
    "description": "An ExportTraceServiceResponse in the encoding of the request.",
}


@traces_router.post(
    "/traces",
    response_class=Response,
    responses={200: _ANSWER},
    openapi_extra={"requestBody": _BODY},
)
async def traces(
    request: Request,
    caller: Writing,
    setup: RouteSetup,
    project: Project = None,
    trust: Annotated[
        TaskTrust,
        Query(description="Who wrote the tasks; `operator` needs a key that may approve."),
    ] = "external",
) -> Response:
    """Take spans of agents over OTLP/HTTP, in any order and from any number of services.

    Spans wait until the root of their trace has ended. Then the trace becomes one episode. Spans
    that cannot be stored are reported as `partial_success`.
    """
    scope = caller.scope(project)
    given = vouched(caller, trust)
    kind = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
    body = await request.body()
    try:
        sent: Any = body if kind == PROTOBUF else _parsed(body)
        refused = await receive(setup.store, scope, sent, given)
    except InvalidInput as error:
        raise Problem(400, "invalid_traces", str(error)) from error
    setup.metrics.gathered("refused", refused.total())
    request.app.state.collector.soon(scope)
    why = "; ".join(f"{n} spans: {why}" for why, n in refused.items())
    return _answer(kind, refused.total(), why)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("body", "no JSON", f"OTLP as JSON ({error})") from error


def _answer(kind: str, refused: int, why: str) -> Response:
    """Return the response in the request's encoding; refused spans are `partial_success`."""
    if kind == PROTOBUF:
        from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as wire

        told = wire.ExportTraceServiceResponse()
        if refused:
            told.partial_success.rejected_spans = refused
            told.partial_success.error_message = why
        return Response(told.SerializeToString(), media_type=PROTOBUF)
    # A whole number of 64 bits is text in the JSON of protobuf.
    part = {"partialSuccess": {"rejectedSpans": str(refused), "errorMessage": why}}
    return Response(json.dumps(part if refused else {}), media_type=_JSON)
