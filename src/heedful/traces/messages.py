"""Turn chats into events: OpenAI messages, Claude Code sessions, and heedful's own
format. Pure.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from heedful.errors import InvalidInput
from heedful.traces.episode import (
    EPISODE_OUTCOMES,
    Episode,
    EpisodeBuilder,
    Event,
    Fault,
    Limits,
    json_data,
)
from heedful.validation import check_integer, require

ROLE_EVENTS = {
    **dict.fromkeys(("user", "human"), "user_message"),
    **dict.fromkeys(("assistant", "model", "ai"), "llm_response"),
    **dict.fromkeys(("system", "developer"), "system_event"),
}
CALL_PART_TYPES = frozenset(
    {"tool_call", "tool_use", "server_tool_use", "mcp_tool_use"}
)
# What an event of heedful's own format may state: it lowers the trust of the event's
# words.
EVENT_ORIGINS = ("tool", "external")
THOUGHT_PART_TYPES = frozenset({"thinking", "reasoning"})
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
    """Return the events of a message: its texts, its tool calls, and the tool results
    in it.

    Adjacent texts become one event, whose type depends on `role`. Calls and thoughts
    are those of a model only in the message of a model. `names` maps the ids of calls
    to the names of tools; this function adds the calls of the message. A result that is
    an error becomes the `error` of its response, with empty `content`. Raises
    InvalidInput.
    """
    events: list[Event] = []
    spoken = ROLE_EVENTS.get(role, f"{role}_message")
    own = spoken == "llm_response"
    for part in parts:
        kind = text_field(part, "type")
        if kind in CALL_PART_TYPES:
            call = text_field(part, "id")
            tool = text_field(part, "name")
            names[call] = tool
            given = arguments_of(first_of(part, "arguments", "input"))
            event = Event(
                "tool_call", "", agent=agent, tool=tool, arguments=given, call=call
            )
            events.append(event if own else replace(event, origin="external"))
        elif kind in ("tool_call_response", "tool_result"):
            call = text_field(part, "tool_use_id") or text_field(part, "id")
            tool = text_field(part, "name") or names.get(call, "")
            text = text_of(first_of(part, "response", "result", "content"))
            content, error = (
                ("", text or "error") if part.get("is_error") else (text, "")
            )
            events.append(
                Event(
                    "tool_response",
                    content,
                    agent=agent,
                    tool=tool,
                    arguments=None,
                    call=call,
                    error=error,
                )
            )
        elif text := _part_text(part, kind):
            thought = kind in THOUGHT_PART_TYPES
            if (
                not thought
                and events
                and events[-1].type == spoken
                and not events[-1].meta
            ):
                text = f"{events.pop().content}\n{text}"
            events.append(
                Event(spoken, text, agent=agent, meta={"part": kind} if thought else {})
            )
    return events


def first_of(held: Mapping[str, Any], *names: str) -> Any:
    """Return the value of the first key in `names` that `held` has, or None."""
    return next((held[name] for name in names if name in held), None)


def _part_text(part: Mapping[str, Any], kind: str) -> str:
    if (
        kind
        and kind not in THOUGHT_PART_TYPES
        and "text" not in kind
        and kind != "refusal"
    ):
        return f"[{kind}]"
    texts = (part.get(name) for name in ("text", "content", "thinking", "refusal"))
    return next((text for text in texts if isinstance(text, str)), "")


def text_field(value: Mapping[str, Any], name: str) -> str:
    """Return the text in the field `name`, or "" if the field is absent. Raises
    InvalidInput.
    """
    text = value.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise InvalidInput(name, text, "text")
    return text


def objects(value: Any, what: str) -> list[Mapping[str, Any]]:
    """Return `value` if it is a list of objects, and [] for None. Raises
    InvalidInput.
    """
    if value is None:
        return []
    if not isinstance(value, list) or not all(
        isinstance(each, Mapping) for each in value
    ):
        raise InvalidInput(what, value, "a list of objects")
    return value


def text_of(value: Any) -> str:
    """Return a tool's result as text: its text parts joined, other data as JSON."""
    if isinstance(value, str):
        return value
    parts = (
        [part for part in value if isinstance(part, Mapping)]
        if isinstance(value, list)
        else []
    )
    if (
        parts
        and len(parts) == len(value)
        and all(isinstance(p.get("type"), str) for p in parts)
    ):
        return "\n".join(_part_text(part, part["type"]) for part in parts)
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def arguments_of(value: Any) -> Mapping[str, Any] | str | None:
    """Return an object, or the JSON of one, as a mapping; other values as text; None if
    empty.
    """
    data = json_data(value)
    return data if isinstance(data, Mapping) else text_of(value) or None


