"""Reports of tests and logs of CI: which test or command failed, and with what."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from heedful.episodes import read
from heedful.episodes.episode import Episode
from heedful.episodes.error_lines import named_errors
from heedful.errors import TraceFileError
from tests.episodes.ci_files import (
    ERRCHECK,
    LINT_LINES,
    SETUP_LINES,
    gitlab_lines,
    log_text,
    report_text,
    write_archive,
)
from tests.tables import cases

BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<testsuites><testsuite><testcase name="x"><failure>&b;</failure></testcase></testsuite>
</testsuites>"""
PIP_ERROR = "ERROR: No matching distribution found for widgets==9.9"
TSC_ERROR = "src/cart.ts(3,5): error TS2322: Type 'string' is wrong."


def read_text(text: str) -> list[Episode]:
    """Return the episodes of a text."""
    return list(read(text.encode()))


def failures_of(episode: Episode) -> list[tuple[str, str]]:
    """Return what failed in an episode, each with the line that names its error."""
    failures = []
    calls = episode.events[::2]
    for call, result in zip(calls, episode.events[1::2], strict=True):
        assert isinstance(call.arguments, dict)
        [subject] = call.arguments.values()
        failures.append((subject, named_errors(result.error)[0]))
    return failures


def lint(*lines: str, prefix: str = "") -> str:
    """Return the log of a job on GitHub whose lint step fails."""
    return log_text((*SETUP_LINES, *LINT_LINES, *lines), prefix)


@cases(
    "text, failures",
    {
        "a report of tests": (
            report_text([("test_total", "AssertionError: total is 3, not 4")]),
            [("tests.test_cart.test_total", "AssertionError: total is 3, not 4")],
        ),
        "a report that was in UTF-16": (
            report_text([("test_total", "KeyError: a")]).replace("utf-8", "utf-16"),
            [("tests.test_cart.test_total", "KeyError: a")],
        ),
        "a report without failures": (report_text([]), []),
        "a log of GitHub": (lint(), [("make lint", ERRCHECK)]),
        "a log as gh prints it": (
            lint(prefix="build\tRun make lint\t"),
            [("make lint", ERRCHECK)],
        ),
        "errors that a step reports itself": (
            log_text(("##[group]Run npx tsc", "##[endgroup]", f"##[error]{TSC_ERROR}")),
            [("npx tsc", TSC_ERROR)],
        ),
        "a log without failures": (
            log_text(("##[group]Run make", "##[endgroup]", "error: only a warning")),
            [],
        ),
        "a log of GitLab": (
            gitlab_lines("$ pip install -r requirements.txt", PIP_ERROR),
            [("pip install -r requirements.txt", PIP_ERROR)],
        ),
        "a log of GitLab with times": (
            gitlab_lines("$ make", "progress 1%\rprogress 2%", stamp="2026-01-02"),
            [("make", "progress 2%")],
        ),
        "a job that succeeded": (gitlab_lines("$ make", end="Job succeeded"), []),
    },
)
def test_failures_of_a_run(text, failures):
    [episode] = read_text(text)
    assert failures_of(episode) == failures
    assert episode.outcome == ("failure" if failures else "success")


def test_a_gitlab_job_that_never_ran_a_command_has_failed():
    log = gitlab_lines(end="ERROR: Job failed (system failure): no such image")
    [episode] = read_text(log)
    assert episode.outcome == "failure"
    assert "no such image" in episode.events[1].error


def test_each_job_of_a_log_is_an_episode():
    log = lint(prefix="build\tmake\t") + lint(prefix="test\tmake\t")
    assert [episode.task for episode in read_text(log)] == ["build", "test"]


def test_an_archive_has_the_log_of_each_job_once(tmp_path):
    path = write_archive(tmp_path / "logs.zip", build=lint())
    [episode] = read(path)
    assert failures_of(episode) == [("make lint", ERRCHECK)]


def test_two_runs_with_the_same_failure_are_two_episodes():
    later = lint().replace("2026-01-02", "2026-01-03")
    [first], [second] = read_text(lint()), read_text(later)
    assert first.digest != second.digest


def test_a_report_that_was_cut_has_what_is_whole():
    text = report_text([("test_a", "KeyError: a"), ("test_b", "KeyError: b")])
    traces = read(text[: text.index("KeyError: b")].encode())
    assert failures_of(next(traces)) == [("tests.test_cart.test_a", "KeyError: a")]
    with pytest.raises(TraceFileError, match=r"not a JUnit report: .* line 6"):
        next(traces)


@cases(
    "content",
    {
        "entities that expand": BOMB.encode(),
        "a document type": b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuites/>',
        "XML that ends early": b"<testsuites><testsuite>",
        "deep XML": b"<testsuite>" * 200,
        "a damaged archive": b"PK\x03\x04" + bytes(26),
    },
)
def test_a_damaged_or_hostile_file_is_named(tmp_path, content):
    path = tmp_path / "bad"
    path.write_bytes(content)
    with pytest.raises(TraceFileError) as raised:
        list(read(path))
    assert raised.value.path == str(path)


JUNIT = b"<testsuite>"
LOG = b"2026-01-02T03:04:05.0000001Z ##[group]Run make"
GITLAB = b"section_start:1700000000:step_script\r\x1b[0K$ make"


@given(
    start=st.sampled_from([b"", JUNIT, LOG, GITLAB, b"PK\x03\x04"]),
    rest=st.binary(max_size=300),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_content_is_a_run_or_a_typed_error(tmp_path, start, rest):
    path = tmp_path / "any"
    path.write_bytes(start + rest)
    with suppress(TraceFileError):
        for episode in read(path):
            assert isinstance(episode, Episode)
