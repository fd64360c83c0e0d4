"""Read sessions of Codex. Source: openai/codex, codex-rs/protocol/src/protocol.rs.

A rollout has the items of the model's API, and events that repeat most of them: of the
events, only errors are read. The output of a command has a header with its exit code
(codex-rs/core/src/tools/context.rs). A command that runs on has its result when
`write_stdin` returns its end.

`codex exec --json` (codex-rs/exec/src/exec_events.rs) prints events of a thread; a
completed item has a call and its result. Earlier versions printed the events of the
protocol, as {"id": …, "msg": {"type": …}}: the begin and the end of a call are together
such an item.
"""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from heedful.episodes.episode import Episode, Event, Limits, json_data
from heedful.episodes.failures import reports_failure
from heedful.episodes.messages import (
    arguments_of,
    chat_events,
    first_of,
    message_events,
    object_of,
    objects,
    seconds,
    text_field,
    text_of,
    texts_of,
)
from heedful.episodes.readers.base import (
    EntryReader,
    as_prompt_of_model,
    fault_of,
    refused_call,
    words_of_others,
)
from heedful.episodes.readers.text_actions import with_output
from heedful.episodes.run_mistakes import call_id
from heedful.lessons.action import command_of
from heedful.validation import require

# An item of the API, or an event, as JSON data.
Item = Mapping[str, Any]
# The fields of an output of Codex itself.
OUTPUT_FIELDS = {"output", "metadata", "content", "success"}
# How a note begins that Codex wrote as the user: with a tag, or with AGENTS.md.
CODEX_NOTES = ("<", "# AGENTS.md instructions")
# The header of an output says in its first or second line how long the call took.
_HEADER_PATTERN = re.compile(
    r"(?=(?:[^\n]*\n)?Wall time: )(?:[\w ]+ code:? (-?\d+)\n|[\w ]+: [^\n]*\n)+?"
    r"Output:\n?"
)


class CodexReader(EntryReader):
    """Reads sessions of Codex: each line is an entry, and `session_meta` begins one."""

    source = "codex"

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._id = ""
        # The session whose calls are read: a fork begins with those of its origin.
        self._origin = ""
        self._meta = ""

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for an entry with a payload."""
        is_entry = isinstance(value, Mapping) and isinstance(value.get("type"), str)
        return is_entry and isinstance(value.get("payload"), Mapping)

    def add(self, value: Any) -> list[Episode]:
        """Read an entry; return [], as the session may go on. Raises InvalidInput."""
        item: Any = value.get("payload") if isinstance(value, Mapping) else None
        is_entry = isinstance(item, Mapping)
        require(is_entry, "an entry", value, "an object with a payload")
        kind = value.get("type")
        events: Iterable[Event] = []
        if kind == "session_meta":
            self._open(item)
        elif kind == "compacted":
            words = texts_of(item, ("message", "replacement_history"))
            events = [words_of_others(words)]
        elif kind == "event_msg" and item.get("type") == "error":
            events = [Event("error_event", error=text_field(item, "message"))]
        elif kind == "response_item":
            events = self._item_events(item)
        self._add(events, seconds(value.get("timestamp")))
        return []

    def _open(self, meta: Item) -> None:
        """Begin a session, unless it is the one that the open session continues."""
        id = text_field(meta, "id")
        self._origin = text_field(meta, "forked_from_id") or id
        is_continued = id in self._meta
        self._meta += json.dumps(meta)
        if is_continued:
            return

        self._id = id
        is_of_user = meta.get("thread_source") in (None, "user")
        origin = text_of(meta.get("source"))
        session = self._sessions.named(id)
        session.is_of_subagent = "subagent" in origin or not is_of_user

    def _add(self, events: Iterable[Event], time: float | None) -> None:
        """Add events to the open session."""
        session = self._sessions[self._id]
        for event in events:
            if session.is_of_subagent:
                event = as_prompt_of_model(event)
            # Models of others count the calls of a session.
            call = call_id(event) or (event.call and f"{self._origin}/{event.call}")
            session.builder.add(replace(event, call=call, at=time))

    def _item_events(self, item: Item) -> Iterator[Event]:
        """Yield the events of an item of the model's API. Raises InvalidInput."""
        kind = text_field(item, "type")
        if "_call" not in kind and not kind.endswith("message"):
            words = texts_of(item, ("output", "content", "text"))
            if words and kind != "reasoning":
                yield words_of_others(words)
            return

        session = self._sessions[self._id]
        for event in chat_events(item, session.tool_names):
            followed = session.followed(event)
            if followed is not None:
                is_result = followed.type == "tool_response"
                yield _ended(followed) if is_result else _without_notes(followed)


def _without_notes(event: Event) -> Event:
    """Return an event of Codex; a note that Codex wrote as the user is a system event.

    It may have the words of a command or of another agent.
    """
    if event.type == "user_message" and event.content.startswith(CODEX_NOTES):
        return replace(event, type="system_event", origin="outside")
    return event


