"""What failed: a tool, or the program that the command of a shell ran in the end."""

import pytest

from heedful.lessons.identity import failing_tool, failure_signature
from tests.tables import cases

PROGRAMS = {
    "the program": ("npm test", "npm"),
    "a folder first": ("cd app && npm test", "npm"),
    "a filter behind a pipe": ("npm test 2>&1 | tail -5", "npm"),
    "a report of the end": ("npm test || echo failed", "npm"),
    "an exit": ("npm test || exit 1", "npm"),
    "no failure of the line": ("npm test || true", "npm"),
    "a pause at the end": ("docker compose up -d && sleep 5", "docker"),
    "back to the folder": ("make docs && cd ..", "make"),
    "back to the folder before": ("pushd docs; make html; popd", "make"),
    "a choice": ("case $1 in all) make all ;; esac", "make"),
    "variables": ("CI=1 env NODE_ENV=test npm test", "npm"),
    "the rights of another user": ("sudo npm test", "npm"),
    "a limit of time": ("timeout 60 npm test", "npm"),
    "a limit with an option": ("timeout -k 5 60 npm test", "npm"),
    "a measure of time": ("time npm test", "npm"),
    "a process that stays": ("nohup ./serve.sh --port 80 > log &", "serve.sh"),
    "a low priority": ("nice -n 10 make all", "make"),
    "a process in place of the shell": ("exec gunicorn app:main", "gunicorn"),
    "no function of the shell": ("command git status", "git"),
    "arguments from a file": ("xargs -n 1 eslint < files.txt", "eslint"),
    "a module of Python": ("python3.11 -m pytest -q", "pytest"),
    "a script of Python": ("python3 build.py", "python"),
    "an environment": ("uv run pytest -q", "pytest"),
    "an environment of Poetry": ("poetry run pytest -q", "pytest"),
    "gems of a bundle": ("bundle exec rspec", "rspec"),
    "a package of npm": ("npm exec tsc", "tsc"),
    "a package of pnpm": ("pnpm exec eslint src", "eslint"),
    "a package that is fetched": ("npx tsc --noEmit", "tsc"),
    "a line of its own": ("bash -lc 'cd app; make all'", "make"),
    "a condition": ("if test -f a; then make all; fi", "make"),
    "a repetition": ("for f in *.go; do go vet $f; done", "go"),
    "a folder before its name": ("/usr/local/bin/terraform apply", "terraform"),
    "a program of Windows": ("'C:\\tools\\cargo.exe' build", "cargo"),
    "the last of several": ("make all && make check && ./run.sh", "run.sh"),
    "nothing but a folder": ("cd missing", "cd"),
}


@cases("command, program", PROGRAMS)
def test_what_failed_in_a_shell_is_the_program(command: str, program: str):
    assert failing_tool("Bash", {"command": command}) == program
    assert failing_tool("run_shell_command", {"cmd": command}) == program


AUTHORS = {
    "an earlier program of the line": (
        "mkdir -p out && cp a out && ls out",
        "cp: cannot stat 'a': No such file or directory",
        "cp",
    ),
    "a filter": ("cat a.json | jq .name", "jq: error: syntax error", "jq"),
    "a wrapper": ("npx eslint", "bash: line 1: npx: command not found", "npx"),
    "none of the line": ("docker ps", "permission denied", "docker"),
}


@cases("command, error, program", AUTHORS)
def test_an_error_names_the_program_that_wrote_it(
    command: str, error: str, program: str
):
    assert failing_tool("Bash", {"command": command}, error) == program


OTHERS = {
    "a tool with arguments": ("read_page", {"title": "Travel"}, "read_page"),
    "a tool with a text": ("search", "how to travel", "search"),
    "a query named command": ("mysql_query", {"command": "SELECT 1"}, "mysql_query"),
    "a shell with a text": ("shell", "ls -l", "ls"),
    "the shell of Codex": ("exec_command", "ls -l", "ls"),
    "the shell of Cursor": ("run_terminal_cmd", "ls -l", "ls"),
    "a shell without its command": ("Bash", {}, "Bash"),
    "an edit": ("editor", {"command": "view", "path": "a.py"}, "editor"),
    "no tool": ("", {}, ""),
}


@cases("tool, arguments, expected", OTHERS)
def test_what_failed_elsewhere_is_the_tool(tool, arguments, expected):
    assert failing_tool(tool, arguments) == expected


GENERAL_ERRORS = (
    "permission denied",
    "404 Not Found",
    "Timeout",
    "exit status 1",
    "KeyError: 'id'",
    "TypeError: 'NoneType' object is not subscriptable",
)


@pytest.mark.parametrize("error", GENERAL_ERRORS)
def test_a_general_error_of_another_tool_is_another_failure(error: str):
    shell = failure_signature("Bash", {"command": "docker ps"}, error)
    query = failure_signature("sql", {"query": "DROP VIEW v"}, error)
    again = failure_signature("shell", {"cmd": "sudo docker ps -a"}, error)
    assert shell.digest != query.digest
    assert shell.digest == again.digest
    assert shell.pattern == query.pattern
