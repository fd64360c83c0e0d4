"""Signals: the mistakes that a finished run shows, found without a model. Pure.

Only the structure of the trace is used: which calls failed, which were repeated, and
where the values in the answer first appeared. No step is named as the
cause of the failure: on recorded failures no rule of this kind beats a constant answer
(`make quality ONLY=whowhen`).

`signals_of` asks each of its rules, which are functions from the course of an episode
to signals.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from heedful.episodes.course import (
    RESULT_EVENTS,
    Course,
    answered,
    course,
)
from heedful.episodes.episode import Episode, Event, call_arguments, json_default
from heedful.episodes.error_lines import error_line
from heedful.episodes.fix_search import found_nothing
from heedful.lessons.signature import signature
from heedful.sanitize import clean
from heedful.validation import check_integer, require

Kind = Literal["answer", "cause", "repeated", "unknown_tool"]
# Events without news from outside: words of agents, and results of their steps.
NO_NEWS_EVENTS = RESULT_EVENTS | {"llm_call", "llm_response"}
MAX_EVIDENCE_EVENTS = 20  # events that prove one signal
# Of the steps that gave a wrong answer its values, 46 of 366 were the mistake in the
# recorded runs of `make quality ONLY=whowhen`; of those that failed, 13 of 19.
ANSWER_STRENGTH = 0.13
FAILURE_STRENGTH = 0.68


@dataclass(frozen=True, slots=True)
class Signal:
    """A sign of a mistake in an episode; `str()` describes it.

    `at` is the position of the decisive event, from 0, and `id` the id of this event or
    "". `evidence` holds the positions of the events that prove the sign, at most 20,
    and `evidence_ids` their ids. `strength` is 0..1: how reliable the sign is, not how
    bad the mistake was. An "answer" has the first `values` that it took from the step.
    """

    kind: Kind
    at: int
    _: KW_ONLY
    evidence: tuple[int, ...]
    strength: float
    words: str
    id: str = ""
    evidence_ids: tuple[str, ...] = ()
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"event {self.id or self.at}: {self.words}"


def signals(episode: Episode) -> tuple[Signal, ...]:
    """Return the signals of an episode in the order of their decisive events.

    Takes linear time. Uses 8,000 characters of each event.

    >>> error = Event("tool_response", "Error: no such file")
    >>> calls = Event("tool_call", tool="read"), error
    >>> [str(signal) for signal in signals(Episode(calls))]
    ['event 0: fails first here: Error: no such file']
    """
    return signals_of(course(episode))


def signals_of(run: Course) -> tuple[Signal, ...]:
    """Return the signals of an episode from its `course`."""
    signs = [
        *_answer_signals(run),
        *_cause_signals(run),
        *unknown_tool_signals(run),
        *filter(None, [repeated_step(run.events, 3)]),
    ]
    return tuple(sorted(signs, key=lambda signal: (signal.at, signal.kind)))


def _answer_signals(run: Course) -> Iterator[Signal]:
    """Yield the steps where the values of a wrong answer first appeared."""
    answer = run.answer
    outcome = run.episode.outcome
    if answer is None or outcome not in ("failure", "partial"):
        return

    # From the end to the start, so that the first step with a value is set last.
    step_of_value: dict[str, int] = {}
    for position in reversed(range(len(run.events))):
        step_of_value |= dict.fromkeys(run.values[position], run.step_of(position))

    values_by_step: dict[int, list[str]] = defaultdict(list)
    for value in sorted(run.values[answer]):
        values_by_step[step_of_value[value]].append(value)

    name = "run" if outcome == "partial" else "failed run"
    for step, step_values in sorted(values_by_step.items()):
        first_values = tuple(map(quote, step_values[:3]))
        quoted = ", ".join(first_values)
        yield _make_signal(
            run.events,
            "answer",
            step,
            evidence=(step, answer),
            strength=ANSWER_STRENGTH,
            words=f"values in the answer of the {name} first appeared here: {quoted}",
            values=first_values,
        )


def _cause_signals(run: Course) -> Iterator[Signal]:
    """Yield the first failure of each kind: those of a kind share a signature."""
    groups: dict[str, list[int]] = defaultdict(list)
    for position, text in enumerate(run.failure):
        if text and not found_nothing(run, run.step_of(position)):
            digest = signature("", error_line(text)).digest
            groups[digest].append(position)

    for group in groups.values():
        first = group[0]
        words = f"fails first here: {quote(error_line(run.failure[first]))}"
        if len(group) > 1:
            words += f"; {len(group) - 1} later failures are of the same kind"

        yield _make_signal(
            run.events,
            "cause",
            run.step_of(first),
            evidence=group,
            strength=FAILURE_STRENGTH,
            words=words,
        )


def unknown_tool_signals(run: Course) -> Iterator[Signal]:
    """Yield the first call of each tool that was not offered to the agent."""
    if not run.episode.tools:
        return

    known_tools = set(run.episode.tools)
    for position, event in enumerate(run.events):
        if event.type != "tool_call" or not event.tool or event.tool in known_tools:
            continue

        known_tools.add(event.tool)
        tool = quote(event.tool)
        yield _make_signal(
            run.events,
            "unknown_tool",
            position,
            evidence=(position,),
            strength=1.0,
            words=f"calls {tool}, which is not among the tools that were offered",
        )


def repeated_step(
    events: Sequence[Event], times: int = 5, polls: Collection[str] = ()
) -> Signal | None:
    """Return the first step made at least `times` (2 or more) times in a row, or None.

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

    for step, row in groupby(_steps(events, polls), key=itemgetter(1)):
        calls = [position for position, _ in row]
        if not step or len(calls) < times:
            continue
        count = len(calls)
        tool = clean(events[calls[0]].tool, 80) or "a tool without a name"
        # The second call is decisive.
        return _make_signal(
            events,
            "repeated",
            calls[1],
            evidence=calls,
            # Certain at 5 times, where a loop is stopped if nobody says otherwise.
            strength=min(1.0, count / 5),
            words=f"{tool}: the same arguments and the same result {count} times in a "
            "row",
        )
    return None


