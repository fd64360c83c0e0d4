"""Turn chats into events: OpenAI messages, sessions of agents, our own format. Pure.

`message_events` is the one place that reads a message: a role and parts such as texts,
tool calls and tool results, as OpenAI, Anthropic and OpenTelemetry have them. Each
format has a reader, which finds the messages in the values of a file.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from heedful.episodes.episode import (
    EPISODE_OUTCOMES,
    Episode,
    EpisodeBuilder,
    Event,
    Fault,
    Limits,
    Origin,
    check_event_type,
    json_data,
)
from heedful.errors import InvalidInput
from heedful.validation import check_integer, require

ROLE_EVENTS = {
    **dict.fromkeys(("user", "human"), "user_message"),
    **dict.fromkeys(("assistant", "model", "ai"), "llm_response"),
    **dict.fromkeys(("system", "developer"), "system_event"),
}
CALL_PART_TYPES = frozenset(
    {"tool_call", "tool_use", "server_tool_use", "mcp_tool_use"}
)
# What an event of our own format may state: it lowers the trust of the event's words.
# Earlier versions wrote "external".
EVENT_ORIGINS: Mapping[Any, Origin] = {
    "tool": "tool",
    "outside": "outside",
    "external": "outside",
}
THOUGHT_PART_TYPES = frozenset({"thinking", "reasoning"})
# The names that the code and the message of an event's error may have.
ERROR_CODE_NAMES = ("code", "error_code", "status", "error_type", "error_category")
ERROR_MESSAGE_NAMES = ("message", "error_message", "detail")
FIELD_ALIASES = {  # names in requests to reflect on events -> heedful's names
    "event_type": "type",
    "event_id": "id",
    "timestamp": "at",
    "metadata": "meta",
    "tool_name": "tool",
    "task_description": "task",
    "task_goal": "goal",
    "session_id": "session",
}


def message_events(
    role: str,
    parts: Iterable[Mapping[str, Any]],
    names: MutableMapping[str, str],
    agent: str = "",
) -> list[Event]:
    """Return the events of a message: its texts, tool calls and tool results.

    Adjacent texts become one event, whose type depends on `role`. Calls and thoughts
    are those of a model only in the message of a model. `names` maps the ids of calls
    to the names of tools; this function adds the calls of the message. A result that is
    an error becomes the `error` of its response, with empty `content`. Raises
    InvalidInput.
    """
    events: list[Event] = []
    text_event = ROLE_EVENTS.get(role, f"{role}_message")
    for part in parts:
        kind = text_field(part, "type")
        if kind in CALL_PART_TYPES:
            call = _call_event(part, agent)
            names[call.call] = call.tool
            if text_event != "llm_response":
                call = replace(call, origin="outside")
            events.append(call)
        elif kind == "tool_call_response" or kind.endswith("tool_result"):
            events.append(_result_event(part, names, agent))
        else:
            text = _part_text(part, kind)
            if text:
                _add_text(events, Event(text_event, text, agent=agent), kind)

    return events


def _call_event(part: Mapping[str, Any], agent: str) -> Event:
    """Return the event of a tool call in a message."""
    return Event(
        "tool_call",
        agent=agent,
        tool=text_field(part, "name"),
        arguments=arguments_of(first_of(part, "arguments", "input")),
        call=text_field(part, "id"),
    )


def _result_event(
    part: Mapping[str, Any], names: Mapping[str, str], agent: str
) -> Event:
    """Return the event of a tool's result in a message."""
    call = text_field(part, "tool_use_id") or text_field(part, "id")
    tool = text_field(part, "name") or names.get(call, "")
    text = texts_of(part, "response", "result", "content")

    response = Event("tool_response", agent=agent, tool=tool, call=call)
    if part.get("is_error"):
        return replace(response, error=text or "error")
    return replace(response, content=text)


def _add_text(events: list[Event], event: Event, kind: str) -> None:
    """Add the event of a text or a thought; a text joins the text before it."""
    if kind in THOUGHT_PART_TYPES:
        event = replace(event, meta={"part": kind})
    elif events and events[-1].type == event.type and not events[-1].meta:
        text = f"{events.pop().content}\n{event.content}"
        event = replace(event, content=text)
    events.append(event)


def first_of(fields: Mapping[str, Any], *names: str) -> Any:
    """Return the value of the first key in `names` that `fields` have, or None."""
    return next((fields[name] for name in names if name in fields), None)


def texts_of(fields: Mapping[str, Any], *names: str) -> str:
    """Return the text of each of these fields: an agent may have read any of them."""
    texts = dict.fromkeys(text_of(fields.get(name)) for name in names)
    return "\n".join(filter(None, texts))


