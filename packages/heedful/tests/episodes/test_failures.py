"""Which outputs of calls say that the call failed."""

import pytest

from heedful.episodes.course import course
from heedful.episodes.episode import Episode, Event
from heedful.episodes.failures import did_not_end, is_bare_status, reports_failure
from tests.tables import cases
from tests.test_knowledge import texts_of_groups

TABLE = "episodes/failures"
LOG = "\n".join(f"step {n}: done" for n in range(1, 6))
LOG = f"{LOG}\nExit Code: 2\n{LOG}"


@cases(
    "command, output",
    {
        "the code at the end": ("make docs", "building\nExit code: 2"),
        "the code at the start": ("make docs", "Exit code 2\nno rule"),
        "a numbered error": ("", "LSP error -32601: no such method"),
        "a compiler's number": ("tsc -b", "TSC : error TS6053: file not found"),
        "a tag": ("", "<returncode>3</returncode>\n<output>\n</output>"),
        "a status of HTTP": ("", "404 Not Found"),
        "a status in a page": ("", "<title>502 Bad Gateway</title>"),
        "a status in data": ("", '{"status": 422, "body": {}}'),
        "data of Python": ("", "{'success': False, 'why': 'x'}"),
        "no rights": ("", '{"detail": "Not authenticated"}'),
        "a process that was killed": ("./run", "Killed"),
        "a server that a look needs": (
            "kubectl get pods",
            "The connection to the server localhost:8080 was refused",
        ),
        "a list of errors": ("", '{"errors": [{"message": "no lamp"}]}'),
        "a later error": ("", "An error came up. Try again. Error: x"),
        "what failed": ("", "Failed to open the lamp"),
        "an error after a heading": ("", "### Result\nLampError: broken"),
        "a statement": ("", "no such lamp: kitchen"),
        "the name of an error": ("", "ENOENT: 'lamp.txt'"),
        "a refusal": ("", "Sorry, we cannot light it: no oil"),
        "a failed state": ("", '{"status": "Failure", "reason": "x"}'),
        "behind the name of a program": (
            "",
            "psql: error: connection failed: starting up",
        ),
        "below the heading of an agent": ("", "<context>\nOutput: Error: open a.yaml"),
        "what failed at the end": ("./run", "begin\nMerge failed; fix it"),
        "a count at the end": ("./run", "a b\n1 failed, 2 passed"),
    },
)
def test_a_failure_is_read_from_an_output(command, output):
    assert reports_failure(output, command)


@cases(
    "command, output",
    {
        "a short log that is read": ("cat ci.log", LOG),
        "a line of a log with its day": ("cat a.log", "2026-01-02 ERROR no rule\nok"),
        "the class of an error that is read": (
            "cat errors.py",
            "class LampError(Exception):\n    pass",
        ),
        "the middle of an output": ("./report", LOG),
        "a success": ("make docs", "wrote 5 pages, exit code 0"),
        "the code 0": ("", "exit code: 0\nOutput:\nerror: 2 of 9"),
        "a page": ("", "Errors and their codes. If it fails, retry."),
        "a ticket": ("", '{"id": 7, "title": "Error: it broke"}'),
        "a list of rows": ("", '[{"error": "late", "n": 2}, {"n": 3}]'),
        "a line of a program": ("", "12: raise LampError('no such lamp')"),
        "a number": ("", "500 Main Street"),
        "what a person says": ("", "I can't tell, perhaps the lamp"),
        "a story of the unknown": ("", "An unknown lamp burned there."),
        "the state of a job": ("", '{"job": 3, "status": "failed"}'),
        "words of the command": ("echo 'not found yet'", "not found yet"),
        "look": ("git log -1", "3 Tell what is missing in the lamps' page"),
        "a count of 0": ("pytest", "All passed. 0 failed, 12 passed"),
    },
)
def test_what_another_call_printed_is_no_failure(command, output):
    assert not reports_failure(output, command)


@cases(
    "command, output, is_failure",
    {
        "a program": ("make 2>&1 | tail -1", "Error: no rule", True),
        "a look": ("cat a.log | tail -1", "Error: no rule", False),
        "no pipe": ("make", "Error: no rule", False),
    },
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


FAILED = texts_of_groups(
    TABLE,
    "status short_status error_word wrong wrong_first unable trace failed_line",
    "needs",
)
# Texts that the witnesses of failures must not be taken for.
WORKED = texts_of_groups(
    TABLE, "status short_status error_word unable trace failed_line", "not"
)


@pytest.mark.parametrize("text", FAILED)
def test_the_witnesses_of_a_failure_are_reported(text):
    assert reports_failure(text, "./run")


@pytest.mark.parametrize("text", texts_of_groups(TABLE, "no_error nothing", "needs"))
def test_a_word_for_an_error_that_is_denied_is_no_failure(text):
    assert not reports_failure(text)


@pytest.mark.parametrize("text", WORKED)
def test_what_resembles_a_failure_is_not_reported(text):
    assert not reports_failure(text, "./run")


@pytest.mark.parametrize("text", texts_of_groups(TABLE, "complaint", "needs"))
def test_a_program_says_in_its_own_line_what_is_wrong(text):
    program = text.partition(":")[0]
    assert reports_failure(f"{LOG}\n{text}", program)
    assert not reports_failure(f"{LOG}\n{text}", "other")


@pytest.mark.parametrize("text", texts_of_groups(TABLE, "refusal", "needs"))
def test_a_command_that_looks_says_who_refused(text):
    assert reports_failure(text, "kubectl get pods")


@pytest.mark.parametrize("text", texts_of_groups(TABLE, "refused unfinished", "needs"))
def test_a_call_that_was_refused_or_runs_on_did_not_end(text):
    assert did_not_end(text)


@pytest.mark.parametrize("text", texts_of_groups(TABLE, "refused unfinished", "not"))
def test_what_sounds_like_it_did_end(text):
    assert not did_not_end(text)


@pytest.mark.parametrize("text", texts_of_groups(TABLE, "status_word", "needs"))
def test_a_status_alone_says_nothing_else(text):
    assert is_bare_status(text)
