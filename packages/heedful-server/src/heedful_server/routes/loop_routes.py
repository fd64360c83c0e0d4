"""Routes for loops and stages that the caller runs, and for replays of loops.

A report of an attempt is judged by what it says itself (`evaluation`), by the checks
that it names, and by the checks that the operator has pinned to the loop. Who judged
decides what the loop's lessons are worth; see `attempt`.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import Path, Query, Response

from heedful.drive import report as reports
from heedful.errors import Conflict, InvalidInput, NotFound
from heedful.lessons.commands import release_command
from heedful.lessons.scope import Remembered, name_scope
from heedful.loop.codec import policy_from
from heedful.loop.decide import Done, Policy
from heedful.loop.policies import policy
from heedful.loop.record import Goal, Loop
from heedful.loop.replay import (
    RECORDED_POLICY,
    LoopScore,
    RecordedLoop,
    figures_of,
    score,
    with_policy_goals,
)
from heedful.pipeline import validate as validate_stage
from heedful.pipeline.stage_report import ValidationReport
from heedful.store import lessons, loop_notes, loops as loop_store
from heedful.store.offload import MAX_INLINE_CHARS, offload
from heedful.store.records import StoredLoop
from heedful.validation import Document
from heedful.wire import Page, explanation_record, loop_record, loop_verdict
from heedful_server import schemas
from heedful_server.auth import (
    Approving,
    Caller,
    Paged,
    Reading,
    Writing,
    api_router,
)
from heedful_server.request_checks import Check, load_checks
from heedful_server.review import visible_loop

router = api_router("loops")
Id = Annotated[str, Path(min_length=1, max_length=200, description="The id of a loop.")]
NewId = Annotated[schemas.LoopName, Path(description="The id of a loop.")]
Number = Annotated[
    int, Path(ge=1, le=2**31 - 1, description="The number of an attempt, from 1.")
]
# The characters in the JSON of a loop: its task, attempts, outputs and decisions. Each
# report and each answer about the loop reads all of it.
MAX_LOOP_CHARS = 8 * 2**20
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
    if the loop has ended; 413 if the loop would have more than 8 MiB. The lessons of a
    loop that a key from outside judged wait in quarantine, unless a person stated the
    key; `release` is the command that releases them.
    """
    setup = caller.setup
    pinned = setup.pinned(caller.scope, id)
    pinned_checks = [{"name": name} for name in pinned.checks]
    sent_checks = [check.model_dump() for check in body.checks]
    other_checks = [check for check in sent_checks if check not in pinned_checks]

    async def load() -> Sequence[Check]:
        """Load the checks that judge the output, if the report is a new one."""
        if pinned_checks and body.output is None:
            raise InvalidInput(
                "output", None, "given: checks that are pinned to this loop read it"
            )
        if not pinned_checks and not other_checks:
            return ()
        return await load_checks([*pinned_checks, *other_checks], setup)

    # A judgement counts if somebody stated the key that reports it, or if an operator
    # pinned all that made it.
    may_approve = "approve" in caller.key.may
    is_stated = await caller.origin() != "outside"
    is_key_trusted = may_approve or is_stated or caller.key.id in pinned.keys
    is_judged_by_caller = body.evaluation is not None or bool(other_checks)
    is_judged_by_pins = bool(pinned_checks) and not is_judged_by_caller

    # A key that somebody stated may choose the goals that an operator did not pin.
    expected_goals: Sequence[Goal] | None = pinned.goals or setup.policy.goals
    if may_approve or (is_stated and not pinned.goals):
        expected_goals = None

    report = reports.AttemptReport(
        body.output,
        body.digest,
        evaluation=body.evaluation,
        usage=body.usage,
        model=body.model,
        request=sent_checks,
        measured=is_key_trusted or is_judged_by_pins,
        goals=expected_goals,
    )
    result = await reports.report(
        setup.store,
        scope=caller.scope,
        id=id,
        number=n,
        attempt_report=report,
        memory=caller.memory,
        load_checks=load,
        max_chars=MAX_LOOP_CHARS,
        needs_judgement=True,
    )
    if result.new:
        setup.metrics.decided(result.verdict)

    loop = result.loop
    release = ""
    if isinstance(result.verdict, Done):
        release = await _release_command(caller, loop)

    return loop_verdict(
        result.verdict,
        loop,
        evaluated_by=loop.attempts[-1].judged_by,
        release=release,
    )


