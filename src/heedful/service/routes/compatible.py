"""Loop guardrails under the paths, and in the shapes, that callers of earlier systems know.

Reflections under the paths, and in the shapes, that callers of earlier systems know.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from heedful.compat.guardrails import (
    DONE,
    NOT_DONE,
    Guarded,
    get_guardrails_status,
    override_guardrails,
    process_loop_completion,
)
from heedful.compat.reflections import generate_reflection, query_reflections, store_reflection
from heedful.compat.shapes import MOST
from heedful.errors import HeedfulError
from heedful.lessons.lesson import Scope
from heedful.service.auth import Approving, Caller, Project, Reading, Writing
from heedful.service.problems import Problem, answer
from heedful.service.setup import Given, Setup
from heedful.service.wire.generated import REFUSALS as REFUSALS_2
from heedful.service.wire.generated import (
    FinishedRun,
    GeneratedReflection,
    QueriedReflections,
    ReflectionQuery,
    ReflectionRefusal,
)
from heedful.service.wire.guardrails import (
    REFUSALS,
    Flags,
    GuardrailsOverridden,
    GuardrailsOverride,
    GuardrailsStatus,
    LoopCompletion,
    LoopDecision,
    LoopRefusal,
)

PREFIX = "/orchestrator"
FLAGS = ("override_fatigue", "override_max_reruns", "override_bias_echo")
LoopId = Annotated[str, Path(min_length=1, max_length=MOST)]


def guardrails_problem(problem: Problem, loop: str | None = None) -> JSONResponse:
    """How errors are told below these paths."""
    refusal = LoopRefusal(message=problem.detail, loop_id=loop)
    return JSONResponse(refusal.model_dump(), problem.status)


class Telling(APIRoute):
    """A route whose errors say which loop they are about."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """As of any route, but for what goes wrong."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except (Problem, HeedfulError, RequestValidationError, HTTPException) as error:
                shape = partial(guardrails_problem, loop=await _loop(request))
                return answer(error, request.url.path, {"": shape})

        return handled


router: APIRouter = APIRouter(
    prefix=PREFIX, tags=["compatible"], route_class=Telling, responses=REFUSALS
)


@router.post("/loop-complete")
async def loop_complete(
    one: LoopCompletion, caller: Writing, setup: Given, project: Project = None
) -> LoopDecision:
    """Decide whether a loop that was run is run again, as which loop, and why.

    Of a loop that is new all that is told is stored; one of which nothing is known nor told is
    404. The same completion again changes nothing, another one of the same loop is 409.
    """
    if one.reflection_status != DONE:
        raise Problem(422, "invalid_reflection_status", NOT_DONE)
    if any(getattr(one, flag) for flag in FLAGS):
        caller.needs("approve")
    given = one.model_dump(exclude={"tenant_id", "project_id", "override_by"})
    loops = _loops(setup, caller, _scope(caller, one, project))
    by = one.override_by or caller.name
    return LoopDecision(**await process_loop_completion(**given, override_by=by, store=loops))


@router.get("/guardrails-status/{loop_id:path}")
async def guardrails_status(
    loop_id: LoopId, caller: Reading, setup: Given, project: Project = None
) -> GuardrailsStatus:
    """How a loop stands: reruns, echo, fatigue, and why it was run again or ended."""
    loops = _loops(setup, caller, caller.scope(project))
    return GuardrailsStatus(**await get_guardrails_status(loop_id, store=loops))


@router.post("/override-guardrails/{loop_id:path}")
async def override(
    loop_id: LoopId,
    one: GuardrailsOverride,
    caller: Approving,
    setup: Given,
    project: Project = None,
) -> GuardrailsOverridden:
    """Let a loop go on past limits; one that has ended is decided anew at once."""
    given = one.model_dump(exclude={"tenant_id", "project_id", "override_by"})
    loops = _loops(setup, caller, _scope(caller, one, project))
    by = one.override_by or caller.name
    return GuardrailsOverridden(
        **await override_guardrails(loop_id, **given, override_by=by, store=loops)
    )


def _scope(caller: Caller, one: Flags, project: str | None) -> Scope:
    return caller.scope(one.project_id or project, one.tenant_id)


def _loops(setup: Setup, caller: Caller, scope: Scope) -> Guarded:
    return Guarded(
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
    """The loop that a request names, as far as it can be read."""
    try:
        named = request.path_params.get("loop_id") or (await request.json())["loop_id"]
    except (ValueError, KeyError, TypeError):
        return None
    return named if isinstance(named, str) else None


REFLECTIONS_PREFIX = "/api/v1/reflections"
generated_router: APIRouter = APIRouter(
    prefix=REFLECTIONS_PREFIX, tags=["compatible"], responses=REFUSALS_2
)


def reflections_problem(problem: Problem) -> JSONResponse:
    """How errors are told below these paths."""
    return JSONResponse(ReflectionRefusal(message=problem.detail).model_dump(), problem.status)


@generated_router.post("/generate")
async def generate(run: FinishedRun, caller: Writing, setup: Given) -> GeneratedReflection:
    """Reflect on a finished run, and store what it teaches, once however often it is sent.

    What a key that may not approve says waits in quarantine, and is found when it was released.
    """
    if not setup.reflections.enabled:
        off = "reflections are switched off: HEEDFUL_REFLECTION_ENABLED is false"
        raise Problem(503, "reflections_off", off)
    scope = caller.scope(run.project_id, run.tenant_id)
    context = run.model_dump(exclude={"store", "on_model_error"}, exclude_none=True)
    made = await generate_reflection(
        {**context, "tenant_id": scope.tenant, "project_id": scope.project},
        store=setup.memory(scope),
        model=setup.model,
        trust=_trust(caller),
        on_model_error=run.on_model_error,
    )
    if run.store:
        await store_reflection(made, scope.tenant, scope.project, store=setup.memory(scope))
    return GeneratedReflection(**made)


@generated_router.post("/query")
async def query(asked: ReflectionQuery, caller: Reading, setup: Given) -> QueriedReflections:
    """Reflections and strategies that fit a text, or without one the most important."""
    scope = caller.scope(asked.project_id, asked.tenant_id)
    wanted = asked.model_dump(exclude={"tenant_id", "project_id"})
    found: list[dict[str, Any]] = await query_reflections(
        scope.tenant, scope.project, **wanted, store=setup.memory(scope)
    )
    return QueriedReflections.model_validate({"reflections": found})


def _trust(caller: Caller) -> Any:
    return "operator" if "approve" in caller.may else "tool"
