"""Services and workers as processes on one database, killed at random and started again."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

WAITING = 120.0  # seconds until what should have happened is given up
ANSWER = 20.0  # seconds after which a client asks again


class Fleet:
    """`services` of `heedful serve` and `workers` of `heedful worker`, at fixed ports."""

    def __init__(self, folder: Path, url: str, services: int, workers: int) -> None:
        self.folder = folder
        self.ports = [_free() for _ in range(services)]
        serve = ("serve", "--db", url, "--key-required", "--workers", "0", "--port")
        self._commands = [[*serve, str(port)] for port in self.ports]
        self._commands += [["worker", "--db", url, "--concurrency", "2"]] * workers
        self.kills = [0] * len(self._commands)
        self._processes = [self._begun(n) for n in range(len(self._commands))]

    def _begun(self, n: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "heedful.cli", *self._commands[n]]
        quiet = {"HEEDFUL_EMBEDDER": "none", "HEEDFUL_CACHE": str(self.folder / "cache")}
        with (self.folder / f"log {n}").open("ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env={**os.environ, **quiet},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def kill(self, chance: random.Random) -> None:
        """Kill one of those that were killed least often, and start it again."""
        least = min(self.kills)
        n = chance.choice([n for n, kills in enumerate(self.kills) if kills == least])
        self._processes[n].kill()
        self._processes[n].wait(WAITING)
        self.kills[n] += 1
        self._processes[n] = self._begun(n)

    def alive(self) -> None:
        """Nothing, where none of them has ended by itself."""
        for n, process in enumerate(self._processes):
            assert process.poll() is None, (self.folder / f"log {n}").read_text()

    def end(self) -> None:
        """Ask all of them to end, which they do well."""
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(WAITING) for process in self._processes]
        logs = [(self.folder / f"log {n}").read_text() for n, code in enumerate(codes) if code]
        assert not logs, logs

    def gone(self) -> None:
        """See that none is left, whatever happened."""
        for process in self._processes:
            process.kill()
            process.wait(WAITING)


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Client:
    """Asks one of several services, and another one where that does not answer, until one does.

    The same request every time. `waits` are the seconds of answers at the first asking, `again`
    counts how often it had to ask again.
    """

    def __init__(self, ports: list[int], key: str, chance: random.Random) -> None:
        self.key, self._ports, self._chance = key, ports, chance
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.AsyncClient(headers=headers, timeout=ANSWER)
        self.waits: list[float] = []
        self.again = 0

    async def ask(
        self, method: str, path: str, body: Any, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """The status and the answer, once it is one that another asking would not change."""
        deadline, tries = time.monotonic() + WAITING, 0
        while True:
            url = f"http://127.0.0.1:{self._chance.choice(self._ports)}{path}"
            began = time.perf_counter()
            with suppress(httpx.TransportError):
                answer = await self._http.request(method, url, json=body, headers=headers)
                plain, code = answer.json(), answer.status_code
                if code < 500 and plain.get("code") not in ("at_work", "too_many_requests"):
                    if not tries:
                        self.waits.append(time.perf_counter() - began)
                    return code, plain
            tries += 1
            self.again += 1
            assert time.monotonic() < deadline, f"{method} {path} is not answered"
            await asyncio.sleep(self._chance.random() * min(1.0, 0.1 * tries))

    async def close(self) -> None:
        """Let go of every connection."""
        await self._http.aclose()
