"""After a plain installation, the next session is told what put a failure right."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from heedful_agents.agents import AGENTS, Kind
from tests.hooks.homes import Home, run_command
from tests.hooks.spoken import spoken_by
from tests.hooks.support import call_hook


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A call fails and another one works; `fix` is what the next session must hear."""

    failed: Mapping[str, Any]
    error: str
    worked: Mapping[str, Any]
    fix: str
    tool: str = "Bash"
    agent: str = "claude-code"
    prompt: str = "go on with the plan"
    source: str = "startup"
    response: Mapping[str, Any] = field(default_factory=lambda: {"stdout": "done"})


def shell(failed: str, error: str, worked: str, fix: str, **more: Any) -> Situation:
    """Return a situation of two commands of a shell."""
    return Situation(
        failed={"command": failed},
        error=error,
        worked={"command": worked},
        fix=fix,
        **more,
    )


NPM = 'npm error Missing script: "typecheck"'
TYPES = shell("npm run typecheck", NPM, "npm run check:types", "check:types")
SITUATIONS = {
    "docker": shell(
        "docker compose up -d billing-db",
        "no such service: billing-db",
        "docker compose up -d postgres",
        "up -d postgres",
    ),
    "a prompt of several lines": replace(
        TYPES, prompt="The total is wrong.\nFix it.\n\n- see that types are right"
    ),
    "a resumed session": replace(TYPES, source="resume"),
    "a compacted session": replace(TYPES, source="compact"),
    "Codex": replace(TYPES, agent="codex"),
    "Gemini CLI": replace(TYPES, agent="gemini-cli", tool="run_shell_command"),
    "Cursor": replace(TYPES, agent="cursor", tool="Shell"),
    "Copilot": replace(TYPES, agent="copilot"),
}


def send(home: Home, agent: str, kind: Kind, data: Mapping[str, Any]) -> str:
    """Send an event as an agent does; return the answer."""
    name, event = spoken_by(agent, kind, {"cwd": str(home.shop), **data})
    done = call_hook(
        home.shop,
        home.home,
        [name, "--agent", agent],
        json.dumps(event).encode(),
        {"HEEDFUL_HOLDOUT": "0"},
    )
    assert done.code == 0
    return done.out


def call(home: Home, situation: Situation, session: str, *, fails: bool) -> str:
    """Make a call of a session; return what its hooks answer."""
    agent = situation.agent
    has_failures = bool(AGENTS[agent].event_of("failed"))
    data: dict[str, Any] = {
        "session_id": session,
        "tool_name": situation.tool,
        "tool_use_id": f"call-{fails}",
        "tool_input": situation.failed if fails else situation.worked,
    }
    answers = send(home, agent, "before", data)
    if fails and has_failures:
        return answers + send(home, agent, "failed", {**data, "error": situation.error})
    if fails:
        code = f"Process exited with code 1\n{situation.error}"
        return answers + send(home, agent, "after", {**data, "tool_response": code})
    response = situation.response
    return answers + send(home, agent, "after", {**data, "tool_response": response})


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_was_put_right_is_told_in_the_next_session(name: str, home: Home) -> None:
    situation = SITUATIONS[name]
    agent = situation.agent
    run_command(home, f"hook install {agent} --yes")

    for session in ("monday", "tuesday"):
        beginning = {"session_id": session, "source": situation.source}
        send(home, agent, "start", beginning)
        prompt = {"session_id": session, "prompt": situation.prompt}
        if AGENTS[agent].event_of("prompt"):
            send(home, agent, "prompt", prompt)
        answers = call(home, situation, session, fails=True)
        answers += call(home, situation, session, fails=False)
        if session == "tuesday":
            assert situation.fix in answers
        if AGENTS[agent].event_of("end"):
            send(home, agent, "end", {"session_id": session, "reason": "other"})


def test_a_call_of_an_mcp_tool_is_recorded_and_told(home: Home) -> None:
    """What a server says is from outside; which call works is not."""
    situation = Situation(
        tool="mcp__tickets__create",
        failed={"project": "LED", "type": "Defect"},
        error="invalid type: Defect",
        worked={"project": "LED", "type": "Bug"},
        fix="Bug",
        response={"content": [{"type": "text", "text": "LED-7"}]},
    )
    run_command(home, "hook install --yes")
    answers = []
    for session in ("monday", "tuesday"):
        send(
            home,
            "claude-code",
            "start",
            {"session_id": session, "source": "startup"},
        )
        answers.append(call(home, situation, session, fails=True))
        call(home, situation, session, fails=False)
        send(
            home,
            "claude-code",
            "end",
            {"session_id": session, "reason": "other"},
        )
    assert situation.fix in answers[-1]
