"""Whether an agent repeats a step: the same call with the same result, time and again. Pure."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.errors import InvalidInput
from heedful.loop.feedback import clean
from heedful.memory.episode import Event

ANSWERS = frozenset({"tool_response", "error_event"})
# These bring nothing new from outside: what the agents said, and what came of their own steps.
NO_NEWS = ANSWERS | {"llm_call", "llm_response"}
# The most steps that a circle has.
LONGEST_CIRCLE = 4


@dataclass(frozen=True, slots=True)
class RepeatedStep:
    """One step made several times running; `str()` says so in words.

    `calls` are the positions of the calls among the events, from 0, `results` those of the results.
    """

    tool: str
    calls: tuple[int, ...]
    results: tuple[int, ...]

    @property
    def times(self) -> int:
        """How often the step was made."""
        return len(self.calls)

    def __str__(self) -> str:
        tool = clean(self.tool, 80) or "a tool without a name"
        return f"{tool}: the same arguments and the same result {self.times} times running"


def repeated_step(
    events: Sequence[Event], times: int = 5, polls: Collection[str] = ()
) -> RepeatedStep | None:
    """The first step that was made at least `times` (2 or more) times running, or None.

    A step is a tool call with its result. Steps are equal where agent, tool, arguments and result
    are: arguments as JSON values where they are JSON, else as text, results exactly; a call without
    a recorded result equals none. Between them may stand what the agents said. Anything else is a
    reason to ask again, and the count begins anew: another step, a message of the user, an event of
    the system. Tools named in `polls` are never reported; their calls are other steps, too.

    Ask after each step; the time is linear in the number of events. Raises InvalidInput.

    >>> step = [Event("tool_call", tool="look"), Event("tool_response", "nothing")]
    >>> str(repeated_step(5 * step))
    'look: the same arguments and the same result 5 times running'
    """
    if not isinstance(times, int) or times < 2:
        raise InvalidInput("times", times, "an integer of at least 2")
    if isinstance(polls, str):
        raise InvalidInput("polls", polls, "a collection of tool names, such as a list")
    results = answered(events)
    run: list[int] = []
    for index, event in enumerate(events):
        if event.type in NO_NEWS:
            continue
        if run and index in results and _equal(events, results, run[-1], index):
            run.append(index)
        elif len(run) >= times:
            break
        else:
            run = [index] if index in results and event.tool not in polls else []
    if len(run) < times:
        return None
    return RepeatedStep(events[run[0]].tool, tuple(run), tuple(results[call] for call in run))


def circle(events: Sequence[Event], times: int) -> tuple[tuple[int, ...], int]:
    """The calls of the first circle of steps that was gone round `times`, and of how many steps.

    A circle has 2 to 4 steps, not all equal; what is equal, and where the count begins anew, is as
    in `repeated_step`. Empty and 0 without one; linear in the number of events.
    """
    results = answered(events)
    calls: list[int] = []
    keys: list[tuple[str, ...]] = []
    same = dict.fromkeys(range(2, LONGEST_CIRCLE + 1), 0)
    for at, event in enumerate(events):
        if event.type in NO_NEWS:
            continue
        if at not in results:  # news, or a call whose result is not known
            calls, keys, same = [], [], dict.fromkeys(same, 0)
            continue
        result = events[results[at]]
        calls.append(at)
        keys.append((event.agent, event.tool, _arguments(event), result.content, result.error))
        for size in same:
            again = len(keys) > size and keys[-1] == keys[-1 - size]
            same[size] = same[size] + 1 if again else 0
            if same[size] == size * (times - 1) and len(set(keys[-size:])) > 1:
                return tuple(calls[-size * times :]), size
    return (), 0


def answered(events: Sequence[Event]) -> dict[int, int]:
    """Call -> its result, as positions: by the id that they share, else in order.

    In order: to the oldest open call, of that tool where it is named. Only calls with nothing else
    between them wait together; an older one has lost its result. An error is the result until there
    is a response.
    """
    found: dict[int, int] = {}
    responded: set[int] = set()
    waiting: dict[str | tuple[int, str], deque[int]] = {}
    batch, ended = 0, False
    for index, event in enumerate(events):
        if event.type == "tool_call":
            batch, ended = batch + ended, False
            for tool in {event.tool, ""}:  # "" for an answer that names no tool
                waiting.setdefault((batch, tool), deque()).append(index)
            if event.call:
                waiting[event.call] = deque([index])
            continue
        ended = True
        if event.type in ANSWERS:
            calls = waiting.get(event.call or (batch, event.tool), ())
            while calls and calls[0] in responded:
                calls.popleft()
            if calls:
                found[calls[0]] = index
                if event.type == "tool_response":
                    responded.add(calls[0])
    return found


def _equal(events: Sequence[Event], results: Mapping[int, int], a: int, b: int) -> bool:
    one, other, before, after = events[a], events[b], events[results[a]], events[results[b]]
    return (
        (one.tool, one.agent) == (other.tool, other.agent)
        and (before.content, before.error) == (after.content, after.error)
        and _arguments(one) == _arguments(other)
    )


def _arguments(call: Event) -> str:
    """The same text for equal JSON values; what is no JSON stands for itself."""
    given = call.content if call.arguments is None else call.arguments
    try:
        value = json.loads(given) if isinstance(given, str) else given
        return _JSON.encode(value)
    except (ValueError, TypeError, RecursionError):
        return given if isinstance(given, str) else repr(given)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else repr(value)


_JSON = json.JSONEncoder(sort_keys=True, default=_plain)
