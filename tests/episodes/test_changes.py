"""Reviews, reports and logs: which changes they are about, and what they say."""

import json
import os
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.episodes import change_files
from heedful.episodes.change_files import (
    change_format,
    is_step_log,
    name_changes,
    read_changes,
)
from heedful.episodes.changes import ChangeRemarks
from heedful.errors import TraceFileError
from tests.episodes.remarks import (
    ERRCHECK,
    LINT_LINES,
    comment,
    commit_lines,
    log_text,
    pull_request_lines,
    write_archive,
    write_report,
    write_review,
)

SHA = "0123456789abcdef0123456789abcdef01234567"
BOMB = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<testsuites><testsuite><testcase name="x"><failure>&b;</failure></testcase></testsuite>
</testsuites>"""


def read(path: Path) -> list[ChangeRemarks]:
    """Read a file in the format that its content shows."""
    return read_changes(path, change_format(path))


def texts_of(change: ChangeRemarks) -> list[str]:
    """Return what is said about a change."""
    return [remark.text for remark in change.remarks]


def test_comments_are_of_their_pull_requests(tmp_path):
    path = write_review(
        tmp_path / "x.txt",
        comment(7, "Please wrap errors with `%w`. Thanks!"),
        comment(8, "Use the shared client of this package.", login="bob"),
        comment(8, "Done, I will use it everywhere now.", in_reply_to_id=10),
    )
    seventh, eighth = read(path)
    assert seventh.name == "acme/shop#7"
    assert texts_of(seventh) == ["Please wrap errors with `%w`."]
    assert seventh.remarks[0].about == "cart/total.go"
    assert seventh.remarks[0].source == "reviewer:ann"
    assert eighth.name == "acme/shop#8"
    assert texts_of(eighth) == ["Use the shared client of this package."]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[{0}, {1}]", id="one list"),
        pytest.param("[{0}][{1}]", id="a list for each page"),
        pytest.param("[[{0}], [{1}]]", id="a list of pages"),
        pytest.param("{0}\n{1}\n", id="a line for each"),
        pytest.param("\ufeff[{0},\r\n{1}]", id="with a mark of its encoding"),
    ],
)
def test_pages_of_comments_are_read_in_each_form(tmp_path, text):
    path = tmp_path / "pages.json"
    documents = [json.dumps(comment(n, "Wrap the errors with it.")) for n in (1, 2)]
    path.write_text(text.replace("{0}", documents[0]).replace("{1}", documents[1]))
    assert [change.name for change in read(path)] == ["acme/shop#1", "acme/shop#2"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param("LGTM, nice!", [], id="too few words"),
        pytest.param("> Why is it not here?\nYes.", [], id="a quotation"),
        pytest.param(
            "nit: sort the imports of it", ["sort the imports of it"], id="a label"
        ),
        pytest.param(
            "- Use it in all tests.\n- Never sleep in a test.",
            ["Use it in all tests.", "Never sleep in a test."],
            id="a list",
        ),
        pytest.param("```go\nreturn nil if it is so\n```", [], id="a block of code"),
        pytest.param("<!-- say it to all of them -->", [], id="what nobody sees"),
        pytest.param("word " * 100, [], id="a long sentence"),
        pytest.param(
            "Ask ann.lee@corp.example for the key.",
            ["Ask [redacted: mail] for the key."],
            id="personal data",
        ),
    ],
)
def test_sentences_of_a_comment_that_may_be_rules(tmp_path, body, said):
    [change] = read(write_review(tmp_path / "r.json", comment(1, body)))
    assert texts_of(change) == said


def test_a_suggested_change_comes_with_the_words(tmp_path):
    body = "Wrap the error with it.\n```suggestion\nreturn wrap(err)\n```\n"
    [change] = read(write_review(tmp_path / "r.json", comment(1, body)))
    [remark] = change.remarks
    assert remark.suggestion == "return wrap(err)"


def test_a_report_has_the_failures_of_its_tests(tmp_path):
    failures = [("test_total", "AssertionError: total is 3, it must be 4")]
    path = write_report(tmp_path / "report.bin", failures, commit=SHA)
    [change] = read(path)
    assert change.name == SHA
    [remark] = change.remarks
    assert remark.about == "tests.test_cart.test_total"
    assert remark.text == "AssertionError: total is 3, it must be 4"
    assert remark.source == "tool:ci"


def test_reports_of_one_run_and_of_two(tmp_path):
    """Tools write a file for each class; only a test that ran twice shows two runs."""
    failures = [("test_total", "no total"), ("test_tax", "no tax")]
    files = {
        "a.xml": '<testsuite><testcase name="a"/></testsuite>',
        "b.xml": '<testsuite><testcase name="b"/></testsuite>',
        "c.xml": '<testsuite><testcase name="a"/></testsuite>',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    write_report(tmp_path / "named.xml", failures, commit=SHA)
    reports = [
        (tmp_path / name, read(tmp_path / name)[0]) for name in (*files, "named.xml")
    ]
    first, second, third, fourth = [change.name for change in name_changes(reports)]
    assert first == second
    assert third != first
    assert fourth == SHA


def test_a_log_has_the_errors_of_its_failed_steps(tmp_path):
    path = tmp_path / "job"
    worked = ("##[group]Run make", "##[endgroup]", "error: a warning only")
    path.write_text(log_text(commit_lines(SHA) + worked + LINT_LINES))
    [change] = read(path)
    assert change.name == SHA
    assert texts_of(change) == [ERRCHECK]
    assert change.remarks[0].about == "make lint"


def test_a_log_of_a_pull_request_names_it(tmp_path):
    path = tmp_path / "job.log"
    path.write_text(log_text(pull_request_lines(7) + LINT_LINES))
    assert read(path)[0].name == "acme/shop#7"


def test_a_log_as_gh_run_view_prints_it(tmp_path):
    path = tmp_path / "job.log"
    path.write_text(log_text(LINT_LINES, prefix="build\tRun make lint\t"))
    assert texts_of(read(path)[0]) == [ERRCHECK]


def test_errors_that_a_step_reports_itself(tmp_path):
    path = tmp_path / "job.log"
    message = "##[error]src/cart.ts(3,5): error TS2322: Type 'string' is wrong."
    path.write_text(log_text(("##[group]Run npx tsc", "##[endgroup]", message)))
    assert texts_of(read(path)[0]) == [message.removeprefix("##[error]")]


def test_an_archive_has_the_log_of_each_job_once(tmp_path):
    text = log_text(commit_lines(SHA) + LINT_LINES)
    path = write_archive(tmp_path / "logs.zip", build=text)
    [change] = read(path)
    assert change.name == SHA
    assert texts_of(change) == [ERRCHECK]


def test_the_log_of_a_step_is_known_beside_that_of_its_job(tmp_path):
    (tmp_path / "build [x]").mkdir()
    step = tmp_path / "build [x]" / "3_Run make lint.txt"
    step.write_text(log_text(LINT_LINES))
    assert not is_step_log(step)
    job = tmp_path / "0_build [x].txt"
    job.write_text(log_text(LINT_LINES))
    assert is_step_log(step)
    assert not is_step_log(job)


SESSION = {"type": "user", "message": {"content": 'the "pull_request_url": x'}}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(json.dumps(SESSION), id="a session that quotes a comment"),
        pytest.param(
            json.dumps({"type": "user", "toolUseResult": comment(1, "x")}),
            id="a session with a comment in it",
        ),
        pytest.param('[{"role": "user", "content": "x"}]', id="messages"),
        pytest.param("<html><body>x</body></html>", id="another XML"),
        pytest.param("2026-01-02T03:04:05Z served a page\n", id="another log"),
        pytest.param("notes\n", id="a text"),
        pytest.param("", id="nothing"),
    ],
)
def test_other_files_say_nothing_about_a_change(tmp_path, content):
    path = tmp_path / "file"
    path.write_text(content)
    assert change_format(path) == ""


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
        pytest.param(
            json.dumps([comment(1, "x"), {"body": 3}]).encode(), id="no comment"
        ),
        pytest.param(
            json.dumps([comment(1, "x")]).encode()[:-9], id="JSON that ends early"
        ),
        pytest.param(
            json.dumps([comment(1, "x")]).encode() + b"[" * 99_999, id="deep JSON"
        ),
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
    monkeypatch.setattr(change_files, "MAX_ARCHIVE_BYTES", 100_000)
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0_build.txt", "0" * 200_000)
    with pytest.raises(TraceFileError, match="is too long"):
        read(path)


def test_a_long_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(change_files, "MAX_CHANGE_FILE_BYTES", 10_000)
    path = tmp_path / "job.log"
    path.write_text(log_text(LINT_LINES * 100))
    with pytest.raises(TraceFileError, match="longer than"):
        read(path)


@given(st.binary(max_size=300), st.sampled_from(["review", "junit", "actions"]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_content_is_changes_or_a_typed_error(tmp_path, content, format):
    path = tmp_path / "any"
    path.write_bytes(content)
    assert isinstance(change_format(path), str)
    read_any = []
    with suppress(TraceFileError):
        read_any = read_changes(path, format)
    assert all(isinstance(change, ChangeRemarks) for change in read_any)


def test_many_openings_take_no_time(tmp_path):
    """Each might be searched for its end, to the end of the comment."""
    body = "<!-- ```\n" * 7_000
    comments = json.dumps([comment(1, body)] * 20)
    path = tmp_path / "r.json"
    path.write_text(comments)
    assert read(path)[0].remarks == ()


def test_a_file_that_is_gone_is_named(tmp_path):
    path = tmp_path / "gone.xml"
    with pytest.raises(TraceFileError, match="cannot be read"):
        read_changes(path, "junit")
    with pytest.raises(OSError, match=os.strerror(2)):
        change_format(path)
