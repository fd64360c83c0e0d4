"""`heedful serve` as a process: it says where it is, ends well, and survives being
killed.
"""

import json
import os
import re
import resource
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from heedful.cli.app import app
from heedful.service.routes import operations
from heedful.service.setup import Setup
from heedful.store import open_store
from heedful.store.postgres_migrations import newest_version
from tests.postgres import rows
from tests.service import impatient
from tests.service.running import WAITING, Service, running
from tests.service.support import Api, problem, served

SLOW = """
import time
from pathlib import Path

def slow(candidate, context):
    Path(candidate + " began").touch()
    while not Path(candidate + " may end").exists():
        time.sleep(0.02)
    return []
"""
LESSON = {"error_type": "TypeError", "text": "a number is no text"}


@pytest.mark.parametrize(
    ("harm", "status", "code"),
    [
        pytest.param(os.remove, 503, "store_unavailable", id="deleted"),
        pytest.param(
            lambda path: path.write_bytes(b""), 500, "store_corrupt", id="emptied"
        ),
    ],
)
def test_a_database_that_is_lost_underneath_is_not_ready(
    tmp_path, caplog, monkeypatch, harm, status, code
):
    with served(tmp_path) as api:
        monkeypatch.setattr(operations, "READY_CACHE_SECONDS", 1e9)
        assert api.get("/readyz").status_code == 200
        harm(tmp_path / "heedful.db")
        assert api.get("/readyz").status_code == 200  # as before, without a look
        monkeypatch.setattr(operations, "READY_CACHE_SECONDS", 0.0)
        for _ in range(3):
            problem(api.post("/v1/reflections", json=LESSON), status, code)
        assert api.get("/readyz").status_code == 503
    assert (
        len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    )


def test_a_server_that_takes_no_writes_is_not_ready(postgres, monkeypatch):
    monkeypatch.setattr(operations, "READY_CACHE_SECONDS", 1e9)
    api = Api(Setup(store=open_store(postgres.service)))
    assert api.get("/readyz").status_code == 200
    ((name,),) = rows(postgres.superuser, "select current_database()")
    rows(
        postgres.superuser,
        f"alter database {name} set default_transaction_read_only = on",
    )
    lost = (
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname "
        "= %s"
    )
    rows(postgres.superuser, f"{lost} and usename = 'heedful'", name)
    assert api.get("/readyz").status_code == 200  # as before, without a look
    monkeypatch.setattr(operations, "READY_CACHE_SECONDS", 0.0)
    assert api.get("/readyz").status_code == 503
    problem(api.post("/v1/reflections", json=LESSON), 503, "store_unavailable")
    api.close()


def test_a_service_older_than_the_schema_is_not_ready(postgres, monkeypatch):
    monkeypatch.setattr(operations, "READY_CACHE_SECONDS", 0.0)
    api = Api(Setup(store=open_store(postgres.service)))
    assert api.get("/readyz").status_code == 200

    newer = newest_version() + 1
    insert = "insert into schema_version values (%s, %s, 0)"
    rows(postgres.owner, insert, newer, "pre")
    assert api.get("/readyz").status_code == 200  # the old version may still run
    rows(postgres.owner, insert, newer, "post")
    answer = api.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["store"] == "StoreNewer"
    assert answer.json()["work"] == "ok"
    api.close()


