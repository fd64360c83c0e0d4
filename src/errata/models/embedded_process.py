"""The parent's end of the embedded model's process: start, send, hear, end."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from errata.errors import ModelUnavailable

PROGRAM = Path(__file__).with_name("embedded_child.py")
TAIL_BYTES = 2_000
Signals = queue.SimpleQueue[tuple[object, dict[str, Any] | None]]


class ChildDied(Exception):
    """The process ended before it answered."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the child needs to load: the file, tokens of context, threads."""

    path: str
    context: int
    threads: int


class Child:
    """One process. Its lines go to `signals` as (child, message), its end as (child, None)."""

    def __init__(self, settings: Settings, signals: Signals) -> None:
        self.ready = False
        self._failed = ""
        self._tail = b""
        self._process = _start()
        self.pid = self._process.pid
        self._threads = [
            threading.Thread(target=self._hear, args=(signals,), daemon=True),
            threading.Thread(target=self._collect, daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self.send({"open": asdict(settings) | {"sys_path": [p for p in sys.path if p]}})

    def send(self, message: dict[str, Any]) -> None:
        """Write one line; a child that is gone is heard of through `signals`."""
        with suppress(BrokenPipeError):
            _open(self._process.stdin).write(json.dumps(message).encode() + b"\n")
            _open(self._process.stdin).flush()

    def note(self, message: dict[str, Any]) -> None:
        """Remember what a line says of the child itself."""
        self.ready = self.ready or "ready" in message
        self._failed = message.get("failed", self._failed)

    def kill(self) -> None:
        """End the process without waiting."""
        self._process.kill()

    def end(self) -> None:
        """Kill the process and give back all that it held."""
        self.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with suppress(BrokenPipeError):  # what was still to be written
                _open(pipe).close()

    def last_words(self) -> str:
        """Why it ended, after `end`: its own words, or the exit code and the end of stderr."""
        if self._failed:
            return self._failed
        said = self._tail.decode("utf-8", "replace").strip() or "nothing"
        return f"{_exit(self._process.returncode)}; its last words: {said}"

    def _hear(self, signals: Signals) -> None:
        for line in _open(self._process.stdout):
            signals.put((self, json.loads(line)))
        signals.put((self, None))

    def _collect(self) -> None:
        while chunk := os.read(_open(self._process.stderr).fileno(), 4096):
            self._tail = (self._tail + chunk)[-TAIL_BYTES:]


def _start() -> subprocess.Popen[bytes]:
    flags = 0
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP
    try:
        return subprocess.Popen(
            [sys.executable or "python", "-P", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is for the parent, which decides what to do
            creationflags=flags,
        )
    except OSError as error:
        what = f"the process for the embedded model did not start: {error}"
        raise ModelUnavailable(what) from error


def _open(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    return f"killed by signal {-code} ({signal.Signals(-code).name})"
