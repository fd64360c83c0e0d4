"""The routes and shapes that callers of earlier systems know.

Loop guardrails are below `/orchestrator`, reflections below `/api/v1/reflections`. Unknown fields
in bodies of these routes are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from fastapi import APIRouter, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from heedful.compat.guardrails import (
    DONE,
    NOT_DONE,
    GuardedLoops,
    get_guardrails_status,
    override_guardrails,
    process_loop_completion,
)
from heedful.compat.reflections import (
    ReflectionAnswer,
    ReflectionRow,
    generate_reflection,
    query_reflections,
    store_reflection,
)
from heedful.compat.shapes import (
    LONGEST_NAME,
    GuardrailsOverride,
    GuardrailsStatus,
    LoopDecision,
)
from heedful.errors import HeedfulError
from heedful.lessons.lesson import Scope
from heedful.service.auth import Approving, Caller, Project, Reading, Writing
from heedful.service.problems import Problem, answer
from heedful.service.setup import RouteSetup, Setup
from heedful.service.wire import Name, Share
from heedful.traces.episode import Ended

PREFIX = "/orchestrator"
FLAGS = ("override_fatigue", "override_max_reruns", "override_bias_echo")
LoopId = Annotated[str, Path(min_length=1, max_length=LONGEST_NAME)]
Identifier = Annotated[
    str | int, AfterValidator(str)
]  # ids are strings; a number counts as its digits
LongText = Annotated[str, Field(max_length=1_000_000)]


class BiasTag(BaseModel):
    """A bias that was found; its severity is 0.5 by default."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    tag: Name
    severity: Share = 0.5


class Flags(BaseModel):
    """Limits that a loop may go on past, and who lifts them (default: the name of the key)."""

    tenant_id: Name | None = None
    project_id: Name | None = None
    override_fatigue: bool = False
    override_max_reruns: bool = False
    override_bias_echo: bool = False
    override_by: Name | None = None


class LoopCompletion(Flags):
    """A loop that was run: its id, and as much of its result as the caller knows.

    A flag takes effect if its limit has been reached. Missing scores are judged.
    """

    loop_id: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
    reflection_status: str
    orchestrator_persona: Name | None = None
    task: LongText | None = None
    goal: LongText | None = None
    summary: LongText | None = None
    output: LongText | None = None
    alignment_score: Share | None = None
    drift_score: Share | None = None
    bias_tags: Annotated[list[BiasTag], Field(max_length=100)] | None = None


class OverrideRequest(Flags):
    """Limits that the next decision may go past, and why."""

    override_reason: Annotated[str, Field(max_length=2_000)] | None = None


class EventError(BaseModel):
    """The error of a step."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    message: str = ""
    code: Identifier | None = None


class RunEvent(BaseModel):
    """One event of a run, of any type. Missing ids and times are filled in."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")

    event_type: Annotated[str, Field(min_length=1)]
    content: Any = ""
    event_id: Identifier | None = None
    timestamp: str | float | None = None
    metadata: dict[str, Any] | None = None
    tool_name: str | None = None
    error: EventError | str | None = None


class RunError(BaseModel):
    """The error of a run, of any category."""

    error_category: str = ""
    error_message: str = ""
    context: Any = None


class FinishedRun(BaseModel):
    """A finished run to reflect on. With `store: false` nothing is stored."""

    tenant_id: Name | None = None
    project_id: Name | None = None
    events: list[RunEvent]
    outcome: Ended
    error: RunError | None = None
    task_description: str | None = None
    task_goal: str | None = None
    session_id: str | None = None
    related_memory_ids: list[Identifier] | None = None
    store: bool = True
    on_model_error: Literal["keep", "raise"] = "keep"


class ReflectionQuery(BaseModel):
    """A search for reflections; without a text, it returns the most important ones."""

    tenant_id: Name | None = None
    project_id: Name | None = None
    query_text: str | None = None
    k: Annotated[int, Field(ge=1, le=200)] = 5
    min_importance: Share = 0.5
    tags: list[Annotated[str, Field(min_length=1)]] | None = None
    match: Literal["any", "all"] = "any"


class LoopRefusal(BaseModel):
    """What went wrong, and with which loop if that is known."""

    status: Literal["error"] = "error"
    message: str
    loop_id: str | None = None


class ReflectionRefusal(BaseModel):
    """What went wrong."""

    status: Literal["error"] = "error"
    message: str


class QueriedReflections(BaseModel):
    """The reflections found, best first."""

    reflections: list[ReflectionRow]


