"""What the service reads of a connection, and which connections it closes."""

import re
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from heedful.service import connections
from heedful.service.setup import Setup
from heedful.web import add_pages
from tests.engines import opened
from tests.service.running import WAITING, listening, running
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
MOST_CONNECTIONS = 64


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


@pytest.mark.parametrize("before", [b"", HEALTH], ids=["alone", "after another"])
def test_headers_without_an_end_are_refused(send, before):
    endless = 1_000 * (b"X: " + 1_000 * b"x" + b"\r\n")
    answers = send(before + UNFINISHED + endless)
    assert b"HTTP/1.1 20" not in answers.removeprefix(
        b"HTTP/1.1 200" if before else b""
    )


def test_a_body_that_is_refused_unread_is_not_taken_for_headers(send):
    def read_to_health(line: socket.socket) -> bytes:
        """Return what arrives until the second request is answered."""
        answers = b""
        while b"HTTP/1.1 200" not in answers:
            part = line.recv(65_536)
            assert part, answers
            answers += part
        return answers

    # A request with a wrong method is answered without a key, and its body is not read.
    head = UNFINISHED.replace(b"/v1/loops/a", b"/healthz")
    body = 3_000_000 * b"x"
    request = head + b"Content-Length: 3000000\r\n\r\n" + body
    assert b"HTTP/1.1 431" not in send(request + HEALTH, read_to_health)


def fill_with_strangers(url: str) -> None:
    """Check that strangers take neither all connections nor one that is at work."""
    with ExitStack() as lines:
        working = lines.enter_context(socket.create_connection(address_of(url)))
        working.settimeout(WAITING)
        working.sendall(UNFINISHED + b"Content-Length: 13\r\n\r\n")
        for number in range(5 * MOST_CONNECTIONS):
            line = lines.enter_context(
                socket.create_connection(address_of(url), WAITING)
            )
            line.sendall((b"", b"\r\n", HEALTH)[number % 3])
        assert httpx.get(f"{url}/v1/loops", timeout=WAITING).json()["items"] == []
        # The connection of the running request was not closed.
        working.sendall(b'{"task": "a"}')
        assert working.recv(100).startswith(b"HTTP/1.1 201 Created")


def test_strangers_do_not_take_all_connections(open_api, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", MOST_CONNECTIONS)
    listening(open_api, fill_with_strangers)


@contextmanager
def few_descriptors() -> Iterator[None]:
    """Let this process, and those that it starts, open at most 128 files."""
    descriptors, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * MOST_CONNECTIONS, maximum))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, maximum))


def test_half_of_the_descriptors_are_for_connections():
    with few_descriptors():
        assert connections.max_connections() == MOST_CONNECTIONS


@pytest.mark.nightly
def test_where_descriptors_are_few_strangers_do_not_fill_the_log(tmp_path):
    with ExitStack() as services:
        with few_descriptors():
            url = services.enter_context(running(tmp_path))
        fill_with_strangers(url)
    assert len((tmp_path / "log").read_text().splitlines()) < 10


def is_closed(line: socket.socket) -> bool:
    """Return whether the service has closed a connection on which it says nothing."""
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_slow_forms_of_strangers_take_no_connection_of_others(open_api, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", MOST_CONNECTIONS)

    def call(url: str) -> None:
        host = url.partition("//")[2]
        head = (
            f"POST /ui/sign-in HTTP/1.1\r\nHost: {host}\r\nOrigin: {url}\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\n"
            "Content-Length: 60000\r\n\r\nkey="
        )
        with ExitStack() as lines:
            forms = []
            for _ in range(2 * MOST_CONNECTIONS):
                line = socket.create_connection(address_of(url))
                forms.append(lines.enter_context(line))
                line.sendall(head.encode())
                line.setblocking(False)
            while sum(map(is_closed, forms)) < MOST_CONNECTIONS:
                time.sleep(0.05)
            for number in range(4):
                loop = f"{url}/v1/loops/{number}"
                began = httpx.put(loop, json={"task": "a"}, timeout=WAITING)
                assert began.status_code == 201
            form = {"key": "", "next": "/ui/loops" + 30_000 * "x"}
            signed_in = httpx.post(
                f"{url}/ui/sign-in", data=form, headers={"Origin": url}, timeout=WAITING
            )
            assert signed_in.status_code == 303

    add_pages(open_api.app)
    listening(open_api, call)


def test_an_answer_that_nobody_takes_is_given_up(open_api, monkeypatch):
    monkeypatch.setattr(connections, "MAX_ANSWER_SECONDS", 0.3)
    loop = {"task": 4_000_000 * "x"}

    def call(url: str) -> bytes:
        path = "/v1/loops/a"
        assert httpx.put(f"{url}{path}", json=loop, timeout=WAITING).is_success
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            line.settimeout(WAITING)
            line.connect(address_of(url))
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            ended = 'heedful_requests_total{method="GET",route="/v1/loops/{id}"'
            while ended not in httpx.get(f"{url}/metrics", timeout=WAITING).text:
                time.sleep(0.1)
            beginning = read_all(line)

        # Who takes it gets all of it.
        answer = httpx.get(f"{url}{path}", timeout=WAITING)
        assert answer.json()["task"] == loop["task"]
        return beginning

    assert len(listening(open_api, call)) < 4_000_000
