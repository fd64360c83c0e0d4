"""What errors of common tools demand, whatever the tool and the repository."""

from __future__ import annotations

from typing import Any

import pytest

from heedful.lessons.contracts import find_contract

FILE = {"file_path": "/r/a.py"}


@pytest.mark.parametrize(
    ("error", "name"),
    [
        pytest.param(
            "File has not been read yet. Read it first before writing to it.",
            "read first",
            id="read first",
        ),
        pytest.param(
            "Found 2 matches of the string to replace, but replace_all is false.\n"
            "String: x = 1",
            "not unique",
            id="not unique",
        ),
        pytest.param(
            "No changes to make: old_string and new_string are exactly the same.",
            "no change",
            id="no change",
        ),
        pytest.param(
            "EISDIR: illegal operation on a directory, read", "folder", id="a folder"
        ),
        pytest.param("File does not exist.", "", id="an absent file has no contract"),
        pytest.param("disk quota reached", "", id="another error"),
    ],
)
def test_an_error_of_a_file_tool_names_its_contract(error: str, name: str) -> None:
    contract = find_contract(FILE, error)
    assert (contract.name if contract else "") == name


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        pytest.param(
            {"command": "cd web && make"},
            "(eval):cd:1: no such file or directory: web",
            "folder of the shell",
            id="zsh",
        ),
        pytest.param(
            {"command": "cd web"},
            "bash: line 1: cd: web: No such file or directory",
            "folder of the shell",
            id="bash",
        ),
        pytest.param(
            {"command": "git push"},
            " ! [rejected]        main -> main (fetch first)",
            "push rejected",
            id="a push after others",
        ),
        pytest.param(
            {"command": "cat notes"},
            "File has not been read yet.",
            "",
            id="what a command prints is no error of a file tool",
        ),
        pytest.param({}, "String to replace not found in file.", "", id="no arguments"),
    ],
)
def test_a_command_has_other_contracts(
    arguments: dict[str, Any], error: str, name: str
) -> None:
    contract = find_contract(arguments, error)
    assert (contract.name if contract else "") == name
