"""Chat messages in OpenAI's form, with tool calls -> events. Pure."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from heedful.errors import InvalidInput
from heedful.memory.episode import ENDED, Episode, Event
from heedful.traces.gather import Gathering, Limits
from heedful.traces.told import objects, text_in, told

SOURCE = "chat"


class Chat:
    """A file of conversations, each a list of messages or an object with `messages`.

    Lines that are one message each are one conversation together. Whether a tool failed is no part
    of the format: what it said is the content of its response.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lines = Gathering(limits, SOURCE)
        self._names: dict[str, str] = {}

    def add(self, value: Any) -> list[Episode]:
        """The conversation that a line or document holds. Raises InvalidInput."""
        if isinstance(value, Mapping) and "messages" not in value:
            for event in events(value, self._names):
                self._lines.add(event)
            return []
        whole = value if isinstance(value, Mapping) else {"messages": value}
        gathering, names = Gathering(self._limits, SOURCE), dict[str, str]()
        for message in objects(whole["messages"], "messages"):
            for event in events(message, names):
                gathering.add(event)
        ended = whole.get("outcome")
        outcome = ended if ended in ENDED else None
        id, tools = text_in(whole, "id"), offered(whole.get("tools"))
        return [gathering.episode(outcome=outcome, id=id, tools=tools)]

    def finish(self) -> list[Episode]:
        """The conversation of lines that were one message each."""
        return [self._lines.episode()] if self._lines.given else []


def events(message: Mapping[str, Any], names: MutableMapping[str, str]) -> list[Event]:
    """The events of one message; `names` are the tools of earlier calls. Raises InvalidInput."""
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise InvalidInput("role", role, "text, such as user, assistant or tool")
    name = text_in(message, "name")
    if role in ("tool", "function"):
        call = text_in(message, "tool_call_id")
        result = {"type": "tool_result", "id": call, "name": name, "content": content}
        return told(role, [result], names)
    text = [{"type": "text", "text": content}] if isinstance(content, str) else None
    parts: list[Mapping[str, Any]] = [
        {"type": "thinking", "text": text_in(message, "reasoning_content")},
        *(text or objects(content, "content")),
        {"type": "refusal", "refusal": text_in(message, "refusal")},
    ]
    parts += [
        _call(text_in(one, "id"), one.get("function") or one.get("custom"))
        for one in objects(message.get("tool_calls"), "tool_calls")
    ]
    if message.get("function_call") is not None:
        parts.append(_call("", message["function_call"]))
    return told(role, parts, names, name if role == "assistant" else "")


def _call(id: str, function: Any) -> Mapping[str, Any]:
    if not isinstance(function, Mapping):
        raise InvalidInput("function", function, "an object with name and arguments")
    given = function["arguments"] if "arguments" in function else function.get("input")
    return {"type": "tool_call", "id": id, "name": function.get("name"), "arguments": given}


def offered(tools: Any) -> list[str]:
    """The names of tools, as a request declares them. Raises InvalidInput."""
    declared = [one.get("function", one) for one in objects(tools, "tools")]
    return [name for one in objects(declared, "tools") if (name := text_in(one, "name"))]
