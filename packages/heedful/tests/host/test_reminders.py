"""`heedful hook status` says in one line what reminders did; all faces agree."""

import pytest

from heedful import Memory
from heedful.episodes.episode import Event
from heedful.integrations import Host
from heedful.lessons.holdout import SessionTally
from heedful.lessons.lesson import Scope
from heedful.store import reminders
from heedful.store.store import Store
from tests.hosts import patient_host

ERROR = "npm ERR! error: missing script: build"
COMMAND = {"command": "npm run build"}


async def call(host: Host, session: str, *results: str | None) -> None:
    """Ask before a call once for each of its `results`; "" is a success.

    With None, the call is not made. "other" stands for a call of another program.
    """
    run = host.run(session, "build the app")
    for number, error in enumerate(results):
        name = f"c{number}"
        is_other = error == "other"
        await run.before("Bash", {"command": "ls"} if is_other else COMMAND, name)
        if is_other:
            await run.learn(Event("tool_response", "a", tool="Bash", call=name))
            continue
        if error is None:
            continue
        if error:
            await run.seen("Bash", error, name)
        else:
            await run.learn(Event("tool_response", "ok", tool="Bash", call=name))
    await run.learn(ends="partial")


async def read_figures(store: Store) -> SessionTally:
    return await store.read(Scope(), reminders.figures)


@pytest.mark.both_nightly
@pytest.mark.parametrize(
    ("results", "name"),
    [
        pytest.param(("",), "kept", id="the call worked"),
        pytest.param((ERROR,), "repeated", id="the call failed as it was told"),
        pytest.param((ERROR, ""), "repeated", id="it was put right afterwards"),
        pytest.param((ERROR, ERROR), "repeated", id="a later call failed, too"),
        pytest.param((None,), "", id="no call came after it"),
        pytest.param((None, "other"), "kept", id="the call was not made"),
    ],
)
async def test_a_reminder_ends_by_what_becomes_of_the_call(
    results: tuple[str | None, ...], name: str, store: Store
) -> None:
    memory = Memory(store, holdout=0.0)
    host = patient_host(memory=memory, strict=True)
    for session in ("one", "two"):
        await call(host, session, ERROR, ERROR)
    before = await read_figures(store)
    await call(host, "three", *results)
    after = await read_figures(store)
    assert after.told - before.told == 1
    for key in ("kept", "repeated"):
        assert getattr(after, key) - getattr(before, key) == (key == name)
