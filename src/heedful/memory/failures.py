"""Signals that failing calls leave: first cause, kind of failure, retries, repetition. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from itertools import islice
from typing import Any

from heedful.lessons.signature import signature
from heedful.memory.course import Course, printed, read
from heedful.memory.repeats import circle, repeated_step
from heedful.memory.signal import Kind, Signal, shown, signal

# So many equal steps running are a repetition; at 5, where a loop is stopped, it is certain.
TIMES, CERTAIN = 3, 5
# The share of words (of code, lines) that a call has in common with one that it tries again.
SAME = 1 / 4
# Or how near its values are, letter by letter: what `difflib` calls a close match. Values longer
# than this have words enough.
CLOSE, LONGEST_VALUE = 0.6, 40
# So many calls are named that came between two equal ones.
MOST_BETWEEN = 3

_ERROR = re.compile(
    r"[a-z]error\b|exception\b|\berror\b|\bfail|\btime[d ]{0,2}-?out", re.IGNORECASE
)
_WORD = re.compile(r"\w+")
_ENTITY = re.compile(r"'([^'\n]{3,120})'|\"([^\"\n]{3,120})\"|((?:[\w.-]{0,60}/){1,9}[\w.-]{2,80})")
_KINDS: tuple[tuple[Kind, re.Pattern[str], str], ...] = (
    (
        "timeout",
        re.compile(
            r"\btime[d ]{0,2}-?out\b(?!\s?=)|deadline exceeded|exit ?code:? 124\b", re.IGNORECASE
        ),
        "the call ran out of time",
    ),
    (
        "unknown_tool",
        re.compile(
            r"(?:unknown|no such|unrecogni[sz]ed|unsupported) (?:tool|function|command)\b"
            r"|\b(?:tool|function|command)\b[^\n]{0,60}(?:not (?:found|available|registered)|does"
            r" not exist)|is not a (?:valid|known) (?:tool|function)|command not found",
            re.IGNORECASE,
        ),
        "there is no such tool",
    ),
    (
        "argument",
        re.compile(
            r"(?:missing|invalid|unexpected|unknown|required|bad|malformed)[^\n]{0,40}"
            r"\b(?:argument|parameter|param|field|property|input|keyword|value)s?\b"
            r"|\b(?:argument|parameter|param|field|property|input)s?\b[^\n]{0,60}"
            r"(?:missing|invalid|required|not allowed|expected)|validation ?error"
            r"|does not match the schema",
            re.IGNORECASE,
        ),
        "the call had an argument missing or wrong",
    ),
)


def failed(course: Course) -> Iterator[Signal]:
    """What the failures of an episode tell."""
    yield from _causes(course)
    yield from _named(course)
    yield from _not_offered(course)
    yield from _retries(course)
    yield from _repeated(course)


def blamed(course: Course, at: int) -> int:
    """Of a result the act it came of; any other event itself."""
    act = course.act[at]
    return at if act is None else act


def told(failure: str) -> str:
    """The line of a failure that names it: what ends its last traceback, else what says "error"."""
    _, trace, last = f"\n{printed(failure) or failure}".rpartition("\nTraceback (")
    lines = [line.rstrip() for line in last.splitlines() if line.strip()]
    if trace:
        return next((line for line in lines[1:] if not line[0].isspace()), lines[0])[:400]
    return next(filter(_ERROR.search, lines), lines[0] if lines else "error").strip()[:400]


def _causes(course: Course) -> Iterator[Signal]:
    """Failures of one signature, or about one thing, are one: the first is the cause."""
    groups: list[list[int]] = []
    known: dict[str, int] = {}
    for at, failure in enumerate(course.failure):
        if failure:
            line = told(failure)
            entities = (next(filter(None, match.groups())) for match in _ENTITY.finditer(line))
            keys = [signature("", line).digest, *(f"'{one}'" for one in islice(entities, 5))]
            group = next((known[key] for key in keys if key in known), len(groups))
            if group == len(groups):
                groups.append([])
            groups[group].append(at)
            known.update((key, group) for key in keys if key not in known)
    for group_of in groups:
        first, *later = group_of
        words = f"fails first here: {shown(told(course.failure[first]))}"
        if later:
            words += f"; {len(later)} later failures are of the same kind"
        strength = len(group_of) / (len(group_of) + 1)
        yield signal(course, "cause", blamed(course, first), group_of, strength, words)


def _named(course: Course) -> Iterator[Signal]:
    for at, failure in enumerate(course.failure):
        line = told(failure) if failure else ""  # no pattern is in the empty text
        for kind, pattern, words in _KINDS:
            if pattern.search(line):
                words = f"{words}: {shown(line)}"
                yield signal(course, kind, blamed(course, at), (at,), 0.8, words)
                break


def _not_offered(course: Course) -> Iterator[Signal]:
    """Calls of tools that the agent was not offered, the first of each."""
    seen = set(course.tools)
    for at, event in enumerate(course.events):
        if course.tools and event.type == "tool_call" and event.tool and event.tool not in seen:
            seen.add(event.tool)
            words = f"calls {shown(event.tool)}, which is not among the tools that were offered"
            yield signal(course, "unknown_tool", at, (at,), 1.0, words)


def _retries(course: Course) -> Iterator[Signal]:
    """A call that failed and worked when it was made again, and what changed in between."""
    open_calls: dict[tuple[str, str], int] = {}
    for at, role in enumerate(course.roles):
        result = course.result[at]
        if role != "act" or result is None:
            continue
        failure = course.failure[at] or course.failure[result]
        event = course.events[at]
        key = (event.agent if event.tool else "", event.tool)
        before = open_calls.get(key)
        if failure:
            open_calls[key] = at
        elif before is not None and (changed := _changed(course, before, at)):
            del open_calls[key]
            between = _between(course, before, at) if changed == "nothing" else []
            tools = ", ".join(dict.fromkeys(shown(course.events[one].tool) for one in between))
            other = f" and {tools} in between" if tools else ""
            words = f"works after a call that failed{other}; what changed: {changed}"
            yield signal(course, "retry", at, (before, *between, at), 0.9, words)


def _between(course: Course, before: int, at: int) -> list[int]:
    """The last calls of other tools between two: what may have made the second one work."""
    tool, events = course.events[at].tool, course.events
    others = (one for one in reversed(range(before + 1, at)) if events[one].tool not in ("", tool))
    return list(islice((one for one in others if course.roles[one] == "act"), MOST_BETWEEN))[::-1]


def _changed(course: Course, before: int, at: int) -> str:
    """What is different in a second try of a call; "" where it is another call."""
    one, other = (_given(course, which) for which in (before, at))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        values = [" ".join(map(str, each.values())) for each in (one, other)]
        old, new = (set(_WORD.findall(each)) for each in values)
        return _keys(one, other) if _alike(old, new) or _close(*values) else ""
    first, second = (dict.fromkeys(_lines(str(each))) for each in (one, other))
    if not _alike(set(first), set(second)):
        return ""
    gone = next((line for line in first if line not in second), "")
    added = next((line for line in second if line not in first), "")
    return f"{shown(gone)!r} became {shown(added)!r}" if added or gone else "nothing"


def _given(course: Course, at: int) -> Mapping[str, Any] | str:
    """The arguments of a call, those in JSON as what they are; of code, the text it is in."""
    event = course.events[at]
    given = event.content if event.arguments is None else event.arguments
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        value = given
    return value if isinstance(value, Mapping) else read(str(given))


def _alike(old: set[str], new: set[str]) -> bool:
    return old == new or len(old & new) >= SAME * len(old | new)


def _close(old: str, new: str) -> bool:
    """Whether short values differ by a few letters, by their order or by their case."""
    old, new = old.lower(), new.lower()
    short = max(len(old), len(new)) <= LONGEST_VALUE
    return short and SequenceMatcher(None, old, new).ratio() >= CLOSE


def _lines(text: str) -> list[str]:
    """The lines of a text; of one with code blocks, those in them."""
    text = "\n".join(text.split("```")[1::2]) or text
    return [line.strip() for line in text.splitlines() if line.strip()]


def _keys(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    missing = object()
    changed = (key for key in {**one, **other} if one.get(key, missing) != other.get(key, missing))
    told_of = (
        f"{shown(str(key))}: {shown(repr(one.get(key, 'absent')))} became"
        f" {shown(repr(other.get(key, 'absent')))}"
        for key in changed
    )
    return "; ".join(islice(told_of, 5)) or "nothing"


def _repeated(course: Course) -> Iterator[Signal]:
    """The first step that was made again and again, and the first circle that was gone round."""
    found = repeated_step(course.events, TIMES)
    if found is not None:
        strength = min(1.0, found.times / CERTAIN)
        yield signal(course, "repeated", found.calls[1], found.calls, strength, str(found))
    calls, size = circle(course.events, TIMES)
    if calls:
        tools = ", ".join(shown(course.events[at].tool) for at in calls[:size])
        words = f"{tools}: the same {size} steps with the same results {TIMES} times running"
        yield signal(course, "repeated", calls[size], calls, TIMES / CERTAIN, words)
