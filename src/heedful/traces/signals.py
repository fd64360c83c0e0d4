"""Signals: the mistakes that a finished run shows, found without a model. Pure.

Only the structure of the trace is used: which calls failed, which were repeated or
retried, and where the values in the answer first appeared. No step is named as the
cause of the failure: on recorded failures no rule of this kind beats a constant answer
(`make quality ONLY=whowhen`).
"""

import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from itertools import chain, islice
from typing import Any, Literal

from heedful.lessons.action import command_of
from heedful.lessons.signature import signature
from heedful.lessons.trust import (
    MIN_QUOTATION_WORDS,
    NETWORK_SOURCE,
    find_quotations,
    quotations,
    sources_of,
)
from heedful.lessons.words import count_common
from heedful.sanitize import clean
from heedful.traces.episode import (
    MODEL_WORD_EVENTS,
    TIMEOUT_CODE_PATTERN,
    Episode,
    Event,
    call_arguments,
    failure,
    json_data,
    json_default,
)
from heedful.validation import check_integer, require

Role = Literal["given", "act", "result", "said"]
Kind = Literal["answer", "cause", "repeated", "retry", "timeout", "unknown_tool"]
# What a rule yields: the decisive event, the events that prove it, the strength, a
# description.
Found = tuple[int, Sequence[int], float, str]
RESULT_EVENTS = frozenset({"tool_response", "error_event"})
# Not said by the agent: the task, the prompts, the system around the agent.
SURROUNDING_EVENTS = frozenset({"user_message", "system_event", "llm_call", "summary"})
# A longer message holds more than its author typed, as does one of several lines. Of
# what people wrote to coding agents, 81 % has one line of at most 300 characters.
MAX_TYPED_CHARS = 300
# Events without news from outside: words of agents, and results of their steps.
NO_NEWS_EVENTS = RESULT_EVENTS | {"llm_call", "llm_response"}

MAX_RETRY_DISTANCE_CALLS = (
    20  # calls of a tool after a failed call that may be its retry
)
MAX_WHOLE_ARGUMENT_CHARS = (
    180  # characters of two arguments from which only the parts that differ are shown
)
# characters of a text that are used, at its two ends
TEXT_HEAD_CHARS = 6_000
TEXT_TAIL_CHARS = 2_000
MAX_EVIDENCE_EVENTS = 20  # events that prove one signal

