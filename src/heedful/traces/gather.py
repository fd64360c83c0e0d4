"""Events as they come -> one episode of a bounded size, without secrets. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any

from heedful.errors import InvalidInput
from heedful.loop.record import NOTHING, Usage
from heedful.memory.episode import Ended, Episode, Event, Fault
from heedful.redact import redact, redact_data

# More than the longest secret that is known by its form, in characters: at least so much of a text
# is looked through on either side of a cut, since half a secret is not recognised.
BEYOND = 8_192
# Characters of a name or an id, and of the mark in a text that is cut.
LONGEST_NAME = 200
# How deep data may be that is kept as data.
DEEPEST = 30
MARK = 40
# Codes of errors that say that the time was up: timeout, TimeoutError, DEADLINE_EXCEEDED, 408, 504.
_LATE = re.compile(r"time[ds]?[ _-]?out|deadline|\b(?:408|504)\b", re.IGNORECASE)
# Ids in hexadecimal hold no secret.
_PLAIN = re.compile(r"[0-9a-f-]{0,64}(?:[/~][0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Limits:
    """What is kept of a file that is too long; each at least 1, but for `content`, at least 400.

    So many `events` of one episode: half of them are the first, a quarter the last, and a quarter
    is for errors between these, with the calls that they answer. So many characters of every
    `content`, cut in the middle with a mark that says how many are missing. A line, or a file that
    is one document, may have so many `bytes`; a longer one is an error.
    """

    events: int = 10_000
    content: int = 8_000
    bytes: int = 64 * 2**20

    def __post_init__(self) -> None:
        for part, least in zip(fields(self), (1, 400, 1), strict=True):
            value = getattr(self, part.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidInput(f"limits.{part.name}", value, f"an integer of at least {least}")


class Gathering:
    """One episode under way: `add` its events in order, then ask for the `episode`."""

    def __init__(self, limits: Limits, source: str) -> None:
        self._limits, self._source = limits, source
        self.given: int = 0  # events, also those that are left out
        self._first: list[tuple[int, Event]] = []
        self._failed: list[tuple[int, Event]] = []
        self._last: deque[tuple[int, Event]] = deque()
        self._failing: set[str] = set()  # calls that were answered with an error

    def add(self, event: Event) -> None:
        """The next event."""
        most = self._limits.events
        self.given += 1
        one = self.given, held(event, self._limits.content)
        if len(self._first) < (most + 1) // 2:
            self._first.append(one)
            return
        self._last.append(one)
        if event.call and event.error:
            self._failing.add(one[1].call)
        while len(self._first) + len(self._failed) + len(self._last) > most:
            oldest = self._last.popleft()
            failed = failure(oldest[1]) or oldest[1].call in self._failing
            if failed and len(self._failed) < most // 4:
                self._failed.append(oldest)

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
        usage: Usage = NOTHING,
        omitted: int = 0,
        by_time: bool = False,
    ) -> Episode:
        """The episode; without a task it is what the user said first.

        `by_time` puts its events in the order of their times; one without stays behind the last.

        Without an `outcome` it is error where there is a `fault`, or where the last event is one;
        timeout where the code of that error says so; else partial, since nobody said more: silence
        is never success.
        """
        kept = [*self._first, *self._failed, *self._last]
        content = self._limits.content
        events = tuple(_named([(place, clean(one, content)) for place, one in kept]))
        if by_time:
            events = _by_time(events)
        if task is None:
            task = next((one.content for one in events if one.type == "user_message"), "")
        if fault is not None:
            texts = (fault.category, fault.message, fault.context)
            fault = Fault(*(short(text, content) for text in texts))
        return Episode(
            events,
            outcome or _ended(fault, events),
            short(task, content),
            short(goal, content),
            fault,
            opaque(id),
            opaque(session),
            tuple(dict.fromkeys(map(_name, tools))),
            usage,
            omitted + self.given - len(kept),
            self._source,
        )


def failure(event: Event) -> bool:
    """Whether it tells that something went wrong."""
    return bool(event.error) or event.type == "error_event"


def _ended(fault: Fault | None, events: tuple[Event, ...]) -> Ended:
    if fault is not None:
        return "timeout" if _LATE.search(fault.category) else "error"
    if events and failure(events[-1]):
        return "timeout" if _LATE.search(events[-1].code) else "error"
    return "partial"


def _by_time(events: tuple[Event, ...]) -> tuple[Event, ...]:
    times = accumulate(events, lambda at, one: at if one.at is None else one.at, initial=0.0)
    timed = sorted(zip(islice(times, 1, None), events, strict=True), key=lambda one: one[0])
    return tuple(event for _, event in timed)


def _named(kept: list[tuple[int, Event]]) -> Iterable[Event]:
    """The events, each with an id of its own; one behind a gap says how many are left out there."""
    taken: set[str] = set()
    copies: Counter[str] = Counter()
    before = 0
    for place, event in kept:
        id = own = event.id or f"e{place}"
        while id in taken:
            copies[own] += 1
            id = f"{own}~{copies[own] + 1}"
        taken.add(id)
        gap = place - before - 1
        meta = {**event.meta, "left_out": gap} if gap else event.meta
        yield event if id == event.id and not gap else replace(event, id=id, meta=meta)
        before = place


def held(event: Event, most: int) -> Event:
    """The event as it waits: clean where it is large, since most of a long trace is left out."""
    texts = (event.type, event.content, event.agent, event.tool, event.call, event.error)
    size, many = sum(map(len, texts)) + len(event.id) + len(event.code), False
    if event.arguments or event.meta:
        data = repr((event.arguments, event.meta))
        size, many = size + len(data), data.count("{") + data.count("[") > DEEPEST
    return clean(event, most) if many or size > most else event


def clean(event: Event, most: int) -> Event:
    """The event without secrets, its texts of at most so many characters."""
    return Event(
        _name(event.type),
        short(event.content, most),
        _name(event.agent),
        _name(event.tool),
        _data(event.arguments, most),
        opaque(event.call),
        short(event.error, most),
        opaque(event.id),
        _name(event.code),
        event.at,
        _meta(event.meta, most) if event.meta else {},
    )


@lru_cache(1_000)
def _name(text: str) -> str:
    return short(text, LONGEST_NAME)


def opaque(id: str) -> str:
    """An id as it is; one that is very long or holds a secret by its digest."""
    if _PLAIN.fullmatch(id):
        return id
    if len(id) <= LONGEST_NAME and redact(id) == id:
        return id
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _data(value: Mapping[str, Any] | str | None, most: int) -> Mapping[str, Any] | str | None:
    """Arguments; data that is too long or too deep as its text."""
    if value is None or isinstance(value, str):
        return value and short(value, most)
    text = json.dumps(value, ensure_ascii=False)
    return redact_data(value) if _small(value, text, most) else short(text, most)


def _meta(value: Mapping[str, Any], most: int) -> Mapping[str, Any]:
    """What its writer told beside; so little of what is too long that it is no longer too long."""
    text = json.dumps(value, ensure_ascii=False)
    return redact_data(value) if _small(value, text, most) else {"cut": short(text, most // 4)}


def _small(value: Any, text: str, most: int) -> bool:
    many = text.count("{") + text.count("[") > DEEPEST
    return len(text) <= most and not (many and deep(value, DEEPEST))


def deep(value: Any, room: int) -> bool:
    """Whether data is nested more than so many levels deep."""
    inner = value.values() if isinstance(value, Mapping) else value
    return isinstance(value, Mapping | list) and (
        room == 0 or any(deep(one, room - 1) for one in inner)
    )


def short(text: str, most: int) -> str:
    """The text without secrets, cut in its middle where it is longer than `most`, at least 100.

    >>> short("x" * 1_000, 100)
    'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…[940 characters left out]…xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'
    """
    if len(text) <= most:
        return redact(text)
    half = (most - MARK) // 2
    seen = half + 2 * BEYOND
    if len(text) <= 2 * seen:
        text = redact(text)
        if len(text) <= most:
            return text
        head, tail = text[:half], text[-half:]
    else:
        head = redact(text[:seen])[:-BEYOND][:half]
        tail = redact(text[-seen:])[BEYOND:][-half:]
    return f"{head}…[{len(text) - len(head) - len(tail)} characters left out]…{tail}"
