"""Lessons: remembered, listed, read, edited; and whether an error is known."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Response

from heedful.errors import NotFound
from heedful.http.caller import Approving, Project, Reading, Writing
from heedful.http.pages import Cursor, Limit, cursor_from, cursor_to
from heedful.http.problems import Problem
from heedful.http.setup import Given
from heedful.http.wire.body import LARGEST
from heedful.http.wire.reflections import (
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
from heedful.lessons import Change, Wanted
from heedful.memory.learn import State
from heedful.memory.signature import signature
from heedful.redact import redacted

router: APIRouter = APIRouter(prefix="/v1", tags=["reflections"])
Of = Annotated[int, Path(ge=1, le=LARGEST)]
Word = Annotated[str, Query(max_length=200)]
IfMatch = Annotated[str | None, Header(description="The ETag of what was read.", max_length=200)]


@router.post("/reflections", status_code=201, responses={200: {"model": MadeReflection}})
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


@router.get("/reflections")
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
    wanted = Wanted(kind or "", error_type, tag, state or "", max(0, min(before, LARGEST)))
    found = await setup.store.listed(caller.scope(project), wanted, limit + 1)
    more = cursor_to(found[limit - 1]["id"]) if len(found) > limit else None
    return Reflections(items=[ShownReflection.of(one) for one in found[:limit]], next=more)


@router.get("/reflections/{id}")
async def one(
    id: Of, caller: Reading, setup: Given, response: Response, project: Project = None
) -> ShownReflection:
    """A lesson, with its entity tag."""
    scope = caller.scope(project)
    wanted = Wanted(before=min(id + 1, LARGEST))
    for found in await setup.store.listed(scope, wanted, 1):
        if found["id"] == id:
            return _tagged(found, response)
    raise NotFound("lesson", str(id), f"the memory of {scope.tenant}/{scope.project}")


@router.patch("/reflections/{id}")
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
    found = await setup.store.amend(scope, id, edition, wanted, caller.by, change.why)
    return _tagged(found, response)


@router.post("/seen")
async def seen(question: Question, caller: Reading, setup: Given, project: Project = None) -> Known:
    """Have I seen this error before? How often, what it taught, and why it counts with others."""
    scope = caller.scope(project, question.tenant)
    found = await setup.memory(scope).seen(question.error_type, question.text)
    names = KnownLesson.model_fields
    return Known(
        signature=signature(question.error_type, redacted(question.text)).digest,
        count=found.count,
        lessons=[KnownLesson(**{name: one[name] for name in names}) for one in found.lessons],
        why=list(found.group.why) if found.group else [],
    )


def _tagged(found: Any, response: Response) -> ShownReflection:
    response.headers["ETag"] = f'"{found["edition"]}"'
    return ShownReflection.of(found)
