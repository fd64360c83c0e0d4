"""What nobody used for the time of a setting goes by itself: lessons, and loops that
ended.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

import heedful
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.store.store import Store
from tests.engines import change_rows, rows, url_of
from tests.service.running import WAITING, running

pytestmark = pytest.mark.both_nightly


@contextmanager
def working(folder: Path, url: str):
    """Run what does the jobs: the service on a SQLite file, or else a worker."""
    if not url.startswith("postgresql"):
        with running(folder):
            yield
        return
    process = subprocess.Popen(
        [sys.executable, "-m", "heedful.cli", "worker"],
        cwd=folder,
        env={**os.environ, "HEEDFUL_CACHE": str(folder / "cache")},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAITING) == 0


async def texts_of(memory: Memory) -> list[str]:
    return sorted(lesson["text"] for lesson in await memory.top())


async def remember(memory: Memory) -> None:
    for text in ("long unused", "long unused, pinned", "used"):
        await memory.remember(text, "no unit", lesson=text)
    pinned = await memory.remember("long unused, pinned", "no unit")
    await memory.pin(pinned.id, by="ann")


def answer(task: str, hint: str) -> str:
    return "ok"


async def run_loops(store: Store, scope: Scope, *ids: str) -> None:
    """Run loops that teach nothing to their ends."""
    for id in ids:
        await heedful.run("task", generate=answer, id=id, store=store, scope=scope)


def test_a_night_removes_unused_lessons_and_old_loops(tmp_path, monkeypatch):
    path = tmp_path / "heedful.db"
    url = url_of(path)
    monkeypatch.setenv("HEEDFUL_DB", url)
    monkeypatch.setenv("HEEDFUL_EMBEDDER", "none")
    monkeypatch.setenv("HEEDFUL_FORGET", "30d")
    monkeypatch.setenv("HEEDFUL_FORGET_LOOPS", "31d")
    memory = Memory(url)
    asyncio.run(remember(memory))
    change_rows(path, "update lesson set last_seen = 1e9 where text like 'long%'")
    # Another tenant, and no lesson.
    scope = Scope("acme", "main")
    asyncio.run(run_loops(memory.store, scope, "old", "new"))
    change_rows(path, "update loop set updated = 1e9 where id = 'old'")

    def wait(left: list[str], look: Callable[[], list[str]]) -> None:
        deadline = time.monotonic() + WAITING
        while look() != left:
            assert time.monotonic() < deadline, look()
            time.sleep(0.05)

    with working(tmp_path, url):
        wait(["long unused, pinned", "used"], lambda: asyncio.run(texts_of(memory)))
        wait(["new"], lambda: [id for (id,) in rows(path, "select id from loop")])
    asyncio.run(memory.store.close())


@pytest.mark.parametrize("command", ["serve", "worker"])
@pytest.mark.parametrize(
    ("setting", "text", "says"),
    [
        pytest.param("forget", "soon", "a time such as", id="no time"),
        pytest.param("forget_loops", "7d", "at least 31d", id="a time too short"),
    ],
)
def test_a_time_that_nobody_can_follow_is_refused_at_the_start(
    tmp_path, monkeypatch, command, setting, text, says
):
    url = url_of(tmp_path / "heedful.db")
    monkeypatch.setenv(f"HEEDFUL_{setting.upper()}", text)
    done = subprocess.run(
        [sys.executable, "-m", "heedful.cli", command, "--db", url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAITING,
    )
    assert done.returncode == 2
    assert f"{setting} is '{text}'; it must be {says}" in done.stderr
