"""Which outputs of calls say that the call failed."""

import pytest

from heedful.episodes.failures import reports_failure

LOG = "\n".join(f"step {n}: done" for n in range(1, 6))
LOG = f"{LOG}\nExit Code: 2\n{LOG}"


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
        pytest.param("./report", LOG, id="the middle of an output"),
        pytest.param("make docs", "wrote 5 pages, exit code 0", id="a success"),
    ],
)
def test_what_another_call_printed_is_no_failure(command, output):
    assert not reports_failure(output, command)
