"""Rules of the user through hooks: heard, stored, shown, told and denied, counted."""

from pathlib import Path
from typing import Any

import pytest

from heedful import Memory
from heedful_agents.session_hooks import HookSettings, Reply, reply
from tests import engines
from tests.hooks.sessions import Session, context_of

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


async def test_rule_is_told_at_each_call_that_breaks_it_and_at_no_other(
    memory: Memory,
) -> None:
    await memory.user_rules.state(PNPM, by="ann")
    session = Session(memory)
    await session.start()

    for command in ("git status", "pnpm add zod", "grep npm README.md"):
        assert PNPM not in await session.run(command)
    for _ in range(2):
        assert f"{PNPM} (instead: pnpm)" in await session.run("npm ci")


async def test_every_agent_of_a_session_is_told(memory: Memory) -> None:
    await memory.user_rules.state("never use npm", by="ann")
    session = Session(memory)
    await session.start()
    call = {"tool_name": "Bash", "tool_input": {"command": "npm ci"}}
    for agent in ("", "a1", "a1", "a2"):
        answer = await session.send("before", **call, tool_use_id="t", agent_id=agent)
        assert "never use npm" in context_of(answer)


def denial_of(answer: Reply) -> str:
    """Return why a call is denied; "" if it is not."""
    output: dict[str, Any] = (answer.answer or {}).get("hookSpecificOutput", {})
    return str(output.get("permissionDecisionReason", ""))


async def before(session: Session, command: str, **settings: Any) -> Reply:
    """Return the answer before a command, with these settings of the hooks."""
    event = {
        "session_id": session.id,
        "tool_name": "Bash",
        "tool_use_id": command,
        "tool_input": {"command": command},
    }
    hook_settings = HookSettings(**settings)
    return await reply("PreToolUse", event, session.host, settings=hook_settings)


async def test_deny_denies_what_a_rule_forbids_and_nothing_else(
    memory: Memory,
) -> None:
    await memory.user_rules.state(PNPM, by="ann")
    session = Session(memory)
    reason = denial_of(await before(session, "npm ci", deny=True))
    assert PNPM in reason
    assert "instead: pnpm" in reason
    assert not denial_of(await before(session, "pnpm i", deny=True))
    assert not denial_of(await before(session, "npm ci"))


async def test_one_rule_may_be_denied_until_it_is_allowed(memory: Memory) -> None:
    rule = await memory.user_rules.state(PNPM, by="ann")
    await memory.user_rules.state("never use yarn", by="ann")
    await memory.user_rules.deny(rule.id, by="ann")
    session = Session(memory)
    assert denial_of(await before(session, "npm ci"))
    assert not denial_of(await before(session, "yarn add zod"))
    await memory.user_rules.state(PNPM, by="ann")
    assert denial_of(await before(session, "npm ci")), "said again, it stays denied"
    await memory.user_rules.allow(rule.id, by="ann")
    assert not denial_of(await before(session, "npm ci"))


async def test_ledger_counts_what_was_told_kept_broken_and_denied(
    memory: Memory,
) -> None:
    rule = await memory.user_rules.state(PNPM, by="ann")
    first = Session(memory, id="first")
    await first.start()
    await first.run("npm ci")
    await first.run("pnpm add zod")
    await first.run("git status")
    await before(first, "npm publish", deny=True)
    await first.send("end", reason="other")
    # A session that goes on counts, too.
    second = Session(memory, id="second")
    await second.run("npm ci")
    (listed,) = await memory.user_rules.with_ledgers(await memory.user_rules.list())

    ledger = listed.ledger
    assert (ledger.starts, ledger.told, ledger.kept) == (1, 3, 1)
    assert (ledger.broken, ledger.denied, ledger.ignored) == (2, 1, 1)
    deeds = [(call.deed, call.call, call.session) for call in ledger.calls]
    assert deeds == [
        ("broken", "npm ci", "first"),
        ("kept", "pnpm add zod", "first"),
        ("denied", "npm publish", "first"),
        ("broken", "npm ci", "second"),
    ]
    assert not ledger.proposes_denial
    await second.run("npm i")
    (listed,) = await memory.user_rules.with_ledgers([rule])
    assert listed.ledger.proposes_denial


async def test_a_rule_that_a_later_one_ended_is_broken_no_more(memory: Memory) -> None:
    await memory.user_rules.state(PNPM, by="ann")
    session = Session(memory)
    await session.run("npm ci")
    await memory.user_rules.state("use npm instead of pnpm", by="ann")
    await session.run("npm ci")
    later, ended = await memory.user_rules.with_ledgers(await memory.user_rules.list())
    assert [call.deed for call in later.ledger.calls] == ["kept"]
    assert [call.deed for call in ended.ledger.calls] == ["broken"]


async def test_no_denial_is_proposed_that_would_be_refused(memory: Memory) -> None:
    rule = await memory.user_rules.state(PNPM, by="ann")
    session = Session(memory)
    await session.start()
    await session.run("npm ci")
    await session.run("npm run x && pnpm i")
    (listed,) = await memory.user_rules.with_ledgers([rule])
    assert listed.ledger.ignored == 2
    assert not listed.ledger.proposes_denial


async def test_a_call_before_the_rule_was_said_breaks_nothing(memory: Memory) -> None:
    session = Session(memory)
    await session.run("npm ci")
    rule = await memory.user_rules.state(PNPM, by="ann")
    (stated,) = await memory.user_rules.list()
    (listed,) = await memory.user_rules.with_ledgers([stated])
    assert listed.ledger.broken == 0
    trial = await memory.user_rules.try_denial(rule)
    assert (trial.calls, trial.blocked, trial.obeying) == (1, ("npm ci",), ())


async def test_rule_about_a_file_says_that_it_changed_and_is_silent_once_it_is_gone(
    memory: Memory, tmp_path: Path
) -> None:
    file = tmp_path / "schema.sql"
    file.write_text("create table t (a)")
    root = str(tmp_path)
    text = "never edit schema.sql"
    await memory.user_rules.state(text, by="ann", root=root)
    session = Session(memory, root=root)
    edit = {"file_path": str(file), "old_string": "a", "new_string": "b"}

    advice, _ = await session.call("Edit", edit)
    assert text in advice
    assert "check first" not in advice
    file.write_text("create table t (b)")
    advice, _ = await session.call("Edit", edit)
    assert "schema.sql has changed since this was learnt: check first" in advice
    file.unlink()
    advice, _ = await session.call("Edit", edit)
    assert text not in advice
    assert text not in await session.start()


async def test_rules_of_the_own_memory_hold_in_all_projects(
    memory: Memory, tmp_path: Path
) -> None:
    own_file = str(tmp_path / "own.db")
    await Memory(own_file).user_rules.state("never use npm", by="ann")
    session = Session(memory, everywhere=own_file)

    assert "never use npm" in await session.start()
    assert "never use npm" in await session.run("npm ci")
