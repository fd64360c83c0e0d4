"""Whether the mistakes of which a session was reminded came again until it ended."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from heedful.lessons.action import ActionHistory
from heedful.lessons.patterns import Seen
from heedful.lessons.preconditions import (
    FORGETTING_CODES,
    SessionState,
    arguments_of,
    blames,
    preconditions_of,
)
from heedful.memory.memory import Memory
from heedful.store import episodes, reminders

Events = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A call that failed: when it began, its errors and what it took for granted.

    `signatures` are digests of its errors, and `preconditions` of what they blame.
    """

    start: float
    signatures: frozenset[str]
    preconditions: frozenset[str]

    def repeats(self, reminder: reminders.OpenReminder) -> bool:
        """Return True if the mistake of a reminder came again in this call."""
        if self.start <= reminder.at:
            return False
        if reminder.precondition:
            return reminder.precondition in self.preconditions
        return reminder.signature in self.signatures


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

    from heedful.loop.rungs import week_of

    events = await read_events()
    failed = _failed_calls(events, folder)
    repeated = {
        reminder.subject
        for reminder, call in product(pending, failed)
        if call.repeats(reminder)
    }
    ended_at = max((event["at"] for event in events), default=time.time())
    await memory.store.write(
        memory.scope,
        reminders.settle,
        session,
        repeated=sorted(repeated),
        week=week_of(ended_at),
    )


def _failed_calls(events: Events, folder: str) -> list[FailedCall]:
    """Return the calls of a session that failed, by the state that it then had."""
    state = SessionState()
    calls: dict[str, Mapping[str, Any]] = {}
    failed: list[FailedCall] = []
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
            if event["error"]:
                failed.append(_failed_call(event, call, state=state, folder=folder))
            else:
                state = state.after_pass(arguments, folder)
    return failed


def list_failures(events: Events) -> list[tuple[float, frozenset[str]]]:
    """Return the failures: when the call began, and the digests of its error."""
    started_at: dict[str, float] = {}
    arguments: dict[str, Any] = {}
    failures: list[tuple[float, frozenset[str]]] = []
    for event in events:
        # A result without an id belongs to the last call of the tool.
        call = event["call"] or f"of {event['tool']}"

        if event["type"] == "tool_call":
            started_at[call] = event["at"]
            arguments[call] = event["arguments"]
        elif event["error"]:
            start = started_at[call] if call in started_at else event["at"]
            digests = episodes.error_digests(event, arguments.get(call))
            failures.append((start, digests))

    return failures


def _failed_call(
    event: Mapping[str, Any],
    call: Mapping[str, Any],
    *,
    state: SessionState,
    folder: str,
) -> FailedCall:
    """Return a call that failed, with what its errors blame."""
    from heedful.traces.error_lines import named_errors

    arguments = arguments_of(call.get("arguments") or {})
    lines = named_errors(str(event["error"]), arguments)
    surroundings = state.surroundings(arguments, folder)
    tool = str(event.get("tool") or "")
    blamed = frozenset(
        precondition.digest
        for precondition, line in product(
            preconditions_of(tool, arguments, surroundings), lines
        )
        if blames(precondition, line)
    )
    signatures = episodes.error_digests(event, call.get("arguments"))
    return FailedCall(call["at"], signatures, blamed)


async def reminder_news(memory: Memory) -> str:
    """Return a line for a person on what ended since the last one, "" without news."""
    if not await memory.store.read(memory.scope, reminders.has_news):
        return ""
    tally = await memory.store.write(memory.scope, reminders.take_news)
    line = str(tally)
    return f"heedful, since the last start: {line}" if line else ""
