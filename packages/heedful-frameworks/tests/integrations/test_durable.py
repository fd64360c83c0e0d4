"""Temporal, DBOS and Celery carry a loop that is killed, and heedful's jobs."""

import subprocess
import sys
from pathlib import Path

import pytest

from heedful import Episode, Event, Scope, run_sync
from heedful.memory.reflect import to_stored_episode
from heedful.store import episodes, loops, open_store

EXAMPLES = Path("packages/heedful-frameworks/examples/integrations").resolve()


@pytest.fixture(scope="module", params=["temporal", "dbos", "celery"])
def carried(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """Run an example; return its folder, its lines, and an episode that waited."""
    folder = tmp_path_factory.mktemp(request.param)
    failed = Event(
        "tool_response",
        tool="price",
        error="pot is not in the catalogue",
    )
    episode = Episode((failed,), "failure", task="Find the price of a pot.")
    entry = to_stored_episode(episode, "user")

    async def keep() -> None:
        store = open_store(str(folder / "heedful.db"))
        await store.write(Scope(), episodes.admit, entry, claim=False)
        await store.close()

    run_sync(keep())
    example = EXAMPLES / f"{request.param}_order.py"
    printed = subprocess.run(
        [sys.executable, str(example)],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    ).stdout
    return folder, printed.splitlines(), entry.digest


def test_a_killed_loop_continues_and_repeats_no_call(carried) -> None:
    folder, lines, _ = carried
    assert lines.count("the process is killed") == 1
    assert lines.count("the model is called") == 2
    assert "shipped 42" in lines

    store = open_store(str(folder / "heedful.db"))
    loop = run_sync(store.read(Scope(), loops.read, "order-7")).loop
    assert [attempt.number for attempt in loop.attempts] == [1, 2]


@pytest.mark.parametrize("task", ["reflect", "prove", "dream"])
def test_the_host_does_the_background_job(carried, task: str) -> None:
    assert f"{task} is done" in carried[1]


def test_an_episode_that_waited_is_reflected_on(carried) -> None:
    folder, _, digest = carried
    store = open_store(str(folder / "heedful.db"))
    assert run_sync(store.read(Scope(), episodes.state, digest)) == "reflected"
