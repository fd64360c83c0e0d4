"""What a call has in common with calls that failed."""

from typing import Any

from heedful.lessons.call_marks import (
    Mark,
    contract_marks,
    failed_marks,
    has_unread,
    marks_of,
    whole_call,
)
from heedful.lessons.contracts import find_contract
from tests.tables import cases

ABSENT = "File does not exist."


def failed(tool: str, arguments: Any, error: str) -> set[Mark]:
    """Return the marks of a failure, but not that of the whole call."""
    fields = arguments if isinstance(arguments, dict) else {"command": arguments}
    contract = find_contract(fields, error, [error])
    marks = failed_marks(tool, fields, [error], contract, "/r")
    kinds = ("path", "name")
    return {mark for mark in marks if mark.kind in kinds}


@cases(
    "tool, one, other, are_same",
    {
        "its output": ("Bash", "make x", "make x 2>&1 | tail -5", True),
        "another command": ("Bash", "make x", "make y", False),
        "from the repository": ("Bash", "ls /r/src", "ls src", True),
        "same values": ("Skill", {"skill": "a"}, {"skill": "a"}, True),
        "other values": ("Skill", {"skill": "a"}, {"skill": "b"}, False),
    },
)
def test_a_call_is_the_same_with_the_same_arguments(tool, one, other, are_same):
    marks = [whole_call(tool, arguments, "/r") for arguments in (one, other)]
    assert (marks[0] == marks[1]) is are_same


@cases(
    "tool, arguments, error, mark",
    {
        "a word of a program": (
            "Bash",
            "cd a && rtk bun test",
            "error: unrecognized subcommand 'bun'",
            Mark("name", "bun", "rtk"),
        ),
        "a program after settings": (
            "Bash",
            "X=1 && CI=1 npm ci --up",
            "unknown option '--up'",
            Mark("name", "--up", "npm"),
        ),
        "an option": (
            "Bash",
            "gh pr diff 1 --stat",
            "unknown flag: --stat",
            Mark("name", "--stat", "gh"),
        ),
        "the last part of a dotted name": (
            "run_sql",
            {"query": "select a from pets.owners"},
            "Table 'pets.owners' doesn't exist",
            Mark("name", "owners", "run_sql"),
        ),
        "the path of a call, for every tool": (
            "Grep",
            {"pattern": "x", "path": "/r/lib/old"},
            "Path does not exist: /r/lib/old",
            Mark("path", "lib/old"),
        ),
        "a path that the error does not say": (
            "Read",
            {"file_path": "/r/a.md"},
            ABSENT,
            Mark("path", "a.md"),
        ),
    },
)
def test_an_error_marks_what_it_names(tool, arguments, error, mark):
    assert mark in failed(tool, arguments, error)


@cases(
    "tool, arguments, error",
    {
        "another word": ("Bash", "npm test", "error: 'bun' is missing"),
        "a value of a query": (
            "run_sql",
            {"query": "show tables like 'owners'"},
            "Table 'pets.owners' doesn't exist",
        ),
        "its text": ("Edit", {"file_path": "a.py"}, "String not found in file."),
        "the tool itself is broken": (
            "Grep",
            {"path": "src"},
            "ENOENT: no such file or directory, posix_spawn '/srv/tool'",
        ),
    },
)
def test_an_error_marks_nothing_that_it_does_not_name(tool, arguments, error):
    assert failed(tool, arguments, error) == set()


EDIT = {"file_path": "/r/b.py", "old_string": "x", "new_string": "y"}


@cases(
    "arguments, read, names",
    {
        "a file that was not read": (EDIT, "abcdef", ["read first"]),
        "a session that was resumed": (EDIT, "a", []),
        "equal texts": ({**EDIT, "new_string": "x"}, "", ["no change"]),
    },
)
def test_a_call_is_about_to_break_a_contract(arguments, read, names):
    unread = has_unread(arguments, set(read), "/r")
    marks = contract_marks("Edit", arguments, unread=unread)
    assert [mark.name for mark in marks] == names


def test_a_file_that_was_read_may_be_edited():
    unread = has_unread(EDIT, {*"cdefg", "b.py"}, "/r")
    assert contract_marks("Edit", EDIT, unread=unread) == ()


def test_a_call_has_one_mark_as_a_whole():
    kinds = [mark.kind for mark in marks_of("Read", {"file_path": "/r/a.md"}, "/r")]
    assert kinds[:2] == ["call", "path"]
    assert kinds.count("call") == 1


def test_an_option_after_an_escaped_semicolon_begins_no_command():
    marks = marks_of("Bash", {"command": r"find . -exec a {} \; -exec b {} \;"})
    assert {mark.tool for mark in marks if mark.kind == "name"} == {"find"}
