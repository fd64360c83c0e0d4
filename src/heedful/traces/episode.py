"""Episodes: what an agent did, event by event, and how its run ended. Pure."""

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import KW_ONLY, astuple, dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, islice
from operator import attrgetter
from typing import Any, Literal

from heedful.redact import redact, redact_data
from heedful.sanitize import cut_middle
from heedful.validation import check_integer, require

Ended = Literal["success", "failure", "partial", "timeout", "error"]
EPISODE_OUTCOMES: tuple[Ended, ...] = (
    "success",
    "failure",
    "partial",
    "timeout",
    "error",
)
MODEL_WORD_EVENTS = frozenset(
    {"llm_response", "tool_call"}
)  # events with words of a model
Origin = Literal["", "tool", "external"]
LOOP_SOURCE = "loop"  # the source of an episode that was a loop of this installation
MAX_TRACE_NAME_CHARS = 200  # characters of a name or an id
MAX_DATA_DEPTH = (
    30  # levels of arguments and metadata; more deeply nested data become text
)
# Error codes that mean a time-out: timeout, TimeoutError, DEADLINE_EXCEEDED, 408, 504.
TIMEOUT_CODE_PATTERN: re.Pattern[str] = re.compile(
    r"time[ds]?[ _-]?out|deadline|\b(?:408|504)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened while an agent worked.

    `type` is tool_call, tool_response, llm_call, llm_response, error_event,
    system_event, or any other word, such as user_message. `content` is the text said or
    returned. `agent` is the name of the agent. `error` says what went wrong, and `code`
    is the error's code. `arguments` are JSON data or text; if None, the arguments are
    in `content`. `call` is the id that a tool call shares with its response. `id` is
    the id of the event itself. `at` is the time in seconds since 1970, None if unknown.
    `meta` is any other data. `origin` is "tool" or "external" if the words are not
    those of the party that the type names, such as a model's turn that only a prompt
    contains.
    """

    type: str
    content: str = ""
    _: KW_ONLY
    agent: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] | str | None = None
    call: str = ""
    error: str = ""
    id: str = ""
    code: str = ""
    at: float | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """The error that ended a run: a category such as `timeout_error`, a message, its
    context.
    """

    category: str
    message: str = ""
    context: str = ""


@dataclass(frozen=True, slots=True)
class Episode:
    """One finished run of any agent: its task, its events in order, and how the run
    ended.

    `fault` is the error that ended the run, if any. `tools` are the names of the tools
    that were offered, empty if unknown. `omitted` is the number of events that were
    left out of a long run. `source` is "loop", or the format of the file. Raises
    InvalidInput.
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

    @property
    def digest(self) -> str:
        """The SHA-256 in hex of all fields except `source`; equal runs have the same
        digest.
        """
        head = (
            self.outcome,
            self.task,
            self.goal,
            self.id,
            self.session,
            self.tools,
            self.omitted,
        )
        times = (None if event.at is None else float(event.at) for event in self.events)
        fault = self.fault and astuple(self.fault)
        parts = [
            *head,
            fault,
            *zip(map(_EVENT_VALUES, self.events), times, strict=True),
        ]
        text = json.dumps(
            parts, sort_keys=True, default=json_default, separators=(",", ":")
        )
        return hashlib.sha256(text.encode("ascii")).hexdigest()


_EVENT_VALUES = attrgetter(
    *(name for name in Event.__dataclass_fields__ if name != "at")
)


def json_default(value: Any) -> Any:
    """Return a mapping as a dict, and any other value as its repr; for `json.dumps`."""
    return dict(value) if isinstance(value, Mapping) else repr(value)


def failure(event: Event) -> bool:
    """Return True if the event itself reports an error."""
    return bool(event.error) or event.type == "error_event"


def json_data(value: Any) -> Any:
    """Decode a text that is JSON; return any other value unchanged."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def call_arguments(call: Event) -> Any:
    """Return the arguments of a call, or else its content; decode JSON text."""
    return json_data(call.content if call.arguments is None else call.arguments)


@dataclass(frozen=True, slots=True)
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
        self._first: list[tuple[int, Event]] = []
        self._last: deque[tuple[int, Event]] = deque(maxlen=limits.events // 2)

    def add(self, *events: Event) -> None:
        """Add the next events."""
        for event in events:
            self.count += 1
            entry = self.count, clean_event(event, self._limits.content)
            last = len(self._first) == self._limits.events - self._limits.events // 2
            (self._last if last else self._first).append(entry)

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
        kept = [*self._first, *self._last]
        events: list[Event] = []
        taken: set[str] = set()
        for place, event in kept:
            own = event.id or f"e{place}"
            own = f"{own}~{place}" if own in taken else own
            taken.add(own)
            events.append(replace(event, id=own))
        if by_time:
            times = accumulate(
                events, lambda at, e: at if e.at is None else e.at, initial=0.0
            )
            timed = zip(islice(times, 1, None), events, strict=True)
            events = [event for _, event in sorted(timed, key=lambda pair: pair[0])]
        if task is None:  # prefer messages without an agent: side chains have one
            asked = [event for event in events if event.type == "user_message"]
            task = next(
                (event.content for event in sorted(asked, key=lambda e: e.agent != "")),
                "",
            )
        if fault is not None:
            fault = Fault(*(shorten(text, content) for text in astuple(fault)))
        if outcome is None and (fault or (events and failure(events[-1]))):
            code = fault.category if fault else events[-1].code
            outcome = "timeout" if TIMEOUT_CODE_PATTERN.search(code) else "error"
        return Episode(
            tuple(events),
            outcome or "partial",
            task=shorten(task, content),
            goal=shorten(goal, content),
            fault=fault,
            id=safe_id(id),
            session=safe_id(session),
            tools=tuple(dict.fromkeys(map(_name, tools))),
            omitted=omitted + self.count - len(kept),
            source=self._source,
        )


def clean_event(event: Event, most: int) -> Event:
    """Return the event without secrets, with each text cut to `most` characters."""
    arguments = event.arguments and _clean_data(event.arguments, most, most)
    # Half the length, so that the text as JSON is short enough when it is read again.
    meta = _clean_data(event.meta, most, most // 2) if event.meta else {}
    if isinstance(meta, str):
        meta = {"cut": meta}
    return Event(
        _name(event.type),
        shorten(event.content, most),
        agent=_name(event.agent),
        tool=_name(event.tool),
        arguments=arguments,
        call=safe_id(event.call),
        error=shorten(event.error, most),
        id=safe_id(event.id),
        code=_name(event.code),
        at=event.at,
        meta=meta,
        origin=event.origin,
    )


def _clean_data(
    data: Mapping[str, Any] | str, most: int, cut: int
) -> Mapping[str, Any] | str:
    """Redact data; data of over `most` characters, or deeply nested, become text, cut
    to `cut`.
    """
    if isinstance(data, str):
        return shorten(data, cut)
    text = json.dumps(data, ensure_ascii=False)
    if len(text) > most or is_deep(data, MAX_DATA_DEPTH):
        return shorten(text, cut)
    clean: Mapping[str, Any] = redact_data(data)
    return clean


@lru_cache(1_000)
def _name(text: str) -> str:
    return shorten(text, MAX_TRACE_NAME_CHARS)


def safe_id(id: str) -> str:
    """Return the id, or its digest if the id is very long or contains a secret."""
    if len(id) <= MAX_TRACE_NAME_CHARS and redact(id) == id:
        return id
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_deep(value: Any, levels: int) -> bool:
    """Return True if the data are nested in more than `levels` levels."""
    inner = value.values() if isinstance(value, Mapping) else value
    nested = isinstance(value, Mapping | list)
    return nested and (levels == 0 or any(is_deep(each, levels - 1) for each in inner))


def shorten(text: str, most: int) -> str:
    """Redact a text, and cut its middle if it has more than `most` characters (at least
    200).
    """
    return cut_middle(redact(text), most)
