"""Reports of tests and logs of CI: archives, and what is cut or hostile."""

import zipfile
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from heedful.episodes import read
from heedful.episodes.episode import Episode
from heedful.errors import TraceFileError
from tests.episodes.runs import FOLDER
from tests.tables import cases, read_sample_file

LINT = read_sample_file(FOLDER / "github.log")
REPORT = """<testsuites><testsuite><testcase name="test_a"><failure>KeyError: a
</failure></testcase><testcase name="test_b"><failure>KeyError: b"""
BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<testsuites><testsuite><testcase name="x"><failure>&b;</failure></testcase></testsuite>
</testsuites>"""


def test_an_archive_has_the_log_of_each_job_once(tmp_path):
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("0_build.txt", LINT)
        archive.writestr("build/3_Run make lint.txt", LINT)
    [episode] = read(path)
    assert len(episode.events) == 2


def test_two_runs_with_the_same_failure_are_two_episodes():
    [first] = read(LINT.encode())
    [second] = read(LINT.replace("2026-01-02", "2026-01-03").encode())
    assert first.digest != second.digest


def test_a_report_that_was_cut_has_what_is_whole():
    traces = read(REPORT.encode())
    call, result = next(traces).events
    assert call.arguments == {"name": "test_a"}
    assert "KeyError: a" in result.error
    with pytest.raises(TraceFileError, match=r"not a JUnit report: .* line 2"):
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
