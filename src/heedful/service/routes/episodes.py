"""Routes for finished runs of agents, sent as episodes or as OpenTelemetry traces."""

from __future__ import annotations

import asyncio
import json
import logging
from contextvars import Context
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from heedful.errors import InvalidInput, StoreError
from heedful.lessons.lesson import Scope
from heedful.memory.ingest import gather, receive
from heedful.memory.reflect import reflect, to_stored_episode
from heedful.service.auth import Paged, Reading, Writing
from heedful.service.middleware import PROTOBUF
from heedful.service.problems import Problem
from heedful.service.schemas import EpisodeReceipt, EpisodeRow, NewEpisode, ReflectionOutcome
from heedful.service.setup import Setup
from heedful.service.wire import Page, cursor_from
from heedful.store import episodes, records
from heedful.traces.episode import Limits
from heedful.traces.messages import EpisodeReader

log: logging.Logger = logging.getLogger("heedful.http")
router: APIRouter = APIRouter(prefix="/v1", tags=["episodes"])
_JSON = "application/json"
Trust = Annotated[
    Literal["external", "operator"],
    Query(description="Who wrote the task; `operator` needs a key that may approve."),
]


@router.post("/episodes", status_code=202, responses={200: {"model": EpisodeReceipt}})
async def create(
    new: NewEpisode,
    caller: Writing,
    response: Response,
    wait: Annotated[bool, Query(description="Reflect on the run before answering.")] = False,
    trust: Trust = "external",
) -> EpisodeReceipt:
    """Store a finished run, so that a worker reflects on it; a repeated call stores nothing more.

    200 if heedful has already reflected on the run, else 202. Lessons from the text of tools,
    documents and users wait in quarantine.
    """
    if not new.events and new.fault is None:
        raise InvalidInput("events", [], "at least one event, or a fault")
    caller.needs("approve" if trust == "operator" else "write")
    plain = new.model_dump(mode="json", exclude={"tenant"}, exclude_unset=True)
    [episode] = await asyncio.to_thread(EpisodeReader(Limits()).add, {"events": [], **plain})
    taught: ReflectionOutcome | None = None
    if wait:
        model = caller.setup.model
        result = await reflect(episode, memory=caller.memory, model=model, trust=trust)
        assert result is not None
        taught = ReflectionOutcome.of(result)
        state: records.EpisodeState = "waiting" if result.busy else "reflected"
    else:
        stored = await asyncio.to_thread(to_stored_episode, episode, trust)
        put = episodes.admit(caller.setup.store, caller.scope, stored, claim=False)
        state = await put or "waiting"
        if state != "reflected":
            await caller.setup.work.defer("reflect", caller.scope, digest=episode.digest)
    response.status_code = 200 if state == "reflected" else 202
    return EpisodeReceipt(episode.digest, state, taught)


@router.get("/episodes")
async def listed(
    caller: Reading, page: Paged, state: records.EpisodeState | None = None
) -> Page[EpisodeRow]:
    """List the episodes and their states, newest first."""
    before = cursor_from(page.cursor, str) or ""
    rows = await caller.read(episodes.page, page.limit + 1, state or "", before)
    return Page[EpisodeRow].of(rows, page.limit, "digest")


traces_router: APIRouter = APIRouter(prefix="/v1", tags=["traces"])


@traces_router.post("/traces", response_class=Response)
async def traces(request: Request, caller: Writing, trust: Trust = "external") -> Response:
    """Receive spans of agents over OTLP/HTTP, in any order and from any number of services.

    A trace becomes one episode when its root span has ended. The answer reports spans that cannot
    be stored as `partial_success`.
    """
    caller.needs("approve" if trust == "operator" else "write")
    kind = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
    body = await request.body()
    try:
        sent: Any = body if kind == PROTOBUF else json.loads(body)
        refused = await receive(caller.setup.store, caller.scope, sent, trust)
    except (InvalidInput, ValueError, RecursionError) as error:
        raise Problem(400, "invalid_traces", f"not OTLP: {error}") from error
    caller.setup.metrics.traces.labels("refused").inc(refused.total())
    request.app.state.collector.soon(caller.scope)
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


# Seconds to wait after a trace has settled, so that no search is too early.
MARGIN = 0.05


class TraceCollector:
    """Turns ended traces into episodes, in one asyncio task for each scope with waiting traces.

    If a process is killed, the next process that receives spans of the scope continues. Two
    processes may safely work on the same scope.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._tasks: dict[Scope, asyncio.Task[None]] = {}
        self._wanted: set[Scope] = set()

    def soon(self, scope: Scope) -> None:
        """Schedule a search for ended traces of the scope; call this when spans have arrived."""
        self._wanted.add(scope)
        if scope not in self._tasks:
            # The task has its own context, because it is not part of the request with the spans.
            self._tasks[scope] = asyncio.create_task(self._look(scope), context=Context())

    async def close(self) -> None:
        """Cancel all searches; waiting spans stay in the store."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, scope: Scope) -> None:
        setup, traces = self._setup, self._setup.metrics.traces
        try:
            while scope in self._wanted:
                self._wanted.discard(scope)
                await asyncio.sleep(setup.patience.settled + MARGIN)
                try:
                    result = await gather(setup.store, scope, setup.patience)
                    for digest in result.episodes:
                        await setup.work.defer("reflect", scope, digest=digest)
                except StoreError as error:
                    log.warning("traces were not gathered; heedful will try again: %s", error)
                    self._wanted.add(scope)
                    continue
                traces.labels("episode").inc(len(result.episodes))
                traces.labels("empty").inc(result.empty)
                if result.again is not None:  # other traces still wait
                    self._wanted.add(scope)
        finally:
            del self._tasks[scope]
