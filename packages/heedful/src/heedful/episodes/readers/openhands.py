"""Read runs of OpenHands: events one by one, or a record of an evaluation with them.

Sources: All-Hands-AI/OpenHands, openhands/events/serialization/event.py, where an event
has an `action` or an `observation`; OpenHands/software-agent-sdk,
openhands-sdk/openhands/sdk/event, where an event has a `kind`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from heedful.episodes.episode import Episode, Event
from heedful.episodes.failures import marks_failure
from heedful.episodes.messages import (
    chat_events,
    first_of,
    object_of,
    seconds,
    text_field,
    text_of,
    texts_of,
)
from heedful.episodes.readers.base import REFUSAL, EntryReader, OpenSessions, outcome_of
from heedful.validation import Fields, require

# Actions that only say something, and what OpenHands does around the agent.
SAYINGS = ("message", "finish")
SURROUNDINGS = (
    "system",
    "recall",
    "null",
    "change_agent_state",
    "agent_state_changed",
    "condensation",
)
# The exit code of a command that runs on.
RUNNING_EXIT_CODE = -1
# Arguments that describe a call to people.
NOTES = ("thought", "kind", "summary", "security_risk", "confirmation_state")


class OpenHandsReader(EntryReader):
    """Reads the events of a run; a record with a `history` is an episode."""

    source = "openhands"

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for an event, or a record with events."""
        return any(map(_is_event, _history(value) or [value]))

    def add(self, value: Any) -> list[Episode]:
        """Read an event, or return the episode of a record. Raises InvalidInput."""
        history = _history(value)
        sessions = (
            OpenSessions(self._limits, self.source) if history else self._sessions
        )
        session = sessions[""]
        for fields in history or [value]:
            require(isinstance(fields, Mapping), "an event", fields, "an object")
            time = seconds(fields.get("timestamp"))
            for event in _events_of(fields):
                session.builder.add(replace(event, at=time))
        if not history:
            return []

        session.outcome = outcome_of(value)
        return sessions.episodes()


def _history(value: Any) -> list[Any]:
    """Return the events of a record; earlier versions have them in pairs."""
    events = value.get("history") if isinstance(value, Mapping) else None
    if not isinstance(events, list):
        return []
    pairs = (event if isinstance(event, list) else [event] for event in events)
    return list(chain.from_iterable(pairs))


def _is_event(value: Any) -> bool:
    """Return True for an action, an observation, or an event with a kind."""
    if not isinstance(value, Mapping):
        return False
    if text_of(value.get("kind")).endswith(("Event", "Observation")):
        return "source" in value
    is_action = isinstance(value.get("action"), str) and "args" in value
    is_observation = isinstance(value.get("observation"), str) and "content" in value
    return (is_action or is_observation) and "role" not in value


def _events_of(fields: Fields) -> Iterator[Event]:
    """Yield what an event is about. Raises InvalidInput."""
    message = fields.get("llm_message")
    action = fields.get("action")
    observation = fields.get("observation")
    if isinstance(message, Mapping):
        yield from chat_events(message, {})
    elif "detail" in fields:
        yield Event("error_event", error=texts_of(fields, ("detail",)))
    elif action in SURROUNDINGS or observation in SURROUNDINGS:
        return
    elif action is not None or fields.get("kind") == "ActionEvent":
        yield from _action_events(fields, action)
    elif observation is not None or "tool_call_id" in fields:
        yield _result_of(fields, observation)


def _action_events(fields: Fields, action: Any) -> Iterator[Event]:
    """Yield the thought of an action, and its call or what it says."""
    inputs = action if isinstance(action, Mapping) else object_of(fields, "args")
    thought = text_of(fields.get("thought") or inputs.get("thought") or "")
    function = object_of(fields, "tool_call_metadata").get("function_name")
    tool = text_of(first_of(fields, "tool_name")) or text_of(function or action)
    if tool in SAYINGS or action in SAYINGS:
        kind = "user_message" if fields.get("source") == "user" else "llm_response"
        words = texts_of(inputs, ("content", "final_thought", "message")) or thought
        yield Event(kind, words)
        return

    if thought:
        yield Event("llm_response", thought)
    arguments = {
        name: value
        for name, value in inputs.items()
        if name not in NOTES and isinstance(value, str | Mapping | list) and value
    }
    call = text_of(first_of(fields, "tool_call_id", "id"))
    yield Event("tool_call", tool=tool, arguments=arguments, call=call)


def _result_of(fields: Fields, observation: Any) -> Event:
    """Return the result of a call. Raises InvalidInput."""
    inner = object_of(fields, "observation") or object_of(fields, "extras")
    words = texts_of({**inner, **fields}, ("content", "output", "error"))
    code = first_of({**object_of(inner, "metadata"), **inner}, "exit_code")
    call = text_of(first_of(fields, "tool_call_id", "cause"))
    result = Event("tool_response", call=call, tool=text_field(fields, "tool_name"))
    if "rejection_reason" in fields:
        return replace(result, content=f"{REFUSAL}\n{fields['rejection_reason']}")

    if isinstance(code, int):
        result = replace(result, code=str(code))
    is_failure = bool(code) or marks_failure({**inner, **fields})
    if observation == "error" or (is_failure and code != RUNNING_EXIT_CODE):
        return replace(result, error=words or "failed")
    return replace(result, content=words)
