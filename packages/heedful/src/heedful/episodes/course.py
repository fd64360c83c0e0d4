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
from itertools import chain
from typing import Any, Literal

from heedful.episodes.episode import Arguments, Episode, Event, call_arguments, failure
from heedful.episodes.failures import did_not_end, failure_text, is_status
from heedful.lessons.action import command_of
from heedful.lessons.words import plain_text, without_middle

Role = Literal["given", "act", "result", "said"]
RESULT_EVENTS = frozenset({"tool_response", "error_event"})
# Not said by the agent: the task, the prompts, the system around the agent.
SURROUNDING_EVENTS = frozenset({"user_message", "system_event", "llm_call", "summary"})
# The characters of a text that are used, one half at each of its two ends.
MAX_EVENT_TEXT_CHARS = 8_000
# The number of an entry in a list or of a heading: "3." or "## 12)" at a line's start.
LIST_MARK_PATTERN = re.compile(
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
    failure or "". `unfinished` are the positions of the calls that a person did not let
    run, or that did not run to their end; these neither failed nor worked. `values` are
    the numbers and names that the event contains and the task does not. `answer` is the
    position of the agent's last text or call with such a value, or None.
    """

    episode: Episode
    events: tuple[Event, ...]
    roles: tuple[Role, ...]
    result: tuple[int | None, ...]
    act: tuple[int | None, ...]
    failure: tuple[str, ...]
    unfinished: frozenset[int]
    values: tuple[frozenset[str], ...]
    answer: int | None

    def step_of(self, position: int) -> int:
        """Return the position of the call that an event belongs to, else its own."""
        call = self.act[position]
        return position if call is None else call

    def end_of(self, call: int) -> int:
        """Return the position of the result of a call, its own without one."""
        return self.result[call] or call

    def failure_of(self, call: int) -> str:
        """Return the text of the failure of a call or its result; "" if none is."""
        return self.failure[call] or self.failure[self.end_of(call)]


def call_failed(run: Course, call: int) -> bool:
    """Return True if the call at a position or its result is a failure."""
    return run.failure_of(call) != ""


def call_worked(run: Course, call: int) -> bool:
    """Return True if the call at a position has a result, and is not a failure.

    A call that did not run to its end did not work, either.
    """
    has_ended = run.result[call] is not None and call not in run.unfinished
    return has_ended and not call_failed(run, call)


def course(episode: Episode) -> Course:
    """Analyse an episode in linear time; 8,000 characters of each event are used."""
    events = episode.events
    texts = [ends(event_text(event)) for event in events]
    task = ends(f"{episode.task}\n{episode.goal}")
    roles = [
        _role_of(event, text, task.strip())
        for event, text in zip(events, texts, strict=True)
    ]

    results: list[int | None] = [None] * len(events)
    calls: list[int | None] = [None] * len(events)
    for call, result in answered(events).items():
        results[call] = result
        calls[result] = call

    task_values = values(task)
    lower_task = task.lower()
    values_of_events = [_new_values(text, task_values, lower_task) for text in texts]
    words_of_agent = [n for n, role in enumerate(roles) if role in ("said", "act")]
    answers = [n for n in words_of_agent if values_of_events[n]]

    unfinished = frozenset(
        call
        for call, result in enumerate(results)
        if result is not None and did_not_end(texts[result], events[result].code)
    )
    failures = _find_failures(events, roles, texts, calls)
    for call in unfinished:
        failures[call] = ""
        failures[results[call] or call] = ""

    return Course(
        episode=episode,
        events=events,
        roles=tuple(roles),
        result=tuple(results),
        act=tuple(calls),
        failure=tuple(failures),
        unfinished=unfinished,
        values=tuple(values_of_events),
        answer=max(answers, default=None),
    )


def _find_failures(
    events: Sequence[Event],
    roles: Sequence[Role],
    texts: Sequence[str],
    calls: Sequence[int | None],
) -> list[str]:
    """Return for each event the text of the failure that it reports, or ""."""
    results = [n for n, role in enumerate(roles) if role == "result"]
    tools = {n: events[calls[n] or n].tool for n in results}
    # A tool that marks its failures, or gives a code, says all of them so.
    marking_tools = {
        tools[n] for n in results if failure(events[n]) or is_status(events[n].code)
    }
    failures = [event.error for event in events]
    for n in results:
        call = calls[n]
        command = command_of(given_to(events[call])) if call is not None else ""
        is_marked = tools[n] in marking_tools
        failures[n] = failure_text(events[n], texts[n], command, marked=is_marked)
    return failures


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


def ends(text: str) -> str:
    """Return a text without its middle if it is longer than 8,000 characters."""
    return without_middle(text, MAX_EVENT_TEXT_CHARS)


def event_text(event: Event) -> str:
    """Return content, arguments and error of an event as one text."""
    arguments = "" if event.arguments is None else str(event.arguments)
    return "\n".join(part for part in (event.content, arguments, event.error) if part)


def event_details(event: Event) -> str:
    """Return the error code and the other data of an event as one text."""
    data = json.dumps(dict(event.meta), ensure_ascii=False, default=str)
    return " ".join(filter(None, [event.code, data if event.meta else ""]))


def values(text: str) -> frozenset[str]:
    """Return the numbers and names in a text, without small numbers and list marks.

    >>> sorted(values("1. It sold for $5,200,000 in Mission Bay, 3 times."))
    ['5200000', 'mission bay']
    """
    text = LIST_MARK_PATTERN.sub("", text)
    return frozenset(chain(_numbers(text), _names(text)))


def _new_values(
    text: str, task_values: frozenset[str], lower_task: str
) -> frozenset[str]:
    """Return the values in a text that the task, in lower case, does not have.

    A name that the task has within a longer one is not new, either.
    """
    return frozenset(
        value
        for value in values(text) - task_values
        if value[0].isdigit() or value not in lower_task
    )


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
    return plain_text(value).strip().replace("\n", "\\n").replace("\t", "\\t")


def only_text(event: Event) -> str:
    """Return the argument of a call that has one, as text; else ""."""
    texts = list(named_arguments(event).values())
    return texts[0] if len(texts) == 1 else ""


def given_to(call: Event) -> Arguments:
    """Return the arguments of a call, as data if they are an object, else as text."""
    arguments = call_arguments(call)
    if isinstance(arguments, Mapping | str):
        return arguments
    return json.dumps(arguments, default=str)
