"""Whether the mistakes of which a session was told came again until it ended.

A result with the error is a repetition if it came after the session was told, also that
of the very call that was warned: many agents read a warning with the result only. If no
such result came, but a call like it ended, the session was right. Otherwise there is no
verdict.
"""

import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from heedful.episodes.error_lines import named_errors
from heedful.lessons.action import arguments_of
from heedful.lessons.call_marks import (
    FORGETTING_CODES,
    Mark,
    contract_marks,
    failed_marks,
    has_unread,
    marks_of,
    touched_path,
    whole_call,
)
from heedful.lessons.contracts import find_contract
from heedful.lessons.lesson_check import Alarm, LessonCheck
from heedful.lessons.session_names import MadeNames, made_names
from heedful.memory.memory import Memory
from heedful.store import episodes, exposures, reminders
from heedful.validation import Fields

Events = Sequence[Fields]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCall:
    """A call: when it ended, its tool or programs, and its marks.

    `failed` are the marks that failed, and `signatures` the digests of its errors; both
    are empty if it worked. A call without a result ended when the next one began.
    """

    end: float
    tool: str
    marks: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    signatures: frozenset[str] = frozenset()

    def repeats(self, reminder: reminders.OpenReminder) -> bool:
        """Return True if the mistake of a reminder came in this call."""
        if reminder.signature:
            return reminder.signature in self.signatures
        return reminder.mark in self.failed


async def settle_reminders(
    memory: Memory,
    session: str,
    events: Events,
    folder: str,
) -> None:
    """Record for each reminder of a session that ends whether its mistake came again.

    Paths below the `folder` of the repository are relative to it.
    """
    pending = await memory.store.read(memory.scope, reminders.open_reminders, session)
    if not pending:
        return

    calls = _finished_calls(events, folder)
    verdicts = {
        reminder.subject: _verdict_on(reminder, calls, folder) for reminder in pending
    }
    ended_at = max((event["at"] for event in events), default=time.time())
    await memory.store.write(
        memory.scope, reminders.settle, session, verdicts=verdicts, at=ended_at
    )


def _verdict_on(
    reminder: reminders.OpenReminder, calls: Sequence[FinishedCall], folder: str
) -> reminders.Verdict:
    """Return how a reminder ended, and how many calls its mistake cost the session."""
    lost = [call for call in calls if call.repeats(reminder)]
    later = [call for call in calls if call.end > reminder.at]
    if any(call in lost for call in later):
        return reminders.Verdict(repeated=True, calls=len(lost))

    like = {call.tool for call in lost}
    action = reminder.action
    if action is not None:
        marks = marks_of(action.tool, action.given, folder)
        like.add(_programs_of(action.tool, marks))
    if any(call.tool in like or reminder.mark in call.marks for call in later):
        return reminders.Verdict(repeated=False, calls=len(lost))
    return reminders.Verdict(calls=len(lost))


def _programs_of(tool: str, marks: Sequence[Mark]) -> str:
    """Return the programs that a call runs, or its tool."""
    programs = {mark.tool for mark in marks if mark.kind == "name"}
    return " ".join(sorted(programs)) or tool


def _finished_calls(events: Events, folder: str) -> list[FinishedCall]:
    """Return the calls of a session that ended, with what they had in common."""
    read = set[str]()
    calls: dict[str, Fields] = {}
    answered = set[str]()
    finished: list[FinishedCall] = []
    calls_made = [event for event in events if event["type"] == "tool_call"]
    names = made_names(call.get("arguments") or {} for call in calls_made)
    for event in events:
        # A result without an id belongs to the last call of the tool.
        name = event.get("call") or f"of {event.get('tool')}"
        if event["type"] == "system_event" and event.get("code") in FORGETTING_CODES:
            read.clear()
        elif event["type"] == "tool_call":
            calls[name] = event
        elif event["type"] == "tool_response":
            call = calls.get(name, event)
            answered.add(name)
            arguments = arguments_of(call.get("arguments") or {})
            finished.append(
                _finished_call(event, call, read=read, folder=folder, names=names)
            )
            if not event["error"]:
                read.update(filter(None, [touched_path(arguments, folder)]))

    starts = [call["at"] for call in calls_made]
    for call in (calls[name] for name in calls.keys() - answered):
        later = [start for start in starts if start > call["at"]]
        if later:
            end = {**call, "at": min(later)}
            finished.append(
                _finished_call(end, call, read=read, folder=folder, names=names)
            )
    return finished


def _finished_call(
    event: Fields,
    call: Fields,
    *,
    read: Set[str],
    folder: str,
    names: MadeNames,
) -> FinishedCall:
    """Return a call with its result."""
    arguments = arguments_of(call.get("arguments") or {})
    tool = str(event.get("tool") or "")
    marks = marks_of(tool, arguments, folder)
    unread = has_unread(arguments, read, folder)
    contracts = contract_marks(tool, arguments, unread=unread)
    finished = FinishedCall(
        end=event["at"],
        tool=_programs_of(tool, marks),
        marks=frozenset(mark.digest for mark in (*marks, *contracts)),
    )
    if not event["error"]:
        return finished

    error = str(event["error"])
    lines = named_errors(error, arguments)
    contract = find_contract(arguments, error, lines)
    failed = failed_marks(tool, arguments, lines, contract=contract, folder=folder)
    return replace(
        finished,
        failed=frozenset(mark.digest for mark in failed),
        signatures=episodes.error_digests(event, call.get("arguments"), names),
    )


async def measure_checks(memory: Memory, events: Events) -> None:
    """Count what checks of lessons found in the calls of a run.

    A call that worked although a check warned of it is a false alarm. Raises
    StoreError.
    """
    checks = await memory.store.read(memory.scope, exposures.active_checks, calls=True)
    alarms = _list_alarms(events, checks) if checks else ()
    if alarms:
        await memory.store.write(memory.scope, exposures.count_alarms, alarms)


def _list_alarms(events: Events, checks: Sequence[LessonCheck]) -> tuple[Alarm, ...]:
    """Return what the checks of lessons find in the calls of a run."""
    worked = {
        (event["agent"], event["call"])
        for event in events
        if event["type"] == "tool_response" and event["call"] and not event["error"]
    }
    alarms = []
    for event in events:
        if event["type"] != "tool_call":
            continue
        call = whole_call(event["tool"], event["arguments"] or {})
        is_false = (event["agent"], event["call"]) in worked
        alarms += [
            Alarm(check.lesson, is_false=is_false)
            for check in checks
            if check.refuses_call(call.tool, call.name)
        ]
    return tuple(alarms)
