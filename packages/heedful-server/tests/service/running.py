"""A running service on any free port: `heedful serve` in a process, or in this one."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from typer.testing import CliRunner, Result

from heedful.cli.app import app
from heedful_server.server import bound, listen, url_of
from tests.service.support import Api

T = TypeVar("T")
COMMAND_LINE = ("-m", "heedful.cli")
SIGNAL_INTERVAL_SECONDS = 0.02
WAITING = 60.0  # seconds until a process that should have ended is given up


class Service:
    """A service that works in that folder, on `heedful.db`, without weights."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, *COMMAND_LINE, "serve", "--port", "0", *options]
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
def running(folder: Path, *options: str) -> Iterator[str]:
    """The URL of a service, which has to end well."""
    service = Service(folder, *options)
    try:
        yield service.url
    finally:
        code = service.end()
    assert code == 0, service.said + (folder / "log").read_text()


def listening(api: Api, call: Callable[[str], T], drain: float = 1.0) -> T:
    """Call a service of this process by its URL, in a thread; then stop the service.

    The service listens as `heedful serve` does. If `call` stops it, running requests
    have `drain` seconds.
    """

    async def serve() -> T:
        ready = asyncio.Event()
        with bound("127.0.0.1", 0) as listener:
            work = listen(
                api.app, listener, drain, ready=ready.set, stopping=lambda: None
            )
            serving = asyncio.create_task(work)
            serving.add_done_callback(lambda _: ready.set())
            await ready.wait()
            try:
                assert not serving.done(), "the service does not listen"
                return await asyncio.to_thread(call, url_of(listener))
            finally:
                if not serving.done():
                    signal.raise_signal(signal.SIGTERM)
                await serving

    return api.run(serve())


def started_and_stopped(*words: str) -> Result:
    """Run a command that serves until SIGTERM, in this process; return its result.

    The signal comes again until the command has ended: nobody hears it before the
    service listens.
    """
    ended = threading.Event()

    def ask() -> None:
        """Ask the service to stop."""
        while not ended.wait(SIGNAL_INTERVAL_SECONDS):
            os.kill(os.getpid(), signal.SIGTERM)

    handler = signal.signal(signal.SIGTERM, lambda *_: None)
    thresholds = gc.get_threshold()
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        return CliRunner().invoke(app, words)
    finally:
        ended.set()
        asking.join()
        signal.signal(signal.SIGTERM, handler)
        gc.set_threshold(*thresholds)
