"""What worked in the place of what failed: learnt from sessions, told and repaired."""

from __future__ import annotations

from typing import Any

import pytest

import heedful
from heedful.lessons.lesson import source_of
from heedful.lessons.preconditions import Surroundings, preconditions_of
from heedful.store import substitutions
from heedful.store.repairs import (
    JudgedCall,
    Repair,
    find_repair,
    offer,
    settle,
)
from heedful.store.substitutions import KnownSubstitution
from tests.memory.agent_sessions import learn, step
from tests.memory.test_preconditions import read
from tests.store.support import count_repairs
from tests.trusted import OWN

pytestmark = pytest.mark.both_nightly
TRUST: Any = OWN
FROZEN = "unknown option '--frozen'"
COMMAND = {"command": "npm ci --frozen"}


@pytest.fixture
def memory(store: Any) -> heedful.Memory:
    return heedful.Memory(store, trust=TRUST, holdout=0.0)


async def learn_frozen(
    memory: heedful.Memory, id: str, mended: bool = True, error: str = FROZEN
) -> None:
    """Learn a session in which an option failed and, if mended, worked without it."""
    steps = [step("Bash", "npm ci --frozen", error)]
    if mended:
        steps.append(step("Bash", "npm ci"))
    await learn(memory, id, *steps)


async def known(
    memory: heedful.Memory, tool: str = "Bash", arguments: Any = COMMAND
) -> tuple[KnownSubstitution, ...]:
    """Return what is known to work in the place of anything in a call."""
    return await memory.store.read(
        memory.scope,
        substitutions.find,
        preconditions_of(tool, arguments, Surroundings("/r")),
        (tool, arguments),
        folder="/r",
        trust=memory.trust,
    )


async def repair_of(
    memory: heedful.Memory, arguments: Any = COMMAND, session: str = "next"
) -> Repair | None:
    call = JudgedCall(tool="Bash", arguments=arguments, session=session, folder="/r")
    return await memory.store.read(memory.scope, find_repair, call, memory.trust)


async def end_repair(memory: heedful.Memory, session: str, *, failed: bool) -> None:
    """Repair a call of a session, and say how it ended."""
    repair = await repair_of(memory, session=session)
    assert repair is not None
    call = JudgedCall(tool="Bash", arguments=COMMAND, session=session, folder="/r")
    await memory.store.write(memory.scope, offer, call, "c1", repair)
    repaired = JudgedCall(
        tool="Bash",
        arguments=repair.known.arguments,
        errors=["npm: out of memory"] if failed else (),
        session=session,
        folder="/r",
    )
    await memory.store.write(memory.scope, settle, repaired, "c1")


async def test_a_substitution_counts_once_a_session(memory: heedful.Memory) -> None:
    assert await known(memory) == ()
    await learn_frozen(memory, "s1")
    await learn_frozen(memory, "s2")
    (frozen,) = await known(memory)
    assert frozen.arguments == {"command": "npm ci"}
    assert frozen.sessions == 2
    assert frozen.trusted == 2
    assert frozen.text == "without `--frozen` worked in 2 sessions"


async def test_it_is_told_before_a_call_that_surely_fails(
    memory: heedful.Memory,
) -> None:
    await learn_frozen(memory, "s1")
    await learn_frozen(memory, "s2")
    history = await memory.before("Bash", "npm ci --frozen --silent", folder="/r")
    assert "npm ci" in str(history.failures[0])


async def test_it_holds_for_other_calls_with_the_same_word(
    memory: heedful.Memory,
) -> None:
    await learn_frozen(memory, "s1")
    (frozen,) = await known(memory, arguments={"command": "npm ci --frozen web"})
    assert frozen.arguments == {"command": "npm ci web"}
    assert await known(memory, arguments={"command": "npm publish --frozen"}) == ()


