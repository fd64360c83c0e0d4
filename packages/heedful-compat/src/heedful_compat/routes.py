"""Routes with the paths and fields of earlier systems, so that their callers need no
change.

Loop guardrails are under `/orchestrator`, reflections under `/api/v1/reflections`.
These routes ignore unknown fields in bodies, and name them in the `warnings` of the
answer.
"""

import json
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from heedful.episodes.episode import Ended
from heedful.lessons.commands import release_command
from heedful.lessons.scope import name_scope
from heedful.redact import redact, redact_data
from heedful.store import lessons
from heedful.validation import Document
from heedful_compat import guardrails, reflections as engine
from heedful_server.auth import Approving, Caller, Reading, Route, Writing
from heedful_server.problems import Problem
from heedful_server.review import may_review
from heedful_server.routes import RouteGroup
from heedful_server.schemas import LOOP_NAME_VALIDATOR, Name, Share

OVERRIDE_FLAGS = ("override_fatigue", "override_max_reruns", "override_bias_echo")
_Loop = Annotated[
    str,
    Field(min_length=1, max_length=guardrails.MAX_RERUN_NAME_CHARS),
    LOOP_NAME_VALIDATOR,
]
LoopId = Annotated[str, Path(min_length=1, max_length=guardrails.MAX_RERUN_NAME_CHARS)]
# A number becomes text.
Identifier = Annotated[str | int, AfterValidator(str)]
LongText = Annotated[str, Field(max_length=1_000_000)]
# Fields of a body that name the tenant, the project and the actor of a call.
IDENTITY_FIELDS = {"tenant_id", "project_id", "override_by"}


class TenantBody(BaseModel):
    """A body that may name the tenant of the key and one of the projects of the key."""

    tenant_id: Name | None = None
    project_id: Name | None = None


class Flags(TenantBody):
    """Limits to override. The actor is the key; the record of it notes the name
    `override_by`.
    """

    override_fatigue: bool = False
    override_max_reruns: bool = False
    override_bias_echo: bool = False
    override_by: Name | None = None


class BiasTag(BaseModel):
    """A bias that was found in the output of a loop."""

    model_config = ConfigDict(extra="allow")

    tag: Name
    severity: Share = 0.5


class LoopCompletion(Flags):
    """A finished run of a loop, with all results that the caller has.

    A flag overrides its limit only if the loop has reached it. The configured judge
    gives missing scores. `max_reruns` is the loop's own limit from this run on.
    """

    loop_id: _Loop
    reflection_status: str
    orchestrator_persona: Name | None = None
    reflection_persona: Name | None = None
    task: LongText | None = None
    goal: LongText | None = None
    summary: LongText | None = None
    output: LongText | None = None
    alignment_score: Share | None = None
    drift_score: Share | None = None
    bias_tags: Annotated[list[BiasTag | Name], Field(max_length=100)] | None = None
    max_reruns: Annotated[int, Field(ge=0)] | None = None


class OverrideRequest(Flags):
    """The limits to override at the next decision, and the reason."""

    override_reason: Annotated[str, Field(max_length=2_000)] | None = None


class FinishedRun(TenantBody):
    """A finished run to reflect on. With `store: false` nothing is stored.

    An event has an `event_type`, and may have `content`, `event_id`, `timestamp`,
    `metadata`, `tool_name` and an `error`. The service adds a missing id or time. The
    `error` of the run has an `error_category`, an `error_message` and a `context`.

    The model of the service writes the lesson, or rules if it has none.
    """

    events: list[Document]
    outcome: Ended
    error: Document | None = None
    task_description: str | None = None
    task_goal: str | None = None
    session_id: str | None = None
    related_memory_ids: list[Identifier] | None = None
    store: bool = True


class ReflectionQuery(TenantBody):
    """A search for reflections; without a text, it finds the most important
    reflections.
    """

    query_text: str | None = None
    k: Annotated[int, Field(ge=1, le=200)] = 5
    min_importance: Share = 0.5
    tags: list[Annotated[str, Field(min_length=1)]] | None = None
    match: Literal["any", "all"] = "any"