def _part_text(part: Mapping[str, Any], kind: str) -> str:
    """Return the text of a part; its type in brackets if it is no part of text."""
    text = texts_of(part, "text", "content", "thinking", "refusal")
    if not kind or "text" in kind or kind in ("refusal", *THOUGHT_PART_TYPES):
        return text

    return "\n".join(filter(None, [f"[{kind}]", text]))


def text_field(value: Mapping[str, Any], name: str) -> str:
    """Return the text of the field `name`, "" if it is absent. Raises InvalidInput."""
    text = value.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise InvalidInput(name, text, "text")
    return text


def objects(value: Any, what: str) -> list[Mapping[str, Any]]:
    """Return a list of objects, and [] for None. Raises InvalidInput for others."""
    if value is None:
        return []

    valid = isinstance(value, list) and all(
        isinstance(entry, Mapping) for entry in value
    )
    if not valid:
        raise InvalidInput(what, value, "a list of objects")

    entries: list[Mapping[str, Any]] = value
    return entries


def text_of(value: Any) -> str:
    """Return a tool's result as text: its text parts joined, other data as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(map(_is_part, value)):
        return "\n".join(_part_text(part, part["type"]) for part in value)

    return json.dumps(value, ensure_ascii=False)


def _is_part(value: Any) -> bool:
    """Return whether a value is a typed part of a message: {"type": "text", …}."""
    return isinstance(value, Mapping) and isinstance(value.get("type"), str)


def arguments_of(value: Any) -> Mapping[str, Any] | str | None:
    """Return an object, or the JSON of one, as a mapping; others as text, or None."""
    data = json_data(value)
    return data if isinstance(data, Mapping) else text_of(value) or None


def seconds(value: Any) -> float | None:
    """Return a time in seconds since 1970, of a number or an ISO 8601 text.

    A text without a time zone is in UTC. None stays None. Raises InvalidInput.

    >>> seconds("2026-01-31T12:00:00.250+01:00")
    1769857200.25
    """
    if value is None:
        return None

    number = value
    if isinstance(value, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(value.strip())
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            number = moment.timestamp()

    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not 0 <= number < 253_402_300_800:  # the year 10000
        raise InvalidInput(
            "time", value, "seconds since 1970, or like 2026-01-31T12:00:00Z"
        )

    return float(number)


@dataclass
class _Session:
    """The events of one session, the tools of its calls, and the entries seen.

    A model, not a person, wrote the prompts of a session of a subagent.
    """

    builder: EpisodeBuilder
    is_of_subagent: bool = False
    names: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def add(self, message: Mapping[str, Any]) -> None:
        """Add the events of a chat message. Raises InvalidInput."""
        for event in chat_events(message, self.names):
            self.builder.add(event)


class EpisodeReader:
    """Reads heedful's own format: each line is an episode, an object with `events`."""

    source = "heedful"

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sessions = defaultdict[str, _Session](self._new_session)

    def _new_session(self) -> _Session:
        """Return a new session."""
        return _Session(EpisodeBuilder(self._limits, self.source))

    def add(self, value: Any) -> list[Episode]:
        """Read a value of the file; return what it completes. Raises InvalidInput."""
        if not isinstance(value, Mapping) or "events" not in value:
            raise InvalidInput("an episode", value, "an object with events")

        fields = _canonical_names(value)
        builder = EpisodeBuilder(self._limits, self.source)
        for event in objects(fields["events"], "events"):
            builder.add(_read_event(event))

        outcome = fields.get("outcome")
        require(
            outcome in (None, *EPISODE_OUTCOMES),
            "outcome",
            outcome,
            f"one of {', '.join(EPISODE_OUTCOMES)}",
        )
        tools = fields.get("tools")
        if tools is None:
            tools = []
        if not isinstance(tools, list) or not all(isinstance(t, str) for t in tools):
            raise InvalidInput("tools", tools, "a list of names")

        omitted = fields.get("omitted")
        if omitted is None:
            omitted = 0
        check_integer("omitted", omitted, least=0)
        episode = builder.episode(
            task=text_field(fields, "task") if "task" in fields else None,
            goal=text_field(fields, "goal"),
            outcome=outcome,
            fault=_read_fault(first_of(fields, "fault", "error")),
            id=text_field(fields, "id"),
            session=text_field(fields, "session"),
            tools=tools,
            omitted=omitted,
        )
        return [episode]

    def finish(self) -> list[Episode]:
        """Return the other episodes, which are complete at the end of the file."""
        return [
            session.builder.episode(id=id, session=id, by_time=True)
            for id, session in self._sessions.items()
            if session.builder.count
        ]