async def test_a_path_that_was_opened_in_its_place(memory: heedful.Memory) -> None:
    absent = step("Read", read("/r/docs/guides.md"), "File does not exist.")
    await learn(memory, "s1", absent, step("Read", read("/r/docs/guide.md")))
    (path,) = await known(memory, "Read", read("/r/docs/guides.md"))
    assert path.arguments == read("/r/docs/guide.md")


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([step("Bash", "npm test")], id="another command"),
        pytest.param(
            [
                step(
                    "Edit", {"file_path": "/r/a", "old_string": "", "new_string": "x"}
                ),
                step("Bash", "npm ci"),
            ],
            id="after an edit",
        ),
        pytest.param(
            [step("Bash", "npm ci"), step("Bash", "npm ci --frozen")],
            id="the same call works later",
        ),
        pytest.param(
            [step("Bash", "npm ci", "EACCES: permission denied")], id="fails, too"
        ),
    ],
)
async def test_what_put_nothing_right_is_none(
    memory: heedful.Memory, steps: list[Any]
) -> None:
    await learn(memory, "s1", step("Bash", "npm ci --frozen", FROZEN), *steps)
    assert await known(memory) == ()


async def test_particulars_and_secrets_are_not_learnt(memory: heedful.Memory) -> None:
    error = "unknown option '--up'"
    branch = step("Bash", "git checkout -b shop/cart")
    failed = step("Bash", "git push --up origin", error)
    for number, word in enumerate(("shop/cart", "AKIAIOSFODNN7EXAMPLE")):
        passed = step("Bash", f"git push {word} origin")
        await learn(memory, f"s{number}", branch, failed, passed)
    assert await known(memory, arguments={"command": "git push --up origin"}) == ()


async def test_what_failed_later_rests_until_it_works(memory: heedful.Memory) -> None:
    absent = step("Read", read("/r/docs/guides.md"), "File does not exist.")
    there = step("Read", read("/r/docs/guide.md"))
    gone = step("Read", read("/r/docs/guide.md"), "File does not exist.")
    await learn(memory, "s1", absent, there)
    await learn(memory, "s2", gone)
    assert await known(memory, "Read", read("/r/docs/guides.md")) == ()
    await learn(memory, "s3", there)
    assert len(await known(memory, "Read", read("/r/docs/guides.md"))) == 1


async def test_words_of_others_are_not_told_and_repair_nothing(store: Any) -> None:
    bare = heedful.Memory(store, holdout=0.0)
    await learn_frozen(bare, "s1")
    await learn_frozen(bare, "s2")
    assert await known(bare) == ()
    await bare.set_trust("tool", "measured", by="ada")
    await bare.set_trust("program:npm", "measured", by="ada")
    await bare.set_trust("user", "operator", by="ada")
    (frozen,) = await known(bare)
    assert frozen.trusted == 2


LOCKED = "npm error: the registry is locked"


async def release_all(memory: heedful.Memory) -> None:
    waiting = [entry.id for entry in await memory.quarantine.waiting()]
    await memory.quarantine.release(waiting, by="ada")


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("npm push", id="a short command"),
        pytest.param("npm push 1234 5678", id="with numbers"),
        pytest.param(
            f"npm push {' '.join(['web/src/cart'] * 30)}", id="of 390 letters"
        ),
    ],
)
async def test_a_released_remedy_is_told(store: Any, command: str) -> None:
    bare = heedful.Memory(store, holdout=0.0)
    worked = command.replace("push", "push --wait-long")
    await learn(bare, "s1", step("Bash", command, LOCKED), step("Bash", worked))
    assert await known(bare, arguments={"command": command}) == ()
    await release_all(bare)
    (released,) = await known(bare, arguments={"command": command})
    assert released.arguments == {"command": worked}
    assert released.trusted == 0
    assert released.lesson


@pytest.mark.parametrize(
    ("failed", "worked"),
    [
        pytest.param("npm push --dry-run", "npm push", id="no new word"),
        pytest.param("npm push --wat", "npm push --wait", id="part of a released word"),
        pytest.param("npm push --wat", "npm push --wait-long", id="a released word"),
    ],
)
async def test_a_released_text_vouches_only_for_what_it_says(
    store: Any, failed: str, worked: str
) -> None:
    bare = heedful.Memory(store, holdout=0.0)
    mended = [step("Bash", "npm push", LOCKED), step("Bash", "npm push --wait-long")]
    await learn(bare, "s1", *mended)
    await release_all(bare)
    for id in ("s2", "s3"):
        await learn(bare, id, step("Bash", failed, LOCKED), step("Bash", worked))
    assert await known(bare, arguments={"command": failed}) == ()