def _ended(result: Event) -> Event:
    """Return a result with its exit code, or as a failure if its text says so.

    What has no exit code is of Codex itself. Earlier versions wrote output and exit
    code as JSON; a tool may return any other object.
    """
    text = result.error or result.content
    status = ""
    data = json_data(text)
    if isinstance(data, Mapping) and data.keys() <= OUTPUT_FIELDS:
        code = object_of(data, "metadata").get("exit_code")
        if data.get("success") is False:
            code = 1
        text = texts_of(data, ("output", "content"))
        if isinstance(code, int):
            status = str(code)
    header = _HEADER_PATTERN.match(text)
    if header is not None:
        status = header[1] or status
        text = text[header.end() :]
    if not status and reports_failure(text):
        return replace(result, content="", error=text)
    return with_output(replace(result, error=""), text, status)


EVENT_KINDS = ("thread", "turn", "item")
# What an item says -> the type of the event; the prompt has no type.
ITEM_TYPES = {"agent_message": "llm_response", "": "user_message"}
# What a command printed; the first has all of it.
OUTPUTS = ("aggregated_output", "stdout", "stderr")


class ExecReader(EntryReader):
    """Reads the events of `codex exec --json`: a thread is an episode."""

    source = "codex-exec"

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._thread = ""
        # How calls began in the older form, by their ids.
        self._begun: dict[str, Item] = {}

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for an event of a thread, a turn or an item, or for a message."""
        if not isinstance(value, Mapping):
            return False
        message = value.get("msg")
        if isinstance(message, Mapping):
            return isinstance(message.get("type"), str)
        kind, _, change = text_of(value.get("type")).partition(".")
        return kind in EVENT_KINDS and change.endswith("ed")

    def add(self, value: Any) -> list[Episode]:
        """Read an event; return [], as its thread may go on. Raises InvalidInput."""
        [event] = objects([value], "an event")
        [item] = objects([first_of(event, "item", "msg") or event], "an item")
        session = self._sessions[self._thread]
        kind = text_field(event, "type")
        call = text_field(item, "call_id")
        if kind == "thread.started":
            self._thread = text_field(event, "thread_id")
        elif kind == "turn.completed":
            session.outcome = None
            session.fault = None
        elif kind in ("turn.failed", "error"):  # if the turn goes on, it was none
            session.outcome = "error"
            session.fault = fault_of({"error": event, **event})
        elif call and not text_field(item, "type").endswith("_end"):
            self._begun.setdefault(call, item)
        elif kind not in ("item.started", "item.updated"):
            for step in _events_of({**self._begun.pop(call, {}), **item}):
                session.builder.add(step)
        return []


def _events_of(item: Item) -> list[Event]:
    """Return the events of an item: its words, or a call and its result."""
    kind = text_field(item, "type").removesuffix("_end")
    words = texts_of(item, ("text", "message", "prompt"))
    if kind == "error":
        return [Event("error_event", error=words)]
    if kind in ITEM_TYPES:
        return [Event(ITEM_TYPES[kind], words)] if words else []

    call = _call_of(kind, item)
    if call is None:
        return []
    if item.get("status") == "declined":
        return refused_call(call.tool, call.arguments)

    output = item.get("result")
    error = item.get("error") or bool(item.get("exit_code")) or None
    if isinstance(output, Mapping):
        error = error or output.get("Err")
        output = first_of(output, "content", "Ok")
    names = OUTPUTS[:1] if item.get(OUTPUTS[0]) else OUTPUTS[1:]
    parts = [texts_of(item, names), text_of(output)]
    words = "\n".join(filter(None, parts))
    if item.get("exit_code") and not words:
        words = f"exit code {item['exit_code']}"
    marks = {name: item.get(name) for name in ("status", "success", "exit_code")}
    result = {**marks, "type": "tool_result", "name": call.tool, "content": words}
    return [call, *message_events("tool", [result | {"error": error}], {})]


def _call_of(kind: str, item: Item) -> Event | None:
    """Return the call that an item is about; None if it is about none."""
    match kind:
        case "command_execution" | "exec_command":
            tool = "shell"
            arguments: Any = {"command": _command_of(item.get("command"))}
        case "file_change" | "patch_apply":
            tool = "apply_patch"
            changes = item.get("changes")
            if isinstance(changes, list):
                changes = [text_field(x, "path") for x in objects(changes, "changes")]
            arguments = {"path": " ".join(changes or ())}
        case "mcp_tool_call":
            invocation = objects([item.get("invocation", item)], "invocation")[0]
            tool = f"mcp__{invocation.get('server')}__{invocation.get('tool')}"
            arguments = invocation.get("arguments")
        case "collab_tool_call" | "web_search":
            tool = text_field(item, "tool") or kind
            arguments = {"input": texts_of(item, ("prompt", "query"))}
        case _:
            return None
    return Event("tool_call", tool=tool, arguments=arguments_of(arguments))


def _command_of(command: Any) -> Any:
    """Return a command without the shell that runs it: "bash -lc 'npm test'"."""
    if isinstance(command, str):
        with suppress(ValueError, IndexError):
            words = shlex.split(command)
            if command_of({"command": words}) == words[-1]:
                return words[-1]
    return command
