"""Events in the names of each agent, made from those of Claude Code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from heedful.integrations.agents import AGENTS, Kind


def spoken_by(
    agent: str, kind: Kind, content: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the name and the data of an event, as an agent names them."""
    row = AGENTS[agent]
    name = row.event_of(kind)
    data = {row.fields.get(field, field): value for field, value in content.items()}
    if row.reader:
        data = _in_a_field_of_its_own(name, data)
    spoken: dict[str, Any] = json.loads(json.dumps(data))
    return name, spoken


def _in_a_field_of_its_own(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event with its details in a field with its name."""
    details: dict[str, Any] = {}
    if "tool_name" in data:
        details["toolName"] = data["tool_name"]
        details["parameters"] = data.get("tool_input", {})
    if "prompt" in data:
        details["prompt"] = data["prompt"]
    response = data.get("tool_response")
    if response is not None:
        parts = response if isinstance(response, Mapping) else {"output": response}
        details["result"] = str(parts.get("output") or parts.get("stdout") or "")
        details["success"] = not parts.get("exit_code")

    field = f"{name[:1].lower()}{name[1:]}"
    return {"taskId": data["session_id"], "hookName": name, field: details}


def is_denial(answer: str) -> bool:
    """Return True if an answer denies a call, in the form of any agent."""
    return any(word in answer for word in ('"deny"', '"block"', '"cancel": true'))
