"""Turn messages of chats into events: texts, thoughts, tool calls and results. Pure.

`chat_events` is the one place that reads a message: a role and parts such as texts,
tool calls and tool results, as OpenAI, Anthropic, LangChain, the Vercel AI SDK and
OpenTelemetry have them; or an item of OpenAI's responses. The formats name the same
fields of a call differently. Each format has a reader, which finds the messages.
"""

import json
from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from heedful.episodes.episode import Arguments, Event, json_data
from heedful.episodes.failures import marks_failure, marks_success
from heedful.errors import InvalidInput
from heedful.validation import Fields, require

ROLE_EVENTS = {
    "user": "user_message",
    "human": "user_message",
    "assistant": "llm_response",
    "model": "llm_response",
    "ai": "llm_response",
    "system": "system_event",
    "developer": "system_event",
}
# How the names of an id of a call end, in lower case and without marks.
CALL_ID_ENDINGS = ("callid", "tooluseid")
# Parts of Google and of Amazon Bedrock stand under a name that is their type.
NAMED_PARTS = {
    "functionCall": "tool_call",
    "function_call": "tool_call",
    "toolUse": "tool_use",
    "functionResponse": "tool_result",
    "function_response": "tool_result",
    "toolResult": "tool_result",
}
# Where the texts of a result may stand.
RESULT_FIELDS = ("response", "result", "content", "output")
TEXT_FIELDS = ("text", "content", "thinking", "reasoning", "refusal", "summary")
THOUGHT_PART_TYPES = frozenset({"thinking", "reasoning"})


def message_events(
    role: str,
    parts: Iterable[Fields],
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
    calls: set[str] = set()
    for part in parts:
        kind = text_field(part, "type").replace("-", "_")
        if kind.endswith(("_call_output", "_call_response", "tool_result")):
            events.append(_result_event(part, names, agent))
        elif kind.endswith(("_call", "tool_use")) or "toolCallId" in part:
            function = first_of(part, "function", "custom")
            fields = {**part, **function} if isinstance(function, Mapping) else part
            call = Event(
                "tool_call",
                agent=agent,
                tool=_tool_of(fields) or kind.removeprefix("tool_"),
                arguments=arguments_of(
                    first_of(
                        fields, "arguments", "args", "input", "action", "parameters"
                    )
                ),
                call=_call_id(part),
            )
            if call.call and call.call in calls:  # some formats have it in two places
                continue
            calls.add(call.call)
            names[call.call] = call.tool
            if text_event != "llm_response":
                call = replace(call, origin="outside")
            events.append(call)
            # The result of what the provider ran stands beside the call.
            if not part.keys().isdisjoint(("output", "result")) or _marks_failure(part):
                events.append(_result_event(part, names, agent))
        else:
            text = _part_text(part, kind)
            if text:
                _add_text(events, Event(text_event, text, agent=agent), kind)

    return events


def _result_event(part: Fields, names: Mapping[str, str], agent: str) -> Event:
    """Return the event of a tool's result in a message."""
    call = _call_id(part)
    tool = _tool_of(part) or names.get(call, "")
    text = texts_of(part, RESULT_FIELDS)

    response = Event("tool_response", agent=agent, tool=tool, call=call)
    if not _marks_failure(part):
        code = "0" if marks_success(part) else ""
        return replace(response, content=text, code=code)
    error = part.get("error") or part.get("errorText")
    if isinstance(error, Mapping):
        error = first_of(error, "message") or error
    reason = "" if error is True else text_of(error)
    if reason and reason not in text:
        text = f"{text}\n{reason}".strip()
    return replace(response, error=text or "error")


def _marks_failure(part: Fields) -> bool:
    """Return True if a part says that its call failed, in whatever format."""
    # The Vercel AI SDK says it in the type of the output.
    output = part.get("output")
    if isinstance(output, Mapping) and text_of(output.get("type")).startswith("error"):
        return True
    return part.get("status") == "failed" or marks_failure(part)


def _call_id(fields: Fields) -> str:
    """Return the id of a call. In some formats, its message has an id of its own."""
    for name in fields:
        ending = name.replace("_", "").lower()
        if ending.endswith(CALL_ID_ENDINGS) and fields[name]:
            return text_field(fields, name)
    return text_field(fields, "id")


def _tool_of(fields: Fields) -> str:
    """Return the name of a tool; "" if the fields do not have it."""
    names = ("name", "toolName", "tool_name", "function")
    texts = (fields.get(name) for name in names)
    return next((text for text in texts if text and isinstance(text, str)), "")


def _add_text(events: list[Event], event: Event, kind: str) -> None:
    """Add the event of a text or a thought; a text joins the text before it."""
    if kind in THOUGHT_PART_TYPES:
        event = replace(event, meta={"part": kind})
    elif events and events[-1].type == event.type and not events[-1].meta:
        text = f"{events.pop().content}\n{event.content}"
        event = replace(event, content=text)
    events.append(event)


def first_of(fields: Fields, *names: str) -> Any:
    """Return the value of the first key in `names` that `fields` have, or None."""
    return next((fields[name] for name in names if name in fields), None)


def texts_of(fields: Fields, names: Iterable[str]) -> str:
    """Return the text of each of these fields: an agent may have read any of them."""
    texts = dict.fromkeys(text_of(fields.get(name)) for name in names)
    return "\n".join(filter(None, texts))


def _part_text(part: Fields, kind: str) -> str:
    """Return the text of a part; its type in brackets if it is no part of text."""
    names = RESULT_FIELDS if kind == "tool_result" else TEXT_FIELDS
    text = texts_of(part, (name for name in names if part.get(name)))
    if part.keys() == {"type"}:  # a mark, such as that of a step
        return ""
    is_text = "text" in kind or kind.endswith(("output", "result"))
    if not kind or is_text or kind in ("refusal", *THOUGHT_PART_TYPES):
        return text

    return "\n".join(filter(None, [f"[{kind}]", text]))


def object_of(value: Any, name: str) -> Fields:
    """Return the object in the field `name` of an object, {} if there is none."""
    part = value.get(name) if isinstance(value, Mapping) else None
    return part if isinstance(part, Mapping) else {}


def inner_objects(fields: Fields) -> list[Fields]:
    """Return the objects in the fields of an object."""
    return [part for part in fields.values() if isinstance(part, Mapping)]


def text_field(value: Fields, name: str) -> str:
    """Return the text of the field `name`, "" if it is absent. Raises InvalidInput."""
    text = value.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise InvalidInput(name, text, "text")
    return text


def objects(value: Any, what: str) -> list[Fields]:
    """Return a list of objects, and [] for None. Raises InvalidInput for others."""
    if value is None:
        return []

    if isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value):
        return value
    raise InvalidInput(what, value, "a list of objects")


