"""Episodes: what an agent did, event by event, and how its run ended. Pure.

Every format of traces is read into an `Episode`, and everything that learns from a run
reads an episode. An `EpisodeBuilder` makes one: it redacts secrets, cuts long texts,
and keeps the first and the last events of a long run, as `Limits` say. If the trace
does not say how the run ended, the events do, and they never claim a success.
"""

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, astuple, field, fields, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, get_args

from heedful.episodes.error_lines import shorten_failure
from heedful.errors import InvalidInput
from heedful.redact import redact, redact_data
from heedful.sanitize import redact_ends
from heedful.validation import (
    MAX_DATA_DEPTH,
    MAX_INTEGER,
    MAX_NAME_CHARS,
    Document,
    Fields,
    check_integer,
    hex_digest,
    refuses_unknown_options,
    require,
    typed_frozen,
)

# What a call is given: the fields of an object of JSON, or a text.
Arguments = Fields | str
Ended = Literal["success", "failure", "partial", "timeout", "error"]
EPISODE_OUTCOMES: tuple[Ended, ...] = get_args(Ended)


class EventType(StrEnum):
    """What an event is."""

    TOOL_CALL = "tool_call"
    TOOL_RESPONSE = "tool_response"
    LLM_CALL = "llm_call"
    LLM_RESPONSE = "llm_response"
    ERROR_EVENT = "error_event"
    SYSTEM_EVENT = "system_event"
    USER_MESSAGE = "user_message"


EVENT_TYPES: tuple[str, ...] = tuple(kind.value for kind in EventType)
# Events with words of a model.
MODEL_WORD_EVENTS = frozenset({"llm_response", "tool_call"})
Origin = Literal["", "tool", "outside"]
SPAN_CONVENTIONS = (  # by which spans are understood
    "OpenTelemetry GenAI, OpenInference, OpenLLMetry, Vercel AI SDK, MLflow, Langfuse, "
    "LangSmith, Logfire"
)
# Error codes that mean a time-out: timeout, TimeoutError, DEADLINE_EXCEEDED, 408, 504.
TIMEOUT_CODE_PATTERN: re.Pattern[str] = re.compile(
    r"time[ds]?[ _-]?out|deadline|\b(?:408|504)\b", re.IGNORECASE
)


@refuses_unknown_options
@typed_frozen(slots=True)
class Event:
    """One thing that happened while an agent worked.

    `type` is tool_call, tool_response, llm_call, llm_response, error_event,
    system_event, or any other word, such as user_message. `content` is the text said or
    returned. `agent` is the name of the agent. `error` says what went wrong, and `code`
    is the error's code. `arguments` are JSON data or text; if None, the arguments are
    in `content`. `call` is the id that a tool call shares with its response. `id` is
    the id of the event itself. `at` is the time in seconds since 1970, None if unknown.
    `meta` is any other data. `origin` is "tool" or "outside" if the words are not
    those of the party that the type names, such as a model's turn that only a prompt
    contains.
    """

    type: str
    content: str = ""
    _: KW_ONLY
    agent: str = ""
    tool: str = ""
    arguments: Arguments | None = None
    call: str = ""
    error: str = ""
    id: str = ""
    code: str = ""
    at: float | None = None
    meta: Fields = field(default_factory=dict)
    origin: Origin = ""


_FIELDS_BUT_TIME = [item.name for item in fields(Event) if item.name != "at"]


@refuses_unknown_options
@typed_frozen(slots=True)
class Fault:
    """The error that ended a run; the category is a word such as `timeout_error`."""

    category: str
    message: str = ""
    context: str = ""


@refuses_unknown_options
@typed_frozen(slots=True)
class Episode:
    """One finished run of any agent: its task, its events in order, and its end.

    `fault` is the error that ended the run, if any. `tools` are the names of the tools
    that were offered, empty if unknown. `omitted` is the number of events that were
    left out of a long run. `source` is "loop", or the format of the file. Raises
    InvalidInput for an unknown outcome, and for a misspelt type of an event.
    """

    events: tuple[Event, ...]
    outcome: Ended = "failure"
    _: KW_ONLY
    task: str = ""
    goal: str = ""
    fault: Fault | None = None
    id: str = ""
    session: str = ""
    tools: tuple[str, ...] = ()
    omitted: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        require(
            self.outcome in EPISODE_OUTCOMES,
            "outcome",
            self.outcome,
            f"one of {', '.join(EPISODE_OUTCOMES)}",
        )
        if not self.source:  # a reader checks the types of its own format
            for event in self.events:
                check_event_type(event.type)

    @property
    def digest(self) -> str:
        """The SHA-256 in hex of all fields except `source`; equal for equal runs."""
        parts: list[object] = [
            self.outcome,
            self.task,
            self.goal,
            self.id,
            self.session,
            self.tools,
            self.omitted,
            self.fault and astuple(self.fault),
        ]
        for event in self.events:
            time = None if event.at is None else float(event.at)
            values = [getattr(event, name) for name in _FIELDS_BUT_TIME]
            parts.append((values, time))
        text = json.dumps(
            parts, sort_keys=True, default=json_default, separators=(",", ":")
        )
        return hex_digest(text)


