"""What a stop rule of the user's own sees of the task and of earlier loops."""

from typing import Any

import pytest

import heedful
from heedful.drive.drive import run
from heedful.loop.decide import Done, Policy
from heedful.loop.record import Loop
from heedful.loop.stop import MaxAttempts
from heedful.memory.memory import Memory
from tests.drive.support import SCOPE, WANTED, Check, Generator

pytestmark = pytest.mark.both_nightly


async def solve(store: Any, attempts: int, key: str, policy: Any = None) -> None:
    """Run a loop whose attempt of this number is the first that passes."""
    await run(
        f"Solve it in {attempts}.",
        generate=Generator(*map("wrong {}".format, range(1, attempts)), WANTED),
        checks=[Check()],
        policy=policy or Policy((MaxAttempts(4),)),
        memory=Memory(store, SCOPE),
        memory_key=key,
        store=store,
    )


async def test_a_rule_that_adapts_to_earlier_loops_ends_a_loop(store):
    def adaptive(loop: Loop) -> str | None:
        """Allow one attempt more than such tasks needed."""
        limit = max(loop.needed, default=1) + 1
        return "enough" if len(loop.attempts) >= limit else None

    await solve(store, 2, key="mine")
    result = await run(
        "Solve it.",
        generate=Generator("a", "b", "c", "d"),
        checks=[Check()],
        policy=heedful.Policy((MaxAttempts(4), adaptive)),
        memory=Memory(store, SCOPE),
        memory_key="mine",
        store=store,
    )
    assert isinstance(result.verdict, Done)
    assert [stop.detail for stop in result.verdict.stopped_by] == ["enough"]
    assert len(result.loop.attempts) == 3
