"""The time limits of hooks: of an event, of a look-up, and of work that was left."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from heedful.integrations import hook, hooks
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


class NotedEvent(io.BytesIO):
    """An event that notes the time limit of those who read it."""

    noted = 0.0

    def read(self, size: int | None = -1) -> bytes:
        self.noted = time_limit()
        return super().read(size)


@pytest.mark.parametrize(
    ("event", "least", "most"),
    [
        pytest.param("SessionStart", 0, 8, id="the start may take 8 s"),
        pytest.param("Stop", 0, 8, id="the end of a turn may take 8 s"),
        pytest.param("SessionEnd", 0, 8, id="the end may take 8 s"),
        pytest.param("PreToolUse", 8, FIRST_SECONDS, id="a call waits as before"),
        pytest.param("Unknown", 8, FIRST_SECONDS, id="any other waits as before"),
    ],
)
def test_an_event_for_which_no_call_waits_begins_a_limit_of_its_own(
    event: str, least: float, most: float, tmp_path: Path
) -> None:
    sent = NotedEvent(b"no event")
    with as_user(tmp_path, tmp_path):
        assert hook.main([event], stdin=sent, stdout=io.StringIO()) == 0
    assert least < sent.noted <= most


def test_the_commands_of_a_stop_have_no_limit(tmp_path: Path) -> None:
    data = b'{"session_id": "one", "hook_event_name": "Stop"}'
    assert call_hook(tmp_path, tmp_path, ["Stop"], data).err == ""
    assert time_limit() == 0


def test_work_that_has_begun_has_no_limit(tmp_path: Path) -> None:
    with as_user(tmp_path, tmp_path):
        assert hook.main(["study", "--work", "one"]) == 0
    assert time_limit() == 0


def test_a_lookup_ends_before_its_hook_is_given_up() -> None:
    settings = {
        "hook": {},
        "tenant": "default",
        "project": "default",
        "holdout": 0.1,
        "trust": (),
        "strict": False,
    }
    _, host = hooks.follow(settings, ":memory:")
    assert host.seconds == 2
    assert host.seconds < hook.HOOK_TIMEOUT_SECONDS