class ChatReader(EpisodeReader):
    """Reads OpenAI chats: a line is a list of messages, or an object with `messages`.

    If each line is a single message, the whole file is one conversation. The format
    does not say whether a tool failed, so a tool's result is always the `content` of
    the response.
    """

    source = "chat"

    def add(self, value: Any) -> list[Episode]:
        """Read a chat or a single message; return the episode of a chat.

        Single messages become one episode at the end of the file. Raises InvalidInput.
        """
        if isinstance(value, Mapping) and "messages" not in value:
            self._sessions[""].add(value)
            return []

        chat = value if isinstance(value, Mapping) else {"messages": value}
        session = self._new_session()
        system = text_of(chat.get("system"))  # as requests of Anthropic have it
        session.add({"role": "system", "content": system})
        for message in objects(chat["messages"], "messages"):
            session.add(message)
        outcome = chat.get("outcome")
        episode = session.builder.episode(
            outcome=outcome if outcome in EPISODE_OUTCOMES else None,
            id=text_field(chat, "id"),
            tools=offered_tools(chat.get("tools")),
        )
        return [episode]


def chat_events(
    message: Mapping[str, Any], names: MutableMapping[str, str]
) -> list[Event]:
    """Return the events of a chat message of OpenAI, Anthropic or OpenTelemetry.

    `names` maps the ids of earlier calls to the names of tools. Raises InvalidInput.
    """
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidInput("role", role, "text, such as user, assistant or tool")

    name = text_field(message, "name")
    if role == "tool" and "parts" not in message:
        result = {
            "type": "tool_result",
            "id": text_field(message, "tool_call_id"),
            "name": name,
            "content": message.get("content"),
        }
        return message_events(role, [result], names)

    thought = text_field(message, "reasoning_content")
    parts: list[Mapping[str, Any]] = [{"type": "thinking", "text": thought}]
    for name_of_parts in ("parts", "content"):
        content = message.get(name_of_parts)
        if isinstance(content, str):
            content = [{"text": content}]
        parts += [part for part in objects(content, name_of_parts) if part not in parts]

    parts.append({"type": "refusal", "refusal": text_field(message, "refusal")})

    for call in objects(message.get("tool_calls"), "tool_calls"):
        function = call.get("function") or call.get("custom")
        if not isinstance(function, Mapping):
            raise InvalidInput(
                "function", function, "an object with name and arguments"
            )
        parts.append({**function, "type": "tool_call", "id": call.get("id")})

    agent = name if ROLE_EVENTS.get(role) == "llm_response" else ""
    return message_events(role, parts, names, agent)


def offered_tools(tools: Any) -> list[str]:
    """Return the names of the tools that a request declares. Raises InvalidInput."""
    declared = [tool.get("function", tool) for tool in objects(tools, "tools")]
    names = [text_field(tool, "name") for tool in objects(declared, "tools")]
    return [name for name in names if name]


# The figures that Codex itself writes beside the output of a call.
CODEX_FIGURES = frozenset({"exit_code", "duration_seconds"})
# Entries of Claude Code that hold words; an attachment is what it showed with a prompt.
SESSION_ENTRIES = ("user", "assistant", "system", "summary", "attachment")


class SessionReader(EpisodeReader):
    """Reads sessions of Claude Code: each line is an entry of a session.

    Entries are sorted by time, because a side chain may be written later. An entry that
    appears twice counts once. The first user message of the main chain is the task.
    """

    source = "claude-code"

    def add(self, value: Any) -> list[Episode]:
        """Read an entry; return [], because its session may go on. Raises InvalidInput.

        Entries of other types are ignored, and so are those that were read before.
        """
        if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
            raise InvalidInput("an entry", value, "an object with a type")
        if value["type"] not in SESSION_ENTRIES:
            return []

        id = text_field(value, "sessionId") or next(reversed(self._sessions), "")
        if id and "" in self._sessions:  # earlier entries named no session
            self._sessions[id] = self._sessions.pop("")
        session = self._sessions[id]
        uuid = text_field(value, "uuid")
        if uuid and uuid in session.seen:
            return []

        session.seen.add(uuid)

        agent = ""
        if value.get("isSidechain") is True:
            agent = text_field(value, "agentId") or "sidechain"
        is_of_model = bool(agent) or value.get("isCompactSummary") is True
        time = seconds(value.get("timestamp"))
        for number, event in enumerate(_entry_events(session, value)):
            if is_of_model:
                event = _as_prompt_of_model(event)
            event_id = f"{uuid}/{number}" if uuid and number else uuid
            session.builder.add(replace(event, agent=agent, id=event_id, at=time))

        return []


