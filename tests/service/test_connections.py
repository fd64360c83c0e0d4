"""What the service reads of a connection."""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from heedful.service.setup import Setup
from tests.engines import opened
from tests.service.running import WAITING, listening
from tests.service.support import Api

LENGTH = b"Content-Length: 2\r\n"
UNFINISHED = (
    b"PUT /v1/loops/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
AMBIGUOUS_LENGTHS = {
    "the same length twice": LENGTH + LENGTH,
    "twice, in two spellings": LENGTH + b"content-length: 2\r\n",
    "a list of lengths": b"Content-Length: 2, 2\r\n",
    "a list on two lines": b"Content-Length: 2\r\n ,2\r\n",
    "a line that ends without a carriage return": LENGTH.replace(b"\r", b"") + LENGTH,
    "a length before chunks": LENGTH + b"Transfer-Encoding: chunked\r\n",
    "chunks before a length": b"transfer-encoding: chunked\r\nX: y\r\n" + LENGTH,
}


@pytest.fixture
def open_api(tmp_path: Path) -> Iterator[Api]:
    """A service that nobody has made a key for."""
    with opened(tmp_path / "heedful.db") as store:
        api = Api(Setup(store=store, open=True), key="none")
        yield api
        api.close()


@pytest.fixture
def send(open_api: Api) -> Callable[..., bytes]:
    """Return a function that sends bytes, and returns what is answered to them."""

    def send(data: bytes, read: Callable[[socket.socket], bytes] = read_all) -> bytes:
        """Send bytes on one connection, and return what `read` reads from it."""

        def call(url: str) -> bytes:
            with socket.create_connection(address_of(url)) as line:
                line.settimeout(WAITING)
                with suppress(OSError):  # it may be closed while more is sent
                    line.sendall(data)
                return read(line)

        return listening(open_api, call)

    return send


def address_of(url: str) -> tuple[str, int]:
    """Return the address at which a service listens."""
    return "127.0.0.1", int(url.rpartition(":")[2])


def read_all(line: socket.socket) -> bytes:
    """Return all that arrives until the connection is closed."""
    parts: list[bytes] = []
    with suppress(ConnectionResetError):
        parts += iter(partial(line.recv, 65_536), b"")
    return b"".join(parts)


@pytest.mark.parametrize(
    ("before", "head"),
    [
        *(
            pytest.param(b"", head, id=f"{name}, alone")
            for name, head in AMBIGUOUS_LENGTHS.items()
        ),
        *(
            pytest.param(
                HEALTH,
                head,
                id=f"{name}, after another",
                marks=() if "chunks before" in name else pytest.mark.nightly,
            )
            for name, head in AMBIGUOUS_LENGTHS.items()
        ),
    ],
)
def test_a_request_whose_length_is_in_doubt_is_refused_and_closed(send, before, head):
    answers = send(before + UNFINISHED + head + b"\r\n{}" + HEALTH)
    statuses = re.findall(rb"HTTP/1.1 (\d+)", answers)
    assert statuses[-1] == b"400"
    # The first may go unanswered; what follows the doubtful one is never read.
    assert statuses[:-1] in ([], [b"200"][: len(before)])
