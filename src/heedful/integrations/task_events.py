"""Events of Cline in the names of Claude Code.

Cline names a session a task, and puts what is special to an event into a field with the
name of the event: `{taskId, hookName, preToolUse: {toolName, parameters}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# The names of the fields of an event, and ours.
_FIELD_NAMES: Mapping[str, str] = {
    "toolName": "tool_name",
    "parameters": "tool_input",
    "prompt": "prompt",
}


def read(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an event with the names of Claude Code."""
    name = str(data.get("hookName", ""))
    details = data.get(f"{name[:1].lower()}{name[1:]}")
    if not isinstance(details, Mapping):
        details = {}

    event: dict[str, Any] = {
        "hook_event_name": name,
        "session_id": data.get("taskId"),
        "workspace_roots": data.get("workspaceRoots"),
    }
    for theirs, ours in _FIELD_NAMES.items():
        if theirs in details:
            event[ours] = details[theirs]

    if name == "TaskResume":
        event["source"] = "resume"
    if "result" in details:
        succeeded = details.get("success") is not False
        event["tool_response"] = {"output": details["result"], "success": succeeded}
    return event
