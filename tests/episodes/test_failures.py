"""Which outputs of calls say that the call failed."""

import pytest

from heedful.episodes.course import course
from heedful.episodes.episode import Episode, Event
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
        pytest.param("", "<returncode>3</returncode>\n<output>\n</output>", id="a tag"),
        pytest.param("", "404 Not Found", id="a status of HTTP"),
        pytest.param("", "<title>502 Bad Gateway</title>", id="a status in a page"),
        pytest.param("", '{"status": 422, "body": {}}', id="a status in data"),
        pytest.param("", "{'success': False, 'why': 'x'}", id="data of Python"),
        pytest.param("", '{"detail": "Not authenticated"}', id="no rights"),
        pytest.param("./run", "Killed", id="a process that was killed"),
        pytest.param(
            "kubectl get pods",
            "The connection to the server localhost:8080 was refused",
            id="a server that a look needs",
        ),
        pytest.param("", '{"errors": [{"message": "no lamp"}]}', id="a list of errors"),
        pytest.param("", "An error came up. Try again. Error: x", id="a later error"),
        pytest.param("", "Failed to open the lamp", id="what failed"),
        pytest.param(
            "", "### Result\nLampError: broken", id="an error after a heading"
        ),
        pytest.param("", "no such lamp: kitchen", id="a statement"),
        pytest.param("", "ENOENT: 'lamp.txt'", id="the name of an error"),
        pytest.param("", "Sorry, we cannot light it: no oil", id="a refusal"),
        pytest.param("", '{"status": "Failure", "reason": "x"}', id="a failed state"),
        pytest.param(
            "./run", "begin\nMerge failed; fix it", id="what failed at the end"
        ),
        pytest.param("./run", "a b\n1 failed, 2 passed", id="a count at the end"),
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
        pytest.param("", "exit code: 0\nOutput:\nerror: 2 of 9", id="the code 0"),
        pytest.param("", "Errors and their codes. If it fails, retry.", id="a page"),
        pytest.param("", '{"id": 7, "title": "Error: it broke"}', id="a ticket"),
        pytest.param("", '[{"error": "late", "n": 2}, {"n": 3}]', id="a list of rows"),
        pytest.param(
            "", "12: raise LampError('no such lamp')", id="a line of a program"
        ),
        pytest.param("", "500 Main Street", id="a number"),
        pytest.param("", "I can't tell, perhaps the lamp", id="what a person says"),
        pytest.param("", "An unknown lamp burned there.", id="a story of the unknown"),
        pytest.param("", '{"job": 3, "status": "failed"}', id="the state of a job"),
        pytest.param(
            "echo 'not found yet'", "not found yet", id="words of the command"
        ),
        pytest.param(
            "git log -1", "3 Tell what is missing in the lamps' page", id="look"
        ),
        pytest.param("pytest", "All passed. 0 failed, 12 passed", id="a count of 0"),
    ],
)
def test_what_another_call_printed_is_no_failure(command, output):
    assert not reports_failure(output, command)


@pytest.mark.parametrize(
    ("command", "output", "is_failure"),
    [
        pytest.param("make 2>&1 | tail -1", "Error: no rule", True, id="a program"),
        pytest.param("cat a.log | tail -1", "Error: no rule", False, id="a look"),
        pytest.param("make", "Error: no rule", False, id="no pipe"),
    ],
)
def test_a_pipe_hides_the_status_of_a_program(command, output, is_failure):
    calls = [("false", "exit 1", "broken"), (command, output, "")]
    events = []
    for number, (typed, content, error) in enumerate(calls):
        call = f"c{number}"
        events += [
            Event("tool_call", tool="Bash", arguments={"command": typed}, call=call),
            Event("tool_response", content, tool="Bash", call=call, error=error),
        ]
    run = course(Episode(tuple(events)))
    assert bool(run.failure[-1]) is is_failure
