"""How coding agents speak to their hooks: the names of events and fields, the answers.

Agents speak the language of Claude Code: `hook_event_name`, `tool_name` and
`tool_input` come in, `hookSpecificOutput` goes out. `AGENTS` has what is different, one
record an agent. Where an agent has its settings is in `heedful.integrations.places`.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from heedful.errors import InvalidInput, UnknownName
from heedful.integrations.couriers import at_once, with_model_call, with_next_result

Answer = Mapping[str, Any]
# Places the answer to an event of a kind with its data.
Courier = Callable[[str, Mapping[str, Any], Answer | None], Answer | None]
# Makes an answer from the name of the event and a text.
Form = Callable[[str, str], Answer]
# "model" is the moment before a call of the model.
Kind = Literal["start", "prompt", "before", "after", "failed", "stop", "end", "model"]
# Claude Code cuts what a hook adds after 10,000 characters.
MAX_HOOK_CONTEXT_CHARS = 9_900
# A longer id of a session or a prompt becomes a digest.
MAX_SHORT_ID_CHARS = 80


def _nested(name: str, **more: str) -> Form:
    """Return the form of an answer with the text as `name` in `hookSpecificOutput`."""
    return lambda event, text: {
        "hookSpecificOutput": {"hookEventName": event, **more, name: text}
    }


def _named(name: str, **more: Any) -> Form:
    """Return the form of an answer with the text as `name`, and other fields."""
    return lambda event, text: {**more, name: text}


def _both(name: str, **more: str) -> Form:
    """Return the form of an answer with the text in both places.

    Each of the agents that share a file of settings reads one of them.
    """

    def answer(event: str, text: str) -> Answer:
        return {
            **_named(name, **more)(event, text),
            **_nested(name, **more)(event, text),
        }

    return answer


@dataclass(frozen=True, kw_only=True)
class Agent:
    """How a coding agent names its events and fields, and what its hooks can answer.

    `events` maps its events to ours. `fields` has its names of the fields that are not
    named as in Claude Code, and `other_names` those of some of its versions. `takes`
    are our events whose answer may add context. `context`, `deny` and `block` make an
    answer from the name of the event and a text.
    """

    events: Mapping[str, Kind]
    takes: frozenset[str]
    fields: Mapping[str, str] = field(default_factory=dict)
    other_names: Mapping[str, str] = field(default_factory=dict)
    context: Form = _nested("additionalContext")
    # The characters of a context, a denial or a block.
    max_chars: int = MAX_HOOK_CONTEXT_CHARS
    deny: Form = _nested("permissionDecisionReason", permissionDecision="deny")
    block: Form = _named("reason", decision="block")
    # Its file of the session tells of failed calls that fire no event.
    has_transcript: bool = False
    # A person sees the `systemMessage` of a start and a prompt, the model does not.
    # No agent shows one at the end of a session.
    says_at_start: bool = False
    # The events at which the user hears that a hook did nothing, and what waits.
    notice_events: tuple[str, ...] = ()
    # What places answers where the agent takes them.
    courier: Courier = at_once

    def event_of(self, kind: Kind) -> str:
        """Return the agent's name for an event of this kind, "" if it has none."""
        return next((name for name, other in self.events.items() if other == kind), "")


