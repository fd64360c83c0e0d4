"""What errors of common tools demand, whatever the tool and the repository."""

from heedful.lessons.contracts import find_contract
from tests.tables import cases

FILE = {"file_path": "/r/a.py"}


@cases(
    "error, name",
    {
        "read first": (
            "File has not been read yet. Read it first before writing to it.",
            "read first",
        ),
        "not unique": (
            (
                "Found 2 matches of the string to replace, but replace_all is false.\n"
                "String: x = 1"
            ),
            "not unique",
        ),
        "no change": (
            "No changes to make: old_string and new_string are exactly the same.",
            "no change",
        ),
        "a folder": ("EISDIR: illegal operation on a directory, read", "folder"),
        "an absent file has no contract": ("File does not exist.", ""),
        "another error": ("disk quota reached", ""),
    },
)
def test_an_error_of_a_file_tool_names_its_contract(error, name):
    contract = find_contract(FILE, error)
    assert (contract.name if contract else "") == name


@cases(
    "arguments, error, name",
    {
        "zsh": (
            {"command": "cd web && make"},
            "(eval):cd:1: no such file or directory: web",
            "folder of the shell",
        ),
        "bash": (
            {"command": "cd web"},
            "bash: line 1: cd: web: No such file or directory",
            "folder of the shell",
        ),
        "a push after others": (
            {"command": "git push"},
            " ! [rejected]        main -> main (fetch first)",
            "push rejected",
        ),
        "what a command prints is no error of a file tool": (
            {"command": "cat notes"},
            "File has not been read yet.",
            "",
        ),
        "no arguments": ({}, "String to replace not found in file.", ""),
    },
)
def test_a_command_has_other_contracts(arguments, error, name):
    contract = find_contract(arguments, error)
    assert (contract.name if contract else "") == name
