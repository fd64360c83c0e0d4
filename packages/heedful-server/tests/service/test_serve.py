"""`heedful serve` as a process: it says where it is, ends well, and survives being
killed.
"""

import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

import heedful
from heedful.cli.app import app
from heedful.store import open_store
from heedful.store.statements import SCHEMA_VERSION
from heedful_agents import mcp_server
from heedful_server.routes import operations
from heedful_server.setup import MAX_CACHE_SECONDS, Setup
from tests.postgres import rows
from tests.service.running import WAITING, Service, listening
from tests.service.support import Api, problem, served
from tests.tables import cases

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


@cases(
    ("harm", "status", "code"),
    {
        "deleted": (os.remove, 503, "store_unavailable"),
        "emptied": (lambda path: path.write_bytes(b""), 500, "store_corrupt"),
    },
)
def test_a_database_that_is_lost_underneath_is_not_ready(
    tmp_path, caplog, monkeypatch, harm, status, code
):
    with served(tmp_path) as api:
        monkeypatch.setattr(operations, "MAX_CACHE_SECONDS", 1e9)
        assert api.get("/readyz").status_code == 200
        harm(tmp_path / "heedful.db")
        assert api.get("/readyz").status_code == 200  # as before, without a look
        monkeypatch.setattr(operations, "MAX_CACHE_SECONDS", 0.0)
        for _ in range(3):
            problem(api.post("/v1/reflections", json=LESSON), status, code)
        assert api.get("/readyz").status_code == 503
    assert (
        len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    )


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is of Linux")
def test_a_service_is_ready_only_while_its_disk_has_room(tmp_path):
    import resource

    service = Service(tmp_path)
    limits = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)
    for bytes_at_most, ready in ((limits[0], 200), (1, 503), (limits[0], 200)):
        resource.prlimit(
            service.process.pid, resource.RLIMIT_FSIZE, (bytes_at_most, limits[1])
        )
        time.sleep(MAX_CACHE_SECONDS)
        assert httpx.get(f"{service.url}/healthz").status_code == 200
        assert httpx.get(f"{service.url}/readyz").status_code == ready
    assert service.end() == 0


def test_a_service_older_than_the_schema_is_not_ready(postgres, monkeypatch):
    monkeypatch.setattr(operations, "MAX_CACHE_SECONDS", 0.0)
    api = Api(Setup(store=open_store(postgres.service)))
    assert api.get("/readyz").status_code == 200

    newer = SCHEMA_VERSION + 1
    rows(postgres.owner, "insert into schema_version values (%s, 0)", newer)
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


def listens(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=WAITING).is_success
    except (httpx.NetworkError, httpx.RemoteProtocolError):
        # It refuses connections, or closed this one, which it had not accepted yet.
        return False


def test_asked_to_stop_it_finishes_what_it_took_and_waits_no_longer(tmp_path):
    names = ("quick", "endless")
    began = {name: threading.Event() for name in names}
    may_end = {name: threading.Event() for name in names}
    answers: dict[str, httpx.Response] = {}

    def slow(candidate: str, context: heedful.Context) -> list[heedful.Finding]:
        began[candidate].set()
        may_end[candidate].wait(WAITING)
        return []

    def call(url: str) -> None:
        def report(name: str) -> None:
            body = {"output": name, "checks": [{"name": "slow"}]}
            place = f"{url}/v1/loops/{name}/attempts/1"
            answers[name] = httpx.put(
                place, json=body, headers=headers, timeout=WAITING
            )

        threads = [threading.Thread(target=report, args=(name,)) for name in names]
        for thread, name in zip(threads, names, strict=True):
            loop = f"{url}/v1/loops/{name}"
            httpx.put(loop, json={"task": "wait"}, headers=headers)
            thread.start()
            assert began[name].wait(WAITING)
        os.kill(os.getpid(), signal.SIGTERM)
        while listens(url):
            time.sleep(0.02)
        may_end["quick"].set()
        for thread in threads:
            thread.join(WAITING)

    with served(tmp_path, checks={"slow": slow}) as api:
        headers = {"Authorization": f"Bearer {api.key()}"}
        listening(api, call, drain=5.0)
        may_end["endless"].set()
    assert answers["quick"].json()["passed"] is True
    assert problem(answers["endless"], 503, "stopping")["detail"].endswith("try again")


@pytest.mark.nightly
def test_a_process_that_is_asked_to_stop_waits_for_no_thread(tmp_path):
    (tmp_path / "slowly.py").write_text(SLOW)
    (tmp_path / "own.toml").write_text('[checks.slow]\nname = "slowly:slow"\n')
    service = Service(tmp_path, "--drain", "5", "--settings", "own.toml")
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


@cases(
    ("words", "code", "message"),
    {
        "open to all without a key": (("--host", "0.0.0.0"), 2, "there is no key yet"),
        "an unknown host": (
            ("--host", "no.such.host.invalid"),
            2,
            "cannot listen on no.such.host.invalid",
        ),
        "an impossible port": (("--port", "70000"), 2, "--port is 70000"),
        "a port in use": (("--port", "TAKEN"), 2, "Address already in use"),
        "workers beside PostgreSQL": (
            ("--db", "postgresql://h@db/h", "--workers", "3"),
            2,
            "heedful worker --concurrency 3",
        ),
        "no folder of the database": (
            ("--db", "nowhere/heedful.db"),
            4,
            "no database 'nowhere/heedful.db' in the folder",
        ),
    },
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


def test_the_pages_need_a_database_and_a_port(tmp_path, monkeypatch):
    run = commands(tmp_path, monkeypatch)
    file = tmp_path / "heedful.db"
    assert "no database 'heedful.db'" in run("ui", "--read-only", "--port", "0", code=3)
    misspelt = run("ui", "--db", "heedfull.db", "--port", "0", code=3)
    assert "no database 'heedfull.db' in the folder" in misspelt
    assert "pass --db with the file that your program names" in misspelt
    assert not [*tmp_path.glob("*.db")]
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


def test_without_its_package_mcp_says_what_to_install(tmp_path, caplog, monkeypatch):
    # A module that is None hides the one that is installed.
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    mcp_server._low_level.cache_clear()
    with served(tmp_path) as api:
        answers = [api.post("/mcp", json={}) for _ in range(3)]
    for answer in answers:
        body = problem(answer, 501, "package_missing")
        assert "installs heedful[mcp]" in body["detail"]
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert ["package_missing" in error.getMessage() for error in errors] == [True]
    assert "Traceback" not in caplog.text
