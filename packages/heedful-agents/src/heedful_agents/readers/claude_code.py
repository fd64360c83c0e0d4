"""Read sessions of Claude Code. Source: anthropics/claude-agent-sdk-python, types.py.

The files below ~/.claude/projects and the output of `claude -p` with `--output-format`
`stream-json` or `json` have the same entries. Only the output has a `result`, which
says how the run ended and which calls were denied.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from heedful.episodes.episode import Episode, Event, Fault
from heedful.episodes.messages import (
    arguments_of,
    chat_events,
    objects,
    seconds,
    text_field,
    text_of,
    texts_of,
)
from heedful.episodes.readers.base import (
    EntryReader,
    OpenSession,
    as_prompt_of_model,
    refused_call,
    words_of_others,
)
from heedful.validation import Fields, require

# Entries of Claude Code that hold words; an attachment is what it showed with a prompt.
SESSION_ENTRIES = ("user", "assistant", "system", "summary", "attachment", "result")


class SessionReader(EntryReader):
    """Reads sessions of Claude Code: each line is an entry of a session.

    Entries are sorted by time, because a side chain may be written later. An entry that
    appears twice counts once. The first user message of the main chain is the task.
    """

    source = "claude-code"

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for an entry with a message, of a session, or with a result."""
        if not isinstance(value, Mapping) or value.get("type") not in SESSION_ENTRIES:
            return False
        is_message = isinstance(value.get("message"), Mapping)
        marks = {"sessionId", "session_id", "leafUuid", "is_error"}
        return is_message or not marks.isdisjoint(value)

    def add(self, value: Any) -> list[Episode]:
        """Read an entry; return [], because its session may go on. Raises InvalidInput.

        Entries of other types are ignored, and so are those that were read before.
        """
        is_entry = isinstance(value, Mapping) and isinstance(value.get("type"), str)
        require(is_entry, "an entry", value, "an object with a type")
        if value["type"] not in SESSION_ENTRIES:
            return []

        id = text_field(value, "sessionId") or text_field(value, "session_id")
        id = id or next(reversed(self._sessions), "")
        session = self._sessions.named(id)
        uuid = text_field(value, "uuid")
        if uuid and uuid in session.entry_ids:
            return []

        session.entry_ids.add(uuid)
        if value["type"] == "result":
            _end(session, value)
            return []

        agent = ""
        if value.get("isSidechain") is True or value.get("parent_tool_use_id"):
            agent = text_field(value, "agentId") or "sidechain"
        is_of_model = bool(agent) or value.get("isCompactSummary") is True
        time = seconds(value.get("timestamp"))
        for number, event in enumerate(entry_events(value, session.tool_names)):
            if is_of_model:
                event = as_prompt_of_model(event)
            event_id = f"{uuid}/{number}" if uuid and number else uuid
            session.builder.add(replace(event, agent=agent, id=event_id, at=time))

        return []


def _end(session: OpenSession, result: Fields) -> None:
    """Note how a run ended, and the calls that were denied. Raises InvalidInput."""
    words = texts_of(result, ("result", "errors"))
    subtype = text_field(result, "subtype")
    session.outcome = "success"
    session.fault = None
    if result.get("is_error") or subtype not in ("success", ""):
        session.outcome = "error"
        session.fault = Fault(subtype.replace("success", "api_error"), words)

    for denial in objects(result.get("permission_denials"), "permission_denials"):
        call = text_field(denial, "tool_use_id")
        if call and call in session.tool_names:
            session.refused_calls.add(call)
            continue
        tool = text_field(denial, "tool_name")
        for event in refused_call(tool, arguments_of(denial.get("tool_input"))):
            session.builder.add(event)
    if not session.builder.count:  # the output is the result alone
        session.builder.add(Event("llm_response", words))


def entry_events(entry: Fields, names: MutableMapping[str, str]) -> list[Event]:
    """Return the events of an entry of Claude Code. Raises InvalidInput.

    `names` maps the ids of earlier calls to the names of tools.
    """
    kind = text_field(entry, "type")

    if kind == "summary":
        return [Event("summary", text_field(entry, "summary"), origin="outside")]

    if kind == "attachment":
        return [words_of_others(text_of(entry.get("attachment")))]

    if kind == "system":
        # It may be what a command printed. An error here is one of the model's API
        # that is tried again; one that lasts comes as a message or in the result.
        words = texts_of(entry, ("content", "error"))
        code = text_field(entry, "subtype")
        notice = Event("system_event", words, code=code, origin="outside")
        return [notice] if words else []

    message: Any = entry.get("message")
    require(isinstance(message, Mapping), "message", message, "an object with content")
    is_meta = entry.get("isMeta") is True
    role = "system" if is_meta else kind
    chat_message = {"role": role, "content": message.get("content")}
    events = chat_events(chat_message, names)
    beside = text_of(entry.get("content"))
    if beside and beside != text_of(message.get("content")):
        events.append(words_of_others(beside))
    if is_meta:
        events = [replace(event, origin=event.origin or "outside") for event in events]
    if entry.get("isApiErrorMessage") is True or entry.get("error"):
        return [
            Event("error_event", error=event.content, code="api_error")
            for event in events
        ]

    return events