async def test_a_released_text_vouches_for_no_other_call_of_its_session(
    store: Any,
) -> None:
    bare = heedful.Memory(store, holdout=0.0)
    error = "error: [--dry-run] is not known here"
    first = [step("Bash", "npm push --dry-run", error), step("Bash", "npm push")]
    second = [step("Bash", "npm ship --dry-run", error), step("Bash", "npm ship")]
    await learn(bare, "s1", *first, *second)
    await release_all(bare)
    (released,) = await known(bare, arguments={"command": "npm push --dry-run"})
    assert released.arguments == {"command": "npm push"}
    assert await known(bare, arguments={"command": "npm ship --dry-run"}) == ()


async def test_a_call_is_repaired_after_two_sessions(memory: heedful.Memory) -> None:
    await learn_frozen(memory, "s1")
    assert await repair_of(memory) is None
    await learn_frozen(memory, "s2")
    repair = await repair_of(memory)
    assert repair is not None
    assert repair.known.arguments == {"command": "npm ci"}
    assert "failed in 2 sessions and never worked" in repair.text


async def test_two_failures_and_one_remedy_repair_nothing(
    memory: heedful.Memory,
) -> None:
    await learn_frozen(memory, "s1")
    await learn_frozen(memory, "s2", mended=False)
    await learn_frozen(memory, "s3", mended=False)
    assert await repair_of(memory) is None


async def test_what_ever_passed_is_not_repaired(memory: heedful.Memory) -> None:
    await learn(memory, "s0", step("Bash", "npm ci --frozen"))
    await learn_frozen(memory, "s1")
    await learn_frozen(memory, "s2")
    assert await repair_of(memory) is None


async def test_a_session_teaches_itself_no_repair(memory: heedful.Memory) -> None:
    await learn_frozen(memory, "s1")
    await learn_frozen(memory, "s2")
    assert await repair_of(memory, session="s2") is None


async def test_a_repair_that_failed_rests_until_it_works(
    memory: heedful.Memory,
) -> None:
    await learn_frozen(memory, "s1")
    await learn_frozen(memory, "s2")
    await end_repair(memory, "s3", failed=False)
    await end_repair(memory, "s4", failed=True)
    assert await repair_of(memory) is None
    counts = await memory.store.read(memory.scope, count_repairs)
    assert counts == {"passed": 1, "failed": 1}
    await learn_frozen(memory, "s5")
    assert await repair_of(memory) is not None


async def test_a_call_that_is_not_the_repaired_one_settles_nothing(
    memory: heedful.Memory,
) -> None:
    await learn_frozen(memory, "s1")
    await learn_frozen(memory, "s2")
    repair = await repair_of(memory)
    assert repair is not None
    call = JudgedCall(tool="Bash", arguments=COMMAND, session="s3", folder="/r")
    await memory.store.write(memory.scope, offer, call, "c1", repair)
    await memory.store.write(memory.scope, settle, call, "c1")
    counts = await memory.store.read(memory.scope, count_repairs)
    assert counts == {"offered": 1}


async def test_a_session_that_is_revoked_takes_its_own_along(
    memory: heedful.Memory,
) -> None:
    await learn_frozen(memory, "s1")
    # Of another lesson: one that loses its only example is deleted with all about it.
    await learn_frozen(memory, "s2", error="npm does not know '--frozen': bad option")
    await memory.quarantine.revoke(source_of("s1"), by="ada")
    (frozen,) = await known(memory)
    assert frozen.sessions == 1


async def test_a_program_that_is_revoked_takes_all_along(
    memory: heedful.Memory,
) -> None:
    await learn_frozen(memory, "s1")
    await memory.quarantine.revoke("program:npm", by="ada")
    assert await known(memory) == ()


async def test_a_memory_that_is_cleared_knows_none(memory: heedful.Memory) -> None:
    await learn_frozen(memory, "s1")
    await learn_frozen(memory, "s2")
    await end_repair(memory, "s3", failed=True)
    await memory.clear()
    assert await known(memory) == ()
    assert await memory.store.read(memory.scope, count_repairs) == {}
