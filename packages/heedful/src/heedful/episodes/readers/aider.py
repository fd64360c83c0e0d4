"""Read chat histories of aider. Source: Aider-AI/aider, aider/coders/base_coder.py.

A line "#### …" is of the user, "> …" of aider, and any other of the model. Aider says
there which commands it runs, which files it edits, and what failed.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from heedful.episodes.episode import Episode, EpisodeBuilder, Event
from heedful.episodes.messages import text_of
from heedful.episodes.readers.base import ValueReader, refused_call

START = "# aider chat started at "
# What a user types to run a command.
RUN_COMMANDS = ("/run ", "/test ", "!")
# What aider did, or how that failed; the user refuses a command on the line after it.
_STEP_PATTERN = re.compile(
    r"(?m)^(?:Running (?P<command>.+)|Applied edit to (?P<path>.+)"
    r"|(?P<failure>.*did not conform to the edit format.*)"
    r"|(?P<error>litellm\.\w+: .+|Model .+ has hit a token limit!)"
    r"|(?P<refused>.+)\nRun shell commands?\?.*: n|.*\? \(Y\)es/.*)$"
)
_BYTES_PATTERN = re.compile(r"\bb'(\{.*\})'")


class AiderReader(ValueReader):
    """Reads `.aider.chat.history.md`: each start of aider is an episode."""

    source = "aider"

    @staticmethod
    def begins(value: Any) -> bool:
        """Return True for a text that begins with a start of aider."""
        return isinstance(value, str) and value.lstrip().startswith(START)

    def add(self, value: Any) -> list[Episode]:
        """Return the episodes of a history."""
        episodes = []
        for chat in f"\n{text_of(value)}".split(f"\n{START}")[1:]:
            builder = EpisodeBuilder(self._limits, self.source)
            for event in _events_of(chat.splitlines()[1:]):
                builder.add(event)
            if builder.count:
                episodes.append(builder.episode())
        return episodes


def _events_of(lines: Sequence[str]) -> Iterator[Event]:
    """Yield the events of a chat."""
    running = ""
    for mark, group in groupby(lines, key=_mark_of):
        words = [line.removeprefix(mark).strip() for line in group]
        text = "\n".join(words).strip()
        if mark == "> ":
            yield from _steps_of(f"{running}{text}")
            running = ""
        elif mark and text.startswith(RUN_COMMANDS):
            command = text[1:] if text[0] == "!" else text.partition(" ")[2]
            running = f"Running {command}\n"
        elif mark and not text.startswith("/") and text != "<blank>":
            yield Event("user_message", text)
        elif text and not mark:
            yield Event("llm_response", text)


def _mark_of(line: str) -> str:
    """Return who a line is of, by its beginning."""
    return next((mark for mark in ("#### ", "> ") if line.startswith(mark)), "")


def _steps_of(text: str) -> Iterator[Event]:
    """Yield the calls in what aider says, with their results."""
    steps = list(_STEP_PATTERN.finditer(text))
    ends = [*(step.start() for step in steps[1:]), len(text)]
    for step, end in zip(steps, ends, strict=False):
        output = text[step.end() : end].strip()
        if step["command"]:
            arguments = {"command": step["command"]}
            yield Event("tool_call", tool="Bash", arguments=arguments)
            if output:
                yield Event("tool_response", output, tool="Bash")
        elif step["path"]:
            yield Event("tool_call", tool="edit", arguments={"path": step["path"]})
            yield Event("tool_response", step[0], tool="edit")
        elif step["failure"]:
            error = f"{step[0]}\n{output}".strip()
            yield Event("tool_call", tool="edit")
            yield Event("tool_response", tool="edit", error=error)
        elif step["error"]:
            # The answer of an API stands there as Python prints bytes.
            yield Event("error_event", error=_BYTES_PATTERN.sub(r"\1", step[0]))
        elif step["refused"]:
            yield from refused_call("Bash", {"command": step["refused"]})