class CodexReader(EpisodeReader):
    """Reads a session of Codex: each line is an entry, the whole file is a session."""

    source = "codex"

    def add(self, value: Any) -> list[Episode]:
        """Read an entry; return [], as the session may go on. Raises InvalidInput."""
        item = value.get("payload") if isinstance(value, Mapping) else None
        if not isinstance(item, Mapping):
            raise InvalidInput("an entry", value, "an object with a payload")

        if value.get("type") == "session_meta":
            if "" in self._sessions or not self._sessions:
                session = self._sessions.pop("", self._new_session())
                origin = item.get("source")
                session.is_of_subagent = (
                    isinstance(origin, Mapping) and "subagent" in origin
                )
                self._sessions[text_field(item, "id")] = session
        elif value.get("type") == "compacted":
            session = self._sessions[next(iter(self._sessions), "")]
            words = texts_of(item, "message", "replacement_history")
            session.builder.add(_words_of_others(words))
        elif value.get("type") == "response_item":
            time = seconds(value.get("timestamp"))
            session = self._sessions[next(iter(self._sessions), "")]
            for event in _item_events(item, session.names):
                if session.is_of_subagent:
                    event = _as_prompt_of_model(event)
                session.builder.add(replace(event, at=time))

        return []


def _item_events(
    item: Mapping[str, Any], names: MutableMapping[str, str]
) -> list[Event]:
    """Return the events of an item of OpenAI's responses. Raises InvalidInput."""
    kind = text_field(item, "type")
    call = text_field(item, "call_id") or text_field(item, "id")

    if kind == "message":
        parts = objects(item.get("content"), "content")
        events = message_events(text_field(item, "role") or "user", parts, names)
        return [_without_notes(event) for event in events]

    if kind.endswith("_call_output"):
        result = _call_output(json_data(item.get("output")))
        return message_events("tool", [{**result, "id": call}], names)

    if kind.endswith("_call"):
        part = {
            "type": "tool_call",
            "id": call,
            "name": text_field(item, "name") or kind,
            "input": first_of(item, "arguments", "input", "action"),
        }
        return message_events("assistant", [part], names)

    if kind == "reasoning":
        return []
    words = texts_of(item, "output", "content", "text")
    return [_words_of_others(words)] if words else []


def _words_of_others(text: str) -> Event:
    """Return an event with words that an agent got, and nobody knows from whom."""
    return Event("system_event", text, origin="outside")


def _as_prompt_of_model(event: Event) -> Event:
    """Return an event; a prompt is one that a model wrote, with words of anybody.

    A model writes the prompts of its subagents, and summaries of a session.
    """
    if event.type == "user_message":
        return replace(event, type="system_event", origin="outside")
    return event


def _without_notes(event: Event) -> Event:
    """Return an event of Codex; a note that Codex wrote as the user is a system event.

    Such a note begins with a tag, such as `<environment_context>`, and may have the
    words of a command or of another agent.
    """
    if event.type == "user_message" and event.content.startswith("<"):
        return replace(event, type="system_event", origin="outside")
    return event


def _is_output(fields: Mapping[str, Any]) -> bool:
    """Return True if only an output holds words; a tool may return any object."""
    if fields.keys() <= {"content", "success"}:
        return isinstance(fields.get("success"), bool | None)
    figures = fields.get("metadata", {})
    is_of_codex = (
        isinstance(figures, Mapping)
        and figures.keys() <= CODEX_FIGURES
        and all(isinstance(figure, int | float) for figure in figures.values())
    )
    return is_of_codex and fields.keys() <= {"output", "metadata"}


def _call_output(data: Any) -> dict[str, Any]:
    """Return the output of a call as the part of a message."""
    fields = data if isinstance(data, Mapping) else {"output": data}
    meta = fields.get("metadata")
    exit_code = meta.get("exit_code") if isinstance(meta, Mapping) else 0
    if not isinstance(exit_code, int):
        exit_code = 0
    output = data  # the agent reads all of it
    if _is_output(fields):
        output = first_of(fields, "output", "content")
    return {
        "type": "tool_result",
        "content": text_of(output),
        "is_error": fields.get("success") is False or bool(exit_code),
    }