def _steps(
    events: Sequence[Event], polls: Collection[str]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the position of each event with news, and the step that it is.

    An event that is no step, or is a call of `polls` or without a result, has (): it
    ends a row of equal steps.
    """
    results = answered(events)
    for position, event in enumerate(events):
        if event.type in NO_NEWS_EVENTS:
            continue
        step: tuple[str, ...] = ()
        if position in results and event.tool not in polls:
            result = events[results[position]]
            arguments = canonical_json(call_arguments(event))
            step = (event.agent, event.tool, arguments, result.content, result.error)
        yield position, step


def canonical_json(value: Any) -> str:
    """Return JSON that is the same for equal data: keys are sorted, and 1.0 is 1.

    Data that JSON cannot hold are returned as the JSON of their `repr`.
    """
    try:
        text = json.dumps(value, sort_keys=True, default=json_default)
        if "." not in text:
            return text

        data = json.loads(text, parse_float=_whole_or_float)
        return json.dumps(data, sort_keys=True)
    except (ValueError, TypeError, RecursionError):
        return json.dumps(repr(value))


def _whole_or_float(digits: str) -> float | int:
    """Read a number that has a point or an exponent: 1.0 is the integer 1."""
    number = float(digits)
    return int(number) if number.is_integer() else number


def _make_signal(
    events: Sequence[Event],
    kind: Kind,
    position: int,
    *,
    evidence: Sequence[int],
    strength: float,
    words: str,
    values: tuple[str, ...] = (),
) -> Signal:
    """Return the signal whose decisive event is at `position`, with the events' ids."""
    positions = tuple(evidence[:MAX_EVIDENCE_EVENTS])
    return Signal(
        kind,
        position,
        evidence=positions,
        strength=strength,
        words=words,
        id=events[position].id,
        evidence_ids=tuple(events[place].id for place in positions),
        values=values,
    )


def quote(text: str) -> str:
    """Return a text on one line, cut to 120 characters, without control characters."""
    return clean(text, 120)
