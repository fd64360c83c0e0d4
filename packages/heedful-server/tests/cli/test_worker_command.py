"""`heedful worker`: what waits is done, and what cannot be is said."""

import asyncio
import gzip
import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from heedful.memory.memory import Memory
from heedful.store import episodes
from heedful_server.cli.logs import limit_logs
from tests.engines import opened
from tests.service.jobs import OTHER, SCOPE, put

WORDY = """
from pathlib import Path

def words(messages):
    Path("asked").touch()
    return "nothing"
"""


def store_episodes(desk) -> None:
    async def put_episodes(store) -> None:
        await put(store, SCOPE, "pot", "pan")
        await put(store, OTHER, "pot")

    with opened(desk.folder / "heedful.db") as store:
        asyncio.run(put_episodes(store))


def test_on_sqlite_what_waits_is_done_once(desk, session):
    store_episodes(desk)
    rules = "model: none: rules write the lessons\n"
    refused = (
        "jobs run inside heedful serve; heedful worker --once runs the waiting jobs"
    )
    session(
        ("worker", 2, refused),
        ("worker --once --queues memory", 0, "0 jobs done, 0 given up"),
    )
    done = session(
        ("worker --once --queues 'loops, reflection'", 0, "3 jobs done, 0 given up\n")
    )
    assert done.err.count("shop reflect digest=") == done.err.count("done in") == 3
    assert session(("worker --once", 0)).err == f"{rules}0 jobs done, 0 given up\n"
    with opened(desk.folder / "heedful.db") as store:
        assert asyncio.run(store.read(SCOPE, episodes.counts)) == {"reflected": 2}
        assert asyncio.run(Memory(store, OTHER).count()) > 0


DOWN = """
def words(messages):
    raise ConnectionError("the model is away")
"""


@pytest.fixture
def failed(desk, session):
    """Reflections that failed on SQLite, as a tenant has them."""
    store_episodes(desk)
    desk.write("down.py", DOWN)
    session(("worker --once --model down:words", 0, "again in 2 s"))
    return session(("worker jobs --tenant acme --json", 0)).json["jobs"]


def test_on_sqlite_failed_reflections_are_the_failed_jobs(session, failed):
    assert [job["task"] for job in failed] == ["reflect", "reflect"]
    assert "the model is away" in failed[0]["error"]
    session(
        ("worker jobs --tenant acme", 0, "is away"),
        (
            f"worker jobs retry {failed[0]['id']} --tenant acme",
            0,
            "1 job back on the queue",
        ),
        ("worker jobs discard --all --tenant acme", 0, "1 job discarded"),
        ("worker jobs --tenant acme", 0, "no job has failed for good"),
    )
    assert len(session(("worker jobs --tenant other --json", 0)).json["jobs"]) == 1


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        pytest.param("retry", 2, "the id of a failed job, or --all", id="neither"),
        pytest.param("discard 1 --all", 2, "or --all", id="both"),
        pytest.param("retry 7", 3, "no failed job '7'", id="an unknown id"),
        pytest.param("discard 0", 2, "0", id="no id"),
    ],
)
def test_failed_jobs_are_named_by_their_id_or_all(desk, session, words, code, says):
    store_episodes(desk)
    session((f"worker jobs {words}", code, says))


@pytest.mark.parametrize(
    "option",
    [
        pytest.param("--settings named.toml", id="a file that is named"),
        pytest.param("--model wordy:words", id="an option"),
    ],
)
def test_the_model_that_was_set_words_lessons(desk, session, option):
    store_episodes(desk)
    desk.write("wordy.py", WORDY)
    desk.write("named.toml", 'model = "wordy:words"')
    session((f"worker --once {option}", 0, "model: wordy:words\n"))
    assert (desk.folder / "asked").exists()


def test_telemetry_is_sent_where_the_environment_says(desk, tmp_path):
    got: dict[str, bytes] = {}

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            packed = self.headers.get("content-encoding") == "gzip"
            got[self.path] = got.get(self.path, b"") + (
                gzip.decompress(body) if packed else body
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *said: object) -> None:
            """Nothing."""

    store_episodes(desk)
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{server.server_port}"
        done = desk.heedful(
            "worker --once --telemetry",
            OTEL_EXPORTER_OTLP_ENDPOINT=where,
            OTEL_SERVICE_NAME="night",
            HEEDFUL_EMBEDDER="none",
        )
        server.shutdown()
    assert done.code == 0, done.err
    assert list(got) == ["/v1/traces"]
    assert b"heedful.task reflect" in got["/v1/traces"]
    assert b"night" in got["/v1/traces"]
    assert b"pot" not in got["/v1/traces"]


def test_a_database_that_is_away_is_said_in_a_line(capsys):
    lost = logging.getLogger("psycopg.pool")
    limit_logs()
    limit_logs()
    for _ in range(3):
        lost.warning("error connecting in 'pool-1'")
    assert capsys.readouterr().err.count("the database does not answer") == 1
