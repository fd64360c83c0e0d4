"""Signals: the mistakes that a finished run shows, found without a model. Pure.

Only the structure of the trace is used: which calls failed, which were repeated or
retried, and where the values in the answer first appeared. No step is named as the
cause of the failure: on recorded failures no rule of this kind beats a constant answer
(`make quality ONLY=whowhen`).

`course` reads an episode once: what each event is, which result belongs to which call,
what failed, and which values are new. Each rule of `SIGNAL_RULES` is a function from a
course to signals.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from difflib import get_close_matches
from itertools import chain, islice
from typing import Any, Literal

from heedful.lessons.signature import signature
from heedful.lessons.words import count_common
from heedful.sanitize import clean
from heedful.traces.episode import (
    TIMEOUT_CODE_PATTERN,
    Episode,
    Event,
    call_arguments,
    failure,
    json_default,
)
from heedful.traces.error_lines import error_line, output
from heedful.validation import check_integer, require

Role = Literal["given", "act", "result", "said"]
Kind = Literal["answer", "cause", "repeated", "retry", "timeout", "unknown_tool"]
RESULT_EVENTS = frozenset({"tool_response", "error_event"})
# Not said by the agent: the task, the prompts, the system around the agent.
SURROUNDING_EVENTS = frozenset({"user_message", "system_event", "llm_call", "summary"})
# Events without news from outside: words of agents, and results of their steps.
NO_NEWS_EVENTS = RESULT_EVENTS | {"llm_call", "llm_response"}

# A retry is looked for among this many calls of the tool after the failed one.
MAX_RETRY_DISTANCE_CALLS = 20
# Of two longer arguments only the parts that differ are shown.
MAX_WHOLE_ARGUMENT_CHARS = 180
# The characters of a text that are used, at its two ends.
TEXT_HEAD_CHARS = 6_000
TEXT_TAIL_CHARS = 2_000
MAX_EVENT_VALUES = 200
MAX_EVIDENCE_EVENTS = 20  # events that prove one signal

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
    r"|^(?i:exit ?(?:code|status))[: ]{0,2}(?!0\b)-?\d"
    r"|^\W?[\w ]{1,40} (?i:exit ?(?:code|status)) (?!0\b)-?\d+\W{0,2}$"
    # A line begins a traceback.
    r"|^Traceback \(most recent call last\)"
    # A flag in JSON, such as {"exit_code": 1}, {"status": 404} or {"ok": false}.
    r"|\"exit_?code\": ?(?!0\b)-?\d|\A\{(?:.{0,400}, ?)?\"status\": ?\"?[45]\d\d\b"
    r"|\"(?:status|type)\": ?\"error\"|\"(?:success|ok)\": ?false\b"
)
# A word of letters: "read" and "file" in "read_file2".
_CALL_WORD_PATTERN = re.compile(r"[^\W\d_]+")
# A text in quotation marks, or a path: 'users', "my key", src/app/main.py.
_ENTITY_PATTERN = re.compile(
    r"'([^'\n]{3,120})'|\"([^\"\n]{3,120})\"|((?:[\w.-]{0,60}/){1,9}[\w.-]{2,80})"
)
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

    return Course(
        episode=episode,
        events=events,
        roles=tuple(roles),
        result=tuple(results),
        act=tuple(calls),
        failure=tuple(map(_failure_text, events, roles, texts)),
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

    `text` is what `event_text` returns, cut. Of a result that is marked as a failure,
    the error or the content counts, whichever says more than an exit status.
    """
    if role != "result":
        return event.error
    if not failure(event):
        return text if _FAILURE_PATTERN.search(text) else ""

    for words in (event.error, event.content):
        if output(words):
            return words
    return event.error or event.content or event.code or "error"


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


