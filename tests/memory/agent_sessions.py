"""Made-up sessions of coding agents: calls with their results."""

from __future__ import annotations

from typing import Any

import heedful
from heedful.episodes.episode import Episode, Event

UNREAD = "File has not been read yet. Read it first before writing to it."


def step(
    tool: str, arguments: Any, error: str = "", *, result: str = "ok"
) -> list[Event]:
    """Return a call with its result; a text is a command."""
    if isinstance(arguments, str):
        arguments = {"command": arguments}
    call = Event("tool_call", tool=tool, arguments=arguments)
    content = "" if error else result
    return [call, Event("tool_response", content, tool=tool, error=error)]


async def learn(
    memory: heedful.Memory, id: str, *steps: list[Event], root: str = "/r"
) -> None:
    """Learn a finished session of the repository in `root`."""
    events = [event for pair in steps for event in pair]
    episode = Episode(tuple(events), "partial", session=id)
    await heedful.learn_session(episode, memory=memory, root=root)