def text_of(value: Any) -> str:
    """Return a tool's result as text: its text parts joined, other data as JSON.

    An object with nothing but a result, as {"output": …}, is this result.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    items = value if isinstance(value, list) else []
    parts = [_typed(item) for item in items if isinstance(item, Mapping)]
    if parts and len(parts) == len(items) and all(map(_is_part, parts)):
        return "\n".join(_part_text(part, part.get("type", "")) for part in parts)

    if isinstance(value, Mapping) and value and value.keys() <= set(RESULT_FIELDS):
        return texts_of(value, RESULT_FIELDS)
    return json.dumps(value, ensure_ascii=False)


def _is_part(value: Fields) -> bool:
    """Return whether an object is a typed part of a message: {"type": "text", …}."""
    return isinstance(value.get("type"), str) or value.keys() == {"text"}


def arguments_of(value: Any) -> Arguments | None:
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
    is_time = is_number and 0 <= number < 253_402_300_800  # the year 10000
    allowed = "seconds since 1970, or like 2026-01-31T12:00:00Z"
    require(is_time, "time", value, allowed)
    return float(number)


def chat_events(message: Fields, names: MutableMapping[str, str]) -> list[Event]:
    """Return the events of a chat message of OpenAI, Anthropic or OpenTelemetry.

    `names` maps the ids of earlier calls to the names of tools. Raises InvalidInput.
    """
    kind = text_field(message, "type")
    if kind.endswith("_call_output"):
        return message_events("tool", [message], names)
    if kind == "reasoning" or kind.endswith("_call"):
        return message_events("assistant", [message], names)
    if message.get("object") == "response":  # of OpenAI, with all its items
        items = objects(message.get("output"), "output")
        return list(chain.from_iterable(chat_events(item, names) for item in items))

    role = text_field(message, "role")
    require(role, "role", role, "text, such as user, assistant or tool")
    parts = _parts_of(message)
    results = first_of(message, "tool_responses", "tool_messages")
    if results:
        parts = [
            {**part, "type": "tool_result"} for part in objects(results, "results")
        ]
    elif role in ("tool", "function") and "parts" not in message:
        kinds = [text_field(part, "type") for part in parts]
        if not any(kind.endswith("result") for kind in kinds):
            parts = [{**message, "type": "tool_result"}]

    name = text_field(message, "name")
    agent = name if ROLE_EVENTS.get(role) == "llm_response" else ""
    return message_events(role, parts, names, agent)


def _parts_of(message: Fields) -> list[Fields]:
    """Return the thought, the texts, the refusal and the calls of a message."""
    thought = text_field(message, "reasoning_content")
    parts: list[Fields] = [{"type": "thinking", "text": thought}]
    for name_of_parts in ("parts", "content"):
        content = message.get(name_of_parts)
        if isinstance(content, str):
            content = [{"text": content}]
        elif isinstance(content, list):
            content = [_typed(part) for part in content]
        parts += [part for part in objects(content, name_of_parts) if part not in parts]

    parts.append({"type": "refusal", "refusal": text_field(message, "refusal")})

    # LangChain has OpenAI's fields in `additional_kwargs`.
    for fields in (message, object_of(message, "additional_kwargs")):
        calls = objects(first_of(fields, "tool_calls", "toolCalls"), "tool_calls")
        if fields.get("function_call"):
            calls = [*calls, *objects([fields["function_call"]], "function_call")]
        for call in calls:
            part = {**call, "type": "tool_call"}
            function = first_of(call, "function", "custom")
            has_tool = _tool_of(part) or isinstance(function, Mapping)
            require(has_tool, "function", call, "an object with a name")
            parts.append(part)
    return parts


def _typed(part: Any) -> Any:
    """Return a part of a message with its type; a text becomes a part."""
    if isinstance(part, str):
        return {"text": part}
    if isinstance(part, Mapping) and "type" not in part:
        for name, kind in NAMED_PARTS.items():
            if isinstance(part.get(name), Mapping):
                return {**part[name], "type": kind}
    return part


def offered_tools(tools: Any) -> list[str]:
    """Return the names of the tools that a request declares."""
    offered = tools if isinstance(tools, list) else []
    functions = [t.get("function", t) if isinstance(t, Mapping) else t for t in offered]
    names = [f.get("name") if isinstance(f, Mapping) else f for f in functions]
    return [name for name in names if name and isinstance(name, str)]