def _refusals(model: type[BaseModel], *statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": model, "description": "What went wrong"} for status in statuses}


def guardrails_problem(problem: Problem, loop: str | None = None) -> JSONResponse:
    """Return the answer to an error below these paths."""
    refusal = LoopRefusal(message=problem.detail, loop_id=loop)
    return JSONResponse(refusal.model_dump(), problem.status)


class LoopRoute(APIRoute):
    """A route whose errors name their loop."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the usual handler, with other answers to errors."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except (Problem, HeedfulError, RequestValidationError, HTTPException) as error:
                shape = partial(guardrails_problem, loop=await _loop(request))
                return answer(error, request.url.path, {"": shape})

        return handled


router: APIRouter = APIRouter(
    prefix=PREFIX,
    tags=["compatible"],
    route_class=LoopRoute,
    responses=_refusals(LoopRefusal, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504),
)


@router.post("/loop-complete", response_model=LoopDecision)
async def loop_complete(
    completion: LoopCompletion, caller: Writing, setup: RouteSetup, project: Project = None
) -> Any:
    """Decide whether a loop that was run is run again, as which loop, and why.

    For a new loop, everything in the body is stored; a new loop without content is 404. The same
    completion again changes nothing, a different one for the same loop is 409.
    """
    if completion.reflection_status != DONE:
        raise Problem(422, "invalid_reflection_status", NOT_DONE)
    if any(getattr(completion, flag) for flag in FLAGS):
        caller.needs("approve")
    arguments = completion.model_dump(exclude={"tenant_id", "project_id", "override_by"})
    loops = _loops(setup, caller, _scope(caller, completion, project))
    by = completion.override_by or caller.name
    return await process_loop_completion(**arguments, override_by=by, store=loops)


@router.get("/guardrails-status/{loop_id:path}", response_model=GuardrailsStatus)
async def guardrails_status(
    loop_id: LoopId, caller: Reading, setup: RouteSetup, project: Project = None
) -> Any:
    """Show the state of a loop: reruns, echo, fatigue, and why it was run again or ended."""
    loops = _loops(setup, caller, caller.scope(project))
    return await get_guardrails_status(loop_id, store=loops)


@router.post("/override-guardrails/{loop_id:path}", response_model=GuardrailsOverride)
async def override(
    loop_id: LoopId,
    change: OverrideRequest,
    caller: Approving,
    setup: RouteSetup,
    project: Project = None,
) -> Any:
    """Let a loop go on past limits; a loop that has ended is decided again at once."""
    arguments = change.model_dump(exclude={"tenant_id", "project_id", "override_by"})
    loops = _loops(setup, caller, _scope(caller, change, project))
    by = change.override_by or caller.name
    return await override_guardrails(loop_id, **arguments, override_by=by, store=loops)


def _scope(caller: Caller, body: Flags, project: str | None) -> Scope:
    return caller.scope(body.project_id or project, body.tenant_id)


def _loops(setup: Setup, caller: Caller, scope: Scope) -> GuardedLoops:
    return GuardedLoops(
        setup.store,
        scope,
        setup.guardrails,
        setup.model,
        setup.checks,
        setup.memory(scope),
        lambda loop, rule: caller.record("loop.override", loop, rule=rule),
        vouched="approve" in caller.may,
    )


async def _loop(request: Request) -> str | None:
    """Return the loop that a request names, if it can be read."""
    try:
        named = request.path_params.get("loop_id") or (await request.json())["loop_id"]
    except (ValueError, KeyError, TypeError):
        return None
    return named if isinstance(named, str) else None


REFLECTIONS_PREFIX = "/api/v1/reflections"
reflections_router: APIRouter = APIRouter(
    prefix=REFLECTIONS_PREFIX,
    tags=["compatible"],
    responses=_refusals(ReflectionRefusal, 401, 403, 409, 413, 422, 429, 500, 502, 503, 504),
)


def reflections_problem(problem: Problem) -> JSONResponse:
    """Return the answer to an error below these paths."""
    return JSONResponse(ReflectionRefusal(message=problem.detail).model_dump(), problem.status)


@reflections_router.post("/generate", response_model=ReflectionAnswer)
async def generate(run: FinishedRun, caller: Writing, setup: RouteSetup) -> Any:
    """Reflect on a finished run, and store what it teaches, once however often it is sent.

    If the key may not approve, the lessons wait in quarantine until they are released.
    """
    if not setup.reflections.enabled:
        off = "reflections are switched off: HEEDFUL_REFLECTION_ENABLED is false"
        raise Problem(503, "reflections_off", off)
    scope = caller.scope(run.project_id, run.tenant_id)
    context = run.model_dump(exclude={"store", "on_model_error"}, exclude_none=True)
    reflection = await generate_reflection(
        {**context, "tenant_id": scope.tenant, "project_id": scope.project},
        store=setup.memory(scope),
        model=setup.model,
        trust=_trust(caller),
        on_model_error=run.on_model_error,
    )
    if run.store:
        await store_reflection(reflection, scope.tenant, scope.project, store=setup.memory(scope))
    return reflection


@reflections_router.post("/query")
async def query(
    question: ReflectionQuery, caller: Reading, setup: RouteSetup
) -> QueriedReflections:
    """Find reflections and strategies that fit a text; without a text, the most important."""
    scope = caller.scope(question.project_id, question.tenant_id)
    options = question.model_dump(exclude={"tenant_id", "project_id"})
    rows: list[dict[str, Any]] = await query_reflections(
        scope.tenant, scope.project, **options, store=setup.memory(scope)
    )
    return QueriedReflections.model_validate({"reflections": rows})


def _trust(caller: Caller) -> Any:
    return "operator" if "approve" in caller.may else "tool"
