"""Failures of which no event tells: read from the agent's file of the session."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heedful_agents.transcripts import failed_calls
from tests.hooks.support import run_event

UNREAD = "File has not been read yet. Read it first before writing to it."
EDIT = {"file_path": "/srv/shop/cart.py", "old_string": "a", "new_string": "b"}


def call_line(id: str, tool: str, arguments: Any) -> str:
    part = {"type": "tool_use", "id": id, "name": tool, "input": arguments}
    message = {"role": "assistant", "content": [part]}
    return json.dumps({"type": "assistant", "message": message})


def result_line(id: str, text: str, *, is_error: bool = True, **fields: Any) -> str:
    part: dict[str, Any] = {"type": "tool_result", "tool_use_id": id}
    part["content"] = text
    if is_error:
        part |= {"is_error": True}
    message = {"role": "user", "content": [part]}
    return json.dumps({"type": "user", "message": message, **fields})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of a session in which an edit failed."""
    path = tmp_path / "abc.jsonl"
    lines = [
        call_line("c1", "Read", {"file_path": "/srv/shop/a.py"}),
        result_line("c1", "a = 1", is_error=False),
        call_line("c2", "Edit", EDIT),
        result_line("c2", UNREAD),
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_failed_call_is_found_with_its_arguments(file: Path) -> None:
    [(call, result)] = failed_calls(str(file))
    assert call.tool == result.tool == "Edit"
    assert call.arguments == EDIT
    assert result.error == UNREAD
    assert result.call == "c2"


def test_lines_that_cannot_be_read_are_left_out(file: Path) -> None:
    bad = [
        '{"is_error": true',
        '["tool_use", {"is_error": true}]',
        '{"message": {"role": 7, "content": "tool_use \\"is_error\\""}}',
        result_line("c9", "a result without its call"),
        result_line("c2", "of a subagent", isSidechain=True),
    ]
    half = result_line("c2", "is still written")[:-9]
    file.write_text("\n".join([*bad, file.read_text(), half]))
    assert [result.error for _, result in failed_calls(str(file))] == [UNREAD]


def kept_errors(folder: Path) -> list[str]:
    """Return the errors of the events that are kept, in order."""
    with closing(sqlite3.connect(folder / "heedful.db")) as db:
        rows = db.execute("select record from event where failed order by n")
        return [json.loads(record)["error"] for (record,) in rows]


def test_a_failure_without_an_event_is_kept_at_the_end_of_a_turn(
    file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    database = {"HEEDFUL_DB": str(folder / "heedful.db")}
    data = {"session_id": "first", "transcript_path": str(file)}
    done = run_event(folder, tmp_path, "Stop", data, database)
    assert done.err == ""
    assert kept_errors(folder) == [UNREAD]


def test_a_failure_without_an_event_is_kept_once_and_explained(
    file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    database = {"HEEDFUL_DB": str(folder / "heedful.db"), "HEEDFUL_HOLDOUT": "0"}
    trust = {**database, "HEEDFUL_TRUST": '["tool"]'}
    # A tool's demand is told when a second session has not kept it.
    for session in ("first", "second"):
        data = {
            "session_id": session,
            "transcript_path": str(file),
            "tool_name": "Bash",
            "tool_input": {"command": "ls"},
            "tool_use_id": "c3",
        }
        done = run_event(folder, tmp_path, "PreToolUse", data, trust)
        assert done.err == ""
        assert run_event(folder, tmp_path, "PreToolUse", data, trust).out == ""
        assert kept_errors(folder) == [UNREAD]
        assert ("Read the file" in done.out) == (session == "second")
        end = {"session_id": session, "transcript_path": str(file)}
        run_event(folder, tmp_path, "SessionEnd", end, trust)
        assert kept_errors(folder) == []
