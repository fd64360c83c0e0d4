"""Read sessions of Codex. Source: openai/codex, codex-rs/protocol/src/protocol.rs.

A rollout has the items of the model's API, and events that repeat most of them: of the
events, only errors are read. The output of a command has a header with its exit code
(codex-rs/core/src/tools/context.rs). A command that runs on is polled by `write_stdin`:
what its last poll returns is the result of the command.

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
from heedful.episodes.messages import (
    arguments_of,
    chat_events,
    first_of,
    message_events,
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
from heedful.errors import InvalidInput
from heedful.lessons.action import command_of

# An item of the API, or an event, as JSON data.
Item = Mapping[str, Any]
# The fields of an output of Codex itself.
OUTPUT_FIELDS = {"output", "metadata", "content", "success"}
# How a note begins that Codex wrote as the user: with a tag, or with AGENTS.md.
CODEX_NOTES = ("<", "# AGENTS.md instructions")
_HEADER_PATTERN = re.compile(
    r"(?:(?:Chunk ID|Wall time|Original token count|Total output lines):?[^\n]*\n"
    r"|(?:Exit code:|Process exited with code) (?P<code>-?\d+)\n"
    r"|Process running with session ID (?P<process>\d+)\n)+(?:Output:\n?)?"
)


class CodexReader(EntryReader):
    """Reads sessions of Codex: each line is an entry, and `session_meta` begins one."""

    source = "codex"

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self._id = ""
        self._meta = ""
        # The calls of commands that run on, by their processes and by their polls.
        self._commands: dict[str, str] = {}

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for an entry with a payload."""
        is_entry = isinstance(value, Mapping) and isinstance(value.get("type"), str)
        return is_entry and isinstance(value.get("payload"), Mapping)

    def add(self, value: Any) -> list[Episode]:
        """Read an entry; return [], as the session may go on. Raises InvalidInput."""
        item = value.get("payload") if isinstance(value, Mapping) else None
        if not isinstance(item, Mapping):
            raise InvalidInput("an entry", value, "an object with a payload")

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
        if id in self._meta:
            return

        self._id = id
        self._meta = json.dumps(meta)
        if "" in self._sessions:  # earlier entries named no session
            self._sessions[id] = self._sessions.pop("")
        is_of_user = meta.get("thread_source") in (None, "user")
        origin = text_of(meta.get("source"))
        self._sessions[id].is_of_subagent = "subagent" in origin or not is_of_user

    def _add(self, events: Iterable[Event], time: float | None) -> None:
        """Add events to the open session."""
        session = self._sessions[self._id]
        for event in events:
            if session.is_of_subagent:
                event = as_prompt_of_model(event)
            session.builder.add(replace(event, at=time))

    def _item_events(self, item: Item) -> Iterator[Event]:
        """Yield the events of an item of the model's API. Raises InvalidInput."""
        kind = text_field(item, "type")
        if not kind.endswith(("message", "_call", "_call_output")):
            words = texts_of(item, ("output", "content", "text"))
            if words and kind != "reasoning":
                yield words_of_others(words)
            return

        for event in chat_events(item, self._sessions[self._id].tool_names):
            if event.type == "tool_response":
                yield from self._result_events(event)
            elif event.tool != "write_stdin" or not self._is_poll(event):
                yield _without_notes(event)

    def _is_poll(self, call: Event) -> bool:
        """Return whether a call only waits for a command, and note for which."""
        arguments = call.arguments
        if not isinstance(arguments, Mapping) or arguments.get("chars"):
            return False
        command = self._commands.get(f"{arguments.get('session_id')}", "")
        self._commands[call.call] = command
        return command != ""

    def _result_events(self, result: Event) -> Iterator[Event]:
        """Yield the result of a call, none while its command runs on."""
        call = self._commands.get(result.call) or result.call
        text, code = _output_of(result.error or result.content)
        header = _HEADER_PATTERN.match(text)
        if header is not None:
            code = int(header["code"] or 0)
            text = text[header.end() :]
            if header["process"]:
                self._commands[header["process"]] = call
                return

        tool = self._sessions[self._id].tool_names.get(call, result.tool)
        result = replace(result, tool=tool, call=call, content=text, error="")
        if code:
            error = text.strip() or "failed"
            result = replace(result, content="", error=error, code=str(code))
        yield result


def _without_notes(event: Event) -> Event:
    """Return an event of Codex; a note that Codex wrote as the user is a system event.

    It may have the words of a command or of another agent.
    """
    if event.type == "user_message" and event.content.startswith(CODEX_NOTES):
        return replace(event, type="system_event", origin="outside")
    return event


def _output_of(text: str) -> tuple[str, int]:
    """Return the output of a call and its exit code; 1 for a failure without a code.

    Earlier versions wrote both as JSON. A tool may return any other object.
    """
    data = json_data(text)
    if not isinstance(data, Mapping) or not data.keys() <= OUTPUT_FIELDS:
        return text, 0
    figures = data.get("metadata")
    code = figures.get("exit_code") if isinstance(figures, Mapping) else 0
    if data.get("success") is False:
        code = 1
    words = texts_of(data, ("output", "content"))
    return words, code if isinstance(code, int) else 0


EVENT_KINDS = ("thread", "turn", "item")
CHANGES = ("started", "updated", "completed", "failed")
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
        return kind in EVENT_KINDS and change in CHANGES

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
    marks = {name: item.get(name) for name in ("status", "success")}
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
