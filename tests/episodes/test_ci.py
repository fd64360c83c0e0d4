"""Reports and logs of CI: which changes they are about, and what failed."""

import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.episodes import ci
from heedful.episodes.ci import CiRun, read_ci
from heedful.errors import TraceFileError
from tests.episodes.ci_files import (
    ERRCHECK,
    LINT_LINES,
    commit_lines,
    log_text,
    pull_request_lines,
    write_archive,
    write_report,
)

SHA = "0123456789abcdef0123456789abcdef01234567"
BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<testsuites><testsuite><testcase name="x"><failure>&b;</failure></testcase></testsuite>
</testsuites>"""


def read(path: Path) -> CiRun:
    """Read a file that is about a run."""
    run = read_ci(path)
    assert run is not None
    return run


def errors_of(run: CiRun) -> list[str]:
    """Return the errors of a run."""
    return [failure.error for failure in run.failures]


def test_a_report_has_the_failures_of_its_tests(tmp_path):
    failures = [("test_total", "AssertionError: total is 3, it must be 4")]
    path = write_report(tmp_path / "report.bin", failures, commit=SHA)
    run = read(path)
    assert run.change == SHA
    [failure] = run.failures
    assert failure.about == "tests.test_cart.test_total"
    assert failure.error == "AssertionError: total is 3, it must be 4"


def test_a_log_has_the_errors_of_its_failed_steps(tmp_path):
    path = tmp_path / "job"
    worked = ("##[group]Run make", "##[endgroup]", "error: a warning only")
    path.write_text(log_text(commit_lines(SHA) + worked + LINT_LINES))
    run = read(path)
    assert run.change == SHA
    assert errors_of(run) == [ERRCHECK]
    assert run.failures[0].about == "make lint"


def test_a_log_of_a_pull_request_names_it(tmp_path):
    path = tmp_path / "job.log"
    path.write_text(log_text(pull_request_lines(7) + LINT_LINES))
    assert read(path).change == "acme/shop#7"


def test_a_log_as_gh_run_view_prints_it(tmp_path):
    path = tmp_path / "job.log"
    path.write_text(log_text(LINT_LINES, prefix="build\tRun make lint\t"))
    assert errors_of(read(path)) == [ERRCHECK]


def test_errors_that_a_step_reports_itself(tmp_path):
    path = tmp_path / "job.log"
    message = "##[error]src/cart.ts(3,5): error TS2322: Type 'string' is wrong."
    path.write_text(log_text(("##[group]Run npx tsc", "##[endgroup]", message)))
    assert errors_of(read(path)) == [message.removeprefix("##[error]")]


def test_an_archive_has_the_log_of_each_job_once(tmp_path):
    text = log_text(commit_lines(SHA) + LINT_LINES)
    path = write_archive(tmp_path / "logs.zip", build=text)
    run = read(path)
    assert run.change == SHA
    assert errors_of(run) == [ERRCHECK]


@pytest.mark.parametrize(
    "content",
    [
        pytest.param('[{"role": "user", "content": "x"}]', id="messages"),
        pytest.param("<html><body>x</body></html>", id="another XML"),
        pytest.param("2026-01-02T03:04:05Z served a page\n", id="another log"),
        pytest.param("notes\n", id="a text"),
        pytest.param("", id="nothing"),
    ],
)
def test_other_files_are_of_no_run(tmp_path, content):
    path = tmp_path / "file"
    path.write_text(content)
    assert read_ci(path) is None


def zip_with_wrong_sizes() -> bytes:
    """Return an archive that claims that its log is empty."""
    return b"PK\x03\x04" + bytes(26)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(BOMB.encode(), id="entities that expand"),
        pytest.param(
            b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><testsuites/>',
            id="a document type",
        ),
        pytest.param(b"<testsuites><testsuite>", id="XML that ends early"),
        pytest.param(b"<testsuite>" * 200, id="deep XML"),
        pytest.param(
            b'<?xml version="1.0" encoding="no-such"?><testsuite/>',
            id="an unknown encoding",
        ),
        pytest.param(b"<testsuite>\xff</testsuite>", id="XML that is no UTF-8"),
        pytest.param(zip_with_wrong_sizes(), id="a damaged archive"),
    ],
)
def test_a_damaged_or_hostile_file_is_named(tmp_path, content):
    path = tmp_path / "bad"
    path.write_bytes(content)
    with pytest.raises(TraceFileError) as raised:
        read(path)
    assert raised.value.path == str(path)


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(ci, "MAX_ARCHIVE_BYTES", 100_000)
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0_build.txt", "0" * 200_000)
    with pytest.raises(TraceFileError, match="is too long"):
        read(path)


def test_a_long_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(ci, "MAX_CI_FILE_BYTES", 10_000)
    path = tmp_path / "job.log"
    path.write_text(log_text(LINT_LINES * 100))
    with pytest.raises(TraceFileError, match="longer than"):
        read(path)


JUNIT = b"<testsuite>"
LOG = b"2026-01-02T03:04:05.0000001Z ##[group]Run make"


@given(
    start=st.sampled_from([b"", JUNIT, LOG, b"PK\x03\x04"]),
    rest=st.binary(max_size=300),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_content_is_a_run_or_a_typed_error(tmp_path, start, rest):
    path = tmp_path / "any"
    path.write_bytes(start + rest)
    with suppress(TraceFileError):
        assert isinstance(read_ci(path), CiRun | None)


def test_a_file_that_is_gone_is_named(tmp_path):
    path = tmp_path / "gone.xml"
    with pytest.raises(TraceFileError, match="cannot be read"):
        read_ci(path)
