"""Runs `heedful` as a user does: in a folder with task files and a model."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import invalidate_caches
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import pytest

from heedful.cli import main

COMMAND = (sys.executable, "-m", "heedful.cli")
SECONDS = 60

# Every call is noted in calls.log before it is answered. The first answer is wrong, and
# with what was fed back the answer is right, but for tasks that say "never".
MODEL = """
import os, time
from heedful import Answer, Usage

def note(text):
    name = os.environ.get("CALLS", "calls.log")
    with open(name, "a", encoding="utf-8", errors="replace") as file:
        file.write(text.splitlines()[-1] + "\\n")

def answer(messages):
    task = messages[-1].content
    note(task)
    time.sleep(float(os.environ.get("SLEEP", "0")))
    word = task.splitlines()[-1].split()[-1]
    right = "not accepted" in task and "never" not in task
    return Answer(word if right else "wrong", Usage(1, 10, completion_tokens=5))

def at_once(messages):
    note(messages[-1].content)
    return messages[-1].content.splitlines()[-1].split()[-1]

def slow(messages):
    note(messages[-1].content)
    time.sleep(60)

def nothing(messages):
    return ""

def huge(messages):
    return "x" * 10_000_000

def raises(messages):
    raise OSError("the model fell over")

def exits(messages):
    raise SystemExit(0)
"""
CHECKS = """
def raises(candidate, context):
    raise ZeroDivisionError("the check fell over")

"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output, which must be exactly one JSON document."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Streams:
    """What a command reads from and writes to."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO


@dataclass(frozen=True)
class Desk:
    folder: Path

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        # Nothing of this machine's own settings; a warning is an error.
        inherited = {
            k: v for k, v in os.environ.items() if not k.startswith("HEEDFUL_")
        }
        settings = {
            "HEEDFUL_CACHE": str(self.folder / "cache"),
            "PYTHONWARNINGS": "error",
        }
        return {**inherited, **settings, **(more or {})}

    def start(
        self,
        line: str,
        stdin: int = subprocess.DEVNULL,
        stderr: int = subprocess.PIPE,
        **more: str,
    ) -> subprocess.Popen[str]:
        """Start the command line in a process of its own, with this environment."""
        # A shell that runs the tests in the background lets all ignore Ctrl-C.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(
                [*COMMAND, *shlex.split(line)],
                cwd=self.folder,
                env=self.environment(more),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
            )
        finally:
            signal.signal(signal.SIGINT, handler)

    def heedful(self, line: str = "", stdin: str | bytes = "", **more: str) -> Done:
        """Run the command line within this process, with no setting but these."""
        with self.settings(more) as patch:
            return self.invoke(patch, line, stdin=stdin)

    @contextmanager
    def settings(self, more: Mapping[str, str]) -> Iterator[pytest.MonkeyPatch]:
        """Let the environment have no setting of heedful but these."""
        with pytest.MonkeyPatch.context() as patch:
            for name in list(os.environ):
                if name.startswith("HEEDFUL_"):
                    patch.delenv(name)
            for name, value in more.items():
                patch.setenv(name, value)
            yield patch

    def invoke(
        self, patch: pytest.MonkeyPatch, line: str, stdin: str | bytes = ""
    ) -> Done:
        """Run the command line within this process; return what it prints."""
        typed = stdin.encode() if isinstance(stdin, str) else stdin
        out = TextIOWrapper(BytesIO(), encoding="utf-8")
        err = TextIOWrapper(BytesIO(), encoding="utf-8")
        keys = TextIOWrapper(BytesIO(typed), encoding="utf-8")
        code = self.run(patch, line, Streams(keys, out, err))
        return Done(code, text_of(out), text_of(err))

    def run(self, patch: pytest.MonkeyPatch, line: str, streams: Streams) -> int:
        """Run the command line within this process with these streams.

        Forget what it imports from the folder.
        """
        patch.chdir(self.folder)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("HEEDFUL_CACHE", str(self.folder / "cache"))
        invalidate_caches()
        with pytest.MonkeyPatch.context() as patch_of_streams:
            patch_of_streams.setattr(sys, "stdin", streams.stdin)
            patch_of_streams.setattr(sys, "stdout", streams.stdout)
            patch_of_streams.setattr(sys, "stderr", streams.stderr)
            try:
                return main(shlex.split(line))
            finally:
                self.forget_imports()

    def forget_imports(self) -> None:
        """Let the next command import the modules of the folder again."""
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "")).startswith(str(self.folder)):
                del sys.modules[name]

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        return path

    def tasks(
        self, entries: Iterable[Mapping[str, Any]], name: str = "tasks.jsonl"
    ) -> Path:
        """Write a file of tasks, one a line."""
        return self.write(name, "".join(json.dumps(entry) + "\n" for entry in entries))

    def records(
        self, loops: Iterable[Mapping[str, Any]], name: str = "loops.jsonl"
    ) -> Path:
        """Write a file of recorded loops, one a line."""
        return self.tasks(loops, name=name)

    def calls(self) -> list[str]:
        """The tasks of all calls that reached the model, in order."""
        path = self.folder / "calls.log"
        return path.read_text("utf-8").splitlines() if path.exists() else []

    def wait_for(
        self, condition: Callable[[], Any], process: subprocess.Popen[str]
    ) -> None:
        """Wait until the condition holds; the process must not end before."""
        end = time.monotonic() + SECONDS
        while not condition():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, "it takes too long"
            time.sleep(0.005)


def text_of(stream: TextIOWrapper) -> str:
    """Return what was written into a stream in memory."""
    stream.seek(0)
    return stream.read()


def task(word: str, **more: Any) -> dict[str, Any]:
    """A task whose right answer is `word`."""
    checks = [{"name": "contains", "needles": [word]}]
    return {"id": word, "task": f"Say {word}", "checks": checks, **more}


def record(id: str, *answers: str, **more: Any) -> dict[str, Any]:
    """A recorded loop of these answers; those that end in ! passed."""
    attempts = [
        {"candidate": a.rstrip("!"), "passed": a.endswith("!")} for a in answers
    ]
    return {"id": id, "attempts": attempts, **more}


def next_line(out: str) -> str:
    """Return the command line that a result shows as the next one, without the name
    of the program.
    """
    (line,) = [line for line in out.splitlines() if line.startswith("Next: ")]
    program, _, rest = line.removeprefix("Next: ").partition(" ")
    assert program == "heedful"
    return rest


def await_end(process: subprocess.Popen[str]) -> Done:
    out, err = process.communicate(timeout=SECONDS)
    return Done(process.returncode, out, err)


def rows(done: Done) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in row.items() if k != "seconds"} for row in done.json["rows"]
    ]
