"""Routes for loops and stages that the caller runs, and for replays of recorded loops.

A report may name checks of its own text and data, critics, and checks that the operator allows. A
JSON Schema has a limited number of parts, with all references followed.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import Semaphore
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import iscoroutine
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Path, Query, Response

from heedful.checks import loading
from heedful.compat.refining import StageGuardrailReport
from heedful.drive import report as reports
from heedful.errors import InvalidInput, ModelUnavailable, NotFound, UnknownName
from heedful.loop.policies import policy
from heedful.loop.replay import compare
from heedful.pipeline import validate as validate_stage
from heedful.service import schemas
from heedful.service.auth import Approving, Paged, Reading, Writing
from heedful.service.schemas import LoopRecord, LoopVerdict
from heedful.service.setup import Setup
from heedful.service.wire import Page, cursor_from
from heedful.store import loops as loop_store

router: APIRouter = APIRouter(prefix="/v1", tags=["loops"])
Id = Annotated[str, Path(min_length=1, max_length=200, description="The id of a loop.")]
Number = Annotated[int, Path(ge=1, le=2**31 - 1, description="The number of an attempt, from 1.")]
CREATED: dict[int | str, Any] = {201: {"description": "The loop is new.", "model": LoopRecord}}


# Ids may contain slashes, so longer paths are matched first.
@router.put("/loops/{id:path}/attempts/{n}")
async def attempt(id: Id, n: Number, body: schemas.NewAttempt, caller: Writing) -> LoopVerdict:
    """Report an attempt and return whether to make another; a repeated report changes nothing.

    409 if a different report of the attempt exists, if the number skips an attempt, or if the loop
    has ended.
    """
    setup, specs = caller.setup, [check.model_dump() for check in body.checks]
    checks = await asyncio.to_thread(load_checks, specs, setup, body.output) if specs else ()
    vouched = "approve" in caller.key.may
    given = body.output, body.digest, body.evaluation, checks, body.usage
    report = reports.AttemptReport(*given, request=specs, vouched=vouched)
    result = await reports.report(setup.store, caller.scope, id, n, report, caller.memory)
    if result.new:
        setup.metrics.decided(result.verdict)
    return LoopVerdict.of(result.verdict, result.loop, result.loop.attempts[-1].judged_by)


@router.put("/loops/{id:path}", responses=CREATED)
async def begin(id: Id, body: schemas.NewLoop, caller: Writing, response: Response) -> LoopRecord:
    """Begin a loop, or return it if it exists; 409 if its task, context, goals or policy differ."""
    options = body.model_dump(exclude={"tenant", "task", "policy"})
    rules = caller.setup.policy if body.policy is None else policy(body.policy)
    options |= {"policy": rules, "store": caller.setup.store, "scope": caller.scope}
    opened = await reports.open_loop(id, body.task, **options)
    response.status_code = 201 if opened.created else 200
    return LoopRecord.whole(opened.stored)


@router.get("/loops")
async def loops(
    caller: Reading,
    page: Paged,
    prefix: Annotated[str, Query(max_length=200, description="The beginning of the ids.")] = "",
) -> Page[schemas.LoopSummary]:
    """List the loops of a project, newest first."""
    before = cursor_from(page.cursor, str) or ""
    rows = await caller.read(loop_store.newest, page.limit + 1, prefix, before)
    return Page[schemas.LoopSummary].of(list(map(schemas.LoopSummary.of, rows)), page.limit, "id")


@router.get("/loops/{id:path}/explain")
async def explain(id: Id, caller: Reading) -> schemas.LoopExplanation:
    """Explain why a loop continued, why it stopped, and what would have changed the verdict."""
    stored = await caller.read(loop_store.read, id)
    why = await asyncio.to_thread(loop_store.explained, stored)
    changes = list(map(str, why.would_change))
    return schemas.LoopExplanation(str(why), why.lines, changes, why.otherwise)


@router.get("/loops/{id:path}")
async def loop(id: Id, caller: Reading) -> LoopRecord:
    """Return a whole loop."""
    return LoopRecord.whole(await caller.read(loop_store.read, id))


@router.post("/loops/{id:path}/cancel")
async def end(id: Id, body: schemas.Reason, caller: Writing) -> LoopVerdict:
    """End a loop; a loop that has already ended does not change."""
    caller.record("loop.cancel", id, why=body.why)
    store = caller.setup.store
    verdict = await reports.cancel(store, caller.scope, id, caller.by, body.why, caller.memory)
    return LoopVerdict.of(verdict, (await caller.read(loop_store.read, id)).loop)


@router.post("/loops/{id:path}/overrides", status_code=201)
async def lift(id: Id, body: schemas.NewOverride, caller: Approving) -> LoopVerdict:
    """Let a loop continue past one rule; if only this rule stopped it, it opens again."""
    caller.record("loop.override", id, rule=body.rule, why=body.why, decisions=body.decisions)
    options = body.model_dump(exclude={"tenant", "rule"})
    verdict = await reports.override(
        id, body.rule, by=caller.by, **options, store=caller.setup.store, scope=caller.scope
    )
    caller.setup.metrics.decided(verdict)
    return LoopVerdict.of(verdict, (await caller.read(loop_store.read, id)).loop)


@router.post("/validate")
async def validate(body: schemas.StageOutput, caller: Writing) -> StageGuardrailReport:
    """Check the output of a stage that another program runs, and return a report; store nothing.

    A check that raises makes the status `not_validated`. 422 for a check that is not allowed.
    """
    specs = [check.model_dump() for check in body.checks]
    checks = await asyncio.to_thread(load_checks, specs, caller.setup, body.output)
    return StageGuardrailReport.of(
        await validate_stage(body.stage, checks, body.output, body.state)
    )


@router.post("/replay")
async def replay(body: schemas.ReplayRequest, caller: Reading) -> schemas.ReplayAnswer:
    """Replay policies on recorded loops: count each policy's attempts and lost loops.

    A loop is lost if it was solved as recorded, but the policy stops before the solution. Nothing
    is stored.
    """
    policies = [policy(notation) for notation in body.policies]
    stored = await caller.read(loop_store.newest, body.limit)
    recorded = loop_store.aimed(loop_store.recorded(stored), policies)
    whole, *rows = await asyncio.to_thread(compare, recorded, [loop_store.WHOLE, *policies])
    if not whole.loops:
        raise NotFound("loop with an attempt in project", caller.scope.project, "the store")
    rows = [replace(row, policy=row.policy or f"policy {n}") for n, row in enumerate(rows, 1)]
    # No recorded attempt is beyond the record.
    return schemas.ReplayAnswer(recorded=replace(whole, beyond=0), policies=rows)


# Checks that a request names

Spec = Mapping[str, Any]
Check = Callable[..., Any]
# These checks run no user code, use no file and no network, and end soon for any input.
TEXT = ("characters", "contains", "equals", "excludes", "not_empty", "regex", "words")
SLOW = ("insights", "precision")  # they take a second for the longest output that they accept
LONGEST_OUTPUT = 20_000
DATA = ("predictions", *SLOW)
# Arguments of these checks that may be data; a text would be the path of a file.
PATHS = ("source", "results")
CRITICS = ("critic", "critics")
SCHEMA = "json_schema"
# The most characters of all checks in a request, as JSON.
LONGEST_TEXT = 64 * 1024
# The largest product of a schema's parts and the output's; each pair takes 5 µs (2 cores of 2026).
MOST = 1_000_000
# The most critics in one report; each of them calls the model.
ASKED = 16


def load_checks(specs: Sequence[Spec], setup: Setup, output: Any) -> list[Check]:
    """Return the checks that `specs` name, from `setup.checks` or else from heedful's own checks.

    Critics use the judge of the service. Loading takes tenths of a second. Raises UnknownName for a
    check that is not allowed, InvalidInput, ModelUnavailable.
    """
    if (length := len(json.dumps(specs))) > LONGEST_TEXT:
        raise InvalidInput("checks", f"{length} characters", f"at most {LONGEST_TEXT} as JSON")
    critics = (spec for spec in specs if spec["name"] in CRITICS)
    asked = sum(max(1, len(schemas.inside(spec.get("members")))) for spec in critics)
    if asked > ASKED:
        raise InvalidInput("critics of a report", asked, f"at most {ASKED}")
    return [_check(spec, setup, output) for spec in specs]


def _check(spec: Spec, setup: Setup, output: Any) -> Check:
    name = spec["name"]
    if name in setup.checks:
        given = {key: value for key, value in spec.items() if key != "name"}
        return loading.made(name, setup.checks[name], given)
    if name in CRITICS:
        return loading.load(_with_own_model(spec, setup))
    if name == SCHEMA:
        parts = parts_of_schema(spec.get("schema")) * parts_of(output)
        if parts > MOST:
            allowed = f"at most {MOST}: a smaller schema, or a smaller output"
            what = f"parts of schema times parts of output of {SCHEMA!r}"
            raise InvalidInput(what, parts, allowed)
    elif name in DATA:
        _check_data(spec, output)
    elif name not in TEXT:
        raise UnknownName("check", name, sorted({*TEXT, *DATA, SCHEMA, *CRITICS, *setup.checks}))
    return _Aside(loading.load(spec), setup.turns)


def _check_data(spec: Spec, output: Any) -> None:
    """Check that a check reads no file and ends soon. Raises InvalidInput."""
    whose = f"of check {spec['name']!r}"
    for path in PATHS:
        if isinstance(spec.get(path), str):
            raise InvalidInput(f"{path} {whose}", spec[path], "data or left out: it is no path")
    length = len(output if isinstance(output, str) else json.dumps(output))
    if spec["name"] in SLOW and length > LONGEST_OUTPUT:
        allowed = f"at most {LONGEST_OUTPUT} characters"
        raise InvalidInput(f"output {whose}", f"{length} characters", allowed)


class _Aside:
    """Runs a check in a thread. A check that starts a process first acquires `turns`."""

    pure: ClassVar[bool] = False

    def __init__(self, check: Check, turns: Semaphore) -> None:
        self._check = check
        self._turns = turns

    async def __call__(self, candidate: Any, context: Any) -> Any:
        found = await asyncio.to_thread(self._check, candidate, context)
        if not iscoroutine(found):
            return found
        try:
            async with self._turns:
                return await found
        finally:
            found.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._check, name)


def _with_own_model(spec: Any, setup: Setup) -> Any:
    """Add the judge of the service to the description of a critic, which may not name a model."""
    if not isinstance(spec, Mapping):
        return spec
    if setup.judge is None:
        what = "this service has no judge, so no critic can judge"
        raise ModelUnavailable(f"{what}; set HEEDFUL_JUDGE to a model, or send an evaluation")
    if isinstance(members := spec.get("members"), list):
        return {**spec, "members": [_with_own_model(one, setup) for one in members]}
    if "model" in spec:
        raise InvalidInput("model of a critic", spec["model"], "left out: the service has a judge")
    return {**spec, "model": setup.judge}


# The most parts of one schema; counting them takes a second.
LARGEST = 5_000
DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Keywords that may take unlimited time. Python's `re` may run forever; only the check `regex` has a
# time limit. Keywords that visit a value repeatedly take quadratic or exponential time.
UNBOUNDED = ("patternProperties", "unevaluatedItems", "unevaluatedProperties")
# Further keywords that may take unlimited time, or that change the meaning of references. They are
# allowed as names of properties, whose values are objects.
REFUSED = ("pattern", "uniqueItems", "$id", "$dynamicRef", "$recursiveRef", "$schema")
TEXT_COST = 64  # characters that take as long as a value


def parts_of(output: Any) -> int:
    """Estimate the number of values in data, or in a text that may be JSON."""
    if isinstance(output, str):
        return 1 + len(output) // TEXT_COST + sum(map(output.count, ",:[{"))
    return 1 + sum(map(parts_of, schemas.inside(output)))


def parts_of_schema(schema: Any) -> int:
    """Count the parts of a JSON Schema; a definition counts once for each `$ref` to it.

    Raises InvalidInput for more than `LARGEST` parts, for a schema that refers to itself, and for
    keywords that may take unlimited time.
    """
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    if isinstance(schema, Mapping) and schema.get("$schema") == DIALECT:
        schema = {name: value for name, value in schema.items() if name != "$schema"}
    # The registry contains no other resource and downloads none.
    registry = Registry().with_resource("", DRAFT202012.create_resource(schema))
    resolver, known = registry.resolver(), dict[str, int]()

    def parts(part: Any) -> int:
        number = 1
        if isinstance(part, Mapping):
            _check_keywords(part)
            if isinstance(name := part.get("$ref"), str):
                number += referred(name)
        number += sum(map(parts, schemas.inside(part)))
        if number > LARGEST:
            raise _wrong("parts", f"over {LARGEST}", f"at most {LARGEST}, with references followed")
        return number

    def referred(name: str) -> int:
        if name not in known:
            known[name] = LARGEST  # until it is counted, in case it refers to itself
            try:
                known[name] = parts(resolver.lookup(name).contents)
            except (Unresolvable, LookupError, TypeError, ValueError, AttributeError) as error:
                allowed = "a reference inside the schema, such as #/$defs/name"
                raise _wrong("$ref", name, allowed) from error
        return known[name]

    return parts(schema)


def _check_keywords(part: Mapping[str, Any]) -> None:
    """Raise InvalidInput if a part of a schema has a keyword that may take unlimited time."""
    keywords = [name for name in REFUSED if not isinstance(part.get(name, {}), Mapping)]
    for name in (*(name for name in UNBOUNDED if name in part), *keywords):
        how = f"use the check regex for patterns, and one document of {DIALECT} as the schema"
        raise _wrong(name, "given", f"left out: {how}")
    if part.get("format") == "regex":
        raise _wrong("format", "regex", "another format: parsing a pattern may take forever")


def _wrong(what: str, value: str, allowed: str) -> InvalidInput:
    return InvalidInput(f"{what} of check 'json_schema'", value, allowed)