def seconds(value: Any) -> float | None:
    """Return a time in seconds since 1970; `value` is a number or ISO 8601 text (UTC by
    default).

    None stays None. Raises InvalidInput.

    >>> seconds("2026-01-31T12:00:00.250+01:00")
    1769857200.25
    """
    if value is None:
        return None
    number = value
    if isinstance(value, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(value.strip())
            number = (
                moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            ).timestamp()
    plain = isinstance(number, int | float) and not isinstance(number, bool)
    if not plain or not 0 <= number < 253_402_300_800:  # the year 10000
        raise InvalidInput(
            "time", value, "seconds since 1970, or like 2026-01-31T12:00:00Z"
        )
    return float(number)


@dataclass
class _Session:
    gathering: EpisodeBuilder
    names: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def add(self, message: Mapping[str, Any]) -> None:
        self.gathering.add(*chat_events(message, self.names))


class EpisodeReader:
    """Reads heedful's own format: each line is an episode, as an object with
    `events`.
    """

    source = "heedful"

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sessions = defaultdict[str, _Session](self._session)

    def _session(self) -> _Session:
        return _Session(EpisodeBuilder(self._limits, self.source))

    def add(self, value: Any) -> list[Episode]:
        """Read one value of the file; return the episodes it completes. Raises
        InvalidInput.
        """
        if not isinstance(value, Mapping) or "events" not in value:
            raise InvalidInput("an episode", value, "an object with events")
        given = _canonical_names(value)
        gathering = EpisodeBuilder(self._limits, self.source)
        gathering.add(*map(_event, objects(given["events"], "events")))
        outcome = given.get("outcome")
        tools = given.get("tools")
        require(
            outcome in (None, *EPISODE_OUTCOMES),
            "outcome",
            outcome,
            f"one of {', '.join(EPISODE_OUTCOMES)}",
        )
        tools = [] if tools is None else tools
        if not isinstance(tools, list) or not all(
            isinstance(name, str) for name in tools
        ):
            raise InvalidInput("tools", tools, "a list of names")
        omitted = 0 if given.get("omitted") is None else given["omitted"]
        check_integer("omitted", omitted, least=0)
        names = (
            ("task", "goal", "id", "session")
            if "task" in given
            else ("goal", "id", "session")
        )
        about: dict[str, Any] = {name: text_field(given, name) for name in names}
        about |= {"outcome": outcome, "tools": tools, "omitted": omitted}
        return [
            gathering.episode(fault=_fault(first_of(given, "fault", "error")), **about)
        ]

    def finish(self) -> list[Episode]:
        """Return the other episodes, which are complete at the end of the file."""
        return [
            session.gathering.episode(id=id, session=id, by_time=True)
            for id, session in self._sessions.items()
            if session.gathering.count
        ]


class ChatReader(EpisodeReader):
    """Reads OpenAI chats: a line is a list of messages, or an object with `messages`.

    If each line is a single message, the whole file is one conversation. The format
    does not say whether a tool failed, so a tool's result is always the `content` of
    the response.
    """

    source = "chat"

    def add(self, value: Any) -> list[Episode]:
        if isinstance(value, Mapping) and "messages" not in value:
            self._sessions[""].add(value)
            return []
        whole = value if isinstance(value, Mapping) else {"messages": value}
        session = self._session()
        for message in objects(whole["messages"], "messages"):
            session.add(message)
        ended = whole.get("outcome")
        outcome = ended if ended in EPISODE_OUTCOMES else None
        id = text_field(whole, "id")
        tools = offered_tools(whole.get("tools"))
        return [session.gathering.episode(outcome=outcome, id=id, tools=tools)]


def chat_events(
    message: Mapping[str, Any], names: MutableMapping[str, str]
) -> list[Event]:
    """Return the events of one chat message in the format of OpenAI, Anthropic or
    OpenTelemetry.

    `names` maps the ids of earlier calls to the names of tools. Raises InvalidInput.
    """
    role = message.get("role")
    content = first_of(message, "parts", "content")
    if not isinstance(role, str) or not role:
        raise InvalidInput("role", role, "text, such as user, assistant or tool")
    name = text_field(message, "name")
    if role == "tool" and "parts" not in message:
        call = text_field(message, "tool_call_id")
        result = {"type": "tool_result", "id": call, "name": name, "content": content}
        return message_events(role, [result], names)
    parts: list[Mapping[str, Any]] = [
        {"type": "thinking", "text": text_field(message, "reasoning_content")},
        *(
            [{"text": content}]
            if isinstance(content, str)
            else objects(content, "content")
        ),
        {"type": "refusal", "refusal": text_field(message, "refusal")},
    ]
    for asked in objects(message.get("tool_calls"), "tool_calls"):
        function = asked.get("function") or asked.get("custom")
        if not isinstance(function, Mapping):
            raise InvalidInput(
                "function", function, "an object with name and arguments"
            )
        parts.append({**function, "type": "tool_call", "id": asked.get("id")})
    return message_events(
        role, parts, names, name if ROLE_EVENTS.get(role) == "llm_response" else ""
    )


def offered_tools(tools: Any) -> list[str]:
    """Return the names of the tools that a request declares. Raises InvalidInput."""
    declared = [tool.get("function", tool) for tool in objects(tools, "tools")]
    return [
        name
        for tool in objects(declared, "tools")
        if (name := text_field(tool, "name"))
    ]


class SessionReader(EpisodeReader):
    """Reads sessions of Claude Code: each line is an entry, and each session becomes an
    episode.

    Entries are sorted by time, because a side chain may be written later. An entry that
    appears twice counts once. The first user message of the main chain is the task.
    """

    source = "claude-code"

    def add(self, value: Any) -> list[Episode]:
        if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
            raise InvalidInput("an entry", value, "an object with a type")
        if value["type"] not in ("user", "assistant", "system", "summary"):
            return []
        id = text_field(value, "sessionId") or next(reversed(self._sessions), "")
        if id and "" in self._sessions:  # earlier entries named no session
            self._sessions[id] = self._sessions.pop("")
        session = self._sessions[id]
        uuid = text_field(value, "uuid")
        if uuid and uuid in session.seen:
            return []
        session.seen.add(uuid)
        side = value.get("isSidechain") is True
        agent = (text_field(value, "agentId") or "sidechain") if side else ""
        at = seconds(value.get("timestamp"))
        for place, event in enumerate(_entry_events(session, value)):
            event_id = f"{uuid}/{place}" if uuid and place else uuid
            session.gathering.add(replace(event, agent=agent, id=event_id, at=at))
        return []


class CodexReader(EpisodeReader):
    """Reads sessions of Codex: each line is an entry, and the whole file is one
    session.
    """

    source = "codex"

    def add(self, value: Any) -> list[Episode]:
        item: Any = value.get("payload") if isinstance(value, Mapping) else None
        require(
            isinstance(item, Mapping), "an entry", value, "an object with a payload"
        )
        if value.get("type") == "session_meta":
            if "" in self._sessions or not self._sessions:
                self._sessions[text_field(item, "id")] = self._sessions.pop(
                    "", self._session()
                )
        elif value.get("type") == "response_item":
            at = seconds(value.get("timestamp"))
            session = self._sessions[next(iter(self._sessions), "")]
            events = _item_events(item, session.names)
            session.gathering.add(*(replace(event, at=at) for event in events))
        return []


def _item_events(
    item: Mapping[str, Any], names: MutableMapping[str, str]
) -> list[Event]:
    """Return the events of an item in OpenAI's format of responses. Raises
    InvalidInput.
    """
    kind = text_field(item, "type")
    call = text_field(item, "call_id") or text_field(item, "id")
    if kind == "message":
        parts = objects(item.get("content"), "content")
        events = message_events(text_field(item, "role") or "user", parts, names)
        # The program itself writes these messages in the name of the user.
        own = [
            one.type == "user_message" and one.content.startswith("<") for one in events
        ]
        pairs = zip(events, own, strict=True)
        return [
            replace(one, type="system_event") if ours else one for one, ours in pairs
        ]
    if kind.endswith("_call_output"):
        data = json_data(item.get("output"))
        held = data if isinstance(data, Mapping) else {"output": data}
        text = text_of(first_of(held, "output", "content"))
        meta = held.get("metadata")
        status = meta.get("exit_code") if isinstance(meta, Mapping) else 0
        failed = held.get("success") is False or bool(status)
        result = {
            "type": "tool_result",
            "id": call,
            "content": text,
            "is_error": failed,
        }
        return message_events("tool", [result], names)
    if kind.endswith("_call"):
        given = first_of(item, "arguments", "input", "action")
        name = text_field(item, "name") or kind
        asked = {"type": "tool_call", "id": call, "name": name, "input": given}
        return message_events("assistant", [asked], names)
    return []


def _entry_events(session: _Session, entry: Mapping[str, Any]) -> list[Event]:
    kind = entry["type"]
    if kind == "summary":
        return [Event("summary", text_field(entry, "summary"))]
    if kind == "system":
        error = text_of(entry.get("error"))
        type = "error_event" if error else "system_event"
        code = text_field(entry, "subtype")
        return [Event(type, text_of(entry.get("content")), error=error, code=code)]
    message: Any = entry.get("message")
    require(isinstance(message, Mapping), "message", message, "an object with content")
    role = "system" if entry.get("isMeta") is True else kind
    events = chat_events(
        {"role": role, "content": message.get("content")}, session.names
    )
    if entry.get("isApiErrorMessage") is True:
        return [
            Event("error_event", error=each.content, code="api_error")
            for each in events
        ]
    return events


def _canonical_names(value: Mapping[str, Any]) -> dict[str, Any]:
    """Replace alias names by heedful's names; a value under heedful's own name wins."""
    ours = {
        FIELD_ALIASES[name]: held
        for name, held in value.items()
        if name in FIELD_ALIASES
    }
    return ours | {
        name: held for name, held in value.items() if name not in FIELD_ALIASES
    }


def _event(value: Mapping[str, Any]) -> Event:
    """Return an event; fields that `Event` lacks are stored in its `meta`."""
    given = _canonical_names(value)
    error: Any = given.get("error")
    code = text_field(given, "code")
    if isinstance(error, Mapping):
        error, code = text_field(error, "message"), text_field(error, "code")
    meta, arguments, origin = (
        given.get(name) for name in ("meta", "arguments", "origin")
    )
    require(isinstance(meta, Mapping | None), "meta", meta, "an object")
    known = Event.__dataclass_fields__.keys() - (
        {"origin"} if origin not in EVENT_ORIGINS else set()
    )
    more = {
        name: held
        for name, held in given.items()
        if name not in known and held is not None
    }
    kind = text_field(given, "type")
    require(kind, "type of an event", given.get("type"), "text, such as tool_call")
    plain = arguments is None or isinstance(arguments, str | Mapping)
    return Event(
        kind,
        text_of(given.get("content")),
        arguments=arguments if plain else text_of(arguments),
        error=text_field({"error": error}, "error"),
        code=code,
        at=seconds(given.get("at")),
        meta={**more, **(meta or {})},
        origin=origin if origin in EVENT_ORIGINS else "",
        **{name: text_field(given, name) for name in ("agent", "tool", "call", "id")},
    )


def _fault(value: Any) -> Fault | None:
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
    """Yield each episode as one line of ASCII; `read` restores all fields except
    `source`.
    """
    for episode in episodes:
        from heedful.loop.codec import to_document  # slow to import, and few write

        document = {
            "task": episode.task,
            "outcome": episode.outcome,
            **to_document(episode),
        }
        document.pop("source", None)
        yield (
            json.dumps(document, default=dict, separators=(",", ":")).encode("ascii")
            + b"\n"
        )
