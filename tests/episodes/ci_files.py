"""Files about runs of CI, as test runners and runners of CI write them."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

ERRCHECK = "cart.go:12:3: Error return value of `db.Close` is not checked (errcheck)"
# Where a runner works; in parts, because no file names the folders of a machine.
WORKSPACE = "/".join(("", "home", "runner", "work", "shop", "shop"))
SETUP_LINES = (
    "##[group]Run actions/checkout@v4",
    "with:",
    "  repository: acme/shop",
    "##[endgroup]",
    "Syncing repository: acme/shop",
)
LINT_LINES = (
    "##[group]Run make lint",
    "\x1b[36;1mmake lint\x1b[0m",
    "shell: /usr/bin/bash -e {0}",
    "##[endgroup]",
    "golangci-lint run",
    f"{WORKSPACE}/{ERRCHECK}",
    "make: *** [Makefile:3: lint] Error 1",
    "##[error]Process completed with exit code 2.",
)


def write_report(
    path: Path, failures: Sequence[tuple[str, str]], commit: str = ""
) -> Path:
    """Write a JUnit report with failed tests, each with its message."""
    cases = [
        f'<testcase classname="tests.test_cart" name="{name}" time="0.1">'
        f'<failure message="{message}" type="AssertionError">\n'
        f"def {name}():\n&gt;   assert False\nE   {message}\n</failure></testcase>"
        for name, message in failures
    ]
    properties = f'<properties><property name="sha" value="{commit}"/></properties>'
    path.write_text(
        '<?xml version="1.0" encoding="utf-8"?>\n<testsuites>'
        f'<testsuite name="pytest" tests="2">{properties if commit else ""}'
        '<testcase classname="tests.test_cart" name="test_right"/>'
        f"{''.join(cases)}</testsuite></testsuites>"
    )
    return path


def log_text(lines: Sequence[str], prefix: str = "") -> str:
    """Return the lines of a log, each with its time."""
    stamped = [
        f"{prefix}2026-01-02T03:04:05.{number:07d}Z {line}"
        for number, line in enumerate(lines)
    ]
    return "\ufeff" + "\n".join(stamped) + "\n"


def commit_lines(commit: str) -> tuple[str, ...]:
    """Return what the step prints that checks out a commit."""
    return (*SETUP_LINES, "[command]/usr/bin/git log -1 --format=%H", commit)


def pull_request_lines(number: int) -> tuple[str, ...]:
    """Return what the step prints that checks out a pull request."""
    ref = f"refs/remotes/pull/{number}/merge"
    return (*SETUP_LINES, f"[command]/usr/bin/git checkout --progress --force {ref}")


def write_archive(path: Path, **logs: str) -> Path:
    """Write the archive of a run, with the log of each job and of a step of it."""
    with zipfile.ZipFile(path, "w") as archive:
        for number, (job, text) in enumerate(logs.items()):
            archive.writestr(f"{number}_{job}.txt", text)
            archive.writestr(f"{job}/3_Run make lint.txt", text)
    return path
