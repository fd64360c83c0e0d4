"""Read what was said about changes: review comments, JUnit reports, logs of CI.

A file says a few things (`Remark`) about one or more changes: pull requests, commits or
runs (`ChangeRemarks`). The content shows the format, not the name: comments of pull
requests as GitHub's API has them, JUnit XML, and logs of GitHub Actions, also in an
archive.

Anyone may have written these files, so each is bounded. XML is read by expat of the
standard library, one event at a time, and a document type is refused: without one there
are no entities, so nothing can expand, and no report of tests has one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from xml.parsers import expat

from heedful.errors import TraceFileError
from heedful.lessons.trust import REVIEWER_SOURCE_PREFIX
from heedful.redact import mask_personal, redact
from heedful.traces.error_lines import is_of_work, named_errors
from heedful.traces.reading import problem

ChangeFormat = Literal["", "review", "junit", "actions", "archive"]
# The format is found in the first bytes of a file.
CHANGE_HEAD_BYTES = 65_536
MAX_CHANGE_FILE_BYTES = 64 * 2**20
# An archive: its files, and the bytes of all of them. A larger one is refused.
MAX_ARCHIVE_FILES = 2_000
MAX_ARCHIVE_BYTES = 256 * 2**20
MAX_XML_DEPTH = 100
# Of a failure that is longer, the beginning is read.
MAX_TEST_FAILURE_CHARS = 20_000
# The lines of a step that are searched for its errors, the last ones.
MAX_STEP_LINES = 5_000
MAX_FILE_REMARKS = 2_000
# What is said in fewer words is no rule: "Nice!", "Same here."
MIN_REMARK_WORDS = 4
MAX_REMARK_CHARS = 300
MAX_COMMENT_REMARKS = 10
# No comment on GitHub is longer.
MAX_COMMENT_CHARS = 65_536
# What names a change is at the beginning of a log.
MAX_LOG_HEAD_CHARS = 2_000_000
# The source of what CI printed, whose trust may be stated.
CI_SOURCE = "tool:ci"
MAX_LOGIN_CHARS = 100

_PULL_REQUEST_PATTERN = re.compile(r"/repos/([^/\s]+/[^/\s]+)/pulls/(\d+)\Z")
_REVIEW_MARK_PATTERN = re.compile(rb'(?<!\\)"pull_request_url"\s*:')
# A line that begins or ends a block of code in a comment.
_CODE_FENCE_PATTERN = re.compile(r"\s{0,3}(`{3,}|~{3,})(\w*)")
_BLANKS_PATTERN = re.compile(r"\s*")
# What begins a line of Markdown: a bullet, a number, a heading, emphasis.
_MARKDOWN_START_PATTERN = re.compile(r"^\s*(?:[-*+]|\d+[.)]|#{1,6})\s+")
# A label of a remark: "nit:", "suggestion (non-blocking):".
_REMARK_LABEL_PATTERN = re.compile(r"^\W{0,2}\w+(?: \([\w, -]+\))?\W{0,2}:\W{0,2}\s+")
_REMARK_END_PATTERN = re.compile(r"(?<=[.!?])\s+")
_REMARK_WORD_PATTERN = re.compile(r"\w+")

_COMMIT_PATTERN = re.compile(r"\b[0-9a-f]{40}\b")
# A line of a log: a time, and what was printed then. `gh run view --log` puts the names
# of the job and of the step before it.
_LOG_LINE_PATTERN = re.compile(
    r"^\ufeff?(?:[^\t\n]*\t[^\t\n]*\t)?\ufeff?\d{4}-\d\d-\d\dT[\d:]{8}(?:\.\d+)?Z ?"
)
_LOG_COMMAND_PATTERN = re.compile(r"^##\[(\w+)\](.*)")
_LOG_MARK = b"##["
_STEP_START = "Run "
# The last error of a step, which says nothing else.
_EXIT_PATTERN = re.compile(
    r"^(?:Process completed with exit code -?\d+|The process '[^']*' failed with"
    r" exit code -?\d+)\.?\s*$"
)
_LOG_STYLE_PATTERN = re.compile(r"\x1b\[[0-9;:?]*[A-Za-z]")
# What the step that checks out prints: the pull request, the repository, the commit.
_LOG_PULL_REQUEST_PATTERN = re.compile(r"\brefs/(?:remotes/)?pull/(\d+)/")
_LOG_REPOSITORY_PATTERN = re.compile(r"Syncing repository: (\S+/\S+)")
_LOG_COMMIT_PATTERN = re.compile(
    r"(?:log -1 --format='?%H'?\s+'?|Merge )([0-9a-f]{40})\b"
)
# The folder in which a runner works, and the drive of one on Windows.
_WORKSPACE_PATTERN = re.compile(
    r"(?:/(?:home|Users)/runner/work|/__w|[A-Z]:[\\/]a)[\\/]([^/\\\s]+)[\\/]\1[\\/]"
)
# The log of a job in an archive that was unpacked, "0_build.txt", and that of one step
# of it, "build/3_Run make.txt", which has the same lines.
_STEP_LOG_PATTERN = re.compile(r"\d+_.+\.txt")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something that was said about a change.

    `text` is the sentence of a reviewer, or the line that names an error. `about` is
    the file, the command or the test that it is about. `suggestion` is what a reviewer
    proposed instead. `source` names who said it. What has another `place` is not the
    same, although the text is.
    """

    text: str
    about: str
    source: str
    suggestion: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRemarks:
    """A pull request, a commit or a run, and what was said about it.

    `name` identifies it; "" if the file does not say. `tests` are the tests of a report
    without a name: two reports with a test in common are of two runs.
    """

    name: str
    kind: Literal["review", "ci"]
    remarks: tuple[Remark, ...]
    tests: frozenset[str] = field(default_factory=frozenset)


