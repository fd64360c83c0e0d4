"""Rules of the user through hooks: heard, stored, shown, and told before calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heedful import Memory
from heedful_agents.session_hooks import HookSettings, Reply, reply
from heedful_agents.session_work import work
from tests import engines
from tests.hooks.spoken import spoken_by
from tests.hosts import patient_host

PNPM = "No, we use pnpm, never npm"
pytestmark = pytest.mark.both_nightly


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    store = engines.in_memory()
    return Memory(store, holdout=0.0)


class Session:
    """A session of an agent with hooks; `everywhere` is the user's own database."""

    def __init__(
        self,
        memory: Memory,
        id: str = "one",
        agent: str = "claude-code",
        everywhere: str = "",
    ) -> None:
        self.host = patient_host(memory=memory, strict=True, everywhere=everywhere)
        self.id = id
        self.agent = agent
        self.calls = 0

    async def send(self, kind: Any, **fields: Any) -> Reply:
        """Send an event as the agent would, and do the work that is left."""
        settings = HookSettings(**fields.pop("settings", {}))
        content = {"session_id": self.id, "cwd": "/", **fields}
        name, message = spoken_by(self.agent, kind, content)
        answer = await reply(
            name, message, self.host, agent=self.agent, settings=settings
        )
        if answer.work:
            await work(self.host, answer.session, answer.work)
        return answer

    async def start(self, source: str = "startup") -> str:
        """Begin or resume the session; return what the agent is shown."""
        return context_of(await self.send("start", source=source))

    async def say(self, prompt: str, **fields: Any) -> str:
        """Send a prompt of the user; return what the agent is shown."""
        return context_of(await self.send("prompt", prompt=prompt, **fields))

    async def run(self, command: str, **fields: Any) -> str:
        """Run a command that works; return what the agent is shown."""
        return await self.call("Bash", {"command": command}, **fields)

    async def call(self, tool: str, arguments: Mapping[str, Any], **fields: Any) -> str:
        """Make a call that works; return what the agent is shown before and after."""
        self.calls += 1
        call = {
            "tool_name": tool,
            "tool_input": arguments,
            "tool_use_id": f"{self.id}{self.calls}",
        }
        before = await self.send("before", **call, **fields)
        after = await self.send("after", **call, tool_response={"stdout": "ok"})
        return context_of(before) + context_of(after)

    async def end(self) -> None:
        await self.send("end")


def context_of(answer: Reply) -> str:
    """Return the text that an answer shows the agent."""
    fields = dict(answer.answer or {})
    fields |= fields.get("hookSpecificOutput", {})
    names = ("additionalContext", "additional_context", "permissionDecisionReason")
    return "".join(str(fields[name]) for name in names if name in fields)


def note_of(answer: Reply) -> str:
    """Return what an answer shows the person."""
    return str((answer.answer or {}).get("systemMessage", ""))


async def test_rule_is_stored_at_once_and_shown_with_what_removes_it(
    memory: Memory,
) -> None:
    session = Session(memory)
    await session.start()
    answer = await session.send("prompt", prompt=PNPM)

    (stated,) = await memory.user_rules.in_force()
    assert stated.text == PNPM
    assert stated.trust == "user"
    assert PNPM in note_of(answer)
    assert f"heedful rules retire {stated.id} --by NAME" in note_of(answer)


async def test_rule_is_told_once_before_a_call_that_it_names(memory: Memory) -> None:
    await memory.user_rules.state("never use npm", by="ann")
    session = Session(memory)
    await session.start()

    assert "never use npm" not in await session.run("git status")
    assert "never use npm" in await session.run("npm ci")
    assert "never use npm" not in await session.run("npm ci")


async def test_rule_of_this_session_holds_in_it(memory: Memory) -> None:
    session = Session(memory)
    await session.say("never use npm")

    assert "never use npm" in await session.run("npm ci")


async def test_rules_of_the_own_memory_hold_in_all_projects(
    memory: Memory, tmp_path: Path
) -> None:
    own_file = str(tmp_path / "own.db")
    await Memory(own_file).user_rules.state("never use npm", by="ann")
    session = Session(memory, everywhere=own_file)

    assert "never use npm" in await session.start()
    assert "never use npm" in await session.run("npm ci")
    assert "never use npm" not in await session.run("npm ci")
