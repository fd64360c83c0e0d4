"""What a call has in common with calls that failed."""

from __future__ import annotations

from typing import Any

import pytest

from heedful.lessons.call_marks import (
    FileReading,
    Mark,
    contract_marks,
    failed_marks,
    marks_of,
    whole_call,
)
from heedful.lessons.contracts import find_contract

ABSENT = "File does not exist."


def failed(tool: str, arguments: Any, error: str) -> set[Mark]:
    """Return the marks of a failure, but not that of the whole call."""
    fields = arguments if isinstance(arguments, dict) else {"command": arguments}
    contract = find_contract(fields, error, [error])
    marks = failed_marks(tool, fields, [error], contract, "/r")
    kinds = ("path", "name")
    return {mark for mark in marks if mark.kind in kinds}


@pytest.mark.parametrize(
    ("tool", "one", "other", "are_same"),
    [
        pytest.param("Bash", "make x", "make x 2>&1 | tail -5", True, id="its output"),
        pytest.param("Bash", "make x", "make y", False, id="another command"),
        pytest.param("Bash", "ls /r/src", "ls src", True, id="from the repository"),
        pytest.param("Skill", {"skill": "a"}, {"skill": "a"}, True, id="same values"),
        pytest.param("Skill", {"skill": "a"}, {"skill": "b"}, False, id="other values"),
    ],
)
def test_a_call_is_the_same_with_the_same_arguments(
    tool: str, one: Any, other: Any, are_same: bool
) -> None:
    marks = [whole_call(tool, arguments, "/r") for arguments in (one, other)]
    assert (marks[0] == marks[1]) is are_same


@pytest.mark.parametrize(
    ("tool", "arguments", "error", "mark"),
    [
        pytest.param(
            "Bash",
            "cd a && rtk bun test",
            "error: unrecognized subcommand 'bun'",
            Mark("name", "bun", "rtk"),
            id="a word of a program",
        ),
        pytest.param(
            "Bash",
            "X=1 && CI=1 npm ci --up",
            "unknown option '--up'",
            Mark("name", "--up", "npm"),
            id="a program after settings",
        ),
        pytest.param(
            "Bash",
            "gh pr diff 1 --stat",
            "unknown flag: --stat",
            Mark("name", "--stat", "gh"),
            id="an option",
        ),
        pytest.param(
            "run_sql",
            {"query": "select a from pets.owners"},
            "Table 'pets.owners' doesn't exist",
            Mark("name", "owners", "run_sql"),
            id="the last part of a dotted name",
        ),
        pytest.param(
            "Grep",
            {"pattern": "x", "path": "/r/lib/old"},
            "Path does not exist: /r/lib/old",
            Mark("path", "lib/old"),
            id="the path of a call, for every tool",
        ),
        pytest.param(
            "Read",
            {"file_path": "/r/a.md"},
            ABSENT,
            Mark("path", "a.md"),
            id="a path that the error does not say",
        ),
    ],
)
def test_an_error_marks_what_it_names(
    tool: str, arguments: Any, error: str, mark: Mark
) -> None:
    assert mark in failed(tool, arguments, error)


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        pytest.param("Bash", "npm test", "error: 'bun' is missing", id="another word"),
        pytest.param(
            "run_sql",
            {"query": "show tables like 'owners'"},
            "Table 'pets.owners' doesn't exist",
            id="a value of a query",
        ),
        pytest.param(
            "Edit", {"file_path": "a.py"}, "String not found in file.", id="its text"
        ),
        pytest.param(
            "Grep",
            {"path": "src"},
            "ENOENT: no such file or directory, posix_spawn '/srv/tool'",
            id="the tool itself is broken",
        ),
    ],
)
def test_an_error_marks_nothing_that_it_does_not_name(
    tool: str, arguments: Any, error: str
) -> None:
    assert failed(tool, arguments, error) == set()


EDIT = {"file_path": "/r/b.py", "old_string": "x", "new_string": "y"}


@pytest.mark.parametrize(
    ("arguments", "read", "names"),
    [
        pytest.param(EDIT, "abcdef", ["read first"], id="a file that was not read"),
        pytest.param(EDIT, "a", [], id="a session that was resumed"),
        pytest.param({**EDIT, "new_string": "x"}, "", ["no change"], id="equal texts"),
    ],
)
def test_a_call_is_about_to_break_a_contract(
    arguments: dict[str, str], read: str, names: list[str]
) -> None:
    reading = FileReading(frozenset(read))
    marks = contract_marks("Edit", arguments, reading, "/r")
    assert [mark.name for mark in marks] == names


def test_a_file_that_was_read_may_be_edited() -> None:
    reading = FileReading(frozenset("cdefg")).after({"file_path": "/r/b.py"}, "/r")
    assert contract_marks("Edit", EDIT, reading, "/r") == ()


def test_a_call_has_one_mark_as_a_whole() -> None:
    kinds = [mark.kind for mark in marks_of("Read", {"file_path": "/r/a.md"}, "/r")]
    assert kinds[:2] == ["call", "path"]
    assert kinds.count("call") == 1


def test_an_option_after_an_escaped_semicolon_begins_no_command() -> None:
    marks = marks_of("Bash", {"command": r"find . -exec a {} \; -exec b {} \;"})
    assert {mark.tool for mark in marks if mark.kind == "name"} == {"find"}