def change_format(file: str | os.PathLike[str]) -> ChangeFormat:
    """Return the format of a file, "" if it says nothing about a change.

    Raises OSError.
    """
    with open(file, "rb") as opened:
        head = opened.read(CHANGE_HEAD_BYTES)
    if head.startswith(b"PK\x03\x04"):
        return "archive" if _is_log_archive(file) else ""

    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"<"):
        return "junit" if b"<testsuite" in head else ""
    if start[:1] in (b"[", b"{"):
        return "review" if _is_review(start) else ""
    first = head.decode("utf-8", "replace").lstrip().partition("\n")[0]
    is_log = _LOG_LINE_PATTERN.match(first) and _has_log_mark(file)
    return "actions" if is_log else ""


def _is_review(start: bytes) -> bool:
    """Return True if the first object of a file is a comment of a pull request.

    A session of an agent may quote one: then it is text, or deeper in the object.
    """
    if not _REVIEW_MARK_PATTERN.search(start):
        return False
    text = start.decode("utf-8", "ignore")
    depth = len(text) - len(text.lstrip("[ \r\n\t"))
    if depth > 4:
        return False
    try:
        value, _ = json.JSONDecoder().raw_decode(text, depth)
    except (ValueError, RecursionError):
        # A damaged file, or a long comment: no format of sessions is a list of these.
        return text.startswith("[") and '"role"' not in text[:200]
    return isinstance(value, dict) and "pull_request_url" in value


def _has_log_mark(file: str | os.PathLike[str]) -> bool:
    """Return True if a file has a command of a runner, such as `##[group]`."""
    with open(file, "rb") as opened:
        return _LOG_MARK in opened.read(MAX_CHANGE_FILE_BYTES)


def _is_log_archive(file: str | os.PathLike[str]) -> bool:
    """Return True if an archive has texts, as that of a run has."""
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()[:MAX_ARCHIVE_FILES]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        # It says so when it is read.
        return True
    return any(_STEP_LOG_PATTERN.fullmatch(name.rpartition("/")[2]) for name in names)


def read_changes(
    file: str | os.PathLike[str], format: ChangeFormat
) -> list[ChangeRemarks]:
    """Return the changes that a file is about, with what it says of each.

    `format` is that of `change_format`. Secrets and personal data are left out. Raises
    TraceFileError for a damaged file and for one that is too large.
    """
    name = os.fspath(file)
    try:
        if format == "archive":
            return [_read_archive(name)]
        with open(name, "rb") as opened:
            data = opened.read(MAX_CHANGE_FILE_BYTES + 1)
    except OSError as error:
        reason = f"it cannot be read ({error.strerror or error}); check the path"
        raise TraceFileError(name, 0, reason) from error
    if len(data) > MAX_CHANGE_FILE_BYTES:
        reason = f"it is longer than {MAX_CHANGE_FILE_BYTES} bytes; split it"
        raise TraceFileError(name, 0, reason)

    if format == "review":
        return _read_review(name, data)
    if format == "junit":
        return [_read_report(name, data)]
    return [_read_logs([data.decode("utf-8", "replace")])]