def commands(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that runs a command in the folder and returns its output."""
    monkeypatch.chdir(folder)

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code, result.output
        return result.output

    return run


def test_killed_it_has_lost_nothing_and_stopped_it_says_so(tmp_path):
    service = Service(tmp_path)
    for n in range(5):
        again = httpx.post(f"{service.url}/v1/reflections", json=LESSON).json()
        assert again["seen"] == n + 1
    assert service.end(signal.SIGKILL) == -signal.SIGKILL
    service = Service(tmp_path)
    assert httpx.post(f"{service.url}/v1/seen", json=LESSON).json()["count"] == 5
    assert service.end() == 0
    for words in (
        f"serves {service.url}",
        "heedful.db (SQLite)",
        "model  none: rules write the lessons",
        f"{service.url}/docs",
        "only this machine may call",
        "Next: heedful key create",
        "stopped; the store is closed",
    ):
        assert words in service.said


def test_it_says_who_judges_and_what_is_pinned_with_its_doubts(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text("def judge(messages):\n    return '{}'\n")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "judges.json").write_text('{"own:judge": [3, 20]}')
    monkeypatch.setenv("HEEDFUL_MODEL", "none")
    monkeypatch.setenv("HEEDFUL_JUDGE", "own:judge")
    monkeypatch.setenv("HEEDFUL_PINS", '{"default/*": ["key:0cb7fbdbffce"]}')
    service = Service(tmp_path)
    report = {
        "loop_id": "loop_001",
        "reflection_status": "done",
        "summary": "All is well.",
    }
    answer = httpx.post(f"{service.url}/orchestrator/loop-complete", json=report)
    assert answer.status_code == 502
    assert ("own:judge" in answer.text) is True
    assert service.end() == 0
    for words in (
        "judge  own:judge; warning: it ranks 3 of 20",
        "pins   1 pattern",
        "default/* in pins has fewer",
        "names key:0cb7fbdbffce",
    ):
        assert words in service.said


def listens(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=WAITING).is_success
    except (httpx.NetworkError, httpx.RemoteProtocolError):
        # It refuses connections, or closed this one, which it had not accepted yet.
        return False


def test_asked_to_stop_it_finishes_what_it_took_and_waits_no_longer(tmp_path):
    (tmp_path / "slowly.py").write_text(SLOW)
    (tmp_path / "heedful.toml").write_text('[checks.slow]\nname = "slowly:slow"\n')
    service = Service(tmp_path, "--drain", "5")
    answers: dict[str, httpx.Response] = {}

    def report(name: str) -> None:
        body = {"output": name, "checks": [{"name": "slow"}]}
        with suppress(httpx.HTTPError):
            url = f"{service.url}/v1/loops/{name}/attempts/1"
            answers[name] = httpx.put(url, json=body, timeout=WAITING)

    threads = [
        threading.Thread(target=report, args=(name,)) for name in ("quick", "endless")
    ]
    for thread, name in zip(threads, ("quick", "endless"), strict=True):
        httpx.put(f"{service.url}/v1/loops/{name}", json={"task": "wait"})
        thread.start()
        while not (tmp_path / f"{name} began").exists():
            time.sleep(0.02)
    service.process.send_signal(signal.SIGTERM)
    while listens(service.url):
        time.sleep(0.02)
    (tmp_path / "quick may end").touch()
    with service.out:
        service.said += service.out.read()
    assert service.process.wait(WAITING) == 0
    for thread in threads:
        thread.join(WAITING)
    assert answers["quick"].json()["passed"] is True
    assert problem(answers["endless"], 503, "stopping")["detail"].endswith("try again")
    assert "stopped; the store is closed" in service.said


def test_asked_to_stop_it_ends_the_streams_of_live_pages(tmp_path):
    made = CliRunner().invoke(
        app, ["key", "create", "--name", "me", "--db", f"{tmp_path}/heedful.db"]
    )
    key = made.stdout.split()[0]
    service = Service(tmp_path, "--drain", "5")

    with httpx.Client(base_url=service.url, timeout=WAITING) as browser:
        signed_in = browser.post(
            "/ui/sign-in", data={"key": key}, headers={"origin": service.url}
        )
        assert signed_in.status_code == 303
        with browser.stream("GET", "/ui/events") as events:
            parts = events.iter_text()
            assert next(parts) == "retry: 1000\n\n"
            service.process.send_signal(signal.SIGTERM)
            assert "".join(parts) == ""

    assert service.end() == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        pytest.param(
            ("--host", "0.0.0.0"),
            2,
            "there is no key yet",
            id="open to all without a key",
        ),
        pytest.param(
            ("--key-required",),
            2,
            "there is no key yet",
            id="a key required and none there",
        ),
        pytest.param(
            ("--host", "no.such.host.invalid"),
            2,
            "cannot listen on no.such.host.invalid",
            id="an unknown host",
        ),
        pytest.param(
            ("--port", "70000"), 2, "--port is 70000", id="an impossible port"
        ),
        pytest.param(
            ("--port", "TAKEN"), 2, "Address already in use", id="a port in use"
        ),
        pytest.param(
            ("--db", "postgresql://h@db/h", "--workers", "3"),
            2,
            "heedful worker --concurrency 3",
            id="workers beside PostgreSQL",
        ),
        pytest.param(
            ("--db", "nowhere/heedful.db"),
            4,
            "no database 'nowhere/heedful.db' in the folder",
            id="no folder of the database",
        ),
    ],
)
def test_it_does_not_start_where_it_should_not(
    tmp_path, monkeypatch, words, code, message
):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken_port = str(other.getsockname()[1])
        words = tuple(taken_port if word == "TAKEN" else word for word in words)
        port = () if "--port" in words else ("--port", "0")
        assert message in commands(tmp_path, monkeypatch)(
            "serve", *port, *words, code=code
        )


def test_it_names_variables_that_have_no_effect(tmp_path, monkeypatch):
    for name in ("HEEDFUL_LOG_LEVEL", "HEEDFUL_FOGET", "HEEDFUL_KEY"):
        monkeypatch.setenv(name, "3d")
    monkeypatch.setenv("HEEDFUL_MAX_RERUNS", "3")
    words = ("--port", "0", "--db", "nowhere/heedful.db")
    printed = commands(tmp_path, monkeypatch)("serve", *words, code=4)
    assert printed.count("has no effect") == 2
    assert "HEEDFUL_LOG_LEVEL in the environment has no effect" in printed
    assert "HEEDFUL_FOGET in the environment has no effect" in printed
    assert "did you mean 'forget'?" in printed


def test_the_pages_need_a_database_and_a_port(tmp_path, monkeypatch):
    run = commands(tmp_path, monkeypatch)
    file = tmp_path / "heedful.db"
    assert "no database 'heedful.db'" in run("ui", "--read-only", "--port", "0", code=3)
    assert not file.exists()
    for harm, message in (
        (b"", "is empty, not a database"),
        (b"x" * 999, "is not a SQLite database, or is damaged"),
    ):
        file.write_bytes(harm)
        assert message in run("ui", "--no-browser", "--port", "0", code=4)
    file.unlink()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert "choose another --port (" in run("ui", "--port", port, code=2)
    assert not file.exists()


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


@pytest.mark.parametrize(
    "head", AMBIGUOUS_LENGTHS.values(), ids=AMBIGUOUS_LENGTHS.keys()
)
@pytest.mark.parametrize("before", [b"", HEALTH], ids=["alone", "after another"])
def test_a_request_whose_length_is_in_doubt_is_refused_and_closed(framed, head, before):
    with socket.create_connection(framed) as line:
        line.sendall(before + UNFINISHED + head + b"\r\n{}" + HEALTH)
        line.settimeout(WAITING)
        # Until it is closed.
        answers = b"".join(iter(partial(line.recv, 65_536), b""))
    statuses = re.findall(rb"HTTP/1.1 (\d+)", answers)
    assert statuses[-1] == b"400"
    # The first may go unanswered; what follows the doubtful one is never read.
    assert statuses[:-1] in ([], [b"200"][: len(before)])


@pytest.fixture(scope="module")
def framed(tmp_path_factory):
    with running(tmp_path_factory.mktemp("framed")) as url:
        yield "127.0.0.1", int(url.rpartition(":")[2])


def test_a_stranger_neither_takes_all_connections_nor_fills_the_log(tmp_path):
    with few_descriptors(tmp_path) as url, ExitStack() as lines:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        working = lines.enter_context(socket.create_connection(address, WAITING))
        working.sendall(UNFINISHED + b"Content-Length: 13\r\n\r\n")
        for number in range(300):
            line = lines.enter_context(socket.create_connection(address, WAITING))
            line.sendall((b"", b"\r\n", HEALTH)[number % 3])
        assert httpx.get(f"{url}/v1/loops", timeout=WAITING).json()["items"] == []
        # The connection of the running request was not closed.
        working.sendall(b'{"task": "a"}')
        assert working.recv(100).startswith(b"HTTP/1.1 201 Created")
    assert len((tmp_path / "log").read_text().splitlines()) < 10


@contextmanager
def few_descriptors(folder: Path) -> Iterator[str]:
    """Return the URL of a service that may open 128 files, so 64 connections."""
    descriptors, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as services:
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, maximum))
        try:
            url = services.enter_context(running(folder))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, maximum))
        yield url


def is_closed(line: socket.socket) -> bool:
    """Return whether the service has closed a connection on which it says nothing."""
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_slow_forms_of_strangers_take_no_connection_of_others(tmp_path):
    with few_descriptors(tmp_path) as url, ExitStack() as lines:
        host = url.partition("//")[2]
        head = (
            f"POST /ui/sign-in HTTP/1.1\r\nHost: {host}\r\nOrigin: {url}\r\n"
            "Content-Type: application/x-www-form-urlencoded\r\n"
            "Content-Length: 60000\r\n\r\nkey="
        )
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        forms = []
        for _ in range(150):
            line = lines.enter_context(socket.create_connection(address))
            line.sendall(head.encode())
            line.setblocking(False)
            forms.append(line)
        while sum(map(is_closed, forms)) < 150 - 64:
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


def test_an_answer_that_nobody_takes_is_given_up(tmp_path):
    with running(tmp_path, program=(impatient.__file__,)) as url:
        loop = {"task": 4_000_000 * "x"}
        assert httpx.put(f"{url}/v1/loops/a", json=loop, timeout=WAITING).is_success
        path = "/v1/loops/a"
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            line.settimeout(WAITING)
            line.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            ended = 'heedful_requests_total{method="GET",route="/v1/loops/{id}"'
            while ended not in httpx.get(f"{url}/metrics", timeout=WAITING).text:
                time.sleep(0.1)
            parts: list[bytes] = []
            with suppress(ConnectionResetError):
                parts += iter(partial(line.recv, 65_536), b"")
            assert len(b"".join(parts)) < 4_000_000

        # Who takes it gets all of it.
        answer = httpx.get(f"{url}{path}", timeout=WAITING)
        assert answer.json()["task"] == loop["task"]


@pytest.mark.parametrize("before", [b"", HEALTH], ids=["alone", "after another"])
def test_headers_without_an_end_are_refused(framed, before):
    with socket.create_connection(framed) as line:
        line.settimeout(WAITING)
        line.sendall(before + UNFINISHED)
        with suppress(OSError):  # it is closed while more is sent
            for _ in range(1_000):
                line.sendall(b"X: " + b"x" * 1_000 + b"\r\n")
        answers = b""
        with suppress(ConnectionResetError):
            answers = b"".join(iter(partial(line.recv, 65_536), b""))
    assert b"HTTP/1.1 20" not in answers.removeprefix(
        b"HTTP/1.1 200" if before else b""
    )


def test_a_body_that_is_refused_unread_is_not_taken_for_headers(framed):
    body = b"x" * 3_000_000
    head = UNFINISHED.replace(b"loops/a", b"nothing")
    with socket.create_connection(framed) as line:
        line.settimeout(WAITING)
        line.sendall(head + b"Content-Length: 3000000\r\n\r\n" + body + HEALTH)
        answers = b""
        while b"HTTP/1.1 200" not in answers:
            part = line.recv(65_536)
            assert part, answers
            answers += part
    assert b"HTTP/1.1 431" not in answers


def test_keys_are_made_listed_and_revoked(tmp_path, monkeypatch):
    heedful = commands(tmp_path, monkeypatch)
    text = heedful("key", "create", "--name", "me", "--project", "a", "--expires", "9d")
    assert (
        "me may recall, write in a of tenant default; this key is not shown again"
        in text
    )
    key = text.splitlines()[0]
    assert key.rpartition("_")[0] in heedful("key", "list")
    strange = heedful(
        "key", "revoke", key, "--tenant", "acme", code=3
    )  # it is another tenant's
    assert key.rpartition("_")[2] not in strange
    assert "is revoked" in heedful("key", "revoke", key.rpartition("_")[0])
    audit = json.loads(heedful("audit", "list", "--json"))["audit"]
    assert [row["action"] for row in audit] == ["key.revoke", "key.create"]
    assert "2 rows, all as they were written" in heedful("audit", "verify")
    with closing(sqlite3.connect("heedful.db")) as db, db:
        db.execute("update audit set by = 'nobody' where n = 1")
    assert "row 1 was changed" in heedful("audit", "verify", code=1)


def test_without_its_package_mcp_says_what_to_install(tmp_path, monkeypatch):
    # A package that cannot be imported hides the one that is installed.
    hidden = tmp_path / "hidden"
    (hidden / "mcp").mkdir(parents=True)
    code = 'raise ImportError("it is not installed")'
    (hidden / "mcp" / "__init__.py").write_text(code, encoding="utf-8")
    paths = [str(hidden), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    with running(tmp_path) as url:
        answers = [httpx.post(f"{url}/mcp", json={}) for _ in range(3)]
    for answer in answers:
        body = problem(answer, 501, "package_missing")
        assert "installs heedful[mcp]" in body["detail"]
    log = (tmp_path / "log").read_text(encoding="utf-8")
    assert "Traceback" not in log
    assert log.count("package_missing") == 1
