"""The error lines in what commands write."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from heedful.episodes.error_lines import (
    MAX_ERROR_LINES,
    MAX_SHORT_TEXT_LINES,
    error_line,
    error_lines,
    is_of_work,
    named_errors,
    output,
    shorten_failure,
)
from tests.tables import cases, read_samples
from tests.test_knowledge import texts_of_groups

TABLE = "episodes/error_lines"

NOISE = [f"compiled part {n} in {n} ms" for n in range(2 * MAX_SHORT_TEXT_LINES)]
LINES = [
    "bash: line 1: foo: command not found",
    "/bin/sh: 1: foo: not found",
    "cat: x: No such file or directory",
    "./x.go:3:4: undefined: foo",
    "src/a.ts(3,4): error TS2304: Cannot find name 'x'.",
    "error[E0425]: cannot find value `x` in this scope",
    "npm ERR! missing script: build",
    "E: Unable to locate package foo",
    "curl: (22) The requested URL returned error: 404",
    "HTTP/1.1 404 Not Found",
    "AssertionError: assert 3 == 4",
    "--- FAIL: TestFoo (0.00s)",
    "FAILED tests/test_a.py::test_b - KeyError: 'a'",
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("margin", ["", "    ", "E       ", "2026-01-02 03:04:05,123 "])
def test_an_error_is_found_by_its_shape(line, margin):
    assert error_lines([*NOISE, margin + line, *NOISE]) == [line]


def test_what_stands_around_an_output_is_no_error():
    wrapped = "Command: npm t\nDirectory: (root)\nOutput: npm ERR! no t\nError: (none)"
    assert error_line(f"{wrapped}\nExit Code: 1") == "npm ERR! no t"


def test_a_traceback_ends_in_its_error():
    trace = [
        "Traceback (most recent call last):",
        '  File "a.py", line 3',
        "    f()",
        "Wrong: a b",
    ]
    assert error_lines([*NOISE, *trace, "Error: later", *NOISE])[0] == "Wrong: a b"


def test_a_text_without_an_error_has_no_error_line_unless_it_is_short():
    assert error_lines(NOISE) == []
    assert error_lines(["it went wrong"]) == ["it went wrong"]


def test_of_many_errors_the_first_and_the_last_are_found():
    many = [
        f"error: cannot open {'abcdefghij'[n % 10] * (n // 10 + 1)}"
        for n in range(9 * MAX_ERROR_LINES)
    ]
    errors = error_lines([*many, *many[:1]])
    assert len(errors) == MAX_ERROR_LINES
    assert errors[0] == many[0]
    assert errors[-1] == many[-1]
    assert error_lines([f"error: attempt {n} failed" for n in range(999)]) == [
        "error: attempt 0 failed"
    ]


ANSWERS = {
    "JSON after its status": (
        '400 Bad Request\n{"error": {"code": 400, "message": "start: not a date"}}',
        "start: not a date",
    ),
    "as Python prints it": (
        (
            "Error code: 400 - {'error': {'code': 'bad_integer', "
            "'message': 'Invalid integer: 8.90', 'param': None}}"
        ),
        "Error code: 400 - Invalid integer: 8.90",
    ),
    "with quotes of both sorts": (
        "{'type': 'Rejected', 'message': \"goal 'press' is no node\"}",
        "goal 'press' is no node",
    ),
    "JSON before other lines": (
        'Exit code 1\n{"message": "Invalid request.\\nNo schema matched."}\ngh: failed',
        "No schema matched.",
    ),
}


@cases("answer, line", ANSWERS)
def test_the_texts_of_an_object_are_lines(answer, line):
    assert line in output(answer).splitlines()


@cases(
    "text",
    {
        "code": "for (;;) { go('to it'); }",
        "an object without sentences": '{"code": 400}',
        "many brackets": "{" * 100_000,
    },
)
def test_a_text_without_sentences_in_an_object_stays_as_it_is(text):
    assert output(text) == text


NAMED = read_samples(Path(__file__).parent / "named_errors.txt")


@cases("failure, arguments, errors", NAMED)
def test_the_errors_of_a_call(failure, arguments, errors):
    assert named_errors(failure, json.loads(arguments)) == errors.splitlines()


@given(st.text(), st.text())
def test_a_call_has_at_least_one_error(failure, argument):
    assert named_errors(failure, {"input": argument})


@given(st.text(min_size=400, max_size=2_000), st.integers(400, 1_000))
def test_a_failure_is_bounded(text, most):
    assert len(shorten_failure(text, most)) <= most


@pytest.mark.parametrize(
    "line", texts_of_groups(TABLE, "type label place reason mention", "needs")
)
def test_the_witnesses_of_a_shape_are_error_lines(line):
    assert error_lines([*NOISE, line, *NOISE]) == [line]


@pytest.mark.parametrize("line", texts_of_groups(TABLE, "passed_on beside", "needs"))
def test_the_witnesses_of_what_stands_beside_name_no_error(line):
    error = "fatal: cannot lock ref"
    assert named_errors(f"{line}\n{error}") == [error]


@pytest.mark.parametrize("line", texts_of_groups(TABLE, "wrapping", "needs"))
def test_what_wraps_an_output_is_left_out(line):
    assert line not in output(f"{line}\nno lamp")


@pytest.mark.parametrize("error", texts_of_groups(TABLE, "work", "needs"))
def test_the_witnesses_of_work_are_errors_of_the_work(error):
    assert is_of_work(error)


@pytest.mark.parametrize("error", texts_of_groups(TABLE, "work", "not"))
def test_an_error_of_a_command_is_not_of_the_work(error):
    assert not is_of_work(error)
