"""Names that a session gives to what it makes are no part of an error."""

from __future__ import annotations

from typing import Any

import pytest

from heedful.lessons.session_names import MadeNames, made_names

CONTENT = {"content": "print()"}


@pytest.mark.parametrize(
    ("command", "branches", "files"),
    [
        pytest.param("git checkout -q -b feat/x", {"feat/x"}, set(), id="checkout"),
        pytest.param("git branch fix main", {"fix"}, set(), id="branch"),
        pytest.param("git checkout main", set(), set(), id="not made"),
        pytest.param("mkdir -p build/cart", set(), {"cart"}, id="folder"),
        pytest.param("git commit -m fix", set(), set(), id="message"),
    ],
)
def test_a_command_makes_branches_and_files(
    command: str, branches: set[str], files: set[str]
) -> None:
    names = made_names([command])
    assert names.branches == branches
    assert names.files == files


@pytest.mark.parametrize(
    ("calls", "files"),
    [
        pytest.param([{"file_path": "/r/a/cart.py", **CONTENT}], {"cart.py"}, id="new"),
        pytest.param(
            [{"file_path": "/r/a/cart.py"}, {"file_path": "/r/a/cart.py", **CONTENT}],
            set(),
            id="read before",
        ),
    ],
)
def test_a_file_is_new_if_it_was_not_read_before(
    calls: list[dict[str, Any]], files: set[str]
) -> None:
    assert made_names(calls).files == files


@pytest.mark.parametrize(
    ("error", "call", "bare"),
    [
        pytest.param(
            "fatal: a branch named 'feat/x' already exists",
            "git checkout -b feat/x",
            "fatal: a branch named '<branch>' already exists",
            id="branch",
        ),
        pytest.param(
            "fatal: The current branch docs has no upstream branch.",
            "git push",
            "fatal: The current branch <branch> has no upstream branch.",
            id="branch that git names",
        ),
        pytest.param(
            "! [rejected] main -> main (fetch first)",
            "git push",
            "! [rejected] <branch> -> <branch> (fetch first)",
            id="branch that git refuses",
        ),
        pytest.param(
            "sed: cannot fix the text",
            "sed -i s/a/b/ x",
            "sed: cannot fix the text",
            id="plain word without git",
        ),
        pytest.param(
            "run: no task in a/cart.py",
            "run cart.py",
            "run: no task in <file>",
            id="file of the call",
        ),
        pytest.param(
            "run: no task in a/cart.py",
            "run all",
            "run: no task in a/cart.py",
            id="file that the call does not name",
        ),
    ],
)
def test_an_error_without_names_of_the_session(
    error: str, call: str, bare: str
) -> None:
    names = MadeNames(frozenset({"feat/x", "fix"}), frozenset({"cart.py"}))
    assert names.named_in(error, call).left_out(error) == bare
