"""What memory has for a task, how loops ended, and whether memory helps."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from fastapi import APIRouter

from heedful.errors import InvalidInput
from heedful.http.caller import Project, Reading, Writing
from heedful.http.pages import Limit
from heedful.http.setup import Given
from heedful.http.wire.recall import (
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
from heedful.memory.memory import Memory
from heedful.memory.proof import Outcome, due
from heedful.memory.recall import as_text
from heedful.protocols import Found, Message

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
    await setup.store.remember(scope, (), outcome=end)
    past = await setup.store.past(scope, given.loop)
    if due(past.number):
        await setup.work.defer("prove", scope)
    return Counted(loop=given.loop, number=past.number)


@router.get("/proof")
async def proof(caller: Reading, setup: Given, project: Project = None, limit: Limit = 50) -> Proof:
    """Does memory help? As a whole, and each lesson, where it was shown and where withheld."""
    memory = setup.memory(caller.scope(project))
    found = await memory.prove()
    ranked = sorted(found.lessons, key=lambda one: -(one.shown + one.withheld))
    past = await memory.store.past(memory.scope, "")
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
        await memory.store.remember(memory.scope, (), exposures=briefing.exposures)
    shown = sum(one.shown for one in briefing.exposures)
    exposure = Shown(loop=loop, shown=shown, withheld=len(briefing.exposures) - shown)
    text = ""
    if asked.form == "text":
        text = as_text(briefing.examples, secrets.randbits(64), briefing.advice)
    return _told(briefing.found, briefing.examples if turns else (), text, exposure)


def _told(
    found: Sequence[Found], messages: Sequence[Message], text: str, exposure: Shown | None
) -> Recalled:
    turns = [Turn(role=one.role, content=one.content, source=one.source) for one in messages]
    items = [Item.of(one) for one in found]
    return Recalled(items=items, messages=turns, text=text, exposure=exposure)
