"""What readers share: their contract, and a session whose entries come one by one.

A reader recognises one format by its shape: `begins` is asked with the first values of
a file, one by one. A value is decoded JSON, or a `str`, the whole text of a file that
is not JSON, or `bytes`, a request in protobuf. `add` takes the values of the file, each
of which may be damaged, and returns the episodes that it completes; `finish` returns
the others.
"""

import re
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from heedful.episodes.episode import (
    TIMEOUT_CODE_PATTERN,
    Arguments,
    Ended,
    Episode,
    EpisodeBuilder,
    Event,
    Fault,
    Limits,
)
from heedful.episodes.messages import (
    chat_events,
    first_of,
    inner_objects,
    text_of,
    texts_of,
)
from heedful.episodes.readers.text_actions import observed, with_status
from heedful.validation import Fields

# The result of a call that was not allowed to run, as `Course` recognises it.
REFUSAL = "The call was not allowed by the user."
# How Codex says that a command runs on, in the header of its result.
_RUNNING_PATTERN = re.compile(
    r"(?m)\A(?:[^\n]*\n){0,4}?Process running with session ID (\d+)$"
)


class Reader(Protocol):
    """Reads the files of one format, whose name is `source`."""

    source: str

    def __init__(self, limits: Limits) -> None: ...

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True if a file with this value is of this format."""
        ...

    def add(self, value: Any) -> list[Episode]:
        """Read a value; return the episodes that it completes. Raises InvalidInput."""
        ...

    def finish(self) -> list[Episode]:
        """Return the other episodes, which are complete at the end of the file."""
        ...


class ValueReader(Reader):
    """Reads a format whose values are each whole: `add` returns all episodes."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def finish(self) -> list[Episode]:
        """Return [], because `add` returned all."""
        return []


# The fields that say how a run ended; the first that says it counts.
CLEAR_FIELDS = (
    "outcome",
    "resolved",
    "success",
    "passed",
    "is_correct",
    "utility",
    "reward",
)
# In an inner object, such as a run's settings, these may mean anything.
OUTCOME_FIELDS = (*CLEAR_FIELDS, "value", "score", "scores", "subtype")
# How the words begin that say how a run ended; a letter is that of a score.
OUTCOME_PATTERNS: Mapping[str, Ended] = {
    r"succe|pass(ed)?\b|c$": "success",
    "fail|[in]$": "failure",
    "partial|p$": "partial",
    "error": "error",
}


def outcome_of(fields: Fields) -> Ended | None:
    """Return how a run ended, by its fields, or by clear fields of an inner object.

    Returns None if none says it. A reward or score of 1 is a success, and less a
    failure. Several scores that differ are a partial success.
    """
    inner = (_outcome_by_fields(part, CLEAR_FIELDS) for part in inner_objects(fields))
    outcome: Ended | None = next(
        filter(None, [_outcome_by_fields(fields), *inner]), None
    )
    status = fields.get("status")
    error = fields.get("error")
    if outcome is None and isinstance(status, str):
        outcome = _outcome_by_value(status)
    if outcome is None and error:
        is_late = TIMEOUT_CODE_PATTERN.search(text_of(error))
        outcome = "timeout" if is_late else "error"
    return outcome


def _outcome_by_fields(
    fields: Fields, names: Sequence[str] = OUTCOME_FIELDS
) -> Ended | None:
    """Return the outcome by the first field that says it, but a status or an error."""
    values = [fields[name] for name in names if name in fields]
    outcomes = map(_outcome_by_value, values)
    outcome: Ended | None = next(filter(None, outcomes), None)
    status = fields.get("exit_status")
    if outcome is None and isinstance(status, str) and status:
        # A run that was submitted may be right or wrong.
        is_submitted = status.lower().startswith("submitted")
        outcome = _outcome_by_value(status) or (None if is_submitted else "error")
    return outcome


def _outcome_by_value(value: Any) -> Ended | None:
    """Return the outcome that a value stands for; None if it says nothing."""
    if isinstance(value, str):
        return _outcome_by_word(value.strip().lower())
    if isinstance(value, int | float):
        if value > 1:  # of a scale that nobody knows
            return None
        return "success" if value == 1 else "failure"
    if isinstance(value, Mapping):
        outcome = _outcome_by_fields(value)
        if outcome is not None:
            return outcome
        value = [*value.values()]
    if not isinstance(value, list):
        return None
    outcomes = {_outcome_by_value(part) for part in value} - {None}
    return "partial" if len(outcomes) > 1 else next(iter(outcomes), None)


def _outcome_by_word(word: str) -> Ended | None:
    """Return the outcome that a word stands for, such as `error_max_turns`."""
    if TIMEOUT_CODE_PATTERN.search(word):
        return "timeout"
    patterns = OUTCOME_PATTERNS.items()
    return next((ended for pattern, ended in patterns if re.match(pattern, word)), None)


def fault_of(fields: Fields) -> Fault | None:
    """Return the error that ended a run, if its fields have one."""
    error = fields.get("error")
    if not error or error is True:
        return None
    if not isinstance(error, Mapping):
        return Fault("error", text_of(error))
    category = text_of(first_of(error, "type", "code", "category")) or "error"
    return Fault(category, texts_of(error, ("message", "detail")) or text_of(error))


