"""Recall, outcomes and proof; and to remember, list, read and edit lessons."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from heedful.errors import InvalidInput
from heedful.lessons.lesson import Change, LessonFilter, Outcome, Remembered, State
from heedful.lessons.proof import is_due
from heedful.lessons.ranking import as_text
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.redact import redact
from heedful.service.auth import Approving, Project, Reading, Writing
from heedful.service.problems import Problem
from heedful.service.schemas import (
    ExposureCount,
    Kind,
    LessonEdit,
    LessonRow,
    LessonSummary,
    NewLesson,
    NewOutcome,
    OutcomeReceipt,
    ProofAnswer,
    Question,
    RecallAnswer,
    RecallItem,
    RecallRequest,
    SeenAnswer,
)
from heedful.service.setup import RouteSetup
from heedful.service.wire import LARGEST_ID, Cursor, Limit, Page, cursor_from
from heedful.store import exposures, patterns

router: APIRouter = APIRouter(prefix="/v1", tags=["recall"])
ALONE = frozenset({"limit", "budget", "tags", "match"})


@router.post("/recall")
async def recall(
    body: RecallRequest, caller: Reading, setup: RouteSetup, project: Project = None
) -> RecallAnswer:
    """Recall what fits a task; with a `loop` an exposure is recorded, which needs `write`."""
    if body.loop is not None:
        caller.needs("write")
    memory = setup.memory(caller.scope(project, body.tenant))
    recall = _recall if body.loop is None else _recall_for_loop
    answer = await recall(memory, body)
    setup.metrics.recalled(len(answer.items))
    return answer


@router.post("/outcomes")
async def outcomes(
    body: NewOutcome, caller: Writing, setup: RouteSetup, project: Project = None
) -> OutcomeReceipt:
    """Report how a loop ended that was shown lessons; only the first report of a loop counts."""
    scope = caller.scope(project, body.tenant)
    end = Outcome(body.loop, body.right_at_once, body.calls, frozenset(body.signatures))
    await setup.store.write(scope, exposures.remember, (), outcome=end)
    past = await setup.store.read(scope, exposures.past, body.loop)
    if is_due(past.number):
        await setup.work.defer("prove", scope)
    return OutcomeReceipt(body.loop, past.number)


@router.get("/proof")
async def proof(
    caller: Reading, setup: RouteSetup, project: Project = None, limit: Limit = 50
) -> ProofAnswer:
    """Prove whether memory helps: as a whole, and each lesson, shown against withheld."""
    memory = setup.memory(caller.scope(project))
    proven = await memory.prove()
    ranked = sorted(proven.lessons, key=lambda lesson: -(lesson.shown + lesson.withheld))
    past = await memory.store.read(memory.scope, exposures.past, "")
    return ProofAnswer(proven.pooled, ranked[:limit], proven.pending, past.ended, memory.holdout)


async def _recall(memory: Memory, body: RecallRequest) -> RecallAnswer:
    matches = await memory.recall(body.task, body.limit, tags=body.tags, match=body.match)
    messages = memory.render(matches, body.budget) if body.form == "messages" else ()
    text = memory.render_text(matches, body.budget) if body.form == "text" else ""
    return RecallAnswer(list(map(RecallItem.of, matches)), list(messages), text, None)


async def _recall_for_loop(memory: Memory, body: RecallRequest) -> RecallAnswer:
    """Recall for a loop; record the exposure first, because the prompt may cause an outcome."""
    if unusable := sorted(ALONE & body.model_fields_set):
        name = unusable[0]
        raise InvalidInput(name, getattr(body, name), "left out if a loop is given")
    loop, turns = body.loop or "", body.form == "messages"
    briefing = await memory.brief(body.task, loop, examples=True if turns else None)
    briefing = briefing.worked if turns else briefing
    if briefing.exposures:
        await memory.store.write(memory.scope, exposures.remember, (), exposures=briefing.exposures)
    shown = sum(exposure.shown for exposure in briefing.exposures)
    exposure = ExposureCount(loop, shown, len(briefing.exposures) - shown)
    text = ""
    if body.form == "text":
        text = as_text(briefing.examples, secrets.randbits(64), briefing.advice)
    messages = list(briefing.examples) if turns else []
    return RecallAnswer(list(map(RecallItem.of, briefing.found)), messages, text, exposure)


reflections_router: APIRouter = APIRouter(prefix="/v1", tags=["reflections"])
Id = Annotated[int, Path(ge=1, le=LARGEST_ID)]
Word = Annotated[str, Query(max_length=200)]
IfMatch = Annotated[str | None, Header(description="The ETag of the lesson.", max_length=200)]


@reflections_router.post("/reflections", status_code=201, responses={200: {"model": Remembered}})
async def create(
    body: NewLesson,
    caller: Writing,
    setup: RouteSetup,
    response: Response,
    project: Project = None,
) -> Remembered:
    """Count one sighting of an error: 201 for a new pattern, which becomes a lesson, else 200.

    If the key may not approve, the lesson waits in quarantine. All fields are 0 if memory is full
    of lessons that are worth more.
    """
    answer = await setup.memory(caller.scope(project, body.tenant)).remember(
        body.error_type,
        body.text,
        lesson=body.lesson,
        example=body.pair,
        trust="operator" if "approve" in caller.may else "tool",
        tags=body.tags,
        context=body.context,
        importance=body.importance,
        source=body.source or f"key:{caller.key or caller.name}",
    )
    response.status_code = 201 if answer.created else 200
    if answer.id:
        response.headers["Location"] = f"/v1/reflections/{answer.id}"
    return answer


@reflections_router.get("/reflections")
async def listed(
    caller: Reading,
    setup: RouteSetup,
    project: Project = None,
    kind: Annotated[Kind | None, Query()] = None,
    error_type: Word = "",
    tag: Word = "",
    state: Annotated[State | None, Query()] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[LessonRow]:
    """List the lessons that meet all given filters, newest first."""
    (before,) = cursor_from(cursor, int) or (LARGEST_ID,)
    last = max(0, min(before, LARGEST_ID))
    which = LessonFilter(kind or "", error_type, tag, state or "", last)
    rows = await setup.store.read(caller.scope(project), patterns.list_lessons, which, limit + 1)
    return Page[LessonRow].of(rows, limit, "id")


@reflections_router.get("/reflections/{id}")
async def one(
    id: Id, caller: Reading, setup: RouteSetup, response: Response, project: Project = None
) -> LessonRow:
    """Read a lesson, with its entity tag."""
    lesson = await setup.store.read(caller.scope(project), patterns.one, id)
    return _with_etag(lesson, response)


@reflections_router.patch("/reflections/{id}")
async def edit(
    id: Id,
    body: LessonEdit,
    caller: Approving,
    setup: RouteSetup,
    response: Response,
    project: Project = None,
    if_match: IfMatch = None,
) -> LessonRow:
    """Change a lesson, on record; 412 if it has changed since the entity tag in `If-Match`."""
    scope = caller.scope(project, body.tenant)
    if if_match is None:
        raise Problem(428, "precondition_required", "send If-Match with the ETag of the lesson")
    change = Change(body.pinned, body.apart, body.restored is not None)
    detail = body.model_dump(include={"pinned", "apart", "restored"}, exclude_none=True)
    caller.record("reflection.edit", str(id), project=scope.project, why=body.why, **detail)
    edition = if_match.strip().removeprefix('"').removesuffix('"')
    edit = id, edition, change, caller.by, body.why
    return _with_etag(await setup.store.write(scope, patterns.amend, *edit), response)


@reflections_router.post("/seen")
async def seen(
    body: Question, caller: Reading, setup: RouteSetup, project: Project = None
) -> SeenAnswer:
    """Look an error up: how often it was seen, what it taught, and why it counts with others."""
    answer = await setup.memory(caller.scope(project, body.tenant)).seen(body.error_type, body.text)
    return SeenAnswer(
        signature=signature(body.error_type, redact(body.text)).digest,
        count=answer.count,
        lessons=[LessonSummary.model_validate(lesson) for lesson in answer.lessons],
        why=list(answer.group.why) if answer.group else [],
    )


def _with_etag(lesson: Mapping[str, Any], response: Response) -> LessonRow:
    response.headers["ETag"] = f'"{lesson["edition"]}"'
    return LessonRow.model_validate(lesson)