# A result of a call that failed, if its event does not say so: the text begins with an
# error, or holds an exit status, a traceback or a flag in JSON. On the 24,951 recorded
# tool results that it was chosen on (agent_sessions, dev) it finds 81 % of the failures
# at 0.1 % false positives; a list of error phrases finds 82 % at 0.4 % there.
_FAILURE_PATTERN = re.compile(
    r"(?m)\A\W{0,9}(?:[\w.]{0,80}(?:Error|Exception)|(?i:error|fatal|failed))\b"
    r"(?!\.\w|['\"](?! *:))(?!\W{0,5}[:=]\s?(?i:null|none|false|0|\"\"|\[\]|\{\})(?![\w.]))"
    r"|^(?i:exit ?(?:code|status))[: ]{0,2}(?!0\b)-?\d"
    r"|^\W?[\w ]{1,40} (?i:exit ?(?:code|status)) (?!0\b)-?\d+\W{0,2}$"
    r"|^Traceback \(most recent call last\)"
    r"|\"exit_?code\": ?(?!0\b)-?\d|\A\{(?:.{0,400}, ?)?\"status\": ?\"?[45]\d\d\b"
    r"|\"(?:status|type)\": ?\"error\"|\"(?:success|ok)\": ?false\b"
)
_EXIT_STATUS_PATTERN = re.compile(
    r"(?m)^(?:(?i:exit ?(?:code|status))\W{0,2}-?\d+[^\n]{0,80}"
    r"|\W?[\w ]{1,40} (?i:exit ?(?:code|status)) -?\d+\W{0,2}$)"
)
# A line that names an error. Best is one with the type or code of the error, then one
# that begins with a word for an error and says what is missing or forbidden.
_ERROR_CODE_PATTERN = re.compile(
    r"[a-z](?:Error|Exception)\b[^:\s]{0,40}: *\S|(?i:error)[ \[][A-Z]{1,8}\d{1,6}\]?: \S"
)
_ERROR_WORD_PATTERN = re.compile(
    r"\b(?:\w*error|\w*exception|fatal|panic|fail(?:ed|ure)?): *\S", re.IGNORECASE
)
_ERROR_REASON_PATTERN = re.compile(
    r"\b(?:not|no|can't|cannot|unable|missing|undefined|unknown|denied|declined|refused|rejected)\b",
    re.IGNORECASE,
)
_ERROR_PLACE_PATTERN = re.compile(
    r"\.\w{1,6}:\d+(?::\d+)?: (?!warning|note|info)\S", re.IGNORECASE
)
_PROGRAM_LABEL_PATTERN = re.compile(r"\A[a-z][\w.+-]{0,20}: \S")
_ERROR_MENTION_PATTERN = re.compile(
    r"(?i)[a-z]error\b|exception\b|\berror\b|\bfail|\btime[d ]{0,2}-?out"
)
# the shapes of an error line in what a command wrote, the most telling first
_ERROR_LINE_PATTERNS = (
    re.compile(
        r"(?i)(?:error|exception|fail(?:ed|ure)?|fatal|panic)\b[^:\n]{0,40}: *\S"
    ),
    _PROGRAM_LABEL_PATTERN,
    re.compile(r"\A[\w./\\~@+-]{1,200}(?::\d+|\(\d+)(?:[:,]\d+)?\)?: \S"),
    re.compile(r"\A(?:/[\w./+-]{1,80}|[A-Z]|[\w.]{1,60}(?:Error|Exception)): \S"),
    re.compile(r"\bERR\b|\bHTTP/[\d.]+ [45]\d\d\b|\bstatus\"?[ :=]{1,2}\"?[45]\d\d\b"),
    _ERROR_MENTION_PATTERN,
)
# What tools write before a line: marks, and the time in a log.
_LINE_MARK_PATTERN = re.compile(r"\A\s*(?:(?:E|>|\||\*|●|✗|✕)\s+)+|\A\s+")
_LOG_TIME_PATTERN = re.compile(
    r"\A\[?\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?\]?\s+"
)
_BANNER_PATTERN = re.compile(r"\s*([=_*#~!-])\1{2,}.*\1\s*\Z")
# error lines of one text, and characters of a line
MAX_ERROR_LINES = 200
MAX_ERROR_LINE_CHARS = 1_000
MAX_SHORT_TEXT_LINES = 40  # in a text with fewer lines, every line may be the error
MAX_QUOTED_LINE_CHARS = 200  # a longer line is worse than one that can be quoted whole
# What stands before a message: marks, the time and number of a step, a letter in a
# margin; and ids.
_MARGIN_PATTERN = re.compile(
    r"\A(?:#\d+\s|\d+\.\d+\s|[A-Z]\s{2,}|[>|│╰╭├└─×✖✗!*#^…]+\s*|\s+)+"
)
_LONG_ID_PATTERN = re.compile(r"\(?\b[0-9a-f]{24,}\b\)?")
_CALL_WORD_PATTERN = re.compile(r"[^\W\d_]+")
_ENTITY_PATTERN = re.compile(
    r"'([^'\n]{3,120})'|\"([^\"\n]{3,120})\"|((?:[\w.-]{0,60}/){1,9}[\w.-]{2,80})"
)
COMMAND_PIECE_PATTERN = re.compile(r"[^\s\"'\\]{3,}")  # of a command
_LIST_MARK_PATTERN = re.compile(
    r"^[ \t]*(?:[#*]+[ \t]*)?\d{1,3}[.):](?!\d)", re.MULTILINE
)
NUMBER_PATTERN = re.compile(r"(?<![\w.])\d[\d,]{0,24}(?:\.\d{1,12})?")
# a name has two words or more; a single capital letter may mean anything
_CAPITALISED_NAME_PATTERN = re.compile(
    r"(?<![.!?:#*\-] )(?<!^)\b[A-Z][\w'’-]{1,40}(?: [A-Z][\w'’-]{1,40}){1,5}",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """An episode with what was found in it. Every sequence has one entry for each
    event.

    `roles` say what each event is. `result` is the position of a call's result, and
    `act` the position of the call that a result belongs to. `failure` is the text of a
    failure or "". `values` are the numbers and names that the event contains and the
    task does not. `answer` is the position of the agent's last text or call with such a
    value, or None.
    """

    episode: Episode
    events: tuple[Event, ...]
    roles: tuple[Role, ...]
    result: tuple[int | None, ...]
    act: tuple[int | None, ...]
    failure: tuple[str, ...]
    values: tuple[frozenset[str], ...]
    answer: int | None

    def step_of(self, at: int) -> int:
        """Return the position of the call that this event belongs to, or else `at`."""
        act = self.act[at]
        return at if act is None else act


def call_failed(run: Course, call: int) -> bool:
    """Return True if a call or its result is a failure."""
    result = run.result[call]
    return bool(run.failure[call] or (result is not None and run.failure[result]))


def course(episode: Episode) -> Course:
    """Analyse an episode in linear time; 8,000 characters of each event are used."""
    events = episode.events
    task = ends(f"{episode.task}\n{episode.goal}")
    texts = [ends(event_text(event)) for event in events]
    roles: list[Role] = []
    for event, text in zip(events, texts, strict=True):
        asked = event.type in SURROUNDING_EVENTS or (
            task.strip() and text.strip() == task.strip()
        )
        answers: Role = (
            "result" if event.type in RESULT_EVENTS else "given" if asked else "said"
        )
        roles.append("act" if event.type == "tool_call" else answers)
    result: list[int | None] = [None] * len(events)
    act: list[int | None] = [None] * len(events)
    for call, answer in answered(events).items():
        result[call] = answer
        act[answer] = call
    known = values(task)
    lower = task.lower()
    held = (values(text) - known for text in texts)
    new = tuple(
        frozenset(v for v in vs if v[0].isdigit() or v not in lower) for vs in held
    )
    failures = tuple(map(_failure_text, events, roles, texts))
    spoken = (at for at in reversed(range(len(events))) if roles[at] in ("said", "act"))
    last = next((at for at in spoken if new[at]), None)
    return Course(
        episode=episode,
        events=events,
        roles=tuple(roles),
        result=tuple(result),
        act=tuple(act),
        failure=failures,
        values=new,
        answer=last,
    )


def ends(text: str) -> str:
    """Return a text without its middle if it is longer than 8,000 characters."""
    return (
        text
        if len(text) <= TEXT_HEAD_CHARS + TEXT_TAIL_CHARS
        else f"{text[:TEXT_HEAD_CHARS]}\n{text[-TEXT_TAIL_CHARS:]}"
    )


def event_text(event: Event) -> str:
    """Return content, arguments and error of an event as one text."""
    arguments = "" if event.arguments is None else str(event.arguments)
    return "\n".join(part for part in (event.content, arguments, event.error) if part)


def values(text: str) -> frozenset[str]:
    """Return the numbers and names in a text, normalized, without small numbers and
    list marks.

    >>> sorted(values("1. It sold for $5,200,000 in Mission Bay, 3 times."))
    ['5200000', 'mission bay']
    """
    text = _LIST_MARK_PATTERN.sub("", text)
    numbers = (match[0].replace(",", "") for match in NUMBER_PATTERN.finditer(text))
    plain = (n.rstrip("0").removesuffix(".") if "." in n else n for n in numbers)
    large = (
        n for n in plain if "." in n or len(n) > 2 or int(n) > 10
    )  # every text has 1 to 10
    names = (
        match[0].strip(" .:,'’").lower()
        for match in _CAPITALISED_NAME_PATTERN.finditer(text)
    )
    return frozenset(islice(chain(large, names), 200))


def _failure_text(event: Event, role: Role, text: str) -> str:
    if role != "result":
        return event.error
    if failure(event):
        said = next(
            filter(output, (event.error, event.content)), ""
        )  # more than an exit status
        return said or event.error or event.content or event.code or "error"
    return text if _FAILURE_PATTERN.search(text) else ""


def output(text: str) -> str:
    """Return a tool's result without its exit status: of JSON, the texts that have a
    blank.
    """
    held: list[Any] = [json_data(text)] if text[:1] == "{" else []
    said = dict[str, None]()
    while held:
        part = held.pop()
        if isinstance(part, str) and " " in part.strip():
            said[part] = None
        elif isinstance(part, Mapping | list):
            held += reversed([*part.values()] if isinstance(part, Mapping) else part)
    return _EXIT_STATUS_PATTERN.sub("", "\n".join(said) or text).strip()


def error_line(failure: str) -> str:
    """Return the line that names a failure: the last line of a traceback, or an error
    line.
    """
    lines, at = _find_error(failure)
    return lines[at].strip()[:400]


def error_lines(lines: Iterable[str], others: bool = True) -> list[str]:
    """Return the error lines of a text, the most telling first; of a short text, then
    the `others`.

    Lines that differ only in digits count once. Of more than `MAX_ERROR_LINES` error lines, the
    first and the last ones are returned. Takes one pass, and memory for `MAX_ERROR_LINES` lines.

    >>> error_lines(["Traceback (most recent call last):", "  f()", "KeyError: 'a'", "done"])[0]
    "KeyError: 'a'"
    """
    ranks: list[dict[str, str]] = [{} for _ in range(len(_ERROR_LINE_PATTERNS) + 1)]
    start = list[str]()
    trace = False
    for raw in lines:
        if raw.lstrip().startswith("Traceback ("):
            trace = True
        elif (line := without_margin(raw)) and not _BANNER_PATTERN.match(line):
            inside = raw[0].isspace()
            shapes = (
                n
                for n, shape in enumerate(_ERROR_LINE_PATTERNS, 1)
                if shape.search(line)
            )
            rank = 0 if trace and not inside else next(shapes, None)
            trace = trace and inside
            start += [line] if len(start) <= MAX_SHORT_TEXT_LINES else []
            if rank is not None:
                found = ranks[rank]
                found.setdefault(re.sub(r"\d+", "0", line), line)
                if (
                    len(found) > MAX_ERROR_LINES
                ):  # the first half stays, of the other half the oldest goes
                    del found[list(found)[MAX_ERROR_LINES // 2]]
    lines = [line for found in ranks for line in found.values()][:MAX_ERROR_LINES]
    if 0 < len(start) <= MAX_SHORT_TEXT_LINES:
        lines = [
            without_margin(error_line("\n".join(start))),
            *lines,
            *(start if others else ()),
        ]
    return list(dict.fromkeys(filter(None, lines)))


def without_margin(line: str) -> str:
    """Return a line without the marks and the time that tools write before it."""
    return _LOG_TIME_PATTERN.sub(
        "", _LINE_MARK_PATTERN.sub("", line[:MAX_ERROR_LINE_CHARS])
    ).rstrip()


def error_text(failure: str) -> str:
    """Return the words that name a failure, without margins and long ids.

    If its line gives no reason, the line before it may; a line that ends with a colon
    has more.
    """
    lines, at = _find_error(failure)
    end = at + 1 + lines[at].endswith(":")
    if not (
        _ERROR_CODE_PATTERN.search(lines[at]) or _ERROR_REASON_PATTERN.search(lines[at])
    ) and _ERROR_REASON_PATTERN.search(lines[at - 1]):
        at -= at > 0 and len(lines[at - 1]) + len(lines[at]) < MAX_QUOTED_LINE_CHARS
    text = _LONG_ID_PATTERN.sub("…", " ".join(lines[at:end]))
    text = clean(_MARGIN_PATTERN.sub("", text) or text, MAX_QUOTED_LINE_CHARS)
    return (text[1:-1] if f"{text[:1]}{text[-1:]}" == "[]" else text).rstrip(".")


def _find_error(failure: str) -> tuple[list[str], int]:
    """Return the lines of a failure, and the place of the one that names it."""
    _, trace, last = f"\n{output(failure) or failure}".rpartition("\nTraceback (")
    lines = [line.rstrip() for line in last.splitlines() if line.strip()] or ["error"]
    if trace:
        at = next((n for n, line in enumerate(lines) if n and not line[0].isspace()), 0)
        return lines[at:], 0
    return lines, min(range(len(lines)), key=lambda n: _rank(lines[n], n == 0))


def _rank(line: str, first: bool) -> int:
    """Return how well a line names an error; 0 is best."""
    patterns = (
        _ERROR_CODE_PATTERN,
        _ERROR_WORD_PATTERN,
        _ERROR_PLACE_PATTERN,
        _ERROR_REASON_PATTERN,
        _ERROR_MENTION_PATTERN,
    )
    coded, stated, placed, why, worded = (pattern.search(line) for pattern in patterns)
    signs = (
        coded,
        stated and why,
        stated,
        placed,
        first and _PROGRAM_LABEL_PATTERN.match(line),
        why,
        worded,
    )
    best = next((rank for rank, sign in enumerate(signs) if sign), len(signs))
    return best + 2 * (len(line) > MAX_QUOTED_LINE_CHARS or line.endswith("..."))


def answered(events: Sequence[Event]) -> dict[int, int]:
    """Map the position of each call to the position of its result.

    A result belongs to the call with the same id. Without an id, it belongs to the
    oldest open call of its tool, or of any tool if it names none. Only calls in a row,
    without other events between them, are open together. An error is the result only
    until a response follows.
    """
    results: dict[int, int] = {}
    responded: set[int] = set()
    waiting: dict[str | tuple[int, str], deque[int]] = {}
    batch = 0
    ended = False
    for index, event in enumerate(events):
        if event.type == "tool_call":
            batch = batch + ended
            ended = False
            for tool in {event.tool, ""}:  # "" for an answer that names no tool
                waiting.setdefault((batch, tool), deque()).append(index)
            if event.call:
                waiting[event.call] = deque([index])
            continue
        ended = True
        if event.type in RESULT_EVENTS:
            calls = waiting.get(event.call or (batch, event.tool), ())
            while calls and calls[0] in responded:
                calls.popleft()
            if calls:
                results[calls[0]] = index
                if event.type == "tool_response":
                    responded.add(calls[0])
    return results


@dataclass(frozen=True, slots=True)
class Signal:
    """A sign of a mistake in an episode; `str()` describes it.

    `at` is the position of the decisive event, from 0, and `id` the id of this event or
    "". `evidence` holds the positions of the events that prove the sign, at most 20,
    and `evidence_ids` their ids. `strength` is 0..1: how reliable the sign is, not how
    bad the mistake was.
    """

    kind: Kind
    at: int
    _: KW_ONLY
    evidence: tuple[int, ...]
    strength: float
    words: str
    id: str = ""
    evidence_ids: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"event {self.id or self.at}: {self.words}"


def repeated_step(
    events: Sequence[Event], times: int = 5, polls: Collection[str] = ()
) -> Signal | None:
    """Return a signal of the first step made at least `times` (2 or more) times in a
    row, or None.

    A step is a tool call with its result; two steps are equal if agent, tool, arguments
    (as JSON) and result are equal. Agents may talk in between. Anything else restarts
    the count: another step, a user message, a system event. Tools in `polls` are never
    reported. The evidence is the first 20 calls; the words say how many there are.
    Raises InvalidInput.

    >>> step = [Event("tool_call", tool="look"), Event("tool_response", "nothing")]
    >>> str(repeated_step(5 * step))
    'event 2: look: the same arguments and the same result 5 times in a row'
    """
    check_integer("times", times, least=2)
    require(
        not isinstance(polls, str),
        "polls",
        polls,
        "a collection of tool names, such as a list",
    )
    results = answered(events)
    run: list[int] = []
    key: tuple[str, ...] = ()
    for index, event in enumerate(events):
        if event.type in NO_NEWS_EVENTS:
            continue
        before = key
        key = ()
        result = results.get(index)
        if result is not None:
            got = events[result]
            arguments = canonical_json(call_arguments(event))
            key = event.agent, event.tool, arguments, got.content, got.error
        if run and key and key == before:
            run.append(index)
        elif len(run) >= times:
            break
        else:
            run = [index] if key and event.tool not in polls else []
    if len(run) < times:
        return None
    tool = clean(events[run[0]].tool, 80) or "a tool without a name"
    words = f"{tool}: the same arguments and the same result {len(run)} times in a row"
    # Certain at 5 times, where a loop is stopped if nobody says otherwise.
    return _signal(events, "repeated", (run[1], run, min(1.0, len(run) / 5), words))


def canonical_json(value: Any) -> str:
    """Return JSON that is the same for equal data: keys are sorted, and 1.0 is 1."""

    def number(digits: str) -> float | int:
        return int(float(digits)) if float(digits).is_integer() else float(digits)

    try:
        text = json.dumps(value, sort_keys=True, default=json_default)
        data = json.loads(text, parse_float=number) if "." in text else None
        return text if data is None else json.dumps(data, sort_keys=True)
    except (ValueError, TypeError, RecursionError):
        return json.dumps(repr(value))


def signals(episode: Episode) -> tuple[Signal, ...]:
    """Return the signals of an episode in the order of their decisive events.

    Takes linear time. Of each event 8,000 characters are used.

    >>> calls = Event("tool_call", tool="read"), Event("tool_response", "Error: no such file")
    >>> [str(signal) for signal in signals(Episode(calls))]
    ['event 0: fails first here: Error: no such file']
    """
    return signals_of(course(episode))


def signals_of(run: Course) -> tuple[Signal, ...]:
    """Return the signals of an episode from its `course`."""
    found = [
        _signal(run.events, kind, one)
        for kind, rule in SIGNAL_RULES.items()
        for one in rule(run)
    ]
    return tuple(sorted(found, key=lambda signal: (signal.at, signal.kind)))


def _signal(events: Sequence[Event], kind: Kind, found: Found) -> Signal:
    at, evidence, strength, words = found
    kept = tuple(evidence[:MAX_EVIDENCE_EVENTS])
    ids = tuple(events[place].id for place in kept)
    return Signal(
        kind,
        at,
        evidence=kept,
        strength=strength,
        words=words,
        id=events[at].id,
        evidence_ids=ids,
    )


def quote(text: str) -> str:
    """Return a text on one line, cut to 120 characters, without control characters."""
    return clean(text, 120)


def _causes(run: Course) -> Iterator[Found]:
    """Group failures by signature, quoted name or path; yield the first failure of each
    group.
    """
    groups: list[list[int]] = []
    known: dict[str, list[int]] = {}
    for at, text in enumerate(run.failure):
        if text:
            line = error_line(text)
            entities = (
                next(filter(None, match.groups()))
                for match in _ENTITY_PATTERN.finditer(line)
            )
            keys = [
                signature("", line).digest,
                *(f"'{name}'" for name in islice(entities, 5)),
            ]
            group = next((known[key] for key in keys if key in known), None)
            if group is None:
                groups.append(group := [])
            group.append(at)
            for key in keys:
                known.setdefault(key, group)
    for places in groups:
        first, *later = places
        words = f"fails first here: {quote(error_line(run.failure[first]))}"
        words += f"; {len(later)} later failures are of the same kind" if later else ""
        yield run.step_of(first), places, len(places) / (len(places) + 1), words


def _timeouts(run: Course) -> Iterator[Found]:
    """Yield failures with the error code or exception name of a time-out."""
    for at, text in enumerate(run.failure):
        line = error_line(text) if text else ""
        name = line.partition(":")[0]
        if line and TIMEOUT_CODE_PATTERN.search(
            run.events[at].code or (name if " " not in name else "")
        ):
            yield (
                run.step_of(at),
                (at,),
                0.8,
                f"the call ran out of time: {quote(line)}",
            )


def _not_offered(run: Course) -> Iterator[Found]:
    """Yield the first call of each tool that was not offered to the agent."""
    known = {*run.episode.tools}
    for at, event in enumerate(run.events if known else ()):
        if event.type == "tool_call" and event.tool and event.tool not in known:
            known.add(event.tool)
            words = (
                f"calls {quote(event.tool)}, which is not among the tools that were "
                "offered"
            )
            yield at, (at,), 1.0, words


def _retries(run: Course) -> Iterator[Found]:
    """Yield calls that worked after the same tool had failed, with what changed in
    between.

    Of the next `MAX_RETRY_DISTANCE_CALLS` calls of the tool, the one that is most like the failed call
    counts.
    """
    calls: dict[tuple[str, str], list[int]] = {}
    for at, role in enumerate(run.roles):
        if role == "act" and run.result[at] is not None:
            event = run.events[at]
            calls.setdefault(
                (event.agent if event.tool else "", event.tool), []
            ).append(at)
    for places in calls.values():
        mended = set[int]()
        said = {at: " ".join(named_arguments(run.events[at]).values()) for at in places}
        for n, first in enumerate(places):
            if first in mended or not call_failed(run, first):
                continue
            later = places[n + 1 : n + 1 + MAX_RETRY_DISTANCE_CALLS]
            good = [at for at in later if not call_failed(run, at)]
            worked = {at: likeness(said[first], said[at]) for at in good}
            at = max(worked, key=lambda at: worked[at], default=first)
            if not worked.get(at):
                continue
            again = (n for n in later if n < at and call_failed(run, n))
            tries = [first, *(n for n in again if likeness(said[n], said[at]))]
            mended.update(tries)
            yield _retry(run, tries, at)


def _retry(run: Course, tries: Sequence[int], at: int) -> Found:
    changes = differences(run.events[tries[0]], run.events[at])
    became = (
        f"{quote(n)}: {quote(a or '')!r} became {quote(b or '')!r}"
        for n, a, b in changes
    )
    changed = "; ".join(became) or "nothing"
    # Other steps in between may have made the last try work.
    acts = [n for n in range(tries[0] + 1, at) if run.roles[n] == "act"]
    others = [n for n in acts if not call_failed(run, n) and run.events[n].tool]
    between = others[-3:] if changed == "nothing" or len(others) < 4 else []
    tools = ", ".join(dict.fromkeys(quote(run.events[n].tool) for n in between))
    other = f" and {tools} in between" if tools else ""
    words = f"works after a call that failed{other}; what changed: {changed}"
    return at, (*tries, *between, at), 0.9, words


def differences(old: Event, new: Event) -> list[tuple[str, str | None, str | None]]:
    """Return the arguments of two calls that differ: name, old value, new value; None
    is absent.
    """
    was = named_arguments(old)
    now = named_arguments(new)
    names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    return [(name, *_differing(was.get(name), now.get(name))) for name in names]


def _differing(was: str | None, now: str | None) -> tuple[str | None, str | None]:
    """Return two texts; of long ones the parts that differ, with a word around them."""
    if not was or not now or max(len(was), len(now)) <= MAX_WHOLE_ARGUMENT_CHARS:
        return was, now
    one = was.split(" ")
    other = now.split(" ")
    first = max(0, count_common(one, other) - 1)
    same = max(0, count_common(one[first:][::-1], other[first:][::-1]) - 1)
    left = "… " if first else ""
    right = " …" if same else ""
    parts = (" ".join(each[first : len(each) - same]) for each in (one, other))
    old, new = (f"{left}{part}{right}" for part in parts)
    return old, new


def named_arguments(event: Event) -> dict[str, str]:
    """Return the arguments of a call as texts; one without a name has the name "".

    Data become JSON. Ends of lines and tabs are visible, as in JSON.
    """
    value = call_arguments(event) if event.type == "tool_call" else {}
    if not isinstance(value, Mapping):
        text = ends(str(event.content if event.arguments is None else event.arguments))
        value = {"": text} if text.strip() else {}
    texts = {
        str(name): v
        if isinstance(v, str)
        else json.dumps(v, ensure_ascii=False, default=str)
        for name, v in value.items()
    }
    return {
        n: v.strip().replace("\n", "\\n").replace("\t", "\\t") for n, v in texts.items()
    }


def only_text(event: Event) -> str:
    """Return the argument of a call that has one, a text; else ""."""
    value = call_arguments(event)
    named = named_arguments(event)
    raw = next(iter(value.values()), "") if isinstance(value, Mapping) else ""
    return (
        next(iter(named.values())) if len(named) == 1 and isinstance(raw, str) else ""
    )


def likeness(one: str, other: str) -> float:
    """Return the share of equal words (in short calls also similar ones), 0 if below a
    half.
    """
    words, others = (
        set(_CALL_WORD_PATTERN.findall(text.lower())) for text in (one, other)
    )
    lost = words - others
    new = others - words
    near = (
        sum(bool(get_close_matches(word, new, 1)) for word in lost)
        if len(lost) < 4
        else 0
    )
    share = (len(words & others) + near) / max(1, len(words | others) - near)
    return 1.0 if one == other else share if share >= 0.5 else 0.0


def _repeated(run: Course) -> Iterator[Found]:
    if step := repeated_step(run.events, 3):
        yield step.at, step.evidence, step.strength, step.words


def _answer(run: Course) -> Iterator[Found]:
    """Yield the steps where the values of a wrong answer first appeared."""
    last = run.answer
    if last is None or run.episode.outcome not in ("failure", "partial"):
        return
    origin: dict[str, int] = {}
    for at in reversed(range(len(run.events))):
        origin.update(dict.fromkeys(run.values[at], run.step_of(at)))
    by_step: dict[int, list[str]] = {}
    for value in sorted(run.values[last]):
        by_step.setdefault(origin[value], []).append(value)
    name = "run" if run.episode.outcome == "partial" else "failed run"
    for at, held in sorted(by_step.items()):
        listed = ", ".join(map(quote, held[:3]))
        listed += f" and {len(held) - 3} more" if len(held) > 3 else ""
        words = f"values in the answer of the {name} first appeared here: {listed}"
        yield at, (at, last), 1.0, words


SIGNAL_RULES: Mapping[Kind, Callable[[Course], Iterator[Found]]] = {
    "answer": _answer,
    "cause": _causes,
    "repeated": _repeated,
    "retry": _retries,
    "timeout": _timeouts,
    "unknown_tool": _not_offered,
}


def sources_at(run: Course, at: int) -> frozenset[str]:
    """Return the sources of an event: the user, the programs and tools, or the network.

    The words of a model have none. The event after a gap also has those of the omitted
    events.
    """
    event = run.events[at]
    call = run.act[at]
    if event.origin == "external" or (
        run.episode.omitted and at == len(run.events) // 2
    ):
        return frozenset({NETWORK_SOURCE})
    if event.origin:
        call = at if event.type == "tool_call" else call
    elif event.type not in RESULT_EVENTS:
        whose = "user" if event.type in SURROUNDING_EVENTS else NETWORK_SOURCE
        return frozenset() if event.type in MODEL_WORD_EVENTS else frozenset({whose})
    tool = event.tool or (run.events[call].tool if call is not None else "")
    given = given_to(run.events[call]) if call is not None else ""
    rest = given.values() if isinstance(given, Mapping) else ()
    return sources_of(tool, command_of(given), [s for s in rest if isinstance(s, str)])


def find_quoted(run: Course, texts: Iterable[str]) -> dict[str, int]:
    """Map each text that quotes what was `pasted` to the position of the first such
    prompt.
    """
    held = pasted(run)
    found = find_quotations(texts, (text for _, text in held))
    return {text: held[place][0] for text, place in found.items()}


def quoted_sources(run: Course, texts: Iterable[str]) -> dict[str, dict[str, int]]:
    """Map each text that quotes results of tools to their sources, with their first
    positions.
    """
    at = [n for n, role in enumerate(run.roles) if role == "result"]
    found = quotations(
        texts, ((event_text(run.events[n]), sources_at(run, n)) for n in at)
    )
    return {
        text: {s: at[place] for s, place in of.items()} for text, of in found.items()
    }


def pasted(run: Course) -> list[tuple[int, str]]:
    """Return the prompts that hold more than a typed line, with their positions.

    Nobody knows who wrote the rest, so trust in the user does not cover it. A prompt is
    the task or the goal (position -1), or a message of a user or of the system around
    the agent.
    """
    held = [(-1, run.episode.task), (-1, run.episode.goal)]
    held += [
        (at, event.content)
        for at, event in enumerate(run.events)
        if event.type in SURROUNDING_EVENTS
    ]
    return [
        (at, text)
        for at, text in held
        if len(text) > MAX_TYPED_CHARS or "\n" in text.strip()
    ]


def words_of(run: Course, places: Iterable[int]) -> list[str]:
    """Return what an agent says at `places`: arguments, longer texts, new words of
    later calls.
    """
    events = [run.events[at] for at in sorted(set(places))]
    said = [event.content for event in events if event.type == "llm_response"]
    calls = [
        [*named_arguments(each).values()] for each in events if each.type == "tool_call"
    ]
    pieces = [COMMAND_PIECE_PATTERN.findall(" ".join(given)) for given in calls]
    new = (word for later in pieces[1:] for word in later if word not in pieces[0])
    return [
        *(text for text in said if len(text.split()) >= MIN_QUOTATION_WORDS),
        *chain(*calls),
        *new,
    ]


def given_to(call: Event) -> Mapping[str, Any] | str:
    """Return the arguments of a call, as data if they are an object, else as text."""
    given = call_arguments(call)
    return given if isinstance(given, Mapping | str) else json.dumps(given, default=str)
