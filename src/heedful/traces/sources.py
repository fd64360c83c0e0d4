"""Whose words an event of a run has, and what an agent repeats of others. Pure.

`sources_at` names the sources of an event: the user, programs, tools or the network.
`quoted_sources`, `first_sources` and `find_quoted` say which words of the agent stood
in results or prompts before, so that what is learnt from these words gets no more trust
than their sources have. What was not kept is not known: `gap_of` and `unseen_sources`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from heedful.lessons.action import command_of
from heedful.lessons.trust import (
    MIN_QUOTATION_WORDS,
    NETWORK_SOURCE,
    find_quotations,
    quotations,
    sources_of,
)
from heedful.sanitize import CUT_MARK_PATTERN
from heedful.traces.course import (
    RESULT_EVENTS,
    SURROUNDING_EVENTS,
    Course,
    event_text,
    given_to,
    named_arguments,
)
from heedful.traces.episode import MODEL_WORD_EVENTS

# A longer message holds more than its author typed, as does one of several lines. Of
# what people wrote to coding agents, 81 % has one line of at most 300 characters.
MAX_TYPED_CHARS = 300
# The pieces of a command that may be quoted: --all and main.py in "rm --all 'main.py'".
MIN_PIECE_CHARS = 3
COMMAND_PIECE_PATTERN = re.compile(rf"[^\s\"'\\]{{{MIN_PIECE_CHARS},}}")
# What ends a command or a line in an argument, whose ends of lines are visible.
_ARGUMENT_END_PATTERN = re.compile(r"\\[nt]|[;|&]+")
MIN_LINE_WORDS = 3  # of a line of an argument that may be quoted


def sources_at(run: Course, position: int) -> frozenset[str]:
    """Return the sources of an event: the user, the programs and tools, or the network.

    The words of a model have none. The event after a gap also has those of the omitted
    events.
    """
    if position == gap_of(run):
        return frozenset({NETWORK_SOURCE})
    return _event_sources(run, position)


def gap_of(run: Course) -> int | None:
    """Return the position of the event after the omitted ones, None if none are.

    They stood between the first and the last half of a long run.
    """
    return len(run.events) // 2 if run.episode.omitted else None


def _event_sources(run: Course, position: int) -> frozenset[str]:
    """Return the sources of the words of an event itself."""
    event = run.events[position]
    if event.origin == "external":
        return frozenset({NETWORK_SOURCE})
    if event.origin or event.type in RESULT_EVENTS:
        return _tool_sources(run, position)

    if event.type in MODEL_WORD_EVENTS:
        return frozenset()
    if event.type in SURROUNDING_EVENTS:
        return frozenset({"user"})
    return frozenset({NETWORK_SOURCE})


def _tool_sources(run: Course, position: int) -> frozenset[str]:
    """Return the sources of the words of a tool, by the call that they belong to."""
    event = run.events[position]
    call = run.act[position]
    if event.origin and event.type == "tool_call":
        call = position

    tool = event.tool
    arguments: Mapping[str, Any] | str = ""
    texts: list[str] = []
    if call is not None:
        tool = tool or run.events[call].tool
        arguments = given_to(run.events[call])

    if isinstance(arguments, Mapping):
        texts = [value for value in arguments.values() if isinstance(value, str)]

    return sources_of(tool, command_of(arguments), texts)


def find_quoted(run: Course, texts: Iterable[str]) -> dict[str, int]:
    """Map each text that quotes what was `pasted` to the position of the prompt."""
    prompts = pasted(run)
    quoted = find_quotations(texts, (prompt for _, prompt in prompts))
    return {text: prompts[number][0] for text, number in quoted.items()}


def quoted_sources(run: Course, texts: Iterable[str]) -> dict[str, dict[str, int]]:
    """Map each text that quotes tools and documents to their sources and positions."""
    positions: list[int] = []
    others: list[tuple[str, frozenset[str]]] = []
    for position, event in enumerate(run.events):
        sources = _event_sources(run, position) - {"user"}
        if sources:
            positions.append(position)
            others.append((event_text(event), sources))

    quoted: dict[str, dict[str, int]] = {}
    for text, found_sources in quotations(texts, others).items():
        quoted[text] = {source: positions[n] for source, n in found_sources.items()}
    return quoted


def unseen_sources(run: Course) -> list[tuple[int, frozenset[str]]]:
    """Return the positions and sources of the results that were kept without a part.

    Nobody can say whether words of an agent stood in the part that is left out.
    """
    return [
        (position, _event_sources(run, position))
        for position, role in enumerate(run.roles)
        if role == "result"
        and CUT_MARK_PATTERN.search(event_text(run.events[position]))
    ]


def first_sources(
    run: Course, words: Iterable[str]
) -> dict[str, tuple[int, frozenset[str]]]:
    """Map each word to the first text of others that has it: its position and sources.

    The task has the position -1. A word that only the agent says is left out.
    """
    places: list[tuple[int, frozenset[str]]] = [(-1, frozenset({"user"}))]
    texts = [f"{run.episode.task}\n{run.episode.goal}"]
    for position, event in enumerate(run.events):
        sources = _event_sources(run, position)
        if sources:
            places.append((position, sources))
            texts.append(event_text(event))

    first_at = find_quotations(words, texts, min_chars=MIN_PIECE_CHARS)
    return {word: places[n] for word, n in first_at.items()}


def pasted(run: Course) -> list[tuple[int, str]]:
    """Return the prompts that hold more than a typed line, with their positions.

    Nobody knows who wrote the rest, so trust in the user does not cover it. A prompt is
    the task or the goal (position -1), or a message of a user or of the system around
    the agent.
    """
    prompts = [(-1, run.episode.task), (-1, run.episode.goal)]
    for position, event in enumerate(run.events):
        if event.type in SURROUNDING_EVENTS:
            prompts.append((position, event.content))

    return [
        (position, text)
        for position, text in prompts
        if len(text) > MAX_TYPED_CHARS or "\n" in text.strip()
    ]


def words_of(run: Course, places: Iterable[int]) -> list[str]:
    """Return what an agent says at the positions `places`.

    First its messages that are long enough to be quoted, then the arguments of its
    calls.
    """
    messages: list[str] = []
    arguments: list[str] = []
    for position in sorted(set(places)):
        event = run.events[position]
        if event.type == "llm_response":
            if len(event.content.split()) >= MIN_QUOTATION_WORDS:
                messages.append(event.content)
        elif event.type == "tool_call":
            arguments += named_arguments(event).values()

    return [*messages, *arguments]


def lines_of(run: Course, call: int) -> list[str]:
    """Return the lines and the single commands in the arguments of a call.

    Shorter ones than `MIN_LINE_WORDS` words are in many texts.
    """
    lines = [
        line
        for text in named_arguments(run.events[call]).values()
        for line in _ARGUMENT_END_PATTERN.split(text)
    ]
    return [line for line in lines if len(line.split()) >= MIN_LINE_WORDS]


def new_words_of(run: Course, places: Iterable[int]) -> list[str]:
    """Return the words that the first call at `places` lacks and a later one has."""
    first_words: list[str] | None = None
    new_words: list[str] = []
    for position in sorted(set(places)):
        event = run.events[position]
        if event.type != "tool_call":
            continue

        words = COMMAND_PIECE_PATTERN.findall(" ".join(named_arguments(event).values()))
        if first_words is None:
            first_words = words
        new_words += [word for word in words if word not in first_words]

    return new_words
