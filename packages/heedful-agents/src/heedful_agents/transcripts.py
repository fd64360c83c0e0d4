"""Failed calls of which no event told: read from the agent's own file of its session.

Claude Code fires no event when an Edit, a Read or a Grep fails (changelog of 2.1.240).
Its file of the session, whose path comes with each event, has the call and the error.
Only the end of the file is read, and only by a hook process: a service does not read a
path that a client names.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from heedful.episodes.episode import Event
from heedful.errors import InvalidInput

# What an agent writes between two events is rarely longer.
MAX_TRANSCRIPT_TAIL_BYTES = 256 * 1024
_ERROR_MARK = b'"is_error"'
_CALL_MARK = b'"tool_use"'


class FailedCall(NamedTuple):
    """A call, and the result that says how it failed."""

    call: Event
    result: Event


def failed_calls(path: object) -> Sequence[FailedCall]:
    """Return the failed calls at the end of a session's file, each with its result.

    The first call is first. Returns none if `path` is not the path of such a file, or
    if the file cannot be read.
    """
    if not isinstance(path, str) or not path.endswith(".jsonl"):
        return []
    try:
        events = list(_events_of(_last_lines(Path(path))))
    except OSError:
        return []

    calls = {event.call: event for event in events if event.type == "tool_call"}
    return [
        FailedCall(calls[event.call], event)
        for event in events
        if event.type == "tool_response" and event.error and event.call in calls
    ]


def _last_lines(path: Path) -> list[bytes]:
    """Return the whole lines at the end of a regular file. Raises OSError."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - MAX_TRANSCRIPT_TAIL_BYTES)
        file.seek(start)
        lines = file.read(MAX_TRANSCRIPT_TAIL_BYTES).split(b"\n")
    # The last line may still be written, and the first one may have lost its beginning.
    return lines[1 if start else 0 : -1]


def _events_of(lines: Sequence[bytes]) -> Iterator[Event]:
    """Yield the calls in lines of the file, and the results of the agent itself.

    A line that is none of the format is left out, and all are if nothing failed.
    """
    if not any(_ERROR_MARK in line for line in lines):
        return

    # Seldom does a call fail, and the reader is slow to import.
    from heedful_agents.readers.claude_code import entry_events

    names: dict[str, str] = {}
    for line in lines:
        if _ERROR_MARK in line or _CALL_MARK in line:
            # A subagent's calls are told by its own events.
            with suppress(ValueError, RecursionError, InvalidInput):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("isSidechain") is not True:
                    yield from entry_events(entry, names)
