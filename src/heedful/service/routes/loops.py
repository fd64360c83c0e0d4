"""Routes for loops and stages that the caller runs, and for replays of recorded loops.

A report may name checks of its own text and data, critics, and checks that the operator
allows.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import Semaphore
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from inspect import iscoroutine
from typing import Annotated, Any, ClassVar

from anyio import BrokenWorkerProcess, to_process
from fastapi import APIRouter, Path, Query, Response

from heedful.checks import loading
from heedful.drive import report as reports
from heedful.errors import (
    Conflict,
    InvalidInput,
    ModelUnavailable,
    NotFound,
    UnknownName,
    UsageError,
)
from heedful.lessons.lesson import release_command
from heedful.loop.codec import policy_from
from heedful.loop.decide import Done
from heedful.loop.policies import policy
from heedful.loop.record import Finding, Goal, Loop
from heedful.loop.replay import RECORDED_POLICY, compare, with_policy_goals
from heedful.loop.stop import check_names
from heedful.pipeline import validate as validate_stage
from heedful.pipeline.validation import ValidationReport
from heedful.service import schemas
from heedful.service.auth import Approving, Caller, Paged, Reading, Route, Writing
from heedful.service.schemas import (
    Document,
    explanation_record,
    loop_record,
    loop_verdict,
)
from heedful.service.setup import Setup
from heedful.service.wire import Page
from heedful.store import lessons
from heedful.store import loops as loop_store
from heedful.validation import require

router: APIRouter = APIRouter(prefix="/v1", tags=["loops"], route_class=Route)
Id = Annotated[str, Path(min_length=1, max_length=200, description="The id of a loop.")]
NewId = Annotated[schemas.LoopName, Path(description="The id of a loop.")]
Number = Annotated[
    int, Path(ge=1, le=2**31 - 1, description="The number of an attempt, from 1.")
]
CREATED_RESPONSES: dict[int | str, Any] = {
    201: {"description": "The loop is new.", "model": Document}
}


# Ids may contain slashes, so longer paths are matched first.
@router.put("/loops/{id:path}/attempts/{n}")
async def attempt(
    id: Id, n: Number, body: schemas.NewAttempt, caller: Writing
) -> Document:
    """Report an attempt and return whether to make another; a repeated report changes
    nothing.

    409 if a different report of the attempt exists, if the number skips an attempt, or
    if the loop has ended. Unless only what is pinned to the loop judged its attempts,
    or keys that may approve, its lessons wait in quarantine; `release` is the command
    that releases them.
    """
    setup = caller.setup
    specs = [check.model_dump() for check in body.checks]
    pinned = setup.pinned(caller.scope, id)
    pinned_checks = [{"name": name} for name in pinned.checks]
    other_checks = [spec for spec in specs if spec not in pinned_checks]

    async def load() -> Sequence[Check]:
        if pinned_checks and body.output is None:
            raise InvalidInput(
                "output", None, "given: checks that are pinned to this loop read it"
            )
        return await load_checks([*pinned_checks, *other_checks], setup)

    # A judgement is trusted if the operator pinned everything that made it, or if the
    # key that reports it is trusted. Only a key that may approve may choose the goals.
    only_pinned = bool(pinned_checks) and body.evaluation is None and not other_checks
    may_approve = "approve" in caller.key.may
    trusted_key = may_approve or caller.key.id in pinned.keys
    expected_goals: Sequence[Goal] | None = pinned.goals or setup.policy.goals
    if may_approve:
        expected_goals = None
    report = reports.AttemptReport(
        body.output,
        body.digest,
        evaluation=body.evaluation,
        usage=body.usage,
        request=specs,
        vouched=only_pinned or trusted_key,
        goals=expected_goals,
    )
    result = await reports.report(
        setup.store,
        scope=caller.scope,
        id=id,
        number=n,
        attempt_report=report,
        memory=caller.memory,
        load=load,
    )
    if result.new:
        setup.metrics.decided(result.verdict)
    loop = result.loop
    verdict = result.verdict
    release = await waiting(caller, loop) if isinstance(verdict, Done) else ""
    return loop_verdict(verdict, loop, loop.attempts[-1].judged_by, release)


async def waiting(caller: Caller, loop: Loop) -> str:
    """Return the command that releases the lessons of a loop from quarantine; "" for
    none.
    """
    if all(attempt.vouched for attempt in loop.attempts):
        return ""
    return release_command(await caller.read(lessons.held_of, f"loop:{loop.id}"))


@router.put("/loops/{id:path}", responses=CREATED_RESPONSES)
async def begin(
    id: NewId, body: schemas.NewLoop, caller: Writing, response: Response
) -> Document:
    """Begin a loop, or return it if it exists; 409 if its task, context, goals or
    policy differ.

    Goals and a policy that the body leaves out do not differ.
    """
    options = body.model_dump(exclude={"tenant", "task", "policy"})
    rules = caller.setup.policy if body.policy is None else policy(body.policy)
    options["goals"] = (
        body.goals or caller.setup.pinned(caller.scope, id).goals or rules.goals
    )
    options |= {"policy": rules, "store": caller.setup.store, "scope": caller.scope}
    try:
        opened = await reports.open_loop(id, body.task, **options)
    except Conflict:  # the settings may have changed since the loop began
        stored = await caller.read(loop_store.read, id)
        kept = {"goals": stored.loop.goals, "policy": policy_from(stored.head.policy)}
        options |= {name: kept[name] for name in kept if not getattr(body, name)}
        opened = await reports.open_loop(id, body.task, **options)
    response.status_code = 201 if opened.created else 200
    return loop_record(opened.stored)


@router.get("/loops")
async def loops(
    caller: Reading,
    page: Paged,
    prefix: Annotated[
        str, Query(max_length=200, description="The beginning of the ids.")
    ] = "",
) -> Page[Document]:
    """List the loops of a project, newest first; a page of large loops has fewer than
    `limit`.
    """
    asked = page.limit, prefix, page.cursor or "", loop_store.MAX_LISTING_BYTES
    rows, more = await caller.read(loop_store.newest, *asked)
    return Page(
        items=[row.summary() for row in rows], next=rows[-1].id if more else None
    )


@router.get("/loops/{id:path}/explain")
async def explain(id: Id, caller: Reading) -> Document:
    """Explain why a loop continued, why it stopped, and what would have changed the
    verdict.

    If nothing would have changed it, `otherwise` says why.
    """
    stored = await caller.read(loop_store.read, id)
    return explanation_record(await asyncio.to_thread(stored.explain))


@router.get("/loops/{id:path}")
async def loop(id: Id, caller: Reading) -> Document:
    """Return a whole loop."""
    return loop_record(await caller.read(loop_store.read, id))


@router.post("/loops/{id:path}/cancel")
async def end(id: Id, body: schemas.Reason, caller: Writing) -> Document:
    """End a loop; a loop that has already ended does not change."""
    caller.record("loop.cancel", id, why=body.why)
    store = caller.setup.store
    verdict = await reports.cancel(
        store,
        scope=caller.scope,
        id=id,
        by=caller.by,
        why=body.why,
        memory=caller.memory,
    )
    loop = (await caller.read(loop_store.read, id)).loop
    return loop_verdict(verdict, loop, release=await waiting(caller, loop))


@router.post("/loops/{id:path}/overrides", status_code=201)
async def lift(id: Id, body: schemas.NewOverride, caller: Approving) -> Document:
    """Let a loop continue past one rule; if only this rule stopped it, it opens
    again.
    """
    caller.record(
        "loop.override", id, rule=body.rule, why=body.why, decisions=body.decisions
    )
    options = body.model_dump(exclude={"tenant", "rule"})
    verdict = await reports.override(
        id,
        body.rule,
        by=caller.by,
        **options,
        store=caller.setup.store,
        scope=caller.scope,
    )
    caller.setup.metrics.decided(verdict)
    return loop_verdict(verdict, (await caller.read(loop_store.read, id)).loop)


@router.post("/validate")
async def validate(body: schemas.StageOutput, caller: Writing) -> ValidationReport:
    """Check the output of a stage that another program runs, and return a report; store
    nothing.

    A check that raises makes the status `not_validated`. 422 for a check that is not
    allowed.
    """
    checks = await load_checks(
        [check.model_dump() for check in body.checks], caller.setup
    )
    return ValidationReport.of(
        await validate_stage(body.stage, checks, body.output, body.state)
    )


@router.post("/replay")
async def replay(body: schemas.ReplayRequest, caller: Reading) -> Document:
    """Replay policies on recorded loops: count each policy's attempts and lost loops.

    A loop is lost if it was solved as recorded, but the policy stops before the
    solution. Nothing is stored. `more` is true if there are older loops, beyond `limit`
    or 32 MiB of records.
    """
    policies = [policy(notation) for notation in body.policies]
    stored, more = await caller.read(
        loop_store.newest, body.limit, most=loop_store.MAX_REPLAY_BYTES
    )
    recorded = with_policy_goals(loop_store.replayable(stored), policies)
    whole, *rows = await asyncio.to_thread(
        compare, recorded, [RECORDED_POLICY, *policies]
    )
    if not whole.loops:
        raise NotFound(
            "loop with an attempt in project", caller.scope.project, "the store"
        )
    rows = [
        replace(row, policy=row.policy or f"policy {n}")
        for n, row in enumerate(rows, 1)
    ]
    whole = replace(whole, beyond=0)  # no recorded attempt is beyond the record
    first, *others = (figures.plain() for figures in (whole, *rows))
    return {"recorded": first, "policies": others, "more": more}


Spec = Mapping[str, Any]
Check = Callable[..., Any]
# These checks use no file and no network, and end soon for any input.
TEXT_CHECKS = (
    "characters",
    "contains",
    "equals",
    "excludes",
    "not_empty",
    "regex",
    "words",
)
# These checks may take long, so they run in a process. To judge an output, it has
# `CHECK_TIMEOUT_SECONDS`, and to start and make the check `CHECK_START_SECONDS` seconds.
SLOW_CHECKS = ("insights", "json_schema", "precision", "predictions")
CHECK_TIMEOUT_SECONDS = 5.0
CHECK_START_SECONDS = 30.0
# Arguments of these checks that may be data; a text would be the path of a file.
DATA_ARGUMENTS = ("source", "results")
CRITIC_CHECKS = ("critic", "critics")
# The most characters of all checks in a request, as JSON.
MAX_CHECKS_CHARS = 64 * 1024
# The most critics in one report; each of them calls the model.
MAX_REPORT_CRITICS = 16


async def load_checks(specs: Sequence[Spec], setup: Setup) -> list[Check]:
    """Return the checks that `specs` name, from `setup.checks` or else from heedful's
    own checks.

    Critics use the judge of the service. Raises UnknownName for a check that is not
    allowed, UsageError also for arguments of a check in `setup.checks`,
    ModelUnavailable.
    """
    if (length := len(json.dumps(specs))) > MAX_CHECKS_CHARS:
        raise InvalidInput(
            "checks", f"{length} characters", f"at most {MAX_CHECKS_CHARS} as JSON"
        )
    critics = (spec for spec in specs if spec["name"] in CRITIC_CHECKS)
    asked = sum(max(1, len(schemas.inside(spec.get("members")))) for spec in critics)
    require(
        asked <= MAX_REPORT_CRITICS,
        "critics of a report",
        asked,
        f"at most {MAX_REPORT_CRITICS}",
    )
    return [await _check(spec, setup) for spec in specs]


async def _check(spec: Spec, setup: Setup) -> Check:
    name = spec["name"]
    if name in setup.checks:
        given = {key: value for key, value in spec.items() if key != "name"}
        require(
            not given,
            f"check {name!r}",
            given,
            "without arguments: the operator set them",
        )
        return setup.checks[name]
    if name in CRITIC_CHECKS:
        return await asyncio.to_thread(loading.load, _with_own_model(spec, setup))
    if name in TEXT_CHECKS:
        return _ThreadCheck(await asyncio.to_thread(loading.load, spec), setup.turns)
    if name not in SLOW_CHECKS:
        raise UnknownName(
            "check",
            name,
            sorted({*TEXT_CHECKS, *SLOW_CHECKS, *CRITIC_CHECKS, *setup.checks}),
        )
    for path in DATA_ARGUMENTS:
        if isinstance(spec.get(path), str):
            what = f"{path} of check {name!r}"
            raise InvalidInput(what, spec[path], "data or left out: it is no path")
    check = _ProcessCheck(name=name, spec=spec, turns=setup.turns)
    try:
        refusal, names = await check.run(CHECK_START_SECONDS, _try)
    except TimeoutError as error:
        raise InvalidInput(f"check {name!r}", "too complex", "simpler") from error
    if refusal:
        raise UsageError(refusal)
    return replace(check, names=names)


class _ThreadCheck:
    """Runs a check in a thread. A check that starts a process first acquires
    `turns`.
    """

    pure: ClassVar[bool] = False

    def __init__(self, check: Check, turns: Semaphore) -> None:
        self._check = check
        self._turns = turns

    async def __call__(self, candidate: Any, context: Any) -> Any:
        made = asyncio.ensure_future(asyncio.to_thread(self._check, candidate, context))
        try:
            found = await asyncio.shield(made)
            if not iscoroutine(found):
                return found
            async with self._turns:
                return await found
        finally:
            made.add_done_callback(
                lambda one: (
                    one.exception()
                    or (iscoroutine(one.result()) and one.result().close())
                )
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._check, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProcessCheck:
    """Runs a check in a process that is killed if it is slow; it first acquires
    `turns`.
    """

    name: str
    spec: Spec
    turns: Semaphore
    names: tuple[str, ...] = ()

    async def __call__(self, candidate: Any, context: Any) -> Any:
        try:
            return await self.run(CHECK_TIMEOUT_SECONDS, _findings, candidate, context)
        except TimeoutError:
            what = f"{self.name} did not end within {CHECK_TIMEOUT_SECONDS:g} s"
            return Finding(
                self.name, what, fix="Answer with less.", key=f"{self.name} time-out"
            )

    async def run(
        self, seconds: float, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Return the value of `function(spec, …)`. Raises TimeoutError."""
        run = partial(
            to_process.run_sync, function, self.spec, *arguments, cancellable=True
        )
        async with self.turns, asyncio.timeout(seconds):
            while True:
                with suppress(
                    BrokenWorkerProcess
                ):  # it was killed; there will be another
                    return await run()


def _try(spec: Spec) -> tuple[str, tuple[str, ...]]:
    """Return why a check cannot be made, or "", and the names under which it
    reports.
    """
    try:
        return "", check_names([loading.load(spec)])
    except UsageError as error:
        return str(error), ()


def _findings(spec: Spec, candidate: Any, context: Any) -> Any:
    return loading.load(spec)(candidate, context)


def _with_own_model(spec: Any, setup: Setup) -> Any:
    """Add the judge of the service to the description of a critic, which may not name a
    model.
    """
    if not isinstance(spec, Mapping):
        return spec
    if setup.judge is None:
        what = "this service has no judge, so no critic can judge"
        raise ModelUnavailable(
            f"{what}; set HEEDFUL_JUDGE to a model, or send an evaluation"
        )
    if isinstance(members := spec.get("members"), list):
        return {**spec, "members": [_with_own_model(one, setup) for one in members]}
    if "model" in spec:
        raise InvalidInput(
            "model of a critic", spec["model"], "left out: the service has a judge"
        )
    return {**spec, "model": setup.judge}
