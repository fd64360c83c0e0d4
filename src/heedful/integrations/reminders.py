"""Whether the mistakes of which a session was reminded came again until it ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from heedful.lessons.action import ActionHistory, command_of
from heedful.lessons.preconditions import (
    FORGETTING_CODES,
    SessionState,
    arguments_of,
    find_blamed,
    preconditions_of,
)
from heedful.memory.memory import Memory
from heedful.store import episodes, reminders

if TYPE_CHECKING:  # a hook process imports only what its event needs
    from heedful.lessons.made_names import MadeNames
    from heedful.lessons.patterns import Seen

Events = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCall:
    """A call: when it began, what it ran, its errors and what it took for granted.

    `words` are those of a command without flags, empty for another tool. `signatures`
    are digests of its errors, and `preconditions` of what they blame; both are empty if
    it passed.
    """

    start: float
    tool: str
    words: frozenset[str]
    signatures: frozenset[str] = frozenset()
    preconditions: frozenset[str] = frozenset()

    def repeats(self, reminder: reminders.OpenReminder) -> bool:
        """Return True if the mistake of a reminder came again in this call."""
        if self.start <= reminder.at:
            return False
        if reminder.precondition:
            return reminder.precondition in self.preconditions
        return reminder.signature in self.signatures

    def is_like(self, other: FinishedCall) -> bool:
        """Return True if both have the same tool, or commands with a common word."""
        if self.words or other.words:
            return not self.words.isdisjoint(other.words)
        return self.tool == other.tool


def subjects_of(history: ActionHistory | Seen, ids: Sequence[int]) -> dict[int, str]:
    """Return what each of the lessons reminds of: what a call takes for granted.

    After an error it is "". The checks of lessons are counted elsewhere.
    """
    if not isinstance(history, ActionHistory):
        return dict.fromkeys(ids, "")
    digests: dict[int, str] = {}
    for failure in history.failures:
        digests.setdefault(failure.lesson, failure.digest)
    return {id: digests[id] for id in ids if id in digests}


async def settle_reminders(
    memory: Memory,
    session: str,
    read_events: Callable[[], Awaitable[Events]],
    folder: str,
) -> None:
    """Record for each reminder of a session that ends whether its mistake came again.

    Paths below the `folder` of the repository are relative to it.
    """
    pending = await memory.store.read(memory.scope, reminders.open_reminders, session)
    if not pending:
        return

    events = await read_events()
    calls = _finished_calls(events, folder)
    verdicts = {reminder.subject: _is_repeated(reminder, calls) for reminder in pending}
    await memory.store.write(
        memory.scope,
        reminders.settle,
        session,
        repeated={
            subject: verdict
            for subject, verdict in verdicts.items()
            if verdict is not None
        },
    )


def _is_repeated(
    reminder: reminders.OpenReminder, calls: Sequence[FinishedCall]
) -> bool | None:
    """Return whether the mistake came again; None if no later call could show it."""
    if any(call.repeats(reminder) for call in calls):
        return True
    later = [call for call in calls if call.start > reminder.at]
    earlier = [call for call in calls if call.start <= reminder.at]
    if not reminder.precondition:
        earlier = [call for call in earlier if reminder.signature in call.signatures]
    if not earlier:
        return False if later else None
    subject = max(earlier, key=lambda call: call.start)
    return False if any(map(subject.is_like, later)) else None


def _finished_calls(events: Events, folder: str) -> list[FinishedCall]:
    """Return the calls of a session, with their failures by the state it then had."""
    state = SessionState()
    calls: dict[str, Mapping[str, Any]] = {}
    finished: list[FinishedCall] = []
    names = _made_names(events)
    for event in events:
        # A result without an id belongs to the last call of the tool.
        name = event.get("call") or f"of {event.get('tool')}"
        if event["type"] == "system_event" and event.get("code") in FORGETTING_CODES:
            state = SessionState()
        elif event["type"] == "tool_call":
            calls[name] = event
        elif event["type"] == "tool_response":
            call = calls.get(name, event)
            arguments = arguments_of(call.get("arguments") or {})
            finished.append(
                _finished_call(event, call, state=state, folder=folder, names=names)
            )
            if not event["error"]:
                state = state.after_pass(arguments, folder)
    return finished


def _made_names(events: Events) -> MadeNames:
    """Return the names that the calls of a session made."""
    from heedful.lessons.made_names import made_names

    calls = [event for event in events if event["type"] == "tool_call"]
    return made_names(call.get("arguments") or {} for call in calls)


def list_failures(events: Events) -> list[tuple[float, frozenset[str]]]:
    """Return the failures: when the call began, and the digests of its error."""
    started_at: dict[str, float] = {}
    arguments: dict[str, Any] = {}
    failures: list[tuple[float, frozenset[str]]] = []
    names = _made_names(events)
    for event in events:
        # A result without an id belongs to the last call of the tool.
        call = event["call"] or f"of {event['tool']}"

        if event["type"] == "tool_call":
            started_at[call] = event["at"]
            arguments[call] = event["arguments"]
        elif event["error"]:
            start = started_at[call] if call in started_at else event["at"]
            digests = episodes.error_digests(event, arguments.get(call), names)
            failures.append((start, digests))

    return failures


def _finished_call(
    event: Mapping[str, Any],
    call: Mapping[str, Any],
    *,
    state: SessionState,
    folder: str,
    names: MadeNames,
) -> FinishedCall:
    """Return a call with its result, with what its errors blame."""
    from heedful.episodes.error_lines import named_errors
    from heedful.lessons.shell import read_command

    arguments = arguments_of(call.get("arguments") or {})
    tool = str(event.get("tool") or "")
    line = read_command(command_of(arguments))
    commands = [words for words in line.commands if words[:1] != ("cd",)]
    finished = FinishedCall(
        start=call["at"],
        tool=tool,
        words=frozenset(
            word for words in commands for word in words if word[:1] != "-"
        ),
    )
    if not event["error"]:
        return finished

    lines = named_errors(str(event["error"]), arguments)
    surroundings = state.surroundings(arguments, folder)
    blamed = find_blamed(preconditions_of(tool, arguments, surroundings), lines)
    digests = frozenset(precondition.digest for precondition in blamed)
    signatures = episodes.error_digests(event, call.get("arguments"), names)
    return replace(finished, signatures=signatures, preconditions=digests)


def week_of(at: float) -> str:
    """Return the week of a time in seconds since 1970, as 2026-W48."""
    year, week, _ = datetime.fromtimestamp(at, UTC).isocalendar()
    return f"{year}-W{week:02}"


async def reminder_news(memory: Memory) -> str:
    """Return a line for a person on what ended since the last one, "" without news."""
    if not await memory.store.read(memory.scope, reminders.has_news):
        return ""
    tally = await memory.store.write(memory.scope, reminders.take_news)
    line = str(tally)
    return f"heedful, since the last start: {line}" if line else ""
