"""The error lines in what commands write."""

import pytest
from hypothesis import given, strategies as st

from heedful.episodes.error_lines import (
    MAX_ERROR_LINES,
    MAX_SHORT_TEXT_LINES,
    error_lines,
    named_errors,
    output,
    shorten_failure,
)
from tests.tables import cases

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
        "Invalid integer: 8.90",
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


EDIT = {
    "file_path": "cart.go",
    "old_string": '\tif err != nil {\n\t\treturn fmt.Errorf("failed to load: %w", err)',
}
TWICE = "Found 2 matches of the string to replace, but replace_all is false."
NAMED = {
    "a label with what the call was given names no error": (
        f"<call_error>{TWICE}\nString: {EDIT['old_string'].strip()}</call_error>",
        EDIT,
        [TWICE],
    ),
    "the label of an error is no echo": (
        "KeyError: 'a'",
        {"code": "'a'"},
        ["KeyError: 'a'"],
    ),
    "what repeats the call is the error if there is nothing else": (
        "make test",
        {"command": "make test"},
        ["make test"],
    ),
    "a count with a place is no second error": (
        (
            "src/cart.ts(14,3): error TS2304: Cannot find name 'x'.\n\n"
            "Found 1 error in src/cart.ts:14"
        ),
        None,
        ["src/cart.ts(14,3): error TS2304: Cannot find name 'x'."],
    ),
    "a test that fails is one error": (
        (
            "--- FAIL: TestCart (0.01s)\n    cart_test.go:9: Phase 2: Starting "
            "session\n"
            "    cart_test.go:12: total = 3, want 4\nFAIL\nFAIL\tshop/cart\t0.3s"
        ),
        None,
        ["--- FAIL: TestCart (0.01s)"],
    ),
    "source lines are no errors": (
        (
            'a.go:3: duplicate of b.go:4\n\treturn fmt.Errorf("failed: %w", err)\n'
            'func load() error {\nt.Fatalf("failed to load: %v", err)'
        ),
        None,
        ["a.go:3: duplicate of b.go:4"],
    ),
    "lines of a log and hints are no errors": (
        (
            "2026-01-02 03:04:05 INFO run failed=0: ok\nhint: run it: again\n"
            "fatal: bad ref"
        ),
        None,
        ["fatal: bad ref"],
    ),
    "two errors stay two": (
        "a.ts(1,2): error TS1: bad 'a'.\nb.ts(3,4): error TS2: bad 'b'.",
        None,
        ["a.ts(1,2): error TS1: bad 'a'.", "b.ts(3,4): error TS2: bad 'b'."],
    ),
    "a reason says more than the status of a command": (
        (
            "RUN fetch birch\nE: Unable to locate birch\n"
            'ERROR: process "fetch" failed: exit code: 7'
        ),
        None,
        ["E: Unable to locate birch"],
    ),
    "of two reasons the one that names something names the error": (
        "Invalid request.\nNo schema in 'oneOf'.",
        None,
        ["No schema in 'oneOf'."],
    ),
    "a package without tests is no error": (
        "?   \tshop\t[no test files]\nFAIL\tshop/api\t0.3s",
        None,
        ["FAIL\tshop/api\t0.3s"],
    ),
}


@cases("failure, arguments, errors", NAMED)
def test_the_errors_of_a_call(failure, arguments, errors):
    assert named_errors(failure, arguments) == errors


@given(st.text(), st.text())
def test_a_call_has_at_least_one_error(failure, argument):
    assert named_errors(failure, {"input": argument})


@given(st.text(min_size=400, max_size=2_000), st.integers(400, 1_000))
def test_a_failure_is_bounded(text, most):
    assert len(shorten_failure(text, most)) <= most
