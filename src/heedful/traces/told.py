"""One message of a chat, as parts -> the events it tells. Every format comes down to this. Pure."""

from __future__ import annotations

import calendar
import json
import re
from collections.abc import Iterable, Mapping, MutableMapping
from math import isfinite
from typing import Any

from heedful.errors import InvalidInput
from heedful.memory.episode import Event

SPOKEN = {
    "user": "user_message",
    "human": "user_message",
    "assistant": "llm_response",
    "model": "llm_response",
    "ai": "llm_response",
    "system": "system_event",
    "developer": "system_event",
}
CALLS = frozenset({"tool_call", "tool_use", "server_tool_use", "mcp_tool_use"})
RESULTS = frozenset({"tool_call_response", "tool_result"})
THOUGHTS = frozenset({"thinking", "reasoning"})
TEXTS = ("text", "content", "thinking", "refusal")
YEAR_10000 = 253_402_300_800
_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)([.,]\d{1,9})?)?"
    r"\s?(?:[Zz]|([+-])(\d\d):?(\d\d))?"
)


def told(
    role: str, parts: Iterable[Mapping[str, Any]], names: MutableMapping[str, str], agent: str = ""
) -> list[Event]:
    """The events of a message: its texts, the calls it makes, and the results it holds.

    Texts in a row are one event, of the type of their role, `ROLE_message` for one that is not
    known; thoughts are an llm_response whose `meta` says so; of images and the like there is the
    kind. `names` are the tools of calls by id, and gain those that are made here. What a tool
    returned as an error is the `error` of the response, whose `content` is then empty. Raises
    InvalidInput.
    """
    events: list[Event] = []
    spoken = SPOKEN.get(role, f"{role}_message")
    for part in parts:
        kind = text_in(part, "type")
        if kind in CALLS:
            call, tool = text_in(part, "id"), text_in(part, "name")
            names[call] = tool
            given = part["arguments"] if "arguments" in part else part.get("input")
            events.append(Event("tool_call", "", agent, tool, arguments_of(given), call))
        elif kind in RESULTS:
            events.append(_result(part, names, agent))
        elif kind in THOUGHTS:
            if text := _spoken(part, kind):
                events.append(Event("llm_response", text, agent, meta={"part": kind}))
        elif text := _spoken(part, kind):
            if events and events[-1].type == spoken and not events[-1].meta:
                text = f"{events.pop().content}\n{text}"
            events.append(Event(spoken, text, agent))
    return events


def _result(part: Mapping[str, Any], names: Mapping[str, str], agent: str) -> Event:
    call = text_in(part, "tool_use_id") or text_in(part, "id")
    tool = text_in(part, "name") or names.get(call, "")
    given = next((part[name] for name in ("response", "result", "content") if name in part), None)
    text = text_of(given)
    if part.get("is_error"):
        return Event("tool_response", "", agent, tool, call=call, error=text or "error")
    return Event("tool_response", text, agent, tool, call=call)


def _spoken(part: Mapping[str, Any], kind: str) -> str:
    given = next((part[name] for name in TEXTS if isinstance(part.get(name), str)), None)
    if kind and kind not in THOUGHTS and "text" not in kind and kind != "refusal":
        return f"[{kind}]"
    return "" if given is None else str(given)


def text_in(value: Mapping[str, Any], name: str) -> str:
    """A text, "" where there is none. Raises InvalidInput for anything else."""
    found = value.get(name)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise InvalidInput(name, found, "text")
    return found


def objects(value: Any, what: str) -> list[Mapping[str, Any]]:
    """A list of objects, None being an empty one. Raises InvalidInput."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise InvalidInput(what, value, "a list of objects")
    return value


def text_of(value: Any) -> str:
    """What a tool gave back, as text: a list of text parts joined, other data as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        kinds = [one.get("type") for one in value]
        if all(isinstance(kind, str) for kind in kinds):
            return "\n".join(_spoken(*both) for both in zip(value, kinds, strict=True))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def arguments_of(value: Any) -> Mapping[str, Any] | str | None:
    """Arguments as data where they are a JSON object, else as text; None where there are none."""
    if isinstance(value, str):
        try:
            data = json.loads(value)
        except (ValueError, RecursionError):
            return value or None
        return data if isinstance(data, dict) else value
    return value if value is None or isinstance(value, Mapping) else text_of(value)


def moment(value: Any) -> float | None:
    """Seconds since 1970 of a number of them, or of ISO 8601 (UTC where no zone is named).

    None for None. Raises InvalidInput.

    >>> moment("2026-01-31T12:00:00.250+01:00")
    1769857200.25
    """
    if value is None:
        return None
    given = value
    if isinstance(value, str):
        found = _MOMENT.fullmatch(value.strip())
        value = None if found is None else _seconds(found)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        value = None
    if value is None or not isfinite(value) or not 0 <= value < YEAR_10000:
        raise InvalidInput("time", given, "seconds since 1970, or like 2026-01-31T12:00:00Z")
    return float(value)


def _seconds(found: re.Match[str]) -> float | None:
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    if not (year and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60):
        return None
    part = float(f"0.{found[7][1:]}") if found[7] else 0.0
    off = 60 * (60 * int(found[9]) + int(found[10])) if found[8] else 0
    whole = calendar.timegm((year, month, day, hour, minute, second))
    return whole + part - (off if found[8] == "+" else -off)
