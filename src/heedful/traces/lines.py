"""Episodes in a form of our own: one a line, as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

from heedful.errors import InvalidInput
from heedful.loop.record import NOTHING, Usage
from heedful.memory.episode import ENDED, Episode, Event, Fault
from heedful.traces.gather import Gathering, Limits
from heedful.traces.told import moment, objects, text_in, text_of

SOURCE = "heedful"
# Our names, and those that a request to reflect on events has.
OTHER = {
    "event_type": "type",
    "event_id": "id",
    "timestamp": "at",
    "metadata": "meta",
    "tool_name": "tool",
    "task_description": "task",
    "task_goal": "goal",
    "session_id": "session",
}
EVENT = frozenset(Event.__dataclass_fields__)


class Lines:
    """A file of episodes, one a line, each an object with `events`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def add(self, value: Any) -> list[Episode]:
        """The episode of a line. Raises InvalidInput."""
        if not isinstance(value, Mapping) or "events" not in value:
            raise InvalidInput("an episode", value, "an object with events")
        one = _renamed(value)
        gathering = Gathering(self._limits, SOURCE)
        for event in objects(one["events"], "events"):
            gathering.add(_event(_renamed(event)))
        outcome = one.get("outcome")
        if outcome is not None and outcome not in ENDED:
            raise InvalidInput("outcome", outcome, f"one of {', '.join(ENDED)}")
        return [
            gathering.episode(
                task=text_in(one, "task") if "task" in one else None,
                goal=text_in(one, "goal"),
                outcome=outcome,
                fault=_fault(one.get("fault", one.get("error"))),
                id=text_in(one, "id"),
                session=text_in(one, "session"),
                tools=_names(one.get("tools")),
                usage=_usage(one.get("usage")),
                omitted=_count(one, "omitted"),
            )
        ]

    def finish(self) -> list[Episode]:
        """Nothing: every line is whole."""
        return []


def write(episodes: Iterable[Episode]) -> Iterator[bytes]:
    """The lines of a file that is read as the same episodes, but for their `source`.

    Each is ASCII and ends in a newline.
    """
    for one in episodes:
        fault = one.fault or Fault("")
        error = {"error_category": fault.category, "error_message": fault.message}
        told: dict[str, Any] = {
            "id": one.id,
            "session_id": one.session,
            "task_description": one.task,
            "task_goal": one.goal,
            "outcome": one.outcome,
            "error": one.fault and {**error, "context": fault.context},
            "tools": one.tools,
            "usage": {name: value for name, value in asdict(one.usage).items() if value},
            "omitted": one.omitted,
        }
        kept = {name: held for name, held in told.items() if held or name == "task_description"}
        kept["events"] = list(map(_told, one.events))
        yield json.dumps(kept, default=dict, separators=(",", ":")).encode("ascii") + b"\n"


def _told(event: Event) -> dict[str, Any]:
    error = {"message": event.error, "code": event.code}
    told = {
        "event_type": event.type,
        "content": event.content,
        "agent": event.agent,
        "tool_name": event.tool,
        "call": event.call,
        "event_id": event.id,
        "error": {name: text for name, text in error.items() if text},
        "metadata": event.meta,
    }
    kept = {name: value for name, value in told.items() if value or name == "event_type"}
    times = {"arguments": event.arguments, "timestamp": event.at}
    return kept | {name: value for name, value in times.items() if value is not None}


def _renamed(value: Mapping[str, Any]) -> dict[str, Any]:
    """The same under our names; one of ours counts where both are given."""
    ours = {OTHER[name]: held for name, held in value.items() if name in OTHER}
    return ours | {name: held for name, held in value.items() if name not in OTHER}


def _event(one: Mapping[str, Any]) -> Event:
    """Whatever else its writer told is kept in `meta`."""
    error: Any = one.get("error")
    code = text_in(one, "code")
    if isinstance(error, Mapping):
        error, code = text_in(error, "message"), text_in(error, "code")
    meta, given = one.get("meta"), one.get("arguments")
    if meta is not None and not isinstance(meta, Mapping):
        raise InvalidInput("meta", meta, "an object")
    more = {name: held for name, held in one.items() if name not in EVENT and held is not None}
    kind = text_in(one, "type")
    if not kind:
        raise InvalidInput("type of an event", one.get("type"), "text, such as tool_call")
    return Event(
        kind,
        text_of(one.get("content")),
        text_in(one, "agent"),
        text_in(one, "tool"),
        given if given is None or isinstance(given, str | Mapping) else text_of(given),
        text_in(one, "call"),
        text_in({"error": error}, "error"),
        text_in(one, "id"),
        code,
        moment(one.get("at")),
        {**more, **(meta or {})},
    )


def _fault(value: Any) -> Fault | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidInput("error", value, "an object with error_category and error_message")
    category, message = (
        text_in(value, f"error_{name}") or text_in(value, name) for name in ("category", "message")
    )
    return Fault(category, message, text_of(value.get("context")))


def _names(value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidInput("tools", value, "a list of names")
    return value


def _usage(value: Any) -> Usage:
    if value is None:
        return NOTHING
    names = [part.name for part in fields(Usage)]
    if not isinstance(value, Mapping) or not value.keys() <= set(names):
        raise InvalidInput("usage", value, f"an object of {', '.join(names)}")
    calls, prompt, completion = (_count(value, name) for name in names[:3])
    cost, seconds = (float(number(value, name)) for name in names[3:])
    return Usage(calls, prompt, completion, cost, seconds)


def number(value: Mapping[str, Any], name: str) -> float:
    """A number of at least 0, 0 where there is none. Raises InvalidInput."""
    found = value.get(name)
    if found is None:
        return 0
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e15:
        raise InvalidInput(name, found, "a number of at least 0")
    return found


def _count(value: Mapping[str, Any], name: str) -> int:
    found = number(value, name)
    if not isinstance(found, int):
        raise InvalidInput(name, found, "a whole number")
    return found
