"""Rules of the user through hooks: heard, stored, shown, and told before calls."""

from pathlib import Path

import pytest

from heedful import Memory
from heedful_agents.session_hooks import Reply
from tests import engines
from tests.hooks.sessions import Session

PNPM = "No, we use pnpm, never npm"
pytestmark = pytest.mark.both_nightly


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    store = engines.in_memory()
    return Memory(store, holdout=0.0)


def note_of(answer: Reply) -> str:
    """Return what an answer shows the person."""
    return str((answer.answer or {}).get("systemMessage", ""))


async def test_rule_is_stored_at_once_and_shown_with_what_removes_it(
    memory: Memory,
) -> None:
    session = Session(memory)
    await session.start()
    answer = await session.send("prompt", prompt=PNPM)

    (stated,) = await memory.user_rules.in_force()
    assert stated.text == PNPM
    assert stated.trust == "user"
    assert PNPM in note_of(answer)
    assert f"heedful rules retire {stated.id} --by NAME" in note_of(answer)
    assert PNPM in await session.run("npm ci")


async def test_rule_is_told_once_before_a_call_that_it_names(memory: Memory) -> None:
    await memory.user_rules.state("never use npm", by="ann")
    session = Session(memory)
    await session.start()

    assert "never use npm" not in await session.run("git status")
    assert "never use npm" in await session.run("npm ci")
    assert "never use npm" not in await session.run("npm ci")


async def test_rules_of_the_own_memory_hold_in_all_projects(
    memory: Memory, tmp_path: Path
) -> None:
    own_file = str(tmp_path / "own.db")
    await Memory(own_file).user_rules.state("never use npm", by="ann")
    session = Session(memory, everywhere=own_file)

    assert "never use npm" in await session.start()
    assert "never use npm" in await session.run("npm ci")
    assert "never use npm" not in await session.run("npm ci")
