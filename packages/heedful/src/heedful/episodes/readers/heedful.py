"""Read and write heedful's own format: each value is an episode with `events`. Pure.

The names of requests to reflect on events are known beside heedful's own.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from heedful.episodes.episode import (
    EPISODE_OUTCOMES,
    EVENT_TYPES,
    Episode,
    EpisodeBuilder,
    Event,
    Fault,
    Origin,
    check_event_type,
)
from heedful.episodes.messages import (
    first_of,
    objects,
    seconds,
    text_field,
    text_of,
    texts_of,
)
from heedful.episodes.readers.base import ValueReader
from heedful.validation import Document, Fields, check_integer, require

# What an event of our own format may state: it lowers the trust of the event's words.
EVENT_ORIGINS: Mapping[str, Origin] = {"tool": "tool", "outside": "outside"}
# The names that the code and the message of an event's error may have.
ERROR_CODE_NAMES = ("code", "error_code", "status", "error_type", "error_category")
ERROR_MESSAGE_NAMES = ("message", "error_message", "detail")
# The fields of an event that events of other programs seldom have.
EVENT_FIELDS = frozenset(Event.__dataclass_fields__) - {"type", "id", "at"}
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


class EpisodeReader(ValueReader):
    """Reads heedful's own format: each line is an episode, an object with `events`."""

    source = "heedful"

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for an object with a list of events as heedful has them."""
        events = value.get("events") if isinstance(value, Mapping) else None
        if not isinstance(events, list):
            return False
        if not all(isinstance(event, Mapping) for event in events):
            return False
        if not events:  # spans may have such a list, too
            return "name" not in value

        fields = [_canonical_names(event) for event in events]
        return all("type" in event for event in fields) and (
            "outcome" in value
            or any(
                event["type"] in EVENT_TYPES or not EVENT_FIELDS.isdisjoint(event)
                for event in fields
            )
        )

    def add(self, value: Any) -> list[Episode]:
        """Read a value of the file; return what it completes. Raises InvalidInput."""
        is_episode = isinstance(value, Mapping) and "events" in value
        require(is_episode, "an episode", value, "an object with events")
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
        tools = fields.get("tools") or []
        are_names = isinstance(tools, list) and all(isinstance(t, str) for t in tools)
        require(are_names, "tools", tools, "a list of names")
        omitted = fields.get("omitted") or 0
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


def _canonical_names(value: Fields) -> Document:
    """Replace alias names by heedful's names; a value under heedful's own name wins."""
    renamed = {FIELD_ALIASES.get(name, name): value[name] for name in value}
    return renamed | {n: value[n] for n in value if n not in FIELD_ALIASES}


def _read_event(value: Fields) -> Event:
    """Return an event; fields that `Event` lacks are stored in its `meta`.

    So are those of its error, such as a stack trace.
    """
    fields = _canonical_names(value)
    error = fields.get("error")
    code = _number_or_text(fields, "code")
    error_fields: Document = {}
    if isinstance(error, Mapping):
        codes = [_number_or_text(error, name) for name in ERROR_CODE_NAMES]
        code = next(filter(None, codes), "")
        error_fields = {
            name: value
            for name, value in error.items()
            if name not in (*ERROR_CODE_NAMES, *ERROR_MESSAGE_NAMES)
        }
        error = texts_of(error, ERROR_MESSAGE_NAMES) or text_of(error)

    meta = fields.get("meta")
    require(isinstance(meta, Mapping | None), "meta", meta, "an object")

    names = set(Event.__dataclass_fields__)
    origin = EVENT_ORIGINS.get(text_of(fields.get("origin")), "")
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
        meta={**others, **error_fields, **(meta or {})},
        origin=origin,
    )


def _number_or_text(value: Fields, name: str) -> str:
    """Return a field as text; a number, such as 429, too. Raises InvalidInput."""
    number = value.get(name)
    if isinstance(number, int) and not isinstance(number, bool):
        return str(number)
    return text_field(value, name)


def _read_fault(value: Any) -> Fault | None:
    """Return the fault of an episode, by heedful's names or those of requests.

    None stays None. Raises InvalidInput.
    """
    if value is None:
        return None
    require(
        isinstance(value, Mapping),
        "error",
        value,
        "an object with error_category and error_message",
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