_SHARED_EVENTS: Mapping[str, Kind] = {
    "SessionStart": "start",
    "UserPromptSubmit": "prompt",
    "PreToolUse": "before",
    "PostToolUse": "after",
    "PostToolUseFailure": "failed",
    "Stop": "stop",
    "SessionEnd": "end",
}
_EVENTS_WITHOUT_FAILURE: Mapping[str, Kind] = {
    name: kind for name, kind in _SHARED_EVENTS.items() if kind != "failed"
}
_CONTEXT_MOMENTS = frozenset({"start", "prompt", "before", "after", "failed"})
AGENTS: Mapping[str, Agent] = {
    "claude-code": Agent(
        events=_SHARED_EVENTS,
        takes=_CONTEXT_MOMENTS,
        has_transcript=True,
        says_at_start=True,
        notice_events=("SessionStart", "Stop"),
    ),
    # VS Code, Copilot CLI and JetBrains read the same files; some versions write the
    # names of fields in camel case.
    "copilot": Agent(
        events=_SHARED_EVENTS,
        takes=frozenset({"start", "before", "after", "failed"}),
        other_names={
            "session_id": "sessionId",
            "tool_response": "tool_result",
            "tool_use_id": "toolUseId",
        },
        context=_both("additionalContext"),
        # Contexts of all hooks are cut after 10 KB.
        max_chars=5_000,
        deny=_both("permissionDecisionReason", permissionDecision="deny"),
        block=_both("reason", decision="block"),
    ),
    # Its `prompt` may be what a tool or a machine wrote.
    "qwen-code": Agent(
        events=_SHARED_EVENTS,
        takes=_CONTEXT_MOMENTS,
        fields={"prompt": "submitted_prompt"},
        says_at_start=True,
    ),
    "codex": Agent(
        events=_EVENTS_WITHOUT_FAILURE,
        takes=_CONTEXT_MOMENTS,
        fields={"prompt_id": "turn_id"},
        says_at_start=True,
    ),
    "cursor": Agent(
        events={
            "sessionStart": "start",
            "beforeSubmitPrompt": "prompt",
            "preToolUse": "before",
            "postToolUse": "after",
            "postToolUseFailure": "failed",
            "stop": "stop",
            "sessionEnd": "end",
        },
        takes=frozenset({"start", "after", "failed"}),
        fields={
            "session_id": "conversation_id",
            "prompt_id": "generation_id",
            "tool_response": "tool_output",
            "error": "error_message",
        },
        context=_named("additional_context"),
        deny=_named("agent_message", permission="deny"),
        block=_named("followup_message"),
        courier=with_next_result,
    ),
    # A hook before a call cannot add context there, but one before the next call of the
    # model can.
    "gemini-cli": Agent(
        events={
            "SessionStart": "start",
            "BeforeAgent": "prompt",
            "BeforeTool": "before",
            "BeforeModel": "model",
            "AfterTool": "after",
            "AfterAgent": "stop",
            "SessionEnd": "end",
        },
        takes=frozenset({"start", "prompt", "before", "after"}),
        says_at_start=True,
        deny=_named("reason", decision="deny"),
        block=_named("reason", decision="deny"),
        courier=with_model_call,
    ),
    # A plugin of a few lines calls the hook process and places its answers.
    "opencode": Agent(
        events=_EVENTS_WITHOUT_FAILURE,
        takes=frozenset({"prompt", "after"}),
    ),
}


def find_agent(name: str) -> Agent:
    """Return the coding agent with this name. Raises UnknownName."""
    if name not in AGENTS:
        raise UnknownName("coding agent", name, list(AGENTS))

    return AGENTS[name]


def in_our_names(agent: Agent, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an event with the fields named as in Claude Code, beside its own names."""
    event = dict(data)
    for ours, theirs in agent.fields.items():
        event.pop(ours, None)
        if theirs in data:
            event[ours] = data[theirs]
    for ours, theirs in agent.other_names.items():
        if ours not in event and theirs in data:
            event[ours] = data[theirs]
    return event


def tool_name(name: str, server: object) -> str:
    """Return the name of a tool as Claude Code writes it, `mcp__SERVER__TOOL`.

    `server` is what the agent says of its MCP server, if it is a tool of one. Cursor
    names none, and writes "MCP:" before the tool.
    """
    if isinstance(server, Mapping):
        server_name = server.get("name") or server.get("server_name")
        prefix = f"mcp__{server_name}__"
        return name if name.startswith(prefix) else prefix + name
    match = re.match("MCP: *", name)
    if match is None:
        # Gemini CLI writes "mcp_SERVER_TOOL".
        return re.sub(r"\Amcp_([^_\s]+)_(?=\S)", r"mcp__\1__", name)
    # Who names the tool could name a server in it.
    own_name = re.sub("_{2,}", "_", name[match.end() :])
    return f"mcp__{own_name}"


def session_of(data: Mapping[str, Any]) -> str:
    """Return the id under which the session of an event is stored.

    The event is one `in_our_names`. Raises InvalidInput if it has no id.
    """
    session = data.get("session_id")
    if not isinstance(session, str) or not session:
        raise InvalidInput("session_id", session, "the id of the session")

    return short_id(session)


def short_id(id: str) -> str:
    """Return an id, or its digest if it is long or not printable."""
    fits = len(id) <= MAX_SHORT_ID_CHARS and id.isprintable()
    return id if fits else hex_digest(id)


def hex_digest(text: str) -> str:
    """Return the SHA-256 of a text in hex."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
