"""What the service has for coding agents: two routes and a job.

`heedful-server` finds them by its doors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.routing import Route as PlainRoute

from heedful.integrations.host import Host
from heedful.integrations.task_host import TaskHost
from heedful.lessons.scope import Scope
from heedful.lessons.user_rules import StatedRule
from heedful.store import episodes
from heedful.store.connection import storable
from heedful.validation import Document
from heedful_agents import mcp_server, session_hooks, session_work
from heedful_agents.agents import find_agent, in_our_names, session_of
from heedful_server import schemas
from heedful_server.auth import Reading, Writing, api_router
from heedful_server.jobs import JobKind, Tools
from heedful_server.routes import RouteGroup

hooks_router: APIRouter = api_router("hooks")


@hooks_router.post("/hooks/{agent}")
async def hook(
    agent: schemas.Name, event: dict[str, schemas.Plain], caller: Writing
) -> Document:
    """Answer an event of a coding agent as its hook does; nothing if memory has nothing
    to say.

    The key also needs `read` or `recall`. The service runs no command, and reads no
    file that the event names. A job learns from the session later; the key is a source
    of its lessons. A session belongs to the key that sent its first event: other keys
    get 409.
    """
    caller.needs("read", "recall")  # what it answers are lessons
    name = str(event.get("hook_event_name", ""))
    host = TaskHost(memory=caller.memory)  # as in the process of a hook
    session = session_of(in_our_names(find_agent(agent), event))
    await caller.read(episodes.check_owner, session, caller.actor.via)
    reply = await session_hooks.reply(name, event, host, agent=agent)

    if reply.work:
        owner = await caller.read(episodes.owner, reply.session)
        if owner == caller.actor.via:
            await caller.setup.work.defer(
                "learn",
                caller.scope,
                session=storable(reply.session),
                what=reply.work,
            )

    return dict(reply.answer or {})


@dataclass(frozen=True)
class RuleList:
    """The rules that users gave agents, last said first."""

    rules: Sequence[StatedRule]


@hooks_router.get("/rules")
async def list_rules(caller: Reading) -> RuleList:
    """List the rules that users gave agents, last said first, and how they were kept.

    The text of a rule that waits in quarantine is empty.
    """
    user_rules = caller.memory.user_rules
    return RuleList(await user_rules.with_ledgers(await user_rules.list()))


mcp_router: APIRouter = APIRouter(
    routes=[PlainRoute(mcp_server.MCP_PATH, mcp_server.Endpoint(), methods=["POST"])]
)


HOOK_ROUTES: RouteGroup = RouteGroup(router=hooks_router)
MCP_ROUTES: RouteGroup = RouteGroup(router=mcp_router)


async def learn(tools: Tools, scope: Scope, *, session: str, what: Any) -> None:
    """Learn from a session of a coding agent whose hooks the service answers.

    Raises StoreError.
    """
    host = Host(memory=tools.memory(scope), strict=True)
    await session_work.work(host, session, what)


LEARN: JobKind = JobKind(run=learn, queue="reflection", priority=35)
