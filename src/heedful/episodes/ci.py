"""What failed in runs of CI: JUnit reports, and logs of GitHub Actions.

Pure, except for `read_ci`, which reads a file.

The content shows the format of a file, not its name. Anyone may have written it, so
each part is bounded. XML is read by expat of the standard library, one event at a time,
and a document type is refused: without one there are no entities, so nothing can
expand, and no report of tests has one.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

from heedful.episodes.error_lines import named_errors
from heedful.errors import TraceFileError
from heedful.redact import mask_personal, redact, redact_start

# The format is found in the first bytes of a file.
CI_HEAD_BYTES = 65_536
MAX_CI_FILE_BYTES = 64 * 2**20
# An archive: its logs, and the bytes of all of them. A larger one is refused.
MAX_ARCHIVE_LOGS = 2_000
MAX_ARCHIVE_BYTES = 256 * 2**20
MAX_XML_DEPTH = 100
# Of a failure that is longer, the beginning is read.
MAX_TEST_FAILURE_CHARS = 20_000
# The lines of a step that are searched for its errors, the last ones.
MAX_STEP_LINES = 5_000
MAX_CI_FAILURES = 2_000
MAX_CI_COMMAND_CHARS = 300
# What names a change is at the beginning of a log.
MAX_LOG_HEAD_CHARS = 2_000_000

_COMMIT_PATTERN = re.compile(r"\b[0-9a-f]{40}\b")
# A line of a log: a time, and what was printed then. `gh run view --log` puts the names
# of the job and of the step before it.
_LOG_LINE_PATTERN = re.compile(
    r"^\ufeff?(?:[^\t\n]*\t[^\t\n]*\t)?\ufeff?\d{4}-\d\d-\d\dT[\d:]{8}(?:\.\d+)?Z ?"
)
_LOG_COMMAND_PATTERN = re.compile(r"^##\[(\w+)\](.*)")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CiFailure:
    """A failure in a run of CI: the line that names the `error`, and the test or the
    command that it is `about`.
    """

    error: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CiRun:
    """What failed in a run of CI.

    `change` is the pull request or the commit that it is about, "" if the file does not
    say.
    """

    change: str
    failures: tuple[CiFailure, ...]


def read_ci(file: str | os.PathLike[str]) -> CiRun | None:
    """Return the run that a file is about; None if it is of another kind.

    The file is JUnit XML, a log of GitHub Actions, or the archive of the logs of a run.
    Secrets and personal data are left out. Raises TraceFileError for a damaged file and
    for one that is too large.
    """
    name = os.fspath(file)
    try:
        with open(name, "rb") as opened:
            if opened.read(4) == b"PK\x03\x04":
                return _read_archive(name)
            opened.seek(0)
            data = opened.read(MAX_CI_FILE_BYTES + 1)
    except OSError as error:
        reason = f"it cannot be read ({error.strerror or error}); check the path"
        raise TraceFileError(name, 0, reason) from error
    if len(data) > MAX_CI_FILE_BYTES:
        reason = f"it is longer than {MAX_CI_FILE_BYTES} bytes; split it"
        raise TraceFileError(name, 0, reason)

    start = data[:CI_HEAD_BYTES].removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"<") and b"<testsuite" in start:
        return _read_report(name, data)
    first = start.decode("utf-8", "replace").partition("\n")[0]
    if _LOG_LINE_PATTERN.match(first) and b"##[" in data:
        return _read_logs([data.decode("utf-8", "replace")])
    return None


def _clean(text: str) -> str:
    """Return a text without secrets, personal data and the folder of a runner."""
    return mask_personal(redact(_WORKSPACE_PATTERN.sub("", text)))


class _ReportReader:
    """Reads the events of a JUnit report: its failures, and its commit."""

    def __init__(self) -> None:
        self.failures: list[CiFailure] = []
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
        """End an element; a failure is noted."""
        self._depth -= 1
        if tag == "testcase":
            self._test = ""
        if tag not in ("failure", "error") or self._failure is None:
            return

        text = redact_start("".join(self._failure), MAX_TEST_FAILURE_CHARS)
        self._failure = None
        if len(self.failures) < MAX_CI_FAILURES:
            error = named_errors(_WORKSPACE_PATTERN.sub("", text))[0]
            test = _clean(self._test)[:MAX_CI_COMMAND_CHARS]
            self.failures.append(CiFailure(error=error, about=test))


def _refuse_document_type(*_: Any) -> None:
    """Raise ValueError: a document type may declare entities, which expand."""
    raise ValueError("it has a document type, which no report needs")


def _read_report(name: str, data: bytes) -> CiRun:
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
    return CiRun(change=reader.commit, failures=tuple(reader.failures))


class _LogReader:
    """Reads the lines of a job's log: the errors of each step that failed."""

    def __init__(self) -> None:
        self.failures: list[CiFailure] = []
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
        command = _clean(self._command)[:MAX_CI_COMMAND_CHARS]
        for error in named_errors(text) if text.strip() else ():
            if error != "error" and len(self.failures) < MAX_CI_FAILURES:
                self.failures.append(CiFailure(error=error, about=command))
        self._messages.clear()
        self._output.clear()


def _read_logs(logs: Sequence[str]) -> CiRun:
    """Return the run that logs of its jobs are about."""
    failures: list[CiFailure] = []
    names: list[str] = []
    for log in logs:
        reader = _LogReader()
        for raw in log.splitlines():
            line = _LOG_LINE_PATTERN.sub("", raw)
            reader.read(_LOG_STYLE_PATTERN.sub("", line))
        reader.close()
        failures += reader.failures
        names.append(_name_in_log(log))
    change = next(filter(None, names), "")
    return CiRun(change=change, failures=tuple(failures))


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


def _read_archive(name: str) -> CiRun:
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
    if len(members) > MAX_ARCHIVE_LOGS:
        reason = f"it has more than {MAX_ARCHIVE_LOGS} logs; unpack and split it"
        raise TraceFileError(name, 0, reason)

    jobs = [item for item in members if "/" not in item.filename]
    logs: list[str] = []
    room = MAX_ARCHIVE_BYTES
    for item in jobs or members:
        limit = min(room, MAX_CI_FILE_BYTES)
        # What an archive says of its sizes may be wrong.
        with archive.open(item) as opened:
            data = opened.read(limit + 1)
        if len(data) > limit:
            reason = f"{item.filename} in it is too long; unpack and split it"
            raise TraceFileError(name, 0, reason)
        room -= len(data)
        logs.append(data.decode("utf-8", "replace"))
    return logs
