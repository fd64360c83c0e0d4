"""A session of Claude Code, as its hooks see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heedful import Memory
from heedful_agents.agents import Kind
from heedful_agents.session_hooks import Reply, reply
from heedful_agents.session_work import work
from tests.hooks.spoken import spoken_by
from tests.hosts import patient_host


class Session:
    """Sends the events of a session, and does the work that they leave."""

    def __init__(self, memory: Memory, id: str = "one", **options: Any) -> None:
        self.host = patient_host(memory=memory, strict=True, **options)
        self.id = id
        self.calls = 0

    async def send(self, kind: Kind, **fields: Any) -> Reply:
        """Send an event as the agent would."""
        content = {"session_id": self.id, "cwd": "/", **fields}
        name, message = spoken_by("claude-code", kind, content)
        answer = await reply(name, message, self.host)
        if answer.work:
            await work(self.host, answer.session, answer.work)
        return answer

    async def start(self, source: str = "startup") -> str:
        """Begin or resume the session; return what the agent is shown."""
        return context_of(await self.send("start", source=source))

    async def call(
        self, tool: str, arguments: str | Mapping[str, Any], error: str = ""
    ) -> tuple[str, str]:
        """Make a call; return what the agent is shown before and after it."""
        if isinstance(arguments, str):
            arguments = {"command": arguments}
        self.calls += 1
        call: dict[str, Any] = {
            "tool_name": tool,
            "tool_input": arguments,
            "tool_use_id": f"{self.id}{self.calls}",
        }
        before = await self.send("before", **call)
        if error:
            after = await self.send("failed", **call, error=error)
        else:
            after = await self.send("after", **call, tool_response={"stdout": "ok"})
        return context_of(before), context_of(after)

    async def run(self, command: str) -> str:
        """Run a command that works; return all that the agent is shown."""
        return "".join(await self.call("Bash", command))


def context_of(answer: Reply) -> str:
    """Return the text that an answer shows the agent."""
    output: Mapping[str, Any] = (answer.answer or {}).get("hookSpecificOutput", {})
    return str(output.get("additionalContext", ""))
