"""Sessions of Claude Code, one entry a line -> episodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from heedful.errors import InvalidInput
from heedful.loop.record import Usage
from heedful.memory.episode import Episode, Event
from heedful.traces.gather import Gathering, Limits
from heedful.traces.lines import number
from heedful.traces.told import moment, objects, text_in, text_of, told

SOURCE = "claude-code"
TOLD = frozenset({"user", "assistant", "system", "summary"})


@dataclass
class _Session:
    gathering: Gathering
    names: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    tokens: dict[str, tuple[int, int]] = field(default_factory=dict)
    task: str = ""
    asked: float = 0.0  # when the task was given, in seconds since 1970; 0: not known


class Sessions:
    """A file of session entries: one episode a session, in the order of the file.

    Entries of type user, assistant, system and summary are told; the rest is bookkeeping of the
    program. An entry that is there twice counts once, and they are in the order of their times,
    since side chains and what a longer session keeps may be written later. A side chain belongs to
    its session, its events to an agent by its id. The first words of the user in the main chain are
    the task.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sessions: dict[str, _Session] = {}

    def add(self, value: Any) -> list[Episode]:
        """Nothing yet: a session ends with the file. Raises InvalidInput."""
        if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
            raise InvalidInput("an entry", value, "an object with a type")
        if value["type"] not in TOLD:
            return []
        id = text_in(value, "sessionId") or next(reversed(self._sessions), "")
        if id and "" in self._sessions:  # what stands before the first entry that names a session
            self._sessions = {id: self._sessions[""]}
        _enter(self._sessions.setdefault(id, _Session(Gathering(self._limits, SOURCE))), value)
        return []

    def finish(self) -> list[Episode]:
        """The sessions of the file."""
        return [
            one.gathering.episode(task=one.task, id=id, session=id, usage=_usage(one), by_time=True)
            for id, one in self._sessions.items()
            if one.gathering.given
        ]


def _enter(session: _Session, entry: Mapping[str, Any]) -> None:
    uuid = text_in(entry, "uuid")
    if uuid and uuid in session.seen:
        return
    session.seen.add(uuid)
    side = entry.get("isSidechain") is True
    agent = (text_in(entry, "agentId") or "sidechain") if side else ""
    at = moment(entry.get("timestamp"))
    for place, event in enumerate(_events(session, entry)):
        earlier = at is not None and at < session.asked
        if event.type == "user_message" and not side and (earlier or not session.task):
            session.task = event.content
            session.asked = at or 0.0
        id = f"{uuid}/{place}" if uuid and place else uuid
        rest = (
            event.tool,
            event.arguments,
            event.call,
            event.error,
            id,
            event.code,
            at,
            event.meta,
        )
        session.gathering.add(Event(event.type, event.content, agent, *rest))


def _events(session: _Session, entry: Mapping[str, Any]) -> Iterator[Event]:
    kind = entry["type"]
    if kind == "summary":
        yield Event("summary", text_in(entry, "summary"))
        return
    if kind == "system":
        error = text_of(entry.get("error"))
        yield Event(
            "error_event" if error else "system_event",
            text_of(entry.get("content")),
            error=error,
            code=text_in(entry, "subtype"),
        )
        return
    message = entry.get("message")
    if not isinstance(message, Mapping):
        raise InvalidInput("message", message, "an object with content")
    role = "system" if entry.get("isMeta") is True else kind
    content = message.get("content")
    text = [{"type": "text", "text": content}] if isinstance(content, str) else None
    events = told(role, text or objects(content, "content"), session.names)
    if entry.get("isApiErrorMessage") is True:
        events = [Event("error_event", error=one.content, code="api_error") for one in events]
    if kind == "assistant" and isinstance(message.get("usage"), Mapping):
        _count(session, text_in(message, "id") or text_in(entry, "uuid"), message["usage"])
    yield from events


def _count(session: _Session, id: str, usage: Mapping[str, Any]) -> None:
    """Each block of an answer is an entry of its own, and repeats the usage of the whole."""
    prompt = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    tokens = sum(int(number(usage, name)) for name in prompt), int(number(usage, "output_tokens"))
    session.tokens[id] = max(tokens, session.tokens.get(id, (0, 0)))


def _usage(session: _Session) -> Usage:
    both = session.tokens.values()
    return Usage(len(both), sum(one for one, _ in both), sum(other for _, other in both))
