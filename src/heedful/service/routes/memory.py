"""What memory has for a task, how loops ended, and whether memory helps.

Lessons: remembered, listed, read, edited; and whether an error is known.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from heedful.errors import InvalidInput, NotFound
from heedful.lessons.lesson import Change, LessonFilter, Match, Outcome, State
from heedful.lessons.proof import is_due
from heedful.lessons.ranking import as_text
from heedful.lessons.signature import signature
from heedful.memory.memory import Memory
from heedful.models.contract import Message
from heedful.redact import redact
from heedful.service.auth import Approving, Project, Reading, Writing
from heedful.service.pagination import Cursor, Limit, cursor_from, cursor_to
from heedful.service.problems import Problem
from heedful.service.setup import Given
from heedful.service.wire.body import LARGEST
from heedful.service.wire.recall import (
    Counted,
    GivenOutcome,
    Item,
    Proof,
    Recall,
    Recalled,
    Shown,
    ShownComparison,
    Turn,
)
from heedful.service.wire.reflections import (
    EditReflection,
    Kind,
    Known,
    KnownLesson,
    MadeReflection,
    NewReflection,
    Question,
    Reflections,
    ShownReflection,
)
from heedful.store import exposures, patterns

router: APIRouter = APIRouter(prefix="/v1", tags=["recall"])
ALONE = frozenset({"limit", "budget", "tags", "match"})


@router.post("/recall")
async def recall(asked: Recall, caller: Reading, setup: Given, project: Project = None) -> Recalled:
    """What fits a task; with a `loop`, what it is shown, which counts (and needs `write`)."""
    if asked.loop is not None:
        caller.needs("write")
    memory = setup.memory(caller.scope(project, asked.tenant))
    found = await (_alone(memory, asked) if asked.loop is None else _shown(memory, asked))
    setup.metrics.recalled(len(found.items))
    return found


@router.post("/outcomes")
async def outcomes(
    given: GivenOutcome, caller: Writing, setup: Given, project: Project = None
) -> Counted:
    """How a loop ended that was shown something; the first that is told counts."""
    scope = caller.scope(project, given.tenant)
    end = Outcome(given.loop, given.right_at_once, given.calls, frozenset(given.signatures))
    await setup.store.write(scope, exposures.remember, (), outcome=end)
    past = await setup.store.read(scope, exposures.past, given.loop)
    if is_due(past.number):
        await setup.work.defer("prove", scope)
    return Counted(loop=given.loop, number=past.number)


@router.get("/proof")
async def proof(caller: Reading, setup: Given, project: Project = None, limit: Limit = 50) -> Proof:
    """Does memory help? As a whole, and each lesson, where it was shown and where withheld."""
    memory = setup.memory(caller.scope(project))
    found = await memory.prove()
    ranked = sorted(found.lessons, key=lambda one: -(one.shown + one.withheld))
    past = await memory.store.read(memory.scope, exposures.past, "")
    return Proof(
        pooled=ShownComparison.of(found.pooled),
        lessons=[ShownComparison.of(one) for one in ranked[:limit]],
        pending=found.pending,
        ended=past.ended,
        holdout=memory.holdout,
    )


async def _alone(memory: Memory, asked: Recall) -> Recalled:
    found = await memory.recall(asked.task, asked.limit, tags=asked.tags, match=asked.match)
    messages = memory.render(found, asked.budget) if asked.form == "messages" else ()
    text = memory.render_text(found, asked.budget) if asked.form == "text" else ""
    return _told(found, messages, text, None)


async def _shown(memory: Memory, asked: Recall) -> Recalled:
    """What the loop is shown: written down first, since the prompt may lead to it."""
    if given := sorted(ALONE & asked.model_fields_set):
        raise InvalidInput(given[0], getattr(asked, given[0]), "left out where a loop is given")
    loop, turns = asked.loop or "", asked.form == "messages"
    briefing = await memory.brief(asked.task, loop, examples=True if turns else None)
    briefing = briefing.worked if turns else briefing
    if briefing.exposures:
        await memory.store.write(memory.scope, exposures.remember, (), exposures=briefing.exposures)
    shown = sum(one.shown for one in briefing.exposures)
    exposure = Shown(loop=loop, shown=shown, withheld=len(briefing.exposures) - shown)
    text = ""
    if asked.form == "text":
        text = as_text(briefing.examples, secrets.randbits(64), briefing.advice)
    return _told(briefing.found, briefing.examples if turns else (), text, exposure)


def _told(
    found: Sequence[Match], messages: Sequence[Message], text: str, exposure: Shown | None
) -> Recalled:
    turns = [Turn(role=one.role, content=one.content, source=one.source) for one in messages]
    items = [Item.of(one) for one in found]
    return Recalled(items=items, messages=turns, text=text, exposure=exposure)


reflections_router: APIRouter = APIRouter(prefix="/v1", tags=["reflections"])
Of = Annotated[int, Path(ge=1, le=LARGEST)]
Word = Annotated[str, Query(max_length=200)]
IfMatch = Annotated[str | None, Header(description="The ETag of what was read.", max_length=200)]


@reflections_router.post(
    "/reflections", status_code=201, responses={200: {"model": MadeReflection}}
)
async def create(
    new: NewReflection, caller: Writing, setup: Given, response: Response, project: Project = None
) -> MadeReflection:
    """Count one sighting of an error; a new pattern becomes a lesson (201), a known one does not.

    One by a key that may not approve waits in quarantine.
    """
    scope = caller.scope(project, new.tenant)
    answer = await setup.memory(scope).remember(
        new.error_type,
        new.text,
        lesson=new.lesson,
        example=new.example.value(new.context) if new.example else None,
        trust="operator" if "approve" in caller.may else "tool",
        tags=new.tags,
        context=new.context,
        importance=new.importance,
        source=new.source or f"key:{caller.key or caller.name}",
    )
    response.status_code = 201 if answer.created else 200
    if answer.id:
        response.headers["Location"] = f"/v1/reflections/{answer.id}"
    return MadeReflection(id=answer.id, created=answer.created, seen=answer.seen)


@reflections_router.get("/reflections")
async def listed(
    caller: Reading,
    setup: Given,
    project: Project = None,
    kind: Annotated[Kind | None, Query()] = None,
    error_type: Word = "",
    tag: Word = "",
    state: Annotated[State | None, Query()] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Reflections:
    """The lessons, the newest first; all filters that are given are met."""
    (before,) = cursor_from(cursor, int) or (LARGEST,)
    wanted = LessonFilter(kind or "", error_type, tag, state or "", max(0, min(before, LARGEST)))
    found = await setup.store.read(caller.scope(project), patterns.list_lessons, wanted, limit + 1)
    more = cursor_to(found[limit - 1]["id"]) if len(found) > limit else None
    return Reflections(items=[ShownReflection.of(one) for one in found[:limit]], next=more)


@reflections_router.get("/reflections/{id}")
async def one(
    id: Of, caller: Reading, setup: Given, response: Response, project: Project = None
) -> ShownReflection:
    """A lesson, with its entity tag."""
    scope = caller.scope(project)
    wanted = LessonFilter(before=min(id + 1, LARGEST))
    for found in await setup.store.read(scope, patterns.list_lessons, wanted, 1):
        if found["id"] == id:
            return _tagged(found, response)
    raise NotFound("lesson", str(id), f"the memory of {scope.tenant}/{scope.project}")


@reflections_router.patch("/reflections/{id}")
async def edit(
    id: Of,
    change: EditReflection,
    caller: Approving,
    setup: Given,
    response: Response,
    project: Project = None,
    if_match: IfMatch = None,
) -> ShownReflection:
    """Change a lesson that is still what was read (If-Match), on record; else 412."""
    scope = caller.scope(project, change.tenant)
    if if_match is None:
        raise Problem(428, "precondition_required", "send If-Match with the ETag of the lesson")
    wanted = Change(change.pinned, change.apart, change.restored is not None)
    told = change.model_dump(include={"pinned", "apart", "restored"}, exclude_none=True)
    caller.record("reflection.edit", str(id), project=scope.project, why=change.why, **told)
    edition = if_match.strip().removeprefix('"').removesuffix('"')
    found = await setup.store.write(
        scope, patterns.amend, id, edition, wanted, caller.by, change.why
    )
    return _tagged(found, response)


@reflections_router.post("/seen")
async def seen(question: Question, caller: Reading, setup: Given, project: Project = None) -> Known:
    """Have I seen this error before? How often, what it taught, and why it counts with others."""
    scope = caller.scope(project, question.tenant)
    found = await setup.memory(scope).seen(question.error_type, question.text)
    names = KnownLesson.model_fields
    return Known(
        signature=signature(question.error_type, redact(question.text)).digest,
        count=found.count,
        lessons=[KnownLesson(**{name: one[name] for name in names}) for one in found.lessons],
        why=list(found.group.why) if found.group else [],
    )


def _tagged(found: Any, response: Response) -> ShownReflection:
    response.headers["ETag"] = f'"{found["edition"]}"'
    return ShownReflection.of(found)
