"""Runs of agents: taken, and reflected on."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from heedful.errors import InvalidInput
from heedful.http.caller import Caller, Project, Reading, Writing
from heedful.http.pages import Cursor, Limit, cursor_from, cursor_to
from heedful.http.setup import Given, Setup
from heedful.http.wire.episodes import Episodes, GivenTrust, NewEpisode, ShownEpisode, Taken, Taught
from heedful.memory.episode import Episode
from heedful.memory.filing import file
from heedful.memory.reflect import reflect
from heedful.protocols import Scope
from heedful.traces.gather import Limits
from heedful.traces.lines import Lines

router: APIRouter = APIRouter(prefix="/v1", tags=["episodes"])
Wait = Annotated[bool, Query(description="Answer when it is reflected on.")]
Trust = Annotated[
    GivenTrust,
    Query(description="Whose the task is; `operator` needs a key that may approve."),
]
State = Annotated[Literal["waiting", "reflected", "failed"] | None, Query()]


def vouched(caller: Caller, trust: GivenTrust) -> GivenTrust:
    """From whom the task is, by a key that may say so. Raises Forbidden."""
    if trust == "operator":
        caller.needs("approve")
    return trust


@router.post("/episodes", status_code=202, responses={200: {"model": Taken}})
async def create(
    new: NewEpisode,
    caller: Writing,
    setup: Given,
    response: Response,
    project: Project = None,
    wait: Wait = False,
    trust: Trust = "external",
) -> Taken:
    """Take a finished run, once however often it is sent; it is reflected on by a worker.

    200 where it is reflected on. What tools, documents and users said waits in quarantine with all
    that rests on it.
    """
    scope = caller.scope(project, new.tenant)
    episode = await asyncio.to_thread(_episode, new)
    given = vouched(caller, trust)
    taken = await (_now if wait else _later)(setup, scope, episode, given)
    response.status_code = 200 if taken.state == "reflected" else 202
    return taken


@router.get("/episodes")
async def listed(
    caller: Reading,
    setup: Given,
    project: Project = None,
    state: State = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Episodes:
    """The episodes and what became of them, the newest first."""
    place: Any = cursor_from(cursor, float, str) or ()
    store = setup.store.episodes
    found = await store.before(caller.scope(project), limit + 1, state or "", *place)
    last = found[limit - 1] if len(found) > limit else None
    more = cursor_to(last.at, last.digest) if last else None
    return Episodes(items=[ShownEpisode.of(one) for one in found[:limit]], next=more)


def _episode(new: NewEpisode) -> Episode:
    """The episode, of a bounded size and without secrets. Raises InvalidInput."""
    plain = new.model_dump(exclude_unset=True, exclude={"tenant"})
    if not new.events and new.fault is None:
        raise InvalidInput("events", [], "at least one event, where there is no fault")
    plain |= {"events": [one.model_dump(exclude_unset=True) for one in new.events]}
    [episode] = Lines(Limits()).add(plain)
    return episode


async def _later(setup: Setup, scope: Scope, episode: Episode, trust: GivenTrust) -> Taken:
    filed = await asyncio.to_thread(file, episode, episode.digest, trust)
    state = await setup.store.episodes.put(scope, filed)
    if state != "reflected":
        await setup.work.defer("reflect", scope, digest=filed.digest)
    return Taken(digest=filed.digest, state=state)


async def _now(setup: Setup, scope: Scope, episode: Episode, trust: GivenTrust) -> Taken:
    made = await reflect(episode, memory=setup.memory(scope), model=setup.model, trust=trust)
    assert made is not None
    state: Literal["waiting", "reflected"] = "waiting" if made.busy else "reflected"
    return Taken(digest=episode.digest, state=state, taught=Taught.of(made))
