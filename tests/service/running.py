"""A running service: `heedful serve` in a process of its own, on any free port."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

COMMAND_LINE = ("-m", "heedful.cli")
WAITING = 60.0  # seconds until a process that should have ended is given up


class Service:
    """A service that works in that folder, on `heedful.db`, without weights."""

    def __init__(
        self, folder: Path, *options: str, program: Sequence[str] = COMMAND_LINE
    ) -> None:
        command = [
            sys.executable,
            *program,
            "serve",
            "--port",
            "0",
            *options,
        ]
        env = {
            **os.environ,
            "HEEDFUL_CACHE": str(folder / "cache"),
            "HEEDFUL_SETTLED": "0.2",
        }
        env.setdefault("HEEDFUL_DB", "heedful.db")  # also in a folder of a repository
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                env=env,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        self.out = self.process.stdout
        self.said = self.out.readline()
        assert "http://" in self.said, self.said + (folder / "log").read_text()
        self.url = self.said.split()[-1]

    def end(self, how: int = signal.SIGTERM) -> int:
        self.process.send_signal(how)
        with self.out:
            self.said += self.out.read()
        return self.process.wait(WAITING)


@contextmanager
def running(
    folder: Path, *options: str, program: Sequence[str] = COMMAND_LINE
) -> Iterator[str]:
    """The URL of a service, which has to end well."""
    service = Service(folder, *options, program=program)
    try:
        yield service.url
    finally:
        code = service.end()
    assert code == 0, service.said + (folder / "log").read_text()