def _make_signal(
    events: Sequence[Event],
    kind: Kind,
    position: int,
    *,
    evidence: Sequence[int],
    strength: float,
    words: str,
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

    results = answered(events)
    # The calls of the row of equal steps that is being counted.
    calls: list[int] = []
    # What the last step was; () if it has no result, or is no step.
    step: tuple[str, ...] = ()

    for position, event in enumerate(events):
        if event.type in NO_NEWS_EVENTS:
            continue

        last_step = step
        step = ()
        if position in results:
            step = _step_key(event, events[results[position]])

        if calls and step and step == last_step:
            calls.append(position)
        elif len(calls) >= times:
            break
        elif step and event.tool not in polls:
            calls = [position]
        else:
            calls = []

    count = len(calls)
    if count < times:
        return None

    tool = clean(events[calls[0]].tool, 80) or "a tool without a name"
    return _make_signal(
        events,
        "repeated",
        calls[1],
        evidence=calls,
        # Certain at 5 times, where a loop is stopped if nobody says otherwise.
        strength=min(1.0, count / 5),
        words=f"{tool}: the same arguments and the same result {count} times in a row",
    )


def _step_key(call: Event, result: Event) -> tuple[str, ...]:
    """Return what two steps have in common if they count as equal."""
    arguments = canonical_json(call_arguments(call))
    return call.agent, call.tool, arguments, result.content, result.error


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


def signals(episode: Episode) -> tuple[Signal, ...]:
    """Return the signals of an episode in the order of their decisive events.

    Takes linear time. Of each event 8,000 characters are used.

    >>> error = Event("tool_response", "Error: no such file")
    >>> calls = Event("tool_call", tool="read"), error
    >>> [str(signal) for signal in signals(Episode(calls))]
    ['event 0: fails first here: Error: no such file']
    """
    return signals_of(course(episode))


def signals_of(run: Course) -> tuple[Signal, ...]:
    """Return the signals of an episode from its `course`."""
    signs: list[Signal] = []
    for rule in SIGNAL_RULES:
        signs += rule(run)
    return tuple(sorted(signs, key=lambda signal: (signal.at, signal.kind)))


def quote(text: str) -> str:
    """Return a text on one line, cut to 120 characters, without control characters."""
    return clean(text, 120)


def _answer_signals(run: Course) -> Iterator[Signal]:
    """Yield the steps where the values of a wrong answer first appeared."""
    answer = run.answer
    outcome = run.episode.outcome
    if answer is None or outcome not in ("failure", "partial"):
        return

    # From the end to the start, so that the first step with a value is set last.
    first_step: dict[str, int] = {}
    for position in reversed(range(len(run.events))):
        first_step |= dict.fromkeys(run.values[position], run.step_of(position))

    values_by_step: dict[int, list[str]] = {}
    for value in sorted(run.values[answer]):
        values_by_step.setdefault(first_step[value], []).append(value)

    name = "run" if outcome == "partial" else "failed run"
    for step, step_values in sorted(values_by_step.items()):
        quoted = ", ".join(map(quote, step_values[:3]))
        if len(step_values) > 3:
            quoted += f" and {len(step_values) - 3} more"

        yield _make_signal(
            run.events,
            "answer",
            step,
            evidence=(step, answer),
            strength=1.0,
            words=f"values in the answer of the {name} first appeared here: {quoted}",
        )


def _cause_signals(run: Course) -> Iterator[Signal]:
    """Yield the first failure of each kind: failures of a kind share a failure key."""
    groups: list[list[int]] = []
    group_of: dict[str, list[int]] = {}
    for position, text in enumerate(run.failure):
        if not text:
            continue

        keys = _failure_keys(error_line(text))
        group = next((group_of[key] for key in keys if key in group_of), None)
        if group is None:
            group = []
            groups.append(group)

        group.append(position)
        for key in keys:
            group_of.setdefault(key, group)

    for group in groups:
        first = group[0]
        words = f"fails first here: {quote(error_line(run.failure[first]))}"
        if len(group) > 1:
            words += f"; {len(group) - 1} later failures are of the same kind"

        yield _make_signal(
            run.events,
            "cause",
            run.step_of(first),
            evidence=group,
            # A failure that came back is a surer sign: 0.5, 0.67, 0.75 …
            strength=len(group) / (len(group) + 1),
            words=words,
        )


def _failure_keys(line: str) -> list[str]:
    """Return what failures of one kind share: a signature, a quoted name or a path."""
    keys = [signature("", line).digest]
    for match in islice(_ENTITY_PATTERN.finditer(line), 5):
        entity = next(filter(None, match.groups()))
        keys.append(f"'{entity}'")
    return keys


def _repeated_signals(run: Course) -> Iterator[Signal]:
    """Yield the first step that was made three times in a row."""
    signal = repeated_step(run.events, 3)
    if signal is not None:
        yield signal


def _retry_signals(run: Course) -> Iterator[Signal]:
    """Yield calls that worked after the same tool had failed, with what changed."""
    calls_by_tool: dict[tuple[str, str], list[int]] = {}
    for position, role in enumerate(run.roles):
        if role == "act" and run.result[position] is not None:
            event = run.events[position]
            agent = event.agent if event.tool else ""
            calls_by_tool.setdefault((agent, event.tool), []).append(position)

    for calls in calls_by_tool.values():
        yield from _tool_retries(run, calls)


def _tool_retries(run: Course, calls: Sequence[int]) -> Iterator[Signal]:
    """Yield the calls of one tool that worked after it had failed.

    The retry of a failed call is the one that is most like it among the next
    `MAX_RETRY_DISTANCE_CALLS` calls.
    """
    texts = {
        call: " ".join(named_arguments(run.events[call]).values()) for call in calls
    }

    fixed: set[int] = set()
    for next_index, call in enumerate(calls, 1):
        if call in fixed or not call_failed(run, call):
            continue

        later = calls[next_index : next_index + MAX_RETRY_DISTANCE_CALLS]
        retry = _most_alike(run, texts, call, later)
        if retry is None:
            continue

        # Failed calls before the retry are tries of it, too, if they are like it.
        tries = [call]
        for other in later:
            failed = other < retry and call_failed(run, other)
            if failed and likeness(texts[other], texts[retry]):
                tries.append(other)

        fixed.update(tries)
        yield _retry_signal(run, tries, retry)


def _most_alike(
    run: Course, texts: Mapping[int, str], failed_call: int, later: Iterable[int]
) -> int | None:
    """Return the call that worked and is most like the failed one, None if none is."""
    most_alike: int | None = None
    highest = 0.0
    for call in later:
        if call_failed(run, call):
            continue

        likeness_of_call = likeness(texts[failed_call], texts[call])
        if likeness_of_call > highest:
            most_alike = call
            highest = likeness_of_call

    return most_alike


def _retry_signal(run: Course, tries: Sequence[int], retry: int) -> Signal:
    """Return the signal of a call that worked after the failed `tries`."""
    changes = [
        f"{quote(name)}: {quote(old or '')!r} became {quote(new or '')!r}"
        for name, old, new in differences(run.events[tries[0]], run.events[retry])
    ]
    changed = "; ".join(changes) or "nothing"

    # Other steps in between may have made the last try work. Four or more of them say
    # nothing if the call itself was changed.
    between = [
        position
        for position in range(tries[0] + 1, retry)
        if run.roles[position] == "act"
        and run.events[position].tool
        and not call_failed(run, position)
    ]
    if changes and len(between) >= 4:
        between = []
    between = between[-3:]

    words = "works after a call that failed"
    if between:
        tools = dict.fromkeys(quote(run.events[call].tool) for call in between)
        words += f" and {', '.join(tools)} in between"

    return _make_signal(
        run.events,
        "retry",
        retry,
        evidence=(*tries, *between, retry),
        strength=0.9,
        words=f"{words}; what changed: {changed}",
    )


def _timeout_signals(run: Course) -> Iterator[Signal]:
    """Yield failures with the error code or exception name of a time-out."""
    for position, text in enumerate(run.failure):
        if not text:
            continue

        line = error_line(text)
        # An exception has a name of one word: "ReadTimeout: no answer in 30 s".
        name = line.partition(":")[0]
        exception = "" if " " in name else name
        code = run.events[position].code or exception

        if line and TIMEOUT_CODE_PATTERN.search(code):
            yield _make_signal(
                run.events,
                "timeout",
                run.step_of(position),
                evidence=(position,),
                strength=0.8,
                words=f"the call ran out of time: {quote(line)}",
            )


def _unknown_tool_signals(run: Course) -> Iterator[Signal]:
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


SIGNAL_RULES: tuple[Callable[[Course], Iterator[Signal]], ...] = (
    _answer_signals,
    _cause_signals,
    _repeated_signals,
    _retry_signals,
    _timeout_signals,
    _unknown_tool_signals,
)


def differences(old: Event, new: Event) -> list[tuple[str, str | None, str | None]]:
    """Return the arguments that differ: name, old value, new value; None is absent."""
    old_arguments = named_arguments(old)
    new_arguments = named_arguments(new)

    changes: list[tuple[str, str | None, str | None]] = []
    for name in {**old_arguments, **new_arguments}:
        was = old_arguments.get(name)
        now = new_arguments.get(name)
        if was != now:
            was, now = _differing_parts(was, now)
            changes.append((name, was, now))

    return changes


def _differing_parts(was: str | None, now: str | None) -> tuple[str | None, str | None]:
    """Return two texts; of long ones the parts that differ, with a word around them."""
    if not was or not now or max(len(was), len(now)) <= MAX_WHOLE_ARGUMENT_CHARS:
        return was, now

    old_words = was.split(" ")
    new_words = now.split(" ")
    # How many equal words are left out at the start and at the end.
    start = max(0, count_common(old_words, new_words) - 1)
    old_reversed = old_words[start:][::-1]
    new_reversed = new_words[start:][::-1]
    end = max(0, count_common(old_reversed, new_reversed) - 1)

    before = "… " if start else ""
    after = " …" if end else ""
    old_part = " ".join(old_words[start : len(old_words) - end])
    new_part = " ".join(new_words[start : len(new_words) - end])
    return f"{before}{old_part}{after}", f"{before}{new_part}{after}"


def named_arguments(event: Event) -> dict[str, str]:
    """Return the arguments of a call as texts; one without a name has the name "".

    Data become JSON. Ends of lines and tabs are visible, as in JSON.
    """
    arguments = call_arguments(event) if event.type == "tool_call" else {}
    if not isinstance(arguments, Mapping):
        raw = event.content if event.arguments is None else event.arguments
        raw_text = ends(str(raw))
        arguments = {"": raw_text} if raw_text.strip() else {}

    texts: dict[str, str] = {}
    for name, value in arguments.items():
        text = value
        if not isinstance(value, str):
            text = json.dumps(value, ensure_ascii=False, default=str)
        texts[str(name)] = text.strip().replace("\n", "\\n").replace("\t", "\\t")

    return texts


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


def likeness(first: str, second: str) -> float:
    """Return how alike two calls are: the share of equal words, 0 below a half.

    In calls that differ in few words, a word with a typo counts as equal.
    """
    words = set(_CALL_WORD_PATTERN.findall(first.lower()))
    other_words = set(_CALL_WORD_PATTERN.findall(second.lower()))
    if first == second:
        return 1.0

    lost = words - other_words
    new = other_words - words
    similar = 0
    if len(lost) < 4:
        similar = sum(bool(get_close_matches(word, new, 1)) for word in lost)

    same = len(words & other_words) + similar
    distinct = len(words | other_words) - similar
    share = same / max(1, distinct)
    return share if share >= 0.5 else 0.0


def given_to(call: Event) -> Mapping[str, Any] | str:
    """Return the arguments of a call, as data if they are an object, else as text."""
    arguments = call_arguments(call)
    if isinstance(arguments, Mapping | str):
        return arguments
    return json.dumps(arguments, default=str)