class LenientRoute(Route):
    """A route whose answer names the unknown fields of the body in `warnings`."""

    is_lenient = True

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a route, followed by the search for unknown fields."""
        handle = super().get_route_handler()
        fields = {
            name
            for part in self.dependant.body_params
            for name in getattr(part.field_info.annotation, "model_fields", ())
        }

        async def handle_leniently(request: Request) -> Response:
            answer = await handle(request)
            if not fields:
                return answer

            unknown = [name for name in request.state.plain if name not in fields]
            if not unknown:
                return answer

            warnings = [
                f"ignored: {name!r} is not a field of this route" for name in unknown
            ]
            content = json.loads(bytes(answer.body))
            warnings += content.get("warnings", [])
            content["warnings"] = redact_data(warnings)
            return JSONResponse(content, answer.status_code)

        return handle_leniently


def _refusal(
    problem: Problem, request: Document, *, names: Sequence[str] = ()
) -> Document:
    """Return the body of an error as earlier systems have it.

    It repeats the fields of the request with these names.
    """
    fields = dict.fromkeys(names)
    for name in names:
        if isinstance(request.get(name), str):
            fields[name] = redact(request[name])
    return {"status": "error", "message": problem.detail, **fields}


guardrail_router = APIRouter(
    prefix="/orchestrator", tags=["compatible"], route_class=LenientRoute
)


@guardrail_router.post("/loop-complete", response_model=Document)
async def loop_complete(completion: LoopCompletion, caller: Writing) -> Any:
    """Decide whether a loop must run again, and return the id of the next run and the
    reason.

    The body of a new loop is stored; a new loop without content gets 404. If a score is
    missing and no judge is configured (`HEEDFUL_JUDGE`), the answer is 422. A repeated
    completion changes nothing. A different completion of the same loop gets 409. If
    lessons of the loop wait in quarantine, `release` is the command that releases them.
    """
    if completion.reflection_status != guardrails.DONE_STATUS:
        raise Problem(
            422,
            "invalid_reflection_status",
            detail=guardrails.NOT_DONE_MESSAGE,
        )
    if any(getattr(completion, flag) for flag in OVERRIDE_FLAGS):
        caller.needs("approve")

    answer = await guardrails.process_loop_completion(
        **await _arguments(completion, caller)
    )
    loop = answer["decision_result"]["original_loop_id"]
    waiting = await caller.read(lessons.held_of, f"loop:{loop}")
    if waiting:
        answer["release"] = name_scope(release_command(waiting), caller.scope)
    return answer


@guardrail_router.get("/guardrails-status/{loop_id:path}", response_model=Document)
async def guardrails_status(loop_id: LoopId, caller: Reading) -> Any:
    """Return a loop's reruns, bias echo and fatigue, and the reason why it ran again or
    ended.
    """
    return await guardrails.get_guardrails_status(loop_id, store=_loops(caller))


@guardrail_router.get("/loop-trace/{loop_id:path}", response_model=Document)
async def loop_trace(loop_id: LoopId, caller: Reading) -> Any:
    """Return one attempt of a loop: its decision, the reasons, bias tags and
    fatigue.
    """
    return await guardrails.get_loop_trace(loop_id, store=_loops(caller))


@guardrail_router.post("/override-guardrails/{loop_id:path}", response_model=Document)
async def override(loop_id: LoopId, change: OverrideRequest, caller: Approving) -> Any:
    """Let a loop continue past its limits; if it has ended, heedful decides again at
    once.

    A body without a flag gets 422.
    """
    return await guardrails.override_guardrails(
        loop_id, **await _arguments(change, caller)
    )


async def _arguments(body: Flags, caller: Caller) -> Document:
    """Return the arguments for a function of `guardrails` that a body contains."""
    is_stated = await caller.origin() != "outside"
    return {
        **body.model_dump(exclude=IDENTITY_FIELDS),
        "override_by": caller.by,
        "store": _loops(caller, body.override_by or "", is_stated=is_stated),
    }


def _loops(
    caller: Caller, overrider: str = "", *, is_stated: bool = False
) -> guardrails.GuardedLoops:
    """Return the caller's loops.

    `overrider` is who the body says overrides a limit, for the audit log; "" if it does
    not say.
    """
    setup = caller.setup

    def record_override(loop: str, rule: str) -> None:
        """Add an override of a limit to the audit log."""
        caller.record("loop.override", loop, rule=rule, named=overrider)

    def is_trusted(loop: str) -> bool:
        """Return whether what this key reports about a loop counts."""
        if is_stated or "approve" in caller.key.may:
            return True
        return caller.key.id in setup.pinned(caller.scope, loop).keys

    return guardrails.GuardedLoops(
        store=setup.store,
        scope=caller.scope,
        settings=setup.guardrails,
        judge=setup.judge,
        memory=caller.memory,
        overriding=record_override,
        measured=is_trusted,
        named=overrider,
    )


reflection_router = APIRouter(
    prefix="/api/v1/reflections", tags=["compatible"], route_class=LenientRoute
)


@reflection_router.post("/generate", response_model=engine.ReflectionResult)
async def generate(run: FinishedRun, caller: Writing) -> Any:
    """Reflect on a finished run, and store its lessons; a repeated call stores nothing
    more.

    The model of the service writes the lessons. Rules do if the service has no model,
    or if its model fails; `model_error` says why the words of the model are not used.
    Of a known failure, the answer has the stored words; a key that may neither read nor
    recall gets those of the rules. If the lessons are from outside, they wait in
    quarantine; the command `release` releases them, and the command `hint` states their
    sources.
    """
    if not caller.setup.reflections:
        raise Problem(
            503,
            "reflections_off",
            detail="reflections are switched off: HEEDFUL_REFLECTION_ENABLED is false",
        )

    scope = caller.scope
    memory = caller.memory
    context = run.model_dump(exclude={"store"}, exclude_none=True)
    reflection = await engine.generate_reflection(
        {**context, "tenant_id": scope.tenant, "project_id": scope.project},
        store=memory,
        model=caller.setup.model,
        keys=caller.actor.via.split(),
        quotes_memory=bool({"read", "recall"}.intersection(caller.key.may)),
    )
    if not run.store:
        return reflection

    storage = await engine.keep_reflection(reflection, memory)
    return {
        **reflection,
        **storage,
        "release": name_scope(storage["release"] or "", scope),
        "hint": name_scope(storage["hint"] or "", scope),
    }


@reflection_router.post("/query", response_model=Document)
async def query(question: ReflectionQuery, caller: Reading) -> Any:
    """Return reflections and strategies that fit a text; without a text, the most
    important.

    The `state` marks reflections that wait in quarantine. A key with `recall` instead
    of `read` does not get them. In an empty answer, `silence` says why the nearest
    reflection is missing, and which command changes that.
    """
    reflections = await engine.query_reflections(
        caller.scope.tenant,
        caller.scope.project,
        **question.model_dump(exclude=IDENTITY_FIELDS),
        store=caller.memory,
        waiting=may_review(caller),
    )
    if reflections.silence:
        silence = name_scope(reflections.silence, caller.scope)
        return {"reflections": [], "silence": silence}
    for reflection in reflections:
        reflection["release"] = name_scope(reflection["release"], caller.scope)
    return {"reflections": reflections}


# Both are described together, and each has its own form of errors.
_DESCRIPTION = json.loads(
    (FilePath(__file__).parent / "description.json").read_text(encoding="utf-8")
)
GUARDRAIL_ROUTES = RouteGroup(
    router=guardrail_router,
    description=_DESCRIPTION,
    error_body=partial(_refusal, names=["loop_id"]),
)
REFLECTION_ROUTES = RouteGroup(
    router=reflection_router, description=_DESCRIPTION, error_body=_refusal
)
