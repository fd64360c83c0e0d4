"""The course of an episode: what each event is, and what failed. Pure.

`course` reads an episode once: what each event is, which result belongs to which call,
what failed, and which values are new. All that looks for mistakes or fixes in a run
reads its course.
"""

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal

from heedful.episodes.episode import (
    Episode,
    Event,
    call_arguments,
    failure,
)
from heedful.episodes.error_lines import output

Role = Literal["given", "act", "result", "said"]
RESULT_EVENTS = frozenset({"tool_response", "error_event"})
# Not said by the agent: the task, the prompts, the system around the agent.
SURROUNDING_EVENTS = frozenset({"user_message", "system_event", "llm_call", "summary"})
# The characters of a text that are used, at its two ends.
TEXT_HEAD_CHARS = 6_000
TEXT_TAIL_CHARS = 2_000
MAX_EVENT_VALUES = 200
# The result of a call that failed, if its event does not say so. On the 24,951 recorded
# tool results that it was chosen on (agent_sessions, dev) it finds 81 % of the failures
# at 0.1 % false positives; a list of error phrases finds 82 % at 0.4 % there.
_FAILURE_PATTERN = re.compile(
    # The text begins with an error, as "KeyError: 'a'" or "fatal: no such branch" do,
    r"(?m)\A\W{0,9}(?:[\w.]{0,80}(?:Error|Exception)|(?i:error|fatal|failed))\b"
    # but not with the name of a file or a key, as in "error.log",
    r"(?!\.\w|['\"](?! *:))"
    # nor with the report that there is none, as in "error: null" or "Failed: 0".
    r"(?!\W{0,5}[:=]\s?(?i:null|none|false|0|\"\"|\[\]|\{\})(?![\w.]))"
    # A line holds an exit status other than 0: "exit code 2", "Command exit status 1".
    r"|^\[?(?i:exit ?(?:code|status))[: ]{0,2}(?!0\b)-?\d"
    r"|^\$\? ?= ?(?!0\b)\d{1,3}$"
    r"|^\W?[\w ]{1,40} (?i:exit ?(?:code|status)) (?!0\b)-?\d+\W{0,2}$"
    # The last line holds it alone: "exit: 81"; or the first, as "HTTP/1.1 428" does.
    r"|^\W?(?:exit|rc)[:= ]{1,2}(?!0\b)-?\d{1,3}\W{0,2}\Z"
    r"|\AHTTP(?:/[\d.]+)? [45]\d\d\b"
    # A line says what was refused, or which program is missing.
    r"|^denied: \S|^(?:[\w./-]+: )*(?:line \d+: )?command not found: \S"
    r"|^(?:[\w./-]+: )+(?:line \d+: )?\S+: (?:command )?not found$"
    # The text begins by saying what failed: "craft failed: no table".
    r"|\A[\w.-]{1,40}(?: [\w.-]{1,40})? failed: (?!0\b)\S"
    # The whole text says that time ran out: "Query timed out after 30 seconds".
    r"|\A(?:[\w'-]{1,20} ){0,4}(?i:timed out|time-?out(?= after))"
    r"(?: after \d[\d.]{0,9} ?[a-z]{1,9})?\.?\s*\Z"
    # A line begins a traceback.
    r"|^Traceback \(most recent call last\)"
    # A flag in JSON, such as {"exit_code": 1}, {"status": 404} or {"ok": false}.
    r"|\"exit_?code\": ?(?!0\b)-?\d|\A\{(?:.{0,400}, ?)?\"status\": ?\"?[45]\d\d\b"
    r"|\A\{\s*\"error_(?:code|message|type)\": ?(?!null|0\b|\"\")"
    r"|\"(?:status|type)\": ?\"error\"|\"(?:success|ok)\": ?false\b"
)
# The names of statuses of HTTP: errors of a server, and of a request.
SERVER_ERROR_NAMES = (
    "internal server error",
    "bad gateway",
    "service unavailable",
    "gateway timeout",
)
CLIENT_ERROR_NAMES = (
    "bad request",
    "unauthorized",
    "payment required",
    "forbidden",
    "not found",
    "method not allowed",
    "not acceptable",
    "request timeout",
    "conflict",
    "gone",
    "precondition failed",
    "unsupported media type",
    "unprocessable entity",
    "unprocessable content",
    "locked",
    "precondition required",
    "too many requests",
)
# A last line that is only a status in brackets, as "[1]" is.
_STATUS_LINE_PATTERN = re.compile(r"(?:\A|\n)\[(\d{1,3})\]\s*\Z")
# A call that was not run or not finished because a person did not want it. What begins
# with such words says nothing about the tool.
_REFUSED_BY_PERSON_PATTERN = re.compile(
    r"\A.{0,200}?\b(?:"
    r"(?:reject|declin|deni|refus|cancel|abort|interrupt|stopp|not approv|not allow)"
    r"\w* by (?:the |a )?(?:human |\w+ )?(?:user|human|person|reviewer|operator)\b"
    r"|user (?:doesn't|does not|didn't|did not) (?:want|wish|allow|approve|accept)\b"
    r"|user (?:has )?(?:rejected|declined|refused|cancell?ed|aborted|interrupted)\b)",
    re.IGNORECASE | re.DOTALL,
)
# The words of a status beside its name: "exit code 1", "HTTP/1.1 404", "error 500".
_STATUS_WORD_PATTERN = re.compile(
    r"\b(?:http(?:/[\d.]+)?|exit(?:ed)?|with|code|status|command|process|error|failed"
    r"|returned|sqlstate|\w*\d\w*)\b|[^\w\s]"
)
# A status in another language: "Fehler 12", but not "KeyError: 7".
_WORD_AND_NUMBER_PATTERN = re.compile(r"\W*[^\W\d_]+[ :=#]{1,2}-?\d{1,5}\W*")
# The number of an entry in a list or of a heading: "3." or "## 12)" at a line's start.
_LIST_MARK_PATTERN = re.compile(
    r"^[ \t]*(?:[#*]+[ \t]*)?\d{1,3}[.):](?!\d)", re.MULTILINE
)
# A number with or without separators and decimals: 12, 5,200,000 or 3.75.
NUMBER_PATTERN = re.compile(r"(?<![\w.])\d[\d,]{0,24}(?:\.\d{1,12})?")
# A name inside a sentence: "Mission Bay". It has two words or more, because a single
# capital letter may mean anything.
_CAPITALISED_NAME_PATTERN = re.compile(
    r"(?<![.!?:#*\-] )(?<!^)\b[A-Z][\w'’-]{1,40}(?: [A-Z][\w'’-]{1,40}){1,5}",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """An episode with what was found in it; each sequence has one entry for each event.

    `roles` say what each event is. `result` is the position of a call's result, and
    `act` the position of the call that a result belongs to. `failure` is the text of a
    failure or "". `refused` are the positions of the calls that a person did not let
    run; these neither failed nor worked. `values` are the numbers and names that the
    event contains and the task does not. `answer` is the position of the agent's last
    text or call with such a value, or None.
    """

    episode: Episode
    events: tuple[Event, ...]
    roles: tuple[Role, ...]
    result: tuple[int | None, ...]
    act: tuple[int | None, ...]
    failure: tuple[str, ...]
    refused: frozenset[int]
    values: tuple[frozenset[str], ...]
    answer: int | None

    def step_of(self, position: int) -> int:
        """Return the position of the call that an event belongs to, else its own."""
        call = self.act[position]
        return position if call is None else call


def call_failed(run: Course, call: int) -> bool:
    """Return True if the call at a position or its result is a failure."""
    if run.failure[call]:
        return True
    result = run.result[call]
    return result is not None and run.failure[result] != ""


def call_worked(run: Course, call: int) -> bool:
    """Return True if the call at a position has a result, and is not a failure.

    A call that a person did not let run did not work, either.
    """
    if run.result[call] is None or call in run.refused:
        return False
    return not call_failed(run, call)


def course(episode: Episode) -> Course:
    """Analyse an episode in linear time; 8,000 characters of each event are used."""
    events = episode.events
    texts = [ends(event_text(event)) for event in events]
    task = ends(f"{episode.task}\n{episode.goal}")
    prompt = task.strip()
    roles = [
        _role_of(event, text, prompt) for event, text in zip(events, texts, strict=True)
    ]

    results: list[int | None] = [None] * len(events)
    calls: list[int | None] = [None] * len(events)
    for call, result in answered(events).items():
        results[call] = result
        calls[result] = call

    task_values = values(task)
    task_in_lower_case = task.lower()
    new_values: list[frozenset[str]] = []
    answer: int | None = None

    for position, text in enumerate(texts):
        others = _without_task(values(text) - task_values, task_in_lower_case)
        new_values.append(others)
        if others and roles[position] in ("said", "act"):
            answer = position

    refused = frozenset(
        call
        for call, result in enumerate(results)
        if result is not None and _REFUSED_BY_PERSON_PATTERN.match(texts[result])
    )
    failures = list(map(_failure_text, events, roles, texts))
    for result in _find_status_failures(events, texts, results):
        failures[result] = failures[result] or texts[result]
    for call in refused:
        failures[call] = ""
        failures[results[call] or call] = ""

    return Course(
        episode=episode,
        events=events,
        roles=tuple(roles),
        result=tuple(results),
        act=tuple(calls),
        failure=tuple(failures),
        refused=refused,
        values=tuple(new_values),
        answer=answer,
    )


def _role_of(event: Event, text: str, task: str) -> Role:
    """Return what an event is in its run; a text that repeats the task is given."""
    if event.type == "tool_call":
        return "act"
    if event.type in RESULT_EVENTS:
        return "result"
    if event.type in SURROUNDING_EVENTS:
        return "given"

    repeats_task = task != "" and text.strip() == task
    return "given" if repeats_task else "said"


def _without_task(new: frozenset[str], task: str) -> frozenset[str]:
    """Return the values without the names that the task, in lower case, contains."""
    return frozenset(value for value in new if value[0].isdigit() or value not in task)


def ends(text: str) -> str:
    """Return a text without its middle if it is longer than 8,000 characters."""
    if len(text) <= TEXT_HEAD_CHARS + TEXT_TAIL_CHARS:
        return text
    return f"{text[:TEXT_HEAD_CHARS]}\n{text[-TEXT_TAIL_CHARS:]}"


def event_text(event: Event) -> str:
    """Return content, arguments and error of an event as one text."""
    arguments = "" if event.arguments is None else str(event.arguments)
    return "\n".join(part for part in (event.content, arguments, event.error) if part)


def values(text: str) -> frozenset[str]:
    """Return the numbers and names in a text, without small numbers and list marks.

    >>> sorted(values("1. It sold for $5,200,000 in Mission Bay, 3 times."))
    ['5200000', 'mission bay']
    """
    text = _LIST_MARK_PATTERN.sub("", text)
    return frozenset(islice(chain(_numbers(text), _names(text)), MAX_EVENT_VALUES))


def _numbers(text: str) -> Iterator[str]:
    """Yield the numbers in a text, except whole ones up to 10: every text has those."""
    for match in NUMBER_PATTERN.finditer(text):
        number = match[0].replace(",", "")
        if "." in number:
            number = number.rstrip("0").removesuffix(".")

        if "." in number or len(number) > 2 or int(number) > 10:
            yield number


def _names(text: str) -> Iterator[str]:
    """Yield the capitalised names in a text, in lower case."""
    for match in _CAPITALISED_NAME_PATTERN.finditer(text):
        yield match[0].strip(" .:,'’").lower()


def _failure_text(event: Event, role: Role, text: str) -> str:
    """Return the text of the failure that an event reports, "" if it reports none.

    `text` is what `event_text` returns, cut. If a result is marked as a failure,
    the error or the content counts, whichever says more than an exit status.
    """
    if role != "result":
        return event.error
    if not failure(event) and not _is_failure_code(event.code):
        return text if _FAILURE_PATTERN.search(text) else ""

    for words in (event.error, event.content):
        if output(words) and not _is_bare_status(words):
            return words
    return event.error or event.content or event.code or "error"


def _find_status_failures(
    events: Sequence[Event], texts: Sequence[str], results: Sequence[int | None]
) -> Iterator[int]:
    """Yield the results whose last line is a status, such as "[1]", other than 0.

    That the tool writes a status is known from another result that ends with "[0]": a
    list of numbers may end like this, too.
    """
    statuses: dict[str, dict[int, int]] = {}
    for call, result in enumerate(results):
        if result is None:
            continue
        match = _STATUS_LINE_PATTERN.search(texts[result])
        if match is not None:
            of_tool = statuses.setdefault(events[call].tool, {})
            of_tool[result] = int(match[1])

    for of_tool in statuses.values():
        if 0 in of_tool.values():
            yield from (result for result, status in of_tool.items() if status)


def _is_failure_code(code: str) -> bool:
    """Return whether a code is an exit status or a status of HTTP that means failure.

    >>> [_is_failure_code(code) for code in ("0", "1", "200", "404", "OK")]
    [False, True, False, True, False]
    """
    return code.isdecimal() and (0 < int(code) < 100 or 400 <= int(code) < 600)


def says_more(event: Event) -> bool:
    """Return whether a result says more than a status."""
    texts = (event.error, event.content)
    return any(output(text) and not _is_bare_status(text) for text in texts)


def _is_bare_status(text: str) -> bool:
    """Return whether a text is only the number or the name of a status, or both.

    >>> [_is_bare_status(text) for text in ("exit 1", "400 Bad Request", "429: slow")]
    [True, True, False]
    >>> _is_bare_status("Fehler 12")
    True
    """
    if _WORD_AND_NUMBER_PATTERN.fullmatch(text):
        return True
    words = _STATUS_WORD_PATTERN.sub(" ", text.lower())
    bare = " ".join(words.split())
    return not bare or bare in (*SERVER_ERROR_NAMES, *CLIENT_ERROR_NAMES)


def answered(events: Sequence[Event]) -> dict[int, int]:
    """Map the position of each call to the position of its result.

    A result belongs to the call with the same id. Without an id, it belongs to the
    oldest open call of its tool, or of any tool if it names none. Only calls in a row,
    without other events between them, are open together. An error is the result only
    until a response follows.
    """
    results: dict[int, int] = {}
    responded: set[int] = set()
    # Open calls by id, and by the number of their row (`batch`) and their tool.
    waiting: dict[str | tuple[int, str], deque[int]] = {}
    batch = 0
    batch_ended = False

    for position, event in enumerate(events):
        if event.type == "tool_call":
            if batch_ended:
                batch += 1
                batch_ended = False

            # The tool "" is for a result that names no tool.
            for tool in {event.tool, ""}:
                waiting.setdefault((batch, tool), deque()).append(position)
            if event.call:
                waiting[event.call] = deque([position])
            continue

        batch_ended = True
        if event.type not in RESULT_EVENTS:
            continue

        calls = waiting.get(event.call or (batch, event.tool), ())
        while calls and calls[0] in responded:
            calls.popleft()
        if calls:
            results[calls[0]] = position
            if event.type == "tool_response":
                responded.add(calls[0])

    return results


def named_arguments(event: Event) -> dict[str, str]:
    """Return the arguments of a call as texts; one without a name has the name "".

    Data become JSON. Ends of lines and tabs are visible, as in JSON.
    """
    arguments = call_arguments(event) if event.type == "tool_call" else {}
    if not isinstance(arguments, Mapping):
        raw = event.content if event.arguments is None else event.arguments
        raw_text = ends(str(raw))
        arguments = {"": raw_text} if raw_text.strip() else {}

    return {str(name): as_text(value) for name, value in arguments.items()}


def as_text(value: Any) -> str:
    """Return an argument as text: data as JSON, with visible ends of lines and tabs."""
    text = value if isinstance(value, str) else _as_json(value)
    return text.strip().replace("\n", "\\n").replace("\t", "\\t")


def _as_json(value: Any) -> str:
    """Return data as JSON; what JSON lacks becomes a text."""
    return json.dumps(value, ensure_ascii=False, default=str)


def only_text(event: Event) -> str:
    """Return the argument of a call that has one, a text; else ""."""
    texts = list(named_arguments(event).values())
    if len(texts) != 1:
        return ""

    arguments = call_arguments(event)
    if isinstance(arguments, Mapping):
        value = next(iter(arguments.values()), "")
        if not isinstance(value, str):
            return ""

    return texts[0]


def given_to(call: Event) -> Mapping[str, Any] | str:
    """Return the arguments of a call, as data if they are an object, else as text."""
    arguments = call_arguments(call)
    if isinstance(arguments, Mapping | str):
        return arguments
    return json.dumps(arguments, default=str)
