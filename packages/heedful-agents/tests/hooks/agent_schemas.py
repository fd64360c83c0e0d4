"""Schemas of the answers that agents document, written for these tests.

Those of Codex follow the schemas in its repository, the others the documentation that
`heedful_agents.agents` names. Where a schema of an agent refuses unknown fields,
ours does, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
_TEXT: Schema = {"type": "string", "minLength": 1}


def _object(*required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


def _nested(event: str, *required: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of an answer with its fields in `hookSpecificOutput`."""
    output = _object(
        "hookEventName", *required, hookEventName={"const": event}, **properties
    )
    return _object(hookSpecificOutput=output, systemMessage=_TEXT)


def _context(event: str) -> Schema:
    return _nested(event, "additionalContext", additionalContext=_TEXT)


def _denial(event: str = "PreToolUse") -> Schema:
    return _nested(
        event,
        "permissionDecision",
        "permissionDecisionReason",
        permissionDecision={"const": "deny"},
        permissionDecisionReason=_TEXT,
    )


def _flat(**values: Any) -> Schema:
    return _object(*values, **values)


_BLOCK = _flat(decision={"const": "block"}, reason=_TEXT)
_GEMINI_DENIAL = _flat(decision={"const": "deny"}, reason=_TEXT)


def _both(event: str, **values: Any) -> Schema:
    """Return the schema of an answer with its fields at both places."""
    nested = _object("hookEventName", *values, hookEventName={"const": event}, **values)
    return _object("hookSpecificOutput", *values, hookSpecificOutput=nested, **values)


def _copilot_context(event: str) -> Schema:
    return _both(event, additionalContext=_TEXT)


# What is answered to the events that may be answered, by agent and event; a denial of a
# call has the name "deny".
SCHEMAS: Mapping[str, Mapping[str, Schema]] = {
    **{
        name: {
            "SubagentStart": _context("SubagentStart"),
            "UserPromptSubmit": _context("UserPromptSubmit"),
            "PreToolUse": _context("PreToolUse"),
            "PostToolUse": _context("PostToolUse"),
            "PostToolUseFailure": _context("PostToolUseFailure"),
            "deny": _denial(),
            "Stop": _BLOCK,
        }
        for name in ("claude-code", "qwen-code", "codex")
    },
    "copilot": {
        "PreToolUse": _copilot_context("PreToolUse"),
        "PostToolUseFailure": _copilot_context("PostToolUseFailure"),
        "PostToolUse": _copilot_context("PostToolUse"),
        "deny": _both(
            "PreToolUse",
            permissionDecision={"const": "deny"},
            permissionDecisionReason=_TEXT,
        ),
        "Stop": _both("Stop", decision={"const": "block"}, reason=_TEXT),
    },
    "cursor": {
        "postToolUse": _flat(additional_context=_TEXT),
        "deny": _flat(permission={"const": "deny"}, agent_message=_TEXT),
        "stop": _flat(followup_message=_TEXT),
    },
    "gemini-cli": {
        "BeforeAgent": _context("BeforeAgent"),
        "AfterTool": _context("AfterTool"),
        "deny": _GEMINI_DENIAL,
        "AfterAgent": _GEMINI_DENIAL,
    },
}