@lru_cache(1_000)
def check_event_type(type: str) -> None:
    """Raise InvalidInput for a misspelt type of an event, such as "toolcall".

    Any word that is not so alike to a known type is allowed.
    """
    if type in EVENT_TYPES:
        return

    from difflib import get_close_matches  # most events have a known type

    alike = get_close_matches(type.lower(), EVENT_TYPES, n=1, cutoff=0.85)
    if alike:
        types = ", ".join(EVENT_TYPES)
        allowed = f"spelt {alike[0]!r}; the known types are {types}"
        raise InvalidInput("type of an event", type, allowed)


def json_default(value: Any) -> Any:
    """Return a mapping as a dict, and any other value as its repr; for `json.dumps`."""
    return dict(value) if isinstance(value, Mapping) else repr(value)


def failure(event: Event) -> bool:
    """Return True if the event itself reports an error."""
    return bool(event.error) or event.type == "error_event"


def _object_of(pairs: list[tuple[str, Any]]) -> Document:
    """Return a JSON object. Raises ValueError if a name comes twice.

    An agent reads both values, and a dict has the last one.
    """
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name comes twice")
    return fields


def json_data(value: Any) -> Any:
    """Decode a text that is JSON; return any other value unchanged.

    A text in it may contain ends of lines, as the mark of a cut does.
    """
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return json.loads(value, strict=False, object_pairs_hook=_object_of)
    return value


def call_arguments(call: Event) -> Any:
    """Return the arguments of a call, or else its content; decode JSON text."""
    if call.arguments is None:
        return json_data(call.content)
    return json_data(call.arguments)


@typed_frozen(slots=True)
class Limits:
    """How much of a file is read; each limit is at least 1, `content` at least 400.

    `events`: events of one episode; of a longer episode, only the first and the last.
    `content`: characters of every text; a longer text is cut in the middle, with a mark
    that counts what is missing. `bytes`: bytes of one line, or of a file that is one
    document; more is an error.
    """

    events: int = 10_000
    content: int = 8_000
    bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        for name, least in (("events", 1), ("content", 400), ("bytes", 1)):
            check_integer(f"limits.{name}", getattr(self, name), least)