async def _release_command(caller: Caller, loop: Loop) -> str:
    """Return the command that releases a loop's lessons from quarantine, or ""."""
    if all(attempt.measured for attempt in loop.attempts):
        return ""
    waiting = await caller.read(lessons.held_of, f"loop:{loop.id}")
    return name_scope(release_command(waiting), caller.scope)


@router.put("/loops/{id:path}", responses=CREATED_RESPONSES, response_model=Document)
async def begin(
    id: NewId, body: schemas.NewLoop, caller: Writing, response: Response
) -> Document | Response:
    """Begin a loop, or return it if it exists; 409 if its task, context, goals, policy
    or rungs differ.

    If the body leaves out the goals or the policy, they are not compared.
    """
    setup = caller.setup
    options = {name: value for name, value in body if name != "tenant"}

    async def open_with(rules: Policy, goals: Sequence[Any]) -> reports.ReportedLoop:
        """Begin the loop, or return it. Raises Conflict if it began differently."""
        if not goals:
            rules = replace(rules, goals=())
        return await reports.open_loop(
            id,
            **{**options, "goals": goals, "policy": rules},
            store=setup.store,
            scope=caller.scope,
        )

    rules = policy(body.policy) if body.policy is not None else setup.policy
    goals: Sequence[Any] = setup.pinned(caller.scope, id).goals or rules.goals
    if body.goals is not None:
        goals = body.goals

    try:
        opened = await open_with(rules, goals)
    except Conflict:
        # The settings may have changed since the loop began. What the body leaves out
        # is what the loop began with.
        stored_loop = await caller.read(loop_store.read, id)
        if body.goals is None:
            goals = stored_loop.loop.goals
        if not body.policy:
            rules = policy_from(stored_loop.head.policy)
        opened = await open_with(rules, goals)

    response.status_code = 201 if opened.created else 200
    # A new loop has no notes.
    notes = () if opened.created else None
    return await _loop_answer(caller, opened.stored, response.status_code, notes)


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
    rows, more = await caller.read(
        loop_store.newest,
        page.limit,
        prefix=prefix,
        before=page.cursor or "",
        most=loop_store.MAX_LISTING_BYTES,
    )
    next_cursor = rows[-1].id if more else None
    return Page(items=[row.summary() for row in rows], next=next_cursor)


@router.get("/loops/{id:path}/explain")
async def explain(id: Id, caller: Reading) -> Document:
    """Explain why a loop continued, why it stopped, and what would have changed the
    verdict.

    If nothing would have changed it, `otherwise` says why.
    """
    stored_loop = await caller.read(loop_store.read, id, outputs=False, task=False)
    return explanation_record(await offload(stored_loop.explain))


@router.get("/loops/{id:path}", response_model=Document)
async def loop(id: Id, caller: Reading) -> Document | Response:
    """Return a whole loop."""
    return await _loop_answer(caller, await caller.read(loop_store.read, id))


async def _loop_answer(
    caller: Caller,
    stored_loop: StoredLoop,
    status: int = 200,
    notes: Sequence[loop_notes.LoopNote] | None = None,
) -> Document | Response:
    """Return a whole loop with its notes, as the caller may see it.

    The notes are read if they are None. A large loop becomes an answer outside the
    event loop.
    """
    if notes is None:
        notes = await caller.read(loop_notes.notes_of, stored_loop.loop.id)
    stored_loop = visible_loop(caller, stored_loop)
    if stored_loop.size <= MAX_INLINE_CHARS:
        return loop_record(stored_loop, notes)
    content = await offload(_loop_json, stored_loop, notes)
    return Response(content, status, media_type="application/json")


def _loop_json(stored_loop: StoredLoop, notes: Sequence[loop_notes.LoopNote]) -> bytes:
    """Return a whole loop as JSON."""
    return json.dumps(loop_record(stored_loop, notes), ensure_ascii=False).encode()


@router.post("/loops/{id:path}/cancel")
async def end(id: Id, body: schemas.ReasonBody, caller: Writing) -> Document:
    """End a loop; a loop that has already ended does not change."""
    caller.record("loop.cancel", id, why=body.why)
    verdict = await reports.cancel(
        caller.setup.store,
        scope=caller.scope,
        id=id,
        by=caller.by,
        why=body.why,
        memory=caller.memory,
    )
    loop = (await caller.read(loop_store.read, id)).loop
    release = await _release_command(caller, loop)
    return loop_verdict(verdict, loop, release=release)


