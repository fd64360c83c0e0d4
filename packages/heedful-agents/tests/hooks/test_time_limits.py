"""The time limits of hooks: of an event, of a look-up, and of work that was left."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful_agents import hook
from tests.hooks.support import as_user, call_hook

# The limit of the process before its event is known; nothing takes as long.
FIRST_SECONDS = 10_000.0


def time_limit() -> float:
    """Return the seconds that this process has left, 0 if it has no limit."""
    return signal.getitimer(signal.ITIMER_REAL)[0]


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """Give this process a time limit, as a hook has one; its end is not noticed."""
    handler = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, FIRST_SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, handler)


def test_the_commands_of_a_stop_have_no_limit(tmp_path: Path) -> None:
    data = b'{"session_id": "one", "hook_event_name": "Stop"}'
    assert call_hook(tmp_path, tmp_path, ["Stop"], data).err == ""
    assert time_limit() == 0


def test_work_that_has_begun_has_no_limit(tmp_path: Path) -> None:
    with as_user(tmp_path, tmp_path):
        assert hook.main(["study", "--work", "one"]) == 0
    assert time_limit() == 0