def _entry_events(session: _Session, entry: Mapping[str, Any]) -> list[Event]:
    """Return the events of an entry of Claude Code. Raises InvalidInput."""
    kind = entry["type"]

    if kind == "summary":
        summary = text_field(entry, "summary")
        return [Event("summary", summary, origin="outside")]

    if kind == "attachment":
        return [_words_of_others(text_of(entry.get("attachment")))]

    if kind == "system":
        error = text_of(entry.get("error"))
        type = "error_event" if error else "system_event"
        notice = Event(type, text_of(entry.get("content")), error=error)
        # It may be what a command printed.
        origin: Origin = "" if error else "outside"
        return [replace(notice, code=text_field(entry, "subtype"), origin=origin)]

    message = entry.get("message")
    if not isinstance(message, Mapping):
        raise InvalidInput("message", message, "an object with content")

    is_meta = entry.get("isMeta") is True
    role = "system" if is_meta else kind
    chat_message = {"role": role, "content": message.get("content")}
    events = chat_events(chat_message, session.names)
    beside = text_of(entry.get("content"))
    if beside and beside != text_of(message.get("content")):
        events.append(_words_of_others(beside))
    if is_meta:
        events = [replace(event, origin=event.origin or "outside") for event in events]
    if entry.get("isApiErrorMessage") is True:
        return [
            Event("error_event", error=event.content, code="api_error")
            for event in events
        ]

    return events


def _canonical_names(value: Mapping[str, Any]) -> dict[str, Any]:
    """Replace alias names by heedful's names; a value under heedful's own name wins."""
    renamed = {
        FIELD_ALIASES[name]: content
        for name, content in value.items()
        if name in FIELD_ALIASES
    }
    others = {
        name: content for name, content in value.items() if name not in FIELD_ALIASES
    }
    return renamed | others


def _read_event(value: Mapping[str, Any]) -> Event:
    """Return an event; fields that `Event` lacks are stored in its `meta`."""
    fields = _canonical_names(value)
    error = fields.get("error")
    code = _number_or_text(fields, "code")
    if isinstance(error, Mapping):
        code = _first_text(error, ERROR_CODE_NAMES)
        error = texts_of(error, *ERROR_MESSAGE_NAMES) or text_of(error)

    meta = fields.get("meta")
    require(isinstance(meta, Mapping | None), "meta", meta, "an object")

    names = set(Event.__dataclass_fields__)
    word = fields.get("origin")
    origin = EVENT_ORIGINS.get(word, "") if isinstance(word, str) else ""
    if not origin:
        names.remove("origin")

    others = {
        name: content
        for name, content in fields.items()
        if name not in names and content is not None
    }

    kind = text_field(fields, "type")
    require(kind, "type of an event", fields.get("type"), "text, such as tool_call")
    check_event_type(kind)

    arguments = fields.get("arguments")
    if not isinstance(arguments, str | Mapping | None):
        arguments = text_of(arguments)

    return Event(
        kind,
        text_of(fields.get("content")),
        agent=text_field(fields, "agent"),
        tool=text_field(fields, "tool"),
        arguments=arguments,
        call=text_field(fields, "call"),
        error=text_field({"error": error}, "error"),
        id=text_field(fields, "id"),
        code=code,
        at=seconds(fields.get("at")),
        meta={**others, **(meta or {})},
        origin=origin,
    )


def _first_text(value: Mapping[str, Any], names: Iterable[str]) -> str:
    """Return the first of these fields that is not empty. Raises InvalidInput."""
    texts = (_number_or_text(value, name) for name in names)
    return next(filter(None, texts), "")


def _number_or_text(value: Mapping[str, Any], name: str) -> str:
    """Return a field as text; a number, such as 429, too. Raises InvalidInput."""
    number = value.get(name)
    if isinstance(number, int) and not isinstance(number, bool):
        return str(number)
    return text_field(value, name)


def _read_fault(value: Any) -> Fault | None:
    """Return the fault of an episode, by the names that heedful writes or older ones.

    None stays None. Raises InvalidInput.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidInput(
            "error", value, "an object with error_category and error_message"
        )

    category = text_field(value, "error_category") or text_field(value, "category")
    message = text_field(value, "error_message") or text_field(value, "message")
    return Fault(category, message, text_of(value.get("context")))


def write(episodes: Iterable[Episode]) -> Iterator[bytes]:
    """Yield each episode as a line of ASCII; `read` restores all but its `source`."""
    for episode in episodes:
        from heedful.loop.codec import to_document  # slow to import, and few write

        head = {"task": episode.task, "outcome": episode.outcome}
        document = head | to_document(episode)
        document.pop("source", None)
        line = json.dumps(document, default=dict, separators=(",", ":"))
        yield line.encode("ascii") + b"\n"