@dataclass
class OpenSession:
    """The events of one session, and what is known of it while it goes on.

    A model, not a person, wrote the prompts of a session of a subagent. `outcome` and
    `fault` are None if the format does not say how the session ended. `refused_calls`
    are the ids of calls that nobody allowed to run, `tool_names` are those of the calls
    by their ids, and `entry_ids` are those of the entries that were read. `said` are
    the last texts that may have an action, each with its speaker; the texts of
    `executors` are results. `commands` are the calls of the commands that run on, by
    their processes, and by the calls that wait for them.
    """

    builder: EpisodeBuilder
    is_of_subagent: bool = False
    outcome: Ended | None = None
    fault: Fault | None = None
    refused_calls: set[str] = field(default_factory=set)
    tool_names: dict[str, str] = field(default_factory=dict)
    entry_ids: set[str] = field(default_factory=set)
    said: deque[tuple[str, str]] = field(default_factory=partial(deque, maxlen=10))
    executors: set[str] = field(default_factory=set)
    commands: dict[str, str] = field(default_factory=dict)

    def add(self, message: Fields) -> None:
        """Add the events of a chat message. Raises InvalidInput.

        A message after an action that somebody wrote as text may be its result.
        """
        events = chat_events(message, self.tool_names)
        speaker = text_of(first_of(message, "source", "name", "role"))
        if len(events) == 1 and events[0].type != "tool_call":
            events = self._observed(speaker, events[0]) or events
        for event in events:
            if event.type == "llm_response":
                self.said.append((speaker, event.content))
                # Where code is run, what another agent says judges no answer.
                event = replace(event, agent="" if self.executors else event.agent)
            elif event.type != "user_message" or speaker == message.get("role"):
                self.said.clear()
            followed = self.followed(event)
            if followed is not None:
                self.builder.add(with_status(followed))

    def _observed(self, speaker: str, event: Event) -> list[Event]:
        """Return the action that another speaker wrote, and this event as its result.

        Returns no events if it is not the result. What a model says is one only if it
        has a status, or if its speaker is an executor.
        """
        words = "\n".join(text for other, text in self.said if other != speaker)
        is_executor = speaker in self.executors
        step = observed(words, event.content, is_usual=is_executor)
        is_said = event.type == "llm_response" and not is_executor
        if not step or (is_said and not step[1].code):
            return []
        self.executors.add(speaker)
        return step

    def followed(self, event: Event) -> Event | None:
        """Return an event; None if a command runs on after it.

        What a call returns that waits for a command, or writes to it, is the result of
        the call that began the command.
        """
        if event.type == "tool_call" and isinstance(event.arguments, Mapping):
            process = f"process {event.arguments.get('session_id')}"
            if process in self.commands:
                self.commands[event.call] = self.commands[process]
                return event if event.arguments.get("chars") else None
        if event.type != "tool_response":
            return event
        call = self.commands.get(event.call, event.call)
        running = _RUNNING_PATTERN.match(event.content)
        if running is not None:
            self.commands[f"process {running[1]}"] = call
            return None
        return replace(event, tool=self.tool_names.get(call, event.tool), call=call)


class OpenSessions(dict[str, OpenSession]):
    """The open sessions of a file by their ids; a new id opens a session."""

    def __init__(self, limits: Limits, source: str) -> None:
        super().__init__()
        self._limits = limits
        self._source = source

    def __missing__(self, id: str) -> OpenSession:
        session = self[id] = OpenSession(EpisodeBuilder(self._limits, self._source))
        return session

    def named(self, id: str) -> OpenSession:
        """Return a session; earlier entries that named no session are its own."""
        if id and "" in self:
            self[id] = self.pop("")
        return self[id]

    def episodes(self) -> list[Episode]:
        """Return the episode of each session that has events, or an outcome."""
        return [
            _with_refusals(
                session.builder.episode(
                    id=id,
                    session=id,
                    outcome=session.outcome,
                    fault=session.fault,
                    by_time=True,
                ),
                session.refused_calls,
            )
            for id, session in self.items()
            if session.builder.count or session.outcome
        ]


class EntryReader(Reader):
    """Reads a format whose values are entries of sessions."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sessions = OpenSessions(limits, self.source)

    def finish(self) -> list[Episode]:
        """Return the episodes of all sessions."""
        return self._sessions.episodes()


def refused_call(tool: str, arguments: Arguments | None) -> list[Event]:
    """Return the events of a call that was not allowed to run."""
    # An id, because an earlier call may have no result.
    call = Event("tool_call", tool=tool, arguments=arguments, call="refused")
    return [call, Event("tool_response", REFUSAL, tool=tool, call="refused")]


def _with_refusals(episode: Episode, calls: Set[str]) -> Episode:
    """Return an episode; the results of these calls say that they did not run."""
    events = [
        replace(event, content=f"{REFUSAL}\n{event.error}", error="")
        if event.call in calls and event.type == "tool_response"
        else event
        for event in episode.events
    ]
    return replace(episode, events=tuple(events))


def words_of_others(text: str) -> Event:
    """Return an event with words that an agent got, and nobody knows from whom."""
    return Event("system_event", text, origin="outside")


def as_prompt_of_model(event: Event) -> Event:
    """Return an event; a prompt is one that a model wrote, with words of anybody.

    A model writes the prompts of its subagents, and summaries of a session.
    """
    if event.type == "user_message":
        return replace(event, type="system_event", origin="outside")
    return event
