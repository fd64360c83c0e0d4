"""The course of an episode: who acted, what came back, what failed, and which values came up. Pure.

A trace may say what an event is by its type, or be a bare chat in which one message holds code and
the next what running it printed. Both are read into the same roles, from type and content alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from heedful.memory.episode import Episode, Event
from heedful.memory.repeats import ANSWERS, answered

# What is read of one event: its two ends, in characters, and so many values of it.
HEAD, TAIL = 6_000, 2_000
MOST_VALUES = 200
# Whole numbers up to here are in every text: that two texts share one says nothing. On recorded
# chats of agents the step of 0.43 that attribution finds rises to 0.46 without them.
SMALL = 10

Role = Literal["given", "act", "result", "said"]
# What the agent did not say: who asks, and what surrounds it.
GIVEN = frozenset({"user_message", "system_event", "llm_call", "summary"})
# What no program printed, even where it begins like that. Agents hand output on as the user's word.
TOLD = GIVEN - {"user_message"} | {"llm_response"}

_RESULT = re.compile(
    r"\s*(?:exit ?(?:code|status)\b|Traceback \(most recent call last\)|(?:\w+ )?output:"
    r"|std(?:out|err):)",
    re.IGNORECASE,
)
_REPORTED = re.compile(
    r"\W*I(?: have|'ve)?(?: just| now)? (?:clicked|typed|scrolled|opened|visited|searched|navigated"
    r"|downloaded|ran|executed|called|entered|selected|hovered|pressed|submitted|fetched|queried"
    r"|filled)\b",
    re.IGNORECASE,
)
# The name of an exception says so where a line begins with it: in the midst of one it is mostly
# code, or a page that was read. A field "error" that holds nothing says that all is well.
_FAILED = re.compile(
    r"(?i:exit ?(?:code|status))[: ]{0,2}(?!0\b)-?\d|Traceback \(most recent call last\)"
    r"|^\W{0,9}(?:[\w.]{0,80}\.|Uncaught |Exception in thread [^\n]{0,80}|(?:\w{1,40} )?output: ?)?"
    r"(?:[A-Z]\w{0,60})?(?:Error|Exception)\b(?!\w)"
    r"|(?i:\b(?:execution failed|timed out)\b"
    r"|^\W{0,9}(?:error|fatal|failed)\b"
    r"(?!\W{0,5}[:=]\s?(?:null|none|false|0|\"\"|\[\]|\{\})(?![\w.]))"
    r"|^\W{0,9}(?:\d{1,5} validation errors?"
    r"|(?:unknown|unrecogni[sz]ed|no such) (?:tool|command))\b"
    r"|: (?:command not found|no such file or directory)$"
    r"|\"(?:status|type)\": ?\"error\"|\"(?:success|ok)\": ?false\b)",
    re.MULTILINE,
)
_STATUS = re.compile(
    r"^(?:exit ?(?:code|status)\W{0,2}-?\d+[^\n]{0,80}|(?:\w{1,40} )?output:[ \t]*)",
    re.IGNORECASE | re.MULTILINE,
)
_LISTED = re.compile(
    r"^[ \t]*(?:[#*]+[ \t]*)?(?:step[ \t]*)?\d{1,3}[.):](?!\d)|\bstep \d+",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]{0,24}(?:\.\d{1,12})?")
# A name is of two words or more, or in bold: a single capital letter stands for anything.
_NAME = re.compile(
    r"(?<![.!?:#*\-] )(?<!^)\b[A-Z][\w'’-]{1,40}(?: [A-Z][\w'’-]{1,40}){1,5}", re.MULTILINE
)
_BOLD = re.compile(r"\*\*([^*\n]{1,60})\*\*")


@dataclass(frozen=True, slots=True)
class Course:
    """An episode as it is read: all sequences are by position among its events.

    `roles` say what each event is, `result` the position of what came of an act (its own where it
    tells of both), `act` that of the act a result came of, `failure` the text of a failure or "".
    `values` are the numbers and names an event holds that the task does not. `answer` is where the
    last word of an agent is that holds any: what they leave as their answer.
    """

    events: tuple[Event, ...]
    roles: tuple[Role, ...]
    result: tuple[int | None, ...]
    act: tuple[int | None, ...]
    failure: tuple[str, ...]
    values: tuple[frozenset[str], ...]
    answer: int | None
    tools: tuple[str, ...]
    outcome: str

    def origins(self) -> dict[str, int]:
        """Value -> the first event it came up in; where that is a result, the act it came of."""
        first: dict[str, int] = {}
        for at, held in enumerate(self.values):
            act = self.act[at]
            for value in held:
                first.setdefault(value, at if act is None else act)
        return first


def course(episode: Episode) -> Course:
    """How an episode went; linear in the number of events, of which the ends are read."""
    events = episode.events
    given = read(f"{episode.task}\n{episode.goal}")
    texts = [read(text_of(event)) for event in events]
    roles = tuple(map(_role, events, texts, [given.strip()] * len(events)))
    result, act = _paired(events, roles, texts)
    told, asked = values(given), given.lower()
    held = tuple(_new(values(text) - told, asked) for text in texts)
    said = (at for at in reversed(range(len(events))) if roles[at] in ("said", "act"))
    return Course(
        events,
        roles,
        result,
        act,
        tuple(map(_failure, events, roles, texts)),
        held,
        next((at for at in said if held[at]), None),
        episode.tools,
        episode.outcome,
    )


def read(text: str) -> str:
    """What is read of a text: its two ends."""
    return text if len(text) <= HEAD + TAIL else f"{text[:HEAD]}\n{text[-TAIL:]}"


def text_of(event: Event) -> str:
    """All that an event says, its arguments and its error with it."""
    given = "" if event.arguments is None else str(event.arguments)
    return "\n".join(part for part in (event.content, given, event.error) if part)


def values(text: str) -> frozenset[str]:
    """The numbers and names in a text, one form each; small whole numbers and list marks are none.

    >>> sorted(values("1. It sold for $5,200,000 in Mission Bay, 3 times."))
    ['5200000', 'mission bay']
    """
    found: list[str] = []
    for one in _values(_LISTED.sub("", text)):
        found.append(one)
        if len(found) == MOST_VALUES:
            break
    return frozenset(found)


def _values(text: str) -> Iterator[str]:
    for match in _NUMBER.finditer(text):
        number = match[0].replace(",", "")
        if "." in number:
            number = number.rstrip("0").removesuffix(".")
        if "." in number or len(number) > 2 or int(number) > SMALL:
            yield number
    for match in (*_NAME.finditer(text), *_BOLD.finditer(text)):
        if name := match[match.lastindex or 0].strip(" .:,'’").lower():
            yield name


def _new(found: frozenset[str], asked: str) -> frozenset[str]:
    """Without the names that are words of the task, however they are written."""
    return frozenset(one for one in found if one[0].isdigit() or one not in asked)


def _role(event: Event, text: str, task: str) -> Role:
    if event.type in ANSWERS:
        return "result"
    if event.type == "tool_call":
        return "act"
    if event.type not in TOLD and _RESULT.match(text):
        return "result"
    if event.type in GIVEN or (task and text.strip() == task):
        return "given"
    return "act" if "```" in text or _REPORTED.match(text) else "said"


def _paired(
    events: Sequence[Event], roles: Sequence[Role], texts: Sequence[str]
) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """Of acts their results, of results their acts: by the call they share, else the last act."""
    result: list[int | None] = [None] * len(events)
    act: list[int | None] = [None] * len(events)
    for call, answer in answered(events).items():
        result[call], act[answer] = answer, call
    last: int | None = None
    for at, role in enumerate(roles):
        if role == "act" and events[at].type != "tool_call":
            last = at
            if _REPORTED.match(texts[at]):
                result[at] = at
        elif role == "result" and act[at] is None and last is not None:
            act[at] = last
            result[last] = at if result[last] is None else result[last]
    return tuple(result), tuple(act)


def _failure(event: Event, role: Role, text: str) -> str:
    if role != "result":
        return event.error
    if event.error or event.type == "error_event":
        return event.error or event.content or event.code or "error"
    return text if _FAILED.search(text) else ""


def printed(text: str) -> str:
    """What a result holds beside its status."""
    return _STATUS.sub("", text).strip()