def name_changes(
    changes: Iterable[tuple[str | os.PathLike[str], ChangeRemarks]],
) -> list[ChangeRemarks]:
    """Return changes that all have a name; each comes with its file.

    A log without one is a run of its own. Of reports in one folder, those that have no
    test in common are of one run: many tools write a file for each class.
    """
    all_named: list[ChangeRemarks] = []
    runs: dict[str, list[set[str]]] = {}
    for file, change in changes:
        name = change.name
        path = Path(file).absolute()
        if not name and change.tests:
            folder_runs = runs.setdefault(str(path.parent), [])
            number = _run_of(change.tests, folder_runs)
            name = f"run {_short(str(path.parent))}/{number}"
        elif not name:
            with open(path, "rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            name = f"run {digest[:16]}"
        all_named.append(replace(change, name=name))
    return all_named


def is_step_log(file: str | os.PathLike[str]) -> bool:
    """Return True if a file is the log of one step, whose job has a log beside it."""
    path = Path(file)
    if not _STEP_LOG_PATTERN.fullmatch(path.name):
        return False
    job = path.parent.name
    return any(path.parent.parent.glob(f"*_{_glob_text(job)}.txt"))


def _glob_text(text: str) -> str:
    """Return a text that a pattern of files takes as it is."""
    return re.sub(r"([\[*?])", r"[\1]", text)


def _run_of(tests: frozenset[str], runs: list[set[str]]) -> int:
    """Return the number of the run that a report is of, and add its tests to it."""
    for number, run in enumerate(runs, 1):
        if run.isdisjoint(tests):
            run.update(tests)
            return number
    runs.append(set(tests))
    return len(runs)


def _short(text: str) -> str:
    """Return a short digest of a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _clean(text: str) -> str:
    """Return a text without secrets, personal data and the folder of a runner."""
    return mask_personal(redact(_WORKSPACE_PATTERN.sub("", text)))


def _read_review(name: str, data: bytes) -> list[ChangeRemarks]:
    """Return the pull requests of comments. Raises TraceFileError."""
    remarks: dict[str, list[Remark]] = {}
    for number, comment in enumerate(_comments(name, data), 1):
        body = comment.get("body") if isinstance(comment, Mapping) else None
        url = comment.get("pull_request_url") if isinstance(comment, Mapping) else None
        if not isinstance(body, str) or not isinstance(url, str):
            reason = f"value {number} is no comment of a pull request"
            raise TraceFileError(name, 0, reason)

        match = _PULL_REQUEST_PATTERN.search(url)
        change = f"{match[1]}#{match[2]}" if match else _short(url)
        of_change = remarks.setdefault(change, [])
        # A reply is part of a conversation.
        if comment.get("in_reply_to_id") is None and len(of_change) < MAX_FILE_REMARKS:
            of_change += _remarks_of(comment, body)
    return [
        ChangeRemarks(name=change, kind="review", remarks=tuple(of_change))
        for change, of_change in remarks.items()
    ]


def _comments(name: str, data: bytes) -> Iterator[Any]:
    """Yield the values of a file: of lists that follow each other, their items.

    `gh api --paginate` writes a list for each page. Raises TraceFileError.
    """
    try:
        text = data.decode("utf-8-sig")
        decoder = json.JSONDecoder()
        position = _after_blanks(text, 0)
        while position < len(text):
            value, end = decoder.raw_decode(text, position)
            position = _after_blanks(text, end)
            pages = value if isinstance(value, list) else [value]
            for page in pages:
                # With --slurp, the pages are in a list.
                yield from page if isinstance(page, list) else [page]
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        raise TraceFileError(name, line, f"not JSON: {problem(error)}") from error


def _after_blanks(text: str, position: int) -> int:
    """Return where the next value begins."""
    match = _BLANKS_PATTERN.match(text, position)
    return match.end() if match else position


def _remarks_of(comment: Mapping[str, Any], body: str) -> list[Remark]:
    """Return the sentences of a comment that may be rules."""
    user = comment.get("user")
    login = user.get("login") if isinstance(user, Mapping) else None
    author = login if isinstance(login, str) and login.strip() else "unknown"
    author = "".join(author.split())[:MAX_LOGIN_CHARS]
    path = comment.get("path")
    file = _clean(path) if isinstance(path, str) else ""
    words, suggestion = _split_comment(body[:MAX_COMMENT_CHARS])
    remarks = [
        Remark(
            text=_clean(sentence),
            about=file,
            source=f"{REVIEWER_SOURCE_PREFIX}{author}",
            suggestion=_clean(suggestion)[:MAX_REMARK_CHARS],
        )
        for sentence in _sentences_of(words)
    ]
    return remarks[:MAX_COMMENT_REMARKS]


def _split_comment(body: str) -> tuple[str, str]:
    """Return the words of a comment, and the last change that it suggests.

    Blocks of code and what a reader does not see are left out.
    """
    seen, *hidden = body.split("<!--")
    body = seen + "".join(part.partition("-->")[2] for part in hidden)

    words: list[str] = []
    suggestion: list[str] = []
    block = ""
    language = ""
    for line in body.splitlines():
        fence = _CODE_FENCE_PATTERN.match(line)
        if fence and not block:
            block = fence[1]
            language = fence[2]
            if language == "suggestion":
                suggestion.clear()
        elif fence and fence[1].startswith(block):
            block = ""
        elif not block:
            words.append(line)
        elif language == "suggestion":
            suggestion.append(line)
    return "\n".join(words), "\n".join(suggestion)


def _sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of Markdown that have enough words, without quotations."""
    for line in text.splitlines():
        if line.lstrip().startswith((">", "|", "![", "<")):
            continue
        words = _MARKDOWN_START_PATTERN.sub("", line).strip().strip("*_ ")
        for part in _REMARK_END_PATTERN.split(words):
            sentence = _REMARK_LABEL_PATTERN.sub("", part)
            is_short = len(_REMARK_WORD_PATTERN.findall(sentence)) < MIN_REMARK_WORDS
            if not is_short and len(sentence) <= MAX_REMARK_CHARS:
                yield sentence


class _ReportReader:
    """Reads the events of a JUnit report: its failures, its tests and its commit."""

    def __init__(self) -> None:
        self.remarks: list[Remark] = []
        self.tests: set[str] = set()
        self.commit = ""
        self._depth = 0
        self._test = ""
        # The parts of the failure that is open, None outside of one.
        self._failure: list[str] | None = None

    def open(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Begin an element. Raises ValueError if it is nested too deeply."""
        self._depth += 1
        if self._depth > MAX_XML_DEPTH:
            raise ValueError("it is nested too deeply")
        if tag == "testcase":
            parts = (attributes.get("classname"), attributes.get("name"))
            self._test = ".".join(filter(None, parts))
            self.tests.add(self._test)
        elif tag == "property" and not self.commit:
            commit = _COMMIT_PATTERN.fullmatch(attributes.get("value", "").strip())
            self.commit = commit[0] if commit else ""
        elif tag in ("failure", "error") and self._test:
            self._failure = [attributes.get("message", ""), "\n"]

    def read(self, text: str) -> None:
        """Read the text of an element."""
        if self._failure is not None and len(self._failure) < MAX_STEP_LINES:
            self._failure.append(text)

    def close(self, tag: str) -> None:
        """End an element; a failure is a remark."""
        self._depth -= 1
        if tag == "testcase":
            self._test = ""
        if tag not in ("failure", "error") or self._failure is None:
            return

        text = "".join(self._failure)[:MAX_TEST_FAILURE_CHARS]
        self._failure = None
        if len(self.remarks) < MAX_FILE_REMARKS:
            error = named_errors(_WORKSPACE_PATTERN.sub("", text))[0]
            test = _clean(self._test)[:MAX_REMARK_CHARS]
            remark = Remark(text=error, about=test, source=CI_SOURCE, place=test)
            self.remarks.append(remark)


def _refuse_document_type(*_: Any) -> None:
    """Raise ValueError: a document type may declare entities, which expand."""
    raise ValueError("it has a document type, which no report needs")


def _read_report(name: str, data: bytes) -> ChangeRemarks:
    """Return the run that a JUnit report is about. Raises TraceFileError."""
    reader = _ReportReader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = _refuse_document_type
    parser.EntityDeclHandler = _refuse_document_type
    parser.StartElementHandler = reader.open
    parser.EndElementHandler = reader.close
    parser.CharacterDataHandler = reader.read
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        line = parser.CurrentLineNumber
        raise TraceFileError(name, line, f"not a JUnit report: {error}") from error
    return ChangeRemarks(
        name=reader.commit,
        kind="ci",
        remarks=tuple(reader.remarks),
        tests=frozenset(reader.tests),
    )


class _LogReader:
    """Reads the lines of a job's log: the errors of each step that failed."""

    def __init__(self) -> None:
        self.remarks: list[Remark] = []
        self._command = ""
        # The script of a step stands before its output, in a group.
        self._is_script = False
        self._output: deque[str] = deque(maxlen=MAX_STEP_LINES)
        self._messages: list[str] = []

    def read(self, line: str) -> None:
        """Read a line, without its time."""
        command = _LOG_COMMAND_PATTERN.match(line)
        if command is None:
            if not self._is_script:
                self._output.append(line)
            return

        name = command[1]
        text = command[2].strip()
        if name == "group" and text.startswith(_STEP_START):
            self.close()
            self._command = text.removeprefix(_STEP_START)
            self._is_script = True
        elif name == "endgroup":
            self._is_script = False
        elif name == "error" and _EXIT_PATTERN.match(text):
            self._fail(self._messages or self._output)
        elif name == "error" and text:
            self._messages.append(text)

    def close(self) -> None:
        """End a step; one that only reported errors has failed, too."""
        if self._messages:
            self._fail(self._messages)
        self._output.clear()

    def _fail(self, lines: Iterable[str]) -> None:
        """Note the errors of a step."""
        text = _WORKSPACE_PATTERN.sub("", "\n".join(lines))
        command = _clean(self._command)[:MAX_REMARK_CHARS]
        errors = named_errors(text) if text.strip() else []
        for error in errors:
            place = command if is_of_work(error) else ""
            remark = Remark(text=error, about=command, source=CI_SOURCE, place=place)
            if error != "error" and len(self.remarks) < MAX_FILE_REMARKS:
                self.remarks.append(remark)
        self._messages.clear()
        self._output.clear()


def _read_logs(logs: Sequence[str]) -> ChangeRemarks:
    """Return the run that logs of its jobs are about."""
    remarks: list[Remark] = []
    names: list[str] = []
    for log in logs:
        reader = _LogReader()
        for raw in log.splitlines():
            line = _LOG_LINE_PATTERN.sub("", raw)
            reader.read(_LOG_STYLE_PATTERN.sub("", line))
        reader.close()
        remarks += reader.remarks
        names.append(_name_in_log(log))
    name = next(filter(None, names), "")
    return ChangeRemarks(name=name, kind="ci", remarks=tuple(remarks))


def _name_in_log(log: str) -> str:
    """Return the pull request or the commit that a log is about; "" if it is unknown.

    All runs for a pull request are about one change.
    """
    log = log[:MAX_LOG_HEAD_CHARS]
    repository = _LOG_REPOSITORY_PATTERN.search(log)
    pull_request = _LOG_PULL_REQUEST_PATTERN.search(log)
    if pull_request:
        where = repository[1] if repository else ""
        return f"{where}#{pull_request[1]}"
    output = "\n".join(_LOG_LINE_PATTERN.sub("", line) for line in log.splitlines())
    commit = _LOG_COMMIT_PATTERN.search(output)
    return commit[1] if commit else ""


def _read_archive(name: str) -> ChangeRemarks:
    """Return the run whose logs are in an archive. Raises OSError, TraceFileError."""
    try:
        with open(name, "rb") as file, zipfile.ZipFile(file) as archive:
            return _read_logs(_logs_in(name, archive))
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        RuntimeError,
        NotImplementedError,
    ) as error:
        raise TraceFileError(name, 0, f"not an archive of logs: {error}") from error


def _logs_in(name: str, archive: zipfile.ZipFile) -> list[str]:
    """Return the logs of jobs in an archive. Raises TraceFileError if they are large.

    The logs of steps are in folders; they repeat those of their jobs.
    """
    members = [item for item in archive.infolist() if item.filename.endswith(".txt")]
    if len(members) > MAX_ARCHIVE_FILES:
        reason = f"it has more than {MAX_ARCHIVE_FILES} logs; unpack and split it"
        raise TraceFileError(name, 0, reason)

    jobs = [item for item in members if "/" not in item.filename]
    logs: list[str] = []
    room = MAX_ARCHIVE_BYTES
    for item in jobs or members:
        limit = min(room, MAX_CHANGE_FILE_BYTES)
        # What an archive says of its sizes may be wrong.
        with archive.open(item) as opened:
            data = opened.read(limit + 1)
        if len(data) > limit:
            reason = f"{item.filename} in it is too long; unpack and split it"
            raise TraceFileError(name, 0, reason)
        room -= len(data)
        logs.append(data.decode("utf-8", "replace"))
    return logs
