"""What worked in the place of what failed: learnt from sessions, and told."""

from __future__ import annotations

from typing import Any

import pytest

import heedful
from heedful.lessons.lesson import source_of
from heedful.lessons.preconditions import Surroundings, preconditions_of
from heedful.store import substitutions
from heedful.store.substitutions import KnownSubstitution
from tests.memory.agent_sessions import learn, step

pytestmark = pytest.mark.both_nightly
FROZEN = "unknown option '--frozen'"
COMMAND = {"command": "npm ci --frozen"}


def read(path: str) -> dict[str, str]:
    return {"file_path": path}


@pytest.fixture
def memory(store: Any) -> heedful.Memory:
    return heedful.Memory(store, holdout=0.0)


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
        trust=memory.stated,
    )


async def test_a_substitution_counts_once_a_session(memory: heedful.Memory) -> None:
    assert await known(memory) == ()
    await learn_frozen(memory, "s1")
    await learn_frozen(memory, "s2")
    (frozen,) = await known(memory)
    assert frozen.arguments == {"command": "npm ci"}
    assert frozen.sessions == 2
    assert frozen.sessions == 2
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


LOCKED = "npm error: the registry is locked"


async def release_all(memory: heedful.Memory) -> None:
    waiting = [entry.id for entry in await memory.quarantine.waiting()]
    await memory.quarantine.release(waiting, by="ada")


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
    await memory.clear()
    assert await known(memory) == ()
