"""Lessons that nobody used for the time of the setting `forget` go by themselves."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from heedful.memory.memory import Memory
from tests.engines import change_rows, url_of
from tests.service.running import WAITING, running

pytestmark = pytest.mark.both


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


def test_unused_lessons_are_forgotten_by_what_does_the_jobs(tmp_path, monkeypatch):
    path = tmp_path / "heedful.db"
    url = url_of(path)
    monkeypatch.setenv("HEEDFUL_DB", url)
    monkeypatch.setenv("HEEDFUL_EMBEDDER", "none")
    monkeypatch.setenv("HEEDFUL_FORGET", "30d")
    memory = Memory(url)
    asyncio.run(remember(memory))
    change_rows(path, "update lesson set last_seen = 1e9 where text like 'long%'")

    def wait() -> list[str]:
        deadline = time.monotonic() + WAITING
        while len(texts := asyncio.run(texts_of(memory))) > 2:
            assert time.monotonic() < deadline, texts
            time.sleep(0.05)
        return texts

    with working(tmp_path, url):
        assert wait() == ["long unused, pinned", "used"]
    asyncio.run(memory.store.close())


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_time_that_is_none_is_refused_at_the_start(tmp_path, monkeypatch, command):
    url = url_of(tmp_path / "heedful.db")
    monkeypatch.setenv("HEEDFUL_FORGET", "soon")
    done = subprocess.run(
        [sys.executable, "-m", "heedful.cli", command, "--db", url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAITING,
    )
    assert done.returncode == 2
    assert "forget is 'soon'; it must be a time such as" in done.stderr
