"""Lessons that age: files that changed, remedies that failed, and what waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import heedful
from heedful.episodes.episode import Episode, Event
from heedful.store import calls
from tests.hosts import patient_host

MISSING = "E   ModuleNotFoundError: No module named 'babel'"
TSC = "src/cart.ts(14,3): error TS2304: Cannot find name 'total'."


def step(tool: str, arguments: Any, error: str = "") -> list[Event]:
    """Return a call with its result."""
    if isinstance(arguments, str):
        arguments = {"command": arguments}
    content = "" if error else "done"
    call = Event("tool_call", tool=tool, arguments=arguments)
    return [call, Event("tool_response", content, tool=tool, error=error)]


def session(id: str, events: list[Event]) -> Episode:
    """Return the session with these events."""
    return Episode(tuple(events), "partial", session=id)


def edited_session(root: Path, id: str = "s1") -> Episode:
    """Return a session in which an edit of src/names.d.ts put the compiler right."""
    change = {"old_string": "total", "new_string": "sum"}
    edit = {"file_path": f"{root}/src/names.d.ts", **change}
    events = [
        *step("Bash", "npx tsc", TSC),
        *step("Edit", edit),
        *step("Bash", "npx tsc"),
    ]
    return session(id, events)


@pytest.fixture
def memory(store: Any) -> heedful.Memory:
    return heedful.Memory(store, holdout=0.0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a file."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "names.d.ts").write_text("sum")
    return tmp_path


async def ask(memory: heedful.Memory, root: str) -> str:
    """Return what a host in a repository is told about the error of the compiler."""
    host = patient_host(memory=memory, strict=True, root=root)
    advice = await host.run().seen("Bash", TSC)
    return advice.text


async def test_a_lesson_says_that_its_file_changed(memory, root):
    file = root / "src" / "names.d.ts"
    await heedful.learn_session(edited_session(root), memory=memory, root=str(root))
    assert "+sum" in await ask(memory, str(root))
    assert "changed since" not in await ask(memory, str(root))

    file.write_text("sum + tax")
    text = await ask(memory, str(root))
    assert "+sum" in text
    assert "(src/names.d.ts has changed since this was learnt.)" in text


async def test_a_lesson_rests_while_its_file_is_gone(memory, root):
    file = root / "src" / "names.d.ts"
    await heedful.learn_session(edited_session(root), memory=memory, root=str(root))
    file.unlink()
    assert await ask(memory, str(root)) == ""
    assert "+sum" in await ask(memory, "")

    file.write_text("sum")
    assert "+sum" in await ask(memory, str(root))


async def test_a_lesson_that_comes_back_is_about_the_file_as_it_is_then(memory, root):
    await heedful.learn_session(edited_session(root), memory=memory, root=str(root))
    (root / "src" / "names.d.ts").write_text("sum + tax")
    again = edited_session(root, id="s2")
    await heedful.learn_session(again, memory=memory, root=str(root))
    assert "changed since" not in await ask(memory, str(root))


async def test_a_session_elsewhere_keeps_what_is_known_of_the_file(memory, root):
    await heedful.learn_session(edited_session(root), memory=memory, root=str(root))
    elsewhere = edited_session(root, id="s2")
    await heedful.learn_session(elsewhere, memory=memory)
    (root / "src" / "names.d.ts").write_text("sum + tax")
    assert "changed since" in await ask(memory, str(root))


async def test_no_file_outside_of_the_repository_is_read(
    memory, root, tmp_path_factory
):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "names.d.ts"
    elsewhere.write_text("sum")
    file = root / "src" / "names.d.ts"
    file.unlink()
    file.symlink_to(elsewhere)
    await heedful.learn_session(edited_session(root), memory=memory, root=str(root))
    [lesson] = await memory.top(5)
    mistakes = await memory.store.read(memory.scope, calls.mistakes, [lesson["id"]])
    assert not mistakes[lesson["id"]].files


INSTALL = [
    *step("Bash", "pytest -q", MISSING),
    *step("Bash", "pip install babel"),
    *step("Bash", "pytest -q"),
]
REFUSED = step("Bash", "pip install babel", "ERROR: externally-managed-environment")


@pytest.mark.both_nightly
async def test_a_remedy_that_failed_itself_is_not_offered(memory):
    await heedful.learn_session(session("s1", INSTALL), memory=memory)
    seen = await memory.seen("Bash", MISSING)
    assert "pip install babel" in seen.lessons[0]["text"]

    await heedful.learn_session(session("s2", REFUSED), memory=memory)
    seen = await memory.seen("Bash", MISSING)
    assert "pip install babel" not in seen.lessons[0]["text"]
    assert "No module named 'babel'" in seen.lessons[0]["text"]


async def test_before_a_call_a_remedy_that_failed_is_not_offered(memory):
    form = [
        *step("Bash", "git push --up b", "error: unknown option `up'"),
        *step("Bash", "git push origin b"),
    ]
    for name in ("s0", "s1"):
        await heedful.learn_session(session(name, form), memory=memory)
    [failure] = (await memory.before("Bash", "git push --up b")).failures
    assert failure.fix == "Bash `git push origin b`"

    broken = step("Bash", "git push origin b", "fatal: no remote")
    await heedful.learn_session(session("s2", broken), memory=memory)
    [failure] = (await memory.before("Bash", "git push --up b")).failures
    assert failure.fix == ""


async def test_a_remedy_that_works_again_is_offered(memory):
    sessions = [INSTALL, REFUSED, step("Bash", "pip install babel")]
    for number, events in enumerate(sessions):
        await heedful.learn_session(session(f"s{number}", events), memory=memory)
    seen = await memory.seen("Bash", MISSING)
    assert "pip install babel" in seen.lessons[0]["text"]
