"""Read logs of CI jobs. Sources: actions/runner, gitlab-org/gitlab-runner.

A line may begin with a time; `gh run view --log` puts the names of the job and of the
step before it. On GitHub, a step begins with `##[group]Run` and reports errors as
`##[error]`. On GitLab, sections have the steps of a job, and the script's has its
commands, each after `$`. Each command that failed is a call, and each job an episode.
"""

import re
from collections import deque
from contextlib import suppress
from typing import Any

from heedful.episodes.episode import Ended, Episode, EpisodeBuilder, Event, Limits
from heedful.episodes.messages import seconds, text_of
from heedful.episodes.readers.base import ValueReader
from heedful.errors import InvalidInput

SCRIPT_SECTIONS = ("step_script", "build_script")
_LOG_LINE_PATTERN = re.compile(
    r"(?m)^(?=.*\S)\ufeff?(?:(?P<job>[^\t\n]*)\t[^\t\n]*\t)?\ufeff?"
    r"(?:(?P<time>\d{4}-\d\d-\d\dT[\d:]{8}(?:\.\d+)?Z) ?(?:\d\d[OE][ +]?)?)?"
    r"(?P<text>.*)"
)
# A command of GitHub's runner, or a section of GitLab's.
_LOG_MARK_PATTERN = re.compile(
    r"##\[(?P<name>\w+)\](?P<words>.*)"
    r"|section_(?P<part>start|end):(?P<time>\d+):(?P<section>\w+)(?:\[[^\]]*\])?\r?"
)
# The last error of a step, which says nothing else.
_EXIT_PATTERN = re.compile(
    r"(?:Process completed with exit code|The process '[^']*' failed with exit code"
    r"|ERROR: Job failed: exit (?:code|status)) -?\d+\.?\s*"
)
# The folder in which a runner works, and the drive of one on Windows.
_WORKSPACE_PATTERN = re.compile(
    r"(?:/(?:home|Users)/runner/work|/__w|[A-Z]:[\\/]a)[\\/]([^/\\\s]+)[\\/]\1[\\/]"
)


class CiLogReader(ValueReader):
    """Reads a log of GitHub Actions or GitLab: each job is an episode."""

    source = "ci-log"

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for a text with commands of a runner, or with sections."""
        if not isinstance(value, str):
            return False
        first = _LOG_LINE_PATTERN.match(value.lstrip())
        is_stamped = first is not None and first["time"] is not None
        is_gitlab = "Running with gitlab-runner" in value or "section_start:" in value
        return is_gitlab or (is_stamped and "##[" in value)

    def add(self, value: Any) -> list[Episode]:
        """Return the episodes of a log."""
        jobs: dict[str, _Job] = {}
        for line in _LOG_LINE_PATTERN.finditer(text_of(value)):
            name = line["job"] or ""
            job = jobs[name] = jobs.get(name) or _Job(self._limits, self.source)
            job.time = line["time"] or job.time
            job.read(line["text"].rstrip("\r"))

        return [job.episode(name) for name, job in jobs.items()]


class _Job:
    """The command of a job that runs, its output, and what failed before."""

    def __init__(self, limits: Limits, source: str) -> None:
        self.time: Any = None
        self._outcome: Ended | None = None
        self._builder = EpisodeBuilder(limits, source)
        self._command = ""
        # Whether lines are no output: they are a script, or of another section.
        self._is_muted = False
        # The last lines of the command.
        self._output: deque[str] = deque(maxlen=5_000)
        self._errors: list[str] = []

    def read(self, line: str) -> None:
        """Read a line, without its time."""
        for mark in _LOG_MARK_PATTERN.finditer(line):
            self._read_mark(mark)
        line = _LOG_MARK_PATTERN.sub("", line).rpartition("\r")[2]
        if line.startswith("ERROR: Job failed"):
            self._report(line)
        elif line.startswith("Job succeeded"):
            self._outcome = "success"
        elif self._is_muted:
            return
        elif line.startswith("$ "):
            self._begin(line.removeprefix("$ "))
        else:
            self._output.append(line)

    def _read_mark(self, mark: re.Match[str]) -> None:
        """Read a command of a runner, or the start or end of a section."""
        words = (mark["words"] or "").strip()
        if mark["name"] and self._outcome is None:  # GitHub names no success
            self._outcome = "success"
        name = mark["name"] or mark["part"]
        if name == "group" and words.startswith("Run "):
            self._begin(words.removeprefix("Run "))
            self._is_muted = True
        elif name == "endgroup":
            self._is_muted = False
        elif name == "error":
            self._report(words)
        elif name == "start":
            self._is_muted = mark["section"] not in SCRIPT_SECTIONS
        if mark["section"] and not isinstance(self.time, str):
            self.time = float(mark["time"])

    def _begin(self, command: str) -> None:
        """Begin a command; the one before that only reported errors has failed."""
        if self._errors:
            self._fail()
        self._command = command
        self._output.clear()

    def _report(self, error: str) -> None:
        """Note an error; a bare status says that the command has failed."""
        if _EXIT_PATTERN.fullmatch(error):
            self._fail()
        elif error:
            self._errors.append(error)

    def _fail(self) -> None:
        """Note that the command failed, with its errors or what it printed."""
        self._outcome = "failure"
        error = "\n".join(self._errors or self._output)
        error = _WORKSPACE_PATTERN.sub("", error).strip() or "failed"
        self._errors.clear()
        time = None
        with suppress(InvalidInput):
            time = seconds(self.time)
        call = Event(
            "tool_call", tool="Bash", arguments={"command": self._command}, at=time
        )
        self._builder.add(call)
        self._builder.add(Event("tool_response", tool="Bash", error=error, at=time))

    def episode(self, name: str) -> Episode:
        """Return the episode of the job."""
        self._begin("")
        return self._builder.episode(task=name, outcome=self._outcome)