@router.post("/loops/{id:path}/overrides", status_code=201)
async def lift(id: Id, body: schemas.NewOverride, caller: Approving) -> Document:
    """Let a loop continue past rules; if no other rule stopped it, it opens again."""
    caller.record(
        "loop.override", id, rule=body.rule, why=body.why, decisions=body.decisions
    )
    verdict = await reports.override(
        id,
        body.rule,
        by=caller.by,
        why=body.why,
        decisions=body.decisions,
        until=body.until,
        store=caller.setup.store,
        scope=caller.scope,
    )
    caller.setup.metrics.decided(verdict)

    stored_loop = await caller.read(loop_store.read, id)
    return loop_verdict(verdict, stored_loop.loop)


@router.post("/loops/{id:path}/notes", status_code=201)
async def write_note(
    id: Id, body: schemas.NewLoopNote, caller: Writing
) -> loop_notes.LoopNote:
    """Write a note about a loop, for the next person who reads it.

    Secrets in it are removed; the service records the key as its author. 422 beyond 200
    notes.
    """
    caller.record("loop.note", id)
    return await caller.write(loop_notes.add, id, body.text, caller.by)


@router.post("/loops/{id:path}/correction", status_code=201)
async def correct(
    id: Id, body: schemas.NewCorrection, caller: Approving
) -> list[Remembered]:
    """Store the right answer of a loop that did not pass, for the loops after it.

    The same answer is stored once. 422 if the loop is open or has passed, or if its
    checks refused the answer.
    """
    caller.record("loop.correct", id, why=body.why)
    return list(
        await caller.memory.correct(id, body.accepted, by=caller.by, why=body.why)
    )


@router.post("/validate")
async def validate(body: schemas.StageOutput, caller: Writing) -> ValidationReport:
    """Check the output of a stage that another program runs, and return a report; store
    nothing.

    If a check raises an error, the status is `not_validated`. 422 if a check is not
    allowed.
    """
    specs = [check.model_dump() for check in body.checks]
    checks = await load_checks(specs, caller.setup)
    attempt = await validate_stage(body.stage, checks, body.output, body.state)
    return ValidationReport.of(attempt)


@router.post("/replay")
async def replay(body: schemas.ReplayRequest, caller: Reading) -> Document:
    """Replay policies on recorded loops: count each policy's attempts and lost loops.

    A loop is lost if it was solved as recorded, but the policy stops before the
    solution. Nothing is stored. `more` is true if there are older loops, beyond `limit`
    or 32 MiB of records.
    """
    policies = [policy(notation) for notation in body.policies]
    scores, more = await _replay_scores(caller, policies, body.limit)
    if not scores:
        raise NotFound(
            "judged loop that ended in project", caller.scope.project, "the store"
        )

    # The scores of each policy, those of the oldest loop first.
    of_policies = zip(*reversed(scores), strict=True)
    as_recorded, *replayed = map(figures_of, [RECORDED_POLICY, *policies], of_policies)

    policy_rows = []
    for number, figures in enumerate(replayed, 1):
        name = figures.policy or f"policy {number}"
        policy_rows.append(replace(figures, policy=name).plain())

    # No recorded attempt is beyond the record.
    return {
        "recorded": replace(as_recorded, beyond=0).plain(),
        "policies": policy_rows,
        "more": more,
    }


async def _replay_scores(
    caller: Caller, policies: Sequence[Policy], limit: int
) -> tuple[list[list[LoopScore]], bool]:
    """Return the scores on each of the newest loops: as recorded, then of each policy.

    The loops are read and decided a few at a time, so that they are not all in memory.
    Also says if there are older loops, beyond `limit` or `MAX_REPLAY_BYTES`.
    """
    scores: list[list[LoopScore]] = []
    free_bytes = loop_store.MAX_REPLAY_BYTES
    before = ""
    while True:
        chunk = await caller.read(loop_store.recorded, limit, before)
        free_bytes -= chunk.size
        limit -= chunk.read
        before = chunk.last
        scores += await offload(_chunk_scores, chunk.loops, policies)
        if not chunk.more or not limit or free_bytes <= 0:
            return scores, chunk.more


def _chunk_scores(
    loops: Sequence[RecordedLoop], policies: Sequence[Policy]
) -> list[list[LoopScore]]:
    """Return the scores on each loop that ended and was judged: as recorded, then of
    each policy.
    """
    judged = [loop for loop in loops if loop.ended and loop.judged]
    return [
        [score(loop, rules) for rules in (RECORDED_POLICY, *policies)]
        for loop in with_policy_goals(judged, policies)
    ]
