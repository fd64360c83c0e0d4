"""Tests that were made elsewhere: how surely calls fail, before a memory knows.

The forms with counts are measured on 999 recorded sessions of agents in 14
environments, at most 50 tests of each form. The contracts are those of common tools: an
edit needs a file that was read, and a path that was absent and never worked stays
absent.
"""

from __future__ import annotations

from heedful.lessons.reliability import Form, FormTests

# Each row: the template, how many sessions failed, how many calls passed since, whether
# any call passed, how many tests held, and how many there were.
_MEASURED_ROWS = """
any        1 0 never  48.5 50
any        1 0 passed 9 40
any        1 1 passed 5 30
any        1 2 passed 0.6 50
any        2 0 never  48.5 50
any        2 0 passed 6 20
any        2 1 passed 2 13
any        2 2 passed 0.8 50
any        3 0 never  49.9 50
any        3 0 passed 13 24
any        3 1 passed 4 16
any        3 2 passed 1.7 50
argument   1 2 passed 0 50
column     1 0 never  47.8 50
column     1 0 passed 4 13
column     1 2 passed 5 32
column     2 0 never  47.8 50
column     2 0 passed 1 8
column     2 1 passed 1 6
column     2 2 passed 2 8
column     3 0 never  49.7 50
column     3 0 passed 3 9
column     3 2 passed 3 17
command    1 0 never  3 5
command    1 0 passed 3 8
command    1 1 passed 1 10
command    1 2 passed 0.4 50
command    2 2 passed 1 43
command    3 1 passed 5 12
command    3 2 passed 7.9 50
folder     1 1 passed 3 10
folder     1 2 passed 0.9 50
folder     2 0 passed 2 5
folder     2 1 passed 1 5
folder     2 2 passed 0.4 50
folder     3 1 passed 1 6
folder     3 2 passed 1.1 50
options    1 0 passed 2 6
options    1 2 passed 0 50
options    3 2 passed 0 11
path       1 0 never  7 7
path       1 0 passed 1 10
path       1 1 passed 1 7
path       1 2 passed 0 50
path       2 2 passed 0 50
path       3 0 never  11 11
path       3 0 passed 5 5
path       3 2 passed 0 17
shape      1 2 passed 0 17
table      1 0 never  50 50
table      2 0 never  35 35
table      3 0 never  50 50
word       1 0 never  6 6
word       1 0 passed 1 6
word       1 1 passed 1 7
word       1 2 passed 0.5 50
word       2 2 passed 1.9 50
word       3 0 passed 2 5
word       3 1 passed 2 8
word       3 2 passed 5.2 50
"""
# How many tests stand for a contract: of so many edits, so many fail.
_EDIT_TESTS = {
    "Edit": FormTests(held=28.0, tested=33.0),
    "MultiEdit": FormTests(held=17.0, tested=20.0),
    "NotebookEdit": FormTests(held=17.0, tested=20.0),
}
_SIZE_TESTS = FormTests(held=9.0, tested=10.0)


def _measured_tests() -> dict[Form, FormTests]:
    """Return the tests in the rows."""
    tests = {}
    for row in _MEASURED_ROWS.strip().splitlines():
        template, failed, since, passes, hits, tests_made = row.rsplit(maxsplit=5)
        form = Form(
            template="" if template == "any" else template,
            failed=int(failed),
            since=int(since),
            has_passed=passes == "passed",
        )
        tests[form] = FormTests(float(hits), float(tests_made))
    return tests


def _contract_tests() -> dict[Form, FormTests]:
    """Return tests that stand for the contracts of common tools."""
    unread = {
        Form("unread file", variant=(tool, "")): tests
        for tool, tests in _EDIT_TESTS.items()
    }
    too_large = {Form("whole file", failed): _SIZE_TESTS for failed in (1, 2, 3)}
    no_change = {Form("no change", variant=("Edit",)): FormTests(20.0, 20.0)}
    return unread | too_large | no_change


CONTRACT_TESTS: dict[Form, FormTests] = _contract_tests()
SHIPPED_TESTS: dict[Form, FormTests] = _measured_tests() | CONTRACT_TESTS
