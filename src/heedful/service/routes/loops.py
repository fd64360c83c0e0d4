"""Loops whose attempts are made elsewhere, and replays of recorded loops.

A request may name checks: text checks, and those that the operator allows. A JSON Schema is bounded
by its number of parts, however often they refer to each other.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from asyncio import Semaphore
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import iscoroutine
from typing import Annotated, Any, ClassVar
from urllib.parse import unquote

from fastapi import APIRouter, Path, Query, Request, Response

from heedful.checks.evaluate import threaded
from heedful.checks.loading import load, made
from heedful.drive.report import AttemptReport, cancel, open_loop, override, report
from heedful.errors import InvalidInput, ModelUnavailable, NotFound, UnknownName
from heedful.loop.decide import Policy, Verdict
from heedful.loop.policies import goal, policy
from heedful.loop.replay import Figures, compare
from heedful.service.auth import Approving, Project, Reading, Writing
from heedful.service.schemas import (
    Cancellation,
    LoopExplanation,
    LoopRecord,
    LoopSummary,
    LoopVerdict,
    NewAttempt,
    NewLoop,
    NewOverride,
    ReplayAnswer,
    ReplayRequest,
    ReportVerdict,
)
from heedful.service.setup import RouteSetup, Setup
from heedful.service.wire import Cursor, Limit, Page, cursor_from
from heedful.store import loops as loop_store
from heedful.store.loops import WHOLE, aimed, recorded
from heedful.store.records import StoredLoop

router: APIRouter = APIRouter(prefix="/v1", tags=["loops"])
Id = Annotated[str, Path(min_length=1, max_length=200, description="The id of a loop.")]
Number = Annotated[int, Path(ge=1, le=2**31 - 1, description="Attempts count from 1.")]
CREATED: dict[int | str, Any] = {201: {"description": "The loop is new.", "model": LoopRecord}}


# Ids may hold slashes, so a path with something behind the id is matched first.
@router.put("/loops/{id:path}/attempts/{n}")
async def attempt(
    id: Id, n: Number, body: NewAttempt, caller: Writing, setup: RouteSetup, project: Project = None
) -> ReportVerdict:
    """Report an attempt and learn whether to make another; the same report gets the same answer.

    409 for a different report of the same attempt, for a number that skips attempts, and for a loop
    that has ended.
    """
    scope = caller.scope(project, body.tenant)
    checks = [check.model_dump() for check in body.checks]
    told = AttemptReport(
        body.output,
        body.digest,
        body.evaluation,
        await asyncio.to_thread(load_checks, checks, setup, body.output) if checks else (),
        body.usage,
        request=checks,
        vouched="approve" in caller.may,
    )
    result = await report(setup.store, scope, id, n, told, setup.memory(scope))
    if result.new:
        setup.metrics.decided(result.verdict)
    return ReportVerdict.on(result)


@router.put("/loops/{id:path}", responses=CREATED)
async def begin(
    id: Id,
    body: NewLoop,
    caller: Writing,
    setup: RouteSetup,
    response: Response,
    project: Project = None,
) -> LoopRecord:
    """Begin a loop, or find it again; another task, context, goals or policy is a conflict."""
    stored, created = await open_loop(
        setup.store,
        caller.scope(project, body.tenant),
        id,
        body.task,
        goals=[goal(notation) for notation in body.goals],
        policy=policy(body.policy) if body.policy is not None else setup.policy,
        context=body.context,
    )
    response.status_code = 201 if created else 200
    response.headers["ETag"] = _etag(stored)
    return LoopRecord.whole(stored)


@router.get("/loops")
async def loops(
    caller: Reading,
    setup: RouteSetup,
    limit: Limit = 50,
    cursor: Cursor = None,
    prefix: Annotated[str, Query(max_length=200, description="How the ids begin.")] = "",
    project: Project = None,
) -> Page[LoopSummary]:
    """List the loops of a project, newest first."""
    (before,) = cursor_from(cursor, str) or ("",)
    scope = caller.scope(project)
    rows = await setup.store.read(scope, loop_store.newest, limit + 1, prefix, before)
    return Page[LoopSummary].of(list(map(LoopSummary.of, rows)), limit, "id")


@router.get("/loops/{id:path}/explain")
async def explain(
    id: Id, caller: Reading, setup: RouteSetup, project: Project = None
) -> LoopExplanation:
    """Explain why a loop went on and why it stopped, and what would have changed that."""
    stored = await setup.store.read(caller.scope(project), loop_store.read, id)
    return await asyncio.to_thread(LoopExplanation.of, stored)


@router.get("/loops/{id:path}", response_model=LoopRecord)
async def loop(
    id: Id,
    caller: Reading,
    setup: RouteSetup,
    request: Request,
    response: Response,
    project: Project = None,
) -> Any:
    """Read a whole loop; 304 if it has not changed since the entity tag in `If-None-Match`."""
    stored = await setup.store.read(caller.scope(project), loop_store.read, id)
    if request.headers.get("if-none-match") == _etag(stored):
        return Response(status_code=304, headers={"ETag": _etag(stored)})
    response.headers["ETag"] = _etag(stored)
    return LoopRecord.whole(stored)


@router.post("/loops/{id:path}/cancel")
async def end(
    id: Id, body: Cancellation, caller: Writing, setup: RouteSetup, project: Project = None
) -> LoopVerdict:
    """End a loop; a loop that has ended stays as it is."""
    scope = caller.scope(project, body.tenant)
    caller.record("loop.cancel", id, why=body.why)
    verdict = await cancel(setup.store, scope, id, caller.by, body.why, setup.memory(scope))
    return LoopVerdict.after(verdict, await setup.store.read(scope, loop_store.read, id))


@router.post("/loops/{id:path}/overrides", status_code=201)
async def lift(
    id: Id, body: NewOverride, caller: Approving, setup: RouteSetup, project: Project = None
) -> LoopVerdict:
    """Let a loop go on past one rule; a loop that only this rule has stopped reopens."""
    scope = caller.scope(project, body.tenant)
    caller.record("loop.override", id, rule=body.rule, why=body.why, decisions=body.decisions)
    options = body.model_dump(exclude={"tenant", "rule"})
    verdict: Verdict = await override(
        id, body.rule, by=caller.by, **options, store=setup.store, scope=scope
    )
    setup.metrics.decided(verdict)
    return LoopVerdict.after(verdict, await setup.store.read(scope, loop_store.read, id))


@router.post("/replay")
async def replay(
    body: ReplayRequest, caller: Reading, setup: RouteSetup, project: Project = None
) -> ReplayAnswer:
    """Compute what each policy would have cost and lost on recorded loops; nothing is written."""
    scope = caller.scope(project, body.tenant)
    policies = [policy(notation) for notation in body.policies]
    if body.loops is None:
        stored: Sequence[StoredLoop] = await setup.store.read(scope, loop_store.newest, body.limit)
    else:
        ids = body.loops[: body.limit]
        stored = [await setup.store.read(scope, loop_store.read, id) for id in ids]
    whole, *figures = await asyncio.to_thread(_figures, stored, policies)
    if not whole.loops:
        raise NotFound("loop with an attempt in project", scope.project, "the store")
    rows = [replace(row, policy=row.policy or f"policy {n}") for n, row in enumerate(figures, 1)]
    # A record can always tell what it holds itself.
    return ReplayAnswer(recorded=replace(whole, beyond=0), policies=rows)


def _figures(stored: Sequence[StoredLoop], policies: Sequence[Policy]) -> tuple[Figures, ...]:
    return compare(aimed(recorded(stored), policies), [WHOLE, *policies])


def _etag(stored: StoredLoop) -> str:
    """Return an entity tag that changes with everything that is written to the loop."""
    state = (stored.id, stored.epoch, stored.updated, len(stored.decisions))
    return f'"{hashlib.sha256(repr(state).encode()).hexdigest()[:16]}"'


# Parts of one schema; counting this many takes a second.
LARGEST = 5_000
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Python's `re` may run for ever; the check `regex` bounds its time, a schema cannot. Keywords that
# visit a value more than once take time that is quadratic, or doubles with each level.
UNBOUNDED = ("patternProperties", "unevaluatedItems", "unevaluatedProperties")
# Like these, but only as keywords: a property with such a name has an object as its value.
PLAIN = ("pattern", "uniqueItems")
# Keywords that change which place a reference means.
ELSEWHERE = ("$id", "$dynamicRef", "$recursiveRef", "$schema")
TEXT_COST = 64  # characters that take as long as a value


def parts_of(output: Any) -> int:
    """Estimate the number of values in data, or in a text that may be JSON."""
    if isinstance(output, str):
        return 1 + len(output) // TEXT_COST + sum(map(output.count, ",:[{"))
    return 1 + sum(map(parts_of, _inside(output)))


def parts_of_schema(schema: Any) -> int:
    """Count the parts of a schema that may judge one value; a definition counts at each `$ref`.

    Raises InvalidInput for more than `LARGEST`, which includes a schema that refers to itself, and
    for keywords whose time has no bound.
    """
    root = schema
    if isinstance(schema, Mapping) and schema.get("$schema") == DIALECT:
        root = {name: value for name, value in schema.items() if name != "$schema"}
    return _Parts(root).of(root)


class _Parts:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[str, int] = {}

    def of(self, one: Any) -> int:
        """Count the parts of a part of the schema."""
        number = 1 + sum(map(self.of, _inside(one)))
        if isinstance(one, Mapping):
            _refuse(one)
            if isinstance(named := one.get("$ref"), str):
                number += self._referred(named)
        if number > LARGEST:
            raise _wrong("parts", f"over {LARGEST}", f"at most {LARGEST}, references followed")
        return number

    def _referred(self, name: str) -> int:
        if name not in self._known:
            self._known[name] = LARGEST  # while it is being counted: it refers to itself
            self._known[name] = self.of(_at(self._root, name))
        return self._known[name]


def _inside(one: Any) -> Iterable[Any]:
    return one.values() if isinstance(one, Mapping) else one if isinstance(one, list) else ()


def _refuse(one: Mapping[str, Any]) -> None:
    """Check that a part has only keywords with bounded time. Raises InvalidInput."""
    keywords = {name for name in one if not isinstance(one[name], Mapping)}
    for name in (*(n for n in UNBOUNDED if n in one), *keywords.intersection(PLAIN)):
        raise _wrong(name, "given", "left out: it may run for ever; use the check regex")
    for name in keywords.intersection(ELSEWHERE):
        raise _wrong(name, "given", f"left out: the schema is one of {DIALECT}, in one piece")
    if one.get("format") == "regex":
        raise _wrong("format", "regex", "another one: a pattern may take for ever to read")


def _at(root: Any, name: str) -> Any:
    """Return the part that a reference names (RFC 6901). Raises InvalidInput."""
    found = root
    try:
        if name[:1] != "#" or name[1:2] not in ("", "/"):
            raise KeyError(name)
        for step in unquote(name[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found[int(key) if isinstance(found, list) else key]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _wrong("$ref", name, "a place inside the schema, as #/$defs/name") from error
    return found


def _wrong(what: str, value: str, allowed: str) -> InvalidInput:
    return InvalidInput(f"{what} of check 'json_schema'", value, allowed)


Spec = Mapping[str, Any]
Check = Callable[..., Any]
# They run no code, use no file and no network, and end soon for any input.
TEXT = ("characters", "contains", "equals", "excludes", "not_empty", "regex", "words")
CRITICS = ("critic", "critics")
SCHEMA = "json_schema"
# Characters of all checks of a request, as JSON.
LONGEST_TEXT = 64 * 1024
# Parts of a schema times parts of what it judges, each pair 5 µs at most (2 cores of 2026).
MOST = 1_000_000
# Critics of one report: each asks the model.
ASKED = 16


def load_checks(specs: Sequence[Spec], setup: Setup, output: Any) -> list[Check]:
    """Return the named checks for an output; a check of the setup goes before one of heedful.

    Critics ask the service's own model. This takes tenths of a second. Raises UnknownName for a
    check that is not allowed, InvalidInput, ModelUnavailable.
    """
    if (length := len(json.dumps(specs))) > LONGEST_TEXT:
        raise InvalidInput("checks", f"{length} characters", f"at most {LONGEST_TEXT} as JSON")
    asked = sum(_asked(spec) for spec in specs if spec["name"] in CRITICS)
    if asked > ASKED:
        raise InvalidInput("critics of a report", asked, f"at most {ASKED}")
    return [_check(spec, setup, output) for spec in specs]


def _asked(spec: Spec) -> int:
    members = spec.get("members")
    return len(members) if isinstance(members, list) else 1


def _check(spec: Spec, setup: Setup, output: Any) -> Check:
    name = spec["name"]
    if name in setup.checks:
        given = {key: value for key, value in spec.items() if key != "name"}
        return made(name, setup.checks[name], given)
    if name in TEXT:
        return _Aside(load(spec), setup.turns)
    if name == SCHEMA:
        parts = parts_of_schema(spec.get("schema")) * parts_of(output)
        if parts > MOST:
            allowed = f"at most {MOST}: a smaller schema, or a smaller output"
            raise InvalidInput(
                f"parts of schema times parts of output of {SCHEMA!r}", parts, allowed
            )
        return _Aside(load(spec), setup.turns)
    if name in CRITICS:
        return load(_with_own_model(spec, setup))
    raise UnknownName("check", name, sorted({*TEXT, SCHEMA, *CRITICS, *setup.checks}))


class _Aside:
    """The same check, run in a thread so that other requests are answered meanwhile.

    A check that waits for a process first waits for its turn.
    """

    pure: ClassVar[bool] = False

    def __init__(self, check: Check, turns: Semaphore) -> None:
        self._check = check
        self._turns = turns

    async def __call__(self, candidate: Any, context: Any) -> Any:
        """Return what the check finds."""
        found = await threaded(self._check, candidate, context)
        if not iscoroutine(found):
            return found
        try:
            async with self._turns:
                return await found
        finally:
            found.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._check, name)


def _with_own_model(spec: Spec, setup: Setup) -> Spec:
    """Return the critic with the model of the service; a request cannot name a model."""
    judge = setup.model or setup.embedder
    if judge is None:
        raise ModelUnavailable("this service has no model, so no critic can judge")
    if "members" in spec:
        members = spec["members"]
        listed = members if isinstance(members, list) else []
        own = [_with_own_model(one, setup) if isinstance(one, Mapping) else one for one in listed]
        return {**spec, "members": own or members}
    if "model" in spec:
        raise InvalidInput("model of a critic", spec["model"], "left out: the service has its own")
    return {**spec, "model": judge}
