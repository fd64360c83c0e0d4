"""The measure of what the hooks tell coding agents: `bench.quality.sessions`.

The sessions are made up; each line of `CALLS` is a tool, its arguments, what it wrote,
and the class of its failure, "" if it passed.
"""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from bench.quality import recordings, sessions
from bench.quality.recordings import Mend

MAKE = ("Bash", "make build", "make: *** No rule to make target 'lib'", "environment")
MAKE_PASSED = ("Bash", "make build", "built", "")
TEST = ("Bash", "npm test", "FAIL src/cart.test.ts: expected 3", "work")
READ = ("Read", {"file_path": "/srv/a/shop/src/cart.ts"}, "text", "")
EDIT = {"file_path": "/srv/a/shop/src/cart.ts", "old_string": "a", "new_string": "b"}
UNREAD = ("Edit", EDIT, "File has not been read yet. Read it first.", "file_tool")
EDITED = ("Edit", EDIT, "done", "")
ABSENT = (
    "Read",
    {"file_path": "/srv/a/shop/src/carts.ts"},
    "File does not exist.",
    "file_tool",
)


def make_row(number, calls, **fields):
    """Return a recorded session with these calls."""
    events: list[dict[str, Any]] = []
    events.append({"type": "user_message", "output": "Mend the shop."})
    for call, (tool, arguments, output, failure_class) in enumerate(calls):
        args = arguments if isinstance(arguments, str) else json.dumps(arguments)
        events.append({"type": "tool_call", "tool": tool, "call": call, "args": args})
        response = {
            "type": "tool_response",
            "tool": tool,
            "call": call,
            "output": output,
            "failed": bool(failure_class),
            "t": call,
        }
        if failure_class:
            response |= {
                "rule": "exit_code",
                "class": failure_class,
                "kind": f"{tool}: {output}",
            }
        events.append(response)
    return {
        "id": f"made-{number}",
        "task": "Mend the shop.",
        "environment": "ann/shop",
        "repo": "ann/shop",
        "start": f"2026-01-{number + 1:02}T10:00:00",
        "events": events,
        **fields,
    }


def make_sessions(*runs):
    """Return sessions, a day after each other, with their roots."""
    rows = [make_row(number, calls) for number, calls in enumerate(runs)]
    return recordings.by_environment(rows)["ann/shop"]


def replay(*runs):
    """Return what is counted in the replay of these sessions."""
    return asyncio.run(sessions.replay_environment("shop", make_sessions(*runs)))


# -- recordings


@pytest.mark.parametrize(
    ("calls", "mends"),
    [
        pytest.param(
            [
                ("Bash", "go test ./e2e", "Error: build tag is missing", "environment"),
                ("Bash", "go test -tags=e2e ./e2e", "ok", ""),
            ],
            [Mend(form="substitution", words=("-tags=e2e",))],
            id="a substitution is the words that came",
        ),
        pytest.param(
            [ABSENT, READ],
            [Mend(form="path", words=("/srv/a/shop/src/cart.ts",))],
            id="the next file with a like name",
        ),
        pytest.param(
            [UNREAD, READ, EDITED],
            [Mend(form="contract", words=("Read",))],
            id="the step before the edit that passed",
        ),
        pytest.param(
            [UNREAD, ("Edit", {**EDIT, "replace_all": True}, "done", "")],
            [Mend(form="contract", words=("replace_all",))],
            id="the argument that changed",
        ),
        pytest.param([TEST, (*TEST[:3], "")], [], id="the work itself has none"),
    ],
)
def test_what_puts_a_failure_right(calls, mends):
    (session,) = make_sessions(calls)
    failure = session.actions[0]
    assert recordings.find_mends(failure, [failure]) == mends


# -- the replay


def test_only_calls_that_are_asked_about_count_as_announced():
    # In the second session the call passes, and is not asked about when it fails.
    counts = replay([MAKE], [MAKE_PASSED, MAKE], [MAKE]).counts
    assert counts["could"] == 2
    assert counts["could_asked"] == 1
    assert counts["new"] == 1


def test_an_announcement_has_held_or_the_call_failed_otherwise_or_passed():
    other = ("Bash", "make build", "make: write error: disk is full", "environment")
    counts = replay([MAKE], [MAKE], [MAKE], [other], [MAKE], [MAKE_PASSED]).counts
    assert counts["again.shown"] == 5
    assert counts["again.held"] == 2
    assert counts["again.failed_otherwise"] == 2
    assert counts["again.passed"] == 1
    outcomes = ("held", "failed_otherwise", "passed")
    shown_count = sum(counts[f"before.{outcome}"] for outcome in outcomes)
    assert counts["before.shown"] == shown_count


def test_the_rows_say_what_is_expected():
    tally = sessions.Tally(counts=Counter({"before.shown": 4, "before.passed": 1}))
    rows = {row.key: row for row in sessions.list_rows("sessions.coding", tally)}
    assert rows["sessions.coding.passed"].ours == 0.25
    assert "expected at most 0.1" in rows["sessions.coding.passed"].anchor
    assert set(sessions.EXPECTED) - set(rows) == {
        "sessions.coding.quiet_lines",
        "sessions.sql.announced_of_all",
        "sessions.sql.passed",
        "sessions.sql.known_after",
        "sessions.sql.new_known",
        "sessions.sql.brief_kept",
        "sessions.bash.passed",
        "sessions.minutes",
    }


def test_quiet_sessions_are_replayed_by_themselves():
    tally = replay([TEST], [READ, UNREAD], [TEST], [MAKE])
    row = sessions.replay_quiet("sessions.coding", tally)
    assert row.ours == 0
    assert row.anchor.startswith("lines in 3 of 3 sessions")
