"""Made-up sessions of coding agents: calls with their results."""

from __future__ import annotations

from typing import Any

import heedful
from heedful.episodes.episode import Episode, Event
from heedful.memory.sessions import Learned

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


def edit(path: str, old: str, new: str, error: str = "") -> list[Event]:
    """Return an edit of a file with its result."""
    change = {"file_path": path, "old_string": old, "new_string": new}
    return step("Edit", change, error)


def session_of(*steps: list[Event], id: str = "s1") -> Episode:
    events = [event for pair in steps for event in pair]
    return Episode(tuple(events), "partial", session=id)


async def learn(
    memory: heedful.Memory, id: str, *steps: list[Event], root: str = "/r"
) -> Learned:
    """Learn a finished session of the repository in `root`."""
    episode = session_of(*steps, id=id)
    return await heedful.learn_session(episode, memory=memory, root=root)
