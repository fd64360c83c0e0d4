"""Preconditions: what calls take for granted, and what an error blames."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.lessons.preconditions import (
    MAX_PRECONDITIONS,
    Precondition,
    SessionState,
    Surroundings,
    blames,
    describe,
    preconditions_of,
)

ROOT = "/srv/app"
HERE = Surroundings(ROOT)
EDIT = {"file_path": f"{ROOT}/src/a.py", "old_string": "x", "new_string": "y"}


def assumed(
    tool: str, arguments: Any, surroundings: Surroundings = HERE
) -> set[tuple[str, ...]]:
    """Return what a call takes for granted, as tuples of template and words."""
    if isinstance(arguments, str):
        arguments = {"command": arguments}
    preconditions = preconditions_of(tool, arguments, surroundings)
    return {(assumption.template, *assumption.words) for assumption in preconditions}


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        pytest.param(
            "Read", {"file_path": f"{ROOT}/docs/a.md"}, ("path", "docs/a.md"), id="path"
        ),
        pytest.param(
            "Read",
            {"file_path": f"{ROOT}/docs/api/v1/a.md"},
            ("folder", "docs/api"),
            id="folder",
        ),
        pytest.param(
            "Read",
            {"file_path": f"{ROOT}/log.txt", "limit": 9},
            ("whole file", "log.txt", "Read", "limit"),
            id="a part of a file",
        ),
        pytest.param(
            "Edit", {**EDIT, "new_string": "x"}, ("no change", "Edit"), id="no change"
        ),
        pytest.param(
            "Bash",
            "cd x && npm run build --frozen",
            ("word", "--frozen", "npm run"),
            id="word of a program with its sub-command",
        ),
        pytest.param(
            "Bash",
            "gh api repos/a/pulls/17/replies -X POST",
            ("shape", "repos/a/pulls/#/replies", "gh api", "-X"),
            id="shape without its number",
        ),
        pytest.param(
            "Bash",
            f"go test {ROOT}/e2e/... -tags=e2e",
            ("options", "e2e", "go test", "-tags=e2e"),
            id="path with the options that have values",
        ),
        pytest.param(
            "Bash",
            f"cat {ROOT}/a.txt | tail -3",
            ("command", "cat a.txt"),
            id="command",
        ),
        pytest.param(
            "Task",
            {"agent": "reviewer", "prompt": "p" * 99},
            ("argument", "reviewer", "Task", "agent"),
            id="short argument",
        ),
        pytest.param(
            "sql", "SELECT a FROM Orders", ("table", "orders", "sql"), id="table"
        ),
        pytest.param(
            "sql",
            "SELECT o.total FROM orders o WHERE name = 'paid'",
            ("column", "total", "sql", "orders"),
            id="column of a table",
        ),
    ],
)
def test_a_call_takes_for_granted(tool: str, arguments: Any, words: Any) -> None:
    assert words in assumed(tool, arguments)


def test_a_quoted_text_of_a_query_is_no_column() -> None:
    words = {word for _, word, *_ in assumed("sql", "SELECT a FROM t WHERE b = 'paid'")}
    assert words == {"a", "b", "t", "select", "from", "where"}


def test_only_a_file_that_the_session_has_not_read_is_unread() -> None:
    state = SessionState()
    first = state.surroundings(EDIT, ROOT)
    assert ("unread file", "Edit", "resumed") in assumed("Edit", EDIT, first)
    for number in range(5):
        state = state.after_pass({"file_path": f"b{number}.py"}, ROOT)
    after_five = state.surroundings(EDIT, ROOT)
    assert ("unread file", "Edit", "") in assumed("Edit", EDIT, after_five)
    search = state.after_pass({"path": "src/a.py", "pattern": "x"}, ROOT)
    assert search == state
    read = state.after_pass({"file_path": "src/a.py"}, ROOT)
    templates = {
        words[0] for words in assumed("Edit", EDIT, read.surroundings(EDIT, ROOT))
    }
    assert "unread file" not in templates


@pytest.mark.parametrize(
    ("template", "words", "error", "blamed"),
    [
        pytest.param("path", ("a.md",), "File does not exist.", True, id="absent path"),
        pytest.param("path", ("a.md",), "permission denied", False, id="another error"),
        pytest.param(
            "whole file", ("a", "Read"), "content exceeds 25000 tokens", True, id="size"
        ),
        pytest.param(
            "unread file",
            ("Edit", ""),
            "File has not been read yet.",
            True,
            id="unread",
        ),
        pytest.param(
            "no change",
            ("Edit",),
            "old_string and new_string are the same",
            True,
            id="same",
        ),
        pytest.param(
            "word",
            ("--up", "git push"),
            "error: unknown option `up'",
            True,
            id="option",
        ),
        pytest.param(
            "word", ("--up", "git push"), "fatal: no upstream", False, id="not named"
        ),
        pytest.param(
            "word", ("b", "a"), "unknown 'a' near 'b'", False, id="only the first quote"
        ),
        pytest.param(
            "table",
            ("orders", "sql"),
            "Table 'shop.orders' doesn't exist",
            True,
            id="table",
        ),
        pytest.param(
            "column",
            ("total", "sql", "t"),
            "Unknown column 'o.total'",
            True,
            id="column",
        ),
        pytest.param("command", ("make",), "FAILED a.py::b", False, id="failed test"),
        pytest.param(
            "command",
            ("make",),
            "src/a.ts(3,1): error TS1",
            False,
            id="place of a file",
        ),
        pytest.param("command", ("make",), "no upstream", True, id="command"),
        pytest.param(
            "options",
            ("e2e", "go test"),
            "build constraints exclude e2e",
            True,
            id="options",
        ),
        pytest.param(
            "options", ("e2e", "go test"), "no network", False, id="options not named"
        ),
    ],
)
def test_an_error_blames(template: Any, words: Any, error: str, blamed: bool) -> None:
    assert blames(Precondition(template, words), error) is blamed


def test_a_secret_is_in_no_precondition() -> None:
    key = "AKIAIOSFODNN7EXAMPLE"
    assert key not in str(assumed("Bash", f"aws --key {key} ls"))
    assert key not in str(assumed("pay", {"key": key}))


@given(
    st.text(),
    st.dictionaries(
        st.sampled_from(["command", "file_path", "path", "query", "limit", "x"]),
        st.text() | st.integers(),
    ),
    st.text(),
)
def test_any_call_has_few_preconditions_that_can_be_told(
    tool: str, arguments: dict[str, Any], error: str
) -> None:
    surroundings = Surroundings("/r", has_read=False)
    preconditions = preconditions_of(tool, arguments, surroundings)
    assert len(preconditions) <= MAX_PRECONDITIONS
    for precondition in preconditions:
        assert describe(precondition)
        assert blames(precondition, error) in (True, False)
