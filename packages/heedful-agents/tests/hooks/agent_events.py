"""Events of each agent, written after the examples of its documentation.

`EVENTS` has, by agent, kind and event, what the agent sends. A session states a rule,
and then makes a call that goes against it, so that each event that can be answered is
answered. `source` of each agent is in `heedful_agents.agents`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RULE = "never use npm"
COMMAND = "npm ci"
ERROR = "npm ERR! code ENOENT"
AT = "2026-11-20T10:30:00.000Z"
FOLDER = "/srv/ann/shop"
# Their event of a prompt has the line that the user typed.
TYPED_LINE_AGENTS = ("claude-code", "qwen-code", "codex")

Events = Mapping[str, Mapping[str, Any]]


def shared_events(
    session: Mapping[str, Any], call: Mapping[str, Any], **events: Mapping[str, Any]
) -> Events:
    """Return events in the shared shape; `events` has the other fields of each."""
    shared: dict[str, Mapping[str, Any]] = {}
    for name, fields in events.items():
        of_call = call if "ToolUse" in name else {}
        shared[name] = {**session, **of_call, "hook_event_name": name, **fields}
    return shared


_CLAUDE_HEAD = {
    "session_id": "abc123",
    "transcript_path": "/srv/ann/.claude/projects/shop/abc123.jsonl",
    "cwd": FOLDER,
    "permission_mode": "default",
}
_CLAUDE_CALL = {
    "tool_name": "Bash",
    "tool_input": {"command": COMMAND, "description": "Install packages"},
    "tool_use_id": "toolu_01ABC123",
}
_CLI_HEAD = {"session_id": "f3c1", "timestamp": AT, "cwd": FOLDER}
_COPILOT_CALL = {"tool_name": "Bash", "tool_input": {"command": COMMAND}}
_GEMINI_HEAD = {**_CLI_HEAD, "transcript_path": "/srv/ann/.gemini/tmp/f3c1.json"}
_GEMINI_CALL = {
    "tool_name": "run_shell_command",
    "tool_input": {"command": COMMAND, "description": "Install packages"},
}
_CURSOR_HEAD = {
    "conversation_id": "668320d2",
    "generation_id": "490b90b7",
    "model": "default",
    "cursor_version": "2.6.0",
    "workspace_roots": [FOLDER],
    "user_email": None,
    "transcript_path": None,
}
_CURSOR_CALL = {
    "tool_name": "Shell",
    "tool_input": {"command": COMMAND, "working_directory": FOLDER},
    "tool_use_id": "abc123",
    "cwd": FOLDER,
}
EVENTS: Mapping[str, Events] = {
    "claude-code": shared_events(
        _CLAUDE_HEAD,
        _CLAUDE_CALL,
        SessionStart={"source": "startup"},
        SubagentStart={"agent_id": "a1", "agent_type": "Explore"},
        UserPromptSubmit={"prompt": RULE},
        PreToolUse={},
        PostToolUse={
            "tool_response": {"stdout": "ok", "stderr": "", "interrupted": False}
        },
        PostToolUseFailure={"error": ERROR, "is_interrupt": False},
        Stop={"stop_hook_active": False},
        SessionEnd={"reason": "other"},
    ),
    "copilot": shared_events(
        _CLI_HEAD,
        _COPILOT_CALL,
        SessionStart={"source": "new"},
        UserPromptSubmit={"prompt": RULE},
        PreToolUse={},
        PostToolUse={
            "tool_result": {"result_type": "success", "text_result_for_llm": "ok"}
        },
        PostToolUseFailure={"error": ERROR},
        Stop={
            "transcript_path": "/srv/ann/.copilot/f3c1.jsonl",
            "stop_reason": "end_turn",
            "stop_hook_active": False,
        },
        SessionEnd={"reason": "complete"},
    ),
    "qwen-code": shared_events(
        {
            **_CLI_HEAD,
            "transcript_path": "/srv/ann/.qwen/tmp/f3c1.jsonl",
            "permission_mode": "default",
        },
        {**_GEMINI_CALL, "tool_use_id": "toolu_1", "tool_call_id": "call_1"},
        SessionStart={"source": "startup", "model": "qwen3-coder"},
        UserPromptSubmit={"prompt": f"context\n{RULE}", "submitted_prompt": RULE},
        PreToolUse={},
        PostToolUse={"tool_response": {"llmContent": "ok"}},
        PostToolUseFailure={"error": ERROR, "is_interrupt": False},
        Stop={
            "stop_hook_active": False,
            "last_assistant_message": "Done.",
            "background_tasks": [],
        },
        SessionEnd={"reason": "other"},
    ),
    "codex": shared_events(
        {
            **_CLAUDE_HEAD,
            "transcript_path": "/srv/ann/.codex/sessions/abc123.jsonl",
            "model": "gpt-5.5",
        },
        {**_CLAUDE_CALL, "turn_id": "turn-1"},
        SessionStart={"source": "startup"},
        SubagentStart={"agent_id": "a1", "agent_type": "default", "turn_id": "turn-1"},
        UserPromptSubmit={"turn_id": "turn-1", "prompt": RULE},
        PreToolUse={},
        PostToolUse={"tool_response": f"Process exited with code 1\n{ERROR}"},
        Stop={
            "turn_id": "turn-1",
            "stop_hook_active": False,
            "last_assistant_message": "Done.",
        },
        SessionEnd={"reason": "other"},
    ),
    "cursor": {
        "sessionStart": {
            **_CURSOR_HEAD,
            "hook_event_name": "sessionStart",
            "session_id": "668320d2",
            "composer_mode": "agent",
        },
        "beforeSubmitPrompt": {
            **_CURSOR_HEAD,
            "hook_event_name": "beforeSubmitPrompt",
            "prompt": RULE,
            "attachments": [],
        },
        "preToolUse": {**_CURSOR_HEAD, **_CURSOR_CALL, "hook_event_name": "preToolUse"},
        "postToolUse": {
            **_CURSOR_HEAD,
            **_CURSOR_CALL,
            "hook_event_name": "postToolUse",
            "tool_output": '{"exitCode": 0, "stdout": "ok"}',
            "duration": 5432,
        },
        "postToolUseFailure": {
            **_CURSOR_HEAD,
            **_CURSOR_CALL,
            "hook_event_name": "postToolUseFailure",
            "error_message": ERROR,
            "failure_type": "error",
            "is_interrupt": False,
        },
        "stop": {
            **_CURSOR_HEAD,
            "hook_event_name": "stop",
            "status": "completed",
            "loop_count": 0,
        },
        "sessionEnd": {
            **_CURSOR_HEAD,
            "hook_event_name": "sessionEnd",
            "session_id": "668320d2",
            "reason": "completed",
        },
    },
    "gemini-cli": {
        "SessionStart": {
            **_GEMINI_HEAD,
            "hook_event_name": "SessionStart",
            "source": "startup",
        },
        "BeforeAgent": {
            **_GEMINI_HEAD,
            "hook_event_name": "BeforeAgent",
            "prompt": RULE,
        },
        "BeforeTool": {**_GEMINI_HEAD, **_GEMINI_CALL, "hook_event_name": "BeforeTool"},
        "AfterTool": {
            **_GEMINI_HEAD,
            **_GEMINI_CALL,
            "hook_event_name": "AfterTool",
            "tool_response": {"llmContent": "ok", "returnDisplay": "ok"},
        },
        "AfterAgent": {
            **_GEMINI_HEAD,
            "hook_event_name": "AfterAgent",
            "prompt": RULE,
            "prompt_response": "Done.",
            "stop_hook_active": False,
        },
        "SessionEnd": {
            **_GEMINI_HEAD,
            "hook_event_name": "SessionEnd",
            "reason": "exit",
        },
    },
}
