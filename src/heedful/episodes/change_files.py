"""Files about changes: their format, their bounds, and which change they are about.

The content shows the format, not the name: comments of pull requests as GitHub's API
has them, JUnit XML, and logs of GitHub Actions, also in an archive.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from heedful.episodes.changes import (
    LOG_LINE_PATTERN,
    ChangeRemarks,
    read_logs,
    read_report,
    read_review,
)
from heedful.errors import TraceFileError
from heedful.lessons.lesson import short_digest

ChangeFormat = Literal["", "review", "junit", "actions", "archive"]
# The format is found in the first bytes of a file.
CHANGE_HEAD_BYTES = 65_536
MAX_CHANGE_FILE_BYTES = 64 * 2**20
# An archive: its files, and the bytes of all of them. A larger one is refused.
MAX_ARCHIVE_FILES = 2_000
MAX_ARCHIVE_BYTES = 256 * 2**20
_REVIEW_MARK_PATTERN = re.compile(rb'(?<!\\)"pull_request_url"\s*:')
_LOG_MARK = b"##["
# The log of a job in an archive that was unpacked, "0_build.txt", and that of one step
# of it, "build/3_Run make.txt", which has the same lines.
_STEP_LOG_PATTERN = re.compile(r"\d+_.+\.txt")


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
    is_log = LOG_LINE_PATTERN.match(first) and _has_log_mark(file)
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
        return read_review(name, data)
    if format == "junit":
        return [read_report(name, data)]
    return [read_logs([data.decode("utf-8", "replace")])]


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
            name = f"run {short_digest(str(path.parent))}/{number}"
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


def _read_archive(name: str) -> ChangeRemarks:
    """Return the run whose logs are in an archive. Raises OSError, TraceFileError."""
    try:
        with open(name, "rb") as file, zipfile.ZipFile(file) as archive:
            return read_logs(_logs_in(name, archive))
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