class EpisodeBuilder:
    """Collects the events of one episode: `add` them in order, then call `episode`."""

    def __init__(self, limits: Limits, source: str) -> None:
        self._limits = limits
        self._source = source
        self.count: int = 0  # of all events, including omitted ones
        # The first and the last events, each with its number from 1. If an episode has
        # more than both can hold, the events in between are omitted.
        self._first: list[tuple[int, Event]] = []
        self._last: deque[tuple[int, Event]] = deque(maxlen=limits.events // 2)

    def add(self, event: Event) -> None:
        """Add the next event."""
        self.count += 1
        entry = self.count, clean_event(event, self._limits.content)
        if len(self._first) + (self._last.maxlen or 0) < self._limits.events:
            self._first.append(entry)
        else:
            self._last.append(entry)

    def episode(
        self,
        *,
        task: str | None = None,
        goal: str = "",
        outcome: Ended | None = None,
        fault: Fault | None = None,
        id: str = "",
        session: str = "",
        tools: Iterable[str] = (),
        omitted: int = 0,
        by_time: bool = False,
    ) -> Episode:
        """Return the episode; without a `task` the first user message is the task.

        `by_time` sorts the events by time; an event without a time stays behind the
        event before it. If `outcome` is None, the outcome follows from the events, and
        is never success: with a `fault` or a last event that failed, it is error (or
        timeout, by the code), else partial.
        """
        content = self._limits.content
        events = self._with_ids()
        omitted += self.count - len(events)
        if by_time:
            events = _sorted_by_time(events)
        events = _behind_calls(events)

        if task is None:
            task = _first_prompt(events)

        if fault is not None:
            fault = Fault(
                redact_ends(fault.category, content),
                redact_ends(fault.message, content),
                redact_ends(fault.context, content),
            )

        return Episode(
            tuple(events),
            outcome or _outcome_of(events, fault),
            task=redact_ends(task, content),
            goal=redact_ends(goal, content),
            fault=fault,
            id=safe_id(id),
            session=safe_id(session),
            tools=tuple(dict.fromkeys(map(_short_name, tools))),
            omitted=omitted,
            source=self._source,
        )

    def _with_ids(self) -> list[Event]:
        """Return the events, each with an id that no other has."""
        events: list[Event] = []
        ids: set[str] = set()
        for number, event in [*self._first, *self._last]:
            id = event.id or f"e{number}"
            if id in ids:
                id = f"{id}~{number}"
            ids.add(id)
            events.append(replace(event, id=id))

        return events


def _sorted_by_time(events: list[Event]) -> list[Event]:
    """Sort events by time; one without a time has that of the event before it."""
    times: list[float] = []
    time = 0.0
    for event in events:
        if event.at is not None:
            time = event.at
        times.append(time)

    order = sorted(range(len(events)), key=times.__getitem__)
    return [events[position] for position in order]


def _first_prompt(events: list[Event]) -> str:
    """Return the first message of a user, if possible of the main chain."""
    prompts = [event for event in events if event.type == "user_message"]
    for prompt in prompts:
        if prompt.agent == "":  # side chains have an agent
            return prompt.content
    return prompts[0].content if prompts else ""


def _behind_calls(events: list[Event]) -> list[Event]:
    """Move each response that is before its call right behind it.

    A trace may show it in a prompt that began before the call.
    """
    calls: dict[str, int] = {}
    for position, event in enumerate(events):
        if event.type == "tool_call" and event.call:
            calls.setdefault(event.call, position)
    places = [
        max(position, calls.get(event.call, 0))
        if event.type == "tool_response"
        else position
        for position, event in enumerate(events)
    ]
    order = sorted(range(len(events)), key=lambda n: (places[n], places[n] != n))
    return [events[position] for position in order]


def _outcome_of(events: list[Event], fault: Fault | None) -> Ended:
    """Return how a run ended by its events; it is never a success."""
    if fault is not None:
        code = fault.category
    elif events and failure(events[-1]):
        code = events[-1].code
    else:
        return "partial"
    return "timeout" if TIMEOUT_CODE_PATTERN.search(code) else "error"


def without_secrets(episode: Episode) -> Episode:
    """Return the episode without secrets; only its names are cut.

    A reader's episode has none. One that a program makes may have some.
    """
    fault = episode.fault
    if fault is not None:
        fault = Fault(*map(redact, astuple(fault)))
    return replace(
        episode,
        events=tuple(clean_event(event, MAX_INTEGER) for event in episode.events),
        task=redact(episode.task),
        goal=redact(episode.goal),
        fault=fault,
        id=safe_id(episode.id),
        session=safe_id(episode.session),
        tools=tuple(map(_short_name, episode.tools)),
        source=_short_name(episode.source),
    )


def clean_event(event: Event, limit: int) -> Event:
    """Return the event without secrets, with each text cut to `limit` characters.

    An error that is cut has its error lines first.
    """
    arguments = event.arguments and _clean_data(event.arguments, limit, cut=limit)
    meta: Arguments = {}
    if event.meta:
        # Half the length: as JSON the text is short enough when it is read again.
        meta = _clean_data(event.meta, limit, cut=limit // 2)

    if isinstance(meta, str):
        meta = {"cut": meta}
    return Event(
        _short_name(event.type),
        redact_ends(event.content, limit),
        agent=_short_name(event.agent),
        tool=_short_name(event.tool),
        arguments=arguments,
        call=safe_id(event.call),
        error=shorten_failure(redact(event.error), limit),
        id=safe_id(event.id),
        code=_short_name(event.code),
        at=event.at,
        meta=meta,
        origin=event.origin,
    )


def _clean_data(data: Arguments, limit: int, *, cut: int) -> Arguments:
    """Redact data; too long or too deep data become a text of `cut` characters."""
    if isinstance(data, str):
        return redact_ends(data, cut)

    text = json.dumps(data, ensure_ascii=False, default=json_default)
    if len(text) > limit or is_deep(data, MAX_DATA_DEPTH):
        return redact_ends(text, cut)

    clean: Fields = redact_data(dict(data))
    return clean


@lru_cache(1_000)
def _short_name(name: str) -> str:
    """Return the name of an agent or a tool, redacted and cut."""
    return redact_ends(name, MAX_NAME_CHARS)


def safe_id(id: str) -> str:
    """Return the id, or its digest if the id is very long or contains a secret."""
    if not id or (len(id) <= MAX_NAME_CHARS and redact(id) == id):
        return id
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_deep(value: Any, levels: int) -> bool:
    """Return True if the data are nested in more than `levels` levels."""
    if not isinstance(value, Mapping | list):
        return False
    inner = value.values() if isinstance(value, Mapping) else value
    return levels == 0 or any(is_deep(part, levels - 1) for part in inner)
