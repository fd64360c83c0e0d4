"""What was said about changes: review comments, JUnit reports, logs of CI. Pure.

A text says a few things (`Remark`) about one or more changes: pull requests, commits or
runs (`ChangeRemarks`). Anyone may have written it, so each part is bounded. XML is read
by expat of the standard library, one event at a time, and a document type is refused:
without one there are no entities, so nothing can expand, and no report of tests has
one.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from xml.parsers import expat

from heedful.episodes.error_lines import is_of_work, named_errors
from heedful.errors import TraceFileError
from heedful.lessons.lesson import short_digest
from heedful.lessons.quarantine import REVIEWER_SOURCE_PREFIX
from heedful.redact import mask_personal, redact, redact_start
from heedful.sanitize import clean

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
LOG_LINE_PATTERN = re.compile(
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


def _clean(text: str) -> str:
    """Return a text without secrets, personal data and the folder of a runner."""
    return mask_personal(redact(_WORKSPACE_PATTERN.sub("", text)))


def read_review(name: str, data: bytes) -> list[ChangeRemarks]:
    """Return the pull requests of comments. Raises TraceFileError."""
    remarks: dict[str, list[Remark]] = {}
    for number, comment in enumerate(_comments(name, data), 1):
        body = comment.get("body") if isinstance(comment, Mapping) else None
        url = comment.get("pull_request_url") if isinstance(comment, Mapping) else None
        if not isinstance(body, str) or not isinstance(url, str):
            reason = f"value {number} is no comment of a pull request"
            raise TraceFileError(name, 0, reason)

        match = _PULL_REQUEST_PATTERN.search(url)
        change = f"{match[1]}#{match[2]}" if match else short_digest(url)
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
        reason = getattr(error, "msg", "") or "it is nested too deeply or no UTF-8"
        raise TraceFileError(name, line, f"not JSON: {reason}") from error


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
    file = _clean(clean(path, MAX_REMARK_CHARS)) if isinstance(path, str) else ""
    words, suggestion = _split_comment(redact_start(body, MAX_COMMENT_CHARS))
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

        text = redact_start("".join(self._failure), MAX_TEST_FAILURE_CHARS)
        self._failure = None
        if len(self.remarks) < MAX_FILE_REMARKS:
            error = named_errors(_WORKSPACE_PATTERN.sub("", text))[0]
            test = _clean(self._test)[:MAX_REMARK_CHARS]
            remark = Remark(text=error, about=test, source=CI_SOURCE, place=test)
            self.remarks.append(remark)


def _refuse_document_type(*_: Any) -> None:
    """Raise ValueError: a document type may declare entities, which expand."""
    raise ValueError("it has a document type, which no report needs")


def read_report(name: str, data: bytes) -> ChangeRemarks:
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


def read_logs(logs: Sequence[str]) -> ChangeRemarks:
    """Return the run that logs of its jobs are about."""
    remarks: list[Remark] = []
    names: list[str] = []
    for log in logs:
        reader = _LogReader()
        for raw in log.splitlines():
            line = LOG_LINE_PATTERN.sub("", raw)
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
    output = "\n".join(LOG_LINE_PATTERN.sub("", line) for line in log.splitlines())
    commit = _LOG_COMMIT_PATTERN.search(output)
    return commit[1] if commit else ""
