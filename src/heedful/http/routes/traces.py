"""Traces of agents, as OpenTelemetry exports them: each that has ended is an episode."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from heedful.collecting import receive
from heedful.errors import InvalidInput
from heedful.http.caller import Project, Writing
from heedful.http.limits import PROTOBUF
from heedful.http.problems import Problem
from heedful.http.routes.episodes import vouched
from heedful.http.setup import Given
from heedful.http.wire.episodes import GivenTrust
from heedful.http.wire.traces import EXAMPLE, REQUEST, RESPONSE

router: APIRouter = APIRouter(prefix="/v1", tags=["traces"])
_JSON = "application/json"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY = {
    "required": True,
    "content": {PROTOBUF: _BINARY, _JSON: {"schema": REQUEST, "example": EXAMPLE}},
}
_ANSWER: dict[str, Any] = {
    "content": {PROTOBUF: _BINARY, _JSON: {"schema": RESPONSE, "example": {}}},
    "description": "An ExportTraceServiceResponse in the encoding of the request.",
}


@router.post(
    "/traces",
    response_class=Response,
    responses={200: _ANSWER},
    openapi_extra={"requestBody": _BODY},
)
async def traces(
    request: Request,
    caller: Writing,
    setup: Given,
    project: Project = None,
    trust: Annotated[
        GivenTrust,
        Query(description="Whose the tasks are; `operator` needs a key that may approve."),
    ] = "external",
) -> Response:
    """OTLP/HTTP: spans of agents, in any order and from any number of services.

    They wait until the root of their trace has ended; then it is an episode, once. Spans that
    cannot be kept are told as `partial_success`.
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
    request.app.state.gathering.soon(scope)
    why = "; ".join(f"{n} spans: {why}" for why, n in refused.items())
    return _answer(kind, refused.total(), why)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("body", "no JSON", f"OTLP as JSON ({error})") from error


def _answer(kind: str, refused: int, why: str) -> Response:
    """The response, in the encoding of the request; without `partial_success` where all is kept."""
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
