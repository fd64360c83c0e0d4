"""Which outputs of calls say that the call failed."""

import pytest

from heedful.episodes.failures import reports_failure

LOG = "\n".join(["step 1 of 9: fetch", "step 2 of 9: build", "Exit Code: 2", "retry"])


@pytest.mark.parametrize(
    ("command", "output"),
    [
        pytest.param("make docs", "building\nExit code: 2", id="the code at the end"),
        pytest.param("make docs", "Exit code 2\nno rule", id="the code at the start"),
        pytest.param("", "LSP error -32601: no such method", id="a numbered error"),
        pytest.param(
            "tsc -b", "TSC : error TS6053: file not found", id="a compiler's number"
        ),
    ],
)
def test_a_failure_is_read_from_an_output(command, output):
    assert reports_failure(output, command)


@pytest.mark.parametrize(
    ("command", "output"),
    [
        pytest.param("cat ci.log", LOG, id="a short log that is read"),
        pytest.param(
            "./report", f"{LOG}\n" + "all is well\n" * 9, id="the middle of an output"
        ),
        pytest.param("make docs", "wrote 5 pages, exit code 0", id="a success"),
    ],
)
def test_what_another_call_printed_is_no_failure(command, output):
    assert not reports_failure(output, command)
