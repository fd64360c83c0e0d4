"""Reflections under the paths, and in the shapes, that callers of earlier systems know."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from heedful.compat.generated import generate_reflection, query_reflections, store_reflection
from heedful.http.caller import Caller, Reading, Writing
from heedful.http.problems import Problem
from heedful.http.setup import Given
from heedful.http.wire.generated import (
    REFUSALS,
    FinishedRun,
    GeneratedReflection,
    QueriedReflections,
    ReflectionQuery,
    ReflectionRefusal,
)

PREFIX = "/api/v1/reflections"
router: APIRouter = APIRouter(prefix=PREFIX, tags=["compatible"], responses=REFUSALS)


def told(problem: Problem) -> JSONResponse:
    """How errors are told below these paths."""
    return JSONResponse(ReflectionRefusal(message=problem.detail).model_dump(), problem.status)


@router.post("/generate")
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


@router.post("/query")
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
