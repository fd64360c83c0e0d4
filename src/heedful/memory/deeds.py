"""What an agent did against what it was expected to do: calls of tools, with arguments. Pure."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import islice
from typing import Any

from heedful.loop.record import Finding, Level
from heedful.memory.course import Course
from heedful.memory.episode import Event
from heedful.memory.judgement import MOST_TOLD, Judgement, found, named, quoted
from heedful.memory.signal import shown

MOST_KEYS = 5


def calls(seen: Course) -> list[int]:
    """Where tools were called."""
    return [at for at, event in enumerate(seen.events) if event.type == "tool_call"]


def went_wrong(seen: Course, call: int) -> bool:
    """Whether a call failed, by itself or by what came of it."""
    result = seen.result[call]
    return bool(seen.failure[call] or (result is not None and seen.failure[result]))


def arguments(call: Event) -> Any:
    """The arguments of a call as data where they are JSON, whole floats as integers, else text.

    None where there are none: then, of an expected call, any will do.
    """
    given = call.content or None if call.arguments is None else call.arguments
    try:
        text = given if isinstance(given, str) else json.dumps(given, default=_plain)
        return json.loads(text, parse_float=_whole)
    except (ValueError, TypeError, RecursionError):
        return given if isinstance(given, str) else repr(given)


def canonical(call: Event) -> str | None:
    """The same text for equal arguments; None where there are none."""
    given = arguments(call)
    return None if given is None else json.dumps(given, sort_keys=True)


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "keys") else repr(value)


def _whole(digits: str) -> float | int:
    value = float(digits)
    return int(value) if value.is_integer() else value


def matched(seen: Course, actions: Sequence[Event]) -> list[int | None]:
    """For each expected call where it was made, each place once; None where it was not.

    One that failed was not made. Those that name their arguments choose first.
    """
    exact: dict[Hashable, deque[int]] = {}
    for at in calls(seen):
        if not went_wrong(seen, at):
            event = seen.events[at]
            exact.setdefault((event.tool, canonical(event)), deque()).append(at)
    keys = [(one.tool, canonical(one)) for one in actions]
    places = [exact[key].popleft() if key[1] and exact.get(key) else None for key in keys]
    rest: dict[str, deque[int]] = {}
    for at in sorted(at for left in exact.values() for at in left):
        rest.setdefault(seen.events[at].tool, deque()).append(at)
    for n, (tool, given) in enumerate(keys):
        if given is None and rest.get(tool):
            places[n] = rest[tool].popleft()
    return places


def done(
    seen: Course, actions: Sequence[Event], ordered: bool, reads: Collection[str], omitted: int
) -> Iterator[Judgement]:
    """How correct what was done is, and how much of what was expected was done.

    What is missing may be among the events that were left out: then neither can be told.
    """
    places = matched(seen, actions)
    missing = [one for one, at in zip(actions, places, strict=True) if at is None]
    told = [_correct(seen, actions, places, ordered, reads)]
    if actions:
        unread = [one for one in missing if one.tool in reads]
        told.append(_complete(seen, places, unread))
    for one in told:
        if omitted and missing:
            one = Judgement(one.score, None, f"{one.why}; {omitted} events were left out")
        yield one


def _correct(
    seen: Course,
    actions: Sequence[Event],
    places: Sequence[int | None],
    ordered: bool,
    reads: Collection[str],
) -> Judgement:
    """What was done over what was done or expected (Jaccard 1901): 1 only where both are the same.

    Calls that only read, and calls that failed, change nothing and do not count.
    """
    wanted = [(one, at) for one, at in zip(actions, places, strict=True) if one.tool not in reads]
    made = [at for _, at in wanted if at is not None]
    missing = [one for one, at in wanted if at is None]
    changed = [
        at for at in calls(seen) if seen.events[at].tool not in reads and not went_wrong(seen, at)
    ]
    extra = sorted(set(changed).difference(made))
    findings = list(islice(_astray(seen, missing, extra), MOST_TOLD))
    why = f"{len(made)} of {len(wanted)} expected actions were done, and {len(extra)} others"
    right = len(made)
    if ordered and (right := _in_order(made)) < len(made):
        what = f"{len(made) - right} of {len(made)} actions were done out of the order expected"
        findings.append(found(seen, "correctness", what, made, "error"))
        why += f"; {right} in the order expected"
    either = len(wanted) + len(changed) - right
    score = right / either if either else 1.0
    why += " (without those that only read)" if reads else ""
    return Judgement("correctness", score, why, tuple(findings), named(seen, sorted(made)))


def _complete(seen: Course, places: Sequence[int | None], unread: Sequence[Event]) -> Judgement:
    made = sorted(at for at in places if at is not None)
    why = f"{len(made)} of {len(places)} expected calls were made"
    lacking = [_lacking(seen, one, "completeness", "warning") for one in unread[:MOST_TOLD]]
    share = len(made) / len(places)
    return Judgement("completeness", share, why, tuple(lacking), named(seen, made))


def _astray(seen: Course, missing: Sequence[Event], extra: Sequence[int]) -> Iterator[Finding]:
    """What was not done, or done with other arguments, and what was done beside it."""
    other: dict[str, deque[int]] = {}
    for at in extra:
        other.setdefault(seen.events[at].tool, deque()).append(at)
    for one in missing:
        places = other.get(one.tool)
        if places:
            at = places.popleft()
            what = f"{shown(one.tool)} was called with other arguments than expected: "
            what += _differing(one, seen.events[at])
            yield found(seen, "correctness", what, (at,), "error")
        else:
            yield _lacking(seen, one, "correctness", "error")
    for at in sorted(at for places in other.values() for at in places):
        event = seen.events[at]
        what = f"{shown(event.tool)} was called and not expected: {_told(event, 'no arguments')}"
        yield found(seen, "correctness", what, (at,), "error")


def _lacking(seen: Course, one: Event, score: str, level: Level) -> Finding:
    what = f"{shown(one.tool)} was expected and not called: {_told(one, 'any arguments')}"
    return found(seen, score, what, (), level)


def _told(call: Event, without: str) -> str:
    return quoted(canonical(call) or without)


def _differing(one: Event, other: Event) -> str:
    wanted, given = arguments(one), arguments(other)
    if not isinstance(wanted, dict) or not isinstance(given, dict):
        return quoted(canonical(other) or "none")
    lost = object()
    keys = {**wanted, **given}
    differ = [shown(key) for key in keys if wanted.get(key, lost) != given.get(key, lost)]
    return ", ".join(differ[:MOST_KEYS])


def _in_order(places: Sequence[int]) -> int:
    """The length of the longest rising subsequence, by the least end of each length (Fredman 1975).

    Of equal calls the first that was made is taken for the first that was expected.
    """
    ends: list[int] = []
    for at in places:
        n = bisect_left(ends, at)
        ends[n : n + 1] = [at]
    return len(ends)
