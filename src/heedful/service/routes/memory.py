"""Routes for the memory of a project: recall, proof, lessons, quarantine and dreams."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from heedful.errors import InvalidInput
from heedful.lessons import lesson, ranking
from heedful.lessons.proof import is_due
from heedful.lessons.signature import signature
from heedful.lessons.trust import QuarantinedLesson
from heedful.memory.dream import Dreams, consolidate
from heedful.redact import redact
from heedful.service import schemas
from heedful.service.auth import Approving, Limit, Paged, Reading, Reviewing, Writing
from heedful.service.problems import Problem
from heedful.service.schemas import Document
from heedful.service.wire import LARGEST_ID, Page, cursor_from
from heedful.store import exposures, loops, patterns

Id = Annotated[int, Path(ge=1, le=LARGEST_ID)]
Word = Annotated[str, Query(max_length=200)]

router: APIRouter = APIRouter(prefix="/v1", tags=["recall"])
ALONE = frozenset({"limit", "budget", "tags", "match"})


@router.post("/recall")
async def recall(body: schemas.RecallRequest, caller: Reading) -> schemas.RecallAnswer:
    """Recall examples and lessons for a task; with a `loop`, record exposures (needs `write`)."""
    memory, exposure, told = caller.memory, None, None
    turns, worded = body.form == "messages", body.form == "text"
    if body.loop is None:
        found = await memory.recall(body.task, body.limit, tags=body.tags, match=body.match)
        messages = memory.render(found, body.budget) if turns else ()
        text = memory.render_text(found, body.budget) if worded else ""
    else:
        caller.needs("write")
        if unusable := sorted(ALONE & body.model_fields_set):
            value = getattr(body, unusable[0])
            raise InvalidInput(unusable[0], value, "left out if a loop is given")
        tell: ranking.Tell = "examples" if turns else "both"
        briefing = await memory.brief(body.task, body.loop, tell=tell)
        # Recorded before the prompt that may cause an outcome.
        await caller.write(loops.brief, body.loop, briefing)
        told = briefing.plain()
        shown = sum(exposure.shown for exposure in briefing.exposures)
        exposure = schemas.ExposureCount(body.loop, shown, len(briefing.exposures) - shown)
        found, messages = list(briefing.found), briefing.examples if turns else ()
        seed = secrets.randbits(64)
        text = ranking.as_text(briefing.examples, seed, briefing.advice) if worded else ""
    return schemas.RecallAnswer(found, list(messages), text, exposure, told)


@router.post("/outcomes")
async def outcomes(body: schemas.NewOutcome, caller: Writing) -> Document:
    """Report how a loop with recalled lessons ended; only the first report of a loop counts.

    `number` in the answer is the position of the loop among the ended loops of the project with
    recalled lessons, or 0 if no lessons were recalled for it.
    """
    known = body.right_at_once, body.calls, frozenset(body.signatures), body.memory_key
    end = lesson.Outcome(body.loop, *known)
    await caller.write(exposures.remember, (), outcome=end)
    past = await caller.read(exposures.past, body.loop)
    if is_due(past.number):
        await caller.setup.work.defer("prove", caller.scope)
    return {"loop": body.loop, "number": past.number}


@router.get("/proof")
async def proof(caller: Reading, limit: Limit = 50) -> schemas.ProofAnswer:
    """Return whether memory helps, in total and for each lesson."""
    memory = caller.memory
    proven = await memory.prove()
    ranked = sorted(proven.lessons, key=lambda lesson: -(lesson.shown + lesson.withheld))
    ended = (await caller.read(exposures.past, "")).ended
    return schemas.ProofAnswer(proven.pooled, ranked[:limit], proven.pending, ended, memory.holdout)


lessons: APIRouter = APIRouter(prefix="/v1", tags=["reflections"])


@lessons.post("/seen")
async def seen(body: schemas.Question, caller: Reading) -> schemas.SeenAnswer:
    """Return how often an error was seen, its lessons, and why similar errors were counted too."""
    answer = await caller.memory.seen(body.error_type, body.text)
    return schemas.SeenAnswer(
        signature=signature(body.error_type, redact(body.text)).digest,
        count=answer.count,
        lessons=[schemas.SeenLesson(**lesson) for lesson in answer.lessons],
        why=list(answer.group.why) if answer.group else [],
        lines=list(answer.lines),
        release=answer.release,
    )


@lessons.post("/before")
async def before(body: schemas.ActionQuestion, caller: Reading) -> schemas.ActionAnswer:
    """Return how an action failed before and what mended it; nothing if it has worked since."""
    return await caller.memory.before(body.tool, body.arguments)


@lessons.post("/reflections", status_code=201, responses={200: {"model": schemas.RememberedAnswer}})
async def create(
    body: schemas.NewLesson, caller: Writing, response: Response
) -> schemas.RememberedAnswer:
    """Record one occurrence of an error: 201 if its pattern is new and becomes a lesson, else 200.

    If the key lacks the permission `approve`, the lesson waits in quarantine; `entry` is its id
    there, and `release` the command that releases it. If the memory is full
    of more valuable lessons, the lesson is not stored and `id` and `seen` in the answer are 0.
    """
    pair = None
    if body.example is not None:
        pair = lesson.Example(**body.example.model_dump(), context=body.context)
    answer = await caller.memory.remember(
        **body.model_dump(exclude={"tenant", "example", "source"}),
        example=pair,
        trust="operator" if "approve" in caller.key.may else "tool",
        source=body.source or f"key:{caller.key.id or caller.key.name}",
    )
    response.status_code = 201 if answer.created else 200
    if answer.id:
        response.headers["Location"] = f"/v1/reflections/{answer.id}"
    return answer


@lessons.post("/reflections/query")
async def query(body: schemas.LessonQuery, caller: Reading) -> Page[schemas.QueriedLesson]:
    """Find lessons to read, with those in quarantine if the key has the permission `read`.

    Never put an item with the state `quarantined` into a prompt.
    """
    asked = body.model_dump(exclude={"tenant"})
    found = await caller.memory.query(**asked, waiting="read" in caller.key.may)
    return Page(items=found, next=None)


@lessons.get("/reflections")
async def listed(
    caller: Reading,
    page: Paged,
    kind: schemas.Kind | None = None,
    error_type: Word = "",
    tag: Word = "",
    state: lesson.State | None = None,
) -> Page[schemas.LessonRow]:
    """List the lessons that match all filters, newest first."""
    before = cursor_from(page.cursor, int) or LARGEST_ID
    which = lesson.LessonFilter(kind or "", error_type, tag, state or "", max(0, before))
    rows = await caller.read(patterns.list_lessons, which, page.limit + 1)
    return Page[schemas.LessonRow].of(rows, page.limit, "id")


@lessons.get("/reflections/{id}")
async def one(id: Id, caller: Reading, response: Response) -> schemas.LessonRow:
    """Return a lesson, with its entity tag in the header `ETag`."""
    return _with_etag(await caller.read(patterns.one, id), response)


@lessons.patch("/reflections/{id}")
async def edit(
    id: Id,
    body: schemas.LessonEdit,
    caller: Approving,
    response: Response,
    if_match: Annotated[
        str | None, Header(description="The ETag of the lesson.", max_length=200)
    ] = None,
) -> schemas.LessonRow:
    """Change a lesson and record the change; 412 if `If-Match` is not its current entity tag."""
    if if_match is None:
        raise Problem(428, "precondition_required", "send If-Match with the ETag of the lesson")
    change = lesson.Change(body.pinned, body.apart, body.restored is not None)
    detail = body.model_dump(exclude={"tenant"}, exclude_none=True)
    caller.record("reflection.edit", str(id), project=caller.scope.project, **detail)
    arguments = (if_match.strip().strip('"'), change, caller.by, body.why)
    return _with_etag(await caller.write(patterns.amend, id, *arguments), response)


def _with_etag(lesson: Mapping[str, Any], response: Response) -> schemas.LessonRow:
    response.headers["ETag"] = f'"{lesson["edition"]}"'
    return schemas.LessonRow(**lesson)


quarantine: APIRouter = APIRouter(prefix="/v1/quarantine", tags=["quarantine"])


@quarantine.get("")
async def waiting(caller: Reviewing, page: Paged) -> Page[schemas.QuarantineRow]:
    """List the lessons in quarantine that wait for a ruling, newest first."""
    after = cursor_from(page.cursor, int)
    rows = await caller.memory.quarantine.waiting(page.limit + 1, after=after)
    return Page[schemas.QuarantineRow].of(rows, page.limit, "id")


@quarantine.post("/revoke")
async def revoke(body: schemas.Revocation, caller: Approving) -> schemas.RevocationAnswer:
    """Remove a source and all derived from it, also lessons of loops whose prompts had its text."""
    if not body.dry_run:
        caller.record("quarantine.revoke", body.source, project=caller.scope.project, why=body.why)
    removed = await caller.memory.quarantine.revoke(
        body.source, by=caller.by, why=body.why, dry_run=body.dry_run
    )
    return schemas.RevocationAnswer(source=body.source, revoked=not body.dry_run, **asdict(removed))


@quarantine.get("/{id}")
async def show(id: Id, caller: Reviewing) -> QuarantinedLesson:
    """Return a lesson from quarantine: its text, the origin of the text, and the rulings on it."""
    return await caller.memory.quarantine.show(id)


@quarantine.post("/{id}/release")
async def release(id: Id, body: schemas.Reason, caller: Approving) -> Document:
    """Release a lesson from quarantine, with the trust `operator`; the ruling is recorded."""
    caller.record("quarantine.release", str(id), project=caller.scope.project, why=body.why)
    await caller.memory.quarantine.release([id], by=caller.by, why=body.why)
    return {"id": id, "state": "candidate", "by": caller.by, "why": body.why}


@quarantine.post("/{id}/reject")
async def reject(id: Id, body: schemas.Reason, caller: Approving) -> Document:
    """Retire a lesson in quarantine; its text is never recalled. The ruling is recorded."""
    caller.record("quarantine.reject", str(id), project=caller.scope.project, why=body.why)
    await caller.memory.quarantine.reject([id], by=caller.by, why=body.why)
    return {"id": id, "state": "retired", "by": caller.by, "why": body.why}


dreams: APIRouter = APIRouter(prefix="/v1/dreams", tags=["dreams"])


@dreams.post("")
async def dream(body: schemas.NewDream, caller: Writing) -> schemas.DreamRecord:
    """Merge lessons that say the same, unless recall gets worse; a rollback undoes the merge."""
    if not body.dry_run:
        caller.record("dream", caller.scope.project, mode=body.mode)
    return await consolidate(caller.memory, by=caller.by, mode=body.mode, dry_run=body.dry_run)


@dreams.get("", name="log")
async def dreams_log(caller: Reading, page: Paged) -> Page[schemas.DreamRecord]:
    """List the dreams, newest first; `nothing` says why a dream changed nothing."""
    before = cursor_from(page.cursor, int)
    rows = await Dreams(caller.memory).log(page.limit + 1, before)
    return Page[schemas.DreamRecord].of(rows, page.limit, "id")


@dreams.post("/{id}/rollback")
async def rollback(id: Id, body: schemas.Reason, caller: Approving) -> Document:
    """Undo a dream and return the number of restored `lessons`; changes after the dream remain."""
    caller.record("dream.rollback", str(id), project=caller.scope.project, why=body.why)
    back = await Dreams(caller.memory).rollback(id, by=caller.by, why=body.why)
    return {"id": id, "lessons": back}
