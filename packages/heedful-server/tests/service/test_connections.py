"""What the service reads of a connection, and what it closes."""

import re
import socket
import threading
from contextlib import suppress

import uvloop
from starlette.requests import Request

from heedful_server.setup import Setup
from tests.engines import opened
from tests.service.running import WAITING, listening
from tests.service.support import Api
from tests.tables import cases

LENGTH = b"Content-Length: 2\r\n"
UNFINISHED = (
    b"PUT /v1/loops/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
AMBIGUOUS_LENGTHS = {
    "the same length twice": LENGTH + LENGTH,
    "a list of lengths": b"Content-Length: 2, 2\r\n",
    "a list on two lines": b"Content-Length: 2\r\n ,2\r\n",
    "a line that ends without a carriage return": LENGTH.replace(b"\r", b"") + LENGTH,
    "a length before chunks": LENGTH + b"Transfer-Encoding: chunked\r\n",
    "chunks before a length": b"transfer-encoding: chunked\r\nX: y\r\n" + LENGTH,
}


def send(url: str, data: bytes) -> bytes:
    """Send bytes on one connection; return all that arrives until it is closed."""
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    answers = b""
    with socket.create_connection(address) as line:
        line.settimeout(WAITING)
        with suppress(OSError):  # it may be closed while more is sent
            line.sendall(data)
        with suppress(ConnectionResetError):
            while part := line.recv(65_536):
                answers += part
    return answers


@cases("head", AMBIGUOUS_LENGTHS)
@cases("before", {"alone": b"", "after another": HEALTH})
def test_a_request_whose_length_is_in_doubt_is_refused_and_closed(
    tmp_path, before, head
):
    data = before + UNFINISHED + head + b"\r\n{}" + HEALTH
    with opened(tmp_path / "heedful.db") as store:
        api = Api(Setup(store=store, open=True), key="none")
        answers = listening(api, lambda url: send(url, data))
        api.close()
    statuses = re.findall(rb"HTTP/1.1 (\d+)", answers)
    assert statuses[-1] == b"400"
    # The first may go unanswered; what follows the doubtful one is never read.
    assert statuses[:-1] in ([], [b"200"][: len(before)])


def test_a_client_that_leaves_is_no_error_of_any_of_its_requests(tmp_path, caplog):
    stays = HEALTH.replace(b"/healthz", b"/v1/test/stays")
    with opened(tmp_path / "heedful.db") as store:
        # asyncio's own loop does not report what is written to a closed connection.
        setup = Setup(store=store, open=True)
        api = Api(setup, key="none", loop_factory=uvloop.new_event_loop)
        has_left = threading.Event()

        @api.app.get("/v1/test/stays")
        async def stay(request: Request) -> None:
            """Answer when the client has gone."""
            while (await request.receive())["type"] != "http.disconnect":
                pass
            has_left.set()

        def leave(url: str) -> None:
            """Send two requests at once, and go away without their answers."""
            address = ("127.0.0.1", int(url.rpartition(":")[2]))
            with socket.create_connection(address) as line:
                line.sendall(stays + HEALTH)
            assert has_left.wait(WAITING)

        listening(api, leave)
        api.close()
    assert "Exception" not in caplog.text
    assert "Traceback" not in caplog.text
