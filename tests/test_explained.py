"""A stored loop is explained by its recorded verdicts, even under another policy."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

import heedful
from heedful.store import loops
from heedful.store.sqlite import in_file


@pytest.fixture
def store(tmp_path):
    return in_file(str(tmp_path / "a.db"))


numbers = count()


def drive(store: heedful.Store, loop: str, policy: heedful.Policy) -> heedful.Run[Any]:
    """Begin or resume a loop whose answers are never right."""
    return heedful.Run(
        "t",
        generate=lambda task, hint: f"bad {next(numbers)}",
        checks=[heedful.checks.contains("good")],
        policy=policy,
        store=store,
        id=loop,
    )


async def why(store: heedful.Store) -> heedful.Explanation:
    stored = await store.read(heedful.Scope(), loops.read, "a")
    await store.close()
    return loops.explained(stored)


async def test_an_echo_over_the_scope_is_explained(store):
    policy = heedful.policy("stage, attempts.limit=9, echo.times=4, echo.across=scope")
    await drive(store, "before", heedful.policies.stage).finish()
    run = drive(store, "a", policy)
    await run.finish()
    await run.override("echo", "ada")
    await run.finish()
    found = await why(store)
    heard = "stopped by echo: the same finding again: contains 'good' in 5 attempts"
    assert [line.decided for line in found.lines] == ["again (echo overridden by ada)", heard]
    assert found.ways == ("echo.times 6 instead of 4: again",)
