"""What nobody used for the time of a setting goes by itself: lessons, and loops that
ended.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import heedful
from heedful.cli.settings import Settings
from heedful.lessons.lesson import Scope
from heedful.memory.memory import Memory
from heedful.store.store import Store
from heedful_server.cli.service import setup_of, working
from tests.engines import change_rows, rows, url_of
from tests.service.running import WAITING, started_and_stopped
from tests.tables import cases

pytestmark = pytest.mark.both_nightly
SETTINGS = {"model": "none", "embedder": "none", "forget": "30d", "forget_loops": "31d"}


@asynccontextmanager
async def doing_jobs(folder: Path, url: str, store: Store) -> AsyncIterator[None]:
    """Do the jobs: in this process as a service on a SQLite file, or in a worker's."""
    if not url.startswith("postgresql"):
        values = Settings(db=url, **SETTINGS)  # type: ignore[arg-type]
        async with working(values, setup_of(values, store)):
            yield
        return

    settings = {"db": url, "cache": str(folder / "cache"), **SETTINGS}
    variables = {f"HEEDFUL_{name.upper()}": value for name, value in settings.items()}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "heedful.cli", "worker"),
        cwd=folder,
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), WAITING) == 0


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


async def test_a_night_removes_unused_lessons_and_old_loops(tmp_path):
    path = tmp_path / "heedful.db"
    url = url_of(path)
    memory = Memory(url)
    await remember(memory)
    change_rows(path, "update lesson set last_seen = 1e9 where text like 'long%'")
    # Another tenant, and no lesson.
    await run_loops(memory.store, Scope("acme", "main"), "old", "new")
    change_rows(path, "update loop set updated = 1e9 where id = 'old'")

    async with doing_jobs(tmp_path, url, memory.store), asyncio.timeout(WAITING):
        while await texts_of(memory) != ["long unused, pinned", "used"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        while rows(path, "select id from loop") != [("new",)]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    await memory.store.close()


@pytest.mark.parametrize("command", ["serve", "worker"])
@cases(
    ("setting", "text", "says"),
    {
        "no time": ("forget", "soon", "a time such as"),
        "a time too short": ("forget_loops", "7d", "at least 31d"),
    },
)
def test_a_time_that_nobody_can_follow_is_refused_at_the_start(
    tmp_path, monkeypatch, command, setting, text, says
):
    monkeypatch.setenv(f"HEEDFUL_{setting.upper()}", text)
    url = url_of(tmp_path / "heedful.db")
    refused = started_and_stopped(command, "--db", url)
    assert refused.exit_code == 2
    assert f"{setting} is '{text}'; it must be {says}" in refused.output
